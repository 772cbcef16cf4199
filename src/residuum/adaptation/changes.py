"""What strategies add to a network and what they change of it: tensors that are put in, taken out again, and saved."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from residuum.errors import ModelError, SettingError, StoreError
from residuum.models.loading import find_blocks, probe_batch
from residuum.models.surgery import add_layers, keep_layers, layer_count
from residuum.storage.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Tensors = Mapping[str, Tensor]
CHANGE_FILE = "change.safetensors"
_PARTS = ("values", "added", "adapters", "low_rank", "layers")
PROJECTIONS = ("query", "value", "q_lin", "v_lin", "q_proj", "v_proj", "q", "v")  # of queries and values, by family
DEVIATION = 0.02  # of the initial weights: an adapter starts close to zero


@dataclass(frozen=True, eq=False)
class Change:
    """The difference to a student: parameters with new values, differences to add, adapters, layers on top."""

    values: Tensors = field(default_factory=dict)  # by the parameter's name
    added: Tensors = field(default_factory=dict)  # by the parameter's name
    adapters: Tensors = field(default_factory=dict)  # as `Adapters` names them
    low_rank: Tensors = field(default_factory=dict)  # as `LowRankUpdates` names them
    layers: Tensors = field(default_factory=dict)  # by the number of the new layer and the name in it

    @property
    def n_parameters(self) -> int:
        """The number of values it holds."""
        return sum(tensor.numel() for part in _PARTS for tensor in getattr(self, part).values())


class Applied:
    """A network with a change in it; `remove` restores the network bit for bit."""

    def __init__(self, network: PreTrainedModel, change: Change) -> None:
        self.network = network
        self.n_layers = layer_count(network)
        self.names = [*change.values, *change.added]
        self.adapters: Adapters | None = None
        self.low_rank: LowRankUpdates | None = None
        self.layers = nn.ModuleList()
        self._before: dict[str, Tensor] = {}
        self._handles: list[RemovableHandle] = []
        parameters = dict(network.named_parameters())
        for name, tensor in {**change.values, **change.added}.items():
            shape = tuple(parameters[name].shape) if name in parameters else None
            if shape != tuple(tensor.shape):
                raise ModelError(
                    f"The change is of a parameter {name} of shape {tuple(tensor.shape)}; {type(network).__name__} has "
                    f"{'none of that name' if shape is None else f'shape {shape}'}. Use a student of the same shape."
                )
        try:
            device = next(network.parameters()).device
            with torch.no_grad():
                for name in self.names:
                    parameter = network.get_parameter(name)
                    self._before[name] = parameter.detach().clone()
                    if name in change.values:
                        parameter.copy_(change.values[name])
                    else:
                        parameter.add_(change.added[name].to(device))
            if change.layers:
                count = 1 + max(int(name.partition(".")[0]) for name in change.layers)
                self.layers = new_blocks(network, count, seed=0).to(device)
                self.layers.load_state_dict(dict(change.layers))
                add_layers(network, list(self.layers))
            if change.adapters:
                self.adapters = adapters_of(change.adapters).to(device)
                self._handles += self.adapters.hang_in(network)
            if change.low_rank:
                self.low_rank = LowRankUpdates.of_tensors(change.low_rank).to(device)
                self._handles += self.low_rank.hang_in(network)
        except BaseException:
            self.remove()
            raise

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All modules that the network now runs, by name."""
        parts = {"model": self.network, "adapters": self.adapters, "low_rank": self.low_rank}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def changed(self) -> list[nn.Parameter]:
        """The parameters that the change brought or touched."""
        touched = [self.network.get_parameter(name) for name in self.names]
        beside = [part for part in (self.layers, self.adapters, self.low_rank) if part is not None]
        return [*touched, *(parameter for part in beside for parameter in part.parameters())]

    def current(self) -> Change:
        """The change after further training, all of it as values."""
        return Change(
            values={name: _copy(self.network.get_parameter(name)) for name in self.names},
            adapters={} if self.adapters is None else tensors_of(self.adapters),
            low_rank={} if self.low_rank is None else tensors_of(self.low_rank),
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


@contextmanager
def applied(network: PreTrainedModel, change: Change) -> Iterator[Applied]:
    """A context in which a network has a change in it."""
    change_in = Applied(network, change)
    try:
        yield change_in
    finally:
        change_in.remove()


def save_change(folder: str | Path, change: Change) -> Path:
    """Write a change, whole or not at all."""
    path = Path(folder) / CHANGE_FILE
    tensors = {f"{part}.{name}": t.contiguous() for part in _PARTS for name, t in getattr(change, part).items()}
    write_tensors(path, tensors)
    return path


def read_change(folder: str | Path) -> Change:
    """Read what `save_change` wrote."""
    path = Path(folder) / CHANGE_FILE
    if not path.exists():
        raise StoreError(f"{folder} holds no {CHANGE_FILE}; give the folder of a strategy that `residuum adapt` wrote.")
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
        """The vectors that are added to the states."""
        return self.up(functional.relu(self.down(states)))


class Adapters(nn.Module):
    """One adapter per block. The same adapters can hang in several networks, which keep their own parameters.

    A block that ends in LN(z), z = feed-forward + residual, ends in LN(z + A(LN(z))) with an adapter: the placement
    that Pfeiffer et al. (2021) chose, with the block's norm before and after.
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
        """Hang the adapters into a network; removing the handles restores it."""
        norms = closing_norms(network)
        shapes = [tuple(norm.normalized_shape) for norm in norms]
        if shapes != [(adapter.down.in_features,) for adapter in self.blocks]:  # pyright: ignore[reportAttributeAccessIssue]
            raise ModelError(
                f"There are adapters for {len(self.blocks)} blocks, but {type(network).__name__} has {len(norms)} of "
                f"width {shapes[0][0]}; give students of the same shape."
            )

        def hook_of(adapter: nn.Module) -> Any:
            def hook(norm: nn.LayerNorm, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
                changed = args[0] + adapter(output)
                return functional.layer_norm(changed, norm.normalized_shape, norm.weight, norm.bias, norm.eps)

            return hook

        return [norm.register_forward_hook(hook_of(part)) for norm, part in zip(norms, self.blocks, strict=True)]


class LowRank(nn.Module):
    """ΔW·x = (α/r)·U·D·x with D: r × in, U: out × r, and α = 2r (Hu et al., 2022); U starts at 0, so ΔW does too."""

    def __init__(self, n_in: int, n_out: int, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(n_in, rank, bias=False), nn.Linear(rank, n_out, bias=False)
        with torch.no_grad():
            self.down.weight.copy_(torch.randn(rank, n_in, generator=generator) / n_in**0.5)
            self.up.weight.zero_()

    def forward(self, states: Float[Tensor, "*token in"]) -> Float[Tensor, "*token out"]:
        """What is added to W·x."""
        return 2 * self.up(self.down(states))


class LowRankUpdates(nn.Module):
    """LoRA: updates of low rank for the query and value projections of each block, the same in several networks."""

    def __init__(self, shapes: Sequence[Mapping[str, tuple[int, int]]], rank: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({name: LowRank(*shape, rank, generator) for name, shape in block.items()}) for block in shapes
        )

    @classmethod
    def of_network(cls, network: PreTrainedModel, rank: int, seed: int) -> LowRankUpdates:
        """Fresh updates for the projections that a network has."""
        found = _projections(network)
        shapes = [{name: (part.in_features, part.out_features) for name, part in block.items()} for block in found]
        return cls(shapes, rank, seed)

    @classmethod
    def of_tensors(cls, tensors: Tensors) -> LowRankUpdates:
        """The updates that have these weights."""
        shapes: dict[int, dict[str, tuple[int, int]]] = {}
        for key in tensors:
            _, block, name, _, _ = key.split(".")
            down, up = (tensors[f"blocks.{block}.{name}.{part}.weight"] for part in ("down", "up"))
            shapes.setdefault(int(block), {})[name] = (down.shape[1], up.shape[0])
        updates = cls([shapes[block] for block in sorted(shapes)], rank=next(iter(tensors.values())).shape[0])
        updates.load_state_dict(dict(tensors))
        return updates

    def hang_in(self, network: PreTrainedModel) -> list[RemovableHandle]:
        """Hang the updates into a network; removing the handles restores it."""
        handles, found = [], _projections(network)
        if [list(block) for block in found] != [list(block) for block in self.blocks]:  # pyright: ignore[reportArgumentType]
            raise ModelError(
                f"There are low-rank updates for {len(self.blocks)} blocks, which {type(network).__name__} with "
                f"{len(found)} does not have in this form; give students of the same shape."
            )
        for parts, updates in zip(found, self.blocks, strict=True):
            for name, part in parts.items():
                update = updates[name]  # pyright: ignore[reportIndexIssue]
                hook = lambda _, args, output, update=update: output + update(args[0])  # noqa: E731
                handles.append(part.register_forward_hook(hook))
        return handles


def _projections(network: PreTrainedModel) -> list[dict[str, nn.Linear]]:
    """The query and value projections of each block, by their last name."""
    blocks = find_blocks(network.base_model)[2] or []
    found = []
    for block in blocks:
        named = ((name.rpartition(".")[2], part) for name, part in block.named_modules())
        found.append({name: part for name, part in named if name in PROJECTIONS and isinstance(part, nn.Linear)})
    if not found or not all(len(parts) == 2 for parts in found):
        raise ModelError(
            f"The query and value projections of {type(network).__name__} are not known; choose another strategy than "
            "lora."
        )
    return found


def closing_norms(network: PreTrainedModel) -> Sequence[nn.LayerNorm]:
    """The norm that each block ends with: the one whose output in a forward pass is the block's."""
    base: Any = network.base_model
    blocks = find_blocks(base)[2]
    if blocks is None:
        raise ModelError(f"{type(network).__name__} runs one block again and again; adapters need one block per layer.")
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
    closing = [
        norm for block, norms in zip(blocks, inside, strict=True) for norm in norms if outputs[norm] is outputs[block]
    ]
    if len(closing) < len(blocks):
        raise ModelError(
            f"The blocks of {type(network).__name__} do not end with a norm, so Pfeiffer adapters have no place; "
            "choose another strategy or a model in the manner of BERT."
        )
    return closing


def new_blocks(network: PreTrainedModel, count: int, seed: int) -> nn.ModuleList:
    """Blocks like those of a network with fresh weights: matrices from N(0, σ²) with its σ, no bias, plain norms."""
    blocks = find_blocks(network.base_model)[2]
    if blocks is None:
        raise ModelError(f"{type(network).__name__} runs one block repeatedly; no other can be put on top.")
    generator = torch.Generator().manual_seed(seed)
    deviation = getattr(network.config, "initializer_range", 0.02)
    fresh = nn.ModuleList([copy.deepcopy(blocks[-1]) for _ in range(count)])
    with torch.no_grad():
        for part in fresh.modules():
            for name, parameter in part.named_parameters(recurse=False):
                if not isinstance(part, nn.Linear | nn.LayerNorm):
                    raise ModelError(f"New layers cannot be initialised: {type(part).__name__} is not known.")
                if name == "bias":
                    parameter.zero_()
                elif isinstance(part, nn.LayerNorm):
                    parameter.fill_(1.0)
                else:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * deviation)
    return fresh.requires_grad_(True)
