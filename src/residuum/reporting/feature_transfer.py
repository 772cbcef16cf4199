"""The section of a `transfer` run: what each step keeps, and accuracy over size with its Pareto front."""

from __future__ import annotations

import numpy as np
import pandas as pd

from residuum.reporting.charts import Series, line_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import interval
from residuum.storage.results import Run

COLUMNS = {
    "steps": ("step", "layer", "neurons", "share", "dev", "test", "low", "high", "parameters", "bytes", "ms"),
    "curve": ("step", "layer", "neurons", "dev", "test", "low", "high", "bytes", "ms", "front neurons", "front ms"),
}
CAPTIONS = {
    "steps": "All neurons (oracle), what each step keeps, and what was written, measured as it is.",
    "curve": "Every set of neurons that was tried; a front has those that no other beats on dev at the same cost.",
    "neurons": "The chosen neurons, the most important first.",
    "costs": "What a network up to each layer costs, with a probe on all its neurons.",
    "seconds": "How long each step took.",
}
SERIES = {"layers": "layers up to", "clusters": "one neuron of each cluster", "neurons": "the most important neurons"}
AXES = {"neurons": "neurons", "bytes": "megabytes of weights", "ms": "milliseconds a text"}


def transfer_section(run: Run, source: str = "") -> Section:
    """How small a model became for a task, and what that cost."""
    check_tables(run, source or "This run", "transfer", "transfer", COLUMNS)
    summary = run.summary
    return Section(
        command=run.command,
        title=f"What does {run.config['model']} need for {summary['task']}?",
        source=source,
        facts=_facts(run),
        findings=tuple(_findings(run)),
        panels=(_curve_panel(run),),
        tables=tuple(
            Table(name, frame, CAPTIONS.get(name, ""), folded=name != "steps") for name, frame in run.tables.items()
        ),
        config=run.config,
        environment=run.environment,
    )


def _facts(run: Run) -> dict[str, str]:
    summary = run.summary
    return {
        "layers": f"{summary['layers']} of {summary['layers before']}",
        "neurons": f"{summary['neurons']:,} ({summary['share of neurons']:.1%})",
        "of the oracle": f"{summary['share of oracle']:.1%}",
        "faster": f"{summary['speed-up'][0]:.1f}×",
    }


def _findings(run: Run) -> list[Finding]:
    summary = run.summary
    steps = run.tables["steps"].set_index("step")
    speed, low, high = summary["speed-up"]
    found = [
        Finding(
            "Size",
            f"{summary['neurons']:,} neurons of the embeddings and {summary['layers']} of {summary['layers before']} "
            f"layers reach {summary['metric']} {summary['score']:.3f} ({interval(*summary['interval'])}); all "
            f"neurons of all layers reach {summary['oracle']:.3f}.",
        ),
        Finding(
            "Speed",
            f"From text to labels it is {speed:.1f} times as fast as the whole model ({low:.1f} to {high:.1f}); the "
            f"classifier alone {summary['classifier speed-up'][0]:.1f} times. Its weights are "
            f"{summary['bytes'] / 1e6:.1f} MB, those of the whole model {steps.loc['oracle', 'bytes'] / 1e6:.1f} MB.",
        ),
    ]
    if not summary["good enough"]:
        found.append(Finding("Not enough", "No set of neurons kept the score that was asked for, so all were kept."))
    if "narrowing" in summary:
        found.append(Finding("Narrowing", _narrowing_text(summary["narrowing"], steps)))
    return found


def _narrowing_text(what: str, steps: pd.DataFrame) -> str:
    if "narrowed" not in steps.index:
        return f"Dropping hidden dimensions was not measured: {what}."
    narrow, saved = steps.loc["narrowed"], steps.loc["as saved"]
    pays = narrow["ms"] < saved["ms"] and narrow["high"] >= saved["test"]  # quicker, and not clearly worse
    return (
        f"With {what}, {narrow['test']:.3f} instead of {saved['test']:.3f}, {narrow['ms']:.2f} ms a text instead of "
        f"{saved['ms']:.2f}: " + ("it pays." if pays else "it does not pay without further training.")
    )


def _curve_panel(run: Run) -> Panel:
    curve, metric = run.tables["curve"], run.summary["metric"]
    views = tuple(View(cost, axis, _curve(curve, cost, axis, metric), table="curve") for cost, axis in AXES.items())
    return Panel(
        "Score over size",
        f"The {metric} on test of every set of neurons that was tried, with 95 % intervals over sentences. The front "
        "was found on dev.",
        views,
        choice="Size in",
    )


def _curve(curve: pd.DataFrame, cost: str, axis: str, metric: str):
    front = f"front {cost}"
    groups = [(name, curve.loc[curve["step"] == step]) for step, name in SERIES.items()]
    groups.append(("Pareto front (on dev)", curve.loc[curve[front]]))
    lines = [_series(name, rows, cost) for name, rows in groups if not rows.empty]
    figure = line_chart(lines, x=axis, y=f"{metric} on test")
    if cost == "neurons":
        figure.update_xaxes(type="log")
    return figure


def _series(name: str, rows: pd.DataFrame, cost: str) -> Series:
    ordered = rows.sort_values([cost, "neurons"])
    scale = 1e-6 if cost == "bytes" else 1.0
    x = (ordered[cost].to_numpy(np.float64) * scale).round(4).tolist()
    return Series(name, x, ordered["test"].tolist(), ordered["low"].tolist(), ordered["high"].tolist())
