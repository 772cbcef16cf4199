"""How alike two layers are: the measures of Wu et al. (2020) and related ones, for two arrays or all layers.

All measures compare X and Y, `words × neurons` of two layers over the same words, neurons centred. In `MEASURES`, the
measures with source "moments" need only one pass (`residuum.maths.moments`), "folds" the moments of each group of
sentences, "arrays" the activations, "attention" and "attention moments" attention weights
(`residuum.maths.attention`), and "outputs" what two models predict.

Definitions where the formulas have none. A constant neuron correlates 0 with everything but itself, and a layer
without variance has similarity 0 to every other; a layer and itself, or its copy, have similarity 1 throughout.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

from residuum.errors import DataError, SettingError
from residuum.maths import kernels
from residuum.maths.arrays import as_matrix
from residuum.maths.attention import attention_similarity, word_pairs
from residuum.maths.cca import (
    Canonical,
    LayerSpectra,
    canonical,
    canonical_correlations,
    mean_correlation,
    regression_fit,
    ridge_errors,
)
from residuum.maths.moments import (
    LayerMoments,
    Moments,
    MomentsAccumulator,
    PairMoments,
    merge,
    run_threads,
    subtract,
)

Source = Literal["moments", "folds", "arrays", "attention", "attention moments", "outputs"]
Matrix = Float[np.ndarray, "layer layer"]
RIGID = ("neuron order", "neuron sign", "shift", "layer scale", "rotation")
"""What a measure of distances or inner products does not see: any orthogonal map, a shift, one scale for a layer."""
SINGLE = ("neuron order", "neuron sign", "shift", "layer scale")
NEVER = float("inf")
LARGEST_MATCHING = 4096
"""Parts of neurons up to which soft matching is solved exactly."""


@dataclass(frozen=True)
class Measure:
    """One measure: what it is computed from, its name in the paper, its options, and the lowest value it can take.

    `unchanged_by` are the maps of a layer that leave it as it is, of "neuron order", "neuron sign", "neuron scale",
    "shift", "layer scale", "rotation", "linear map" and "word order"; where x and y differ in this, both may be mapped
    by it. `words_per_neuron` is what the jackknife interval needs to cover (see `docs/methods/similarity.md`).
    """

    source: Source
    symmetric: bool
    paper_name: str = ""
    options: tuple[str, ...] = ()
    lowest: float = 0.0
    unchanged_by: tuple[str, ...] = ()
    words_per_neuron: float = 0.0
    function: Callable[..., Any] | None = None


class Measures(dict[str, Measure]):
    """All measures by name. `register` adds one of your own, which `similarity` and `compare` then take."""

    def register(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        source: Literal["moments", "arrays"] = "arrays",
        symmetric: bool = True,
        lowest: float = 0.0,
        unchanged_by: Sequence[str] = (),
    ) -> None:
        """Add `function(x, y) -> float`, of two arrays `words × neurons`, or of `PairMoments` for source "moments"."""
        if name in self and self[name].function is None:
            raise SettingError(f"{name} is a measure of Residuum; give yours another name.")
        if not name.isidentifier() or name in ("paper", "attention", "all"):
            raise SettingError(f"{name!r} cannot name a measure; expected a word such as my_measure.")
        details = {"unchanged_by": tuple(unchanged_by), "function": function}
        self[name] = Measure(source, symmetric, lowest=lowest, words_per_neuron=NEVER, **details)


_SAMPLED = ("sample", "rng", "standardize")
_NEAR = ("neighbours", *_SAMPLED)
MEASURES = Measures(
    {
        "neuron": Measure("moments", False, "neuronsim", ("top_k",), unchanged_by=(*SINGLE, "neuron scale")),
        "mixed": Measure(
            "moments", False, "mixedsim", ("top_k",), unchanged_by=(*SINGLE, "neuron scale"), words_per_neuron=40.0
        ),
        "ridge": Measure("folds", False, "", ("folds",), lowest=-1.0, unchanged_by=(*SINGLE, "neuron scale")),
        "svcca": Measure(
            "moments",
            True,
            "svsim",
            ("variance", "standardize", "top_k"),
            unchanged_by=RIGID,
            words_per_neuron=NEVER,
        ),
        "pwcca": Measure(
            "moments", False, "pwsim", ("variance", "standardize"), unchanged_by=SINGLE, words_per_neuron=NEVER
        ),
        "cka": Measure("moments", True, "ckasim", ("standardize",), unchanged_by=RIGID),
        "cka_debiased": Measure("moments", True, lowest=-1.0, unchanged_by=RIGID),
        "procrustes": Measure("moments", True, "", ("standardize",), unchanged_by=RIGID, words_per_neuron=100.0),
        "shape": Measure("moments", True, "", ("standardize",), unchanged_by=RIGID, words_per_neuron=100.0),
        "matching": Measure("moments", True, unchanged_by=(*SINGLE, "neuron scale")),
        "soft_matching": Measure("moments", True, unchanged_by=(*SINGLE, "neuron scale")),
        "permutation": Measure("moments", True, "", ("standardize",), unchanged_by=SINGLE),
        "eigenspace_overlap": Measure(
            "moments", True, "", ("variance", "standardize"), unchanged_by=RIGID, words_per_neuron=NEVER
        ),
        "gulp": Measure("moments", True, "", ("regularization",), unchanged_by=RIGID, words_per_neuron=NEVER),
        "cka_rbf": Measure(
            "arrays",
            True,
            "ckasim, RBF",
            ("fraction", "batch", "debiased", "rng", "standardize"),
            lowest=-1.0,
            unchanged_by=RIGID,
        ),
        "rsa": Measure("arrays", True, "", ("distance", "correlation", *_SAMPLED), lowest=-1.0, unchanged_by=RIGID),
        "distance_correlation": Measure("arrays", True, "", _SAMPLED, unchanged_by=RIGID),
        "knn": Measure("arrays", True, "", _NEAR, unchanged_by=RIGID),
        "knn_jaccard": Measure("arrays", True, "", _NEAR, unchanged_by=RIGID),
        "cknna": Measure("arrays", True, "", _NEAR, lowest=-1.0, unchanged_by=RIGID),
        "second_order_cosine": Measure("arrays", True, "", _NEAR, lowest=-1.0, unchanged_by=RIGID),
        "rank_similarity": Measure("arrays", True, "", _NEAR, unchanged_by=RIGID),
        "imd": Measure("arrays", True, "", _NEAR, unchanged_by=(*RIGID, "word order"), words_per_neuron=NEVER),
        "output_js": Measure("outputs", True, unchanged_by=("class order",)),
        "output_agreement": Measure("outputs", True, unchanged_by=("class order",)),
        "attention_norm": Measure("attention", False, "attnsim, matrix norm", unchanged_by=("neuron order",)),
        "attention_pearson": Measure(
            "attention", False, "attnsim, Pearson", lowest=-1.0, unchanged_by=("neuron order",)
        ),
        "attention_js": Measure("attention", False, "attnsim, Jensen–Shannon", unchanged_by=("neuron order",)),
        "attention_svcca": Measure(
            "attention moments",
            True,
            "svsim",
            ("variance", "standardize", "top_k"),
            unchanged_by=RIGID,
            words_per_neuron=NEVER,
        ),
        "attention_pwcca": Measure(
            "attention moments",
            False,
            "pwsim",
            ("variance", "standardize"),
            unchanged_by=SINGLE,
            words_per_neuron=NEVER,
        ),
        "attention_cka": Measure("attention moments", True, "ckasim", ("standardize",), unchanged_by=RIGID),
    }
)


def similarity(x: Any, y: Any, measure: str = "cka", **options: Any) -> float:
    """The similarity of two layers over the same words, x to y, for numpy or torch `words × neurons` arrays.

    For attention measures x and y are attention weights, `heads × words × words` of one sentence or a list of
    sentences; for output measures probabilities or logits, `words × classes`. `MEASURES[measure].options` names the
    options; `MomentOptions` and the functions of `residuum.maths.kernels` explain them.
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
    if source == "outputs":
        return kernels.output_similarity(x, y, measure)
    if source == "arrays":
        return 1.0 if np.array_equal(x, y) else float(array_similarity_matrix([x, y], measure, **options)[0, 1])
    if source == "folds":
        folds = min(options.get("folds", 10), len(x))
        parts = [_moments(*part) for part in zip(np.array_split(x, folds), np.array_split(y, folds), strict=True)]
        return float(fold_similarity([lambda part=part: part for part in parts], reduce(merge, parts)).value[0, 1])
    return float(similarity_matrix(_moments(x, y), measure, **options)[0, 1])


