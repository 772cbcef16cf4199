import numpy as np
import pytest

from residuum.errors import DataError
from residuum.maths.rankings import class_sums

RNG = np.random.default_rng(0)
X = RNG.normal(2, 3, (90, 5)).astype(np.float32)
CLASSES = RNG.integers(0, 3, 90)


def test_sums_of_blocks_add_up_to_the_sums_of_all_words():
    whole = class_sums(X, CLASSES, 4)
    parts = class_sums(X[:17], CLASSES[:17], 4) + class_sums(X[17:], CLASSES[17:], 4)
    assert np.array_equal(whole.counts, parts.counts)
    np.testing.assert_allclose(whole.sums, parts.sums)
    np.testing.assert_allclose(whole.squares, parts.squares)


def test_means_and_deviations_against_numpy_without_the_empty_class():
    sums = class_sums(X, CLASSES, 4)
    expected = [X[c == CLASSES].mean(axis=0, dtype=np.float64) for c in range(3)]
    np.testing.assert_allclose(sums.present_means, expected)
    np.testing.assert_allclose(sums.deviation, X.std(axis=0, dtype=np.float64))


def test_total_scatter_is_between_plus_within():
    sums = class_sums(X, CLASSES, 4)
    centred = X - X.mean(axis=0, dtype=np.float64)
    within = sum(
        (X[c == CLASSES] - sums.present_means[c]).T @ (X[c == CLASSES] - sums.present_means[c]) for c in range(3)
    )
    between = np.column_stack([sums.between_column(j) for j in range(5)])
    np.testing.assert_allclose(centred.T @ centred, between + within)
    np.testing.assert_allclose(np.diagonal(between), sums.between_diagonal)


def test_a_constant_neuron_has_deviation_zero_in_spite_of_rounding():
    x = np.full((1000, 1), 0.1, np.float32)
    assert class_sums(x, np.zeros(1000, int), 1).deviation.tolist() == [0]


def test_bad_input_is_explained():
    with pytest.raises(DataError, match="one label per word"):
        class_sums(X, CLASSES[1:], 3)
    with pytest.raises(DataError, match="there are 2 classes"):
        class_sums(X, CLASSES, 2)
    with pytest.raises(DataError, match="from -1 to"):
        class_sums(X, CLASSES - 1, 3)
    with pytest.raises(DataError, match="NaN"):
        class_sums(np.where(X[0, 0] == X, np.nan, X), CLASSES, 3)
