"""The section of a `probe` run: what each layer knows of a task, and for which classes it is enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.charts import Series, line_chart, value_map
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import CONFIDENCE, count, interval, layer_range
from residuum.storage.results import Run

COLUMNS = (
    "kind",
    "features",
    "layer",
    "neurons",
    "score",
    "sd",
    "low",
    "high",
    "control",
    "selectivity",
    "random_twin",
    "sufficient",
)
CAPTIONS = {
    "scores": "Scores on the test part: means over seeds, with the deviation between seeds and the interval over "
    "sentences. What is sufficient was decided on the development part.",
    "class_layers": "Which layers find each class as well as all layers together.",
    "baselines": "What is right without looking at any activation.",
    "unseen": "Labels of the test part that training never saw. They count as errors.",
    "classes": "Precision, recall and F1 of each class, means over seeds.",
    "penalties": "The grid of penalties: accuracy of the probe, and with only its top or bottom fifth of neurons.",
    "description": "Bits that the training labels cost given each layer (online code).",
}
SHOWN_GROUPS = 6  # groups of classes, by the layers that are enough, that the front page lists
Row = dict[str, Any]


def probing_section(run: Run, source: str = "") -> Section:
    """What the layers of a model know of a task."""
    check_tables(run, source or "This run", "probing", "probe", {"scores": COLUMNS})
    scores = run.tables["scores"]
    rows = scores.to_dict("records")
    metric = str(run.summary["metric"])
    return Section(
        command=run.command,
        title=f"What do the layers of {run.config['model']} know of {run.config['task']}?",
        source=source,
        facts=_facts(run, rows),
        findings=tuple(_findings(run, rows)),
        panels=tuple(_panels(run, rows, metric)),
        tables=tuple(
            Table(name, frame, CAPTIONS.get(name, ""), folded=name in ("classes", "penalties"))
            for name, frame in run.tables.items()
        ),
        config=run.config,
        environment=run.environment,
    )


def _facts(run: Run, rows: list[Row]) -> dict[str, str]:
    oracle = _oracle(rows)
    facts = {
        "layers": str(len(_layers(rows))),
        "neurons": f"{oracle['neurons']:,}",
        "training examples": f"{run.config['examples']['train']:,}",
        str(run.summary["metric"]): f"{oracle['score']:.3f}",
    }
    return facts if np.isnan(oracle["selectivity"]) else facts | {"selectivity": f"{oracle['selectivity']:.3f}"}


def _findings(run: Run, rows: list[Row]) -> list[Finding]:
    found = [Finding("All layers together", _oracle_text(run, _oracle(rows))), Finding("Layers", _layer_text(rows))]
    if "class_layers" in run.tables and not (classes := run.tables["class_layers"]).empty:
        found.append(Finding("Classes", class_text(classes)))
    return found + [Finding("Data", f"{note}.") for note in run.config.get("notes", [])]


def _oracle_text(run: Run, oracle: Row) -> str:
    text = f"All {oracle['neurons']:,} neurons score {oracle['score']:.3f} ({CONFIDENCE} interval "
    text += f"{interval(oracle['low'], oracle['high'])}) on the test part."
    if not np.isnan(oracle["control"]):
        text += f" On random labels of words the same probe scores {oracle['control']:.3f}: selectivity is "
        text += f"{oracle['selectivity']:.3f}."
    if not np.isnan(oracle["random_twin"]):
        text += f" With random weights the model scores {oracle['random_twin']:.3f}."
    baselines = {k.removesuffix(" baseline"): v for k, v in run.summary.items() if k.endswith(" baseline")}
    if baselines:
        text += f" Without the model: {', '.join(f'{name} {value:.3f}' for name, value in baselines.items())}."
    return text


def _layer_text(rows: list[Row]) -> str:
    layers = _layers(rows)
    best = max(layers, key=lambda row: row["dev"])
    enough = [int(row["layer"]) for row in layers if row["sufficient"]]
    if not enough:
        return f"No layer alone is enough for this task; the best, layer {best['layer']}, scores {best['score']:.3f}."
    return (
        f"{count(len(enough), 'layer')} of {len(layers)} alone {'is' if len(enough) == 1 else 'are'} enough for this "
        f"task ({layer_range(enough)}). The best, layer {best['layer']}, scores {best['score']:.3f}."
    )


def class_text(classes: pd.DataFrame) -> str:
    """Which layers alone find which classes as well as all layers together; a layer above one need not do as well."""
    found: dict[str, list[str]] = {}
    for label, layers in zip(classes["class"], classes["sufficient_layers"].fillna(""), strict=True):
        found.setdefault(str(layers), []).append(str(label))
    never = found.pop("", [])
    groups = sorted(found, key=lambda layers: (int(layers.split(",")[0]), layers))
    parts = [f"{', '.join(found[g])} by {layer_range([int(n) for n in g.split(',')])}" for g in groups[:SHOWN_GROUPS]]
    if more := sum(len(found[layers]) for layers in groups[SHOWN_GROUPS:]):
        parts.append(f"{more} more classes by other layers (see the table)")
    text = f"Found as well as by all layers together: {'; '.join(parts) or 'no class by a single layer'}."
    return text + (f" By no single layer: {', '.join(never)}." if never else "")


def _panels(run: Run, rows: list[Row], metric: str) -> list[Panel]:
    panels = [
        Panel(
            "Layer by layer",
            "A probe on each layer alone, beside the control task (random labels of words), a model with random "
            "weights if there is one, and what is right without the model. Bands are intervals over sentences.",
            (View("layers", "Layers", _layer_figure(run, rows, metric), "scores", {"kind": ("layer", "all")}),),
        )
    ]
    if any(row["kind"] == "subset" for row in rows):
        panels.append(
            Panel(
                "Subsets of layers",
                "A probe on some layers together.",
                (View("subsets", "Subsets", _subset_figure(rows, metric), "scores", {"kind": ("subset", "all")}),),
            )
        )
    if "classes" in run.tables:
        panels.append(
            Panel(
                "Class by class",
                "The share of a class' examples that a probe on each layer finds. Rare classes stand at the bottom.",
                (View("classes", "Recall", class_figure(run.tables["classes"]), "classes"),),
            )
        )
    return panels


def _layer_figure(run: Run, rows: list[Row], metric: str) -> go.Figure:
    layers, oracle = _layers(rows), _oracle(rows)
    x = [int(row["layer"]) for row in layers]
    columns = {name: [row[name] for row in layers] for name in ("score", "low", "high", "control", "random_twin")}
    series = [Series("each layer", x, columns["score"], columns["low"], columns["high"])]
    series.append(Series("all layers", x, [oracle["score"]] * len(x)))
    for name, label in (("control", "control task"), ("random_twin", "random twin")):
        if not np.isnan(columns[name]).all():
            series.append(Series(label, x, columns[name]))
    for name, value in run.summary.items():
        if name.endswith(" baseline"):
            series.append(Series(name, x, [value] * len(x)))
    return line_chart(series, x="layer", y=metric, step=max(1, -(-len(x) // 13)))


def _subset_figure(rows: list[Row], metric: str) -> go.Figure:
    shown = [row for row in rows if row["kind"] in ("subset", "all")]
    values = [[row["score"], row["selectivity"]] for row in shown]
    names = [f"{row['features']} ({row['neurons']:,} neurons)" for row in shown]
    return value_map(values, names, [metric, "selectivity"], x="measure", y="layers", colours="value")


def class_figure(classes: pd.DataFrame) -> go.Figure:
    """Recall of each class, from frequent to rare, by each layer and by all of them."""
    order = classes.drop_duplicates(subset="class").sort_values(by="support", ascending=False)["class"].tolist()
    features = classes["features"].drop_duplicates().tolist()
    recall = {(row["class"], row["features"]): row["recall"] for row in classes.to_dict("records")}
    values = [[recall[label, name] for name in features] for label in order]
    columns = [name.removeprefix("layer ").replace("all layers", "all").replace("oracle", "all") for name in features]
    return value_map(values, order, columns, x="layer", y="class", colours="recall")


def _layers(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["kind"] == "layer"]


def _oracle(rows: list[Row]) -> Row:
    return next(row for row in rows if row["kind"] == "all")
