"""The one score table: sets of neurons × (task, control task) × seeds, with all that must stand beside a score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.maths.layouts import NeuronLayout
from residuum.maths.metrics import SentenceSums, paired_loss
from residuum.maths.probe_scores import ClassScores
from residuum.maths.probing import PaperRecipe, Probe, TrainedProbe
from residuum.maths.selection import SetScore, layer_subsets, sufficient_classes
from residuum.maths.statistics import Interval
from residuum.maths.task_moments import quick_probes, task_moments
from residuum.probing.probe_data import CONTROL, TASK, ProbeData, Score, train_together

ALL = "all layers"
"""The name of the oracle: the probe of all neurons of all layers."""
LEAST_SUPPORT = 20
"""Examples that a class needs before anything is said about it: of its scores on test, of its neurons in training."""
ONE_SEED = "Warning: the scores are those of 1 seed, and another may differ. Pass --seeds 3 before you conclude."
BASELINES = ("majority", "word_majority", "bag_of_words")
"""Columns of a score table that hold scores without any activation."""
NeuronColumns = slice | Int[np.ndarray, " neuron"] | None


@dataclass(frozen=True, eq=False)
class NeuronSet:
    """Neurons that a probe reads: one layer, all of them, a subset of layers, representatives of clusters, …

    `draws` are the versions of a set that is drawn at random; its score is the mean over them.
    """

    name: str
    kind: str  # layer, all, subset, threshold, order or minimal
    layers: tuple[int, ...]
    n_neurons: int
    neurons: NeuronColumns = None
    draws: tuple[Int[np.ndarray, " neuron"], ...] = ()

    @property
    def layer(self) -> int | None:
        """The layer, where the set is a single one."""
        return self.layers[0] if self.kind == "layer" else None

    @property
    def picked(self) -> Int[np.ndarray, " neuron"]:
        """The neurons, where they were picked one by one."""
        assert isinstance(self.neurons, np.ndarray), "whole layers are slices"
        return self.neurons

    def neurons_of_run(self, run: int) -> NeuronColumns:
        """The neurons of a run: with several draws, each run has the next one."""
        return self.draws[run % len(self.draws)] if self.draws else self.neurons


def single_layers(layout: NeuronLayout) -> list[NeuronSet]:
    """Every layer by itself, and the oracle: all of them side by side."""
    layers = [
        NeuronSet(f"layer {layer}", "layer", (layer,), width, layout.layer_slice(layer))
        for layer, width in zip(layout.layers, layout.widths, strict=True)
    ]
    return [*layers, all_layers(layout)]


def all_layers(layout: NeuronLayout) -> NeuronSet:
    """All neurons of all layers."""
    return NeuronSet(ALL, "all", layout.layers, layout.n_neurons)


def subsets_of_layers(layout: NeuronLayout) -> list[NeuronSet]:
    """Alternate layers, the halves, the embeddings and all but these; none of them for a single layer."""
    if len(layout.layers) < 2:
        return []
    columns = {name: (layers, layout.columns(layers)) for name, layers in layer_subsets(layout).items()}
    return [NeuronSet(name, "subset", layers, len(neurons), neurons) for name, (layers, neurons) in columns.items()]


def neuron_set(
    name: str, kind: str, layout: NeuronLayout, *draws: Int[np.ndarray, " neuron"], ordered: bool = False
) -> NeuronSet:
    """A set of picked neurons, ascending unless their order shall be kept; several draws for a random set."""
    sets = draws if ordered else tuple(np.sort(neurons) for neurons in draws)
    layers = np.unique(layout.positions[np.concatenate(draws)])
    names = tuple(layout.layers[place] for place in layers.tolist())
    return NeuronSet(name, kind, names, len(draws[0]), sets[0], sets if len(sets) > 1 else ())


@dataclass(frozen=True, eq=False)
class ProbeGrid:
    """Sets of neurons × targets × runs, to be trained in one pass. The runs are the seeds of the papers' recipe, or
    the draws of a random set.
    """

    data: ProbeData
    sets: Sequence[NeuronSet]
    targets: Sequence[str] | None = None  # None: the task and its control task

    @property
    def keys(self) -> list[tuple[NeuronSet, str, int]]:
        """Set, target and number of runs, in the order of the probes."""
        targets, seeds = self.targets or targets_of(self.data), len(self.data.run_seeds)
        return [(neurons, target, max(seeds, len(neurons.draws))) for neurons in self.sets for target in targets]

    @property
    def probes(self) -> list[Probe]:
        """The probes, runs innermost."""
        seed = self.data.seed
        return [
            self.data.probe(target, neurons.neurons_of_run(run), seed + run)
            for neurons, target, n_runs in self.keys
            for run in range(n_runs)
        ]

    def train(self) -> TrainedGrid:
        """Train all probes."""
        return TrainedGrid(self, self.data.train(self.probes))

    def solve_quickly(self) -> TrainedGrid:
        """The probes of the task in closed form, from one pass over the training part."""
        moments = task_moments(self.data.features("train"), self.data.targets[TASK])
        return TrainedGrid(self, quick_probes(moments, self.probes))


@dataclass(frozen=True, eq=False)
class TrainedGrid:
    """The probes of a grid after training."""

    grid: ProbeGrid
    trained: Sequence[TrainedProbe]

    def on(self, part: str, data: ProbeData | None = None) -> PartScores:
        """The scores on a part of the data, of this task or of another with the same training part."""
        data = data or self.grid.data
        scores = iter(data.score(self.trained, part))
        runs = {(neurons.name, target): [next(scores) for _ in range(n)] for neurons, target, n in self.grid.keys}
        return PartScores(data, part, self.grid.sets, runs)

    @property
    def penalty_table(self) -> pd.DataFrame:
        """λ1 and λ2 of each probe, as given or as chosen on dev, and whether it has converged."""
        names = [neurons.name for neurons, _, runs in self.grid.keys for _ in range(runs)]
        rows = [
            (name, probe.probe.target, *probe.penalty, probe.converged, probe.iterations)
            for name, probe in zip(names, self.trained, strict=True)
        ]
        return pd.DataFrame(rows, columns=pd.Index(["features", "target", "l1", "l2", "converged", "iterations"]))


def train_grids(grids: Sequence[ProbeGrid]) -> list[TrainedGrid]:
    """Train the grids of several tasks of the same examples in one pass over them."""
    trained = train_together([(grid.data, grid.probes) for grid in grids])
    return [TrainedGrid(grid, trained_probes) for grid, trained_probes in zip(grids, trained, strict=True)]


@dataclass(frozen=True, eq=False)
class PartScores:
    """The scores of a grid on one part of the data: one for each set, target and seed."""

    data: ProbeData
    part: str
    sets: Sequence[NeuronSet]
    scores: dict[tuple[str, str], list[Score]]  # (set, target) → one score per seed

    def runs(self, name: str, target: str = TASK) -> list[Score]:
        """The score of each seed; none where there is no such target."""
        return self.scores.get((name, target), [])

    def values(self, name: str, target: str = TASK) -> list[float]:
        """The metric of each seed."""
        return [score.value for score in self.runs(name, target)]

    def mean(self, name: str, target: str = TASK) -> float:
        """The mean metric over seeds; NaN where there is no such target."""
        return _mean(self.values(name, target))

    def plain(self, name: str) -> float:
        """Mean accuracy (Pearson's correlation of numbers), whatever the task's metric is."""
        return _mean([score.plain for score in self.runs(name)])

    def deviation(self, name: str, target: str = TASK) -> float:
        """The standard deviation over seeds; NaN with fewer than two."""
        values = self.values(name, target)
        return float(np.std(values, ddof=1)) if len(values) > 1 else np.nan

    def interval(self, name: str, target: str = TASK) -> Interval:
        """The interval of the mean score, over sentences and seeds."""
        return self.data.interval(self.runs(name, target))

    def sums(self, name: str) -> SentenceSums:
        """Per-sentence sums, averaged over seeds: what paired comparisons are made of."""
        runs = [score.sums for score in self.runs(name)]
        return SentenceSums(runs[0].metric, np.mean([run.sums for run in runs], axis=0))

    def loss(self, name: str, keep: float, oracle: str = ALL) -> SetScore:
        """How far a set falls below the share `keep` of the oracle, paired over sentences."""
        return paired_loss(self.sums(name), self.sums(oracle), keep)


def score_columns(scores: PartScores, name: str) -> dict[str, Any]:
    """Metric, mean score, interval and seeds of a set of neurons, control task and selectivity beside it.

    Selectivity compares accuracies (Hewitt & Liang 2019), whatever the task's metric is.
    """
    interval, runs = scores.interval(name), scores.runs(name)
    plain, control = scores.plain(name), scores.mean(name, CONTROL)
    kind = "accuracy" if isinstance(runs[0].details, ClassScores) else "pearson"
    return {
        "metric": runs[0].sums.metric,
        "score": scores.mean(name),
        "low": float(interval.low),
        "high": float(interval.high),
        "sd": scores.deviation(name),
        "seeds": len(runs),
        kind: plain,
        "control": control,
        "control_sd": scores.deviation(name, CONTROL),
        "selectivity": plain - control,
    }


def score_table(
    dev: PartScores,
    test: PartScores,
    twin: Mapping[str, float],
    keep: float,
    baselines: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """A row for each set of neurons: scores on test, baselines, and whether dev says that the set is sufficient.

    A set is sufficient if its paired difference to the share `keep` of the oracle on dev is at most one standard error.
    """
    oracle = test.mean(ALL)
    rows = [
        {
            "kind": neurons.kind,
            "features": neurons.name,
            "layer": neurons.layer,
            "layers": ",".join(map(str, neurons.layers)),
            "neurons": neurons.n_neurons,
            **score_columns(test, neurons.name),
            **{name.replace(" ", "_"): value for name, value in (baselines or {}).items()},
            "random_twin": twin.get(neurons.name, np.nan),
            "dev": dev.mean(neurons.name),
            "share_of_oracle": test.mean(neurons.name) / oracle if oracle else np.nan,
            "sufficient": dev.loss(neurons.name, keep).sufficient,
        }
        for neurons in test.sets
    ]
    return pd.DataFrame(rows).astype({"layer": "Int64"})


def score_lines(table: pd.DataFrame) -> list[str]:
    """The rows of a score table for a terminal, and a last line with what they must beat."""
    lines = [
        f"{row['features']:>18}  {row['metric']} {row['score']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        + (f"  {row['seeds']} seeds, sd {row['sd']:.3f}" if row["seeds"] > 1 else "")
        + ("" if np.isnan(row["selectivity"]) else f"  selectivity {row['selectivity']:.3f}")
        + ("" if np.isnan(row["random_twin"]) else f"  random twin {row['random_twin']:.3f}")
        + ("  sufficient" if row["sufficient"] and row["kind"] != "all" else "")
        for row in table.to_dict("records")
    ]
    known = [name for name in BASELINES if name in table]
    text = ", ".join(f"{name.replace('_', ' ')} {table[name].iloc[0]:.3f}" for name in known)
    return [*lines, f"{'baselines':>18}  {text}"] if known else lines


def doubts(data: ProbeData, oracle: Mapping[str, Any], known: Mapping[str, float], keep: float) -> list[str]:
    """Warnings in words: an oracle that does not beat a baseline, too few dev examples for the allowed loss, one seed
    of a recipe that depends on it.
    """
    rivals = {**{f"{name} baseline": value for name, value in known.items()}, "random twin": oracle["random_twin"]}
    warnings = rival_warnings(oracle, rivals)
    n_dev, allowed = len(data.splits.dev), (1 - keep) * oracle["dev"]
    if 1 / n_dev > allowed:
        warnings.append(
            f"Warning: one of the {n_dev:,} dev examples is worth {1 / n_dev:.4f}, more than the allowed loss "
            f"{max(allowed, 0):.4f}. Choose more dev data (--dev), or a smaller --keep."
        )
    if isinstance(data.recipe, PaperRecipe) and data.seeds == 1:
        warnings.append(ONE_SEED)
    return warnings


def rival_warnings(oracle: Mapping[Any, Any], rivals: Mapping[str, float], of: str = "") -> list[str]:
    """A warning for each rival that the probe of all layers (of a model and task) does not beat, or not clearly."""
    return [
        f"Warning: the probe of all layers{of} ({oracle['metric']} {oracle['score']:.3f}, 95 % CI "
        f"{oracle['low']:.3f}–{oracle['high']:.3f}) "
        f"{'does not beat' if oracle['score'] <= value else 'is not clearly better than'} the {name} ({value:.3f})."
        for name, value in rivals.items()
        if oracle["low"] <= value
    ]


def kept_text(minimal: Mapping[str, Any], whole: Mapping[str, Any], keep: float) -> str:
    """The size of a minimal set, which was chosen on held-out data, and what it keeps of the score on test."""
    share = f"{minimal['score'] / whole['score']:.1%} of" if whole["score"] > 0 else "against"
    return (
        f"{minimal['neurons']:,} of {whole['neurons']:,} neurons ({minimal['share']:.1%}) are the fewest that keep "
        f"{keep:.0%} of the {whole['metric']} of all neurons on held-out data, within one standard error. On test they "
        f"score {minimal['score']:.3f} (95 % CI {minimal['low']:.3f}–{minimal['high']:.3f}), "
        f"{share} the {whole['score']:.3f} of all neurons."
    )


def class_table(sets: Sequence[NeuronSet], dev: PartScores, test: PartScores, keep: float) -> pd.DataFrame:
    """A row for each class and set (single layers and all of them): precision, recall and F1 on test, seeds' means.

    A class is sufficient where its recall on dev keeps the share `keep` of the oracle's; nothing is claimed of a class
    with fewer than `LEAST_SUPPORT` test examples.
    """
    oracle = _class_means(dev.runs(ALL))["recall"]
    parts = []
    for neurons in sets:
        means = _class_means(test.runs(neurons.name))
        sufficient = sufficient_classes(_class_means(dev.runs(neurons.name))["recall"], oracle, keep)
        columns = {
            "features": neurons.name,
            "layer": neurons.layer,
            "class": test.data.targets[TASK].classes,
            **means,
            "supported": means["support"] >= LEAST_SUPPORT,
            "sufficient": sufficient & (means["support"] >= LEAST_SUPPORT),
        }
        parts.append(pd.DataFrame(columns).astype({"layer": "Int64"}))
    return pd.concat(parts, ignore_index=True)


def class_layer_table(classes: pd.DataFrame) -> pd.DataFrame:
    """A row for each class: the oracle's recall, and which layers are sufficient for it (Dalvi et al. 2020, A.3)."""
    rows: list[dict[str, Any]] = []
    for label, group in classes.groupby("class", sort=False):
        sufficient = group.loc[group["sufficient"] & group["layer"].notna(), "layer"].tolist()
        oracle = group.loc[group["layer"].isna()].iloc[0]
        rows.append(
            {
                "class": label,
                "support": oracle["support"],
                "supported": oracle["supported"],
                "oracle_recall": oracle["recall"],
                "lowest_layer": min(sufficient, default=None),
                "sufficient_layers": ",".join(map(str, sufficient)),
                "n_sufficient": len(sufficient),
            }
        )
    return pd.DataFrame(rows).astype({"lowest_layer": "Int64"})


def unseen_table(data: ProbeData, part: str = "test") -> pd.DataFrame:
    """The labels of a part that training never saw, and how many examples have them; they count as errors."""
    counts = Counter(unseen_labels(data, part))
    return pd.DataFrame(counts.most_common(), columns=["label", "examples"]).astype({"examples": int})


def unseen_labels(data: ProbeData, part: str = "test") -> list[str]:
    """The label of each example of a part that training never saw; none where numbers are predicted."""
    seen = set(data.targets[TASK].classes)
    return [label for label in data.examples(part).labels if seen and label not in seen]


def targets_of(data: ProbeData) -> list[str]:
    """The task, and its control task where there is one."""
    return [name for name in (TASK, CONTROL) if name in data.targets]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else np.nan


def _class_means(scores: Sequence[Score]) -> dict[str, np.ndarray]:
    """Support, and the means over seeds of precision, recall and F1 of each class."""
    details = [score.details for score in scores if isinstance(score.details, ClassScores)]
    means = {key: np.mean([getattr(d, key) for d in details], axis=0) for key in ("precision", "recall", "f1")}
    return {"support": details[0].support, **means}
