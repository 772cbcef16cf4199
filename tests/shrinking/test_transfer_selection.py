"""The three steps on activations whose content is known: layer 0 knows the word, 1 the tag, 2 both."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_stores import TAG, known_data, made_store
from residuum.errors import DataError, SettingError
from residuum.maths.probing import ConvergedRecipe, PaperRecipe
from residuum.probing.examples import labelled_splits
from residuum.probing.probe_data import ProbeData
from residuum.shrinking.classifier import classifier_bytes
from residuum.shrinking.records import pareto_front
from residuum.shrinking.selection import Candidates, FeatureSelection, affordable_layers
from residuum.shrinking.settings import Budget, TransferSettings
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


def chosen_by(**settings):
    """Settings of a transfer; model, corpus and folder do not matter to the selection."""
    return TransferSettings("model", "corpus", "upos", "out", **settings)


def selection(data, settings=None):
    return FeatureSelection(data, settings or chosen_by(), COSTS)


RECIPE = PaperRecipe(epochs=20, batch_size=32, learning_rate=0.02)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three stores; in layer 2 the second half of the neurons repeats the first."""
    folder = tmp_path_factory.mktemp("known")
    stores, tags = {}, {}
    for seed, part in enumerate(("train", "dev", "test")):
        data = known_data(120 if part == "train" else 60, seed=seed)
        data.activations[:, 2, 4:] = data.activations[:, 2, :4]
        stores[part], tags[part] = made_store(folder / part, data.sentences, data.activations), data.tags
    return ProbeData(labelled_splits(stores, tags), ConvergedRecipe())


@pytest.fixture(scope="module")
def layers(data):
    return selection(data).layers()


def test_the_lowest_layers_that_know_the_tag_are_kept(layers):
    assert [candidate.n_neurons for candidate in layers.tried] == [8, 16, 24]
    assert layers.best.layer == TAG
    assert layers.tried[0].dev < 0.6 < 0.95 < layers.best.dev


@pytest.mark.parametrize("keep", [0.01, 0.5, 0.9, 1.0])
def test_the_layers_that_are_kept_are_the_lowest_sufficient_ones(keep, data, layers):
    settings = chosen_by(keep=keep)
    required = settings.layer_keep * layers.tried[-1].dev
    lowest = next(candidate.layer for candidate in layers.tried if candidate.dev >= required)
    assert selection(data, settings).layers().best.layer == lowest


def test_within_a_budget_the_best_is_kept(data):
    settings = chosen_by(budget=Budget("ms", 2.5))
    assert affordable_layers(COSTS, settings, N_CLASSES) == {0: 8}
    assert selection(data, settings).layers().best.layer == 0


def test_bytes_that_feature_selection_can_meet_are_within_the_budget(data):
    """Layer 1 with all 16 neurons is too large, with 5 it is not, and 5 know the tag; layer 2 has room for one."""
    amount = 200 + classifier_bytes(N_CLASSES, 5)
    assert amount < COSTS[1]["bytes"]
    settings = chosen_by(budget=Budget("bytes", amount), keep=0.25)
    assert affordable_layers(COSTS, settings, N_CLASSES) == {0: 8, 1: 5, 2: 1}
    layers = selection(data, settings).layers().best
    assert layers.layer == TAG
    found = selection(data, settings).neurons(layers, None, layers.dev).best
    assert found.n_neurons <= 5
    assert 200 + classifier_bytes(N_CLASSES, found.n_neurons) <= amount


def test_without_feature_selection_the_classifier_has_all_neurons():
    amount = 200 + classifier_bytes(N_CLASSES, 5)
    settings = chosen_by(budget=Budget("bytes", amount), steps=("layers", "clusters"))
    assert affordable_layers(COSTS, settings, N_CLASSES) == {0: 8}


def test_where_no_head_within_the_bytes_is_sufficient_the_best_is_taken(data, layers):
    settings = chosen_by(budget=Budget("bytes", 200 + classifier_bytes(N_CLASSES, 1)), keep=1.0)
    found = selection(data, settings).neurons(layers.best, None, layers.best.dev)
    assert found.best.n_neurons == 1
    assert found.sufficient  # the budget took the place of the loss


def test_the_nearest_budget_of_bytes_is_one_that_can_be_had(data):
    with pytest.raises(SettingError, match="the embeddings alone with the smallest classifier") as error:
        affordable_layers(COSTS, chosen_by(budget=Budget("bytes", 20)), N_CLASSES)
    nearest = float(re.search(r"nearest is bytes=(\d+)", str(error.value))[1])
    assert affordable_layers(COSTS, chosen_by(budget=Budget("bytes", nearest)), N_CLASSES) == {0: 1}
    with pytest.raises(SettingError):
        affordable_layers(COSTS, chosen_by(budget=Budget("bytes", nearest - 1)), N_CLASSES)


def test_scores_of_more_seeds_stand_beside_the_first(data):
    data = replace(data, recipe=RECIPE)
    layers = selection(data, chosen_by(recipe=RECIPE)).layers()
    named = {"oracle": layers.tried[-1], "LayerSelector": layers.best, "again": layers.best}
    scores = selection(data, chosen_by(seeds=3, recipe=RECIPE)).seed_scores(named)
    assert [len(own) for own in scores.values()] == [3, 3, 3]
    assert scores["oracle"][0] == layers.tried[-1].test
    assert scores["again"] == scores["LayerSelector"]
    top = layers.best.columns[-1] + 1
    second = selection(data, chosen_by(seed=1, recipe=RECIPE)).train("layers", {1: slice(0, top)})[0]
    assert scores["LayerSelector"][1] == second.test
    assert selection(data, chosen_by(recipe=RECIPE)).seed_scores(named)["oracle"] == [layers.tried[-1].test]