def _moments(x: np.ndarray, y: np.ndarray) -> Moments:
    accumulator = MomentsAccumulator([x.shape[1], y.shape[1]])
    accumulator.update([x, y])
    return accumulator.result()


def similarity_matrix(moments: Moments, measure: str, **options: Any) -> Matrix:
    """One measure for all pairs of layers: row x, column y; NaN where the pair was not accumulated."""
    return similarity_matrices(moments, [measure], **options)[measure]


def similarity_matrices(
    moments: Moments, measures: Sequence[str], *, threads: int = 1, **options: Any
) -> dict[str, Matrix]:
    """Several measures for all pairs of layers, sharing one eigendecomposition per layer and one SVD per pair.

    Attention measures with source "attention moments" take the moments of word pairs × heads. `threads` share the
    pairs; each is computed by one, so their number changes no value.
    """
    check_options(measures, options)
    return _evaluate(moments, measures, threads, options)[0]


@dataclass(frozen=True, eq=False)
class Jackknife:
    """A matrix of all words, without each group of sentences in turn, and the bias that half of the words show."""

    value: Matrix
    left_out: Float[np.ndarray, "group layer layer"]
    bias: Matrix | None = None


def jackknife_matrices(
    parts: Sequence[Callable[[], Moments]],
    halves: tuple[Moments, Moments],
    measures: Sequence[str],
    *,
    total: Moments | None = None,
    threads: int = 1,
    **options: Any,
) -> dict[str, Jackknife]:
    """Several measures of all words and without each of the `parts`, whose even and odd ones make the two `halves`.

    Measures with a gradient need one decomposition: θ_(j) = θ + ⟨∇θ, S_(j) − S⟩, the infinitesimal jackknife (Efron
    1982). It sees no bias, which is read off the halves instead: b/n of all words is 2b/n of half of them. `total` is
    the sum of the halves, where there is one already.
    """
    total = merge(*halves, threads=threads) if total is None else total
    covered = [m for m in measures if MEASURES[m].words_per_neuron < NEVER]
    raw = not options.get("standardize")  # gradients are those of neurons as they are
    linear = [measure for measure in covered if raw and _formula(measure) in _GRADIENTS]
    values, gradients = _evaluate(total, measures, threads, options, linear)
    exact = [measure for measure in covered if measure not in linear]
    left_out: dict[str, list[Matrix]] = {measure: [] for measure in covered}
    for part in parts:
        rest = subtract(total, part(), threads=threads)
        matrices = _evaluate(rest, exact, threads, options)[0]
        matrices |= _follow(gradients, values, rest, total.n / rest.n, threads)
        for measure in covered:
            left_out[measure].append(matrices[measure])
    shrunk = [similarity_matrices(half, linear, threads=threads, **known_options(linear, options)) for half in halves]
    sizes = sum(total.n / half.n for half in halves) / 2 - 1
    empty = np.zeros((0, total.n_layers, total.n_layers))
    return {
        measure: Jackknife(
            values[measure],
            np.stack(left_out[measure]) if left_out.get(measure) else empty,
            (sum(half[measure] for half in shrunk) / 2 - values[measure]) / sizes if measure in linear else None,
        )
        for measure in measures
    }


