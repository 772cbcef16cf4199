"""`evaluate retrieval` on a model that reads both sides alike, so that the truth is known."""

import numpy as np
import pandas as pd
import pytest
import torch
from bilingual import sentence_pairs, shifted_pairs

from residuum.errors import CorpusError, ModelError, SettingError, StoreError
from residuum.evaluation.encoding import encode, scratch
from residuum.evaluation.pairs import SentencePairs
from residuum.evaluation.retrieval import correlate_alignment, evaluate_retrieval
from residuum.models.loading import load_model
from residuum.reporting.report import report
from residuum.storage.results import read_run
from tiny import TEXT, save_model


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load_model(tiny_folder("bert"))


def test_sentences_that_read_alike_find_each_other_and_others_do_not(model):
    found = evaluate_retrieval(model, sentence_pairs(), layers="all;each", progress=False)
    assert (found.frame["accuracy"] == 1).all()
    assert (found.frame["mrr"] == 1).all()
    assert len(found.frame) == 2 * 2 * (1 + 4)  # scores × directions × (all + layers 0–3)
    wrong = evaluate_retrieval(model, shifted_pairs(), progress=False)
    assert (wrong.frame["accuracy"] == 0).all()


def test_the_cosine_is_that_of_means_over_tokens_and_layers(model):
    texts = TEXT[:5]
    with torch.no_grad(), scratch(10**9) as space:
        found = encode(model, texts, [1, 3], space, tokens=True, special_tokens=True, source="x")
        bare = encode(model, texts, [1, 3], space, tokens=False, special_tokens=False, source="x")
        for i, text in enumerate(texts):
            batch = model.tokenizer(text, return_tensors="pt")
            states = model.module(**batch, output_hidden_states=True).hidden_states
            np.testing.assert_allclose(found.means[3][i], states[3][0].mean(dim=0), atol=1e-5)
            np.testing.assert_allclose(bare.means[1][i], states[1][0, 1:-1].mean(dim=0), atol=1e-5)
            rows = slice(*found.tokens.first[i : i + 2].tolist())
            unit = torch.nn.functional.normalize(states[1][0], dim=1)
            np.testing.assert_allclose(found.tokens.states[1][rows], unit, atol=1e-5)
            np.testing.assert_array_equal(np.flatnonzero(~found.tokens.counted[rows]), [0, len(unit) - 1])
    assert bare.tokens is None


def test_a_sentence_longer_than_the_window_loses_no_token(model):
    long = " ".join(TEXT[:6])
    tokens = len(model.tokenizer(long, add_special_tokens=False)["input_ids"])
    assert tokens > model.window
    with scratch(10**9) as space:
        found = encode(model, [long, "fox"], [1], space, tokens=True, special_tokens=True, source="x")
    assert found.windowed == 1
    assert found.tokens.counted[: found.tokens.first[1]].sum() == tokens


def test_states_that_do_not_fit_the_memory_wait_in_files(model):
    inside = evaluate_retrieval(model, shifted_pairs(), layers="each", progress=False).frame
    outside = evaluate_retrieval(model, shifted_pairs(), layers="each", max_memory=0, progress=False).frame
    pd.testing.assert_frame_equal(inside, outside)


def test_a_killed_process_leaves_no_states_on_the_disk():
    with scratch(memory=0) as space:
        states = space.zeros(3, 2)
        states[1] = 7.0
        assert space.files == 1
        assert list(space.folder.iterdir()) == []  # mapped, but without a name
        assert states.sum() == 14.0


def test_two_models_of_different_depth_are_put_side_by_side_and_of_different_width_are_refused(model, tmp_path):
    same = evaluate_retrieval(model, sentence_pairs(), target_model=model, progress=False).frame
    assert (same["accuracy"] == 1).all()
    deep = load_model(save_model("bert", tmp_path / "deep", num_hidden_layers=6, intermediate_size=8))
    frame = evaluate_retrieval(model, sentence_pairs(), target_model=deep, layers="all;each", progress=False).frame
    assert list(frame["layers"].unique()) == ["all", "0", "1:2", "2:4", "3:6"]
    wide = load_model(save_model("bert", tmp_path / "wide", hidden_size=24))
    with pytest.raises(ModelError, match="has 16 neurons, layer 1 of wide has 24; both scores need as many"):
        evaluate_retrieval(model, sentence_pairs(), target_model=wide, progress=False)


