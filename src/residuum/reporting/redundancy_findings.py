"""What a `redundancy` run found, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from residuum.reporting.content import Finding
from residuum.reporting.probing import class_text
from residuum.reporting.wording import CONFIDENCE, count, interval, layer_range, shown
from residuum.storage.results import Run


def redundancy_findings(run: Run) -> Iterator[Finding]:
    """The findings for the front of the page, the general ones first."""
    yield _neurons_left(run)
    if not run.tables["windows"].empty:
        yield _reach(run.tables["windows"], float(run.config.get("focus", 0.3)))
    if constant := run.summary.get("constant neurons"):
        yield _constant(constant, own_clusters=run.config.get("clusters") != "kmeans")
    if "agreement" in run.tables:
        yield _agreement(run.tables["agreement"])
    if "reduction" in run.tables:
        yield _enough_layers(run)
        if "class_layers" in run.tables:
            yield Finding("Classes", class_text(run.tables["class_layers"]))
        yield from _reduced(run)
    yield from (Finding("Data", f"{note}.") for note in run.config.get("notes", []))


def _neurons_left(run: Run) -> Finding:
    table = run.tables["thresholds"].set_index("threshold")
    middle = table.index[len(table) // 2]
    own, total = table.loc[middle], int(table["neurons"].iloc[0])
    return Finding(
        "Neurons that repeat others",
        f"Of {count(total, 'neuron')}, {int(own['neurons']):,} ({own['share']:.0%}) are left at the threshold "
        f"{middle:g}; the largest cluster there has {count(int(own['largest cluster']), 'neuron')}.",
    )


def _constant(n: int, own_clusters: bool) -> Finding:
    text = f"{count(n, 'neuron')} never vary over the corpus. They correlate with nothing"
    if own_clusters:
        text += ", so each of them is a cluster of its own and is counted among the neurons left"
    return Finding("Constant neurons", f"{text}.")


def _reach(windows: pd.DataFrame, focus: float) -> Finding:
    nearest = min(windows["threshold"].unique(), key=lambda threshold: abs(threshold - focus))
    own = windows.loc[windows["threshold"] == nearest]
    shares: dict[str, float] = dict(zip(own["window"], own["share of groups"], strict=True))
    if not any(shares.values()):
        return Finding("Where they are repeated", f"At the threshold {nearest:g} no two neurons form a cluster.")
    near = shares["1"] + shares["2"]
    return Finding(
        "Where they are repeated",
        f"At the threshold {nearest:g}, {near:.0%} of the clusters with two neurons or more lie within one layer or "
        f"two neighbouring ones, {shares['further']:.0%} reach over more than three layers.",
    )


def _agreement(table: pd.DataFrame) -> Finding:
    parts = [f"{row['method']} {row['agreement']:.2f} at {row['threshold']:g}" for row in _records(table)]
    return Finding("Other ways to cluster", f"Adjusted Rand index with the same distances: {', '.join(parts)}.")


def _enough_layers(run: Run) -> Finding:
    layers = run.tables["layers"]
    enough = layers.loc[layers["enough"], "layer"].tolist()
    keep = float(run.config.get("keep_layers", 0.99))
    if not enough:
        return Finding("Layers", f"No layer alone keeps {keep:.0%} of the score of all layers (on dev).")
    return Finding(
        "Layers",
        f"{len(enough)} of {count(len(layers), 'layer')} keep {keep:.0%} of the score of all layers alone: "
        f"{layer_range(enough)} (chosen on dev).",
    )


def _reduced(run: Run) -> Iterator[Finding]:
    rows = _records(run.tables["reduction"])
    oracle = rows[0]
    beside = [f"{name} {shown(value)}" for name, value in run.summary.get("baselines", {}).items()]
    bounds = interval(oracle["low"], oracle["high"])
    yield Finding(
        "All neurons",
        f"A probe on all {oracle['neurons']:,} neurons scores {oracle['test']:.3f} on test"
        + (f" ({CONFIDENCE} interval {bounds})" if bounds else "")
        + (f"; control task {oracle['control']:.3f}" if _is_number(oracle["control"]) else "")
        + (f"; random twin {oracle['random_twin']:.3f}" if _is_number(oracle.get("random_twin")) else "")
        + (f"; without activations: {', '.join(beside)}" if beside else "")
        + ".",
    )
    for row in rows[1:]:
        verdict = "" if row["enough"] else ", not quite enough on dev"
        yield Finding(
            str(row["set"]).capitalize(),
            f"{count(row['neurons'], 'neuron')} ({row['share']:.1%}): {row['test']:.3f} on test, "
            f"{row['test'] - oracle['test']:+.3f} against all neurons{verdict}.",
        )


def _is_number(value: Any) -> bool:
    return value is not None and not np.isnan(value)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return table.to_dict("records")  # pyright: ignore[reportReturnType]
