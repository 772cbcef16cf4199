"""Task-specific redundancy: what a probe loses when it sees one layer, or one neuron of each cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.maths.probe_stack import Columns
from residuum.maths.probing import Probe
from residuum.maths.rankings import lca_ranking
from residuum.maths.selection import keep_share
from residuum.probing.batteries import CONTROL, TASK, Bench, Score
from residuum.probing.class_tables import class_layer_table, class_table
from residuum.probing.examples import Splits
from residuum.probing.redundancy_general import representatives
from residuum.probing.redundancy_settings import Settings
from residuum.storage.results import Run

ORACLE = "oracle"
SCORE_COLUMNS = ("dev", "test", "low", "high", "sd", "control", "selectivity", "random_twin")


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
    twin: Mapping[str, float],
    say: Callable[[str], object],
) -> Run:
    """Probe all neurons (the oracle), each layer, and the representatives at each threshold, in one battery.

    Every probe is trained on the task and the control task with every seed, chosen on dev, reported on test; the
    scores, and those of the random `twin`, are added to the tables `layers` and `thresholds` of the general part. The
    oracle and the probe of the largest sufficient threshold also rank their neurons by LCA, for the minimal sets.
    """
    subsets = _layer_subsets(bench.splits) | _clustered_subsets(tables["neurons"], settings)
    scores = score_subsets(bench, subsets, settings, penalty, say)
    table = score_table(bench, scores, twin)
    on_dev = float(table.loc[ORACLE, "dev"])
    required, of_layers = keep_share(on_dev, settings.keep), keep_share(on_dev, settings.keep_layers)
    chosen = _largest_sufficient(table, settings, required)
    layers = table.loc[[_layer_name(layer) for layer in bench.splits.layout.layers]]
    thresholds = table.loc[[ORACLE, *(_threshold_name(threshold) for threshold in settings.cuts)]]
    rankings = {"lca": _ranked(scores[ORACLE])} | (
        {} if chosen is None else {"lca clustered": _ranked(scores[_threshold_name(chosen)])}
    )
    oracle = next(probed.dev.value for probed in scores[ORACLE] if probed.target == TASK)
    return Run(
        "redundancy",
        # A minimal set is searched with the first seed alone, so it is compared with that seed's oracle.
        {"required of the first seed": keep_share(oracle, settings.keep)},
        {
            "metric": "pearson" if bench.splits.regression else "accuracy",
            "required on dev": required,
            "required of layers on dev": of_layers,
            "threshold": chosen,
            "baselines": bench.baselines(),
        },
        {
            "layers": _with_scores(tables["layers"], layers, of_layers),
            "thresholds": _with_scores(tables["thresholds"], thresholds, required),
            **_class_tables(bench, scores, settings),
        },
        rankings,
    )


def probe_twin(bench: Bench, twin: Splits, settings: Settings, penalty: Penalty, say: Callable[[str], object]) -> Run:
    """The test scores of the same probes, on all neurons and each layer, where the model has random weights.

    Nothing is chosen by them, so they have no control task. The twin's features are gone before the model's are read.
    """
    own, subsets = replace(bench, splits=twin), _layer_subsets(twin)
    scores = score_subsets(own, subsets, settings, penalty, lambda line: say(f"Random twin: {line}"), [TASK])
    means = [float(np.mean([probed.test.value for probed in found])) for found in scores.values()]
    return Run("redundancy", {}, {}, {"twin": pd.DataFrame({"set": list(scores), "score": means})})


def score_subsets(
    bench: Bench,
    subsets: Subsets,
    settings: Settings,
    penalty: Penalty,
    say: Callable[[str], object],
    targets: Sequence[str] | None = None,
) -> dict[str, list[Probed]]:
    """Train every subset × target (task and control task) × seed in one battery, and score all on dev and test."""
    seeds = range(settings.seed, settings.seed + settings.seeds)
    keys = [(name, target, seed) for name in subsets for target in targets or bench.targets for seed in seeds]
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


def score_table(
    bench: Bench, scores: Mapping[str, Sequence[Probed]], twin: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """One row for each subset: neurons, mean over seeds on dev and test, interval, deviation, control task, twin."""
    rows = {
        name: _row(bench, found) | {"random_twin": (twin or {}).get(name, np.nan)} for name, found in scores.items()
    }
    return pd.DataFrame(rows).T.infer_objects()


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


def _layer_subsets(splits: Splits) -> dict[str, Callable[[int], Columns | None]]:
    layout = splits.layout
    found: dict[str, Callable[[int], Columns | None]] = {ORACLE: lambda seed: None}
    for layer in layout.layers:
        found[_layer_name(layer)] = lambda seed, layer=layer: layout.layer_slice(layer)
    return found


def _clustered_subsets(neurons: pd.DataFrame, settings: Settings) -> dict[str, Callable[[int], Columns | None]]:
    found: dict[str, Callable[[int], Columns | None]] = {}
    for threshold in settings.cuts:
        found[_threshold_name(threshold)] = lambda seed, threshold=threshold: representatives(
            neurons, threshold, settings.representatives, seed
        )
    return found


def _layer_name(layer: int) -> str:
    return f"layer {layer}"


def _threshold_name(threshold: float) -> str:
    return f"threshold {threshold:g}"


def _largest_sufficient(table: pd.DataFrame, settings: Settings, required: float) -> float | None:
    enough = [t for t in settings.cuts if table.loc[_threshold_name(t), "dev"] >= required]
    return max(enough, default=None)


def _ranked(probed: Sequence[Probed]) -> Int[np.ndarray, " neuron"]:
    """The neurons (columns) of a subset's first task probe, by linguistic correlation analysis of its weights."""
    probe = next(p.test.probe for p in probed if p.target == TASK)
    return probe.neurons[lca_ranking(probe.weight).order]


def _class_tables(bench: Bench, scores: Mapping[str, Sequence[Probed]], settings: Settings) -> dict[str, pd.DataFrame]:
    """How well each layer finds each class, and which are enough for it; nothing where numbers are predicted."""
    if bench.splits.regression:
        return {}
    layers = {_layer_name(layer): layer for layer in bench.splits.layout.layers} | {ORACLE: None}
    task = {name: [probed for probed in scores[name] if probed.target == TASK] for name in layers}
    dev, test = ({name: [getattr(p, part) for p in own] for name, own in task.items()} for part in ("dev", "test"))
    classes = class_table(layers, bench.targets[TASK].classes, dev, test, settings.keep_layers)
    return {"classes": classes, "class_layers": class_layer_table(classes)}


def _with_scores(table: pd.DataFrame, scores: pd.DataFrame, required: float) -> pd.DataFrame:
    """A table with the scores of its rows, in the same order, and whether each is enough on dev."""
    own = scores[list(SCORE_COLUMNS)].assign(enough=scores["dev"] >= required).reset_index(drop=True)
    return pd.concat([table, own], axis=1)
