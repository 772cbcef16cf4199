"""The tables of `probe`: what each set of neurons scores, and for which classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from residuum.batteries import CONTROL, Bench
from residuum.maths.description_length import DescriptionLength
from residuum.maths.penalty_search import PenaltyScore
from residuum.maths.probe_scores import ClassScores, selectivity
from residuum.maths.probing import Probe
from residuum.maths.selection import keep_share, sufficient_classes
from residuum.probes.measuring import ALL, Measurement, NeuronSet


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
    """A row for each class and set of neurons: precision, recall and F1 on test, means over seeds.

    A class counts as sufficient where its recall on dev keeps the share of the oracle's.
    """
    classes = test.bench.targets["task"].classes
    oracle = _class_means(dev, ALL)["recall"]
    parts = []
    for one in sets:
        enough = sufficient_classes(_class_means(dev, one.name)["recall"], oracle, keep)
        columns = {"features": one.name, "layer": one.layer, "class": classes, **_class_means(test, one.name)}
        parts.append(pd.DataFrame({**columns, "sufficient": enough}).astype({"layer": "Int64"}))
    return pd.concat(parts, ignore_index=True)


def class_layer_table(classes: pd.DataFrame) -> pd.DataFrame:
    """A row for each class: what the oracle finds of it, and which layers are enough (Dalvi et al. 2020, A.3)."""
    rows: list[dict[str, Any]] = []
    for label, own in classes.groupby("class", sort=False):
        enough = own.loc[own["sufficient"] & own["layer"].notna(), "layer"].tolist()
        oracle = own.loc[own["features"] == ALL].iloc[0]
        rows.append(
            {
                "class": label,
                "support": oracle["support"],
                "oracle_recall": oracle["recall"],
                "lowest_layer": min(enough, default=None),
                "sufficient_layers": ",".join(map(str, enough)),
                "n_sufficient": len(enough),
            }
        )
    return pd.DataFrame(rows).astype({"lowest_layer": "Int64"})


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


def _class_means(measured: Measurement, name: str) -> dict[str, np.ndarray]:
    """Support, and the means over seeds of precision, recall and F1 of each class."""
    scores = [s.details for s in measured.scores[name, "task"] if isinstance(s.details, ClassScores)]
    means = {key: np.mean([getattr(s, key) for s in scores], axis=0) for key in ("precision", "recall", "f1")}
    return {"support": scores[0].support, **means}
