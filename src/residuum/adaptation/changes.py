"""What a strategy changed of a network, as tensors that are saved, put into a network and taken out again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from residuum.adaptation.adapters import Adapters
from residuum.adaptation.parts import new_blocks
from residuum.errors import ModelError, StoreError
from residuum.models.surgery import add_layers, keep_layers, layer_count
from residuum.storage.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Tensors = Mapping[str, Tensor]
FILE = "change.safetensors"
_PARTS = ("values", "added", "adapters", "layers")


@dataclass(frozen=True, eq=False)
class Change:
    """Only what differs from a student: parameters with new values, differences to add, adapters, layers on top."""

    values: Tensors = field(default_factory=dict)  # by the parameter's name
    added: Tensors = field(default_factory=dict)  # by the parameter's name
    adapters: Tensors = field(default_factory=dict)  # as `Adapters` names them
    layers: Tensors = field(default_factory=dict)  # by the number of the new layer and the name in it

    @property
    def n_parameters(self) -> int:
        """How many numbers it holds."""
        return sum(tensor.numel() for part in _PARTS for tensor in getattr(self, part).values())


class Applied:
    """A network with a change in it; `remove` gives back the network that it was, to the last bit."""

    def __init__(self, network: PreTrainedModel, change: Change) -> None:
        self.network = network
        self.n_layers = layer_count(network)
        self.names = [*change.values, *change.added]
        self.adapters: Adapters | None = None
        self.layers = nn.ModuleList()
        self._before: dict[str, Tensor] = {}
        self._handles: list[RemovableHandle] = []
        _check_fits(network, change)
        try:
            self._put_in(change)
        except BaseException:
            self.remove()
            raise

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All that the network now runs, by name."""
        parts: dict[str, nn.Module] = {"model": self.network}
        return parts if self.adapters is None else {**parts, "adapters": self.adapters}

    @property
    def changed(self) -> list[nn.Parameter]:
        """The parameters that the change brought or touched."""
        touched = [self.network.get_parameter(name) for name in self.names]
        return [*touched, *self.layers.parameters(), *(self.adapters.parameters() if self.adapters else ())]

    def current(self) -> Change:
        """The change as it is now, after the network has learnt further: all of it as values."""
        return Change(
            values={name: _copy(self.network.get_parameter(name)) for name in self.names},
            adapters={} if self.adapters is None else tensors_of(self.adapters),
            layers=tensors_of(self.layers),
        )

    def remove(self) -> None:
        """Take the change out."""
        for handle in self._handles:
            handle.remove()
        if layer_count(self.network) > self.n_layers:
            keep_layers(self.network, range(1, self.n_layers + 1))
        with torch.no_grad():
            for name, before in self._before.items():
                self.network.get_parameter(name).copy_(before)

    def _put_in(self, change: Change) -> None:
        device = next(self.network.parameters()).device
        with torch.no_grad():
            for name in self.names:
                parameter = self.network.get_parameter(name)
                self._before[name] = parameter.detach().clone()
                if name in change.values:
                    parameter.copy_(change.values[name])
                else:
                    parameter.add_(change.added[name].to(device))
        if change.layers:
            self.layers = new_blocks(self.network, _count(change.layers), seed=0).to(device)
            self.layers.load_state_dict(dict(change.layers))
            add_layers(self.network, list(self.layers))
        if change.adapters:
            self.adapters = adapters_of(change.adapters).to(device)
            self._handles = self.adapters.hang_in(self.network)


@contextmanager
def applied(network: PreTrainedModel, change: Change) -> Iterator[Applied]:
    """A network with a change in it inside this context, and as it was after it."""
    there = Applied(network, change)
    try:
        yield there
    finally:
        there.remove()


def save_change(folder: str | Path, change: Change) -> Path:
    """Write a change, whole or not at all."""
    path = Path(folder) / FILE
    tensors = {f"{part}.{name}": t.contiguous() for part in _PARTS for name, t in getattr(change, part).items()}
    write_tensors(path, tensors)
    return path


def read_change(folder: str | Path) -> Change:
    """Read what `save_change` wrote."""
    path = Path(folder) / FILE
    if not path.exists():
        raise StoreError(f"{folder} holds no {FILE}; give the folder of a strategy that `residuum adapt` wrote.")
    tensors = read_tensors(path, "pt", remedy="Run `residuum adapt` again with --fresh.")
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in _PARTS}
    for key, tensor in tensors.items():
        part, _, name = key.partition(".")
        if part not in parts:
            raise StoreError(f"{path} holds {key!r}; expected names that begin with {', '.join(_PARTS)}.")
        parts[part][name] = tensor
    return Change(**parts)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """A module's tensors on the CPU, as they are now."""
    return {name: _copy(tensor) for name, tensor in module.state_dict().items()}


def adapters_of(tensors: Tensors) -> Adapters:
    """The adapters that have these weights."""
    first = tensors["blocks.0.down.weight"]
    narrow, hidden = first.shape
    adapters = Adapters(1 + max(int(name.split(".")[1]) for name in tensors), hidden, hidden // narrow)
    adapters.load_state_dict(dict(tensors))
    return adapters


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()


def _count(layers: Tensors) -> int:
    return 1 + max(int(name.partition(".")[0]) for name in layers)


def _check_fits(network: PreTrainedModel, change: Change) -> None:
    there = dict(network.named_parameters())
    for name, tensor in {**change.values, **change.added}.items():
        found = tuple(there[name].shape) if name in there else None
        if found != tuple(tensor.shape):
            raise ModelError(
                f"The change is of a parameter {name} of shape {tuple(tensor.shape)}; {type(network).__name__} has "
                f"{'none of that name' if found is None else f'shape {found}'}. Give a student of the same shape."
            )
