"""Which blocks of the joint scatter of many layers are kept, where they lie, and what memory they need."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, product

import numpy as np
from jaxtyping import Bool, Float, Int

from residuum.errors import SettingError

Pair = tuple[int, int]


def scatter_bytes(widths: Sequence[int], pairs: Iterable[Pair] | None = None) -> int:
    """The bytes that `Moments` of these layers hold: all pairs (the joint scatter), or only some.

    An accumulator needs 512 × 8 bytes a neuron more while it works.
    """
    return 8 * sum(widths[i] * widths[j] for i, j in held_pairs(pairs, len(widths)))


def plan_passes(widths: Sequence[int], max_bytes: int) -> list[list[Pair]]:
    """All pairs of layers, dealt into as few passes over the words as `max_bytes` of scatter each allows.

    Layers are cut into bands; a pass takes two bands (or one with itself) and the diagonal blocks of both.
    """
    needed = 0
    for n_bands in range(1, len(widths) + 1):
        bands = np.array_split(np.arange(len(widths)), n_bands)
        pairs_of_bands = combinations_with_replacement([band.tolist() for band in bands], 2)
        passes = [held_pairs(product(a, b), max(*a, *b) + 1) for a, b in pairs_of_bands]
        needed = max(scatter_bytes(widths, pairs) for pairs in passes)
        if needed <= max_bytes:
            return passes
    raise SettingError(
        f"max_bytes is {max_bytes:,}, but one pair of layers needs {needed:,} bytes; "
        "allow more memory or compare narrower models."
    )


def held_pairs(pairs: Iterable[Pair] | None, n_layers: int) -> list[Pair]:
    """The pairs (i, j), i ≤ j, each once, with the (i, i) and (j, j) that every measure of (i, j) needs."""
    if pairs is None:
        return list(combinations_with_replacement(range(n_layers), 2))
    asked = list(pairs)
    outside = [pair for pair in asked if not all(0 <= layer < n_layers for layer in pair)]
    if outside or not asked:
        raise SettingError(f"Pairs of layers {outside or asked} cannot be kept; expected some of 0–{n_layers - 1}.")
    return sorted({held for i, j in asked for held in ((min(i, j), max(i, j)), (i, i), (j, j))})


@dataclass(frozen=True)
class Layout:
    """Where each layer lies among the neurons of all layers."""

    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise SettingError(f"Layer widths are {list(self.widths)}; expected at least one layer of one neuron each.")

    @cached_property
    def total(self) -> int:
        """The neurons of all layers."""
        return sum(self.widths)

    @cached_property
    def slices(self) -> list[slice]:
        """The neurons of each layer."""
        ends = np.cumsum(self.widths).tolist()
        return [slice(end - width, end) for end, width in zip(ends, self.widths, strict=True)]

    @cached_property
    def layer_of_neuron(self) -> Int[np.ndarray, " neuron"]:
        """The layer that each neuron belongs to."""
        return np.repeat(np.arange(len(self.widths)), self.widths)

    def sum_by_layer(self, values: Float[np.ndarray, "*rest neuron"]) -> Float[np.ndarray, "*rest layer"]:
        """Sums over the neurons of each layer."""
        return np.add.reduceat(values, [part.start for part in self.slices], axis=-1)

    def diagonal(self, blocks: Mapping[Pair, Float[np.ndarray, "_ _"]]) -> Float[np.ndarray, " neuron"]:
        """S_kk of every neuron, NaN where the layer is not kept."""
        diagonal = np.full(self.total, np.nan)
        for i, part in enumerate(self.slices):
            if (i, i) in blocks:
                diagonal[part] = np.diag(blocks[i, i])
        return diagonal

    def held(self, pairs: Iterable[Pair]) -> Bool[np.ndarray, "layer layer"]:
        """Which pairs of layers, in either order, are among `pairs`."""
        held = np.zeros((len(self.widths), len(self.widths)), dtype=bool)
        for i, j in pairs:
            held[i, j] = held[j, i] = True
        return held