def test_without_the_step_the_oracle_alone_is_trained(data):
    found = selection(data, chosen_by(steps=("neurons",))).layers()
    assert [candidate.layer for candidate in found.tried] == [2]


def test_a_budget_that_cannot_be_reached_names_the_nearest():
    with pytest.raises(SettingError, match="the nearest is ms=2, the embeddings alone"):
        affordable_layers(COSTS, chosen_by(budget=Budget("ms", 0.5)), N_CLASSES)


def test_repeated_neurons_are_clustered_away(data):
    everything = selection(data, chosen_by(steps=("clusters",))).layers().best
    found = selection(data, chosen_by(thresholds=(0.01,), keep=0.9)).representatives(everything, everything.dev)
    assert found.best.n_neurons == 20
    assert not {16 + i for i in range(4)} & {16 + i for i in range(4, 8)} & set(found.best.columns.tolist())
    pairs = [{16 + i, 20 + i} & set(found.best.columns.tolist()) for i in range(4)]
    assert [len(pair) for pair in pairs] == [1, 1, 1, 1]


def test_clustering_that_costs_too_much_is_not_taken(data, layers):
    found = selection(data, chosen_by(thresholds=(0.999,), keep=1.0)).representatives(layers.best, layers.best.dev)
    assert found.best.n_neurons == layers.best.n_neurons


def test_the_fewest_neurons_that_are_sufficient_are_found(data, layers):
    settings = chosen_by(keep=0.95)
    found = selection(data, settings).neurons(layers.best, None, layers.best.dev)
    assert found.sufficient
    assert found.best.n_neurons < layers.best.n_neurons
    assert found.best.dev >= 0.95 * layers.best.dev
    smaller = [candidate for candidate in found.tried if candidate.n_neurons < found.best.n_neurons]
    assert all(candidate.dev < 0.95 * layers.best.dev for candidate in smaller)


def test_the_neurons_that_know_the_tag_come_first(data, layers):
    assert (selection(data).order(layers.best.columns)[:3] >= 8).all()


def test_the_set_that_is_reported_is_the_set_that_was_scored(data, layers):
    found = selection(data, chosen_by(keep=0.95)).neurons(layers.best, None, layers.best.dev).best
    np.testing.assert_array_equal(np.sort(found.order), found.columns)
    again = selection(data).train("neurons", {0: found.columns})[0]
    assert (again.dev, again.test) == (found.dev, found.test)


def test_a_speed_up_is_a_budget_of_time(data):
    settings = chosen_by(speedup=1.3)
    assert affordable_layers(COSTS, settings, N_CLASSES) == {0: 8, 1: 16}
    assert selection(data, settings).layers().best.layer == TAG
    with pytest.raises(SettingError, match="the nearest is speedup=2, the embeddings alone. Lower it"):
        affordable_layers(COSTS, chosen_by(speedup=3), N_CLASSES)


def test_clustering_is_used_only_where_it_leads_to_fewer_neurons(data, layers):
    chosen = selection(data, chosen_by(keep=0.9, thresholds=(0.01,)))
    everything = layers.tried[-1]
    clusters = chosen.representatives(everything, everything.dev).best
    found = chosen.neurons(everything, clusters, everything.dev)
    alone = chosen.neurons(everything, None, everything.dev)
    assert found.best.n_neurons <= alone.best.n_neurons
    assert ("pays:" in found.note) == (found.best.n_neurons < alone.best.n_neurons)
    assert "neurons with it" in found.note


def test_the_path_has_few_neurons_of_every_layer(data, layers, monkeypatch):
    monkeypatch.setattr("residuum.shrinking.selection.PATH_SHARES", (0.1, 0.25))
    path = selection(data).path(layers)
    assert [candidate.n_neurons for candidate in path.tried] == [2, 6, 2, 6, 2, 6]
    assert all(candidate.columns[-1] < 8 for candidate in path.tried[:2])


def test_one_layer_alone_is_chosen_for_a_head_of_transformers(data):
    found = selection(data, chosen_by(save_as="transformers", keep=0.9)).layers()
    assert [candidate.n_neurons for candidate in found.tried] == [8, 8, 8, 24]
    assert found.best.layer == TAG
    assert found.best.columns.tolist() == list(range(8, 16))


def test_a_budget_of_neurons_is_kept(data, layers):
    found = selection(data, chosen_by(budget=Budget("neurons", 3))).neurons(layers.best, None, layers.best.dev)
    assert found.best.n_neurons <= 3


def test_a_score_of_nothing_is_an_error(data, monkeypatch):
    whole = ProbeData.score

    def nothing(self, trained, part):
        scores = whole(self, trained, part)
        return [replace(score, sums=replace(score.sums, sums=score.sums.sums * [0, 1])) for score in scores]

    monkeypatch.setattr(ProbeData, "score", nothing)
    with pytest.raises(DataError, match=r"score 0\.000 on the development part"):
        selection(data).layers()


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
