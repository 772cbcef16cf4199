import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import precision_recall_fscore_support

from residuum.errors import DataError
from residuum.maths.probe_scores import (
    bag_of_words_answers,
    class_scores,
    majority_answers,
    number_scores,
    word_majority_answers,
)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1))
def test_class_scores_against_sklearn(pairs):
    predicted, truth = np.array(pairs).T
    scores = class_scores(predicted, truth, 5)
    expected = precision_recall_fscore_support(truth, predicted, labels=range(5), zero_division=0)
    for found, wanted in zip((scores.precision, scores.recall, scores.f1, scores.support), expected, strict=True):
        np.testing.assert_allclose(found, wanted)
    assert scores.accuracy == np.mean(predicted == truth)


def test_labels_unseen_in_training_are_errors_and_are_counted():
    scores = class_scores(np.array([0, 1, 1, 0]), np.array([0, -1, 1, -1]), 2)
    assert scores.accuracy == 0.5
    assert scores.n_unseen == 2
    assert scores.support.tolist() == [1, 1]
    assert scores.precision.tolist() == [0.5, 0.5]
    assert scores.correct.tolist() == [True, False, True, False]


def test_number_scores_against_scipy():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(100).round(1)
    predicted = truth + rng.standard_normal(100)
    scores = number_scores(predicted, truth)
    assert scores.pearson == pytest.approx(pearsonr(predicted, truth).statistic)
    assert scores.spearman == pytest.approx(spearmanr(predicted, truth).statistic)
    assert scores.mean_squared_error == pytest.approx(np.mean((predicted - truth) ** 2))


def test_constant_predictions_correlate_with_nothing():
    assert number_scores(np.ones(5), np.arange(5.0)).pearson == 0


def test_majority_baseline_breaks_ties_by_the_alphabet():
    assert majority_answers(["B", "A", "B", "A"], 2) == ["A", "A"]


def test_word_majority_baseline_by_hand():
    train_words = ["a", "a", "a", "b", "c", "c"]
    train_labels = ["X", "X", "Y", "Y", "Y", "X"]
    # a → X, b → Y, c → X (tie), unknown → X (three each: the first in the alphabet)
    test_words, test_labels = ["a", "b", "c", "new", "new"], ["X", "Y", "Y", "X", "Y"]
    answers = word_majority_answers(train_words, train_labels, test_words)
    assert answers == ["X", "Y", "X", "X", "X"]
    assert np.mean([a == b for a, b in zip(answers, test_labels, strict=True)]) == 3 / 5


def test_a_bag_of_words_knows_which_words_a_text_has_but_not_their_order():
    texts = [f"{one} {other} {filler}".split() for one in "ab" for other in "cd" for filler in "wxyz"]
    has_a = ["yes" if "a" in text else "no" for text in texts]
    assert bag_of_words_answers(texts, has_a, texts) == has_a
    turned = [text[::-1] for text in texts]
    order = ["first"] * len(texts) + ["last"] * len(texts)
    answers = bag_of_words_answers(texts + turned, order, texts + turned)
    assert np.mean([a == b for a, b in zip(answers, order, strict=True)]) == 0.5
    assert len(set(bag_of_words_answers(texts, has_a, [["never", "seen"]] * 2))) == 1


def test_bad_input_is_explained():
    with pytest.raises(DataError, match="is empty"):
        class_scores(np.array([], int), np.array([], int), 2)
    with pytest.raises(DataError, match="2 values came with 3 labels"):
        class_scores(np.zeros(2, int), np.zeros(3, int), 2)
    with pytest.raises(DataError, match="no training labels"):
        majority_answers([], 1)
    with pytest.raises(DataError, match="same words"):
        word_majority_answers(["a"], [], ["a"])
