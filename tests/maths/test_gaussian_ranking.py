import numpy as np
import pytest

from residuum.errors import DataError
from residuum.maths.class_sums import class_sums
from residuum.maths.gaussian_ranking import gaussian_ranking


def scattered(x, classes, n_classes):
    centred = x - x.mean(axis=0, dtype=np.float64)
    return class_sums(x, classes, n_classes), centred.T @ centred


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
    with pytest.raises(DataError, match=r"shape \(3, 3\) came with 30 neurons"):
        gaussian_ranking(class_sums(x, classes, 4), np.eye(3))