def fold_similarity(parts: Sequence[Callable[[], Moments]], total: Moments, *, threads: int = 1) -> Jackknife:
    """`ridge` for all pairs of layers: mean over neurons of the R² with which Y predicts them in unseen sentences.

    Each part of the words is predicted by ridge regression on the others, R² = 1 − Σ squared errors / Σ squares about
    the mean of the others. Of `maths.cca.PENALTIES` each pair of layers takes the one with the highest value.
    """
    if len(parts) < 2:
        raise DataError(
            f"ridge found {len(parts)} group of sentences; expected at least 2, to predict one from others."
        )
    n = total.n_layers
    value, left_out = np.full((n, n), np.nan), np.full((len(parts), n, n), np.nan)
    folds = []
    for part in parts:
        test = part()
        folds.append(ridge_errors(subtract(total, test), test, threads))
    for x, y in folds[0]:
        added = np.stack([fold[x, y][0] for fold in folds]).astype(np.float64)  # fold × penalty × neuron
        squares = np.stack([fold[x, y][1] for fold in folds])
        best = int(_explained(added.sum(axis=0), squares.sum(axis=0)).argmax())
        for g in (None, *range(len(parts))):
            kept = [k for k in range(len(parts)) if k != g]
            mean = _explained(added[kept, best].sum(axis=0), squares[kept].sum(axis=0))
            mean = 1.0 if total.pair(x, y).same else max(float(mean), -1.0)
            if g is None:
                value[x, y] = mean
            else:
                left_out[g, x, y] = mean
    return Jackknife(value, left_out)


