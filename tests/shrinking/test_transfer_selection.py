"""The three steps on activations whose content is known: layer 0 knows the word, 1 the tag, 2 both."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_stores import TAG, known_data, made_store
from residuum.errors import DataError, SettingError
from residuum.maths.probing import Recipe
from residuum.probing.batteries import Bench
from residuum.probing.examples import labelled_splits
from residuum.shrinking.candidates import Candidates, seed_scores, train_candidates
from residuum.shrinking.classifiers import classifier_bytes
from residuum.shrinking.selection import (
    affordable_layers,
    most_neurons,
    select_layers,
    select_neurons,
    select_representatives,
)
from residuum.shrinking.settings import Budget, Settings
from residuum.shrinking.tables import pareto_front
from residuum.storage.results import read_run, write_run

N_CLASSES = 3
COSTS = {
    layer: {
        "layers": layer,
        "neurons": 8 * (layer + 1),
        "bytes": 100.0 * (layer + 1) + classifier_bytes(N_CLASSES, 8 * (layer + 1)),
        "ms": 2.0 + layer,
    }
    for layer in range(3)
}
"""Networks of 100, 200 and 300 bytes, and a classifier on all their neurons."""
RECIPE = Recipe(epochs=20, batch_size=32, learning_rate=0.02)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Three stores; in layer 2 the second half of the neurons repeats the first."""
    folder = tmp_path_factory.mktemp("known")
    stores, tags = {}, {}
    for seed, part in enumerate(("train", "dev", "test")):
        data = known_data(120 if part == "train" else 60, seed=seed)
        data.activations[:, 2, 4:] = data.activations[:, 2, :4]
        stores[part], tags[part] = made_store(folder / part, data.sentences, data.activations), data.tags
    return Bench(labelled_splits(stores, tags), RECIPE)


@pytest.fixture(scope="module")
def layers(bench):
    return select_layers(bench, Settings(), COSTS)


def test_the_lowest_layers_that_know_the_tag_are_kept(layers):
    assert [candidate.n_neurons for candidate in layers.tried] == [8, 16, 24]
    assert layers.best.layer == TAG
    assert layers.tried[0].dev < 0.6 < 0.95 < layers.best.dev


def test_a_loss_of_nearly_everything_keeps_the_embeddings_alone(bench):
    assert select_layers(bench, Settings(layer_loss=0.9), COSTS).best.layer == 0


def test_within_a_budget_the_best_is_kept(bench):
    settings = Settings(budget=Budget("ms", 2.5))
    assert affordable_layers(COSTS, settings, N_CLASSES) == {0: 8}
    assert select_layers(bench, settings, COSTS).best.layer == 0


def test_bytes_that_feature_selection_can_meet_are_within_the_budget(bench):
    """Layer 1 with all 16 neurons is too large, with 5 it is not, and 5 know the tag; layer 2 has room for one."""
    amount = 200 + classifier_bytes(N_CLASSES, 5)
    assert amount < COSTS[1]["bytes"]
    settings = Settings(budget=Budget("bytes", amount), neuron_loss=0.5)
    assert affordable_layers(COSTS, settings, N_CLASSES) == {0: 8, 1: 5, 2: 1}
    layers = select_layers(bench, settings, COSTS).best
    assert layers.layer == TAG
    most = most_neurons(COSTS, layers, settings)
    assert most == 5
    found = select_neurons(bench, layers, layers, settings, most).best
    assert found.n_neurons <= 5
    assert 200 + classifier_bytes(N_CLASSES, found.n_neurons) <= amount


def test_without_feature_selection_the_classifier_has_all_neurons():
    amount = 200 + classifier_bytes(N_CLASSES, 5)
    settings = Settings(budget=Budget("bytes", amount), steps=("layers", "clusters"))
    assert affordable_layers(COSTS, settings, N_CLASSES) == {0: 8}


def test_where_no_head_within_the_bytes_is_good_enough_the_best_is_taken(bench, layers):
    settings = Settings(budget=Budget("bytes", 1e6), neuron_loss=0.0)
    found = select_neurons(bench, layers.best, layers.best, settings, most=1)
    assert found.best.n_neurons == 1
    assert found.sufficient  # the budget took the place of the loss


