import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from residuum.errors import SettingError
from residuum.maths.layouts import NeuronLayout
from residuum.maths.selection import (
    SetScore,
    growing_sizes,
    layer_subsets,
    sentence_folds,
    smallest_sufficient_set,
    sufficient_classes,
    top_and_bottom,
)

SEVEN_LAYERS = NeuronLayout((4,) * 7)


def scorer(needed, seen=None):
    """A probe that reaches 0.9 with the first `needed` neurons and grows linearly before."""

    def measure(sets):
        if seen is not None:
            seen.append([len(neurons) for neurons in sets])
        scores = [min(len(neurons) / needed, 1) * 0.9 for neurons in sets]
        return [SetScore(score, 0.9 - score, 0.0) for score in scores]

    return measure


@given(st.integers(1, 2000), st.integers(1, 30))
def test_the_minimal_set_is_found_to_the_resolution(needed, resolution):
    order = np.random.default_rng(0).permutation(2000)
    found = smallest_sufficient_set(order, scorer(needed), resolution=resolution)
    assert found.sufficient
    assert needed <= len(found.neurons) < needed + resolution
    assert np.array_equal(found.neurons, order[: len(found.neurons)])
    assert found.score == pytest.approx(0.9)


def test_growing_stops_at_the_first_round_that_suffices():
    seen = []
    found = smallest_sufficient_set(np.arange(1000), scorer(35, seen), resolution=10, at_once=3)
    assert seen[:2] == [[10, 16, 26], [41, 66, 105]]
    assert all(len(sizes) == 1 and 26 < sizes[0] < 41 for sizes in seen[2:])
    assert [size for size, _ in found.tried] == sorted(size for sizes in seen for size in sizes)


def test_when_nothing_suffices_the_largest_set_is_returned_and_said_to_fail():
    found = smallest_sufficient_set(np.arange(50), scorer(500))
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


def test_classes_are_sufficient_only_where_the_oracle_finds_them():
    found = sufficient_classes(np.array([0.90, 0.5, 0.0]), np.array([0.9, 0.9, 0.0]))
    assert found.tolist() == [True, False, False]


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
    with pytest.raises(SettingError, match="at most 0.5"):
        top_and_bottom(np.arange(10), 0.7)


@pytest.mark.parametrize("needed", [1, 7, 63, 400])
def test_the_smallest_sufficient_set_is_found_within_its_resolution_and_was_measured(needed):
    order, measured = np.random.default_rng(3).permutation(500), []

    def measure(sets):
        measured.extend(len(own) for own in sets)
        return [SetScore(len(own) / 500, float(needed - len(own)), 0.5) for own in sets]

    found = smallest_sufficient_set(order, measure)
    assert needed <= len(found.neurons) <= needed + max(needed // 20, 1)
    assert np.array_equal(found.neurons, order[: len(found.neurons)])
    assert len(found.neurons) in measured
    assert len(measured) == len(set(measured)), "no size is measured twice"


def test_no_sufficient_set_gives_all_neurons():
    found = smallest_sufficient_set(np.arange(40), lambda sets: [SetScore(0.1, 1.0, 0.0) for _ in sets])
    assert not found.sufficient
    assert len(found.neurons) == 40


def test_folds_hold_whole_sentences_and_do_not_depend_on_the_order_of_examples():
    rng = np.random.default_rng(4)
    sentences = np.repeat(np.arange(60), rng.integers(1, 20, 60))
    folds = sentence_folds(sentences, 5)
    assert all(len(set(folds[sentences == s])) == 1 for s in range(60))
    sizes = np.bincount(folds)
    assert sizes.max() - sizes.min() <= 20
    order = rng.permutation(len(sentences))
    assert np.array_equal(sentence_folds(sentences[order], 5), folds[order])
    with pytest.raises(SettingError, match="cannot be cut into 61 folds"):
        sentence_folds(sentences, 61)
