"""One battery for one honest table: sets of neurons × (task, control task) × seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probing import Probe, TrainedProbe
from residuum.maths.selection import layer_subsets
from residuum.maths.statistics import Interval
from residuum.probing.batteries import CONTROL, TASK, Bench, Score, train_together

ALL = "all layers"


@dataclass(frozen=True, eq=False)
class NeuronSet:
    """Neurons that a probe reads: one layer, all of them, a subset of layers, or what a clustering left."""

    name: str
    kind: str  # layer, all, subset or threshold
    layers: tuple[int, ...]
    n_neurons: int
    neurons: slice | Int[np.ndarray, " neuron"] | None = None

    @property
    def layer(self) -> int | None:
        """The layer, where it is only one by itself."""
        return self.layers[0] if self.kind == "layer" else None


def single_layers(layout: NeuronLayout) -> list[NeuronSet]:
    """Every layer by itself, and all of them side by side: the oracle."""
    layers = [
        NeuronSet(f"layer {layer}", "layer", (layer,), width, layout.layer_slice(layer))
        for layer, width in zip(layout.layers, layout.widths, strict=True)
    ]
    return [*layers, everything(layout)]


def everything(layout: NeuronLayout) -> NeuronSet:
    """All neurons of all layers."""
    return NeuronSet(ALL, "all", layout.layers, layout.n_neurons)


def subsets_of_layers(layout: NeuronLayout) -> list[NeuronSet]:
    """Alternate layers, the halves, the embeddings and all but these; none of them for a single layer."""
    if len(layout.layers) < 2:
        return []
    columns = {name: (layers, layout.columns(layers)) for name, layers in layer_subsets(layout).items()}
    return [NeuronSet(name, "subset", layers, len(own), own) for name, (layers, own) in columns.items()]


@dataclass(frozen=True, eq=False)
class Measurement:
    """The scores of a battery on one part of the data: one for each set, target and seed."""

    bench: Bench
    part: str
    scores: dict[tuple[str, str], list[Score]]  # (set, target) → one score a seed

    def values(self, name: str, target: str = TASK) -> list[float]:
        """The score of each seed."""
        return [score.value for score in self.scores.get((name, target), [])]

    def mean(self, name: str, target: str = TASK) -> float:
        """The mean score over seeds; NaN where there is no such target."""
        values = self.values(name, target)
        return float(np.mean(values)) if values else np.nan

    def deviation(self, name: str, target: str = TASK) -> float:
        """The standard deviation over seeds; NaN with fewer than two."""
        values = self.values(name, target)
        return float(np.std(values, ddof=1)) if len(values) > 1 else np.nan

    def interval(self, name: str, target: str = TASK) -> Interval:
        """The interval, over sentences, of the mean score over seeds."""
        return self.bench.interval(self.scores[name, target], self.part)


@dataclass(frozen=True, eq=False)
class Battery:
    """Sets of neurons × targets × seeds, to be trained in one pass."""

    bench: Bench
    sets: Sequence[NeuronSet]
    targets: Sequence[str]
    seeds: Sequence[int]
    penalties: tuple[float, float]

    @cached_property
    def probes(self) -> list[Probe]:
        """The probes, seeds innermost."""
        l1, l2 = self.penalties
        return [
            Probe(target, one.neurons, l1, l2, seed)
            for one in self.sets
            for target in self.targets
            for seed in self.seeds
        ]

    @cached_property
    def trained(self) -> list[TrainedProbe]:
        """The probes after training, which happens when they are first asked for."""
        return self.bench.train(self.probes)

    def on(self, part: str, bench: Bench | None = None) -> Measurement:
        """The scores on a part of the data, of this bench or another with the same training part."""
        bench = bench or self.bench
        scores = iter(bench.score(self.trained, part))
        keys = [(one.name, target) for one in self.sets for target in self.targets]
        return Measurement(bench, part, {key: [next(scores) for _ in self.seeds] for key in keys})


def train_batteries(batteries: Sequence[Battery]) -> None:
    """Train the batteries of several tasks of the same examples in one pass over them."""
    trained = train_together([(battery.bench, battery.probes) for battery in batteries])
    for battery, own in zip(batteries, trained, strict=True):
        vars(battery)["trained"] = own


def targets_of(bench: Bench) -> list[str]:
    """The task, and its control task where there is one."""
    return [name for name in (TASK, CONTROL) if name in bench.targets]
