from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr
from sklearn.metrics import jaccard_score

from residuum.errors import DataError, SettingError
from residuum.maths.rankings import (
    beats_random,
    class_sums,
    intersection_over_union,
    iou_ranking,
    lca_ranking,
    mass_shares,
    mean_difference_ranking,
    probeless_ranking,
    random_ranking,
    random_rankings,
    rank_by,
    ranking_agreement,
    standardised_differences,
)


def planted(seed=0, n_words=3000, n_neurons=40, informative=(3, 17, 31), shift=1.5):
    """Three classes; each informative neuron is shifted for one of them, the rest is noise."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, n_words)
    x = rng.standard_normal((n_words, n_neurons)).astype(np.float32)
    for of_class, neuron in enumerate(informative):
        x[classes == of_class, neuron] -= shift
    return x, classes


def top_neurons(weight, share):
    """Per class, the smallest set of the largest |θ| that sums to the share of the class's mass."""
    tops = []
    for row in np.abs(weight):
        order = sorted(range(len(row)), key=lambda j: (-row[j], j))
        chosen, mass = [], 0.0
        for j in order:
            if row[j] == 0 or mass / row.sum() >= share:
                break
            chosen.append(j)
            mass += row[j]
        tops.append(chosen)
    return tops


def literal_lca(weight, n_steps):
    """The algorithm as the papers tell it: grow p, append what is new; the set that each step added."""
    seen, added = set(), []
    for step in range(1, n_steps + 1):
        new = set().union(*top_neurons(weight, step / n_steps)) - seen
        added.append(new)
        seen |= new
    return added


