"""Which layers do not learn, and the part of the model below them that is never run backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from residuum.errors import SettingError
from residuum.models.loading import find_blocks, probe_batch
from residuum.models.surgery import freeze, layer_count, named_layers

TOLERANCE = 1e-5
NARROW = 2  # tokens of a window that is tried
_WINDOWS = ("sliding_window", "attention_chunk_size")


@dataclass(frozen=True)
class Frozen:
    """Blocks (1 … L) that do not learn, and whether the embeddings do not either."""

    layers: tuple[int, ...] = ()
    embeddings: bool = False

    @property
    def bottom(self) -> int:
        """How many blocks from below are frozen with all that is below them."""
        count = 0
        while self.embeddings and count + 1 in self.layers:
            count += 1
        return count


def parse_frozen(text: str | None, n_layers: int) -> Frozen:
    """`bottom:6` (with the embeddings), `top:4`, `embeddings`, a list such as `1,4-6`, or several joined by `+`."""
    layers: set[int] = set()
    embeddings = False
    for part in text.split("+") if text else ():
        part = part.strip()
        if part == "embeddings":
            embeddings = True
            continue
        layers |= set(named_layers(part, n_layers))
        embeddings |= part.startswith("bottom:")
    return Frozen(tuple(sorted(layers)), embeddings)


def apply_frozen(module: nn.Module, frozen: Frozen) -> None:
    """Put a model into training mode but for what is frozen, which takes no gradients and no dropout."""
    module.train()
    if not frozen.layers and not frozen.embeddings:
        return
    freeze(module, frozen.layers, embeddings=frozen.embeddings)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise SettingError("Everything is frozen; nothing can be trained.")


class _Reached(Exception):
    """The forward pass has come to the block that was waited for."""


class SplitNetwork:
    """A network cut between two blocks: `lower` gives the states there, `resumed` goes on from given ones.

    Both run the network's own code: the lower run stops at the cut, and the upper one skips the blocks below it and
    puts the given states in the place of theirs. `fits` says whether the two together are the whole, which they are
    not where a network passes more than states from block to block.
    """

    def __init__(self, module: nn.Module, bottom: int) -> None:
        base: Any = getattr(module, "base_model", module)
        self.module, self.base = module, base
        self.parent, self.attribute, blocks = find_blocks(base)
        # The block above the cut must exist: of a wholly frozen network the last block is run again.
        self.bottom = min(bottom, layer_count(module) - 1) if blocks is not None else 0
        self.blocks = blocks
        self.upper = None if blocks is None else blocks[self.bottom :]

    @torch.no_grad()
    def lower(self, inputs: dict[str, Tensor]) -> Tensor:
        """The states that enter the first block above the cut: sequence × token × hidden."""
        assert self.blocks is not None, "a network with something to cut has blocks"
        seen: list[Tensor] = []

        def stop(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            seen.append(args[0] if args else kwargs["hidden_states"])
            raise _Reached

        hook = self.blocks[self.bottom].register_forward_pre_hook(stop, with_kwargs=True)
        try:
            self.base(**inputs)
        except _Reached:
            pass
        finally:
            hook.remove()
        return seen[0]

    @contextmanager
    def resumed(self, states: Tensor) -> Iterator[Callable[..., Any]]:
        """The network with the blocks below the cut taken out and `states` in the place of what they give."""
        assert self.blocks is not None, "a network with something to cut has blocks"

        def put(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
            return ((states, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": states})

        hook = self.blocks[self.bottom].register_forward_pre_hook(put, with_kwargs=True)
        setattr(self.parent, self.attribute, self.upper)
        try:
            yield self.module
        finally:
            setattr(self.parent, self.attribute, self.blocks)
            hook.remove()

    def fits(self) -> bool:
        """Whether going on from the lower states gives what the whole network gives."""
        if self.bottom < 1:
            return False
        modes = {part: part.training for part in self.module.modules()}
        self.module.eval()
        batch = probe_batch(self.base)
        try:
            with torch.no_grad(), _narrow_windows(self.base.config):
                whole = self.base(**batch).last_hidden_state
                states = self.lower(batch)
                with self.resumed(states):
                    resumed = self.base(**batch).last_hidden_state
        finally:
            for part, mode in modes.items():
                part.training = mode
        first = states.shape[:2] == batch["input_ids"].shape
        return first and torch.allclose(whole, resumed, atol=TOLERANCE)


@contextmanager
def _narrow_windows(config: Any) -> Iterator[None]:
    """Windows of attention so narrow that a few tokens tell blocks with one from blocks without.

    Many decoders (Gemma 2, GPT-OSS) choose a block's mask by its place among all blocks. With the lower ones taken out
    an upper one may get another's mask, which only text longer than the window would show.
    """
    there = [name for name in _WINDOWS if isinstance(getattr(config, name, None), int)]
    before = {name: getattr(config, name) for name in there}
    for name in there:
        setattr(config, name, NARROW)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)
