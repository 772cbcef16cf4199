"""Which neurons matter for a task: five ways to put them in order, and how far the orders agree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError, SettingError
from residuum.maths.arrays import constant_neurons, rounding_floor
from residuum.maths.features import column_scatter, constant_columns
from residuum.maths.layouts import Layout, scatter_bytes
from residuum.maths.moments import CHUNK, MomentsAccumulator

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


LCA_PENALTY = (1e-3, 1e-2)
"""λ1 and λ2 of the converged probe that LCA ranks by: strong enough to tell neurons apart, unlike the final probe's."""


def lca_ranking(weight: Float[np.ndarray, "class neuron"]) -> Ranking:
    """Linguistic correlation analysis (Dalvi et al. 2019, 2020): neurons as the top p % of weight mass grows.

    For each class, the top p % is the smallest set of neurons with the largest |θ| whose |θ| sum to p % of
    the class's total. Growing p from 0 in ever smaller steps, a neuron enters a class at the share of mass
    that stands before it, and the ranking at the smallest such share over the classes; so this order agrees
    with that of *any* step size. Neurons that enter together (the first of each class): the larger share of
    its own first, then the lower number. The score is 1 − the entering share: 0 for a neuron without weight.
    """
    shares = mass_shares(weight)
    by_class = np.argsort(-shares, axis=1, kind="stable")
    ordered = np.take_along_axis(shares, by_class, axis=1)
    before = np.zeros_like(ordered)  # the mass of the neurons that stand before each one in its class
    before[:, 1:] = np.cumsum(ordered, axis=1)[:, :-1]
    before[ordered == 0] = 1
    of_neuron = np.empty_like(shares)
    np.put_along_axis(of_neuron, by_class, before, axis=1)
    entering = of_neuron.min(axis=0)
    order = np.lexsort((np.arange(shares.shape[1]), -shares.max(axis=0), entering))
    return Ranking(order, 1 - entering)


