"""The sections of `probe` and `probe-languages`: what each layer knows about a task, and in which languages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.charts import Series, frame_dots, layer_chart, level, line_chart, lines, square, value_map
from residuum.reporting.content import (
    Finding,
    Panel,
    Row,
    Section,
    TableSpec,
    has_numbers,
    is_known,
    records,
    single_view,
    views_by,
)
from residuum.reporting.wording import count, layer_range, listed, short_name, with_interval
from residuum.storage.results import Run

PROBE_TABLES = {
    "scores": TableSpec(
        "Scores on the test part: means over seeds, with the deviation between seeds and the interval over sentences. "
        "Whether a set is sufficient was decided on the development part.",
        "kind, features, layer, neurons, score, low, high, control, selectivity, random_twin, sufficient",
    ),
    "class_layers": TableSpec("Layers that recognise each class as well as all layers together."),
    "baselines": TableSpec("Scores without any activation."),
    "unseen": TableSpec("Test labels that are absent from the training part. They count as errors."),
    "classes": TableSpec("Precision, recall and F1 of each class, means over seeds."),
    "penalties": TableSpec("Penalties of each probe, as given or as chosen on the development part."),
    "description": TableSpec("Bits needed to encode the training labels given each layer (online code)."),
}
LANGUAGE_TABLES = {
    "wide": TableSpec("Accuracy at each clustering threshold; one column per family, language and model."),
    "families": TableSpec("Means over the languages of a family, without the training language."),
    "clusters": TableSpec("Neurons left at each threshold."),
    "baselines": TableSpec("Accuracy of the training language's majority label, overall and per word."),
    "unseen": TableSpec("Labels that the training language does not have. They count as errors."),
    "languages": TableSpec(
        "All scores: means over seeds, with the interval over sentences. `held_out` is the score on sentences whose "
        "translations were not in the training part, `random_twin` that of the same model with random weights.",
        "model, language, family, kind, features, threshold, neurons, score, low, high, held_out",
    ),
}
BASELINES = ("majority", "word majority", "bag of words")
SHOWN_GROUPS = 6  # groups of classes, by the layers that are sufficient, that the front page lists


def probing_section(run: Run) -> Section:
    """What the layers of a model know about a task."""
    scores, metric = run.tables["scores"], str(run.summary["metric"])
    oracle = records(scores, kind="all")[0]
    layers = records(scores, kind="layer")
    best = max(layers, key=lambda row: row["dev"])
    sufficient = [int(row["layer"]) for row in layers if row["sufficient"]]
    text = "No single layer is sufficient."
    if sufficient:
        verb = "is" if len(sufficient) == 1 else "are"
        text = f"{len(sufficient)} of {count(len(layers), 'layer')} {verb} sufficient alone "
        text += f"({layer_range(sufficient)})."
    text += f" The best single layer, layer {best['layer']}, scores {best['score']:.3f}."
    findings = [Finding("All layers together", oracle_text(run, oracle)), Finding("Layers", text)]
    if "class_layers" in run.tables and len(run.tables["class_layers"]):
        findings.append(Finding("Classes", class_text(run.tables["class_layers"])))
    return Section(
        title=f"What do the layers of {short_name(run.config['model'])} know about {run.config['task']}?",
        facts={
            metric: f"{oracle['score']:.3f}",
            "selectivity": f"{oracle['selectivity']:.3f}" if is_known(oracle["selectivity"]) else None,
            "layers": len(layers),
            "neurons": oracle["neurons"],
            "training examples": run.config["examples"]["train"],
        },
        findings=findings,
        panels=_probing_panels(run, oracle, metric),
    )


def oracle_text(run: Run, row: Row) -> str:
    """The score of all neurons, beside the control task, the random twin and the baselines that were measured."""
    metric = run.summary.get("metric", "accuracy")
    score = with_interval(row["score"], row["low"], row["high"])
    text = f"A probe on all {row['neurons']:,} neurons reaches {metric} {score} on the test part."
    if is_known(row.get("control")):
        text += f" On the control task (random labels per word type) it reaches {row['control']:.3f}, a selectivity of "
        text += f"{row['selectivity']:.3f}."
    if is_known(row.get("random_twin")):
        text += f" The random twin (same model, random weights) reaches {row['random_twin']:.3f}."
    if baselines := baseline_scores(run):
        text += f" Baselines: {', '.join(f'{name} {value:.3f}' for name, value in baselines.items())}."
    return text


def baseline_scores(run: Run) -> dict[str, float]:
    """Scores without the model, as the summary names them."""
    flat = {name.removesuffix(" baseline"): value for name, value in run.summary.items()}
    return {**run.summary.get("baselines", {}), **{name: flat[name] for name in BASELINES if name in flat}}


def class_text(classes: pd.DataFrame) -> str:
    """Which single layers recognise which classes as well as all layers together; rare classes are only counted."""
    groups: dict[str, list[str]] = {}
    supported = classes["supported"].to_numpy(bool) if "supported" in classes else np.ones(len(classes), bool)
    n_rare, n_classes, classes = int(np.sum(~supported)), len(classes), classes.loc[supported]
    for label, layers in zip(classes["class"], classes["sufficient_layers"].fillna(""), strict=True):
        groups.setdefault(str(layers), []).append(str(label))
    never = groups.pop("", [])
    order = sorted(groups, key=lambda layers: (int(layers.split(",")[0]), layers))
    parts = [f"{', '.join(groups[g])} by {layer_range([int(n) for n in g.split(',')])}" for g in order[:SHOWN_GROUPS]]
    if more := sum(len(groups[layers]) for layers in order[SHOWN_GROUPS:]):
        parts.append(f"{more} more classes by other layers (see the table)")
    text = f"Recognised as well as by all layers together: {'; '.join(parts) or 'no class by a single layer'}."
    text += f" By no single layer: {', '.join(never)}." if never else ""
    return text + (f" Too few test examples to judge {n_rare} of {n_classes} classes." if n_rare else "")


def _probing_panels(run: Run, oracle: Row, metric: str) -> Iterator[Panel]:
    scores = run.tables["scores"]
    layers = scores.loc[scores["kind"] == "layer"]
    series = [
        *lines(layers, "layer", "score", name="each layer"),
        level("all layers", layers["layer"], oracle["score"]),
    ]
    series += reference_series(run, layers)
    yield Panel(
        "Score of each layer",
        "A probe on each layer alone, beside all layers together, the control task (random labels per word type), the "
        "random twin and the baselines without a model. Bands are 95 % intervals over sentences.",
        single_view(layer_chart(series, y=metric), "scores", where={"kind": ("layer", "all")}),
    )
    if "subset" in set(scores["kind"]):
        subsets = scores.loc[scores["kind"].isin(["subset", "all"])]
        names = [f"{row['features']} ({row['neurons']:,} neurons)" for row in records(subsets)]
        view = single_view(frame_dots(subsets, names, "score", x=metric), "scores", where={"kind": ("subset", "all")})
        yield Panel("Subsets of layers", "A probe on several layers together.", view)
    if "classes" in run.tables:
        yield class_panel(run.tables["classes"])


def reference_series(run: Run, layers: pd.DataFrame) -> list[Series]:
    """What the scores of layers are compared with: control task, random twin, baselines."""
    series = []
    for column, name in (("control", "control task"), ("random_twin", "random twin")):
        if has_numbers(layers, column):
            series += lines(layers, "layer", column, name=name, bounds=None)
    baselines = baseline_scores(run)
    return series + [level(f"{name} baseline", layers["layer"], value) for name, value in baselines.items()]


def class_panel(classes: pd.DataFrame) -> Panel:
    """Recall of each class, from frequent to rare, by each layer and by all of them."""
    by_support = classes.sort_values("support", ascending=False, kind="stable")
    table = square(classes, "class", "features", "recall").reindex(index=by_support["class"].unique())
    table.columns = [
        str(name).removeprefix("layer ").replace("all layers", "all").replace("oracle", "all") for name in table
    ]
    return Panel(
        "Recall of each class",
        "Recall of each class by a probe on each layer alone and by one on all layers. Frequent classes are on top.",
        single_view(value_map(table, x="layer", y="class", colours="recall"), "classes"),
    )


def languages_section(run: Run) -> Section:
    """How well a task that was learnt in one language transfers to others."""
    source, languages = run.config["source"], run.tables["languages"]
    findings = [
        Finding(str(m), _transfer_text(records(languages, model=m), source)) for m in languages["model"].unique()
    ]
    if unseen := run.summary["words with unseen labels"]:
        text = f"{count(unseen, 'word')} of the other languages have labels that {source} does not have."
        findings.append(Finding("Unseen labels", text))
    return Section(
        title=f"How well does {run.config['task']} learnt in {source} transfer to other languages?",
        facts={
            f"accuracy in {source}": f"{run.summary['mean accuracy at home']:.3f}",
            "accuracy elsewhere": f"{run.summary['mean accuracy abroad']:.3f}",
            "languages": run.summary["languages"],
            "models": run.summary["models"],
        },
        findings=findings,
        panels=_language_panels(run),
    )


def _transfer_text(rows: list[Row], source: str) -> str:
    """The largest set of neurons in both settings, and the smallest that loses at most 0.01 in other languages."""
    thresholds: dict[float, list[Row]] = {}
    for row in rows:
        if row["kind"] == "threshold" and row["language"] != source:
            thresholds.setdefault(row["threshold"], []).append(row)
    means = {threshold: float(np.mean([row["score"] for row in group])) for threshold, group in thresholds.items()}
    widest = min(means)
    home = next(row for row in rows if row["language"] == source and row["threshold"] == widest)
    *_, worst = best, *_ = sorted(thresholds[widest], key=lambda row: -row["score"])
    text = (
        f"Accuracy {home['score']:.3f} on held-out sentences of {source} and {means[widest]:.3f} on average in other "
        f"languages, from {worst['language']} ({worst['score']:.3f}) to {best['language']} ({best['score']:.3f})."
    )
    if is_known(twin := np.mean([row.get("random_twin", np.nan) for row in thresholds[widest]])):
        text += f" The random twin (same model, random weights) reaches {twin:.3f} in other languages."
    kept = max(threshold for threshold, mean in means.items() if mean >= means[widest] - 0.01)
    if kept == widest:
        return f"{text} Every clustering costs more than 0.01."
    few = thresholds[kept][0]["neurons"]
    return f"{text} Clustering at {kept:g} leaves {few:,} of {home['neurons']:,} neurons and costs at most 0.01."


def _language_panels(run: Run) -> Iterator[Panel]:
    languages = run.tables["languages"]
    clustered = languages.loc[languages["kind"] == "threshold"]
    threshold = {"kind": "threshold"}

    def draw(group: str):
        return lambda rows: line_chart(
            lines(rows, "threshold", "score", group), x="clustering threshold", y="accuracy", step=0.1
        )

    def language_map(rows: pd.DataFrame) -> go.Figure:
        order = rows.assign(family=rows["family"].astype(str)).sort_values("family", kind="stable")["language"]
        table = square(rows, "features", "language", "score").reindex(columns=order.unique())
        return value_map(table, x="language", y="neurons", colours="accuracy")

    yield Panel(
        "Accuracy with fewer neurons",
        "Accuracy in each language when one neuron per cluster is kept. Neurons are clustered in the training "
        "language, and the same ones are kept in all.",
        views_by("model", clustered, "languages", draw("language"), where=threshold),
        choice="Model",
    )
    if "families" in run.tables:
        families = run.tables["families"].query("kind == 'threshold'")
        yield Panel(
            "Language families",
            "Means over the languages of each family, without the training language.",
            views_by("model", families, "families", draw("family"), where=threshold),
            choice="Model",
        )
    names = listed(languages["language"].astype(str).unique().tolist())
    yield Panel(
        "Accuracy of each set of neurons in each language",
        f"Accuracy in {names} from each set of neurons: what clustering leaves, and subsets of layers.",
        views_by("model", languages, "languages", language_map),
        choice="Model",
    )
