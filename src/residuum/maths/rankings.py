"""Which neurons matter for a task: five ways to put them in order, and how far the orders agree."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError, SettingError
from residuum.maths.class_sums import ClassSums
from residuum.maths.features import constant_columns

Order = Int[np.ndarray, " neuron"]
NEURONS_AT_ONCE = 256
"""Neurons of which it is seen together where they fire."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """Neurons from the most to the least important, and the score by which they stand there (by neuron)."""

    order: Order
    scores: Float[np.ndarray, " neuron"]


def rank_by(scores: Float[np.ndarray, " neuron"]) -> Ranking:
    """Highest score first; equal scores in the order of the neurons."""
    if not np.isfinite(scores).all():
        raise DataError("A neuron has a NaN or infinite score; check the activations and weights.")
    return Ranking(np.argsort(-scores, kind="stable"), scores)


def lca_ranking(weight: Float[np.ndarray, "class neuron"]) -> Ranking:
    """Linguistic correlation analysis (Dalvi et al. 2019, 2020): neurons as the top p % of weight mass grows.

    For each class, the top p % is the smallest set of neurons with the largest |θ| whose |θ| sum to p % of
    the class's total. Growing p from 0 in ever smaller steps, a neuron enters a class at the share of mass
    that stands before it, and the ranking at the smallest such share over the classes; so this order agrees
    with that of *any* step size. Neurons that enter together (the first of each class): the larger share of
    its own first, then the lower number. The score is 1 − the entering share: 0 for a neuron without weight.
    """
    shares = mass_shares(weight)
    entering = _mass_before(shares).min(axis=0)
    order = np.lexsort((np.arange(shares.shape[1]), -shares.max(axis=0), entering))
    return Ranking(order, 1 - entering)


def lca_class_rankings(weight: Float[np.ndarray, "class neuron"]) -> list[Ranking]:
    """One ranking per class: its neurons by their share of the class's |θ|."""
    return [rank_by(share) for share in mass_shares(weight)]


def mass_shares(weight: Float[np.ndarray, "class neuron"]) -> Float[np.ndarray, "class neuron"]:
    """|θ| of each neuron as a share of its class's total; a class without weight has only zeros."""
    mass = np.abs(np.asarray(weight, np.float64))
    if mass.ndim != 2 or not np.isfinite(mass).all():
        raise DataError(f"Weights of shape {mass.shape} cannot be ranked; expected finite numbers, class × neuron.")
    total = mass.sum(axis=1, keepdims=True)
    return np.divide(mass, total, out=np.zeros_like(mass), where=total > 0)


def probeless_ranking(sums: ClassSums) -> Ranking:
    """Sum over pairs of classes of |difference of the class means| (Antverg & Belinkov 2022).

    Σ_{c<c'} |q_c − q_c'| of C sorted means is Σ_i (2i − C + 1) q_(i), i from 0. Means of a constant neuron differ by
    rounding alone: its score is 0.
    """
    means = np.sort(sums.present_means, axis=0)
    return rank_by(np.where(sums.deviation > 0, (2 * np.arange(len(means)) - len(means) + 1) @ means, 0.0))


def mean_difference_ranking(sums: ClassSums) -> Ranking:
    """The largest |μ_c − μ_rest| / σ over the classes: how far a class stands from the rest."""
    return rank_by(standardised_differences(sums).max(axis=0))


def standardised_differences(sums: ClassSums) -> Float[np.ndarray, "class neuron"]:
    """|μ_c − μ_rest| / σ for each class, σ being the deviation over all words; 0 for a constant neuron."""
    rest = sums.counts.sum() - sums.counts
    usable = (sums.counts > 0) & (rest > 0)
    counts, others = np.where(usable, sums.counts, 1)[:, None], np.where(usable, rest, 1)[:, None]
    difference = np.abs(sums.sums / counts - (sums.sums.sum(axis=0) - sums.sums) / others)
    deviation = sums.deviation
    return np.divide(difference, deviation, out=np.zeros_like(difference), where=usable[:, None] & (deviation > 0))


def iou_ranking(
    x: Float[np.ndarray, "word neuron"], classes: Int[np.ndarray, " label"], share: float = 0.05
) -> Ranking:
    """The best intersection over union with any class (see `intersection_over_union`)."""
    return rank_by(intersection_over_union(x, classes, share).max(axis=0))


