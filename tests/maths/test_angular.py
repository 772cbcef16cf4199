"""Angular distance between layers, and the run of blocks that turns the states least."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import cosine

from residuum.errors import DataError
from residuum.maths.profiles import AngularAccumulator, least_turning_run


def distances(layers, pieces=1):
    accumulator = AngularAccumulator(len(layers))
    for rows in np.array_split(np.arange(len(layers[0])), pieces):
        accumulator.update([layer[rows] for layer in layers])
    return accumulator.result()


@pytest.fixture
def layers():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(40, 6)).astype(np.float32) for _ in range(4)]


def test_against_scipy_cosines_word_by_word(layers):
    found = distances(layers)
    for i, j in ((0, 1), (1, 3), (2, 0)):
        words = [math.acos(1 - cosine(a, b)) / math.pi for a, b in zip(layers[i], layers[j], strict=True)]
        assert found[i, j] == pytest.approx(np.mean(words), abs=1e-6)


def test_streamed_equals_whole_and_scale_does_not_count(layers):
    whole = distances(layers)
    np.testing.assert_allclose(distances(layers, pieces=7), whole)
    np.testing.assert_allclose(distances([layers[0] * 100, *layers[1:]]), whole, atol=1e-7)
    assert not np.allclose(distances([layers[0] + 1, *layers[1:]]), whole, atol=1e-3)


def test_equal_opposite_and_orthogonal_states_have_known_distances():
    x = np.eye(3)
    np.testing.assert_allclose(distances([x, x, -x, np.roll(x, 1, axis=0)])[0], [0, 0, 1, 0.5])


def test_a_state_without_direction_counts_as_orthogonal():
    assert distances([np.zeros((2, 3)), np.ones((2, 3))])[0, 1] == 0.5


def test_the_run_that_turns_least_is_found_by_brute_force(layers):
    found = distances(layers)
    for size in (1, 2, 3):
        run = least_turning_run(found, size)
        values = [found[start, start + size] for start in range(len(found) - size)]
        assert run == list(range(int(np.argmin(values)) + 1, int(np.argmin(values)) + size + 1))


def test_of_equal_runs_the_highest_goes():
    assert least_turning_run(np.zeros((5, 5)), 2) == [3, 4]


def test_no_words_are_an_error():
    with pytest.raises(DataError, match="no words to measure"):
        AngularAccumulator(2).result()
