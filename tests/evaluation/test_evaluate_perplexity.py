"""`evaluate perplexity`: against full logits, token by token, of masked and causal models."""

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers as hf
from bilingual import save_language_model

from residuum.corpus import Corpus
from residuum.errors import MemoryLimitError, ModelError, SettingError
from residuum.evaluation.encoding import token_windows
from residuum.evaluation.perplexity import evaluate_perplexity, line_losses, load_language_model, masked_predictions
from residuum.evaluation.settings import PerplexitySettings
from tiny import TEXT

LINES = TEXT[:3]
MASKED = ("bert", "distilbert", "electra", "mpnet")
CAUSAL = ("gpt2", "llama", "gpt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    built = {}

    def of(family: str, kind: str):
        if (family, kind) not in built:
            place = tmp_path_factory.mktemp("language-models") / f"{family}-{kind}"
            built[family, kind] = save_language_model(place, family, kind)
        return built[family, kind]

    return of


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("family", CAUSAL)
def test_a_decoder_against_its_own_loss(family, folder, text):
    place = folder(family, "causal")
    found = evaluate_perplexity(place, text, progress=False).frame.iloc[0]
    model, tokenizer = hf.AutoModelForCausalLM.from_pretrained(place).eval(), hf.AutoTokenizer.from_pretrained(place)
    total = count = 0
    for line in LINES:
        ids = tokenizer(line, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            total += model(input_ids=ids, labels=ids).loss.item() * (ids.shape[1] - 1)
        count += ids.shape[1] - 1
    assert found["tokens"] == count
    assert found["loss"] == pytest.approx(total / count, rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(total / count), rel=1e-5)


def rolling_log_likelihood(model, tokenizer, text: str, longest: int) -> tuple[float, int]:
    """The rolling log-likelihood of lm-eval (0.4): disjoint windows, with one token of context or as many as fit."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    prefix = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    windows = [([prefix, *ids[: longest - 1]][: len(ids)], ids[:longest])]
    predicted = len(windows[0][1])
    while predicted < len(ids):
        n = min(len(ids) - predicted, longest)
        end = predicted + n
        windows.append((ids[end - longest - 1 : end - 1], ids[end - n : end]))
        predicted = end
    total = 0.0
    for context, continuation in windows:
        with torch.no_grad():
            log_p = model(torch.tensor([context])).logits[0].double().log_softmax(-1)[-len(continuation) :]
        total += log_p[torch.arange(len(continuation)), torch.tensor(continuation)].sum().item()
    return total, len(ids)


@pytest.mark.parametrize("begin", ["bos_token", "eos_token"])
def test_a_decoder_against_the_rolling_log_likelihood_of_lm_eval(begin, folder, tmp_path):
    place = shutil.copytree(folder("gpt2", "causal"), tmp_path / "model")
    tokenizer = hf.AutoTokenizer.from_pretrained(place)
    setattr(tokenizer, begin, tokenizer.convert_ids_to_tokens(7))
    tokenizer.save_pretrained(place)
    model, lines = hf.AutoModelForCausalLM.from_pretrained(place).eval(), [*LINES, " ".join(TEXT[:16])]
    corpus = Corpus(name="text", sentences=[line.split() for line in lines])
    assert len(tokenizer(lines[-1])["input_ids"]) > 3 * 48  # several windows
    losses = line_losses(load_language_model(place), corpus, "text", PerplexitySettings(place, corpus))
    for found, line in zip(losses, lines, strict=True):
        total, count = rolling_log_likelihood(model, tokenizer, line, 48)
        assert found[1] == count
        assert found[0] == pytest.approx(-total, rel=1e-5)


@pytest.mark.slow
def test_smollm2_has_the_rolling_log_likelihood_of_lm_eval():
    place = os.environ.get("RESIDUUM_SMOLLM2")
    if not place or not Path(place).is_file():
        pytest.skip("needs RESIDUUM_SMOLLM2, a .gguf file of SmolLM2")
    headed, corpus = load_language_model(place), Corpus(name="text", sentences=[line.split() for line in TEXT[:8]])
    tokenizer = headed.body.tokenizer
    losses = line_losses(headed, corpus, "text", PerplexitySettings(place, corpus))
    for i, found in enumerate(losses):
        total, count = rolling_log_likelihood(headed.module, tokenizer, corpus.text(i), headed.body.window)
        assert found.tolist() == pytest.approx([-total, count], rel=1e-5)


def test_a_column_of_parquet_is_read_as_its_lines_are(folder, text, tmp_path):
    pd.DataFrame({"id": range(len(LINES)), "body": LINES}).to_parquet(tmp_path / "text.parquet")
    found = evaluate_perplexity(folder("gpt2", "causal"), tmp_path / "text.parquet", text="body", progress=False)
    plain = evaluate_perplexity(folder("gpt2", "causal"), text, progress=False)
    assert found.frame.equals(plain.frame)


@pytest.mark.parametrize("family", MASKED)
def test_a_masked_model_against_hiding_one_token_at_a_time(family, folder, text):
    place = folder(family, "masked")
    found = evaluate_perplexity(place, text, masking="each", progress=False).frame.iloc[0]
    model, tokenizer = hf.AutoModelForMaskedLM.from_pretrained(place).eval(), hf.AutoTokenizer.from_pretrained(place)
    losses = []
    for line in LINES:
        batch = tokenizer(line, return_tensors="pt")
        for position in range(1, batch["input_ids"].shape[1] - 1):
            ids = batch["input_ids"].clone()
            truth, ids[0, position] = int(ids[0, position]), tokenizer.mask_token_id
            with torch.no_grad():
                logits = model(**{**batch, "input_ids": ids}).logits[0, position]
            losses.append(-torch.log_softmax(logits, dim=0)[truth].item())
    assert found["tokens"] == len(losses)
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_sampled_tokens_are_hidden_as_in_pretraining(folder):
    model = load_language_model(folder("bert", "masked"))
    windows = token_windows(model.body.tokenizer, None, ["fox dog model text word " * 40] * 50, "x")
    settings = PerplexitySettings(model, ["x"])
    mask = model.body.tokenizer.mask_token_id
    predictions = list(masked_predictions(model, windows, settings))
    again = list(masked_predictions(model, windows[:3], settings))
    assert [p.window.ids for p in again] == [p.window.ids for p in predictions[:3]]
    fates = {"masked": 0, "same": 0, "changed": 0}
    for prediction, (window,) in zip(predictions, windows, strict=True):
        untouched = np.setdiff1d(np.arange(len(window.ids)), prediction.places)
        assert [prediction.window.ids[i] for i in untouched] == [window.ids[i] for i in untouched]
        assert len(prediction.places) == round(0.15 * len(window.content))
        for place, truth in zip(prediction.places, prediction.gold, strict=True):
            assert truth == window.ids[place]
            shown = prediction.window.ids[place]
            fates["masked" if shown == mask else "same" if shown == truth else "changed"] += 1
    shares = {fate: number / sum(fates.values()) for fate, number in fates.items()}
    assert shares == pytest.approx({"masked": 0.8, "same": 0.1, "changed": 0.1}, abs=0.03)


def test_sampling_is_near_hiding_each_token_and_depends_on_the_seed(folder):
    corpus = Corpus(name="many", sentences=[line.split() for line in TEXT[:8]] * 8)
    place = folder("bert", "masked")
    sampled = evaluate_perplexity(place, corpus, progress=False).frame.iloc[0]
    each = evaluate_perplexity(place, corpus, masking="each", progress=False).frame.iloc[0]
    other = evaluate_perplexity(place, corpus, seed=1, progress=False).frame.iloc[0]
    assert sampled["loss"] == pytest.approx(each["loss"], rel=0.1)
    assert sampled["tokens"] < each["tokens"] / 4
    assert sampled["loss"] != other["loss"]
    assert sampled["low"] < sampled["perplexity"] < sampled["high"]


def test_batches_change_nothing(folder, text, monkeypatch):
    place = folder("bert", "masked")
    whole = evaluate_perplexity(place, text, progress=False).frame
    monkeypatch.setattr("residuum.evaluation.perplexity.LOGITS", 1)
    single = evaluate_perplexity(place, text, progress=False).frame
    np.testing.assert_allclose(whole["loss"], single["loss"], rtol=1e-6)


def test_weights_beyond_the_memory_limit_are_refused_and_a_tight_limit_changes_nothing(folder, text):
    place = folder("bert", "masked")
    with pytest.raises(MemoryLimitError, match="--max-memory allows"):
        evaluate_perplexity(place, text, max_memory=1000, progress=False)
    tight = evaluate_perplexity(
        place, text, max_memory=load_language_model(place).body.n_bytes + 10_000, progress=False
    )
    free = evaluate_perplexity(place, text, progress=False)
    np.testing.assert_allclose(tight.frame["loss"], free.frame["loss"], rtol=1e-6)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary(folder, text):
    model = load_language_model(folder("gpt2", "causal"))
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.zero_()
    found = evaluate_perplexity(model, {"en": text}, progress=False).frame.iloc[0]
    assert found["text"] == "en"
    assert found["perplexity"] == pytest.approx(model.vocabulary, rel=1e-4)


def test_the_same_run_again_returns_at_once(folder, text, tmp_path, monkeypatch):
    place = folder("bert", "masked")
    first = evaluate_perplexity(place, {"en": text}, out=tmp_path / "run", progress=False)
    monkeypatch.setattr("residuum.evaluation.perplexity.line_losses", None)
    again = evaluate_perplexity(place, {"en": text}, out=tmp_path / "run", progress=False)
    assert first.frame.equals(again.frame)
    assert first.run.summary["en"] == first.frame["perplexity"][0]


def test_mistakes_are_named(folder, tiny_folder, text):
    with pytest.raises(ModelError, match="BertModel, which has no language-modelling head; perplexity needs one"):
        evaluate_perplexity(tiny_folder("bert"), text, progress=False)
    with pytest.raises(ModelError, match="has no mask token"):
        evaluate_perplexity(folder("roberta", "masked"), text, progress=False)
    with pytest.raises(SettingError, match="masking is 'some'; expected one of sampled, each"):
        evaluate_perplexity(folder("bert", "masked"), text, masking="some", progress=False)  # pyright: ignore
    with pytest.raises(SettingError, match="fraction is 0"):
        evaluate_perplexity(folder("bert", "masked"), text, fraction=0, progress=False)
    with pytest.raises(SettingError, match="each with its own name"):
        evaluate_perplexity(folder("bert", "masked"), [text, text], progress=False)
    with pytest.raises(SettingError, match="No token of one can be predicted"):
        evaluate_perplexity(folder("gpt2", "causal"), Corpus(name="one", sentences=[["a"]]), progress=False)


def test_perplexity_in_half_precision_and_from_disk(folder, text):
    place = folder("gpt2", "causal")
    whole = evaluate_perplexity(place, text, progress=False).frame.iloc[0]
    half = evaluate_perplexity(place, text, precision="bfloat16", progress=False).frame.iloc[0]
    assert half["perplexity"] != whole["perplexity"]
    assert half["perplexity"] == pytest.approx(whole["perplexity"], rel=0.02)
    spread = evaluate_perplexity(place, text, device="spread", max_memory=20_000, progress=False).frame.iloc[0]
    assert spread["perplexity"] == pytest.approx(whole["perplexity"], rel=1e-6)
