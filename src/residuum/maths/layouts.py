"""Layers side by side: names of neurons, where each layer lies, and which blocks of the joint scatter are kept."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, product

import numpy as np
from jaxtyping import Bool, Float, Int

from residuum.errors import SettingError

Pair = tuple[int, int]


@dataclass(frozen=True)
class NeuronLayout:
    """Which layers stand side by side in an array of neurons, and how wide each one is.

    A *column* is a neuron's place in the concatenated array; its *id* is `layer:index`, where `layer` is the
    model's own number (0 = embeddings), so ids stay valid when only some layers were extracted.
    """

    widths: tuple[int, ...]
    layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            object.__setattr__(self, "layers", tuple(range(len(self.widths))))
        if len(self.widths) != len(self.layers) or len(set(self.layers)) != len(self.layers):
            raise SettingError(
                f"{len(self.widths)} widths came with the layers {list(self.layers)}; give one width per "
                "layer, each layer once."
            )
        if not self.widths or min(self.widths) < 1:
            raise SettingError(f"The layer widths are {list(self.widths)}; each layer needs at least one neuron.")

    @property
    def n_neurons(self) -> int:
        """Neurons in all layers together."""
        return sum(self.widths)

    @property
    def starts(self) -> tuple[int, ...]:
        """First column of each layer."""
        return tuple(int(start) for start in np.cumsum((0, *self.widths[:-1])))

    @property
    def positions(self) -> Int[np.ndarray, " neuron"]:
        """For each column, the place of its layer in `layers` (0, 1, … whatever the layers are called)."""
        return np.repeat(np.arange(len(self.widths)), self.widths)

    def columns(self, layers: Iterable[int]) -> Int[np.ndarray, " neuron"]:
        """Columns of the named layers, in the order given."""
        ranges = [self.layer_slice(layer) for layer in layers]
        return np.concatenate([np.arange(r.start, r.stop) for r in ranges]) if ranges else np.empty(0, int)

    def layer_slice(self, layer: int) -> slice:
        """Columns of one layer as a slice."""
        if layer not in self.layers:
            raise SettingError(f"Layer {layer} is not here (the layers are {list(self.layers)}).")
        place = self.layers.index(layer)
        return slice(self.starts[place], self.starts[place] + self.widths[place])

    def spread(self, columns: Int[np.ndarray, " neuron"]) -> Int[np.ndarray, " layer"]:
        """How many of the columns lie in each layer (Durrani et al. 2021, figures 2 and 3)."""
        return np.bincount(self.positions[check_columns(columns, self.n_neurons)], minlength=len(self.widths))

    def format(self, columns: Iterable[int] | Int[np.ndarray, " neuron"]) -> list[str]:
        """Columns → `layer:index` ids."""
        checked = check_columns(np.fromiter(columns, int), self.n_neurons)
        places = np.searchsorted(self.starts, checked, side="right") - 1
        return [
            f"{self.layers[p]}:{c - self.starts[p]}" for p, c in zip(places.tolist(), checked.tolist(), strict=True)
        ]

    def parse(self, ids: Iterable[str]) -> Int[np.ndarray, " neuron"]:
        """`layer:index` ids → columns."""
        columns_of_ids = []
        for neuron_id in ids:
            layer, index = split_id(neuron_id)
            columns = self.layer_slice(layer)
            if index >= (width := columns.stop - columns.start):
                raise SettingError(f"Neuron {neuron_id} does not exist: layer {layer} has the neurons 0–{width - 1}.")
            columns_of_ids.append(columns.start + index)
        return np.array(columns_of_ids, int)


def split_id(neuron_id: str) -> tuple[int, int]:
    """`layer:index` → layer and index."""
    match = re.fullmatch(r"(\d+):(\d+)", neuron_id.strip())
    if match is None:
        raise SettingError(f"{neuron_id!r} is not a neuron id; write layer:index, for example 3:17.")
    return int(match[1]), int(match[2])


def check_columns(columns: Int[np.ndarray, " neuron"], n_neurons: int) -> Int[np.ndarray, " neuron"]:
    """The columns themselves, after checking that each one exists."""
    outside = columns[(columns < 0) | (columns >= n_neurons)]
    if outside.size:
        raise SettingError(
            f"Neuron {int(outside[0])} is out of range: there are {n_neurons} neurons, 0–{n_neurons - 1}."
        )
    return columns


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
