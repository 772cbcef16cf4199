"""Heads that read the first token alone: what the last block does to the other tokens after attending is left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from residuum.models import find_blocks, probe_batch

TOLERANCE = 1e-5


def after_attention(network: nn.Module, kind: str) -> nn.Module | None:
    """The part of the last block from which on the first token is enough for the logits, if there is one.

    Keys and values are those of all tokens; the output projection and the feed-forward part, three quarters of a
    block, come after them. Networks whose blocks are built otherwise, or whose head reads more, have no such part.
    """
    base: Any = getattr(network, "base_model", network)
    _, _, blocks = find_blocks(base)
    part = getattr(getattr(blocks[-1] if blocks else None, "attention", None), "output", None)
    if not isinstance(part, nn.Module):
        return None
    batch = probe_batch(base)
    if kind == "choice":  # example × candidate × token
        batch = {name: tensor[None] for name, tensor in batch.items()}
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        return part if _is_enough(part, network, batch) else None
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def first_token_only(part: nn.Module | None) -> Iterator[None]:
    """Give `part`, and so all that comes after it, the first token alone; with None nothing is changed."""
    hook = part.register_forward_pre_hook(_first, with_kwargs=True) if part is not None else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


@torch.no_grad()
def _is_enough(part: nn.Module, network: nn.Module, batch: dict[str, Tensor]) -> bool:
    """Whether the logits are the same without the other tokens."""
    whole = network(**batch).logits
    try:
        with first_token_only(part):
            narrowed = network(**batch).logits
    except (RuntimeError, IndexError):  # the rest of the block, or the head, needs the other tokens
        return False
    return narrowed.shape == whole.shape and torch.allclose(whole, narrowed, atol=TOLERANCE)


def _first(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    return tuple(_cut(a) for a in args), {name: _cut(value) for name, value in kwargs.items()}


def _cut(value: Any) -> Any:
    return value[:, :1] if isinstance(value, Tensor) and value.dim() == 3 else value
