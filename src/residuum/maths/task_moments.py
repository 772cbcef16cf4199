"""What second moments tell about a task: which neurons it needs, and probes in closed form.

One pass over the words leaves the correlation matrix R of all neurons and C = ZᵀB/n, with Z the standardised neurons
and B the centred class indicators (or the centred numbers). Forward selection and ridge or LDA probes are functions of
these alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import cho_factor, cho_solve

from residuum.errors import DataError, SettingError
from residuum.maths.features import Features, check_finite, column_moments, windows
from residuum.maths.probing import Probe, TrainedProbe, as_index
from residuum.maths.rankings import Ranking
from residuum.maths.targets import Target

ROWS = 4096
"""Words multiplied at once."""
LIMIT = 1000
"""Neurons that are selected one after the other; the rest follow by what each would still add alone."""
EXPLAINED = 1e-9
"""Share of a neuron's variance below which the selected ones explain all of it."""


@dataclass(frozen=True, eq=False)
class TaskMoments:
    """Second moments of neurons and a target over n words.

    `correlation` is R, with zeros for constant neurons, whose `deviation` is 0. `cross` is C. `target_mean` is the
    share of each class, or the mean of the numbers; `n_classes` is 0 for numbers.
    """

    n: int
    mean: Float[np.ndarray, " neuron"]
    deviation: Float[np.ndarray, " neuron"]
    correlation: Float[np.ndarray, "neuron neuron"]
    cross: Float[np.ndarray, "neuron column"]
    target_mean: Float[np.ndarray, " column"]
    target_variance: Float[np.ndarray, " column"]
    n_classes: int

    @property
    def shrinkage(self) -> float:
        """δ of (1 − δ) R + δ I with the least expected error (Ledoit & Wolf 2004), in [0, 1].

        δ = E‖R̂ − R‖² / E‖R̂ − I‖², the error of R̂ being that of normal data: (d² + ‖R‖²) / n for d neurons. Close to 0
        where words are many, close to 1 where they are few.
        """
        d = int((self.deviation > 0).sum())
        squared = float(np.einsum("ij,ij->", self.correlation, self.correlation, dtype=np.float64))
        off_diagonal = squared - d
        return float(np.clip((d**2 + squared) / self.n / off_diagonal, 0.0, 1.0)) if off_diagonal > 0 else 0.0

    @property
    def ridge(self) -> float:
        """What the shrinkage adds to the diagonal of R, relative to R: δ / (1 − δ), at most 1000."""
        return min(self.shrinkage / max(1 - self.shrinkage, 1e-3), 1e3)


def task_moments(
    features: Features,
    target: Target,
    correlation: tuple[Float[np.ndarray, "neuron neuron"], Bool[np.ndarray, " neuron"]] | None = None,
) -> TaskMoments:
    """The moments of training words; pass the `correlation` and the constant neurons if they are known already.

    Products are float32 and sums float64: correlations are good to about 1e-6.
    """
    n_words, n_neurons = features.shape
    if n_words != len(target.values) or n_words < 2:
        raise DataError(f"{n_words} words came with {len(target.values)} labels; expected one each, and two or more.")
    mean, deviation = column_moments(features)
    scale = np.divide(1.0, deviation, out=np.zeros(n_neurons), where=deviation > 0)
    indicators = np.eye(target.n_classes)[target.values] if target.n_classes else target.values[:, None].astype(float)
    target_mean, target_variance = indicators.mean(axis=0), indicators.var(axis=0)
    cross = np.zeros((n_neurons, indicators.shape[1]))
    products = np.zeros((n_neurons, n_neurons)) if correlation is None else None
    for window in windows(features):
        check_finite(window)
        for start in range(0, len(window.x), ROWS):
            z = ((window.x[start : start + ROWS] - mean) * scale).astype(np.float32)
            words = window.words[start : start + ROWS]
            cross += z.T @ (indicators[words] - target_mean).astype(np.float32)
            if products is not None:
                products += z.T @ z
    if correlation is None:
        assert products is not None
        products /= n_words
        np.fill_diagonal(products, deviation > 0)
        matrix = products
    else:
        matrix = correlation[0] * np.outer(~correlation[1], ~correlation[1])
    return TaskMoments(
        n_words, mean, deviation, matrix, cross / n_words, target_mean, target_variance, target.n_classes
    )


def forward_selection(
    moments: TaskMoments, *, discriminant: bool = False, limit: int = LIMIT, ridge: float | None = None
) -> Ranking:
    """Neurons in the order in which each explains most of what those before it leave unexplained.

    Greedy least squares of B on Z by a pivoted Cholesky factor of R, O(K d (K + classes)) for K of d neurons:

        gain_j = Σ_c P_jc² / r_j          P = C, r = diag(R) + ridge at the start
        l = (R_j − Σ_{s<i} L_sj L_s) / √r_j ;   P ← P − l (P_j/√r_j)ᵀ ;   r ← r − l²

    `discriminant` divides column c by √p_c, so that a rare class counts as much as a frequent one. `ridge` is the
    Ledoit–Wolf one unless given. Equal gains: the lower column first; constant neurons come last. The score is the
    share of the target's variance that a neuron adds.
    """
    columns = moments.cross
    variance = moments.target_variance.copy()
    if discriminant:
        if not moments.n_classes:
            raise SettingError("Discriminant scaling is of classes, and this target has numbers; leave it out.")
        weight = np.divide(1.0, moments.target_mean, out=np.zeros_like(variance), where=moments.target_mean > 0)
        columns, variance = columns * np.sqrt(weight), variance * weight
    return _greedy(moments, columns, float(variance.sum()), limit, moments.ridge if ridge is None else ridge)


