"""How much words depend on their context in each layer (Ethayarajh 2019), from sums over occurrences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError
from residuum.maths.arrays import as_matrix
from residuum.maths.layer_blocks import Layout


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
        for i, layer in enumerate(layers):
            units = _unit_rows(as_matrix(layer, f"Layer {i}"))
            if units.shape != (len(types), self._layout.widths[i]):
                raise DataError(
                    f"Layer {i} has shape {units.shape}; expected {(len(types), self._layout.widths[i])}, "
                    "one row for each word type given."
                )
            np.add.at(self._sums[:, self._layout.slices[i]], types, units)
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


def _unit_rows(x: Float[np.ndarray, "word neuron"]) -> Float[np.ndarray, "word neuron"]:
    x = x.astype(np.float64)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)
