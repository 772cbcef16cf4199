"""The section of a `diff` run: what became of a model's knowledge, its salient neurons and its likeness to the base."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.charts import Series, line_chart, value_map
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Panel, Section, Table, View
from residuum.reporting.difference_findings import difference_findings
from residuum.reporting.figures import CURVE_COLUMNS, PAIR_COLUMNS
from residuum.reporting.measures import curve_term, main_measure, measure_group, measure_term
from residuum.reporting.similarity_views import similarity_views
from residuum.reporting.wording import listed
from residuum.storage.results import Run

COLUMNS = {
    "change": ("task", "model", "features", "layer", "base_layer", "depth", "score", "base", "change", "low", "high"),
    "scores": ("task", "model", "features", "layer", "depth", "score", "low", "high", "selectivity"),
    "selection": ("task", "model", "share", "set", "neurons", "kept", "retrained"),
    "minimal": ("task", "model", "set", "neurons", "share", "accuracy", "selectivity"),
    "spread": ("task", "model", "set", "layer", "depth", "neurons", "share"),
    "properties": ("task", "model", "label", "rank", "neuron", "layer", "depth", "share"),
    "similarity": PAIR_COLUMNS,
    "likeness": ("measure", "model", "layer", "depth", "value", "low", "high", "closest_layer", "closest"),
    "curves": (*CURVE_COLUMNS, "depth"),
    "survivors": ("model", "threshold", "layer", "depth", "neurons", "medoid"),
    "thresholds": ("model", "threshold", "neurons", "share"),
    "models": ("model", "blocks", "layers", "neurons"),
}
CAPTIONS = {
    "models": "The models; the first is the base.",
    "change": "Each layer's score beside the base's at the same relative depth, and the paired difference.",
    "minimal": "All neurons beside the smallest set that keeps their score.",
    "selection": "Only the top or bottom neurons: kept in the probe of all neurons, and with a probe of their own.",
    "likeness": "Each layer's likeness to the base at the same relative depth, and the base's layer most like it.",
    "scores": "Every layer of every model, with control task and selectivity.",
    "spread": "How many salient neurons lie in each layer.",
    "properties": "The neurons with the largest weights for each class.",
    "baselines": "What is right without the model.",
    "thresholds": "Neurons left at each clustering threshold.",
    "survivors": "Neurons left in each layer at each clustering threshold, by the rule that picks them.",
    "similarity": "Every pair of layers by every measure.",
    "curves": "Curves of one value a layer.",
}
SHOWN = ("models", "change", "minimal", "selection")
DEPTH = "relative depth (0 embeddings, 1 last layer)"
CURVES = ("localization", "layer_average")


def difference_section(run: Run, source: str = "") -> Section:
    """What fine-tuning, pruning or distillation did to a model."""
    check_tables(run, source or "This run", "comparison of models with their base", "diff", COLUMNS)
    base, *others = run.tables["models"]["model"].tolist()
    made = listed(others) if len(others) <= 3 else f"these {len(others)} models"
    return Section(
        command=run.command,
        title=f"What changed from {base} to {made}?",
        source=source,
        facts=_facts(run),
        findings=tuple(difference_findings(run)),
        panels=tuple(_panels(run)),
        tables=tuple(
            Table(name, run.tables[name], caption, folded=name not in SHOWN)
            for name, caption in CAPTIONS.items()
            if name in run.tables
        ),
        config=run.config,
        environment=run.environment,
    )


def _facts(run: Run) -> dict[str, str]:
    counts = {key: run.summary[key] for key in ("models", "tasks", "words") if key in run.summary}
    counts["neurons"] = sum(run.tables["models"]["neurons"].tolist())
    return {name: f"{n:,}" for name, n in counts.items()}


def _panels(run: Run) -> list[Panel]:
    tables = run.tables
    base = str(tables["models"]["model"].iloc[0])
    return [
        _task_panel(
            "What do the layers know?",
            "Accuracy of a probe on each layer alone, layers being set beside each other at their relative depth. "
            "Bands are intervals over sentences.",
            tables["scores"],
            "scores",
            _score_figure,
            having=("layer",),
        ),
        _task_panel(
            "What changed from the base, layer by layer?",
            "The score of a layer minus that of the base at the same relative depth (between two layers of the base: "
            "on the line that joins them). Bands are intervals of the difference, over sentences; where a band "
            "does not touch zero, the change is more than chance of which sentences were tested.",
            tables["change"],
            "change",
            partial(_change_figure, base=base),
            having=("layer",),
        ),
        *_spread_panels(tables["spread"]),
        _task_panel(
            "Is the knowledge in few neurons or in all?",
            "A probe of its own on only the top or bottom neurons of the ranking. Where the bottom does nearly as well "
            "as the top, the knowledge is spread over the network.",
            tables["selection"],
            "selection",
            _selection_figure,
        ),
        _similarity_panel(tables["similarity"]),
        _likeness_panel(tables["likeness"], base),
        *_curve_panels(tables["curves"]),
        _survivor_panel(tables["thresholds"], tables["survivors"]),
    ]


def _task_panel(
    title: str,
    caption: str,
    table: pd.DataFrame,
    name: str,
    draw: Callable[[pd.DataFrame], go.Figure],
    where: Mapping[str, str] = MappingProxyType({}),
    having: tuple[str, ...] = (),
) -> Panel:
    """A figure for each task of the rows that it draws; the reader's choice of a task holds for all of these panels."""
    groups = [(str(task), table.loc[table["task"] == task]) for task in table["task"].unique()]
    views = tuple(View(f"task {task}", task, draw(own), name, {"task": task, **where}, having) for task, own in groups)
    return Panel(title, caption, views, choice="Task")