def _explained(added: np.ndarray, squares: Float[np.ndarray, " neuron"]) -> np.ndarray:
    """The mean over neurons of −added / squares; a constant neuron counts as 0."""
    there = np.broadcast_to(squares > 0, added.shape)
    return np.asarray(np.divide(-added, squares, out=np.zeros_like(added), where=there).mean(axis=-1))


def array_similarity_matrix(layers: Sequence[Any], measure: str, **options: Any) -> Matrix:
    """One of the measures with source "arrays" for all pairs of layers over the same words."""
    check_options([measure], options)
    if MEASURES[measure].source != "arrays":
        raise SettingError(f"{measure} is computed from {MEASURES[measure].source}; expected a measure of arrays.")
    arrays = [as_matrix(layer, f"Layer {i}") for i, layer in enumerate(layers)]
    if options.pop("standardize", None):
        deviations = [array.std(axis=0, dtype=np.float64) for array in arrays]
        arrays = [a / np.where(d > 0, d, 1.0) for a, d in zip(arrays, deviations, strict=True)]
    if function := MEASURES[measure].function:
        matrix = np.array([[float(function(x, y)) for y in arrays] for x in arrays])
    elif measure == "cka_rbf":
        matrix = kernels.cka_rbf(arrays, **options)
    else:
        matrix = kernels.RELATIONS[measure](arrays, **options).similarity()
    still = np.array([bool((array == array[0]).all()) for array in arrays])
    matrix[still], matrix[:, still] = 0.0, 0.0
    np.fill_diagonal(matrix, 1.0)
    return matrix


@dataclass(frozen=True)
class MomentOptions:
    """The options of the measures from moments.

    `top_k` averages only the k neurons or canonical correlations that are most alike (all if fewer); `variance` is
    the share of variance that SVCCA, PWCCA and eigenspace overlap keep; `standardize` gives every neuron variance 1
    before SVCCA, PWCCA, CKA and Procrustes, so that no neuron with a large variance decides alone. The code published
    with the paper does so for SVCCA, the paper does not. `neuron` and `mixed` do not change with a neuron's scale.
    `regularization` is GULP's λ, in units of the neurons' mean variance.
    """

    top_k: int | None = None
    variance: float = 0.99
    standardize: bool = False
    regularization: float = 1e-2

    def __post_init__(self) -> None:
        if self.top_k is not None and self.top_k < 1:
            raise SettingError(f"top_k is {self.top_k}; expected at least 1, or None for all.")
        if not self.regularization > 0:
            raise SettingError(f"regularization is {self.regularization}; expected a number above 0, such as 0.01.")


