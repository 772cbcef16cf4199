"""Layers of networks of different depths are lined up by how far up they lie."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from residuum.errors import SettingError
from residuum.maths.profiles import depth_weights, relative_depths


def test_the_embeddings_lie_at_0_and_the_last_layer_at_1():
    assert relative_depths([0, 3, 6], 6).tolist() == [0, 0.5, 1]


def test_equal_networks_take_each_layer_alone():
    depths = relative_depths(range(13), 12)
    assert np.array_equal(depth_weights(depths, depths), np.eye(13))


def test_layers_of_half_a_network_take_every_second_layer():
    weights = depth_weights(relative_depths(range(4), 3), relative_depths(range(7), 6))
    assert np.array_equal(weights @ np.arange(7), [0, 2, 4, 6])
    assert ((weights == 0) | (weights == 1)).all()


def test_between_two_layers_lies_the_line_that_joins_them():
    weights = depth_weights(relative_depths(range(5), 4), relative_depths(range(7), 6))
    assert np.allclose(weights[1], [0, 0.5, 0.5, 0, 0, 0, 0])
    assert np.allclose(weights @ np.arange(7), [0, 1.5, 3, 4.5, 6])


@given(st.integers(1, 30), st.integers(1, 30))
def test_weights_are_shares_of_at_most_two_neighbours(n_layers, n_base):
    weights = depth_weights(relative_depths(range(n_layers + 1), n_layers), relative_depths(range(n_base + 1), n_base))
    assert np.allclose(weights.sum(axis=1), 1)
    assert (weights >= 0).all()
    for row in weights:
        used = np.flatnonzero(row)
        assert len(used) <= 2
        assert used[-1] - used[0] <= 1


def test_beyond_the_layers_that_were_read_the_nearest_counts():
    assert depth_weights(np.array([0.0, 1.0]), np.array([0.25, 0.5])).tolist() == [[1, 0], [0, 1]]


def test_layers_outside_the_network_and_unordered_depths_are_refused():
    with pytest.raises(SettingError, match=r"layers \[7\] do not lie in a network of 6 blocks"):
        relative_depths([7], 6)
    with pytest.raises(SettingError, match="not ascending"):
        depth_weights(np.array([0.5]), np.array([1.0, 0.0]))
