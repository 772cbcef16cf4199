"""Greedy Gaussian ranking of neurons, from sums alone (after Torroba Hennigen et al. 2020)."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from residuum.errors import DataError
from residuum.maths.class_sums import ClassSums
from residuum.maths.rankings import Ranking

NEGLIGIBLE = 1e-6
"""Share of a neuron's scatter below which what is left of it counts as rounding."""


def gaussian_ranking(sums: ClassSums, scatter: Float[np.ndarray, "neuron neuron"], limit: int = 500) -> Ranking:
    """Neurons in the order in which they add information on the classes to those already picked.

    Each pick maximises the Gaussian information ½ log(|T_S| / |W_S|) of the chosen set S, T being the total
    scatter Σ(x−μ)(x−μ)ᵀ and W the within-class one. The original fits a covariance per class and reads the
    data at each pick; one covariance for all classes makes a pick a function of sums, and full (not
    diagonal), so a copy of a picked neuron adds nothing. After `limit` picks, or when nothing is left to
    gain, the others follow by what each would still add alone. The score is the information added, in nats.
    """
    if scatter.shape != (sums.sums.shape[1],) * 2:
        raise DataError(f"A scatter of shape {scatter.shape} came with {sums.sums.shape[1]} neurons.")
    limit = min(limit, len(scatter))
    diagonal = np.diagonal(scatter).astype(np.float64)
    total = _Residual(diagonal, lambda j: scatter[:, j], limit)
    within = _Residual(diagonal - sums.between_diagonal, lambda j: scatter[:, j] - sums.between_column(j), limit)
    picks: list[int] = []
    scores = np.zeros(len(scatter))
    gain = _information_gain(total, within, diagonal, picks)
    while len(picks) < limit and gain.max() > 0:
        best = int(gain.argmax())
        picks.append(best)
        scores[best] = gain[best]
        total.condition_on(best, NEGLIGIBLE * diagonal[best])
        within.condition_on(best, NEGLIGIBLE * diagonal[best])
        gain = _information_gain(total, within, diagonal, picks)
    others = np.setdiff1d(np.arange(len(scatter)), picks)
    scores[others] = np.maximum(gain[others], 0)
    others = others[np.argsort(-scores[others], kind="stable")]
    return Ranking(np.concatenate([np.array(picks, int), others]), scores)


class _Residual:
    """The diagonal of a scatter matrix once the chosen neurons are regressed out (a growing Cholesky)."""

    def __init__(self, diagonal: np.ndarray, column: Callable[[int], np.ndarray], limit: int):
        self.diagonal = np.maximum(diagonal, 0)
        self._column = column
        self._factor = np.zeros((limit, len(diagonal)))
        self._rank = 0

    def condition_on(self, neuron: int, negligible: float) -> None:
        """Regress one more neuron out; nothing happens when the others explain it already."""
        if self.diagonal[neuron] <= negligible:
            return
        known = self._factor[: self._rank]
        column = self._column(neuron) - known[:, neuron] @ known
        row = column / np.sqrt(self.diagonal[neuron])
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
