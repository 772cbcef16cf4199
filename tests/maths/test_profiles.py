"""Curves over layers."""

import numpy as np
import pytest

from residuum.errors import DataError
from residuum.maths.profiles import adjacent_profile, layer_average, localization

NEURON = np.array([[1.0, 0.5, 0.2], [0.6, 1.0, 0.4], [0.3, 0.1, 1.0]])
SVCCA = np.array([[1.0, 0.8, 0.6], [0.8, 1.0, 0.7], [0.6, 0.7, 1.0]])


def test_localization_is_the_difference_of_column_means():
    expected = [(1.9 - 2.4) / 3, (1.6 - 2.5) / 3, (1.6 - 2.3) / 3]
    np.testing.assert_allclose(localization(NEURON, SVCCA), expected)


def test_layer_average_leaves_the_layer_itself_out():
    np.testing.assert_allclose(layer_average(NEURON), [0.35, 0.5, 0.2])


def test_adjacent_profile_takes_both_directions():
    np.testing.assert_allclose(adjacent_profile(NEURON), [0.55, 0.25])
    np.testing.assert_allclose(adjacent_profile(SVCCA), [0.8, 0.7])


def test_messages():
    with pytest.raises(DataError, match="expected layers × layers"):
        localization(NEURON, SVCCA[:2, :2])
    with pytest.raises(DataError, match="expected layers × layers"):
        layer_average(NEURON[:2])
    with pytest.raises(DataError, match="Found 1 layer"):
        layer_average(np.ones((1, 1)))