def intersection_over_union(
    x: Float[np.ndarray, "word neuron"],
    classes: Int[np.ndarray, " label"],
    share: float = 0.05,
    block: int = NEURONS_AT_ONCE,
) -> Float[np.ndarray, "class neuron"]:
    """IoU of the words where a neuron fires and the words of a class (after Mu & Andreas 2020).

    A neuron fires on the `share` of words with its highest activations, or (its sign being arbitrary) with
    its lowest; the better of the two counts. Equal activations fire together; a constant neuron never fires.
    """
    if not 0 < share < 1:
        raise SettingError(f"The share of words on which a neuron fires is {share}; it must lie between 0 and 1.")
    if len(x) != len(classes) or len(x) == 0 or classes.min() < 0:
        raise DataError(f"{len(x)} words came with {len(classes)} labels; give each word a class from 0 up.")
    membership = np.eye(classes.max() + 1, dtype=np.float32)[classes]
    blocks = (np.asarray(x[:, start : start + block], np.float32) for start in range(0, x.shape[1], block))
    found = [np.maximum(_iou(membership, b, share), _iou(membership, -b, share)) for b in blocks]
    return np.where(constant_columns(x), 0, np.concatenate(found, axis=1))


def iou_bytes(n_words: int, n_neurons: int, n_classes: int) -> int:
    """The most memory that `iou_ranking` holds beside the words: their classes, and where some neurons fire."""
    return n_words * (16 * min(NEURONS_AT_ONCE, n_neurons) + 8 * n_classes) + 16 * n_neurons * n_classes


def random_ranking(n_neurons: int, generator: np.random.Generator) -> Ranking:
    """Neurons in random order: what any other ranking must beat."""
    order = generator.permutation(n_neurons)
    return Ranking(order, 1 - np.argsort(order) / n_neurons)


@dataclass(frozen=True)
class Agreement:
    """How far two rankings agree.

    `overlap` is the share of common neurons among the first k, `average_overlap` its mean over depths 1…k;
    `spearman` and `kendall` are rank correlations over all neurons.
    """

    first: str
    second: str
    k: int
    overlap: float
    average_overlap: float
    spearman: float
    kendall: float


def ranking_agreement(orders: Mapping[str, Order], k: int) -> list[Agreement]:
    """Agreement of every pair of rankings of the same neurons."""
    lengths = {name: len(order) for name, order in orders.items()}
    if (
        len(set(lengths.values())) > 1
        or min(lengths.values(), default=0) < 2
        or not 0 < k <= min(lengths.values(), default=0)
    ):
        raise SettingError(f"Cannot compare the first {k} of rankings with {lengths} neurons; rank the same neurons.")
    return [_agreement(a, orders[a], b, orders[b], k) for a, b in combinations(orders, 2)]


def _mass_before(shares: Float[np.ndarray, "class neuron"]) -> Float[np.ndarray, "class neuron"]:
    """For each class and neuron, the share of mass of the neurons that stand before it in that class."""
    order = np.argsort(-shares, axis=1, kind="stable")
    ordered = np.take_along_axis(shares, order, axis=1)
    before = np.zeros_like(ordered)
    before[:, 1:] = np.cumsum(ordered, axis=1)[:, :-1]
    before[ordered == 0] = 1
    found = np.empty_like(shares)
    np.put_along_axis(found, order, before, axis=1)
    return found


def _iou(
    membership: Float[np.ndarray, "word class"], x: Float[np.ndarray, "word neuron"], share: float
) -> Float[np.ndarray, "class neuron"]:
    if not np.isfinite(x).all():
        raise DataError("The activations contain NaN or infinite values; extract them again or drop those words.")
    n_words = len(x)
    first = n_words - max(round(share * n_words), 1)
    threshold = np.partition(x, first, axis=0)[first]
    fires = x >= threshold
    both = membership.T @ fires.astype(np.float32)
    either = membership.sum(axis=0)[:, None] + fires.sum(axis=0) - both
    return np.divide(both, either, out=np.zeros_like(both), where=either > 0)


def _agreement(first: str, a: Order, second: str, b: Order, k: int) -> Agreement:
    from scipy.stats import kendalltau  # slow to import, and seldom needed

    rank_a, rank_b = np.argsort(a), np.argsort(b)
    # A neuron is common to both heads of depth d as soon as d exceeds its worse rank.
    common = np.cumsum(np.bincount(np.maximum(rank_a, rank_b), minlength=len(a)))[:k]
    return Agreement(
        first,
        second,
        k,
        overlap=float(common[-1] / k),
        average_overlap=float(np.mean(common / np.arange(1, k + 1))),
        spearman=float(np.corrcoef(rank_a, rank_b)[0, 1]),
        kendall=float(kendalltau(rank_a, rank_b).statistic),  # pyright: ignore[reportAttributeAccessIssue]
    )
