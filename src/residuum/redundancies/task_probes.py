"""Task-specific redundancy: what a probe loses when it sees one layer, or one neuron of each cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.batteries import CONTROL, TASK, Bench, Score
from residuum.maths.probe_stack import Columns
from residuum.maths.probing import Probe
from residuum.maths.rankings import lca_ranking
from residuum.maths.selection import keep_share
from residuum.redundancies.general import representatives
from residuum.redundancies.settings import Settings
from residuum.results import Run

ORACLE = "oracle"
SCORE_COLUMNS = ("dev", "test", "low", "high", "sd", "control", "selectivity")


@dataclass(frozen=True)
class Penalty:
    """λ1 and λ2 of every probe."""

    l1: float
    l2: float


Subsets = Mapping[str, Callable[[int], Columns | None]]
"""Names of sets of neurons, and which neurons each has for a seed (only random representatives depend on it)."""


def probe_layers_and_clusters(
    bench: Bench,
    tables: Mapping[str, pd.DataFrame],
    settings: Settings,
    penalty: Penalty,
    say: Callable[[str], object],
) -> Run:
    """Probe all neurons (the oracle), each layer, and the representatives at each threshold, in one battery.

    Every probe is trained on the task and the control task with every seed, chosen on dev, reported on test; the
    scores are added to the tables `layers` and `thresholds` of the general part. The oracle and the probe of the
    largest sufficient threshold also rank their neurons by LCA, for the minimal sets.
    """
    subsets = _subsets(bench, tables["neurons"], settings)
    scores = score_subsets(bench, subsets, settings, penalty, say)
    table = score_table(bench, scores)
    required = keep_share(float(table.loc[ORACLE, "dev"]), settings.keep)
    chosen = _largest_sufficient(table, settings, required)
    layers = table.loc[[_layer_name(layer) for layer in bench.splits.layout.layers]]
    thresholds = table.loc[[ORACLE, *(_threshold_name(threshold) for threshold in settings.thresholds)]]
    rankings = {"lca": _ranked(scores[ORACLE])} | (
        {} if chosen is None else {"lca clustered": _ranked(scores[_threshold_name(chosen)])}
    )
    oracle = next(probed.dev.value for probed in scores[ORACLE] if probed.target == TASK)
    return Run(
        "redundancy",
        # A minimal set is searched with the first seed alone, so it is compared with that seed's oracle.
        {"required of the first seed": keep_share(oracle, settings.keep)},
        {"required on dev": required, "threshold": chosen, "baselines": bench.baselines()},
        {
            "layers": _with_scores(tables["layers"], layers, required),
            "thresholds": _with_scores(tables["thresholds"], thresholds, required),
        },
        rankings,
    )


def score_subsets(
    bench: Bench, subsets: Subsets, settings: Settings, penalty: Penalty, say: Callable[[str], object]
) -> dict[str, list[Probed]]:
    """Train every subset × (task, control task) × seed in one battery, and score all on dev and test."""
    seeds = range(settings.seed, settings.seed + settings.seeds)
    keys = [(name, target, seed) for name in subsets for target in bench.targets for seed in seeds]
    probes = [Probe(target, subsets[name](seed), penalty.l1, penalty.l2, seed) for name, target, seed in keys]
    say(f"{bench.estimate(probes)}.")
    trained = bench.train(probes)
    held_out = zip(keys, bench.score(trained, "dev"), bench.score(trained, "test"), strict=True)
    found: dict[str, list[Probed]] = {name: [] for name in subsets}
    for (name, target, _), dev, test in held_out:
        found[name].append(Probed(target, dev, test))
    return found


@dataclass(frozen=True, eq=False)
class Probed:
    """One probe of a subset: what it predicts, and its scores."""

    target: str
    dev: Score
    test: Score


def score_table(bench: Bench, scores: Mapping[str, Sequence[Probed]]) -> pd.DataFrame:
    """One row for each subset: neurons, mean over seeds on dev and test, interval, deviation, control task."""
    return pd.DataFrame({name: _row(bench, probed) for name, probed in scores.items()}).T.infer_objects()


def _row(bench: Bench, probed: Sequence[Probed]) -> dict[str, Any]:
    task = [p for p in probed if p.target == TASK]
    control = [p.test.value for p in probed if p.target == CONTROL]
    values = [p.test.value for p in task]
    interval = bench.interval([p.test for p in task], "test")
    remembered = float(np.mean(control)) if control else np.nan
    return {
        "neurons": len(task[0].test.probe.neurons),
        "dev": float(np.mean([p.dev.value for p in task])),
        "test": float(np.mean(values)),
        "low": float(interval.low),
        "high": float(interval.high),
        "sd": float(np.std(values, ddof=1)) if len(values) > 1 else np.nan,
        "control": remembered,
        "selectivity": float(np.mean(values)) - remembered,
    }


def _subsets(bench: Bench, neurons: pd.DataFrame, settings: Settings) -> Subsets:
    layout = bench.splits.layout
    found: dict[str, Callable[[int], Columns | None]] = {ORACLE: lambda seed: None}
    for layer in layout.layers:
        found[_layer_name(layer)] = lambda seed, layer=layer: layout.layer_slice(layer)
    for threshold in settings.thresholds:
        found[_threshold_name(threshold)] = lambda seed, threshold=threshold: representatives(
            neurons, threshold, settings.representatives, seed
        )
    return found


def _layer_name(layer: int) -> str:
    return f"layer {layer}"


def _threshold_name(threshold: float) -> str:
    return f"threshold {threshold:g}"


def _largest_sufficient(table: pd.DataFrame, settings: Settings, required: float) -> float | None:
    enough = [t for t in settings.thresholds if table.loc[_threshold_name(t), "dev"] >= required]
    return max(enough, default=None)


def _ranked(probed: Sequence[Probed]) -> Int[np.ndarray, " neuron"]:
    """The neurons (columns) of a subset's first task probe, by linguistic correlation analysis of its weights."""
    probe = next(p.test.probe for p in probed if p.target == TASK)
    return probe.neurons[lca_ranking(probe.weight).order]


def _with_scores(table: pd.DataFrame, scores: pd.DataFrame, required: float) -> pd.DataFrame:
    """A table with the scores of its rows, in the same order, and whether each is enough on dev."""
    own = scores[list(SCORE_COLUMNS)].assign(enough=scores["dev"] >= required).reset_index(drop=True)
    return pd.concat([table, own], axis=1)
