"""Greedy Gaussian ranking of neurons, from sums alone (after Torroba Hennigen et al. 2020)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from residuum.errors import DataError
from residuum.maths.class_sums import ClassSums
from residuum.maths.constancy import constant_neurons
from residuum.maths.features import column_scatter
from residuum.maths.layer_blocks import Layout, scatter_bytes
from residuum.maths.moments import CHUNK, MomentsAccumulator
from residuum.maths.rankings import Ranking

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
        own = int(layout.layer_of_neuron[neuron])
        place = neuron - layout.slices[own].start
        parts = [blocks[i, own][:, place] if i <= own else blocks[own, i][place] for i in range(len(widths))]
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
