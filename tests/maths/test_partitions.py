import numpy as np
import pytest

from residuum.errors import DataError
from residuum.maths.clustering import (
    cluster_correlation,
    cluster_windows,
    dbscan_partition,
    kmeans_partition,
    neuron_correlation,
    partition_agreement,
    square_distances,
)
from residuum.maths.layouts import NeuronLayout

FIVE_LAYERS = NeuronLayout((2, 2, 2, 2, 2))


def copies_of_sources(noise, seed=0):
    rng = np.random.default_rng(seed)
    sources = np.repeat(rng.standard_normal((800, 8)), 5, axis=1) * rng.choice([-1, 1], 40)
    x = sources + noise * rng.standard_normal(sources.shape)
    return cluster_correlation(*neuron_correlation(x)), np.repeat(np.arange(8), 5)


def test_windows_of_a_hand_made_partition():
    #          layer 0  layer 1  layer 2  layer 3  layer 4
    labels = np.array([7, 7, 1, 1, 1, 1, 3, 0, 0, 9])
    labels[0] = 5
    windows = cluster_windows(labels, FIVE_LAYERS)
    # 5: layer 0; 7: layer 0; 1: layers 1–2; 3: layer 3; 0: layers 3–4; 9: layer 4
    assert windows.counts.tolist() == [4, 2, 0, 0, 0]
    assert windows.shares == {"1": 4 / 6, "2": 2 / 6, "3": 0, "further": 0}


def test_a_cluster_that_skips_layers_counts_by_how_far_it_reaches():
    labels = np.array([0, 1, 2, 3, 0, 4, 5, 6, 1, 7])
    assert cluster_windows(labels, FIVE_LAYERS).counts.tolist() == [6, 0, 1, 0, 1]
    assert cluster_windows(labels, FIVE_LAYERS, smallest=2).shares == {
        "1": 0,
        "2": 0,
        "3": 0.5,
        "further": 0.5,
    }


def test_window_shares_always_have_all_four_names():
    two = cluster_windows(np.array([0, 0]), NeuronLayout((1, 1)))
    assert two.shares == {"1": 0, "2": 1, "3": 0, "further": 0}


def test_other_methods_find_the_same_clear_clusters():
    clustering, truth = copies_of_sources(noise=0.2)
    average = clustering.labels(0.3)
    assert partition_agreement(average, truth) == 1
    assert partition_agreement(kmeans_partition(square_distances(clustering), 8), truth) > 0.8
    assert partition_agreement(dbscan_partition(square_distances(clustering), 0.3), truth) == 1


def test_without_structure_dbscan_calls_everything_noise_and_methods_do_not_agree():
    noise = np.random.default_rng(0).standard_normal((2000, 30))
    clustering = cluster_correlation(*neuron_correlation(noise))
    assert len(set(dbscan_partition(square_distances(clustering), 0.3).tolist())) == 30
    assert abs(partition_agreement(kmeans_partition(square_distances(clustering), 5), clustering.labels(0.97))) < 0.3


def test_square_distances_put_constant_neurons_at_distance_one():
    x = np.random.default_rng(0).standard_normal((50, 4))
    x[:, 1] = 3
    distances = square_distances(cluster_correlation(*neuron_correlation(x)))
    assert distances[1].tolist() == [1, 0, 1, 1]
    assert np.array_equal(distances, distances.T)


def test_bad_input_is_explained():
    with pytest.raises(DataError, match="3 labels came with 10 neurons"):
        cluster_windows(np.zeros(3, int), FIVE_LAYERS)
    with pytest.raises(DataError, match="must label the same neurons"):
        partition_agreement(np.zeros(3, int), np.zeros(4, int))
