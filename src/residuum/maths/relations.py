"""Similarity of layers as agreement of what they say about pairs of words: RSA and mutual nearest neighbours.

Each layer is turned into a matrix over pairs of words (distances, or who is a neighbour of whom); two layers are as
similar as the cosine of the two matrices. The cost grows with the square of the words, so a sample of them is taken.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError, SettingError
from residuum.maths.kernels import cosines, squared_distances

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