def test_the_nearest_budget_of_bytes_is_one_that_can_be_had(bench):
    with pytest.raises(SettingError, match="the embeddings alone with the smallest classifier") as error:
        affordable_layers(COSTS, Settings(budget=Budget("bytes", 20)), N_CLASSES)
    nearest = float(re.search(r"nearest is bytes=(\d+)", str(error.value))[1])
    assert affordable_layers(COSTS, Settings(budget=Budget("bytes", nearest)), N_CLASSES) == {0: 1}
    with pytest.raises(SettingError):
        affordable_layers(COSTS, Settings(budget=Budget("bytes", nearest - 1)), N_CLASSES)


def test_scores_of_more_seeds_stand_beside_the_first(bench, layers):
    named = {"oracle": layers.tried[-1], "LayerSelector": layers.best, "again": layers.best}
    scores = seed_scores(bench, named, Settings(seeds=3))
    assert [len(own) for own in scores.values()] == [3, 3, 3]
    assert scores["oracle"][0] == layers.tried[-1].test
    assert scores["again"] == scores["LayerSelector"]
    second = train_candidates(bench, "layers", {1: slice(0, 16)}, Settings(seed=1))[0]
    assert scores["LayerSelector"][1] == second.test
    assert seed_scores(bench, named, Settings(seeds=1))["oracle"] == [layers.tried[-1].test]


def test_without_the_step_the_oracle_alone_is_trained(bench):
    found = select_layers(bench, Settings(steps=("neurons",)), COSTS)
    assert [candidate.layer for candidate in found.tried] == [2]


def test_a_budget_that_cannot_be_reached_names_the_nearest():
    with pytest.raises(SettingError, match="the nearest is ms=2, the embeddings alone"):
        affordable_layers(COSTS, Settings(budget=Budget("ms", 0.5)), N_CLASSES)


def test_repeated_neurons_are_clustered_away(bench):
    everything = select_layers(bench, Settings(steps=("clusters",)), COSTS).best
    found = select_representatives(bench, everything, Settings(thresholds=(0.01,), neuron_loss=0.05))
    assert found.best.n_neurons == 20
    assert not {16 + i for i in range(4)} & {16 + i for i in range(4, 8)} & set(found.best.columns.tolist())
    pairs = [{16 + i, 20 + i} & set(found.best.columns.tolist()) for i in range(4)]
    assert [len(pair) for pair in pairs] == [1, 1, 1, 1]


def test_clustering_that_costs_too_much_is_not_taken(bench, layers):
    found = select_representatives(bench, layers.best, Settings(thresholds=(0.999,), neuron_loss=0.0))
    assert found.best.n_neurons == layers.best.n_neurons


def test_the_fewest_neurons_that_are_enough_are_found(bench, layers):
    settings = Settings(neuron_loss=0.05)
    found = select_neurons(bench, layers.best, layers.best, settings)
    assert found.sufficient
    assert found.best.n_neurons < layers.best.n_neurons
    assert found.best.dev >= 0.95 * layers.best.dev
    smaller = [candidate for candidate in found.tried if candidate.n_neurons < found.best.n_neurons]
    assert all(candidate.dev < 0.95 * layers.best.dev for candidate in smaller)


def test_the_neurons_that_know_the_tag_come_first(layers):
    assert (layers.best.order[:3] >= 8).all()


def test_a_budget_of_neurons_is_kept(bench, layers):
    found = select_neurons(bench, layers.best, layers.best, Settings(budget=Budget("neurons", 3)))
    assert found.best.n_neurons <= 3


def test_a_score_of_nothing_is_an_error(bench, monkeypatch):
    whole = Bench.score

    def nothing(self, trained, part):
        from dataclasses import replace

        return [replace(score, value=0.0) for score in whole(self, trained, part)]

    monkeypatch.setattr(Bench, "score", nothing)
    with pytest.raises(DataError, match=r"score 0\.000 on the development part"):
        select_layers(bench, Settings(), COSTS)


def test_candidates_are_the_same_when_they_are_read_again(layers, tmp_path):
    write_run(tmp_path, layers.as_run())
    again = Candidates.of_run(read_run(tmp_path))
    assert again.table.equals(layers.table)
    np.testing.assert_array_equal(again.best.weight, layers.best.weight)
    np.testing.assert_array_equal(again.best.order, layers.best.order)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_front_is_what_brute_force_finds(points):
    cost, score = np.array(points, float).T
    front = pareto_front(cost, score)
    for place, (own_cost, own_score) in enumerate(points):
        beaten = any((c <= own_cost and s > own_score) or (c < own_cost and s >= own_score) for c, s in points)
        if beaten:
            assert not front[place]
        else:
            assert any(front[other] for other in range(len(points)) if points[other] == points[place])
