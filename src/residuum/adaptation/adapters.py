"""Pfeiffer adapters: small bottlenecks behind the feed-forward part of each block, hung in from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from residuum.errors import ModelError, SettingError
from residuum.models.loading import find_blocks, probe_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DEVIATION = 0.02  # of the first weights: an adapter begins as nearly nothing


class Adapter(nn.Module):
    """A(x) = U·relu(D·x + d) + u with a bottleneck: D is narrow × hidden, U hidden × narrow (Houlsby et al., 2019)."""

    def __init__(self, hidden: int, narrow: int, generator: torch.Generator) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(hidden, narrow), nn.Linear(narrow, hidden)
        with torch.no_grad():
            for part in (self.down, self.up):
                part.weight.copy_(torch.randn(part.weight.shape, generator=generator) * DEVIATION)
                part.bias.zero_()

    def forward(self, states: Float[Tensor, "*token hidden"]) -> Float[Tensor, "*token hidden"]:
        """What is added to the states."""
        return self.up(functional.relu(self.down(states)))


class Adapters(nn.Module):
    """An adapter for each block. The same ones can hang in several networks, which keep all their own parameters.

    A block that ends in LN(z), z = feed-forward + residual, ends in LN(z + A(LN(z))) while they hang in it: the
    placement that Pfeiffer et al. (2021) chose, with the block's own norm before and after.
    """

    def __init__(self, blocks: int, hidden: int, reduction: int, seed: int = 0) -> None:
        super().__init__()
        if not 1 <= reduction <= hidden:
            raise SettingError(
                f"reduction is {reduction}; expected a number from 1 to the {hidden} neurons of a layer."
            )
        generator = torch.Generator().manual_seed(seed)
        self.blocks = nn.ModuleList([Adapter(hidden, hidden // reduction, generator) for _ in range(blocks)])

    def hang_in(self, network: PreTrainedModel) -> list[RemovableHandle]:
        """Hang the adapters into a network; removing the handles gives it back as it was."""
        norms = closing_norms(network)
        shapes = [tuple(norm.normalized_shape) for norm in norms]
        if shapes != [(adapter.down.in_features,) for adapter in self.blocks]:  # pyright: ignore[reportAttributeAccessIssue]
            raise ModelError(
                f"There are adapters for {len(self.blocks)} blocks, but {type(network).__name__} has {len(norms)} of "
                f"width {shapes[0][0]}; give students of the same shape."
            )
        return [norm.register_forward_hook(_adapted(adapter)) for norm, adapter in zip(norms, self.blocks, strict=True)]


def closing_norms(network: PreTrainedModel) -> Sequence[nn.LayerNorm]:
    """The norm that each block ends with, found in a forward pass: its output is the block's."""
    base: Any = network.base_model
    blocks = find_blocks(base)[2]
    if blocks is None:
        raise ModelError(f"{type(network).__name__} runs one block again and again; adapters need blocks of their own.")
    outputs: dict[nn.Module, Tensor] = {}

    def keep(part: nn.Module, _: object, output: Any) -> None:
        outputs[part] = output if isinstance(output, Tensor) else output[0]

    inside = [[part for part in block.modules() if isinstance(part, nn.LayerNorm)] for block in blocks]
    watched = [*blocks, *(norm for norms in inside for norm in norms)]
    hooks = [part.register_forward_hook(keep) for part in watched]
    try:
        with torch.no_grad():
            base(**probe_batch(base))
    finally:
        for hook in hooks:
            hook.remove()
    found = [
        next((n for n in norms if outputs[n] is outputs[block]), None)
        for block, norms in zip(blocks, inside, strict=True)
    ]
    closing = [norm for norm in found if norm is not None]
    if len(closing) < len(found):
        raise ModelError(
            f"The blocks of {type(network).__name__} do not end with a norm, so Pfeiffer adapters have no place; "
            "choose another strategy or a model in the manner of BERT."
        )
    return closing


def _adapted(adapter: nn.Module) -> Any:
    def hook(norm: nn.LayerNorm, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        changed = args[0] + adapter(output)
        return functional.layer_norm(changed, norm.normalized_shape, norm.weight, norm.bias, norm.eps)

    return hook
