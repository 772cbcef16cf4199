"""The section of a `redundancy` run: what is left at each threshold, where it sits, and what a task needs of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Panel, Section, Table, View
from residuum.reporting.figures import heatmap
from residuum.reporting.probing import class_figure
from residuum.reporting.redundancy_figures import (
    cluster_picture,
    layer_scores,
    survivor_map,
    threshold_curve,
    window_bars,
)
from residuum.reporting.redundancy_findings import redundancy_findings
from residuum.storage.results import Run

COLUMNS = {
    "thresholds": ("threshold", "neurons", "share"),
    "layers": ("layer", "neurons", "constant"),
    "survivors": ("threshold", "layer", "neurons", "random", "medoid", "first"),
    "windows": ("threshold", "window", "share", "share of groups"),
    "pictures": ("cluster", "size", "neuron", "sentence", "position", "word", "deviations"),
    "similarity": ("layer_a", "layer_b", "value"),
}
CAPTIONS = {
    "reduction": "All neurons, and the smaller sets that keep enough of their score.",
    "thresholds": "What is left at each clustering threshold, and how a probe on it does.",
    "layers": "Each layer alone. `mean cka` is its mean likeness to the other layers.",
    "class_layers": "Which layers find each class as well as all layers together.",
    "survivors": "Representatives of clusters in each layer, by the rule that picks them.",
    "windows": "Over how many neighbouring layers clusters reach.",
    "agreement": "Whether k-means and DBSCAN find the same clusters (adjusted Rand index).",
    "classes": "Precision, recall and F1 of each class, means over seeds.",
    "tried": "Every head of a ranking that was tried on the development part.",
    "selected": "The neurons of the minimal sets, most important first.",
    "similarity": "CKA of every pair of layers.",
    "pictures": "Activations of some neurons of the largest clusters.",
}
RULES = {
    "first": "The lowest neuron of each cluster",
    "medoid": "The medoid of each cluster",
    "random": "A random neuron of each cluster",
}


def redundancy_section(run: Run, source: str = "") -> Section:
    """What of a model is redundant."""
    check_tables(run, source or "This run", "analysis of redundancy", "redundancy", COLUMNS)
    model, task = str(run.config.get("model", "the model")), run.summary.get("task")
    return Section(
        command=run.command,
        title=f"What of {model} does {task} need?" if task else f"What does {model} repeat?",
        source=source,
        facts=_facts(run),
        findings=tuple(redundancy_findings(run)),
        panels=tuple(_panels(run)),
        tables=tuple(
            Table(name, run.tables[name], caption, folded=name not in ("reduction", "thresholds"))
            for name, caption in CAPTIONS.items()
            if name in run.tables
        ),
        config=run.config,
        environment=run.environment,
    )


def _facts(run: Run) -> dict[str, str]:
    counts = {key: run.summary.get(key) for key in ("words", "sentences", "neurons", "constant neurons")}
    counts["layers"] = len(run.tables["layers"])
    counts["minimal set"] = run.summary.get("minimal set")
    return {name: f"{n:,}" for name, n in counts.items() if n is not None}


def _panels(run: Run) -> list[Panel]:
    panels = [_threshold_panel(run)]
    if "test" in run.tables["layers"]:
        panels.append(_layer_panel(run))
    if "classes" in run.tables:
        panels.append(_class_panel(run.tables["classes"]))
    panels.append(_survivor_panel(run.tables["survivors"]))
    if not run.tables["windows"].empty:
        panels.append(_window_panel(run.tables["windows"]))
    if not run.tables["pictures"].empty:
        panels.append(_picture_panel(run.tables["pictures"]))
    return [*panels, _similarity_panel(run.tables["similarity"])]


def _threshold_panel(run: Run) -> Panel:
    figure = threshold_curve(run.tables["thresholds"], _metric(run))
    return Panel(
        title="How many neurons say something of their own?",
        caption="Neurons are clustered by 1 − |correlation| and one of each cluster is kept. The further right, the "
        "less alike neurons are that count as one. Where there is a task, a probe is trained on what is left.",
        views=(View("thresholds", "Thresholds", figure, "thresholds"),),
    )


def _layer_panel(run: Run) -> Panel:
    required = float(run.summary.get("required of layers on dev", np.nan))
    oracle = run.tables["thresholds"]["test"].tolist()[0]
    figure = layer_scores(run.tables["layers"], oracle, required, _metric(run))
    return Panel(
        title="How far does each layer get alone?",
        caption="Probes on single layers beside one on all layers. The control task gives every word type a random "
        "label: what a probe gets there it has by remembering words.",
        views=(View("layers", "Layers", figure, "layers"),),
    )


def _class_panel(classes: pd.DataFrame) -> Panel:
    return Panel(
        title="Which classes does each layer find?",
        caption="Recall of each class by a probe on each layer alone and by one on all layers. Frequent classes are on "
        "top.",
        views=(View("classes", "Recall", class_figure(classes), "classes"),),
    )


def _metric(run: Run) -> str:
    return str(run.summary.get("metric", "accuracy"))


def _survivor_panel(table: pd.DataFrame) -> Panel:
    views = tuple(View(rule, label, survivor_map(table, rule), "survivors") for rule, label in RULES.items())
    return Panel(
        title="Where do the neurons that are kept sit?",
        caption="Share of each layer's neurons that are left at each threshold. A cluster over several layers leaves "
        "its neuron where the rule says, so the lowest-neuron rule empties upper layers by itself.",
        views=views,
        first="medoid",
        choice="Kept",
    )


def _window_panel(table: pd.DataFrame) -> Panel:
    views = (
        View("share of groups", "Clusters of two neurons or more", window_bars(table, "share of groups"), "windows"),
        View("share", "All clusters", window_bars(table, "share"), "windows"),
    )
    return Panel(
        title="Do neurons repeat their neighbours or far layers?",
        caption="Share of clusters whose neurons lie in one layer, in two or three neighbouring layers, or further "
        "apart. A neuron that is alone is a cluster in one layer.",
        views=views,
        choice="Of",
    )


def _picture_panel(table: pd.DataFrame) -> Panel:
    views = tuple(
        View(
            key=str(cluster),
            label=f"Cluster {cluster}: {own['size'].iloc[0]:,} neurons",
            figure=cluster_picture(own),
            table="pictures",
            where={"cluster": str(cluster)},
        )
        for cluster, own in table.groupby("cluster", sort=False)
    )
    return Panel(
        title="What neurons of one cluster do",
        caption="Activations of some neurons of the largest clusters, word by word, in standard deviations from each "
        "neuron's mean. Neurons that mirror each other are one cluster too.",
        views=views,
        choice="Cluster",
    )


def _similarity_panel(table: pd.DataFrame) -> Panel:
    return Panel(
        title="How alike are the layers?",
        caption="Linear CKA of every pair of layers, from the same pass over the words; `compare` adds intervals.",
        views=(View("cka", "CKA", heatmap(table, "cka"), "similarity"),),
        shape="square",
    )
