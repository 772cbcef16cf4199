"""The tables of `probe`: what each set of neurons scores, and for which classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from residuum.maths.description_length import DescriptionLength
from residuum.maths.penalty_search import PenaltyScore
from residuum.maths.probe_scores import selectivity
from residuum.maths.probing import Probe
from residuum.maths.selection import keep_share
from residuum.probing import class_tables
from residuum.probing.batteries import CONTROL, TASK, Bench
from residuum.probing.measuring import ALL, Measurement, NeuronSet


def score_table(
    sets: Sequence[NeuronSet], dev: Measurement, test: Measurement, twin: Mapping[str, float], keep: float
) -> pd.DataFrame:
    """A row for each set of neurons: scores on test, and whether dev says that the set is enough."""
    required = keep_share(dev.mean(ALL), keep)
    oracle = test.mean(ALL)
    rows = [
        {
            "kind": one.kind,
            "features": one.name,
            "layer": one.layer,
            "layers": ",".join(map(str, one.layers)),
            "neurons": one.n_neurons,
            **score_columns(test, one.name),
            "random_twin": twin.get(one.name, np.nan),
            "dev": dev.mean(one.name),
            "share_of_oracle": test.mean(one.name) / oracle if oracle else np.nan,
            "sufficient": dev.mean(one.name) >= required,
        }
        for one in sets
    ]
    return pd.DataFrame(rows).astype({"layer": "Int64"})


def score_columns(measured: Measurement, name: str) -> dict[str, float]:
    """Mean over seeds, deviation, interval over sentences, control task and selectivity of one set of neurons."""
    interval = measured.interval(name)
    task, control = measured.mean(name), measured.mean(name, CONTROL)
    return {
        "score": task,
        "sd": measured.deviation(name),
        "low": float(interval.low),
        "high": float(interval.high),
        "control": control,
        "control_sd": measured.deviation(name, CONTROL),
        "selectivity": selectivity(task, control),
    }


def class_table(sets: Sequence[NeuronSet], dev: Measurement, test: Measurement, keep: float) -> pd.DataFrame:
    """A row for each class and set of neurons (single layers and all of them)."""
    on_dev, on_test = ({one.name: found.scores[one.name, TASK] for one in sets} for found in (dev, test))
    layers = {one.name: one.layer for one in sets}
    return class_tables.class_table(layers, test.bench.targets[TASK].classes, on_dev, on_test, keep)


def unseen_table(bench: Bench, part: str = "test") -> pd.DataFrame:
    """The labels of a part that training never saw, and how many examples have them; they count as errors."""
    labels = getattr(bench.splits, part).labels
    seen = set(bench.targets["task"].classes)
    counts = Counter(label for label in labels if label not in seen)
    return pd.DataFrame(counts.most_common(), columns=["label", "examples"]).astype({"examples": int})


def penalty_table(grid: Sequence[PenaltyScore], chosen: PenaltyScore) -> pd.DataFrame:
    """The λ grid, with the merit by which the chosen cell is best."""
    unpenalised = next(cell.accuracy for cell in grid if cell.l1 == cell.l2 == 0)
    return pd.DataFrame(
        {
            "l1": [cell.l1 for cell in grid],
            "l2": [cell.l2 for cell in grid],
            "accuracy": [cell.accuracy for cell in grid],
            "top": [cell.top for cell in grid],
            "bottom": [cell.bottom for cell in grid],
            "merit": [cell.merit(unpenalised) for cell in grid],
            "chosen": [cell == chosen for cell in grid],
        }
    )


def description_table(
    sets: Sequence[NeuronSet], probes: Sequence[Probe], found: Sequence[DescriptionLength]
) -> pd.DataFrame:
    """Bits to send the training labels given each set of neurons; `probes` are those of the sets, targets inside."""
    names = [one.name for one in sets for _ in range(len(probes) // len(sets))]
    return pd.DataFrame(
        {
            "features": names,
            "target": [probe.target for probe in probes],
            "online_bits": [length.online_bits for length in found],
            "uniform_bits": [length.uniform_bits for length in found],
            "compression": [length.compression for length in found],
        }
    )
