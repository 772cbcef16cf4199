"""Curves over layers, read off a matrix of similarities: localization, layer average, adjacent layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from residuum.errors import DataError, SettingError
from residuum.maths.arrays import as_matrix
from residuum.maths.layouts import Layout


def localization(
    neuron: Float[np.ndarray, "row column"], svcca: Float[np.ndarray, "other another"]
) -> Float[np.ndarray, " column"]:
    """How much of what layers share sits in single neurons: column means of `neuron` minus those of `svcca`.

    Wu et al. (2020), section 5: higher where single neurons, rather than directions, are alike across layers.
    """
    _require_square(neuron, svcca)
    return neuron.mean(axis=0) - svcca.mean(axis=0)


def layer_average(similarity: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " column"]:
    """The mean similarity of each layer to the model's other layers; the layer itself is left out."""
    _require_square(similarity)
    n = len(similarity)
    if n < 2:
        raise DataError("Found 1 layer; expected at least 2 for a mean over the other layers.")
    return (similarity.sum(axis=1) - np.diag(similarity)) / (n - 1)


def adjacent_profile(similarity: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " step"]:
    """The similarity of each layer to the next, mean of both directions: one value fewer than layers."""
    _require_square(similarity)
    return (np.diag(similarity, 1) + np.diag(similarity, -1)) / 2


def _require_square(*matrices: Float[np.ndarray, "_ _"]) -> None:
    shapes = {matrix.shape for matrix in matrices}
    if len(shapes) != 1 or len(set(*shapes)) != 1:
        raise DataError(f"Found similarities of shape {sorted(shapes)}; expected layers × layers, the same in each.")


def relative_depths(layers: Sequence[int], n_layers: int) -> Float[np.ndarray, " layer"]:
    """d_l = l / L for layers l of a network with L blocks: 0 is the embeddings, 1 the last layer."""
    if n_layers < 1 or any(not 0 <= layer <= n_layers for layer in layers):
        raise SettingError(f"The layers {list(layers)} do not lie in a network of {n_layers} blocks.")
    return np.asarray(layers, np.float64) / n_layers


def depth_weights(
    depths: Float[np.ndarray, " layer"], base: Float[np.ndarray, " base"]
) -> Float[np.ndarray, "layer base"]:
    """W such that W @ v is what the values v at the depths `base` (ascending) are at other depths.

    Linear between the two neighbouring layers, constant beyond the ends: rows sum to 1, and a depth that is in `base`
    takes that layer alone. Because W is linear, means over words may be taken before or after.
    """
    if len(base) == 0 or (np.diff(base) <= 0).any():
        raise SettingError(f"The depths {base.tolist()} are not ascending; give each layer once, in order.")
    return np.stack([np.interp(depths, base, unit) for unit in np.eye(len(base))], axis=1)


class ContextAccumulator:
    """Adds up the unit vectors u = x/‖x‖ of each word type; memory grows with types, not with words."""

    def __init__(self, n_types: int, widths: Sequence[int]) -> None:
        self._layout = Layout(tuple(int(width) for width in widths))
        self._counts = np.zeros(n_types, dtype=np.int64)
        self._sums = np.zeros((n_types, self._layout.total))
        self._squares = np.zeros((n_types, len(widths)))

    def update(self, types: Int[np.ndarray, " word"], layers: Sequence[Any]) -> None:
        """Add words: the type of each (0 … n_types − 1), and `words × neurons` for each layer."""
        types = np.asarray(types)
        if len(types) and (types.min() < 0 or types.max() >= len(self._counts)):
            raise DataError(f"Found word types {types.min()}–{types.max()}; expected 0–{len(self._counts) - 1}.")
        ones = np.ones(len(types))
        of_type = csr_matrix((ones, (types, np.arange(len(types)))), shape=(len(self._counts), len(types)))
        for i, layer in enumerate(layers):
            rows = as_matrix(layer, f"Layer {i}").astype(np.float64)
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            units = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
            if units.shape != (len(types), self._layout.widths[i]):
                raise DataError(
                    f"Layer {i} has shape {units.shape}; expected {(len(types), self._layout.widths[i])}, "
                    "one row for each word type given."
                )
            self._sums[:, self._layout.slices[i]] += of_type @ units
            np.add.at(self._squares[:, i], types, np.einsum("wn,wn->w", units, units))
        self._counts += np.bincount(types, minlength=len(self._counts))

    def result(self) -> "ContextSums":
        """The sums of all words so far."""
        return ContextSums(self._layout.widths, self._counts.copy(), self._sums.copy(), self._squares.copy())


