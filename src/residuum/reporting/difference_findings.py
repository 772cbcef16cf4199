"""What a `diff` run found, in sentences with the numbers in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from residuum.reporting.content import Finding
from residuum.reporting.measures import main_measure, measure_term
from residuum.reporting.wording import CONFIDENCE, count, interval, listed
from residuum.storage.results import Run

Row = dict[str, Any]


def difference_findings(run: Run) -> list[Finding]:
    """The change of every model, where it is largest, where the neurons that matter went, and what is repeated."""
    base, *others = run.tables["models"]["model"].tolist()
    found = [Finding("Compared", _scope(run))]
    for model in others:
        found += _model_findings(run, base, model)
    if left_out := run.summary.get("left out"):
        found.append(Finding("Left out", f"{left_out}."))
    return found + [Finding("Data", f"{note}.") for note in run.summary.get("notes", [])]


def _scope(run: Run) -> str:
    models = run.tables["models"].to_dict("records")
    sizes = listed([f"{row['model']} ({row['blocks']} layers, {row['neurons']:,} neurons)" for row in models])
    tasks = run.tables["scores"]["task"].unique().tolist()
    over = f" over {count(run.summary['words'], 'word')}" if "words" in run.summary else ""
    return f"{sizes} were probed for {listed(tasks)}{over}; the first is the base."


def _model_findings(run: Run, base: str, model: str) -> list[Finding]:
    tables = run.tables
    rows = _records(tables["change"], model=model)
    neurons = (_minimal(tables["minimal"], base, model), _spread(tables["spread"], base, model))
    return [
        Finding(f"{model}: knowledge", f"{_overall(rows)} {_layers(rows)}"),
        Finding(f"{model}: neurons", " ".join([*neurons, _survivors(tables["thresholds"], base, model)])),
        Finding(f"{model}: likeness", _likeness(tables["likeness"], base, model)),
    ]


def _overall(rows: list[Row]) -> str:
    parts = [
        f"{row['task']} {row['change']:+.3f} ({CONFIDENCE} interval {interval(row['low'], row['high'])})"
        for row in rows
        if pd.isna(row["layer"])
    ]
    return f"With all layers together accuracy changed by: {'; '.join(parts)}."


def _layers(rows: list[Row]) -> str:
    layers = [row for row in rows if not pd.isna(row["layer"])]
    if all(row["change"] == 0 for row in layers):
        return "No layer's accuracy differs from the base's by anything."
    most = max(layers, key=lambda row: abs(row["change"]))
    sure = [row for row in layers if row["low"] > 0 or row["high"] < 0]
    halves = [f"{half} half {_mean(own):+.3f}" for half, own in _halves(layers).items() if own]
    return (
        f"Of single layers, layer {most['layer']} changed most ({most['task']} {most['change']:+.3f}); the mean change "
        f"is {listed(halves)}; {len(sure)} of {len(layers)} changes have intervals that exclude zero."
    )


def _halves(layers: list[Row]) -> dict[str, list[Row]]:
    return {
        "in the lower": [row for row in layers if row["depth"] <= 0.5],
        "in the upper": [row for row in layers if row["depth"] > 0.5],
    }


def _mean(rows: list[Row]) -> float:
    return float(np.mean([row["change"] for row in rows]))


def _spread(spread: pd.DataFrame, base: str, model: str) -> str:
    tasks = spread["task"].unique().tolist()
    before, after = (_mean_depths(spread, name) for name in (base, model))
    parts = [f"{task} {before[task]:.2f} → {after[task]:.2f}" for task in tasks]
    return f"The mean relative depth of the minimal set moved: {', '.join(parts)}."


def _mean_depths(spread: pd.DataFrame, model: str) -> dict[str, float]:
    """For each task how deep the neurons of the minimal set lie on average."""
    depths: dict[str, float] = {}
    for row in _records(spread, model=model, set="minimal"):
        depths[row["task"]] = depths.get(row["task"], 0.0) + row["depth"] * row["share"]
    return depths


def _minimal(minimal: pd.DataFrame, base: str, model: str) -> str:
    sizes = {(row["model"], row["task"]): row for row in _records(minimal, set="minimal")}
    parts = [
        f"{task} {sizes[base, task]['neurons']:,} → {sizes[model, task]['neurons']:,}"
        for task in minimal["task"].unique().tolist()
    ]
    return f"Neurons of the minimal set: {', '.join(parts)}."


def _likeness(likeness: pd.DataFrame, base: str, model: str) -> str:
    measure = main_measure(likeness["measure"])
    rows = _records(likeness, model=model, measure=measure)
    least = min(rows, key=lambda row: row["value"])
    return (
        f"By {measure_term(measure).title}, layer {least['layer']} is the least like {base} at its depth "
        f"({least['value']:.3f}), and most like layer {least['closest_layer']} of it ({least['closest']:.3f})."
    )


def _survivors(thresholds: pd.DataFrame, base: str, model: str) -> str:
    levels = thresholds["threshold"].unique().tolist()
    level = min(levels, key=lambda threshold: abs(threshold - 0.3))
    share = {row["model"]: row["share"] for row in thresholds.to_dict("records") if row["threshold"] == level}
    return f"At the clustering threshold {level:g}, {share[model]:.0%} of neurons are left ({base}: {share[base]:.0%})."


def _records(table: pd.DataFrame, **where: str) -> list[Row]:
    for column, wanted in where.items():
        table = table.loc[table[column] == wanted]
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
