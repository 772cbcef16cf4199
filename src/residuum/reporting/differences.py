"""The section of `diff`: what became of a model's knowledge, its salient neurons and its similarity to the base."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.charts import Series, line_chart, lines, square, value_map
from residuum.reporting.content import Finding, Panel, Row, Section, TableSpec, View, records, views_by
from residuum.reporting.similarity import CURVE_COLUMNS, PAIR_COLUMNS, curve_panel, measure_views, similarity_views
from residuum.reporting.wording import count, listed, main_measure, measure_term, with_interval
from residuum.storage.results import Run

DIFF_TABLES = {
    "models": TableSpec("The models; the first is the base.", "model, blocks, layers, neurons"),
    "change": TableSpec(
        "Each layer's score beside the base's at the same relative depth, and the paired difference.",
        "task, model, features, layer, base_layer, depth, score, base, change, low, high",
    ),
    "minimal": TableSpec(
        "All neurons beside the smallest set that keeps their score.",
        "task, model, set, neurons, share, accuracy, selectivity",
    ),
    "selection": TableSpec(
        "Only the top or bottom neurons: kept in the probe on all neurons, and with a new probe.",
        "task, model, share, set, neurons, kept, retrained",
    ),
    "likeness": TableSpec(
        "Each layer's similarity to the base at the same relative depth, and the most similar layer of the base.",
        "measure, model, layer, depth, value, low, high, closest_layer, closest",
    ),
    "scores": TableSpec(
        "Every layer of every model, with control task and selectivity.",
        "task, model, features, layer, depth, score, low, high, selectivity",
    ),
    "spread": TableSpec("Salient neurons per layer.", "task, model, set, layer, depth, neurons, share"),
    "properties": TableSpec(
        "The neurons with the largest weights for each class.", "task, model, label, rank, neuron, layer, depth, share"
    ),
    "baselines": TableSpec("Scores without the model."),
    "thresholds": TableSpec("Neurons left at each clustering threshold.", "model, threshold, neurons, share"),
    "survivors": TableSpec(
        "Neurons left in each layer at each clustering threshold, by the rule that chooses them.",
        "model, threshold, layer, depth, neurons, medoid",
    ),
    "similarity": TableSpec("Every pair of layers by every measure.", PAIR_COLUMNS),
    "curves": TableSpec("Curves of one value per layer.", (*CURVE_COLUMNS, "depth")),
}
DEPTH = "relative depth (0 embeddings, 1 last layer)"
CURVES = ("localization", "layer_average")


def difference_section(run: Run) -> Section:
    """What fine-tuning, pruning or distillation changed in a model."""
    base, *others = run.tables["models"]["model"].tolist()
    made = listed(others) if len(others) <= 3 else f"these {len(others)} models"
    whole = [row for row in records(run.tables["change"]) if pd.isna(row["layer"])]
    most = max(whole, key=lambda row: abs(row["change"]), default=None)
    return Section(
        title=f"What changed from {base} to {made}?",
        facts={
            **({f"change in {most['task']} accuracy, {most['model']}": f"{most['change']:+.3f}"} if most else {}),
            **{key: run.summary.get(key) for key in ("models", "tasks", "words")},
            "neurons": sum(run.tables["models"]["neurons"].tolist()),
        },
        findings=_findings(run, base, others),
        panels=_panels(run, base),
    )


def _findings(run: Run, base: str, others: list[str]) -> Iterator[Finding]:
    tables = run.tables
    for model in others:
        yield Finding(f"{model}: knowledge", _knowledge_text(records(tables["change"], model=model)))
        yield Finding(f"{model}: neurons", _neuron_text(tables, base, model))
        measure = main_measure(tables["likeness"]["measure"])
        least = min(records(tables["likeness"], model=model, measure=measure), key=lambda row: row["value"])
        yield Finding(
            f"{model}: similarity",
            f"{measure_term(measure).title} with {base} at the same depth is lowest in layer {least['layer']}: "
            f"{least['value']:.3f}. This layer is most similar to layer {least['closest_layer']} of {base} "
            f"({least['closest']:.3f}).",
        )
    sizes = [
        f"{row['model']} ({row['blocks']} layers, {row['neurons']:,} neurons)" for row in records(tables["models"])
    ]
    over = f" over {count(run.summary['words'], 'word')}" if "words" in run.summary else ""
    tasks = listed(tables["scores"]["task"].unique().tolist())
    yield Finding("Compared", f"{listed(sizes)} were probed for {tasks}{over}; the first is the base.")


def _knowledge_text(rows: list[Row]) -> str:
    """The change of all layers together, and of single layers."""
    whole, layers = ([row for row in rows if pd.isna(row["layer"]) == is_whole] for is_whole in (True, False))
    parts = [f"{row['task']} {with_interval(row['change'], row['low'], row['high'], '+.3f')}" for row in whole]
    text = f"Change in accuracy with all layers together: {'; '.join(parts)}."
    if all(row["change"] == 0 for row in layers):
        return f"{text} The accuracy of every layer equals that of the base."
    most = max(layers, key=lambda row: abs(row["change"]))
    clear = sum(row["low"] > 0 or row["high"] < 0 for row in layers)
    halves = {"lower": [], "upper": []}
    for row in layers:
        halves["lower" if row["depth"] <= 0.5 else "upper"].append(row["change"])
    means = [f"{np.mean(changes):+.3f} in the {half} half" for half, changes in halves.items() if changes]
    return (
        f"{text} Among single layers, layer {most['layer']} changed most ({most['task']} {most['change']:+.3f}); the "
        f"mean change is {listed(means)}; {clear} of {len(layers)} intervals exclude zero."
    )


def _neuron_text(tables: Mapping[str, pd.DataFrame], base: str, model: str) -> str:
    """The minimal sets before and after: their size and depth, and how many neurons clustering leaves."""
    sizes = {(row["model"], row["task"]): row["neurons"] for row in records(tables["minimal"], set="minimal")}
    depths: dict[tuple[str, str], float] = {}
    for row in records(tables["spread"], set="minimal"):
        key = row["model"], row["task"]
        depths[key] = depths.get(key, 0.0) + row["depth"] * row["share"]
    tasks = tables["minimal"]["task"].unique().tolist()
    changes = [f"{task} {sizes[base, task]:,} → {sizes[model, task]:,}" for task in tasks]
    moves = [f"{task} {depths.get((base, task), 0):.2f} → {depths.get((model, task), 0):.2f}" for task in tasks]
    threshold = min(tables["thresholds"]["threshold"].unique().tolist(), key=lambda value: abs(value - 0.3))
    share = {row["model"]: row["share"] for row in records(tables["thresholds"], threshold=threshold)}
    return (
        f"Neurons of the minimal set: {', '.join(changes)}. Their mean relative depth: {', '.join(moves)}. At the "
        f"clustering threshold {threshold:g}, {share[model]:.0%} of neurons are left ({base}: {share[base]:.0%})."
    )


def _panels(run: Run, base: str) -> Iterator[Panel]:
    tables = run.tables

    def selection(rows: pd.DataFrame) -> go.Figure:
        labels = [f"{row['set']} {row['share']:.0%}" for row in records(rows)]
        table = square(rows.assign(neurons=labels), "model", "neurons", "retrained")
        return value_map(table, x="neurons", y="model", colours="accuracy")

    def likeness(rows: pd.DataFrame) -> go.Figure:
        series = [_base_line(base, 1.0), *_depth_lines(rows, "value")]
        return _depth_chart(series, y=measure_term(rows["measure"].iloc[0]).title)

    yield _task_panel(
        "Accuracy of each layer",
        "Accuracy of a probe on each layer alone; layers are aligned by relative depth. Bands are intervals over "
        "sentences.",
        "scores",
        tables["scores"].loc[tables["scores"]["layer"].notna()],
        lambda rows: _depth_chart(_depth_lines(rows, "score"), y="accuracy"),
        having=("layer",),
    )
    yield _task_panel(
        "Change from the base, layer by layer",
        "The score of a layer minus that of the base at the same relative depth (interpolated between two layers of "
        "the base). Bands are intervals of the difference over sentences; a band that excludes zero is a clear change.",
        "change",
        tables["change"].loc[tables["change"]["layer"].notna()],
        lambda rows: _depth_chart([_base_line(base, 0.0), *_depth_lines(rows, "change")], y="change in accuracy"),
        having=("layer",),
    )
    yield from _spread_panels(tables["spread"])
    yield _task_panel(
        "Accuracy of the top and of the bottom neurons",
        "A new probe on only the top or bottom neurons of the ranking. Where the bottom does nearly as well as the "
        "top, the knowledge is distributed over the network.",
        "selection",
        tables["selection"],
        selection,
    )
    first = main_measure(tables["similarity"]["measure"])
    yield Panel(
        "Similarity of all layers of all models",
        "A cell compares the layer of its row with the layer of its column. A copy of the base has ones on the "
        "diagonal; training lowers them.",
        similarity_views(tables["similarity"]),
        first=first,
        shape="square",
    )
    yield Panel(
        "Similarity of each layer to the base",
        "Similarity of a layer to the base at the same relative depth. A low value means that the layer changed much.",
        measure_views(tables["likeness"], "likeness", likeness),
        first=first,
    )
    for curve in CURVES:
        if curve in set(tables["curves"]["curve"]):
            yield curve_panel(tables["curves"], curve, _depth_chart, x="depth")
    yield _survivor_panel(tables["thresholds"], tables["survivors"])


def _task_panel(
    title: str,
    caption: str,
    table: str,
    frame: pd.DataFrame,
    draw: Callable[[pd.DataFrame], go.Figure],
    where: dict[str, str] | None = None,
    having: tuple[str, ...] = (),
) -> Panel:
    """One view per task; the reader's choice of a task applies to all of these panels."""
    views = views_by("task", frame, table, draw, prefix="task ", where=where, having=having)
    return Panel(title, caption, views, choice="Task")


