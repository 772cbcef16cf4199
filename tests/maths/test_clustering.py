import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from residuum.errors import DataError, SettingError
from residuum.maths import clustering
from residuum.maths.clustering import (
    cluster_correlation,
    cluster_members,
    cluster_neurons,
    correlation_distances,
    moments_correlation,
    neuron_correlation,
)
from residuum.maths.layouts import NeuronLayout
from residuum.maths.moments import MomentsAccumulator

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def correlated_neurons(seed=0, n_words=400, n_neurons=60, n_sources=12):
    """Neurons that are noisy copies of a few sources, with random signs."""
    rng = np.random.default_rng(seed)
    sources = rng.standard_normal((n_words, n_sources))
    mixed = sources[:, rng.integers(n_sources, size=n_neurons)] * rng.choice([-1, 1], n_neurons)
    return (mixed + rng.uniform(0.05, 1.5, n_neurons) * rng.standard_normal(mixed.shape)).astype(np.float32)


def same_partition(a, b):
    return np.array_equal(a[:, None] == a[None, :], b[:, None] == b[None, :])


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_against_scipy_average_linkage_at_every_threshold(threshold):
    x = correlated_neurons()
    distances = np.clip(1 - np.abs(np.corrcoef(x.T.astype(np.float64))), 0, None)
    np.fill_diagonal(distances, 0)
    expected = fcluster(linkage(squareform(distances, checks=False), "average"), threshold, "distance")
    assert same_partition(cluster_neurons(x, threshold), expected)


def test_one_tree_gives_the_same_cuts_as_clustering_again_for_each_threshold():
    x = correlated_neurons()
    clustering = cluster_correlation(*neuron_correlation(x))
    for threshold in THRESHOLDS:
        assert np.array_equal(clustering.labels(threshold), cluster_neurons(x, threshold))


def test_condensed_distances_stand_in_scipys_order():
    correlation, constant = neuron_correlation(correlated_neurons())
    square = 1 - np.abs(correlation)
    np.fill_diagonal(square, 0)
    np.testing.assert_allclose(
        correlation_distances(correlation, constant), squareform(square, checks=False), atol=1e-15
    )


def test_correlation_against_numpy():
    x = correlated_neurons()
    correlation, constant = neuron_correlation(x)
    np.testing.assert_allclose(correlation, np.corrcoef(x.T.astype(np.float64)), atol=1e-12)
    assert not constant.any()


@given(st.integers(0, 10_000), st.floats(0.05, 0.95))
@settings(max_examples=20)
def test_clusters_do_not_change_when_neurons_are_scaled_shifted_or_flipped(seed, threshold):
    x = correlated_neurons(seed, n_words=60, n_neurons=15, n_sources=4).astype(np.float64)
    rng = np.random.default_rng(seed)
    moved = x * rng.choice([-1, 1], 15) * rng.uniform(0.5, 20, 15) + rng.normal(size=15)
    assert np.array_equal(cluster_neurons(x, threshold), cluster_neurons(moved, threshold))


def test_higher_thresholds_only_merge_clusters():
    clustering = cluster_correlation(*neuron_correlation(correlated_neurons()))
    finer = clustering.labels(0.2)
    coarser = clustering.labels(0.6)
    assert len(np.unique(coarser)) < len(np.unique(finer))
    assert all(len(np.unique(coarser[members])) == 1 for members in cluster_members(finer))


def test_independent_neurons_stay_apart():
    noise = np.random.default_rng(0).standard_normal((5000, 40))
    assert len(np.unique(cluster_neurons(noise, 0.7))) == 40


def test_threshold_zero_keeps_exact_duplicates_and_threshold_one_keeps_one_cluster():
    x = correlated_neurons(n_neurons=5)
    x = np.hstack([x, -x])
    assert cluster_neurons(x, 0.0).tolist() == list(range(10))
    assert cluster_neurons(x, 1e-9).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert set(cluster_neurons(x, 1.0)) == {0}


def test_constant_neurons_are_counted_and_stay_alone_below_threshold_one():
    x = correlated_neurons(n_neurons=6)
    x[:, 2], x[:, 4] = 0, 7.3
    correlation, constant = neuron_correlation(x)
    clustering = cluster_correlation(correlation, constant)
    assert clustering.n_constant == 2
    assert np.isfinite(correlation).all()
    for label in clustering.labels(0.99)[[2, 4]]:
        assert (clustering.labels(0.99) == label).sum() == 1


def test_dead_neurons_are_constant_for_arrays_and_for_moments_alike():
    x = correlated_neurons()
    x[:, 7] *= 1e-32  # as in real models: alive in float32, but not its square
    x[:, 8] *= 1e-9  # so, too: lost in any float32 sum with the others
    x[:, 9] *= 1e-5
    accumulator = MomentsAccumulator([30, 30], products="float32")
    accumulator.update(x)
    of_array, of_moments = neuron_correlation(x), moments_correlation(accumulator.result())
    for _, constant in (of_array, of_moments):
        assert np.flatnonzero(constant).tolist() == [7, 8]
    np.testing.assert_allclose(of_array[0], of_moments[0], atol=1e-5)


