"""The parts of a network that strategies tell apart: its head, its biases, its embeddings, what two networks share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from residuum.errors import ModelError
from residuum.models.loading import find_blocks
from residuum.models.surgery import embedding_modules

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Parameters = dict[str, nn.Parameter]


def head_modules(network: PreTrainedModel) -> dict[str, nn.Module]:
    """All above the last block, by name: the head itself and the pooler that only heads read."""
    base: Any = network.base_model
    prefix = network.base_model_prefix
    found = {name: part for name, part in network.named_children() if name != prefix}
    if isinstance(getattr(base, "pooler", None), nn.Module):
        found[f"{prefix}.pooler"] = base.pooler
    return found


def head_parameters(network: PreTrainedModel) -> Parameters:
    """The parameters of the head, by their names in the network."""
    return {
        f"{name}.{key}": parameter
        for name, part in head_modules(network).items()
        for key, parameter in part.named_parameters()
    }


def bias_parameters(network: PreTrainedModel) -> Parameters:
    """The bias terms b of embeddings and blocks, those of normalisation among them; the head is not among them."""
    head = head_parameters(network)
    found = {n: p for n, p in network.named_parameters() if n.rpartition(".")[2] == "bias" and n not in head}
    if not found:
        raise ModelError(f"{type(network).__name__} has no bias terms; choose another strategy than bitfit.")
    return found


def body_parameters(network: PreTrainedModel) -> Parameters:
    """The parameters of the blocks and of what closes them: neither embeddings nor head."""
    outside = {id(p) for part in embedding_modules(network.base_model) for p in part.parameters()}
    outside |= {id(p) for p in head_parameters(network).values()}
    return {name: p for name, p in network.named_parameters() if id(p) not in outside}


def learn_only(network: PreTrainedModel, parameters: Iterable[nn.Parameter]) -> None:
    """Freeze a network but for these parameters; dropout stays on in all of it."""
    network.requires_grad_(False)
    for parameter in parameters:
        parameter.requires_grad_(True)
    network.train()


def learn_over_frozen(network: PreTrainedModel, added: Iterable[nn.Module]) -> None:
    """Freeze a network but for its head and modules that were added to it; what is frozen has no dropout either."""
    network.requires_grad_(False).eval()
    for part in (*added, *head_modules(network).values()):
        part.requires_grad_(True).train()


def share(own: PreTrainedModel, other: PreTrainedModel, names: Iterable[str]) -> None:
    """Put one network's parameters of these names into another, so that both have the very same."""
    there = dict(other.named_parameters())
    for name in names:
        if name not in there or there[name].shape != own.get_parameter(name).shape:
            raise ModelError(
                f"{type(own).__name__} and {type(other).__name__} cannot share {name}: one of them lacks it or has it "
                "in another shape; give students of one architecture and size."
            )
        owner, _, attribute = name.rpartition(".")
        setattr(other.get_submodule(owner), attribute, own.get_parameter(name))


def new_blocks(network: PreTrainedModel, count: int, seed: int) -> nn.ModuleList:
    """Blocks like those of a network with fresh weights: matrices from N(0, σ²) with its σ, no bias, plain norms."""
    import copy

    blocks = find_blocks(network.base_model)[2]
    if blocks is None:
        raise ModelError(f"{type(network).__name__} runs one block again and again; no other can be put on top.")
    generator = torch.Generator().manual_seed(seed)
    deviation = getattr(network.config, "initializer_range", 0.02)
    fresh = nn.ModuleList([copy.deepcopy(blocks[-1]) for _ in range(count)])
    with torch.no_grad():
        for part in fresh.modules():
            _draw(part, deviation, generator)
    return fresh.requires_grad_(True)


def _draw(part: nn.Module, deviation: float, generator: torch.Generator) -> None:
    own = dict(part.named_parameters(recurse=False))
    if not own:
        return
    if not isinstance(part, nn.Linear | nn.LayerNorm):
        raise ModelError(f"New layers cannot be drawn: it is not known how {type(part).__name__} begins.")
    for name, parameter in own.items():
        if name == "bias":
            parameter.zero_()
        elif isinstance(part, nn.LayerNorm):
            parameter.fill_(1.0)
        else:
            drawn = torch.randn(parameter.shape, generator=generator) * deviation
            parameter.copy_(drawn)
