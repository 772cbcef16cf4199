"""The strategies that carry a task from a source student to a target student (thesis, section 3.3).

A strategy says what learns, and which students read each batch: the source student, the target student, or both. What
learns is one and the same in all of them, and starts as it is in the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from residuum.adaptation.changes import Adapters, Change, LowRankUpdates, new_blocks, tensors_of
from residuum.errors import ModelError, SettingError
from residuum.models.surgery import add_layers, embedding_modules, layer_count

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STRATEGIES = (
    "adapter-source",
    "adapter-target",
    "adapter-joint",
    "bitfit-source",
    "bitfit-target",
    "bitfit-joint",
    "sparse-delta",
    "freeze+0",
    "freeze+2",
    "freeze+4",
    "full-source",
    "full-target",
)
"""All strategies in the order of the thesis' table 4.6; `freeze+k` exists for any k."""

# Where source and target are one model, the others are the same training under another name; sparse-delta is not, since
# it leaves the embeddings as they are and has another learning rate.
LORA = ("lora-source", "lora-target", "lora-joint")
"""Strategies that the thesis does not have; `all` leaves them out."""

STRATEGIES_OF_ONE = (
    "adapter-target",
    "bitfit-target",
    "sparse-delta",
    "freeze+0",
    "freeze+2",
    "freeze+4",
    "full-target",
)

_NAME = re.compile(r"(full)-(source|target)|(adapter|bitfit|lora)-(source|target|joint)|(sparse-delta)|(freeze)\+(\d+)")
Parameters = dict[str, nn.Parameter]


@dataclass(frozen=True)
class Strategy:
    """What is trained, and which students read batches meanwhile.

    `reads` is source, target or joint (both). What a source student learnt is moved into the target student; only
    `full-source` is evaluated itself.
    """

    name: str
    family: str  # full, freeze, adapter, bitfit, lora or sparse-delta
    reads: str
    new_layers: int = 0

    @property
    def for_any_target(self) -> bool:
        """Whether one training serves all target languages, since no target student takes part in it."""
        return self.reads == "source"

    @property
    def evaluates_source(self) -> bool:
        """Whether the source student answers for the target language."""
        return self.name == "full-source"


def named_strategies(names: str | Sequence[str], *, one_model: bool = False) -> list[Strategy]:
    """The strategies of these names (a list, or separated by commas); `all` are those of the thesis.

    For one model that is both source and target `all` leaves out those that would repeat a training.
    """
    listed = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    if listed == ["all"]:
        listed = list(STRATEGIES_OF_ONE if one_model else STRATEGIES)
    if not listed or len(set(listed)) < len(listed):
        raise SettingError(f"The strategies are {', '.join(listed) or 'none'}; expected different ones, at least one.")
    strategies = []
    for name in listed:
        if (match := _NAME.fullmatch(name)) is None:
            known = ", ".join([*STRATEGIES, *LORA])
            raise SettingError(f"There is no strategy {name!r}; choose 'all' or some of {known}.")
        full, side, efficient, reads, delta, freeze, layers = match.groups()
        family = freeze or full or efficient or delta
        strategies.append(Strategy(name, family, side or reads or "source", int(layers or 0)))
    return strategies


@dataclass(frozen=True, eq=False)
class StrategyPlan:
    """What is trained: the modules of a checkpoint, the networks whose mean loss is minimised, and what was learnt.

    `change` is called when the training is over.
    """

    modules: dict[str, nn.Module]
    readers: Sequence[PreTrainedModel]
    change: Callable[[], Change]

    @property
    def n_trained(self) -> int:
        """The number of trained parameters, each counted once."""
        unique = {id(p): p for module in self.modules.values() for p in module.parameters() if p.requires_grad}
        return sum(p.numel() for p in unique.values())


def strategy_plan(
    strategy: Strategy, networks: Sequence[PreTrainedModel], *, reduction: int = 16, rank: int = 8, seed: int = 0
) -> StrategyPlan:
    """Prepare networks for a strategy; `reduction` is layer width divided by adapter width, `rank` that of LoRA."""
    first = networks[0]
    if strategy.family == "adapter":
        return _hung_in(networks, "adapters", Adapters(layer_count(first), first.config.hidden_size, reduction, seed))
    if strategy.family == "lora":
        return _hung_in(networks, "low_rank", LowRankUpdates.of_network(first, rank, seed))
    if strategy.family == "bitfit":
        return _biases(networks)
    (network,) = networks
    if strategy.family == "freeze":  # the head and new random layers over a frozen student without dropout
        blocks = new_blocks(network, strategy.new_layers, seed).to(next(network.parameters()).device)
        if strategy.new_layers:
            add_layers(network, list(blocks))
        learn_over_frozen(network, blocks)
        head = list(head_parameters(network))
        return StrategyPlan(
            {"model": network}, [network], lambda: Change(values=_values(network, head), layers=tensors_of(blocks))
        )
    if strategy.family == "sparse-delta":
        return _delta(network)
    names = [name for name, _ in network.named_parameters()]  # FULL: all parameters of one student
    network.requires_grad_(True).train()
    return StrategyPlan({"model": network}, [network], lambda: Change(values=_values(network, names)))


