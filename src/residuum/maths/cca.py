"""Canonical correlations and regressions between layers, from their moments.

With S_xx = V Λ Vᵀ the left singular vectors of the centred X are X V Λ^-½, so all that the formulas of Wu et al.
(2020, appendix A) take from X and Y is in the whitened cross-scatter W_xᵀ S_xy W_y, W = V Λ^-½. Singular values of X
are resolved down to about 1e-7 of the largest; directions below that are rounding and are left out.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from residuum.errors import SettingError
from residuum.maths.layouts import Pair
from residuum.maths.moments import EPSILON, LayerMoments, Moments, PairMoments, run_threads

ROUNDINGS = 4.0
"""Roundings that the way through a network adds up, of which a direction must have more to be one."""


@dataclass(frozen=True, eq=False)
class Subspace:
    """Directions of one layer: `whitening` W with Wᵀ S W = 1, and `loadings` Wᵀ S of the neurons on them."""

    whitening: Float[np.ndarray, "neuron direction"]
    loadings: Float[np.ndarray, "direction neuron"]


@dataclass(frozen=True, eq=False)
class LayerSpectra:
    """The decompositions of one layer, each made once however many layers it is compared with."""

    layer: LayerMoments
    variance: float = 0.99
    standardize: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.variance <= 1:
            raise SettingError(f"variance is {self.variance}; expected a share above 0, at most 1, such as 0.99.")

    @cached_property
    def principal(self) -> Subspace:
        """The fewest principal directions that reach the share `variance` of the layer's variance.

        `standardize` gives every neuron variance 1 first. All directions (`variance=1`) span the same space either
        way; they are taken from neurons of equal variance, which resolves small ones beside large ones.
        """
        if self.standardize:
            scale = self.layer.deviation
            whole = np.array_equal(self._perceptible, scale)
            values, vectors = self._equalized if whole else _descending_eigh(self._correlation(scale))
        elif self.variance == 1:
            scale, (values, vectors) = self._perceptible, self._equalized
        else:
            scale, (values, vectors) = np.ones(len(self.layer.mean)), self.plain
        values = values[values > len(values) * EPSILON * values[0]]
        kept = directions_for_share(values, self.variance)
        roots, vectors = np.sqrt(values[:kept]), vectors[:, :kept]
        loadings = roots[:, None] * vectors.T
        return Subspace(_divide(vectors, scale[:, None]) / roots, loadings if self.standardize else loadings * scale)

    @cached_property
    def regression(self) -> Float[np.ndarray, "neuron direction"]:
        """The whitening W of all directions that can be told from rounding, for least squares on the layer.

        Behind a LayerNorm one direction holds only the rounding of the activations: in neurons of variance 1, rounding
        to ε has variance up to ε² (1 + μ²/σ²) in each, and in the largest direction (1 + √(N/n))² times that. A
        direction v counts above `ROUNDINGS`² of it, and above what products and `eigh` lose, ε λ₁. Rayleigh
        quotients vᵀCv resolve the small ones from C.
        """
        values, vectors = self._equalized
        quotients = np.einsum("nd,nd->d", vectors, self._correlation(self._perceptible) @ vectors)
        layer, wide = self.layer, np.sqrt(len(self.layer.mean) / self.layer.n)
        raw = 1 + layer.n * _divide(layer.mean, self._perceptible) ** 2  # Σx² / Σ(x − μ)² of each neuron
        rounding = (ROUNDINGS * layer.precision * (1 + wide)) ** 2 * (raw @ vectors**2)
        kept = quotients > np.maximum(rounding, layer.rounding * max(16.0, values[0] / 4))
        return _divide(vectors[:, kept], self._perceptible[:, None]) / np.sqrt(quotients[kept])

    @cached_property
    def _perceptible(self) -> Float[np.ndarray, " neuron"]:
        """√S_kk, and 0 for neurons so small beside the layer that they lie below its rank tolerance."""
        layer = self.layer
        tolerance = EPSILON * max(layer.n, len(layer.mean)) * np.sqrt(np.linalg.norm(layer.scatter))
        return np.where(layer.deviation > tolerance, layer.deviation, 0.0)

    @cached_property
    def scale(self) -> Float[np.ndarray, " neuron"] | None:
        """What neurons are multiplied by before they are compared: 1 / √S_kk where they are standardised."""
        return _divide(np.ones(len(self.layer.mean)), self.layer.deviation) if self.standardize else None

    @cached_property
    def trace_and_norm(self) -> tuple[float, float]:
        """tr S and ‖S‖ of the neurons as they are compared."""
        scatter = self.layer.scatter
        if self.scale is not None:
            scatter = scatter * np.outer(self.scale, self.scale)
        return float(np.trace(scatter)), float(np.linalg.norm(scatter))

    @cached_property
    def plain(self) -> tuple[np.ndarray, np.ndarray]:
        """The eigenvalues of the scatter, largest first, and its eigenvectors."""
        return _descending_eigh(self.layer.scatter)

    @cached_property
    def _equalized(self) -> tuple[np.ndarray, np.ndarray]:
        return _descending_eigh(self._correlation(self._perceptible))

    def _correlation(self, scale: Float[np.ndarray, " neuron"]) -> Float[np.ndarray, "neuron neuron"]:
        return _divide(_divide(self.layer.scatter, scale), scale[:, None])


@dataclass(frozen=True, eq=False)
class Canonical:
    """`correlations` ρ of directions of two layers, largest first, and the weight from either side."""

    correlations: Float[np.ndarray, " canonical"]
    x_weights: Float[np.ndarray, " canonical"]
    y_weights: Float[np.ndarray, " canonical"]

    def weighted_means(self) -> tuple[float, float]:
        """PWCCA similarity of x to y and of y to x: Σ α ρ, α the normalised weights of x, of y."""
        return _weighted_mean(self.correlations, self.x_weights), _weighted_mean(self.correlations, self.y_weights)


def canonical_correlations(pair: PairMoments, x: Subspace, y: Subspace) -> Float[np.ndarray, " canonical"]:
    """ρ, the singular values of X'ᵀY', largest first: all that SVCCA needs, for a fraction of the whole SVD's time."""
    return np.minimum(np.linalg.svd(_whitened(pair, x, y), compute_uv=False), 1.0)


