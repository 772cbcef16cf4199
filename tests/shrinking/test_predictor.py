"""Texts in, labels out: the same whatever the batches, and nothing is left without an answer."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import matthews_corrcoef
from tagged_words import tagged_corpus

from residuum.activations.extraction import extract
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task
from residuum.errors import CorpusError, SettingError
from residuum.maths.metrics import score_interval
from residuum.models import onnx_graphs
from residuum.models.loading import first_layers, load_model
from residuum.shrinking.classifier import Classifier
from residuum.shrinking.measuring import prediction_score, prediction_sums
from residuum.shrinking.predicting import Predictor, Unit, write_onnx
from residuum.shrinking.transferring import transfer
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


def test_the_interval_of_a_score_is_over_texts():
    """Two texts, one all right and one all wrong: words are many, but there are only two draws."""
    found, truth = [["a"] * 30, ["a"] * 30], [["a"] * 30, ["b"] * 29 + [None]]
    sums = prediction_sums(found, truth, Task("x"), "accuracy", ("a", "b"))
    interval = score_interval([sums])
    assert sums.value == prediction_score(found, truth, unit="word", regression=False) == 30 / 59
    assert (float(interval.low), float(interval.high)) == (0, 1)


def test_the_score_is_the_tasks_own_metric():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(200)
    found = truth + rng.standard_normal(200)
    task = Task("x", unit="sentence", regression=True)
    sums = prediction_sums(found.tolist(), truth.tolist(), task, "spearman", ())
    assert sums.value == pytest.approx(spearmanr(found, truth).statistic)
    kinds, guesses = (rng.choice(["a", "b"], 100).tolist() for _ in range(2))
    sums = prediction_sums(guesses, kinds, Task("x", unit="sentence"), "matthews", ("a", "b"))
    assert sums.value == pytest.approx(matthews_corrcoef(kinds, guesses))
    spans = prediction_sums([["B-NP", None]], [["B-NP", "O"]], Task("x"), "span_f1", ("B-NP", "O"))
    assert spans.value == 1


@pytest.fixture
def onnx_session(tmp_path):
    """Write a predictor's graph and open it; the difference from the network is asserted."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra [onnx] is not installed")
    pytest.importorskip("onnx", reason="the extra [onnx] is not installed")

    def opened(predictor):
        assert write_onnx(predictor, tmp_path) <= 1e-4
        return onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])

    return opened


def encoded(tokenizer, *texts):
    """A text, or two segments, as the tokenizer gives it, and the mask of its special tokens."""
    found = dict(tokenizer(*texts, return_tensors="np", return_special_tokens_mask=True))
    return found, found.pop("special_tokens_mask")[0].astype(bool)


def word_ids(tokenizer, text):
    """The word in which each token has a character, −1 for none (special tokens, and spaces by themselves)."""
    ends = np.cumsum([len(word) + 1 for word in text.split()])
    offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    return np.array([[-1 if a == b else int(np.searchsorted(ends, a, side="right")) for a, b in offsets]])


@pytest.mark.parametrize("family", ["bert", "mpnet", "gpt2", "xlnet"])
def test_onnx_gives_the_scores_of_the_network(family, tiny_folder, onnx_session):
    network = first_layers(load_model(tiny_folder(family)), 2)
    predictor = Predictor(network, classifier(), Unit())
    session, text = onnx_session(predictor), "the quick brown fox"
    inputs, _ = encoded(network.tokenizer, text)
    labels = np.array(["x", "y", "z"])[session.run(None, inputs)[0][0].argmax(axis=1)]
    words = network.tokenizer(text).word_ids()
    last = [max(t for t, w in enumerate(words) if w == word) for word in range(4)]
    assert labels[last].tolist() == predictor.predict([text])[0]


@pytest.mark.parametrize("position", ["cls", "mean"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_onnx_reads_pairs_as_pairs(family, position, tiny_folder, onnx_session):
    network = first_layers(load_model(tiny_folder(family)), 2)
    if family == "bert":  # as the tokenizer of BERT itself has them
        network.tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    predictor = Predictor(network, classifier(()), Unit(unit="sentence", position=position, pairs=True))
    session, pair = onnx_session(predictor), ("the quick fox", "a lazy dog reads")
    assert ("token_type_ids" in [own.name for own in session.get_inputs()]) == (family == "bert")
    inputs, special = encoded(network.tokenizer, *pair)
    scores = session.run(None, inputs)[0][0, :, 0]
    score = scores[0] if position == "cls" else scores[~special].mean()
    assert score == pytest.approx(predictor.predict([pair])[0], abs=1e-4)
    if family == "bert":
        inputs["token_type_ids"][:] = 0
        assert not np.allclose(session.run(None, inputs)[0][0, :, 0], scores, atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_onnx_takes_the_largest_value_over_the_sub_words_of_a_word(family, tiny_folder, onnx_session, tmp_path):
    network = first_layers(load_model(tiny_folder(family)), 2)
    predictor = Predictor(network, classifier(), Unit(pooling="max"))
    session, text = onnx_session(predictor), "the unquickest brown foxes"
    inputs, _ = encoded(network.tokenizer, text)
    inputs["word_ids"] = word_ids(network.tokenizer, text)
    assert np.bincount(inputs["word_ids"][0] + 1)[1:].max() > 1, "some word has several sub-words"
    scores = session.run(None, inputs)[0][0, :4]
    assert np.array(["x", "y", "z"])[scores.argmax(axis=1)].tolist() == predictor.predict([text])[0]
    store = extract(network, Corpus("text", [text.split()]), tmp_path / "acts", pooling="max", progress=False)
    np.testing.assert_allclose(scores, classifier().scores(store.array()[:, LAYERS, INDICES]), atol=1e-4)


def test_without_the_extra_onnx_is_refused_at_once(monkeypatch, model, tmp_path):
    monkeypatch.setattr(onnx_graphs, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"onnx and onnxruntime cannot be imported; ONNX needs pip install"):
        transfer(model, tagged_corpus(), "upos", tmp_path, onnx=True)