@dataclass(frozen=True, eq=False)
class ContextSums:
    """For each word type its occurrences, Σu, and Σ‖u‖² (the occurrences that are not the zero vector)."""

    widths: tuple[int, ...]
    counts: Int[np.ndarray, " type"]
    sums: Float[np.ndarray, "type neuron"]
    squares: Float[np.ndarray, "type layer"]

    def self_similarity_of_types(self) -> Float[np.ndarray, "type layer"]:
        """The mean cosine of two occurrences of a type, (‖Σu‖² − Σ‖u‖²) / m(m − 1); NaN for m = 1.

        A zero vector has cosine 0 with everything.
        """
        pairs = (self.counts * (self.counts - 1.0))[:, None]
        together = Layout(self.widths).sum_by_layer(self.sums**2) - self.squares
        return np.divide(together, pairs, out=np.full(together.shape, np.nan), where=pairs > 0)

    def self_similarity(self, least: int = 2) -> Float[np.ndarray, " layer"]:
        """The mean over types that occur at least `least` times; low where words depend on context."""
        enough = self.counts >= max(least, 2)
        if not enough.any():
            raise DataError(f"No word type occurs {least} times; add text or lower `least` (at least 2).")
        return self.self_similarity_of_types()[enough].mean(axis=0)

    def anisotropy(self) -> Float[np.ndarray, " layer"]:
        """The mean cosine of two words of different type: the self-similarity that any words have."""
        words = float(self.counts.sum())
        pairs = words**2 - float((self.counts.astype(np.float64) ** 2).sum())
        if pairs == 0:
            raise DataError("Found one word type; expected at least two to compare words of different type.")
        layout = Layout(self.widths)
        return (layout.sum_by_layer(self.sums.sum(axis=0) ** 2) - layout.sum_by_layer(self.sums**2).sum(axis=0)) / pairs

    def context_specificity(self, least: int = 2) -> Float[np.ndarray, " layer"]:
        """1 − (self-similarity − anisotropy): the higher, the more words depend on their context."""
        return 1 - (self.self_similarity(least) - self.anisotropy())


def merge(a: ContextSums, b: ContextSums) -> ContextSums:
    """The sums over the words of both."""
    return ContextSums(a.widths, a.counts + b.counts, a.sums + b.sums, a.squares + b.squares)


def subtract(total: ContextSums, part: ContextSums) -> ContextSums:
    """The sums without the words of `part`."""
    return ContextSums(total.widths, total.counts - part.counts, total.sums - part.sums, total.squares - part.squares)


class AngularAccumulator:
    """Adds up words and gives the mean angular distance between all layers, in [0, 1].

    d(l, m) = mean over words of arccos(⟨x_l, x_m⟩ / ‖x_l‖‖x_m‖) / π. Invariant to the scale of every state, not to
    rotations of one layer alone. A state that is zero has no direction and counts as orthogonal (0.5) to all others.
    """

    def __init__(self, n_layers: int) -> None:
        self._sum = np.zeros((n_layers, n_layers))
        self._n = 0

    def update(self, layers: Sequence[Float[np.ndarray, "word neuron"]]) -> None:
        """Add words, each layer of the same width."""
        states = np.stack(layers, axis=1).astype(np.float64)
        norms = np.linalg.norm(states, axis=2, keepdims=True)
        units = np.divide(states, norms, out=np.zeros_like(states), where=norms > 0)
        cosines = np.clip(units @ units.transpose(0, 2, 1), -1.0, 1.0)
        self._sum += (np.arccos(cosines) / np.pi).sum(axis=0)
        self._n += len(states)

    def result(self) -> Float[np.ndarray, "layer layer"]:
        """The mean distances; the diagonal is exactly 0."""
        if self._n == 0:
            raise DataError("There are no words to measure distances on; give a corpus with at least one.")
        distances = self._sum / self._n
        np.fill_diagonal(distances, 0.0)
        return distances


def least_turning_run(distances: Float[np.ndarray, "layer layer"], size: int) -> list[int]:
    """The `size` neighbouring blocks l + 1 … l + size with the least d(l, l + size); of equals the highest."""
    starts = range(len(distances) - size)
    best = min(starts, key=lambda start: (distances[start, start + size], -start))
    return list(range(best + 1, best + size + 1))
