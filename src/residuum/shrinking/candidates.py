"""Sets of neurons that could do the task: each with the probe that was trained on it and its scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probe_stack import Columns
from residuum.maths.probing import Probe
from residuum.maths.rankings import lca_ranking
from residuum.probing.batteries import TASK, Bench
from residuum.shrinking.classifiers import Classifier, classifier_of, folded
from residuum.shrinking.settings import Settings
from residuum.storage.results import Run

COLUMNS = ["step", "setting", "layer", "neurons", "dev", "test", "low", "high"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """Some neurons (columns of all layers side by side), the folded probe on them, and how good it is.

    `order` has the same neurons, the most important first by linguistic correlation analysis of the probe. `setting`
    is what made the set: the highest layer, the clustering threshold or the number of neurons.
    """

    step: str
    setting: float
    columns: Int[np.ndarray, " neuron"]
    weight: Float[np.ndarray, "class neuron"]
    bias: Float[np.ndarray, " class"]
    order: Int[np.ndarray, " neuron"]
    layer: int
    dev: float
    test: float
    low: float
    high: float

    @property
    def n_neurons(self) -> int:
        """The number of neurons."""
        return len(self.columns)

    def classifier(self, layout: NeuronLayout, labels: Sequence[str]) -> Classifier:
        """What does the task from these neurons."""
        return classifier_of(self.weight, self.bias, self.columns, layout, labels)


def train_candidates(
    bench: Bench, step: str, sets: Mapping[int, Columns] | Mapping[float, Columns], settings: Settings
) -> list[Candidate]:
    """Train a probe on each set in one battery, and score all on dev, to choose, and test, to report."""
    trained = bench.train(probes_on(sets.values(), settings))
    layout, found = bench.splits.layout, []
    scores = zip(sets, trained, bench.score(trained, "dev"), bench.score(trained, "test"), strict=True)
    for setting, probe, dev, test in scores:
        interval = bench.interval(test, "test")
        weight, bias = folded(probe)
        found.append(
            Candidate(
                step=step,
                setting=float(setting),
                columns=probe.neurons,
                weight=weight,
                bias=bias,
                order=probe.neurons[lca_ranking(probe.weight).order],
                layer=max(layout.layers[place] for place in np.unique(layout.positions[probe.neurons])),
                dev=dev.value,
                test=test.value,
                low=float(interval.low),
                high=float(interval.high),
            )
        )
    return found


def probes_on(sets: Iterable[Columns], settings: Settings, seed: int | None = None) -> list[Probe]:
    """The probe of each set, of the settings' seed unless another is given."""
    chosen = settings.seed if seed is None else seed
    return [Probe(TASK, columns, settings.l1, settings.l2, chosen) for columns in sets]


def seed_scores(bench: Bench, candidates: Mapping[str, Candidate], settings: Settings) -> dict[str, list[float]]:
    """The test score of each candidate's neurons from every seed: the one that it has, and probes trained anew.

    Candidates with the same neurons are trained once.
    """
    sets = {own.columns.tobytes(): own.columns for own in candidates.values()}
    scores: dict[bytes, list[float]] = {key: [] for key in sets}
    more = range(settings.seed + 1, settings.seed + settings.seeds)
    probes = [probe for seed in more for probe in probes_on(map(_columns, sets.values()), settings, seed)]
    if probes:
        found = iter(bench.score(bench.train(probes), "test"))
        for _ in more:
            for key in sets:
                scores[key].append(next(found).value)
    return {name: [own.test, *scores[own.columns.tobytes()]] for name, own in candidates.items()}


def _columns(columns: Int[np.ndarray, " neuron"]) -> Columns:
    """A range where the columns are one: it is read without a copy."""
    first, stop = int(columns[0]), int(columns[-1]) + 1
    ascending = stop - first == len(columns) and bool((np.diff(columns) == 1).all())
    return slice(first, stop) if ascending else columns


@dataclass(frozen=True, eq=False)
class Candidates:
    """What one step trained, and the place of the one that it chose; as a run it survives a killed process."""

    tried: list[Candidate]
    chosen: int
    sufficient: bool = True

    @property
    def best(self) -> Candidate:
        """The chosen one."""
        return self.tried[self.chosen]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row for each candidate."""
        rows = [[c.step, c.setting, c.layer, c.n_neurons, c.dev, c.test, c.low, c.high] for c in self.tried]
        return pd.DataFrame(rows, columns=pd.Index(COLUMNS)).assign(chosen=np.arange(len(rows)) == self.chosen)

    def as_run(self) -> Run:
        """All of it as tables and tensors."""
        tensors = {
            f"{name} {place}": np.ascontiguousarray(getattr(candidate, name))
            for place, candidate in enumerate(self.tried)
            for name in ("columns", "weight", "bias", "order")
        }
        return Run(
            "transfer", {}, {"chosen": self.chosen, "sufficient": self.sufficient}, {"tried": self.table}, tensors
        )

    @classmethod
    def of_run(cls, run: Run) -> Candidates:
        """What `as_run` made."""
        tried = []
        for place, row in enumerate(run.tables["tried"].to_dict("records")):
            parts: dict[str, Any] = {
                name: run.tensors[f"{name} {place}"] for name in ("columns", "weight", "bias", "order")
            }
            numbers: dict[str, Any] = {
                name: row[name] for name in ("step", "setting", "layer", "dev", "test", "low", "high")
            }
            tried.append(Candidate(**numbers, **parts))
        return cls(tried, run.summary["chosen"], run.summary["sufficient"])
