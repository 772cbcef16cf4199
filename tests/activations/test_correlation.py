"""Clusters of a store's neurons from streamed moments are those of the whole array."""

import numpy as np
import pytest

from made_stores import made_store
from residuum import cluster_neurons
from residuum.activations.correlation import cluster_store, neuron_moments
from residuum.errors import SettingError
from residuum.maths.clustering import moments_correlation, neuron_correlation

RNG = np.random.default_rng(0)
SENTENCES = [[f"w{i}" for i in range(length)] for length in RNG.integers(2, 9, 60)]
N_WORDS = sum(map(len, SENTENCES))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three layers of ten neurons, noisy copies of seven sources, far from zero, one of them constant."""
    sources = RNG.standard_normal((N_WORDS, 7))
    copies = sources[:, RNG.integers(7, size=30)] + RNG.uniform(0.1, 1.2, 30) * RNG.standard_normal((N_WORDS, 30))
    copies += RNG.normal(0, 50, 30)
    copies[:, 12] = 3.3
    layers = copies.reshape(N_WORDS, 3, 10).astype(np.float32)
    return made_store(tmp_path_factory.mktemp("store") / "acts", SENTENCES, layers, shard_words=37)


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_store_is_clustered_like_its_array(store, threshold):
    whole = store.array().reshape(N_WORDS, -1)
    assert cluster_neurons(store, threshold).tolist() == cluster_neurons(whole, threshold).tolist()


@pytest.mark.parametrize("several", [[0.1, 0.5], (0.1, 0.5), np.array([0.1, 0.5])])
def test_a_store_is_cut_at_several_thresholds(store, several):
    expected = [cluster_neurons(store, threshold).tolist() for threshold in (0.1, 0.5)]
    assert expected[0] != expected[1]
    assert [labels.tolist() for labels in cluster_neurons(store, several)] == expected


def test_correlations_of_moments_are_those_of_the_array(store):
    expected, dead = neuron_correlation(store.array().reshape(N_WORDS, -1))
    found, constant = moments_correlation(neuron_moments(store))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert np.flatnonzero(constant).tolist() == np.flatnonzero(dead).tolist() == [12]
    np.testing.assert_allclose(found, found.T, atol=1e-15)


def test_only_the_chosen_rows_count(store):
    rows = np.sort(np.random.default_rng(1).choice(N_WORDS, 80, replace=False))
    expected, _ = neuron_correlation(store.array().reshape(N_WORDS, -1)[rows])
    moments = neuron_moments(store, rows)
    assert moments.n == 80
    np.testing.assert_allclose(moments_correlation(moments)[0], expected, atol=2e-6)
    first = np.arange(20)
    assert cluster_store(store, first).n_constant == 1  # shards without a chosen row are passed over


def test_progress_counts_every_row(store):
    seen = []
    neuron_moments(store, advance=seen.append)
    assert sum(seen) == N_WORDS
    assert len(seen) == len(store.manifest.shards) > 1


def test_a_threshold_outside_zero_and_one_is_refused(store):
    with pytest.raises(SettingError, match="threshold is 1.5"):
        cluster_neurons(store, 1.5)
