"""One recipe a family of strategies: what learns in which networks, and what of it is carried away.

Every recipe takes the networks that read each batch: the source student, the target student, or both. What learns is
the very same in all of them, and begins as it is in the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from residuum.adaptation.adapters import Adapters
from residuum.adaptation.changes import Change, tensors_of
from residuum.adaptation.parts import (
    bias_parameters,
    body_parameters,
    head_parameters,
    learn_only,
    learn_over_frozen,
    new_blocks,
    share,
)
from residuum.adaptation.strategies import Strategy
from residuum.models.surgery import add_layers, layer_count

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, eq=False)
class Plan:
    """What is trained: the modules that a checkpoint holds, the networks whose mean loss falls, and what was learnt.

    `change` is called once the training is over.
    """

    modules: dict[str, nn.Module]
    readers: Sequence[PreTrainedModel]
    change: Callable[[], Change]

    @property
    def n_trained(self) -> int:
        """How many parameters learn, each counted once."""
        unique = {id(p): p for module in self.modules.values() for p in module.parameters() if p.requires_grad}
        return sum(p.numel() for p in unique.values())


def plan(strategy: Strategy, networks: Sequence[PreTrainedModel], *, reduction: int = 16, seed: int = 0) -> Plan:
    """Make networks ready for a strategy; `reduction` is how much narrower than a layer an adapter is."""
    if strategy.family == "adapter":
        return _adapters(networks, reduction, seed)
    if strategy.family == "bitfit":
        return _biases(networks)
    (network,) = networks
    if strategy.family == "freeze":
        return _new_layers(network, strategy.new_layers, seed)
    return _delta(network) if strategy.family == "sparse-delta" else _everything(network)


def _everything(network: PreTrainedModel) -> Plan:
    """FULL: all parameters of one student."""
    names = [name for name, _ in network.named_parameters()]
    network.requires_grad_(True).train()
    return Plan({"model": network}, [network], lambda: Change(values=_values(network, names)))


def _new_layers(network: PreTrainedModel, count: int, seed: int) -> Plan:
    """FREEZE: the head and new random layers over a frozen student, which has no dropout either."""
    blocks = new_blocks(network, count, seed).to(next(network.parameters()).device)
    if count:
        add_layers(network, list(blocks))
    learn_over_frozen(network, blocks)
    names = list(head_parameters(network))
    return Plan(
        {"model": network}, [network], lambda: Change(values=_values(network, names), layers=tensors_of(blocks))
    )


def _adapters(networks: Sequence[PreTrainedModel], reduction: int, seed: int) -> Plan:
    """ADAPT: the same adapters and the same head in all networks, which are frozen beside."""
    first = networks[0]
    adapters = Adapters(layer_count(first), first.config.hidden_size, reduction, seed)
    adapters.to(next(first.parameters()).device)
    names = list(head_parameters(first))
    for network in networks:
        adapters.hang_in(network)
    return Plan(
        {**_sharing(networks, names), "adapters": adapters},
        networks,
        lambda: Change(values=_values(first, names), adapters=tensors_of(adapters)),
    )


def _biases(networks: Sequence[PreTrainedModel]) -> Plan:
    """BitFit: the same bias terms and the same head in all networks, all weights frozen."""
    first = networks[0]
    names = [*bias_parameters(first), *head_parameters(first)]
    return Plan(_sharing(networks, names), networks, lambda: Change(values=_values(first, names)))


def _delta(network: PreTrainedModel) -> Plan:
    """SFT: the blocks and the head of one student, of which the blocks' changes are kept.

    Σ_t (θ_{t+1} − θ_t) = θ_T − θ_0, so adding each step's change to the target is adding the whole one at the end.
    """
    body, head = body_parameters(network), head_parameters(network)
    before = _values(network, list(body))
    learn_only(network, [*body.values(), *head.values()])

    def change() -> Change:
        after = _values(network, list(body))
        return Change(values=_values(network, list(head)), added={name: after[name] - before[name] for name in body})

    return Plan({"model": network}, [network], change)


def _sharing(networks: Sequence[PreTrainedModel], names: Sequence[str]) -> dict[str, nn.Module]:
    """The networks with one set of parameters of these names, which alone learn."""
    first = networks[0]
    for other in networks[1:]:
        share(first, other, names)
    for network in networks:
        learn_only(network, [first.get_parameter(name) for name in names])
    return {f"model-{place}": network for place, network in enumerate(networks)}


def _values(network: PreTrainedModel, names: Sequence[str]) -> dict[str, Tensor]:
    return {name: network.get_parameter(name).detach().cpu().clone() for name in names}