def test_constant_neurons_are_found_in_a_correlation_with_nan_or_zero_rows():
    x = correlated_neurons(n_neurons=6)
    correlation, _ = neuron_correlation(x)
    broken = correlation.copy()
    broken[1], broken[:, 1] = np.nan, np.nan
    broken[3], broken[:, 3] = 0, 0
    assert cluster_correlation(broken).constant.tolist() == [False, True, False, True, False, False]


def test_float32_correlations_give_the_same_clusters():
    correlation, constant = neuron_correlation(correlated_neurons())
    single = cluster_correlation(correlation.astype(np.float32), constant)
    double = cluster_correlation(correlation, constant)
    assert all(np.array_equal(single.labels(t), double.labels(t)) for t in THRESHOLDS)


def test_medoids_by_brute_force():
    x = correlated_neurons()
    clustering = cluster_correlation(*neuron_correlation(x))
    distance = 1 - np.abs(np.corrcoef(x.T.astype(np.float64)))
    expected = []
    for members in cluster_members(clustering.labels(0.5)):
        totals = [sum(distance[i, j] for j in members) for i in members]
        expected.append(members[int(np.argmin(np.round(totals, 12)))])
    assert clustering.representatives(0.5, "medoid").tolist() == sorted(expected)


@pytest.mark.parametrize("rule", ["random", "medoid", "first"])
def test_every_cluster_has_exactly_one_representative(rule):
    clustering = cluster_correlation(*neuron_correlation(correlated_neurons()))
    chosen = clustering.representatives(0.4, rule, np.random.default_rng(3))
    labels = clustering.labels(0.4)
    assert sorted(labels[chosen]) == sorted(set(labels.tolist()))
    assert (np.diff(chosen) > 0).all()


def test_random_representatives_repeat_with_the_generator_and_differ_between_seeds():
    clustering = cluster_correlation(*neuron_correlation(correlated_neurons()))
    draws = [clustering.representatives(0.8, "random", np.random.default_rng(s)).tolist() for s in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_survivors_per_layer_add_up_and_the_first_rule_prefers_low_layers():
    x = correlated_neurons(n_neurons=20)
    clustering = cluster_correlation(*neuron_correlation(np.hstack([x, x])))
    layout = NeuronLayout((20, 20))
    table = clustering.survivors(layout, (0.0, 0.1, 0.9), "first")
    assert table[:, 0].tolist() == [20, 20]
    assert table[1, 1:].tolist() == [0, 0]
    assert table.sum(axis=0).tolist() == [len(set(clustering.labels(t).tolist())) for t in (0.0, 0.1, 0.9)]


def test_bad_input_is_explained():
    good = correlated_neurons(n_neurons=4)
    clustering = cluster_correlation(*neuron_correlation(good))
    with pytest.raises(SettingError, match=r"threshold is 1\.2; it must lie between 0 and 1"):
        clustering.labels(1.2)
    with pytest.raises(SettingError, match="choose random, medoid or first"):
        clustering.representatives(0.5, "best")
    with pytest.raises(SettingError, match="need a generator"):
        clustering.representatives(0.5)
    with pytest.raises(DataError, match="at least 2 words × 2 neurons"):
        cluster_neurons(good[:1], 0.5)
    with pytest.raises(DataError, match="NaN or infinite"):
        cluster_neurons(np.where(good == good[0, 0], np.nan, good), 0.5)
    with pytest.raises(DataError, match="needs at least two"):
        cluster_correlation(np.ones((1, 1)))
    holed = np.eye(3)
    holed[0, 1] = np.nan
    with pytest.raises(DataError, match="NaN beside the constant neurons"):
        cluster_correlation(holed)


def test_moments_of_too_little_data_cannot_be_correlated():
    accumulator = MomentsAccumulator([3, 2])
    accumulator.update(np.ones((1, 5)))
    with pytest.raises(DataError, match="Found 1 words × 5 neurons; clustering needs at least 2 words"):
        moments_correlation(accumulator.result())


def test_correlations_of_moments_against_numpy_over_unequal_layers():
    x = correlated_neurons(n_neurons=9)
    accumulator = MomentsAccumulator([4, 2, 3])
    accumulator.update(x)
    correlation, constant = moments_correlation(accumulator.result())
    np.testing.assert_allclose(correlation, np.corrcoef(x.T.astype(np.float64)), atol=1e-12)
    assert not constant.any()


def test_a_list_of_thresholds_cuts_one_tree(monkeypatch):
    x = np.random.default_rng(5).standard_normal((200, 12))
    x[:, 6:] += 2 * x[:, :6]
    thresholds = [0.0, 0.1, 0.4, 0.9]
    apart = [cluster_neurons(x, threshold) for threshold in thresholds]
    trees = []
    monkeypatch.setattr(clustering, "linkage", lambda *a, **k: trees.append(1) or linkage(*a, **k))
    together = cluster_neurons(x, thresholds)
    assert len(trees) == 1
    for labels, expected in zip(together, apart, strict=True):
        np.testing.assert_array_equal(labels, expected)
    assert len({labels.max() for labels in together}) > 2, "the thresholds make no difference"