@pytest.mark.parametrize("n_steps", [7, 100, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_lca_against_a_literal_transcription_at_any_step_size(seed, n_steps):
    weight = np.random.default_rng(seed).laplace(size=(5, 60))
    order = lca_ranking(weight).order.tolist()
    for new in literal_lca(weight, n_steps):
        assert set(order[: len(new)]) == new
        order = order[len(new) :]
    assert order == []


def test_lca_with_tiny_steps_gives_the_same_order_neuron_by_neuron():
    weight = np.random.default_rng(5).laplace(size=(2, 12))
    literal = [new for new in literal_lca(weight, 20_000) if new]
    order = lca_ranking(weight).order.tolist()
    assert set(order[:2]) == literal[0]  # the first neuron of each class enters at once
    assert order[2:] == [neuron for new in literal[1:] for neuron in new]


@given(st.integers(0, 1000))
@settings(max_examples=25)
def test_lca_does_not_depend_on_the_order_signs_or_scales_of_classes(seed):
    rng = np.random.default_rng(seed)
    weight = rng.laplace(size=(4, 15))
    moved = (weight * rng.choice([-1, 1], (4, 15)) * rng.uniform(0.1, 9, (4, 1)))[rng.permutation(4)]
    assert np.array_equal(lca_ranking(weight).order, lca_ranking(moved).order)


def test_lca_of_one_class_is_the_order_of_its_weights():
    weight = np.array([[0.1, -3.0, 2.0, 0.0]])
    assert lca_ranking(weight).order.tolist() == [1, 2, 0, 3]


def test_lca_puts_neurons_without_weight_last_and_ignores_classes_without_weight():
    weight = np.array([[0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    ranking = lca_ranking(weight)
    assert ranking.order.tolist() == [3, 2, 0, 1]
    assert ranking.scores.tolist() == [0, 0, 1 - 2 / 3, 1]


def test_class_rankings_find_the_neurons_of_each_class():
    weight = np.array([[5.0, 0.1, 0.2], [0.3, 0.1, 4.0]])
    assert [int(share.argmax()) for share in mass_shares(weight)] == [0, 2]


@pytest.mark.parametrize("rank", [probeless_ranking, mean_difference_ranking])
def test_rankings_from_class_sums_find_planted_neurons(rank):
    x, classes = planted()
    assert set(rank(class_sums(x, classes, 3)).order[:3]) == {3, 17, 31}


def test_iou_finds_planted_neurons_although_they_point_downwards():
    x, classes = planted()
    assert set(iou_ranking(x, classes, share=0.2).order[:3]) == {3, 17, 31}


def test_without_information_scores_stay_at_the_level_of_noise():
    x, classes = planted(shift=0)
    assert standardised_differences(class_sums(x, classes, 3)).max() < 0.2
    # A neuron that fires on a fifth of the words at random meets a third of them: 1/15 ÷ (1/5 + 1/3 − 1/15).
    assert intersection_over_union(x, classes, share=0.2).max() == pytest.approx(1 / 7, abs=0.04)


def test_probeless_against_all_pairs():
    x, classes = planted(n_words=200)
    means = [x[classes == c].mean(axis=0, dtype=np.float64) for c in range(3)]
    expected = sum(np.abs(a - b) for a, b in combinations(means, 2))
    np.testing.assert_allclose(probeless_ranking(class_sums(x, classes, 3)).scores, expected)


def test_standardised_differences_against_numpy_with_an_empty_class_and_a_constant_neuron():
    x, classes = planted(n_words=200, n_neurons=6, informative=(1,))
    x[:, 4] = 2
    found = standardised_differences(class_sums(x, classes, 4))
    x = x.astype(np.float64)
    for c in range(3):
        difference = np.abs(x[classes == c].mean(axis=0) - x[classes != c].mean(axis=0))
        expected = np.divide(difference, x.std(axis=0), where=np.arange(6) != 4, out=np.zeros(6))
        np.testing.assert_allclose(found[c], expected, atol=1e-12)
    assert not found[3].any()


def test_iou_against_sklearn_jaccard():
    x, classes = planted(n_words=200, n_neurons=7, informative=(2,))
    found = intersection_over_union(x, classes, share=0.1, block=3)
    for c in range(3):
        for j in range(7):
            ranks = np.argsort(np.argsort(x[:, j]))
            both_tails = [jaccard_score(classes == c, fires) for fires in (ranks >= 180, ranks < 20)]
            assert found[c, j] == pytest.approx(max(both_tails))


def test_a_constant_neuron_never_fires():
    x, classes = planted(n_words=100, n_neurons=3, informative=())
    x[:, 1] = 4
    assert not intersection_over_union(x, classes)[:, 1].any()


def test_equal_scores_stand_in_the_order_of_the_neurons():
    assert rank_by(np.array([1.0, 2.0, 1.0, 2.0])).order.tolist() == [1, 3, 0, 2]


def test_a_score_beats_random_orders_only_beyond_their_spread():
    assert beats_random(0.9, [0.5, 0.52, 0.48])
    assert not beats_random(0.53, [0.5, 0.52, 0.48])
    assert not beats_random(0.56, [0.5, 0.501, 0.499], standard_error=0.04), "few test words prove little"
    with pytest.raises(SettingError, match="two or more"):
        beats_random(0.9, [0.5])
    orders = [tuple(ranking.order) for ranking in random_rankings(50, np.random.default_rng(0), 4)]
    assert len(set(orders)) == 4


def test_random_rankings_repeat_with_the_generator():
    orders = [random_ranking(50, np.random.default_rng(s)).order.tolist() for s in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(50))


def test_agreement_against_scipy_and_sets():
    rng = np.random.default_rng(0)
    a, b = rng.permutation(30), rng.permutation(30)
    (found,) = ranking_agreement({"a": a, "b": b}, k=10)
    assert found.overlap == len({*a[:10].tolist()} & {*b[:10].tolist()}) / 10
    depths = [len({*a[:d].tolist()} & {*b[:d].tolist()}) / d for d in range(1, 11)]
    assert found.average_overlap == pytest.approx(np.mean(depths))
    ranks = np.argsort(a), np.argsort(b)
    assert found.spearman == pytest.approx(spearmanr(*ranks).statistic)
    assert found.kendall == pytest.approx(kendalltau(*ranks).statistic)


def test_a_ranking_agrees_with_itself_and_disagrees_with_its_reverse():
    order = np.random.default_rng(0).permutation(20)
    same, opposite, _ = ranking_agreement({"a": order, "b": order, "c": order[::-1]}, k=5)
    assert (same.overlap, same.average_overlap, same.spearman, same.kendall) == pytest.approx((1, 1, 1, 1))
    assert (opposite.overlap, opposite.spearman, opposite.kendall) == pytest.approx((0, -1, -1))


def test_bad_input_is_explained():
    x, classes = planted(n_words=20)
    with pytest.raises(SettingError, match=r"fires is 1\.5"):
        intersection_over_union(x, classes, share=1.5)
    with pytest.raises(DataError, match="20 words came with 19 labels"):
        intersection_over_union(x, classes[1:])
    with pytest.raises(DataError, match="NaN"):
        intersection_over_union(np.where(x == x[0, 0], np.nan, x), classes)
    with pytest.raises(DataError, match="cannot be ranked"):
        lca_ranking(np.array([[np.nan, 1.0]]))
    with pytest.raises(DataError, match="NaN or infinite score"):
        rank_by(np.array([np.inf, 1.0]))
    with pytest.raises(SettingError, match="first 5 of rankings"):
        ranking_agreement({"a": np.arange(4), "b": np.arange(4)}, k=5)
    with pytest.raises(SettingError, match="rank the same neurons"):
        ranking_agreement({"a": np.arange(4), "b": np.arange(5)}, k=2)
