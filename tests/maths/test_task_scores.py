"""Scores of whole tasks against scikit-learn, scipy, seqeval and spans counted by hand."""

import numpy as np
import pytest
import seqeval.metrics
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from residuum.errors import DataError
from residuum.maths.probe_scores import classification_scores, matthews, regression_scores, span_scores, spans


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_against_sklearn_on_random_classes(n_classes):
    rng = np.random.default_rng(n_classes)
    truth = rng.integers(n_classes, size=200)
    predicted = np.where(rng.random(200) < 0.6, truth, rng.integers(n_classes, size=200))
    found = classification_scores(predicted, truth, n_classes)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(truth, predicted))
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(truth, predicted, average="macro"))
    assert found["matthews"] == pytest.approx(metrics.matthews_corrcoef(truth, predicted))
    if n_classes == 2:
        assert found["f1"] == pytest.approx(metrics.f1_score(truth, predicted))
    else:
        assert "f1" not in found


def test_matthews_is_1_for_right_minus_1_for_inverted_and_0_for_one_class():
    truth = np.array([0, 1, 1, 0, 1])
    assert matthews(truth, truth) == 1
    assert matthews(1 - truth, truth) == -1
    assert matthews(np.ones(5, dtype=int), truth) == 0


def test_a_class_that_training_never_saw_is_an_error():
    found = classification_scores(np.array([0, 1, 1]), np.array([0, 1, -1]), 2)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert -1 < found["matthews"] < 1


def test_against_scipy_correlations():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=50)
    predicted = truth**3 + rng.normal(size=50)
    found = regression_scores(predicted, truth)
    assert found["pearson"] == pytest.approx(stats.pearsonr(predicted, truth)[0])
    assert found["spearman"] == pytest.approx(stats.spearmanr(predicted, truth)[0])
    assert found["mean_squared_error"] == pytest.approx(metrics.mean_squared_error(truth, predicted))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-PER I-PER O B-LOC", [(0, 2, "PER"), (3, 4, "LOC")]),
        ("B-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("I-PER I-PER O", [(0, 2, "PER")]),
        ("O I-PER I-LOC", [(1, 2, "PER"), (2, 3, "LOC")]),
        ("B-PER I-LOC", [(0, 1, "PER"), (1, 2, "LOC")]),
        ("B-PER I-PER E-PER S-PER", [(0, 3, "PER"), (3, 4, "PER")]),
        ("E-PER E-PER I-PER", [(0, 1, "PER"), (1, 2, "PER"), (2, 3, "PER")]),
        ("S-PER I-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("B-PER L-PER U-LOC U-LOC", [(0, 2, "PER"), (2, 3, "LOC"), (3, 4, "LOC")]),
        ("B-very-long I-very-long", [(0, 2, "very-long")]),
    ],
)
def test_spans_are_those_of_conlleval(tags, expected):
    assert spans(tags.split()) == expected


def conlleval_spans(tags):
    """The chunk counting of conlleval, its conditions written out one by one."""
    found, start = set(), None
    previous, previous_kind = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        ends = (
            (previous in "ES") or (previous in "BI" and prefix in "BSO") or (previous != "O" and previous_kind != kind)
        )
        begins = (prefix in "BS") or (previous in "ESO" and prefix in "EI") or (prefix != "O" and previous_kind != kind)
        if previous != "O" and ends and start is not None:
            found.add((start, place, previous_kind))
        if begins:
            start = place
        previous, previous_kind = prefix, kind
    return found


TAG = st.sampled_from(["O", *(f"{p}-{k}" for p in "BIES" for k in ("PER", "LOC"))])
TAGS = st.lists(TAG, max_size=12)


@st.composite
def tagged_sentences(draw):
    """True and predicted tags of some sentences."""
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    return [[[draw(TAG) for _ in range(n)] for n in lengths] for _ in range(2)]


@given(tagged_sentences())
def test_against_seqeval(sentences):
    truth, predicted = sentences
    found = span_scores(predicted, truth)
    for name in ("precision", "recall", "f1"):
        score = getattr(seqeval.metrics, f"{name}_score")(truth, predicted, zero_division=0)
        assert found[f"span_{name}"] == pytest.approx(float(score))


@given(TAGS)
def test_against_the_conditions_of_conlleval(tags):
    assert set(spans(tags)) == conlleval_spans(tags)


@given(st.lists(TAGS, min_size=1, max_size=4))
def test_true_tags_score_1_if_there_is_a_span(sentences):
    expected = 1.0 if any(spans(tags) for tags in sentences) else 0.0
    assert span_scores(sentences, sentences)["span_f1"] == expected


def test_precision_recall_and_f1_of_spans_are_counted_over_all_sentences():
    truth = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "B-LOC"]]
    predicted = [["B-PER", "O", "O"], ["B-LOC", "O", "B-PER"]]  # one end wrong, one right, one kind wrong
    found = span_scores(predicted, truth)
    assert found["span_precision"] == pytest.approx(1 / 3)
    assert found["span_recall"] == pytest.approx(1 / 3)
    assert found["span_f1"] == pytest.approx(1 / 3)
    assert span_scores([["O"] * 3] * 2, truth)["span_f1"] == 0


def test_sentences_of_other_lengths_are_refused():
    with pytest.raises(DataError, match="different sentences"):
        span_scores([["O"]], [["O", "O"]])
