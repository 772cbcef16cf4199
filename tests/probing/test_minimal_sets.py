"""The one search for minimal sets."""

import numpy as np
import pytest
from ranked_tasks import IDS, tagged_sentences, tagged_store, tags

from residuum.probing import orders
from residuum.probing.examples import labelled_splits
from residuum.probing.orders import find_minimal_set, neuron_order
from residuum.probing.probe_data import TASK, ProbeData

SENTENCES = tagged_sentences()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    store = tagged_store(tmp_path_factory.mktemp("tagged") / "store", SENTENCES)
    return ProbeData(labelled_splits(store, tags(SENTENCES)))


def order_of(data):
    return neuron_order(data, "forward")


def test_few_dev_examples_are_joined_by_folds_of_the_training_part_with_orders_of_their_own(data, monkeypatch):
    ranked = []

    def ranker(fold):
        ranked.append(len(fold.splits.train))
        return order_of(fold)

    minimal = find_minimal_set(data, ranker, order_of(data), 0.95)
    assert len(ranked) == orders.FOLDS
    assert max(ranked) < len(data.splits.train)
    assert set(data.splits.layout.format(minimal.neurons.tolist())) <= set(IDS.values())
    monkeypatch.setattr(orders, "SMALL_DEV", 0)
    find_minimal_set(data, lambda fold: pytest.fail("no fold is needed"), order_of(data), 0.95)


def test_the_score_that_is_reported_is_that_of_the_probe_that_was_found_sufficient(data, monkeypatch):
    monkeypatch.setattr(orders, "SMALL_DEV", 0)
    minimal = find_minimal_set(data, order_of, order_of(data), 0.9)
    (again,) = data.score(data.train([data.probe(TASK, minimal.neurons)]), "dev")
    assert minimal.score == again.value
    assert (len(minimal.neurons), minimal.score) in minimal.tried


def test_the_same_set_in_another_order_of_neurons_has_the_same_predictions(data):
    chosen = order_of(data)[:5]
    first, second = data.score(data.train([data.probe(TASK, chosen), data.probe(TASK, np.sort(chosen))]), "test")
    assert np.mean(first.predicted == second.predicted) >= 0.999


def test_a_killed_search_goes_on_with_the_scores_that_it_has(data, tmp_path, monkeypatch):
    monkeypatch.setattr(orders, "SMALL_DEV", 0)
    first = find_minimal_set(data, order_of, order_of(data), 0.95, known=tmp_path / "scores.json")
    monkeypatch.setattr(ProbeData, "train", lambda *_: pytest.fail("a known size was solved again"))
    again = find_minimal_set(data, order_of, np.asarray(first_order(first, data)), 0.95, known=tmp_path / "scores.json")
    assert again.neurons.tolist() == first.neurons.tolist()


def first_order(minimal, data):
    rest = np.setdiff1d(np.arange(data.splits.layout.n_neurons), minimal.neurons)
    return np.concatenate([minimal.neurons, rest])