@dataclass(frozen=True, eq=False)
class _Decomposed:
    """Two layers, what was decomposed of them before, and the SVD that SVCCA and PWCCA share."""

    moments: PairMoments
    x: LayerSpectra
    y: LayerSpectra
    options: MomentOptions
    weighted: bool  # whether PWCCA is asked for, which needs the singular vectors too

    @cached_property
    def cross(self) -> Float[np.ndarray, "neuron other"]:
        """S_xy, of neurons with variance 1 where they are standardised."""
        x, y = self.x.scale, self.y.scale
        return self.moments.cross if x is None or y is None else self.moments.cross * np.outer(x, y)

    @cached_property
    def predicted(self) -> tuple[Float[np.ndarray, "of_y neuron"], Float[np.ndarray, "of_x other"]]:
        """W_yᵀ S_yx and W_xᵀ S_xy: what regressions on y predict of x, and on x of y."""
        cross = self.moments.cross
        return self.y.regression.T @ cross.T, self.x.regression.T @ cross

    @cached_property
    def canonical(self) -> Canonical:
        return canonical(self.moments, self.x.principal, self.y.principal)

    @cached_property
    def correlations(self) -> Float[np.ndarray, " canonical"]:
        if self.weighted:
            return self.canonical.correlations
        return canonical_correlations(self.moments, self.x.principal, self.y.principal)

    @cached_property
    def neuron_correlation(self) -> Float[np.ndarray, "neuron other"]:
        """|Pearson correlation| of all neurons of x with all of y."""
        x, y = (
            np.divide(1.0, d, out=np.zeros_like(d), where=d > 0)
            for d in (self.moments.x.deviation, self.moments.y.deviation)
        )
        correlation = np.abs(self.moments.cross)
        correlation *= x[:, None]
        correlation *= y
        return np.minimum(correlation, 1.0, out=correlation)

    @cached_property
    def procrustes(self) -> float:
        (x, _), (y, _) = self.x.trace_and_norm, self.y.trace_and_norm
        if x == 0 or y == 0:
            return 0.0
        unit = self.cross / np.sqrt(x) / np.sqrt(y)
        return min(float(np.linalg.svd(unit, compute_uv=False).sum()), 1.0)


@dataclass(frozen=True, eq=False)
class Gradient:
    """dθ = ⟨cross, dS_xy⟩ + ⟨xx, dS_xx⟩ + ⟨yy, dS_yy⟩; a vector stands for the diagonal."""

    cross: Float[np.ndarray, "neuron other"]
    xx: np.ndarray
    yy: np.ndarray

    def along(self, pair: PairMoments) -> float:
        """⟨∇θ, S⟩ for the scatter of some words: θ does not change with its scale, so ⟨∇θ, S⟩ is 0 for all words."""
        terms = ((self.xx, pair.x.scatter), (self.yy, pair.y.scatter))
        diagonal = sum(float(np.vdot(g, s if g.ndim == 2 else np.diag(s))) for g, s in terms)
        return float(np.vdot(self.cross, pair.cross)) + diagonal


