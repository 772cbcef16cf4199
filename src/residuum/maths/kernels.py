"""Kernel alignment of layers, from minibatches of words.

HSIC(K, L) of two kernels over the same words is the inner product of their centred matrices, and CKA = HSIC(K, L) /
√(HSIC(K, K) HSIC(L, L)) (Kornblith et al. 2019). Inner products of all layers' kernels are summed over minibatches
(Nguyen et al. 2021), so no matrix is larger than one minibatch and sums of two corpora merge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

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
    features: Callable[[Float[np.ndarray, "word word"]], Float[np.ndarray, " _"]]

    def similarity(self, keep: Int[np.ndarray, " _"] | None = None) -> Float[np.ndarray, "layer layer"]:
        """All pairs of layers over the sample, or over the places `keep` in it (for a jackknife)."""
        kept = self.matrices if keep is None else [matrix[np.ix_(keep, keep)] for matrix in self.matrices]
        flat = np.stack([self.features(matrix) for matrix in kept])
        return cosines(flat @ flat.T)


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
    chosen = sample_words(len(layers[0]), sample, rng, least=3)
    matrices = [_distances(layer[chosen], distance) for layer in layers]
    return Relations(matrices, chosen, _ranks if correlation == "spearman" else _deviations)


def knn(
    layers: Sequence[Float[np.ndarray, "word _"]],
    *,
    neighbours: int = 10,
    sample: int = 1000,
    rng: int | np.random.Generator = 0,
) -> Relations:
    """Mutual k-nearest-neighbour overlap: the mean share of a word's `neighbours` in x that it also has in y.

    Huh et al. (2024), with Euclidean distances, in [0, 1]; two unrelated layers share k/(n − 1). Of equally near
    words the earlier is the neighbour.
    """
    if neighbours < 1:
        raise SettingError(f"neighbours is {neighbours}; expected at least 1.")
    chosen = sample_words(len(layers[0]), sample, rng, least=neighbours + 2)
    return Relations([_distances(layer[chosen], "euclidean") for layer in layers], chosen, _neighbourhood(neighbours))


def sample_words(words: int, size: int, rng: int | np.random.Generator, *, least: int) -> Int[np.ndarray, " word"]:
    """Which `size` of the words to take (all when there are no more), in their order."""
    if size < least or words < least:
        raise DataError(
            f"Found {words} words and a sample of {size}; expected at least {least} of both. "
            "Add text, raise `sample` or lower `neighbours`."
        )
    return np.sort(np.random.default_rng(rng).choice(words, size, replace=False)) if words > size else np.arange(words)


def _distances(x: Float[np.ndarray, "word neuron"], distance: str) -> Float[np.ndarray, "word word"]:
    if distance == "euclidean":
        return np.sqrt(squared_distances(x))
    z = x - x.mean(axis=0, dtype=np.float64)
    if distance == "correlation":
        z -= z.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(z, axis=1, keepdims=True)
    units = np.divide(z, norms, out=np.zeros_like(z), where=norms > 0)
    return 1 - units @ units.T


def _ranks(matrix: Float[np.ndarray, "word word"]) -> Float[np.ndarray, " pair"]:
    from scipy.stats import rankdata  # slow to import, and seldom needed

    return _centre(rankdata(matrix[np.triu_indices(len(matrix), 1)]))


def _deviations(matrix: Float[np.ndarray, "word word"]) -> Float[np.ndarray, " pair"]:
    return _centre(matrix[np.triu_indices(len(matrix), 1)])


def _centre(values: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " pair"]:
    """Deviations from the mean; exactly 0 where all values are equal up to rounding."""
    deviations = values - values.mean()
    constant = np.abs(deviations).max() <= 64 * np.finfo(np.float64).eps * np.abs(values).max()
    return np.zeros_like(values) if constant else deviations


def _neighbourhood(neighbours: int) -> Callable[[Float[np.ndarray, "word word"]], Float[np.ndarray, " _"]]:
    def features(distances: Float[np.ndarray, "word word"]) -> Float[np.ndarray, " _"]:
        if len(distances) <= neighbours:
            raise DataError(f"Found {len(distances)} words; expected more than the {neighbours} neighbours of each.")
        others = distances.copy()
        np.fill_diagonal(others, np.inf)
        nearest = np.argsort(others, axis=1, kind="stable")[:, :neighbours]
        member = np.zeros(distances.shape)
        np.put_along_axis(member, nearest, 1.0, axis=1)
        return member.ravel()

    return features
