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
from residuum.maths.moments import EPSILON, LayerMoments, PairMoments


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
            scale, (values, vectors) = self.layer.deviation, self._standardized
        elif self.variance == 1:
            scale, (values, vectors) = self._perceptible, self._equalized
        else:
            scale, (values, vectors) = np.ones(len(self.layer.mean)), self._plain
        values = values[values > len(values) * EPSILON * values[0]]
        kept = directions_for_share(values, self.variance)
        roots, vectors = np.sqrt(values[:kept]), vectors[:, :kept]
        loadings = roots[:, None] * vectors.T
        return Subspace(_divide(vectors, scale[:, None]) / roots, loadings if self.standardize else loadings * scale)

    @cached_property
    def regression(self) -> Float[np.ndarray, "neuron direction"]:
        """The whitening W of all directions that can be told from rounding, for least squares on the layer.

        Layers behind a LayerNorm have one direction that holds only float32 rounding, some 100 ε of a neuron's
        variance; least squares on arrays takes it for a regressor. Rayleigh quotients vᵀCv resolve it from C, where
        `eigh` is off by ε λ₁. A direction of no variance that passes the cut-off does no harm: the regressand's
        scatter along it is of order ε, and its share of R² of order ε² / 16 ε.
        """
        values, vectors = self._equalized
        quotients = np.einsum("nd,nd->d", vectors, self._correlation(self._perceptible) @ vectors)
        kept = quotients > EPSILON * max(16.0, values[0] / 4)
        return _divide(vectors[:, kept], self._perceptible[:, None]) / np.sqrt(quotients[kept])

    @cached_property
    def _perceptible(self) -> Float[np.ndarray, " neuron"]:
        """√S_kk, and 0 for neurons so small beside the layer that they lie below its rank tolerance."""
        layer = self.layer
        tolerance = EPSILON * max(layer.n, len(layer.mean)) * np.sqrt(np.linalg.norm(layer.scatter))
        return np.where(layer.deviation > tolerance, layer.deviation, 0.0)

    @cached_property
    def _plain(self) -> tuple[np.ndarray, np.ndarray]:
        return _descending_eigh(self.layer.scatter)

    @cached_property
    def _equalized(self) -> tuple[np.ndarray, np.ndarray]:
        return _descending_eigh(self._correlation(self._perceptible))

    @cached_property
    def _standardized(self) -> tuple[np.ndarray, np.ndarray]:
        if np.array_equal(self._perceptible, self.layer.deviation):
            return self._equalized
        return _descending_eigh(self._correlation(self.layer.deviation))

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


def regression_fit(pair: PairMoments, y: LayerSpectra) -> Float[np.ndarray, " neuron"]:
    """R of the regression of each neuron of x on all neurons of y: ‖prediction‖ / ‖regressand‖, centred.

    R_k² = ‖W_yᵀ S_yx[:, k]‖² / S_xx[k, k]; a constant neuron has R = 0.
    """
    explained = np.linalg.norm(y.regression.T @ pair.cross.T, axis=0)
    return np.minimum(_divide(explained, pair.x.deviation), 1.0)


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