def test_intervals_hold_the_value_and_hits_are_their_mean(model):
    pairs = sentence_pairs()
    half = SentencePairs(
        pairs.languages, pairs.source, pairs.target[: len(pairs) // 2] + pairs.target[len(pairs) // 2 :][::-1]
    )
    found = evaluate_retrieval(model, half, score="cosine", progress=False)
    frame = found.frame
    assert ((frame["low"] < frame["accuracy"]) & (frame["accuracy"] < frame["high"])).all()
    for row in frame.index:
        assert found.hits(row).mean() == pytest.approx(frame["accuracy"][row])
        assert len(found.hits(row)) == frame["sentences"][row]


def test_averages_are_over_pairs_of_languages(model):
    right, wrong = sentence_pairs(), shifted_pairs()
    both = evaluate_retrieval(
        model, [right, SentencePairs(("a", "b"), wrong.source, wrong.target)], score="cosine", progress=False
    )
    assert both.averages["pairs"].tolist() == [2, 2]
    assert both.averages["accuracy"].tolist() == [0.5, 0.5]
    assert both.run.summary["pairs of languages"] == 2


def test_the_same_run_again_returns_at_once_and_another_is_refused(model, tmp_path, monkeypatch):
    first = evaluate_retrieval(model, sentence_pairs(), out=tmp_path / "run", progress=False)
    monkeypatch.setattr("residuum.evaluation.retrieval._measure", None)
    again = evaluate_retrieval(model, sentence_pairs(), out=tmp_path / "run", progress=False)
    pd.testing.assert_frame_equal(first.frame, again.frame)
    np.testing.assert_array_equal(first.hits(1), again.hits(1))
    with pytest.raises(StoreError, match="holds another run"):
        evaluate_retrieval(model, shifted_pairs(), out=tmp_path / "run", progress=False)


def test_the_report_draws_layers_and_says_what_was_best(model, tmp_path):
    evaluate_retrieval(model, sentence_pairs(), layers="all;each", out=tmp_path / "run", progress=False)
    page = report([tmp_path / "run"], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Retrieval accuracy of each layer" in page
    assert "Retrieval accuracy is 1.000" in page
    evaluate_retrieval(model, sentence_pairs(), out=tmp_path / "few", progress=False)
    assert "Retrieval accuracy of each layer" not in report([tmp_path / "few"], tmp_path / "few.html").read_text(
        encoding="utf-8"
    )
    run = read_run(tmp_path / "run")
    del run.tables["retrieval"]
    with pytest.raises(StoreError, match="is not a complete run of `evaluate retrieval`"):
        report(run, tmp_path / "bad.html")


def test_correlation_needs_both_numbers_for_the_same_models(model, tmp_path):
    pairs, wrong = sentence_pairs(), shifted_pairs()
    n = len(pairs)
    runs = {}
    for name, right in {"a": n, "b": 3 * n // 4, "c": n // 2, "d": n // 4, "e": 0}.items():
        mixed = SentencePairs(pairs.languages, pairs.source, pairs.target[:right] + wrong.target[right:])
        runs[name] = evaluate_retrieval(model, mixed, out=tmp_path / name, progress=False)
    table = correlate_alignment(
        {"a": tmp_path / "a", **{k: runs[k] for k in "bcde"}}, dict(zip("abcde", (5, 4, 3, 2, 1), strict=True))
    ).frame
    assert set(table["measure"]) == {"pearson", "spearman"}
    assert (table["value"] > 0.95).all()
    assert ((table["low"] <= table["value"] + 1e-9) & (table["value"] <= table["high"] + 1e-9)).all()
    assert (table["runs"] == 5).all()
    opposite = correlate_alignment(runs, dict(zip("abcde", (1, 2, 3, 4, 5), strict=True))).frame
    np.testing.assert_allclose(opposite["value"], -table["value"])
    with pytest.raises(SettingError, match="given for a, b, c, d, e, downstream scores for a; expected both"):
        correlate_alignment(runs, {"a": 1.0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "euclid"}, "score is .euclid.; expected one of cosine, margin, bertscore"),
        ({"layers": "7"}, "Layer 7 does not exist"),
        ({"score": []}, "score is empty; choose from cosine, margin, bertscore"),
    ],
)
def test_mistakes_are_named(options, message, model):
    with pytest.raises(SettingError, match=message):
        evaluate_retrieval(model, sentence_pairs(), progress=False, **options)


def test_pairs_that_cannot_be_used_are_named(model):
    with pytest.raises(SettingError, match="retrieval needs at least 2"):
        evaluate_retrieval(model, SentencePairs(("a", "b"), ["x"], ["y"]), progress=False)
    with pytest.raises(SettingError, match="No pairs of sentences"):
        evaluate_retrieval(model, [], progress=False)
    with pytest.raises(CorpusError, match=r"Sentence 2 of a-b \(a\) .* has no token"):
        evaluate_retrieval(model, SentencePairs(("a", "b"), ["fox", "\u00ad"], ["x", "y"]), progress=False)


def test_a_real_encoder_finds_translations_more_often_than_chance(real_models, data):
    from residuum.evaluation.pairs import read_pairs

    pairs = read_pairs(data / "crosslingual" / "tatoeba" / "tatoeba.deu-eng", limit=60)
    frame = evaluate_retrieval(real_models / "gte-small", pairs, layers="12", progress=False).frame
    assert (frame["low"] > 5 / 60).all()
