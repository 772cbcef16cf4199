"""Kernel alignment of layers, from minibatches of words.

HSIC(K, L) of two kernels over the same words is the inner product of their centred matrices, and CKA = HSIC(K, L) /
√(HSIC(K, K) HSIC(L, L)) (Kornblith et al. 2019). Inner products of all layers' kernels are summed over minibatches
(Nguyen et al. 2021), so no matrix is larger than one minibatch and sums of two corpora merge.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import rel_entr, softmax

from residuum.errors import DataError, SettingError
from residuum.maths.arrays import as_matrix
from residuum.maths.moments import ROUNDING


class KernelAccumulator:
    """Adds up HSIC with radial (RBF) kernels for all pairs of layers, one minibatch of words after another.

    K_ij = exp(−‖x_i − x_j‖² / 2σ²), σ = `bandwidths[layer]`; see `bandwidth`. `debiased=True` takes the estimate of
    Song et al. (2012), whose expectation does not depend on the size of the minibatches; the plain one is raised by
    small minibatches.
    """

    def __init__(self, bandwidths: Sequence[float], *, debiased: bool = False) -> None:
        self._bandwidths = tuple(bandwidths)
        self._debiased = debiased
        self._sums = np.zeros((len(bandwidths), len(bandwidths)))
        self._batches = 0

    def update(self, layers: Sequence[Any]) -> None:
        """Add one minibatch: for each layer its `words × neurons`, the same words in each."""
        arrays = [as_matrix(layer, f"Layer {i}") for i, layer in enumerate(layers)]
        words = len(arrays[0])
        if words < (4 if self._debiased else 2):
            raise DataError(f"Found a minibatch of {words} words; expected at least {4 if self._debiased else 2}.")
        centre = u_centred if self._debiased else centred
        pairs = zip(arrays, self._bandwidths, strict=True)
        flat = np.stack([centre(rbf_kernel(array, sigma)).ravel() for array, sigma in pairs])
        self._sums += flat @ flat.T / (words * (words - 3) if self._debiased else (words - 1) ** 2)
        self._batches += 1

    def result(self) -> "KernelSums":
        """The sums over all minibatches so far."""
        return KernelSums(self._sums.copy(), self._batches)


@dataclass(frozen=True, eq=False)
class KernelSums:
    """HSIC of all pairs of layers, summed over minibatches."""

    hsic: Float[np.ndarray, "layer layer"]
    batches: int

    def cka(self) -> Float[np.ndarray, "layer layer"]:
        """CKA of all pairs of layers: 1 on the diagonal, 0 with a layer without variance."""
        return cosines(self.hsic)


def merge(a: KernelSums, b: KernelSums) -> KernelSums:
    """The sums over the minibatches of both."""
    return KernelSums(a.hsic + b.hsic, a.batches + b.batches)


def subtract(total: KernelSums, part: KernelSums) -> KernelSums:
    """The sums without the minibatches of `part`."""
    return KernelSums(total.hsic - part.hsic, total.batches - part.batches)


def cka_rbf(
    layers: Sequence[Float[np.ndarray, "word _"]],
    *,
    fraction: float = 0.8,
    batch: int = 2048,
    debiased: bool = False,
    rng: int | np.random.Generator = 0,
) -> Float[np.ndarray, "layer layer"]:
    """CKA with RBF kernels of all pairs of layers over the same words.

    Up to `batch` words the value is that of the definition; more words are dealt at random to minibatches of about
    that size. σ of each layer is `fraction` of the median distance between two words of a minibatch.
    """
    if batch < 4:
        raise SettingError(f"batch is {batch}; expected at least 4 words.")
    words = len(layers[0])
    order = np.random.default_rng(rng).permutation(words) if words > batch else np.arange(words)
    batches = np.array_split(order, -(-words // batch))
    sigmas = [bandwidth(layer[batches[0]], fraction) for layer in layers]
    accumulator = KernelAccumulator(sigmas, debiased=debiased)
    for chosen in batches:
        accumulator.update([layer[chosen] for layer in layers])
    return accumulator.result().cka()


def bandwidth(x: Float[np.ndarray, "word neuron"], fraction: float = 0.8) -> float:
    """`fraction` of the median distance between two words; of the mean distance where most words are equal.

    Kornblith et al. (2019) tried 0.2, 0.4 and 0.8; the last told layers apart best.
    """
    if not fraction > 0:
        raise SettingError(f"fraction is {fraction}; expected a positive share of the median distance, such as 0.8.")
    if len(x) < 2:
        raise DataError(f"Found {len(x)} words; expected at least 2, which have a distance.")
    distances = np.sqrt(squared_distances(x)[np.triu_indices(len(x), 1)])
    return fraction * float(np.median(distances) or distances.mean())


def rbf_kernel(x: Float[np.ndarray, "word neuron"], sigma: float) -> Float[np.ndarray, "word word"]:
    """exp(−‖x_i − x_j‖² / 2σ²); all ones when σ = 0, that is, when all words are equal."""
    return np.exp(-squared_distances(x) / (2 * sigma**2)) if sigma > 0 else np.ones((len(x), len(x)))


def squared_distances(x: Float[np.ndarray, "word neuron"]) -> Float[np.ndarray, "word word"]:
    """‖x_i − x_j‖² from inner products of the centred words; differences at rounding level count as 0."""
    z = x - x.mean(axis=0, dtype=np.float64)
    gram = z @ z.T
    norms = np.diag(gram)
    squared = norms[:, None] + norms - 2 * gram
    squared[squared < ROUNDING * (norms[:, None] + norms)] = 0
    return squared


def centred(kernel: Float[np.ndarray, "word word"]) -> Float[np.ndarray, "word word"]:
    """H K H, with H = 1 − 11ᵀ/n."""
    means = kernel.mean(axis=0)
    return kernel - means - means[:, None] + means.mean()


def u_centred(kernel: Float[np.ndarray, "word word"]) -> Float[np.ndarray, "word word"]:
    """The centring whose inner products, divided by n(n − 3), are the unbiased HSIC of Song et al. (2012).

    K_ij − (ΣK_i·)/(n−2) − (ΣK_·j)/(n−2) + ΣK/((n−1)(n−2)) off the diagonal, 0 on it; sums leave the diagonal out.
    """
    n = len(kernel)
    sums = kernel.sum(axis=0) - np.diag(kernel)
    result = kernel - (sums + sums[:, None]) / (n - 2) + sums.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(result, 0)
    return result


def cosines(products: Float[np.ndarray, "layer layer"]) -> Float[np.ndarray, "layer layer"]:
    """Inner products as cosines: 1 on the diagonal, and 0 beside a layer whose own product is 0."""
    norms = np.sqrt(np.maximum(np.diag(products), 0))
    result = np.divide(products, np.outer(norms, norms), out=np.zeros_like(products), where=np.outer(norms, norms) > 0)
    np.fill_diagonal(result, 1)
    return np.clip(result, -1, 1)


DISTANCES = ("cosine", "correlation", "euclidean")
CORRELATIONS = ("spearman", "pearson")


@dataclass(frozen=True, eq=False)
class Relations:
    """A `words × words` matrix for each layer over one sample of words; `chosen` are the words in it."""

    matrices: list[Float[np.ndarray, "word word"]]
    chosen: Int[np.ndarray, " word"]
    compare: Callable[[list[Float[np.ndarray, "word word"]]], Float[np.ndarray, "layer layer"]]

    def similarity(self, keep: Int[np.ndarray, " _"] | None = None) -> Float[np.ndarray, "layer layer"]:
        """All pairs of layers over the sample, or over the places `keep` in it (for a jackknife)."""
        return self.compare(self.matrices if keep is None else [matrix[np.ix_(keep, keep)] for matrix in self.matrices])


def rsa(
    layers: Sequence[Float[np.ndarray, "word _"]],
    *,
    distance: str = "cosine",
    correlation: str = "spearman",
    sample: int = 1000,
    rng: int | np.random.Generator = 0,
) -> Relations:
    """Representational similarity analysis: how two layers' distances between words correlate, in [−1, 1].

    Kriegeskorte et al. (2008). Neurons are centred first, so that cosines do not all sit near 1; with `cosine` and
    `euclidean` the value is invariant to rotation and scale. Distances that are all alike correlate 0.
    """
    if distance not in DISTANCES or correlation not in CORRELATIONS:
        raise SettingError(
            f"Found distance {distance!r} and correlation {correlation!r}; "
            f"expected one of {DISTANCES} and one of {CORRELATIONS}."
        )
    from scipy.stats import rankdata  # slow to import, and seldom needed

    def compare(matrices: list[Float[np.ndarray, "word word"]]) -> Float[np.ndarray, "layer layer"]:
        centred_pairs = []
        for matrix in matrices:
            pairs = matrix[np.triu_indices(len(matrix), 1)]
            values = rankdata(pairs) if correlation == "spearman" else pairs
            deviations = values - values.mean()
            # Exactly 0 where all values are equal up to rounding.
            constant = np.abs(deviations).max() <= 64 * np.finfo(np.float64).eps * np.abs(values).max()
            centred_pairs.append(np.zeros_like(values) if constant else deviations)
        flat = np.stack(centred_pairs)
        return cosines(flat @ flat.T)

    chosen = sample_words(len(layers[0]), sample, rng, least=3)
    return Relations([_distances(layer[chosen], distance) for layer in layers], chosen, compare)


def distance_correlation(
    layers: Sequence[Float[np.ndarray, "word _"]], *, sample: int = 1000, rng: int | np.random.Generator = 0
) -> Relations:
    """Distance correlation, in [0, 1]: 0 in the limit only where layers are independent (Székely et al. 2007).

    √(⟨A, B⟩ / √(⟨A, A⟩⟨B, B⟩)), A and B the centred matrices of Euclidean distances. Biased upwards by few words.
    """

    def compare(matrices: list[Float[np.ndarray, "word word"]]) -> Float[np.ndarray, "layer layer"]:
        flat = np.stack([centred(matrix).ravel() for matrix in matrices])
        return np.sqrt(np.maximum(cosines(flat @ flat.T), 0))

    chosen = sample_words(len(layers[0]), sample, rng, least=3)
    return Relations([_distances(layer[chosen], "euclidean") for layer in layers], chosen, compare)


def knn(
    layers: Sequence[Float[np.ndarray, "word _"]],
    *,
    neighbours: int = 10,
    sample: int = 1000,
    rng: int | np.random.Generator = 0,
    jaccard: bool = False,
) -> Relations:
    """Mutual k-nearest-neighbour overlap: the mean share of a word's `neighbours` in x that it also has in y.

    Huh et al. (2024), with Euclidean distances, in [0, 1]; two unrelated layers share k/(n − 1). Of equally near
    words the earlier is the neighbour. `jaccard` divides what is shared by what either has, with cosine distances.
    """

    def compare(matrices: list[Float[np.ndarray, "word word"]]) -> Float[np.ndarray, "layer layer"]:
        members = [_members(matrix, neighbours) for matrix in matrices]
        if not jaccard:
            flat = np.stack([member.ravel() for member in members]).astype(np.float64)
            return cosines(flat @ flat.T)
        shared = [[(a & b).sum(axis=1) for b in members] for a in members]
        return np.array([[float((s / (2 * neighbours - s)).mean()) for s in row] for row in shared])

    chosen = _near_words(layers, neighbours, sample, rng)
    kind = "cosine" if jaccard else "euclidean"
    return Relations([_distances(layer[chosen], kind) for layer in layers], chosen, compare)


def cknna(
    layers: Sequence[Float[np.ndarray, "word _"]],
    *,
    neighbours: int = 10,
    sample: int = 1000,
    rng: int | np.random.Generator = 0,
) -> Relations:
    """CKA of inner products of words, of neighbours only (Huh et al. 2024), in [−1, 1].

    Words are centred and of length 1, as is usual. Inner products count where a word is among the `neighbours` of the
    other in both layers; HSIC is the unbiased estimate.
    """

    def compare(matrices: list[Float[np.ndarray, "word word"]]) -> Float[np.ndarray, "layer layer"]:
        kernels, members = [1 - m for m in matrices], [_members(m, neighbours) for m in matrices]

        def alignment(i: int, j: int) -> float:
            both = members[i] & members[j]
            return _unbiased_product(np.where(both, kernels[i], 0.0), np.where(both, kernels[j], 0.0))

        norms_squared = np.array([alignment(i, i) for i in range(len(kernels))])
        norms = np.sqrt(np.maximum(np.outer(norms_squared, norms_squared), 0))
        products = _of_pairs(alignment, len(kernels))
        return np.clip(np.divide(products, norms, out=np.zeros_like(products), where=norms > 0), -1, 1)

    chosen = _near_words(layers, neighbours, sample, rng)
    return Relations([_distances(layer[chosen], "cosine") for layer in layers], chosen, compare)


def second_order_cosine(
    layers: Sequence[Float[np.ndarray, "word _"]],
    *,
    neighbours: int = 10,
    sample: int = 1000,
    rng: int | np.random.Generator = 0,
) -> Relations:
    """Mean over words of the cosine of two vectors: a word's cosines with its neighbours in x, and in y.

    Hamilton et al. (2016): neighbours are those of either layer, by cosine.
    """

    def compare(matrices: list[Float[np.ndarray, "word word"]]) -> Float[np.ndarray, "layer layer"]:
        kernels, members = [1 - m for m in matrices], [_members(m, neighbours) for m in matrices]

        def cosine(i: int, j: int) -> float:
            either = members[i] | members[j]
            a, b = np.where(either, kernels[i], 0.0), np.where(either, kernels[j], 0.0)
            norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
            return float(np.divide((a * b).sum(axis=1), norms, out=np.zeros_like(norms), where=norms > 0).mean())

        return _of_pairs(cosine, len(kernels))

    chosen = _near_words(layers, neighbours, sample, rng)
    return Relations([_distances(layer[chosen], "cosine") for layer in layers], chosen, compare)


def rank_similarity(
    layers: Sequence[Float[np.ndarray, "word _"]],
    *,
    neighbours: int = 10,
    sample: int = 1000,
    rng: int | np.random.Generator = 0,
) -> Relations:
    """How alike common neighbours rank, near ones counting most (Wang et al. 2020), in [0, 1].

    Mean over words of Σ 2 / ((1 + |r − s|)(r + s)) / Σ_{i ≤ m} 1/i, over the m neighbours that both layers have, with
    ranks r and s; 0 without any.
    """

    def compare(matrices: list[Float[np.ndarray, "word word"]]) -> Float[np.ndarray, "layer layer"]:
        ranks = [_ranks(matrix) for matrix in matrices]
        largest = np.concatenate([[1.0], np.cumsum(1 / np.arange(1, neighbours + 1))])

        def ranked(i: int, j: int) -> float:
            r, s = ranks[i], ranks[j]
            common = (r <= neighbours) & (s <= neighbours)
            gain = np.where(common, 2 / ((1 + np.abs(r - s)) * (r + s)), 0.0).sum(axis=1)
            return float((gain / largest[common.sum(axis=1)]).mean())

        return _of_pairs(ranked, len(ranks))

    chosen = _near_words(layers, neighbours, sample, rng)
    return Relations([_distances(layer[chosen], "cosine") for layer in layers], chosen, compare)


def imd(
    layers: Sequence[Float[np.ndarray, "word _"]],
    *,
    neighbours: int = 5,
    sample: int = 1000,
    rng: int | np.random.Generator = 0,
) -> Relations:
    """1 / (1 + IMD), the intrinsic multi-scale distance of Tsitsulin et al. (2020), in (0, 1].

    IMD = max_t e^(−2(t + 1/t)) |h_x(t) − h_y(t)|, with the heat trace h(t) = Σ e^(−tλ) over the eigenvalues λ of the
    normalised Laplacian of the graph of nearest neighbours, here exact. It compares the shapes of two clouds of
    words and does not ask which word is which.
    """
    times = np.logspace(-1, 1, 256)

    def trace(matrix: Float[np.ndarray, "word word"]) -> Float[np.ndarray, " time"]:
        members = _members(matrix, neighbours)
        linked = (members | members.T).astype(np.float64)
        roots = np.sqrt(linked.sum(axis=1))
        values = np.linalg.eigvalsh(np.eye(len(linked)) - linked / np.outer(roots, roots))
        return np.exp(-np.outer(times, values)).sum(axis=1)

    def compare(matrices: list[Float[np.ndarray, "word word"]]) -> Float[np.ndarray, "layer layer"]:
        traces = np.stack([trace(matrix) for matrix in matrices])
        apart = np.exp(-2 * (times + 1 / times)) * np.abs(traces[:, None] - traces)
        return 1 / (1 + apart.max(axis=2))

    chosen = _near_words(layers, neighbours, sample, rng)
    return Relations([_distances(layer[chosen], "euclidean") for layer in layers], chosen, compare)


RELATIONS: Mapping[str, Callable[..., Relations]] = {
    "rsa": rsa,
    "distance_correlation": distance_correlation,
    "knn": knn,
    "knn_jaccard": partial(knn, jaccard=True),
    "cknna": cknna,
    "second_order_cosine": second_order_cosine,
    "rank_similarity": rank_similarity,
    "imd": imd,
}
"""The measures of a sample of words, by name."""


def output_similarity(x: Float[np.ndarray, "word class"], y: Float[np.ndarray, "other another"], measure: str) -> float:
    """`output_js`: 1 − mean Jensen–Shannon divergence / ln 2; `output_agreement`: share of words with the same class.

    Rows that are no probabilities are taken for logits.
    """
    if x.shape != y.shape:
        raise DataError(f"The outputs have shape {x.shape} and {y.shape}; expected the same words and classes in both.")
    if measure == "output_agreement":
        return float((x.argmax(axis=1) == y.argmax(axis=1)).mean())
    p, q = (z if (z >= 0).all() and np.allclose(z.sum(axis=1), 1, atol=1e-3) else softmax(z, axis=1) for z in (x, y))
    middle = (p + q) / 2
    return float(1 - (rel_entr(p, middle) + rel_entr(q, middle)).sum(axis=1).mean() / 2 / np.log(2))


def sample_words(words: int, size: int, rng: int | np.random.Generator, *, least: int) -> Int[np.ndarray, " word"]:
    """Which `size` of the words to take (all when there are no more), in their order."""
    if size < least or words < least:
        raise DataError(
            f"Found {words} words and a sample of {size}; expected at least {least} of both. "
            "Add text, raise `sample` or lower `neighbours`."
        )
    return np.sort(np.random.default_rng(rng).choice(words, size, replace=False)) if words > size else np.arange(words)


def _near_words(
    layers: Sequence[np.ndarray], neighbours: int, sample: int, rng: int | np.random.Generator
) -> Int[np.ndarray, " word"]:
    if neighbours < 1:
        raise SettingError(f"neighbours is {neighbours}; expected at least 1.")
    return sample_words(len(layers[0]), sample, rng, least=neighbours + 2)


def _distances(x: Float[np.ndarray, "word neuron"], distance: str) -> Float[np.ndarray, "word word"]:
    if distance == "euclidean":
        return np.sqrt(squared_distances(x))
    z = x - x.mean(axis=0, dtype=np.float64)
    if distance == "correlation":
        z -= z.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(z, axis=1, keepdims=True)
    units = np.divide(z, norms, out=np.zeros_like(z), where=norms > 0)
    return 1 - units @ units.T


def _ranks(distances: Float[np.ndarray, "word word"]) -> Int[np.ndarray, "word word"]:
    """The place of each word among the neighbours of each other, from 1; a word itself comes last."""
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    order = np.argsort(others, axis=1, kind="stable")
    ranks = np.empty(order.shape, dtype=np.int64)
    np.put_along_axis(ranks, order, np.arange(1, len(order) + 1)[None, :], axis=1)
    return ranks


def _members(distances: Float[np.ndarray, "word word"], neighbours: int) -> Bool[np.ndarray, "word word"]:
    """Which words are among the nearest `neighbours` of each."""
    if len(distances) <= neighbours:
        raise DataError(f"Found {len(distances)} words; expected more than the {neighbours} neighbours of each.")
    return _ranks(distances) <= neighbours


def _of_pairs(value: Callable[[int, int], float], n: int) -> Float[np.ndarray, "layer layer"]:
    """A symmetric function of all pairs of layers."""
    matrix = np.eye(n)
    for i, j in combinations(range(n), 2):
        matrix[i, j] = matrix[j, i] = value(i, j)
    return matrix


def _unbiased_product(k: Float[np.ndarray, "word word"], m: Float[np.ndarray, "word word"]) -> float:
    """n(n − 3) times the unbiased HSIC of Song et al. (2012) of kernels with zero diagonals."""
    n = len(k)
    ends = (k.sum(axis=0) @ m.sum(axis=1) + m.sum(axis=0) @ k.sum(axis=1)) / 2  # symmetric where kernels are not
    middle = k.sum() * m.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * ends
    return float((k * m.T).sum() + middle)