def _evaluate(
    moments: Moments, measures: Sequence[str], threads: int, options: Mapping[str, Any], linear: Sequence[str] = ()
) -> tuple[dict[str, Matrix], dict[tuple[str, int, int], Gradient]]:
    """All measures of all pairs of layers, and the gradients of those that are `linear`."""
    formulas = {measure: _formula(measure) for measure in measures}
    settings = MomentOptions(**known_options(measures, options))
    if settings.standardize and _cka_debiased in formulas.values():
        raise SettingError("cka_debiased needs the norms of raw neurons; leave it or `standardize` out.")
    matrices = {measure: np.full((moments.n_layers, moments.n_layers), np.nan) for measure in measures}
    layers = [i for i, j in moments.pairs if i == j]
    spectra = {i: LayerSpectra(moments.layer(i), settings.variance, settings.standardize) for i in layers}
    weighted, gradients = _pwcca in formulas.values(), {}
    needed = {_SPECTRA[formula] for formula in formulas.values() if formula in _SPECTRA}
    run_threads(lambda i: [getattr(spectra[i], name) for name in needed], layers, threads)

    def work(ij: tuple[int, int]) -> None:
        i, j = ij
        pair = _Decomposed(moments.pair(i, j), spectra[i], spectra[j], settings, weighted)
        for measure, formula in formulas.items():
            forward, backward = (1.0, 1.0) if pair.moments.same else formula(pair)
            matrices[measure][i, j], matrices[measure][j, i] = forward, backward
            if measure in linear and not pair.moments.same:
                gradients[measure, i, j], gradients[measure, j, i] = _GRADIENTS[formula](pair)

    run_threads(work, moments.pairs, threads)
    return matrices, gradients


def _follow(
    gradients: Mapping[tuple[str, int, int], Gradient],
    values: Mapping[str, Matrix],
    rest: Moments,
    share: float,
    threads: int,
) -> dict[str, Matrix]:
    """θ + ⟨∇θ, S'⟩ for the `rest` of the words, with S' their scatter times `share`."""
    matrices = {measure: values[measure].copy() for measure in {measure for measure, _, _ in gradients}}

    def work(ij: tuple[int, int]) -> None:
        i, j = ij
        pair = rest.pair(i, j)
        for measure, matrix in matrices.items():
            if (measure, i, j) in gradients:
                matrix[i, j] += share * gradients[measure, i, j].along(pair)
                matrix[j, i] += share * gradients[measure, j, i].along(pair) if i != j else 0.0

    run_threads(work, rest.pairs, threads)
    return matrices


def _neuron(pair: _Decomposed) -> tuple[float, float]:
    """Mean over neurons of one layer of the largest |Pearson correlation| with a neuron of the other."""
    correlation, top_k = pair.neuron_correlation, pair.options.top_k
    return _mean_of_best(correlation.max(axis=1), top_k), _mean_of_best(correlation.max(axis=0), top_k)


def _mixed(pair: _Decomposed) -> tuple[float, float]:
    """Mean over the neurons of one layer of R of the regression on all neurons of the other."""
    top_k, (of_x, of_y) = pair.options.top_k, pair.predicted
    forward, backward = regression_fit(of_x, pair.x.layer.deviation), regression_fit(of_y, pair.y.layer.deviation)
    return _mean_of_best(forward, top_k), _mean_of_best(backward, top_k)


def _mixed_gradients(pair: _Decomposed) -> tuple[Gradient, Gradient]:
    """With b = S_yy⁺ S_yx: dR²_k = (2 b_k·dS_yx[:, k] − b_kᵀ dS_yy b_k − R²_k dS_xx[k, k]) / S_xx[k, k]."""

    def gradient(predicted: np.ndarray, x: LayerMoments, y: LayerSpectra) -> Gradient:
        fit = regression_fit(predicted, x.deviation)
        best = np.argsort(-fit, kind="stable")[: pair.options.top_k]
        weights = np.zeros(len(fit))  # of R² in the mean of R: 1 / 2R of each neuron that counts
        weights[best] = 1 / len(best)
        size = 2 * fit * x.deviation**2
        weights = np.divide(weights, size, out=np.zeros_like(weights), where=(size > 0) & (fit < 1))
        b = y.regression @ predicted
        return Gradient(_single(2 * (b * weights).T), _single(-weights * fit**2), _single(-(b * weights) @ b.T))

    of_x, of_y = pair.predicted
    backward = gradient(of_y, pair.moments.y, pair.x)
    return gradient(of_x, pair.moments.x, pair.y), Gradient(backward.cross.T, backward.yy, backward.xx)


