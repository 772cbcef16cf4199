"""How alike two layers are: the measures of Wu et al. (2020) and their kin, for two arrays or all layers.

All measures compare X and Y, `words × neurons` of two layers over the same words, neurons centred. In `MEASURES`, the
measures with source "moments" need only one pass (`residuum.maths.moments`), "arrays" need the activations,
"attention" and "attention moments" need attention weights (`residuum.maths.attention`).

Definitions where the formulas have none. A constant neuron correlates 0 with everything but itself, and a layer
without variance has similarity 0 to every other; a layer and itself, or its copy, have similarity 1 throughout.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from residuum.errors import DataError, SettingError
from residuum.maths import kernels
from residuum.maths import kernels as relations
from residuum.maths.arrays import as_matrix
from residuum.maths.attention import attention_similarity, word_pairs
from residuum.maths.cca import (
    Canonical,
    LayerSpectra,
    canonical,
    canonical_correlations,
    mean_correlation,
    regression_fit,
)
from residuum.maths.moments import Moments, MomentsAccumulator, PairMoments

Source = Literal["moments", "arrays", "attention", "attention moments"]


@dataclass(frozen=True)
class Measure:
    """One measure: what it is computed from, its name in the paper, its options, and the lowest value it can take."""

    source: Source
    symmetric: bool
    paper_name: str = ""
    options: tuple[str, ...] = ()
    lowest: float = 0.0


MEASURES: Mapping[str, Measure] = {
    "neuron": Measure("moments", False, "neuronsim", ("top_k",)),
    "mixed": Measure("moments", False, "mixedsim", ("top_k",)),
    "svcca": Measure("moments", True, "svsim", ("variance", "standardize", "top_k")),
    "pwcca": Measure("moments", False, "pwsim", ("variance", "standardize")),
    "cka": Measure("moments", True, "ckasim", ("standardize",)),
    "cka_debiased": Measure("moments", True, lowest=-1.0),
    "procrustes": Measure("moments", True, "", ("standardize",)),
    "cka_rbf": Measure("arrays", True, "ckasim, RBF", ("fraction", "batch", "debiased", "rng"), lowest=-1.0),
    "rsa": Measure("arrays", True, "", ("distance", "correlation", "sample", "rng"), lowest=-1.0),
    "knn": Measure("arrays", True, "", ("neighbours", "sample", "rng")),
    "attention_norm": Measure("attention", False, "attnsim, matrix norm"),
    "attention_pearson": Measure("attention", False, "attnsim, Pearson", lowest=-1.0),
    "attention_js": Measure("attention", False, "attnsim, Jensen–Shannon"),
    "attention_svcca": Measure("attention moments", True, "svsim", ("variance", "standardize", "top_k")),
    "attention_pwcca": Measure("attention moments", False, "pwsim", ("variance", "standardize")),
    "attention_cka": Measure("attention moments", True, "ckasim", ("standardize",)),
}


def similarity(x: Any, y: Any, measure: str = "cka", **options: Any) -> float:
    """The similarity of two layers over the same words, x to y, for numpy or torch `words × neurons` arrays.

    For attention measures x and y are attention weights, `heads × words × words` of one sentence or a list of
    sentences. `MEASURES[measure].options` names the options; `MomentOptions`, `kernels.cka_rbf`, `relations.rsa` and
    `relations.knn` explain them.
    """
    check_options([measure], options)
    source = MEASURES[measure].source
    if source == "attention":
        return attention_similarity(x, y, measure)
    if source == "attention moments":
        x, y, measure = word_pairs(x), word_pairs(y), measure.removeprefix("attention_")
    x, y = as_matrix(x, "The first array"), as_matrix(y, "The second array")
    if len(x) != len(y):
        raise DataError(
            f"The arrays have {len(x)} and {len(y)} words; expected the same words in the same order. "
            "Align the two corpora by words first."
        )
    if source == "arrays":
        return 1.0 if np.array_equal(x, y) else float(array_similarity_matrix([x, y], measure, **options)[0, 1])
    accumulator = MomentsAccumulator([x.shape[1], y.shape[1]])
    accumulator.update([x, y])
    return float(similarity_matrix(accumulator.result(), measure, **options)[0, 1])


def similarity_matrix(moments: Moments, measure: str, **options: Any) -> Float[np.ndarray, "layer layer"]:
    """One measure for all pairs of layers: row x, column y; NaN where the pair was not accumulated."""
    return similarity_matrices(moments, [measure], **options)[measure]


def similarity_matrices(
    moments: Moments, measures: Sequence[str], **options: Any
) -> dict[str, Float[np.ndarray, "layer layer"]]:
    """Several measures for all pairs of layers, sharing one eigendecomposition a layer and one SVD a pair.

    Attention measures with source "attention moments" take the moments of word pairs × heads.
    """
    check_options(measures, options)
    formulas = {measure: _formula(measure) for measure in measures}
    settings = MomentOptions(**options)
    if settings.standardize and _cka_debiased in formulas.values():
        raise SettingError("cka_debiased needs the norms of raw neurons; leave it or `standardize` out.")
    matrices = {measure: np.full((moments.n_layers, moments.n_layers), np.nan) for measure in measures}
    kept = {"variance": settings.variance, "standardize": settings.standardize}
    spectra = {i: LayerSpectra(moments.layer(i), **kept) for i, j in moments.pairs if i == j}
    weighted = _pwcca in formulas.values()
    for i, j in moments.pairs:
        pair = _Decomposed(moments.pair(i, j), spectra[i], spectra[j], settings.top_k, weighted, settings.standardize)
        for measure, formula in formulas.items():
            forward, backward = (1.0, 1.0) if pair.moments.same else formula(pair)
            matrices[measure][i, j], matrices[measure][j, i] = forward, backward
    return matrices


def array_similarity_matrix(layers: Sequence[Any], measure: str, **options: Any) -> Float[np.ndarray, "layer layer"]:
    """One of the measures with source "arrays" for all pairs of layers over the same words."""
    check_options([measure], options)
    functions: dict[str, Callable[..., np.ndarray]] = {
        "cka_rbf": kernels.cka_rbf,
        "rsa": lambda arrays, **chosen: relations.rsa(arrays, **chosen).similarity(),
        "knn": lambda arrays, **chosen: relations.knn(arrays, **chosen).similarity(),
    }
    if measure not in functions:
        raise SettingError(f"{measure} is computed from {MEASURES[measure].source}; expected one of {[*functions]}.")
    return functions[measure]([as_matrix(layer, f"Layer {i}") for i, layer in enumerate(layers)], **options)


@dataclass(frozen=True)
class MomentOptions:
    """The options of the measures from moments.

    `top_k` averages only the k neurons or canonical correlations that are most alike (all if fewer); `variance` is
    the share of variance that SVCCA and PWCCA keep; `standardize` gives every neuron variance 1 before SVCCA, PWCCA,
    CKA and Procrustes, so that no neuron with a large variance decides alone. The code published with the paper does so
    for SVCCA, the paper does not. `neuron` and `mixed` do not change with a neuron's scale.
    """

    top_k: int | None = None
    variance: float = 0.99
    standardize: bool = False

    def __post_init__(self) -> None:
        if self.top_k is not None and self.top_k < 1:
            raise SettingError(f"top_k is {self.top_k}; expected at least 1, or None for all.")


@dataclass(frozen=True, eq=False)
class _Decomposed:
    """Two layers, what was decomposed of them before, and the SVD that SVCCA and PWCCA share."""

    moments: PairMoments
    x: LayerSpectra
    y: LayerSpectra
    top_k: int | None
    weighted: bool  # whether PWCCA is asked for, which needs the singular vectors too
    standardize: bool = False

    @cached_property
    def scatters(self) -> tuple[Float[np.ndarray, "neuron other"], ...]:
        """S_xx, S_yy and S_xy, of neurons with variance 1 where they are standardised."""
        m = self.moments
        if not self.standardize:
            return m.x.scatter, m.y.scatter, m.cross
        x, y = (np.divide(1.0, d, out=np.zeros_like(d), where=d > 0) for d in (m.x.deviation, m.y.deviation))
        return m.x.scatter * np.outer(x, x), m.y.scatter * np.outer(y, y), m.cross * np.outer(x, y)

    @cached_property
    def canonical(self) -> Canonical:
        return canonical(self.moments, self.x.principal, self.y.principal)

    @cached_property
    def correlations(self) -> Float[np.ndarray, " canonical"]:
        if self.weighted:
            return self.canonical.correlations
        return canonical_correlations(self.moments, self.x.principal, self.y.principal)


def _neuron(pair: _Decomposed) -> tuple[float, float]:
    """Mean over neurons of one layer of the largest |Pearson correlation| with a neuron of the other."""
    m = pair.moments
    norms = np.outer(m.x.deviation, m.y.deviation)
    correlation = np.divide(np.abs(m.cross), norms, out=np.zeros_like(m.cross), where=norms > 0)
    correlation = np.minimum(correlation, 1.0)
    top_k = pair.top_k
    return _mean_of_best(correlation.max(axis=1), top_k), _mean_of_best(correlation.max(axis=0), top_k)


def _mixed(pair: _Decomposed) -> tuple[float, float]:
    """Mean over the neurons of one layer of R of the regression on all neurons of the other."""
    m, top_k = pair.moments, pair.top_k
    swapped = PairMoments(m.y, m.x, m.cross.T, m.fourth, m.same)
    forward, backward = regression_fit(m, pair.y), regression_fit(swapped, pair.x)
    return _mean_of_best(forward, top_k), _mean_of_best(backward, top_k)


def _svcca(pair: _Decomposed) -> tuple[float, float]:
    value = mean_correlation(pair.correlations, pair.top_k)
    return value, value


def _pwcca(pair: _Decomposed) -> tuple[float, float]:
    return pair.canonical.weighted_means()


def _cka(pair: _Decomposed) -> tuple[float, float]:
    """‖S_xy‖² / (‖S_xx‖ ‖S_yy‖), Frobenius norms."""
    xx, yy, xy = (np.linalg.norm(scatter) for scatter in pair.scatters)
    if xx == 0 or yy == 0:
        return 0.0, 0.0
    value = min(float(xy / xx * (xy / yy)), 1.0)
    return value, value


def _cka_debiased(pair: _Decomposed) -> tuple[float, float]:
    """CKA with the unbiased HSIC of Song et al. (2012): about 0 for unrelated layers, however few the words.

    For centred X and Y with linear kernels, where 1ᵀXXᵀ = 0, their estimate is, without forming n × n matrices, HSIC
    ∝ ‖S_xy‖² − n/(n − 2) Σ‖x‖²‖y‖² + tr S_xx tr S_yy / ((n − 1)(n − 2)).
    """
    m = pair.moments
    if m.x.n <= 3:
        raise DataError(f"Found {m.x.n} words; expected at least 4 for cka_debiased.")
    unit_x, unit_y = m.x.trace or 1.0, m.y.trace or 1.0
    xx = _unbiased_hsic(m.x.n, np.linalg.norm(m.x.scatter / unit_x), m.x.fourth / unit_x**2)
    yy = _unbiased_hsic(m.x.n, np.linalg.norm(m.y.scatter / unit_y), m.y.fourth / unit_y**2)
    if m.x.trace == 0 or m.y.trace == 0 or min(xx, yy) <= 0:
        return 0.0, 0.0
    cross = np.linalg.norm(m.cross / np.sqrt(unit_x) / np.sqrt(unit_y))
    xy = _unbiased_hsic(m.x.n, cross, m.fourth / unit_x / unit_y)
    value = float(np.clip(xy / np.sqrt(xx * yy), -1, 1))
    return value, value


def _unbiased_hsic(n: int, scatter_norm: float | np.floating, fourth: float) -> float:
    """HSIC · n(n − 3) of layers that were divided by the root of their trace."""
    return float(scatter_norm) ** 2 - n / (n - 2) * fourth + 1 / ((n - 1) * (n - 2))


def _procrustes(pair: _Decomposed) -> tuple[float, float]:
    """‖S_xy‖_* / √(tr S_xx tr S_yy): the cosine of X and the Y that is best rotated onto it.

    Equals 1 − d²/2 for d the orthogonal Procrustes distance of X and Y scaled to Frobenius norm 1; in [0, 1],
    invariant to rotation and scale. The narrower of two layers counts as if it had constant neurons besides.
    """
    x, y, cross = pair.scatters
    if np.trace(x) == 0 or np.trace(y) == 0:
        return 0.0, 0.0
    unit = cross / np.sqrt(np.trace(x)) / np.sqrt(np.trace(y))
    value = min(float(np.linalg.svd(unit, compute_uv=False).sum()), 1.0)
    return value, value


_FORMULAS: Mapping[str, Callable[[_Decomposed], tuple[float, float]]] = {
    "neuron": _neuron,
    "mixed": _mixed,
    "svcca": _svcca,
    "pwcca": _pwcca,
    "cka": _cka,
    "cka_debiased": _cka_debiased,
    "procrustes": _procrustes,
}


def _formula(measure: str) -> Callable[[_Decomposed], tuple[float, float]]:
    name = measure.removeprefix("attention_") if MEASURES[measure].source == "attention moments" else measure
    if name not in _FORMULAS:
        raise SettingError(f"{measure} cannot be had from moments; expected one of {', '.join(_FORMULAS)}.")
    return _FORMULAS[name]


def check_options(measures: Sequence[str], options: Mapping[str, Any]) -> None:
    """Refuse measures that do not exist, and options that none of these measures takes."""
    unknown = [measure for measure in measures if measure not in MEASURES]
    if unknown:
        raise SettingError(f"Unknown measure {', '.join(unknown)}; expected one of {', '.join(MEASURES)}.")
    allowed = sorted({option for measure in measures for option in MEASURES[measure].options})
    foreign = sorted(set(options) - set(allowed))
    if foreign:
        raise SettingError(
            f"{', '.join(measures)} has no option {', '.join(foreign)}; expected {', '.join(allowed) or 'none'}."
        )


def _mean_of_best(values: Float[np.ndarray, " neuron"], top_k: int | None) -> float:
    return float(np.sort(values)[::-1][:top_k].mean())
