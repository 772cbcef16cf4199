import tracemalloc

import numpy as np
import pytest

from residuum.errors import DataError
from residuum.maths.rankings import (
    Scatter,
    class_sums,
    gaussian_bytes,
    gaussian_ranking,
    joint_scatter,
    scatter_of_words,
)


def scattered(x, classes, n_classes):
    centred = x - x.mean(axis=0, dtype=np.float64)
    matrix = centred.T @ centred
    return class_sums(x, classes, n_classes), Scatter(np.diagonal(matrix), lambda j: matrix[:, j])


def planted(seed=0, n_words=4000, n_neurons=30):
    """Neurons 4 and 20 know the class in different ways; 11 is almost a copy of 4; the rest is noise."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 4, n_words)
    x = rng.standard_normal((n_words, n_neurons))
    x[:, 4] += 3 * (classes % 2)
    x[:, 20] += 2 * (classes // 2)
    x[:, 11] = x[:, 4] + 0.05 * rng.standard_normal(n_words)
    return x, classes


def information(x, classes, chosen):
    """½ log |T| − ½ log |W| by brute force."""
    part = x[:, chosen] - x[:, chosen].mean(axis=0)
    within = part.copy()
    for c in np.unique(classes):
        within[classes == c] -= part[classes == c].mean(axis=0)
    return 0.5 * (np.linalg.slogdet(part.T @ part)[1] - np.linalg.slogdet(within.T @ within)[1])


def test_every_pick_is_the_best_by_brute_force():
    x, classes = planted(n_words=300, n_neurons=22)
    ranking = gaussian_ranking(*scattered(x, classes, 4))
    for depth in range(8):
        chosen = ranking.order[:depth].tolist()
        gains = {j: information(x, classes, [*chosen, j]) for j in range(22) if j not in chosen}
        best = max(gains, key=lambda j: gains[j])
        assert ranking.order[depth] == best
        before = information(x, classes, chosen) if chosen else 0
        assert ranking.scores[best] == pytest.approx(gains[best] - before)


def test_planted_neurons_come_first_and_a_copy_adds_nothing():
    ranking = gaussian_ranking(*scattered(*planted(), 4))
    assert set(ranking.order[:2].tolist()) in ({4, 20}, {11, 20})
    assert ranking.scores[[4, 11]].min() < 0.05 < ranking.scores[[4, 11]].max()


def test_noise_adds_almost_no_information():
    rng = np.random.default_rng(0)
    ranking = gaussian_ranking(*scattered(rng.standard_normal((4000, 30)), rng.integers(0, 4, 4000), 4))
    assert ranking.scores.max() < 0.01


def test_every_neuron_is_ranked_once_although_the_search_stops_early():
    order = gaussian_ranking(*scattered(*planted(), 4), limit=3).order
    assert sorted(order.tolist()) == list(range(30))
    assert np.array_equal(order[:3], gaussian_ranking(*scattered(*planted(), 4)).order[:3])


def test_duplicates_constants_and_perfect_predictors_do_no_harm():
    x, classes = planted(n_words=500, n_neurons=24)
    x[:, 0] = 5  # constant
    x[:, 1] = x[:, 2] - x[:, 3]  # a linear combination
    x[:, 5] = classes  # knows everything
    ranking = gaussian_ranking(*scattered(x, classes, 4))
    assert ranking.order[0] == 5
    assert np.isfinite(ranking.scores).all()
    assert sorted(ranking.order.tolist()) == list(range(24))


def test_scale_and_sign_of_neurons_do_not_matter():
    x, classes = planted()
    moved = x * np.random.default_rng(1).choice([-40, 0.3, 7], 30) + 2
    expected = gaussian_ranking(*scattered(x, classes, 4)).order[:5]
    assert np.array_equal(gaussian_ranking(*scattered(moved, classes, 4)).order[:5], expected)


def test_a_scatter_of_another_size_is_refused():
    x, classes = planted()
    with pytest.raises(DataError, match="scatter of 3 neurons came with sums of 30"):
        gaussian_ranking(class_sums(x, classes, 4), scatter_of_words(x[:, :3]))


@pytest.mark.parametrize("offset", [0, 1000])
def test_both_forms_of_the_scatter_are_that_of_the_words(offset):
    x = planted(n_words=1500)[0].astype(np.float32) + np.float32(offset)
    x[:, 7] = 5  # constant
    centred = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    matrix = centred.T @ centred
    for scatter in (joint_scatter(x, [10, 8, 12]), scatter_of_words(x)):
        found = np.stack([scatter.column(j) for j in range(30)])
        np.testing.assert_allclose(found, matrix, rtol=1e-9, atol=1e-7)
        np.testing.assert_allclose(scatter.diagonal, np.diag(matrix), rtol=1e-9, atol=1e-7)
        assert scatter.diagonal[7] == 0
        assert not found[7].any()


def test_the_joint_scatter_and_that_of_the_words_rank_alike():
    x, classes = planted()
    x, sums = x.astype(np.float32), class_sums(x, classes, 4)
    joint, lazy = (gaussian_ranking(sums, scatter) for scatter in (joint_scatter(x, [15, 15]), scatter_of_words(x)))
    np.testing.assert_array_equal(joint.order, lazy.order)
    np.testing.assert_allclose(joint.scores, lazy.scores, atol=1e-9)


@pytest.mark.parametrize("joint", [True, False])
def test_no_more_memory_is_held_than_was_said(joint):
    rng = np.random.default_rng(0)
    x, classes = rng.standard_normal((1200, 1500), dtype=np.float32), rng.integers(0, 4, 1200)
    sums = class_sums(x, classes, 4)
    tracemalloc.start()
    gaussian_ranking(sums, joint_scatter(x, [500, 1000]) if joint else scatter_of_words(x))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    said = gaussian_bytes([500, 1000], 4, joint=joint)
    assert said / 3 < peak < 1.3 * said