def _depth_chart(series: list[Series], *, y: str, from_zero: bool = False) -> go.Figure:
    return line_chart(series, x=DEPTH, y=y, from_zero=from_zero)


def _depth_lines(rows: pd.DataFrame, column: str, *, bounds: bool = True) -> list[Series]:
    return lines(rows, "depth", column, "model", bounds=("low", "high") if bounds else None)


def _base_line(base: str, value: float) -> Series:
    """The base's constant line, which also keeps the colours of the other panels."""
    return Series(base, [0.0, 1.0], [value, value])


def _spread_panels(table: pd.DataFrame) -> Iterator[Panel]:
    """The layers of the minimal sets, and of the most salient neurons, the same share in every model."""
    sets = {
        "minimal": (
            "Layers of the minimal set",
            "How the minimal set, the fewest neurons whose probe keeps the score, is distributed over the layers.",
        )
    }
    if tops := [name for name in table["set"].unique() if name.startswith("top ")]:
        largest = max(tops, key=lambda name: float(name.removeprefix("top ")))
        share = f"{float(largest.removeprefix('top ')):.0%}"
        sets[largest] = (
            f"Layers of the most salient {share}",
            f"How the first {share} of the ranking are distributed over the layers, the same share in every model.",
        )
    for name, (title, caption) in sets.items():
        yield _task_panel(
            title,
            caption,
            "spread",
            table.loc[table["set"] == name],
            lambda rows: _depth_chart(_depth_lines(rows, "share", bounds=False), y="share of the set", from_zero=True),
            where={"set": name},
        )


def _survivor_panel(thresholds: pd.DataFrame, survivors: pd.DataFrame) -> Panel:
    whole = lines(thresholds, "threshold", "share", "model", bounds=None)
    shares = survivors.assign(share=survivors["medoid"] / survivors["neurons"])
    by_layer = views_by(
        "threshold",
        shares.loc[shares["threshold"] > shares["threshold"].min()],
        "survivors",
        lambda rows: _depth_chart(_depth_lines(rows, "share", bounds=False), y="share kept", from_zero=True),
        label=lambda threshold: f"By layer, threshold {threshold:g}",
    )
    figure = line_chart(whole, x="clustering threshold", y="share kept")
    return Panel(
        "Neurons left by clustering",
        "Neurons are clustered by 1 − |correlation|; the medoid of each cluster is kept. The fewer are left, the more "
        "a model repeats itself.",
        (View("all", "All layers", figure, "thresholds"), *by_layer),
        choice="Shown",
    )