def canonical(pair: PairMoments, x: Subspace, y: Subspace) -> Canonical:
    """U, ρ, V = SVD(X'ᵀY'), the weights from abs((X'U)ᵀX) and abs((Y'V)ᵀY) summed over neurons."""
    u, correlations, vt = np.linalg.svd(_whitened(pair, x, y), full_matrices=False)
    x_weights = np.abs(u.T @ x.loadings).sum(axis=1)
    y_weights = np.abs(vt @ y.loadings).sum(axis=1)
    return Canonical(np.minimum(correlations, 1.0), x_weights, y_weights)


def mean_correlation(correlations: Float[np.ndarray, " canonical"], top_k: int | None = None) -> float:
    """SVCCA similarity: the mean of ρ, or of its `top_k` largest; 0 when a layer has no variance."""
    return float(correlations[:top_k].mean()) if len(correlations) else 0.0


def regression_fit(
    predicted: Float[np.ndarray, "direction neuron"], deviation: Float[np.ndarray, " neuron"]
) -> Float[np.ndarray, " neuron"]:
    """R of the regression of each neuron of x on all neurons of y: ‖prediction‖ / ‖regressand‖, centred.

    R_k² = ‖W_yᵀ S_yx[:, k]‖² / S_xx[k, k], from `predicted` W_yᵀ S_yx; a constant neuron has R = 0.
    """
    return np.minimum(_divide(np.linalg.norm(predicted, axis=0), deviation), 1.0)


PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Ridge penalties that `ridge_errors` tries, in units of the scatter of one standardised neuron."""


def ridge_errors(
    training: Moments, test: Moments, threads: int = 1
) -> dict[Pair, tuple[Float[np.ndarray, "penalty neuron"], Float[np.ndarray, " neuron"]]]:
    """For layers (x, y) what ridge regressions of x on y add to Σ(x − μ)² in the test words, and that sum.

    Coefficients and means μ are those of the training words; neurons of y are standardised there. With V Λ Vᵀ the
    correlation matrix of y, w = (Λ + λ)⁻¹ Vᵀ S_yx, and A the test scatter about μ, neuron k has the squared
    errors A_xx[k, k] − 2 w_kᵀ Vᵀ A_yx[:, k] + w_kᵀ Vᵀ A_yy V w_k.
    """
    added: dict[Pair, tuple[np.ndarray, np.ndarray]] = {}

    def about_training(x: int, y: int) -> np.ndarray:
        pair = test.pair(min(x, y), max(x, y))
        a, b = (test.layer(i).mean - training.layer(i).mean for i in (x, y))
        return (pair.cross if x <= y else pair.cross.T) + test.n * np.outer(a, b)

    def predict_from(y: int) -> None:
        layer = training.layer(y)
        scale = _divide(np.ones(len(layer.mean)), layer.deviation)
        values, vectors = _descending_eigh(layer.scatter * np.outer(scale, scale))
        basis = vectors * scale[:, None]
        quadratic = basis.T @ about_training(y, y) @ basis
        for x in range(training.n_layers):
            if (min(x, y), max(x, y)) not in training.blocks:
                continue
            pair = training.pair(x, y)
            target, tested = basis.T @ pair.cross.T, basis.T @ about_training(y, x)
            squares, errors = np.diag(about_training(x, x)) * pair.x.alive, []
            for penalty in PENALTIES:
                w = target / (np.maximum(values, 0) + penalty)[:, None]
                errors.append((w * (quadratic @ w)).sum(axis=0) - 2 * (w * tested).sum(axis=0))
            added[x, y] = np.array(errors, dtype=np.float32), squares

    run_threads(predict_from, [i for i, j in training.pairs if i == j], threads)
    return added


def directions_for_share(values: Float[np.ndarray, " direction"], variance: float) -> int:
    """The smallest number of leading `values` (descending) whose sum reaches the share `variance` of all."""
    if variance == 1 or len(values) == 0:
        return len(values)
    share = np.cumsum(values) / values.sum()
    # A share that is met exactly, as by 2 of 4 equal values at ½, must not be missed by rounding.
    return int(np.searchsorted(share, variance * (1 - 1e-12))) + 1


def _whitened(pair: PairMoments, x: Subspace, y: Subspace) -> Float[np.ndarray, "direction other"]:
    return x.whitening.T @ pair.cross @ y.whitening


def _descending_eigh(matrix: Float[np.ndarray, "neuron neuron"]) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], vectors[:, ::-1]


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, and 0 where b is 0: constant neurons take no part."""
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b > 0)


def _weighted_mean(values: Float[np.ndarray, " canonical"], weights: Float[np.ndarray, " canonical"]) -> float:
    return float(weights @ values / weights.sum()) if len(values) else 0.0