def _svcca(pair: _Decomposed) -> tuple[float, float]:
    value = mean_correlation(pair.correlations, pair.options.top_k)
    return value, value


def _pwcca(pair: _Decomposed) -> tuple[float, float]:
    return pair.canonical.weighted_means()


def _eigenspace_overlap(pair: _Decomposed) -> tuple[float, float]:
    """‖X'ᵀY'‖² / max(k_x, k_y): the share of the wider subspace that both have (May et al. 2019)."""
    k = max(pair.x.principal.whitening.shape[1], pair.y.principal.whitening.shape[1])
    value = float((pair.correlations**2).sum() / k) if k else 0.0
    return value, value


def _gulp(pair: _Decomposed) -> tuple[float, float]:
    """2φ(x, y) / (φ(x, x) + φ(y, y)), φ(x, y) = tr(S_xx^-λ S_xy S_yy^-λ S_yx), S^-λ = (S + λI)⁻¹.

    GULP (Boix-Adsera et al. 2022) is the distance φ(x, x) + φ(y, y) − 2φ(x, y) of ridge predictions from both layers
    of mean variance 1, in the worst case of all targets; here as a share of its largest value.
    """
    if pair.moments.x.trace == 0 or pair.moments.y.trace == 0:
        return 0.0, 0.0
    roots, norms = [], []
    for spectra in (pair.x, pair.y):
        values, vectors = spectra.plain
        unit = spectra.layer.trace / len(values)
        weights = 1 / (np.maximum(values, 0) / unit + pair.options.regularization)
        roots.append(vectors * np.sqrt(weights / unit))
        norms.append(float(np.sum((np.maximum(values, 0) / unit * weights) ** 2)))
    both = float(np.linalg.norm(roots[0].T @ pair.moments.cross @ roots[1]) ** 2)
    value = min(2 * both / sum(norms), 1.0)
    return value, value


def _cka(pair: _Decomposed) -> tuple[float, float]:
    """‖S_xy‖² / (‖S_xx‖ ‖S_yy‖), Frobenius norms."""
    (_, xx), (_, yy), xy = pair.x.trace_and_norm, pair.y.trace_and_norm, float(np.linalg.norm(pair.cross))
    if xx == 0 or yy == 0:
        return 0.0, 0.0
    value = min(xy / xx * (xy / yy), 1.0)
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
    yy = _unbiased_hsic(m.y.n, np.linalg.norm(m.y.scatter / unit_y), m.y.fourth / unit_y**2)
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
    return pair.procrustes, pair.procrustes


def _procrustes_gradients(pair: _Decomposed, slope: float = 1.0) -> tuple[Gradient, Gradient]:
    """⟨UVᵀ, dS_xy⟩ / √(tr S_xx tr S_yy) − θ/2 (d tr S_xx / tr S_xx + d tr S_yy / tr S_yy), times `slope`."""
    m = pair.moments
    if m.x.trace == 0 or m.y.trace == 0:
        zero = Gradient(np.zeros_like(m.cross), np.zeros(len(m.x.mean)), np.zeros(len(m.y.mean)))
        return zero, zero
    u, _, vt = np.linalg.svd(m.cross, full_matrices=False)
    cross = slope * u @ vt / np.sqrt(m.x.trace) / np.sqrt(m.y.trace)
    xx, yy = (np.full(len(z.mean), -slope * pair.procrustes / 2 / z.trace) for z in (m.x, m.y))
    gradient = Gradient(_single(cross), xx, yy)
    return gradient, gradient


def _shape(pair: _Decomposed) -> tuple[float, float]:
    """1 − (2/π) arccos of `procrustes`: the angular shape metric (Williams et al. 2021), 1 − it a proper distance."""
    value = 1 - 2 / np.pi * float(np.arccos(pair.procrustes))
    return value, value