def mass_shares(weight: Float[np.ndarray, "class neuron"]) -> Float[np.ndarray, "class neuron"]:
    """|θ| of each neuron as a share of its class's total; a class without weight has only zeros."""
    mass = np.abs(np.asarray(weight, np.float64))
    if mass.ndim != 2 or not np.isfinite(mass).all():
        raise DataError(f"Weights of shape {mass.shape} cannot be ranked; expected finite numbers, class × neuron.")
    total = mass.sum(axis=1, keepdims=True)
    return np.divide(mass, total, out=np.zeros_like(mass), where=total > 0)


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Words, Σx and Σx² per class, in float64; sums of parts of the data add up with `+`."""

    counts: Int[np.ndarray, " class"]
    sums: Float[np.ndarray, "class neuron"]
    squares: Float[np.ndarray, "class neuron"]

    def __add__(self, other: "ClassSums") -> "ClassSums":
        return ClassSums(self.counts + other.counts, self.sums + other.sums, self.squares + other.squares)

    @property
    def present_means(self) -> Float[np.ndarray, "class neuron"]:
        """Class means of the classes that have words."""
        present = self.counts > 0
        return self.sums[present] / self.counts[present, None]

    @property
    def deviation(self) -> Float[np.ndarray, " neuron"]:
        """Standard deviation of each neuron over all words; exactly 0 where it is constant (`maths.arrays`)."""
        n_words = int(self.counts.sum())
        mean = self.sums.sum(axis=0) / n_words
        scatter = self.squares.sum(axis=0) - n_words * mean**2
        constant = constant_neurons(scatter, rounding_floor(n_words, mean))
        return np.sqrt(np.where(constant, 0, scatter) / n_words)

    def between_column(self, neuron: int) -> Float[np.ndarray, " neuron"]:
        """One column of the between-class scatter Σ_c n_c (μ_c − μ)(μ_c − μ)ᵀ."""
        centred = self.centred_means
        return (self.counts[self.counts > 0] * centred[:, neuron]) @ centred

    @property
    def between_diagonal(self) -> Float[np.ndarray, " neuron"]:
        """The diagonal of the between-class scatter."""
        return self.counts[self.counts > 0] @ self.centred_means**2

    @property
    def centred_means(self) -> Float[np.ndarray, "class neuron"]:
        """Class means around the mean of all words, classes with words only."""
        return self.present_means - self.sums.sum(axis=0) / self.counts.sum()


def class_sums(x: Float[np.ndarray, "word neuron"], classes: Int[np.ndarray, " label"], n_classes: int) -> ClassSums:
    """Sums of one block of words; add the blocks of a stream."""
    if len(x) != len(classes):
        raise DataError(f"{len(x)} words came with {len(classes)} labels; give one label per word.")
    if len(classes) and not 0 <= classes.min() <= classes.max() < n_classes:
        raise DataError(f"The labels run from {classes.min()} to {classes.max()}; there are {n_classes} classes.")
    x = np.asarray(x, np.float64)
    if not np.isfinite(x).all():
        raise DataError("The activations contain NaN or infinite values; extract them again or drop those words.")
    membership = np.eye(n_classes)[classes].T
    return ClassSums(np.bincount(classes, minlength=n_classes), membership @ x, membership @ x**2)


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
    overlaps = [np.maximum(_iou(membership, b, share), _iou(membership, -b, share)) for b in blocks]
    return np.where(constant_columns(x), 0, np.concatenate(overlaps, axis=1))


def iou_bytes(n_words: int, n_neurons: int, n_classes: int) -> int:
    """The most memory that `iou_ranking` holds beside the words: their classes, and where some neurons fire."""
    return n_words * (16 * min(NEURONS_AT_ONCE, n_neurons) + 8 * n_classes) + 16 * n_neurons * n_classes


def random_rankings(n_neurons: int, generator: np.random.Generator, count: int = 5) -> list[Ranking]:
    """Several random orders; their scores have a spread, which any other ranking must exceed (`beats_random`)."""
    return [random_ranking(n_neurons, generator) for _ in range(count)]


def beats_random(score: float, random_scores: Sequence[float], standard_error: float = 0.0) -> bool:
    """Whether a score lies above the mean of random orders by more than chance: 2 √(sd² + se²).

    sd is the standard deviation of the random orders' scores, se the standard error of the score over sentences.
    """
    if len(random_scores) < 2:
        raise SettingError(f"Found {len(random_scores)} random orders; expected two or more, to know their spread.")
    return bool(score > np.mean(random_scores) + 2 * np.hypot(np.std(random_scores, ddof=1), standard_error))


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


NEGLIGIBLE = 1e-6
"""Share of a neuron's scatter below which what is left of it counts as rounding."""
LIMIT = 500
"""Neurons that are picked one after the other."""
JOINT_NEURONS = 20 * LIMIT
"""Neurons beyond which the columns of the picks take less time than the scatter of all."""


@dataclass(frozen=True, eq=False)
class Scatter:
    """Σ(x−μ)(x−μ)ᵀ of all neurons by its diagonal and its columns; constant neurons have none."""

    diagonal: Float[np.ndarray, " neuron"]
    column: Callable[[int], Float[np.ndarray, " neuron"]]


def joint_scatter(x: Float[np.ndarray, "word neuron"], widths: Sequence[int]) -> Scatter:
    """The scatter of layers side by side, multiplied at once: 4 bytes for each pair of neurons."""
    accumulator = MomentsAccumulator(widths)
    accumulator.update(x)
    moments, layout = accumulator.result(), Layout(tuple(widths))
    blocks, diagonal = moments.blocks, layout.diagonal(moments.blocks)
    alive = ~constant_neurons(diagonal, moments.floor, moments.resolution)

    def column(neuron: int) -> Float[np.ndarray, " neuron"]:
        layer = int(layout.layer_of_neuron[neuron])
        place = neuron - layout.slices[layer].start
        parts = [blocks[i, layer][:, place] if i <= layer else blocks[layer, i][place] for i in range(len(widths))]
        return np.concatenate(parts) * alive

    return Scatter(diagonal * alive, column)


