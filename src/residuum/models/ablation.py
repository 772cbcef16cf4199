"""Neurons silenced in the running model: everything above them computes with what is left.

A neuron is `layer:index`, layers being numbered as everywhere: 0 is the embeddings, L the last block (after the
closing norm, where a model has one). Weights are never touched: hooks write into the layers' outputs while the model
runs, and go when the context ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.errors import ModelError, SettingError
from residuum.maths.layouts import NeuronLayout
from residuum.models.loading import Model, block_lists, closing_modules, find_blocks, probe_batch

WAYS = ("zero", "mean", "keep")
"""What happens to the named neurons: set to zero, set to their means, or kept while the others of their layers go."""

Means = Mapping[int, np.ndarray]


@contextmanager
def ablated(model: Model, neurons: Iterable[str], how: str = "zero", means: Means | None = None) -> Iterator[Model]:
    """Run a model with some neurons (`layer:index`) silenced; it is itself again afterwards, whatever happens.

    `zero` sets them to 0 and `mean` to their `means` (an array of all neurons for each layer, see `neuron_means`).
    `keep` silences all *other* neurons of the layers that are named, by their means if these are given; layers of
    which no neuron is named stay whole. Use the model that the context gives: its name and fingerprint tell that it
    is not the whole one.
    """
    ids = list(neurons)
    values = silenced_values(model.widths, ids, how, means)
    with ExitStack() as hooks:
        for layer, silence in values.items():
            _hook(model, layer, silence, hooks)
        hidden = model.read(probe_batch(model.module, model.tokenizer), list(values)).hidden
        for (layer, silence), states in zip(values.items(), hidden, strict=True):
            written = states.cpu()[..., silence.indices]
            if not torch.equal(written, silence.values.to(written.dtype).expand_as(written)):
                raise ModelError(
                    f"Neurons of {type(model.module).__name__} cannot be ablated: layer {layer} keeps its values. "
                    "Wrap the network with from_module, naming the submodules that are its layers."
                )
        yield replace(model, name=f"{model.name} ({how} {len(set(ids))} neurons)", surgery=_identity(model, values))


@dataclass(frozen=True, eq=False)
class Silence:
    """The neurons of one layer that are overwritten, and the values that they get."""

    indices: Tensor
    values: Tensor

    def write(self, states: Tensor) -> None:
        """Overwrite the neurons (the last axis) in place, so that whoever noted this tensor before sees it too."""
        states[..., self.indices.to(states.device)] = self.values.to(states.device, states.dtype)


def silenced_values(
    widths: Sequence[int], ids: Sequence[str], how: str = "zero", means: Means | None = None
) -> dict[int, Silence]:
    """What is overwritten in each layer of a model with these widths."""
    if how not in WAYS:
        raise SettingError(f"Neurons cannot be ablated by {how!r}; choose one of {', '.join(WAYS)}.")
    if how == "mean" and means is None:
        raise SettingError("No means were given; pass means=neuron_means(store) of activations of the same model.")
    if not ids:
        raise SettingError("No neuron was named; give at least one, for example 3:17.")
    layout = NeuronLayout(tuple(widths))
    columns = layout.parse(ids)
    silenced = {}
    for layer in np.unique(layout.positions[columns]).tolist():
        part = layout.layer_slice(layer)
        named = np.unique(columns[(columns >= part.start) & (columns < part.stop)]) - part.start
        indices = np.setdiff1d(np.arange(widths[layer]), named) if how == "keep" else named
        values = np.zeros(widths[layer])
        if means is not None and how != "zero":
            values = np.asarray(means.get(layer, ()), np.float64)
            if values.shape != (widths[layer],):
                shape = values.shape if layer in means else "nothing"
                raise SettingError(
                    f"The means of layer {layer} are {shape}; expected {widths[layer]} numbers, one per neuron."
                )
        silenced[layer] = Silence(torch.from_numpy(indices), torch.from_numpy(values[indices]).float())
    return silenced


def _identity(model: Model, values: Mapping[int, Silence]) -> str:
    digest = hashlib.blake2b(model.surgery.encode(), digest_size=8)
    for layer, silence in values.items():
        digest.update(f"{layer} {silence.indices.tolist()} {silence.values.tolist()}".encode())
    return digest.hexdigest()


def _hook(model: Model, layer: int, silence: Silence, hooks: ExitStack) -> None:
    """Make the network write the values of a silence whenever it has computed that layer."""
    module = model.module
    if model.layer_names:
        handle = module.get_submodule(model.layer_names[layer]).register_forward_hook(_on_output(silence))
        hooks.callback(handle.remove)
        return
    parent, _, blocks = find_blocks(module)
    if blocks is None:
        _hook_repeated(module, layer, silence, hooks)
    elif layer == 0:

        def write(_block: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
            silence.write(_first_input(inputs, options))

        hooks.callback(blocks[0].register_forward_pre_hook(write, with_kwargs=True).remove)
    else:
        *_, ends = block_lists(parent, model.n_layers).values()  # XLM has lists of attention, norms and so on
        closing = list(closing_modules(model).values()) if layer == model.n_layers else []
        for part in closing or [ends[layer - 1]]:
            hooks.callback(part.register_forward_hook(_on_output(silence)).remove)


def _hook_repeated(module: nn.Module, layer: int, silence: Silence, hooks: ExitStack) -> None:
    """A network that runs the same blocks again and again (ALBERT): count the runs of each pass."""
    blocks = next((part for part in module.modules() if isinstance(part, nn.ModuleList)), nn.ModuleList())
    runs = 0

    def start(*_: object) -> None:
        nonlocal runs
        runs = 0

    def before(_block: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        nonlocal runs
        runs += 1
        if layer == 0 and runs == 1:
            silence.write(_first_input(inputs, options))

    def after(_block: nn.Module, _inputs: object, output: Any) -> None:
        if runs == layer:
            silence.write(_states(output))

    hooks.callback(module.register_forward_pre_hook(start).remove)
    for block in blocks:
        hooks.callback(block.register_forward_pre_hook(before, with_kwargs=True).remove)
        hooks.callback(block.register_forward_hook(after).remove)


def _on_output(silence: Silence) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: object, output: Any) -> None:
        silence.write(_states(output))

    return hook


def _first_input(inputs: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    return inputs[0] if inputs else options["hidden_states"]


def _states(output: Any) -> Tensor:
    """The hidden states in what a submodule returned: themselves, or first in a tuple, or packed."""
    if isinstance(output, nn.utils.rnn.PackedSequence):
        return output.data
    return output if isinstance(output, Tensor) else _states(output[0])