def _hung_in(networks: Sequence[PreTrainedModel], part: str, learning: Adapters | LowRankUpdates) -> StrategyPlan:
    """ADAPT and LoRA: the same adapters or updates and the same head in all networks, which are otherwise frozen."""
    first = networks[0]
    learning.to(next(first.parameters()).device)
    names = list(head_parameters(first))
    for network in networks:
        learning.hang_in(network)
    return StrategyPlan(
        {**_sharing(networks, names), part: learning},
        networks,
        lambda: Change(values=_values(first, names), **{part: tensors_of(learning)}),
    )


def _biases(networks: Sequence[PreTrainedModel]) -> StrategyPlan:
    """BitFit: the same bias terms and the same head in all networks, all weights frozen."""
    first = networks[0]
    names = [*bias_parameters(first), *head_parameters(first)]
    return StrategyPlan(_sharing(networks, names), networks, lambda: Change(values=_values(first, names)))


def _delta(network: PreTrainedModel) -> StrategyPlan:
    """SFT: the blocks and the head of one student; the changes of the blocks are kept.

    Σ_t (θ_{t+1} − θ_t) = θ_T − θ_0, so adding each step's change to the target is adding the whole one at the end.
    """
    body, head = body_parameters(network), head_parameters(network)
    before = _values(network, list(body))
    learn_only(network, [*body.values(), *head.values()])

    def change() -> Change:
        after = _values(network, list(body))
        return Change(values=_values(network, list(head)), added={name: after[name] - before[name] for name in body})

    return StrategyPlan({"model": network}, [network], change)


def _sharing(networks: Sequence[PreTrainedModel], names: Sequence[str]) -> dict[str, nn.Module]:
    """The networks with one set of parameters of these names, which alone learn."""
    first = networks[0]
    for other in networks[1:]:
        parameters = dict(other.named_parameters())
        for name in names:
            if name not in parameters or parameters[name].shape != first.get_parameter(name).shape:
                raise ModelError(
                    f"{type(first).__name__} and {type(other).__name__} cannot share {name}: one of them lacks it or "
                    "has it in another shape; use students of one architecture and size."
                )
            owner, _, attribute = name.rpartition(".")
            setattr(other.get_submodule(owner), attribute, first.get_parameter(name))
    for network in networks:
        learn_only(network, [first.get_parameter(name) for name in names])
    return {f"model-{place}": network for place, network in enumerate(networks)}


def _values(network: PreTrainedModel, names: Sequence[str]) -> dict[str, Tensor]:
    return {name: network.get_parameter(name).detach().cpu().clone() for name in names}


def head_modules(network: PreTrainedModel) -> dict[str, nn.Module]:
    """All above the last block, by name: the head itself and the pooler that only heads read."""
    base: Any = network.base_model
    prefix = network.base_model_prefix
    modules = {name: part for name, part in network.named_children() if name != prefix}
    if isinstance(getattr(base, "pooler", None), nn.Module):
        modules[f"{prefix}.pooler"] = base.pooler
    return modules


def head_parameters(network: PreTrainedModel) -> Parameters:
    """The parameters of the head, by their names in the network."""
    return {
        f"{name}.{key}": parameter
        for name, part in head_modules(network).items()
        for key, parameter in part.named_parameters()
    }


def bias_parameters(network: PreTrainedModel) -> Parameters:
    """The bias terms b of embeddings and blocks, including those of norms, without the head's."""
    head = head_parameters(network)
    biases = {n: p for n, p in network.named_parameters() if n.rpartition(".")[2] == "bias" and n not in head}
    if not biases:
        raise ModelError(f"{type(network).__name__} has no bias terms; choose another strategy than bitfit.")
    return biases


def body_parameters(network: PreTrainedModel) -> Parameters:
    """The parameters of the blocks and of what closes them: neither embeddings nor head."""
    outside = {id(p) for part in embedding_modules(network.base_model) for p in part.parameters()}
    outside |= {id(p) for p in head_parameters(network).values()}
    return {name: p for name, p in network.named_parameters() if id(p) not in outside}


def learn_only(network: PreTrainedModel, parameters: Iterable[nn.Parameter]) -> None:
    """Freeze a network except for these parameters; dropout stays on in all of it."""
    network.requires_grad_(False)
    for parameter in parameters:
        parameter.requires_grad_(True)
    network.train()


def learn_over_frozen(network: PreTrainedModel, added: Iterable[nn.Module]) -> None:
    """Freeze a network except for its head and added modules; the frozen part has no dropout either."""
    network.requires_grad_(False).eval()
    for part in (*added, *head_modules(network).values()):
        part.requires_grad_(True).train()