def _score_figure(table: pd.DataFrame) -> go.Figure:
    layers = table.loc[table["layer"].notna()]
    return line_chart(_lines(layers, "score", bounds=True), x=DEPTH, y="accuracy")


def _change_figure(table: pd.DataFrame, base: str) -> go.Figure:
    layers = table.loc[table["layer"].notna()]
    lines = [Series(base, [0.0, 1.0], [0.0, 0.0]), *_lines(layers, "change", bounds=True)]
    return line_chart(lines, x=DEPTH, y="change of accuracy")


def _spread_panels(table: pd.DataFrame) -> list[Panel]:
    """The layers of the most salient neurons, as many in every model, and those of the minimal sets."""
    shown = {
        "minimal": (
            "Where do the neurons that matter lie?",
            "How the minimal set, the fewest neurons whose own probe keeps the score, is spread over the layers.",
        )
    }
    if tops := [name for name in table["set"].unique() if name.startswith("top ")]:
        largest = max(tops, key=lambda name: float(name.removeprefix("top ")))
        share = float(largest.removeprefix("top "))
        shown[largest] = (
            f"Where do the most salient {share:.0%} lie?",
            f"How the {share:.0%} of the neurons that the ranking puts first are spread over the layers. All models "
            "have the same share here, whatever the size of their minimal sets.",
        )
    return [
        _task_panel(title, caption, table, "spread", partial(_spread_figure, chosen=name), where={"set": name})
        for name, (title, caption) in shown.items()
    ]


def _spread_figure(table: pd.DataFrame, chosen: str) -> go.Figure:
    """The share of a set's neurons that each layer has."""
    own = table.loc[table["set"] == chosen]
    return line_chart(_lines(own, "share"), x=DEPTH, y="share of the set")


def _selection_figure(table: pd.DataFrame) -> go.Figure:
    columns = [(share, name) for share in table["share"].unique() for name in ("top", "bottom")]
    models = table["model"].unique().tolist()
    found = {(row["model"], row["share"], row["set"]): row["retrained"] for row in table.to_dict("records")}
    values = [[found[model, *column] for column in columns] for model in models]
    labels = [f"{name} {share:.0%}" for share, name in columns]
    return value_map(values, models, labels, x="neurons", y="model", colours="accuracy")


