"""The section of `redundancy`: what is left at each clustering threshold, where it is, and what a task needs of it."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.charts import (
    Series,
    layer_chart,
    level,
    line_chart,
    lines,
    square,
    stacked_bars,
    value_map,
    word_picture,
)
from residuum.reporting.content import (
    Finding,
    Panel,
    Section,
    TableSpec,
    View,
    has_numbers,
    records,
    single_view,
    views_by,
)
from residuum.reporting.probing import class_panel, class_text, oracle_text, reference_series
from residuum.reporting.similarity import similarity_views
from residuum.reporting.wording import count, layer_range, short_name
from residuum.storage.results import Run

REDUNDANCY_TABLES = {
    "reduction": TableSpec("All neurons, and the smaller sets that keep enough of their score."),
    "thresholds": TableSpec(
        "What is left at each clustering threshold, and the score of a probe on it; `train` is on the training part.",
        "threshold, neurons, share",
    ),
    "layers": TableSpec(
        "Each layer alone. `mean cka` is its mean similarity to the other layers.", "layer, neurons, constant"
    ),
    "class_layers": TableSpec("Layers that recognise each class as well as all layers together."),
    "survivors": TableSpec(
        "Representatives of clusters in each layer, by the rule that chooses them.",
        "threshold, layer, neurons, random, medoid, first",
    ),
    "windows": TableSpec(
        "Over how many neighbouring layers clusters extend.", "threshold, window, share, share of groups"
    ),
    "agreement": TableSpec("Agreement with k-means and DBSCAN on the same distances (adjusted Rand index)."),
    "classes": TableSpec("Precision, recall and F1 of each class, means over seeds."),
    "tried": TableSpec("Every prefix of a ranking that was scored on the development part."),
    "selected": TableSpec("The neurons of the minimal sets, most important first."),
    "similarity": TableSpec("CKA of every pair of layers.", "layer_a, layer_b, value"),
    "pictures": TableSpec(
        "Activations of some neurons of the largest clusters.",
        "cluster, size, neuron, sentence, position, word, deviations",
    ),
}
RULES = {
    "medoid": "The medoid of each cluster",
    "first": "The lowest neuron of each cluster",
    "random": "A random neuron of each cluster",
}
WINDOWS = {
    "1": "one layer",
    "2": "two neighbouring layers",
    "3": "three neighbouring layers",
    "further": "further apart",
}


def redundancy_section(run: Run) -> Section:
    """Which neurons and layers of a model are redundant."""
    model, task = short_name(run.config.get("model", "the model")), run.summary.get("task")
    facts = {"sufficient neurons": run.summary.get("minimal set"), "neurons": run.summary.get("neurons")}
    facts |= {"constant neurons": run.summary.get("constant neurons") or None, "words": run.summary.get("words")}
    return Section(
        title=f"How much of {model} is redundant for {task}?" if task else f"How much does {model} repeat itself?",
        facts={**facts, "layers": len(run.tables["layers"])},
        findings=_findings(run),
        panels=_panels(run, str(run.summary.get("metric", "accuracy"))),
    )


def _findings(run: Run) -> Iterator[Finding]:
    """The answer for the task first, then what holds for the model in general."""
    if "reduction" in run.tables:
        yield from _task_findings(run)
    table = run.tables["thresholds"].set_index("threshold")
    middle, total = table.index[len(table) // 2], int(table["neurons"].iloc[0])
    row = table.loc[middle]
    yield Finding(
        "Neurons that repeat others",
        f"Of {count(total, 'neuron')}, {int(row['neurons']):,} ({row['share']:.0%}) are left at the clustering "
        f"threshold {middle:g}; the largest cluster has {count(int(row['largest cluster']), 'neuron')}.",
    )
    if not run.tables["windows"].empty:
        windows, focus = run.tables["windows"], float(run.config.get("focus", 0.3))
        nearest = min(windows["threshold"].unique(), key=lambda threshold: abs(threshold - focus))
        shares = {row["window"]: row["share of groups"] for row in records(windows, threshold=nearest)}
        text = "no two neurons form a cluster."
        if any(shares.values()):
            text = (
                f"{shares['1'] + shares['2']:.0%} of the clusters of two or more neurons lie within one layer or two "
            )
            text += f"neighbouring layers, {shares['further']:.0%} extend over more than three layers."
        yield Finding("Reach of clusters", f"At the clustering threshold {nearest:g}, {text}")
    if constant := run.summary.get("constant neurons"):
        text = f"{count(constant, 'neuron')} are constant over the corpus and correlate with nothing"
        alone = run.config.get("clusters") != "kmeans"
        text += "; each is its own cluster and counts among the neurons left" if alone else ""
        yield Finding("Constant neurons", f"{text}.")
    if "agreement" in run.tables:
        rows = records(run.tables["agreement"])
        parts = [f"{row['method']} {row['agreement']:.2f} at {row['threshold']:g}" for row in rows]
        text = f"Adjusted Rand index on the same distances: {', '.join(parts)}."
        yield Finding("Other clustering methods", text)


def _task_findings(run: Run) -> Iterator[Finding]:
    oracle, *smaller = records(run.tables["reduction"])
    for row in smaller:
        verdict = "" if row["sufficient"] else " This is just below the required score on the development part."
        yield Finding(
            str(row["set"]).capitalize(),
            f"{count(row['neurons'], 'neuron')} ({row['share']:.1%}) score {row['score']:.3f} on the test part, "
            f"{row['score'] - oracle['score']:+.3f} against all neurons.{verdict}",
        )
    yield Finding("All neurons", oracle_text(run, oracle))
    layers, keep = run.tables["layers"], float(run.config.get("keep_layers", 0.99))
    sufficient = layers.loc[layers["sufficient"].astype(bool), "layer"].tolist()
    text = f"No single layer keeps {keep:.0%} of the score of all layers (on the development part)."
    if sufficient:
        text = f"{len(sufficient)} of {count(len(layers), 'layer')} keep {keep:.0%} of the score of all layers alone: "
        text += f"{layer_range(sufficient)} (chosen on the development part)."
    yield Finding("Layers", text)
    if "class_layers" in run.tables:
        yield Finding("Classes", class_text(run.tables["class_layers"]))


def _panels(run: Run, metric: str) -> Iterator[Panel]:
    tables = run.tables
    yield Panel(
        "Neurons left by clustering",
        "Neurons are clustered by 1 − |correlation| and one neuron per cluster is kept: at higher thresholds, less "
        "similar neurons count as one. With a task, a probe is trained on the neurons that are left.",
        single_view(threshold_chart(tables["thresholds"], metric), "thresholds"),
    )
    if "score" in tables["layers"]:
        yield Panel(
            "Score of each layer alone",
            "Probes on single layers beside one on all layers. The control task has random labels per word type: a "
            "probe solves it by memorising words.",
            single_view(_layer_scores(run, metric), "layers"),
        )
    if "classes" in tables:
        yield class_panel(tables["classes"])
    yield Panel(
        "Layers of the neurons that are left",
        "Share of each layer's neurons that are left at each threshold. A cluster over several layers keeps its neuron "
        "where the rule says; the lowest-neuron rule empties upper layers by construction.",
        tuple(View(rule, label, survivor_map(tables["survivors"], rule), "survivors") for rule, label in RULES.items()),
        choice="Kept",
    )
    yield Panel(
        "Layers that a cluster extends over",
        "Share of clusters whose neurons lie in one layer, in two or three neighbouring layers, or further apart. A "
        "single neuron is a cluster in one layer.",
        tuple(
            View(share, label, window_bars(tables["windows"], share), "windows")
            for share, label in (("share of groups", "Clusters of two or more neurons"), ("share", "All clusters"))
        ),
        choice="Of",
    )
    sizes = dict(zip(tables["pictures"]["cluster"], tables["pictures"]["size"], strict=True))
    yield Panel(
        "Activations in one cluster",
        "Activations of some neurons of the largest clusters, word by word, in standard deviations from each neuron's "
        "mean. Neurons with opposite signs share a cluster.",
        views_by(
            "cluster",
            tables["pictures"],
            "pictures",
            word_picture,
            label=lambda cluster: f"Cluster {cluster}: {sizes[cluster]:,} neurons",
        ),
        choice="Cluster",
    )
    yield Panel(
        "Similarity of all layers",
        "Linear CKA of every pair of layers, from the same pass over the words; `compare` adds intervals.",
        similarity_views(tables["similarity"]),
        shape="square",
    )


def threshold_chart(table: pd.DataFrame, metric: str = "accuracy") -> go.Figure:
    """Neurons left (left axis) and the score of a probe on them (right axis) over the clustering threshold."""
    series = lines(table, "threshold", "neurons", name="neurons left", bounds=None)
    if "score" in table:
        series += _on_the_right(lines(table, "threshold", "score", name=f"{metric} on test"))
        if has_numbers(table, "control"):
            series += _on_the_right(lines(table, "threshold", "control", name="control task", bounds=None))
    second = metric if "score" in table else ""
    return line_chart(series, x="clustering threshold", y="neurons", second_y=second, step=0.1)


def _on_the_right(series: list[Series]) -> list[Series]:
    return [Series(one.name, one.x, one.y, one.low, one.high, second_axis=True) for one in series]


def _layer_scores(run: Run, metric: str) -> go.Figure:
    layers = run.tables["layers"]
    series = lines(layers, "layer", "score", name=f"{metric} on test")
    series += lines(layers, "layer", "dev", name=f"{metric} on dev", bounds=None)
    series.append(level("all layers, on test", layers["layer"], run.tables["thresholds"]["score"].iloc[0]))
    if (required := run.summary.get("required of layers on dev")) is not None:
        series.append(level("required on dev", layers["layer"], required))
    return layer_chart([*series, *reference_series(run, layers)], y=metric)


def survivor_map(table: pd.DataFrame, rule: str) -> go.Figure:
    """Share of each layer's neurons that a rule keeps at each threshold."""
    shares = square(table.assign(share=table[rule] / table["neurons"]), "layer", "threshold", "share")
    shares.columns = [f"{threshold:g}" for threshold in shares.columns]
    return value_map(shares, x="threshold", y="layer", colours="share kept")


def window_bars(table: pd.DataFrame, share: str) -> go.Figure:
    """Stacked bars: over how many layers clusters extend, at each threshold."""
    named = table.assign(window=table["window"].astype(str).map(lambda window: WINDOWS.get(window, window)))
    return stacked_bars(
        named, "threshold", share, "window", x_title="clustering threshold", y_title="share of clusters"
    )