def scatter_of_words(x: Float[np.ndarray, "word neuron"]) -> Scatter:
    """The same scatter, of which a column is computed from the words when it is asked for: no memory for pairs."""
    mean, diagonal = x.mean(axis=0, dtype=np.float64), column_scatter(x)

    def column(neuron: int) -> Float[np.ndarray, " neuron"]:
        centred = x[:, neuron] - mean[neuron]
        # einsum makes float64 of the words piece by piece, unlike a product, which copies all of them first
        return (np.einsum("w,wn->n", centred, x) - centred.sum() * mean) * (diagonal > 0)

    return Scatter(diagonal, column)


def gaussian_bytes(widths: Sequence[int], n_classes: int, *, joint: bool) -> int:
    """The most memory that the ranking holds beside the words: sums of classes, two factors, and a `joint` scatter."""
    n = sum(widths)
    factors, class_means = 16 * min(LIMIT, n) * n, 32 * n_classes * n
    return factors + class_means + (scatter_bytes(widths) + 16 * CHUNK * n if joint else 0)


def gaussian_ranking(sums: ClassSums, scatter: Scatter, limit: int = LIMIT) -> Ranking:
    """Neurons in the order in which they add information on the classes to those already picked.

    Each pick maximises the Gaussian information ½ log(|T_S| / |W_S|) of the chosen set S, T being the total
    scatter Σ(x−μ)(x−μ)ᵀ and W the within-class one. The original fits a covariance per class and reads the
    data at each pick; one covariance for all classes makes a pick a function of sums, and full (not
    diagonal), so a copy of a picked neuron adds nothing. After `limit` picks, or when nothing is left to
    gain, the others follow by what each would still add alone. The score is the information added, in nats.
    """
    diagonal, n_neurons = scatter.diagonal, sums.sums.shape[1]
    if len(diagonal) != n_neurons:
        raise DataError(f"A scatter of {len(diagonal)} neurons came with sums of {n_neurons}; give both of the same.")
    limit = min(limit, n_neurons)
    total = _Residual(diagonal, limit)
    within = _Residual(diagonal - sums.between_diagonal, limit)
    picks: list[int] = []
    scores = np.zeros(n_neurons)
    gain = _information_gain(total, within, diagonal, picks)
    while len(picks) < limit and gain.max() > 0:
        best = int(gain.argmax())
        picks.append(best)
        scores[best] = gain[best]
        column = scatter.column(best)
        total.condition_on(best, column, NEGLIGIBLE * diagonal[best])
        within.condition_on(best, column - sums.between_column(best), NEGLIGIBLE * diagonal[best])
        gain = _information_gain(total, within, diagonal, picks)
    others = np.setdiff1d(np.arange(n_neurons), picks)
    scores[others] = np.maximum(gain[others], 0)
    others = others[np.argsort(-scores[others], kind="stable")]
    return Ranking(np.concatenate([np.array(picks, int), others]), scores)


class _Residual:
    """The diagonal of a scatter matrix once the chosen neurons are regressed out (a growing Cholesky)."""

    def __init__(self, diagonal: np.ndarray, limit: int):
        self.diagonal = np.maximum(diagonal, 0)
        self._factor = np.zeros((limit, len(diagonal)))
        self._rank = 0

    def condition_on(self, neuron: int, column: Float[np.ndarray, " neuron"], negligible: float) -> None:
        """Regress one more neuron, and its column, out; nothing happens when the others explain it already."""
        if self.diagonal[neuron] <= negligible:
            return
        known = self._factor[: self._rank]
        row = (column - known[:, neuron] @ known) / np.sqrt(self.diagonal[neuron])
        self._factor[self._rank] = row
        self._rank += 1
        self.diagonal = np.maximum(self.diagonal - row**2, 0)


def _information_gain(
    total: _Residual, within: _Residual, diagonal: Float[np.ndarray, " neuron"], picks: list[int]
) -> Float[np.ndarray, " neuron"]:
    """½ log(t / w) of each neuron's unexplained total and within-class scatter; −1 where none is left."""
    floor = NEGLIGIBLE * diagonal
    left = total.diagonal > floor
    gain = np.full(len(diagonal), -1.0)
    gain[left] = 0.5 * np.log(total.diagonal[left] / np.maximum(within.diagonal[left], floor[left]))
    gain[picks] = -1
    return gain
