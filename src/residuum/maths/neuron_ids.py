"""Names of neurons: `layer:index` beside the column number in a words × neurons array."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from residuum.errors import SettingError


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