def _shape_gradients(pair: _Decomposed) -> tuple[Gradient, Gradient]:
    return _procrustes_gradients(pair, 2 / np.pi / np.sqrt(max(1 - pair.procrustes**2, 1e-12)))


def _matching(pair: _Decomposed) -> tuple[float, float]:
    """Mean |Pearson correlation| of the one-to-one matching of neurons where it is largest (Li et al. 2016).

    The narrower layer is matched whole; what is left of the wider one does not count.
    """
    value = float(pair.neuron_correlation[linear_sum_assignment(-pair.neuron_correlation)].mean())
    return value, value


def _soft_matching(pair: _Decomposed) -> tuple[float, float]:
    """Σ P ∘ |Pearson correlation| of the largest transport P between neurons of weight 1/N and 1/M.

    Khosla and Williams (2024); with N = M it is `matching`. Each neuron is cut into as many parts as make both layers
    equally many, and the parts are matched.
    """
    gain = pair.neuron_correlation
    parts = np.lcm(*gain.shape)
    if parts > LARGEST_MATCHING:
        raise SettingError(
            f"soft_matching of {gain.shape[0]} and {gain.shape[1]} neurons needs {parts:,} parts of them; expected at "
            f"most {LARGEST_MATCHING:,}. Use `matching`."
        )
    whole = gain.repeat(parts // gain.shape[0], axis=0).repeat(parts // gain.shape[1], axis=1)
    value = float(whole[linear_sum_assignment(-whole)].mean())
    return value, value


def _permutation(pair: _Decomposed) -> tuple[float, float]:
    """`procrustes` with permutations and flips of neurons instead of rotations (Ding et al. 2021, Williams 2021)."""
    (x, _), (y, _), size = pair.x.trace_and_norm, pair.y.trace_and_norm, np.abs(pair.cross)
    if x == 0 or y == 0:
        return 0.0, 0.0
    matched = size[linear_sum_assignment(-size)].sum()
    value = min(float(matched / np.sqrt(x) / np.sqrt(y)), 1.0)
    return value, value


_Formula = Callable[[_Decomposed], tuple[float, float]]
_FORMULAS: Mapping[str, _Formula] = {
    "neuron": _neuron,
    "mixed": _mixed,
    "svcca": _svcca,
    "pwcca": _pwcca,
    "cka": _cka,
    "cka_debiased": _cka_debiased,
    "procrustes": _procrustes,
    "shape": _shape,
    "matching": _matching,
    "soft_matching": _soft_matching,
    "permutation": _permutation,
    "eigenspace_overlap": _eigenspace_overlap,
    "gulp": _gulp,
}
_GRADIENTS: Mapping[_Formula, Callable[[_Decomposed], tuple[Gradient, Gradient]]] = {
    _mixed: _mixed_gradients,
    _procrustes: _procrustes_gradients,
    _shape: _shape_gradients,
}
_SPECTRA: Mapping[_Formula, str] = {
    _mixed: "regression",
    _svcca: "principal",
    _pwcca: "principal",
    _eigenspace_overlap: "principal",
    _gulp: "plain",
}


def _formula(measure: str) -> _Formula:
    name = measure.removeprefix("attention_") if MEASURES[measure].source == "attention moments" else measure
    function = MEASURES[measure].function
    if function is not None and MEASURES[measure].source == "moments":
        return lambda pair: (float(function(pair.moments)), float(function(pair.moments.swapped())))
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


def known_options(measures: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that one of these measures takes."""
    known = {option for measure in measures for option in MEASURES[measure].options}
    return {name: value for name, value in options.items() if name in known}


def _mean_of_best(values: Float[np.ndarray, " neuron"], top_k: int | None) -> float:
    return float(np.sort(values)[::-1][:top_k].mean())


def _single(values: np.ndarray) -> np.ndarray:
    """Gradients in float32: their sums need no more digits, and there is one for each pair of layers."""
    return values.astype(np.float32)