def _similarity_panel(table: pd.DataFrame) -> Panel:
    return Panel(
        title="How alike are all layers of all models?",
        caption="A cell compares the layer of its row with the layer of its column. A model that was made of the base "
        "without learning keeps a diagonal of ones; what was trained pales where it changed.",
        views=similarity_views(table),
        first=main_measure(table["measure"]),
        shape="square",
    )


def _likeness_panel(table: pd.DataFrame, base: str) -> Panel:
    itself = Series(base, [0.0, 1.0], [1.0, 1.0])  # also keeps the colours of the other panels
    groups = [(str(measure), table.loc[table["measure"] == measure]) for measure in table["measure"].unique()]
    views = tuple(
        View(
            key=measure,
            label=measure_term(measure).title,
            figure=line_chart([itself, *_lines(own, "value", bounds=True)], x=DEPTH, y=measure_term(measure).title),
            table="likeness",
            where={"measure": measure},
            group=measure_group(measure),
        )
        for measure, own in groups
    )
    return Panel(
        title="How far did each layer move from the base?",
        caption="Similarity of a layer to the base at the same relative depth. The lower, the more it changed.",
        views=views,
        first=main_measure(table["measure"]),
    )


def _curve_panels(table: pd.DataFrame) -> list[Panel]:
    return [_curve_panel(curve, own) for curve in CURVES if not (own := table.loc[table["curve"] == curve]).empty]


def _curve_panel(curve: str, table: pd.DataFrame) -> Panel:
    term = curve_term(curve)
    groups = [(str(measure), table.loc[table["measure"] == measure]) for measure in table["measure"].unique()]
    views = tuple(
        View(
            key=measure,
            label=measure_term(measure).title,
            figure=line_chart(_lines(own, "value", bounds=True), x=DEPTH, y=term.axis or measure_term(measure).title),
            table="curves",
            where={"curve": curve, "measure": measure},
            group=measure_group(measure),
        )
        for measure, own in groups
    )
    return Panel(title=term.title, caption=term.note, views=views, first=main_measure(table["measure"]))


def _survivor_panel(thresholds: pd.DataFrame, survivors: pd.DataFrame) -> Panel:
    whole = [
        Series(str(model), own["threshold"].tolist(), own["share"].tolist())
        for model, own in thresholds.groupby("model", sort=False)
    ]
    views = [View("all", "All layers", line_chart(whole, x="clustering threshold", y="share kept"), "thresholds")]
    for threshold in survivors["threshold"].unique().tolist()[1:]:
        own = survivors.loc[survivors["threshold"] == threshold]
        own = own.assign(share=own["medoid"] / own["neurons"])
        figure = line_chart(_lines(own, "share"), x=DEPTH, y="share kept")
        label = f"By layer, threshold {threshold:g}"
        views.append(View(f"{threshold:g}", label, figure, "survivors", {"threshold": f"{threshold:.7g}"}))
    return Panel(
        title="How many neurons say something of their own?",
        caption="Neurons are clustered by 1 − |correlation|; one of each cluster, its medoid, survives. The fewer "
        "survive, the more a model repeats itself.",
        views=tuple(views),
        choice="Shown",
    )


def _lines(table: pd.DataFrame, column: str, *, bounds: bool = False) -> list[Series]:
    """A line for each model over its relative depth."""
    lines = []
    for model, own in table.groupby("model", sort=False):
        ordered = own.sort_values("depth")
        depth, value = ordered["depth"].tolist(), ordered[column].tolist()
        low, high = (ordered[name].tolist() if bounds else None for name in ("low", "high"))
        lines.append(Series(str(model), depth, value, low, high))
    return lines
