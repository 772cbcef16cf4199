"""Beyond the paper: a network whose hidden states keep only the dimensions in which some chosen neuron lies.

Every layer writes its output into the same hidden dimensions. Those that no chosen neuron uses are cut out of the
embeddings, the norms, and of what each block reads and writes; heads and inner layers stay. The rest of the network
was not trained for that, so its states change: whether it pays is measured, not assumed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from residuum.errors import ModelError
from residuum.models.loading import Model, find_blocks, first_layers, from_transformers, probe_batch
from residuum.shrinking.truncation import truncated

Dimensions = Int[np.ndarray, " dimension"]


def narrowed(model: Model, layer: int, dimensions: Dimensions) -> Model:
    """The network up to a layer with these hidden dimensions only, in memory; `model` is left as it is."""
    network: Any = truncated(model, layer)
    width = model.hidden_size
    chosen = torch.from_numpy(dimensions)
    reading = _readers(network, width)
    for module in list(network.modules()):
        _narrow_module(module, chosen, width, module in reading)
    network.config.hidden_size = len(dimensions)
    try:
        small = from_transformers(network, model.tokenizer, name=f"{model.name} ({len(dimensions)} dimensions)")
    except RuntimeError as error:
        raise ModelError(f"The layers of {type(network).__name__} cannot be narrowed ({error}).") from error
    return first_layers(small, layer)


def used_dimensions(indices: Int[np.ndarray, " neuron"]) -> Dimensions:
    """The hidden dimensions in which some chosen neuron lies, whatever its layer."""
    return np.unique(indices)


def _readers(network: nn.Module, width: int) -> set[nn.Module]:
    """The linear maps that read the hidden states: their input is a block's input, or what a norm gave."""
    held: list[Tensor] = []  # kept alive, so that no other tensor gets their memory meanwhile
    found: set[nn.Module] = set()
    blocks = find_blocks(network)[2]
    hooks = [
        m.register_forward_hook(lambda *args: held.append(args[2])) for m in network.modules() if _is_norm(m, width)
    ]
    hooks += [block.register_forward_pre_hook(lambda _, inputs: held.append(inputs[0])) for block in blocks or ()]

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].shape[-1] == width and any(inputs[0].data_ptr() == states.data_ptr() for states in held):
            found.add(module)

    hooks += [m.register_forward_pre_hook(note) for m in network.modules() if _is_linear(m)]
    try:
        with torch.inference_mode():
            network(**probe_batch(network))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _narrow_module(module: nn.Module, chosen: Tensor, width: int, reads: bool) -> None:
    part: Any = module
    if isinstance(module, nn.Embedding) and module.embedding_dim == width:
        module.weight = _taken(module.weight, 1, chosen)
        module.embedding_dim = len(chosen)
    elif _is_norm(module, width):
        part.weight = _taken(part.weight, 0, chosen)
        if getattr(part, "bias", None) is not None:
            part.bias = _taken(part.bias, 0, chosen)
        if isinstance(module, nn.LayerNorm):
            module.normalized_shape = (len(chosen),)
    elif _is_linear(module):
        _narrow_linear(module, chosen, width, reads)


def _narrow_linear(module: Any, chosen: Tensor, width: int, reads: bool) -> None:
    """A map that reads hidden states loses inputs; one that writes them, and reads something else, loses outputs."""
    transposed = not isinstance(module, nn.Linear)  # GPT-2 keeps its maps as input × output
    inputs, outputs = (0, 1) if transposed else (1, 0)
    if reads:
        module.weight = _taken(module.weight, inputs, chosen)
    elif module.weight.shape[outputs] == width:
        module.weight = _taken(module.weight, outputs, chosen)
        if module.bias is not None:
            module.bias = _taken(module.bias, 0, chosen)
        if transposed:
            module.nf = len(chosen)


def _is_norm(module: nn.Module, width: int) -> bool:
    weight = getattr(module, "weight", None)
    return "norm" in type(module).__name__.lower() and isinstance(weight, Tensor) and weight.shape == (width,)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _taken(weight: Tensor, axis: int, chosen: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().index_select(axis, chosen.to(weight.device)), requires_grad=False)
