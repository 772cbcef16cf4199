import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from residuum.errors import DataError, SettingError
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.selection import (
    SetScore,
    growing_sizes,
    keep_share,
    layer_subsets,
    layers_up_to,
    lowest_sufficient_layer,
    minimal_set,
    sentence_folds,
    set_score,
    set_score_of,
    smallest_sufficient_set,
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


def sentences_right(rng, accuracy, sizes):
    return rng.binomial(sizes, accuracy).astype(float)


def test_a_candidate_as_good_as_the_oracle_is_sufficient_and_a_much_worse_one_is_not():
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 30, 400)
    oracle = sentences_right(rng, 0.9, sizes)
    assert set_score(oracle, oracle, sizes, keep=1.0).sufficient
    assert set_score(oracle, oracle, sizes, keep=1.0).excess == 0
    assert not set_score(oracle, oracle * 0.9, sizes, keep=0.99).sufficient


def test_the_error_of_a_paired_difference_against_resampled_sentences():
    rng = np.random.default_rng(1)
    sizes = rng.integers(5, 30, 300)
    oracle = sentences_right(rng, 0.9, sizes)
    candidate = np.minimum(sentences_right(rng, 0.88, sizes), sizes)
    found = set_score(oracle, candidate, sizes, keep=0.98)
    draws = [rng.integers(300, size=300) for _ in range(3000)]
    values = [(0.98 * oracle[i].sum() - candidate[i].sum()) / sizes[i].sum() for i in draws]
    assert found.standard_error == pytest.approx(np.std(values), rel=0.08)
    assert found.excess == pytest.approx(np.mean(values), abs=1e-3)


def test_a_jackknife_of_any_metric_agrees_with_the_counts():
    rng = np.random.default_rng(2)
    sizes = rng.integers(5, 30, 300)
    oracle, candidate = sentences_right(rng, 0.9, sizes), sentences_right(rng, 0.88, sizes)
    found = set_score_of(lambda s: (oracle[s].sum() / sizes[s].sum(), candidate[s].sum() / sizes[s].sum()), 300, 0.99)
    expected = set_score(oracle, candidate, sizes, 0.99)
    assert found.score == pytest.approx(expected.score)
    assert found.excess == pytest.approx(expected.excess)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=0.3)


def test_one_sentence_has_no_error_and_never_refuses_a_candidate():
    assert set_score(np.array([5.0]), np.array([1.0]), np.array([6]), 0.99).standard_error == np.inf


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
    with pytest.raises(DataError, match="the same sentences"):
        set_score(np.ones(3), np.ones(2), np.ones(3, int))
