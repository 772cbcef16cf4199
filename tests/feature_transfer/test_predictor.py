"""Texts in, labels out: the same whatever the batches, and nothing is left without an answer."""

import numpy as np
import pytest

from residuum import onnx_graphs
from residuum.activations.extraction import extract
from residuum.corpus import Corpus
from residuum.errors import CorpusError, SettingError
from residuum.feature_transfer.classifiers import Classifier
from residuum.feature_transfer.onnx_export import check_onnx, write_onnx
from residuum.feature_transfer.predicting import Predictor, Unit
from residuum.feature_transfer.scoring import prediction_score
from residuum.models import first_layers, load_model
from tiny import TEXT

LAYERS, INDICES = np.array([0, 0, 1, 2, 2, 2]), np.array([3, 5, 1, 0, 7, 9])


def classifier(labels=("x", "y", "z")) -> Classifier:
    rng = np.random.default_rng(3)
    rows = max(len(labels), 1)
    return Classifier(rng.standard_normal((rows, 6), np.float32), np.zeros(rows, np.float32), LAYERS, INDICES, labels)


@pytest.fixture(scope="module")
def model(tiny_folder):
    return first_layers(load_model(tiny_folder()), 2)


@pytest.fixture(scope="module")
def predictor(model):
    return Predictor(model, classifier(), Unit())


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_labels_are_those_of_the_stored_activations(pooling, model, tmp_path):
    corpus = Corpus("text", [line.split() for line in TEXT[:8]])
    store = extract(model, corpus, tmp_path, pooling=pooling, progress=False)
    x = store.array()[:, LAYERS, INDICES]
    expected = classifier().decide(x).tolist()
    found = Predictor(model, classifier(), Unit(pooling=pooling)).predict_corpus(corpus, batch_size=3)
    assert [label for sentence in found for label in sentence] == expected


def test_batches_change_nothing(predictor):
    assert predictor.predict(TEXT[:8], batch_size=1) == predictor.predict(TEXT[:8], batch_size=32)


def test_words_may_come_as_lists(predictor):
    assert predictor.predict([["the", "fox"]]) == predictor.predict(["the  fox "])


def test_texts_without_words_have_no_labels(predictor):
    assert predictor.predict(["", "the fox"])[0] == []
    assert predictor.predict([]) == []


def test_a_word_that_no_piece_stands_for_has_no_label(predictor):
    found = predictor.predict(["the \u200b fox"])
    assert found[0][1] is None
    assert None not in (found[0][0], found[0][2])


def test_long_sentences_are_read_whole(predictor):
    assert len(predictor.predict(["the fox jumps " * 60])[0]) == 180


def test_numbers_are_predicted_for_sentences(model):
    found = Predictor(model, classifier(()), Unit(unit="sentence")).predict(["the fox", "a dog"])
    assert all(isinstance(number, float) for number in found)


@pytest.mark.parametrize(
    ("unit", "texts", "message"),
    [
        (Unit(unit="sentence"), [""], "Text 0 is empty"),
        (Unit(unit="sentence", pairs=True), ["one alone"], "expected two segments"),
        (Unit(), [["the", ""]], "has the word ''"),
    ],
)
def test_texts_that_cannot_be_read_are_named(unit, texts, message, model):
    with pytest.raises(CorpusError, match=message):
        Predictor(model, classifier(), unit).predict(texts)


def test_one_text_is_not_taken_for_a_list_of_letters(predictor):
    with pytest.raises(SettingError, match="expected a list of texts"):
        predictor.predict("the fox")


def test_scores_leave_out_what_has_no_label_and_count_words():
    found, truth = [["a", "b"], ["a"]], [["a", None], ["b"]]
    assert prediction_score(found, truth, unit="word", regression=False) == 0.5
    numbers = prediction_score([1.0, 2.0, 4.0], [2, 3, 9], unit="sentence", regression=True)
    assert numbers == pytest.approx(np.corrcoef([1, 2, 4], [2, 3, 9])[0, 1])
    with pytest.raises(CorpusError, match="Text 0 has 2 words, but 1 labels"):
        prediction_score([["a", "b"]], [["a"]], unit="word", regression=False)


@pytest.mark.parametrize("family", ["bert", "mpnet", "gpt2"])
def test_onnx_gives_the_scores_of_the_network(family, tiny_folder, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra [onnx] is not installed")
    pytest.importorskip("onnx", reason="the extra [onnx] is not installed")
    network = first_layers(load_model(tiny_folder(family)), 2)
    predictor = Predictor(network, classifier(), Unit())
    assert write_onnx(predictor, tmp_path) <= 1e-4
    text = "the quick brown fox"
    ids = network.tokenizer(text)["input_ids"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    inputs = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
    labels = np.array(["x", "y", "z"])[session.run(None, inputs)[0][0].argmax(axis=1)]
    words = network.tokenizer(text).word_ids()
    last = [max(t for t, w in enumerate(words) if w == word) for word in range(4)]
    assert labels[last].tolist() == predictor.predict([text])[0]


def test_onnx_of_pairs_is_refused(model, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra [onnx] is not installed")
    with pytest.raises(SettingError, match="cannot be written for pairs"):
        write_onnx(Predictor(model, classifier(), Unit(unit="sentence", pairs=True)), tmp_path)


def test_without_the_extra_onnx_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(onnx_graphs, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"onnx and onnxruntime cannot be imported; ONNX needs pip install"):
        check_onnx(Unit())
