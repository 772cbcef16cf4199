import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from residuum.errors import SettingError
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.selection import (
    growing_sizes,
    keep_share,
    layer_subsets,
    layers_up_to,
    lowest_sufficient_layer,
    minimal_set,
    sufficient_classes,
    sufficient_layers,
    top_and_bottom,
)

SEVEN_LAYERS = NeuronLayout((4,) * 7)


def scorer(needed, seen=None):
    """A probe that reaches 0.9 with the first `needed` neurons and grows linearly before."""

    def score_sets(sets):
        if seen is not None:
            seen.append([len(neurons) for neurons in sets])
        return [min(len(neurons) / needed, 1) * 0.9 for neurons in sets]

    return score_sets


@given(st.integers(1, 2000), st.integers(1, 30))
def test_the_minimal_set_is_found_to_the_resolution(needed, resolution):
    order = np.random.default_rng(0).permutation(2000)
    found = minimal_set(order, scorer(needed), 0.9, resolution=resolution)
    assert found.sufficient
    assert needed <= len(found.neurons) < needed + resolution
    assert np.array_equal(found.neurons, order[: len(found.neurons)])
    assert found.score == pytest.approx(0.9)


def test_growing_stops_at_the_first_round_that_suffices():
    seen = []
    found = minimal_set(np.arange(1000), scorer(35, seen), 0.9, at_once=3)
    assert seen[:2] == [[10, 16, 26], [41, 66, 105]]
    assert all(len(sizes) == 1 and 26 < sizes[0] < 41 for sizes in seen[2:])
    assert [size for size, _ in found.tried] == sorted(size for sizes in seen for size in sizes)


def test_when_nothing_suffices_the_largest_set_is_returned_and_said_to_fail():
    found = minimal_set(np.arange(50), scorer(500), 0.9)
    assert not found.sufficient
    assert len(found.neurons) == 50
    assert found.score == pytest.approx(0.09)


@given(st.integers(1, 10_000))
def test_sizes_grow_to_all_neurons(n_neurons):
    sizes = growing_sizes(n_neurons)
    assert sizes[-1] == n_neurons
    assert sizes == sorted(set(sizes))


def test_top_and_bottom_of_a_ranking():
    top, bottom = top_and_bottom(np.arange(20)[::-1], 0.1)
    assert (top.tolist(), bottom.tolist()) == ([19, 18], [1, 0])
    assert [len(part) for part in top_and_bottom(np.arange(3), 0.01)] == [1, 1]


def test_layers_are_sufficient_at_99_percent_of_the_oracle():
    scores = {0: 0.80, 1: 0.895, 2: 0.89, 3: 0.91}
    assert sufficient_layers(scores, keep_share(0.9)) == [1, 3]
    assert lowest_sufficient_layer(scores, keep_share(0.9)) == 1
    assert lowest_sufficient_layer(scores, 0.95) is None


def test_classes_are_sufficient_only_where_the_oracle_finds_them():
    found = sufficient_classes(np.array([0.90, 0.5, 0.0]), np.array([0.9, 0.9, 0.0]))
    assert found.tolist() == [True, False, False]


def test_concatenations_grow_from_the_lowest_layer():
    columns = layers_up_to(NeuronLayout((2, 3, 1), layers=(4, 0, 2)))
    assert columns[0].tolist() == [2, 3, 4]
    assert columns[2].tolist() == [2, 3, 4, 5]
    assert columns[4].tolist() == [2, 3, 4, 5, 0, 1]


def test_layer_subsets_of_a_distilled_model():
    assert layer_subsets(SEVEN_LAYERS) == {
        "alternate": (0, 2, 4, 6),
        "bottom half": (0, 1, 2, 3),
        "top half": (3, 4, 5, 6),
        "embeddings": (0,),
        "all but embeddings": (1, 2, 3, 4, 5, 6),
    }


def test_without_the_embedding_layer_its_subsets_are_left_out():
    assert set(layer_subsets(NeuronLayout((4, 4), layers=(1, 2)))) == {"alternate", "bottom half", "top half"}


def test_bad_settings_are_explained():
    with pytest.raises(SettingError, match="share of the oracle"):
        keep_share(0.9, 1.5)
    with pytest.raises(SettingError, match="at most 0.5"):
        top_and_bottom(np.arange(10), 0.7)