def class_forward_selection(moments: TaskMoments, *, limit: int = LIMIT) -> list[Ranking]:
    """One order per class: the neurons that tell it from all other classes."""
    columns = np.split(moments.cross, moments.cross.shape[1], axis=1)
    ridge = moments.ridge
    return [_greedy(moments, c, float(v), limit, ridge) for c, v in zip(columns, moments.target_variance, strict=True)]


def _greedy(
    moments: TaskMoments, columns: Float[np.ndarray, "neuron column"], variance: float, limit: int, ridge: float
) -> Ranking:
    alive = moments.deviation > 0
    n_neurons, limit = len(alive), min(limit, int(alive.sum()))
    unexplained, residual = columns.astype(np.float64), np.where(alive, 1.0 + ridge, 0.0)
    factor = np.zeros((limit, n_neurons))
    selected, scores, open_ = [], np.zeros(n_neurons), alive.copy()

    def gains() -> Float[np.ndarray, " neuron"]:
        usable = open_ & (residual > EXPLAINED)
        squares = np.einsum("nc,nc->n", unexplained, unexplained)
        return np.divide(squares, residual, out=np.full(n_neurons, -1.0), where=usable)

    for i in range(limit):
        gain = gains()
        best = int(gain.argmax())
        if gain[best] <= 0:
            break
        selected.append(best)
        scores[best], open_[best] = gain[best], False
        row = moments.correlation[best].astype(np.float64)
        row[best] += ridge
        row = (row - factor[:i, best] @ factor[:i]) / np.sqrt(residual[best])
        factor[i] = row
        unexplained -= np.outer(row, unexplained[best] / np.sqrt(residual[best]))
        residual = residual - row**2
    rest = np.setdiff1d(np.arange(n_neurons), selected)
    scores[rest] = np.maximum(gains()[rest], 0.0)
    rest = rest[np.lexsort((rest, ~alive[rest], -scores[rest]))]
    return Ranking(np.concatenate([np.array(selected, np.int64), rest]), scores / variance if variance > 0 else scores)


def quick_probes(moments: TaskMoments, probes: Sequence[Probe], *, ridge: float | None = None) -> list[TrainedProbe]:
    """Probes in closed form: linear discriminant analysis of classes, ridge regression of numbers.

    LDA: logit_c = m_cᵀV⁻¹z − ½ m_cᵀV⁻¹m_c + log p_c, with m_c the class means and V = R − Σ p_c m_c m_cᵀ + ridge·I.
    Ridge: (R + λ2 I) w = C, the minimum of mean squared error + λ2‖w‖². The ridge is a probe's λ2, else `ridge`, else
    the Ledoit–Wolf one. A class without words is never predicted.
    """
    default = moments.ridge if ridge is None else ridge
    trained = []
    for probe in probes:
        l2 = default if probe.l2 is None else probe.l2
        neurons = np.arange(len(moments.mean))[as_index(probe.neurons)]
        alive = moments.deviation[neurons] > 0
        chosen = neurons[alive]
        matrix = moments.correlation[np.ix_(chosen, chosen)].astype(np.float64)
        cross, share = moments.cross[chosen], moments.target_mean
        bias = share.astype(np.float64)
        means = cross
        if moments.n_classes:
            present = share > 0
            means = np.divide(cross, share, out=np.zeros_like(cross), where=present)
            matrix -= (cross * np.where(present, 1, 0)) @ means.T
            bias = np.where(present, np.log(np.where(present, share, 1.0)), -np.inf)
        matrix[np.diag_indices_from(matrix)] += max(l2, 1e-6)
        solved = cho_solve(cho_factor(matrix, overwrite_a=True), means)
        weight = np.zeros((cross.shape[1], len(neurons)), np.float32)
        weight[:, alive] = solved.T
        if moments.n_classes:
            bias = np.maximum(bias - 0.5 * np.einsum("nc,nc->c", means, solved), np.finfo(np.float32).min)
        deviation = np.where(alive, moments.deviation[neurons], 1.0).astype(np.float32)
        centre = moments.mean[neurons].astype(np.float32)
        fitted = (weight, bias.astype(np.float32), moments.n_classes, len(moments.mean), centre, deviation)
        trained.append(TrainedProbe(probe, neurons, *fitted, (0.0, l2), converged=True))
    return trained


def neuron_subset(moments: TaskMoments, neurons: Int[np.ndarray, " chosen"]) -> TaskMoments:
    """The moments of some of the neurons, in this order."""
    return TaskMoments(
        moments.n,
        moments.mean[neurons],
        moments.deviation[neurons],
        moments.correlation[np.ix_(neurons, neurons)],
        moments.cross[neurons],
        moments.target_mean,
        moments.target_variance,
        moments.n_classes,
    )
