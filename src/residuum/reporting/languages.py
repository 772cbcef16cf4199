"""The section of a `probe-languages` run: a task learnt in one language and tested in others."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from residuum.reporting.charts import Series, line_chart, value_map
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import count, listed
from residuum.storage.results import Run

COLUMNS = (
    "model",
    "language",
    "family",
    "kind",
    "features",
    "threshold",
    "neurons",
    "score",
    "low",
    "high",
    "held_out",
)
CAPTIONS = {
    "wide": "Accuracy at each clustering threshold; a column for each family, language and model.",
    "families": "Means over the languages of a family, without the language that was learnt from.",
    "clusters": "How many neurons each threshold leaves.",
    "baselines": "What the first language's most frequent label, and its most frequent label of each word, get right.",
    "unseen": "Labels that the first language never has. They count as errors.",
    "languages": "All scores: means over seeds, with the interval over sentences. `held_out` is the score on the "
    "sentences whose counterparts were not learnt from, `random_twin` that of all neurons with random weights.",
}
Row = dict[str, Any]


def languages_section(run: Run, source: str = "") -> Section:
    """How far what is learnt in one language holds in others."""
    check_tables(run, source or "This run", "probing across languages", "probe-languages", {"languages": COLUMNS})
    languages = run.tables["languages"]
    rows = languages.to_dict("records")
    return Section(
        command=run.command,
        title=f"How far does {run.config['task']} learnt in {run.config['source']} hold in other languages?",
        source=source,
        facts={
            "languages": str(run.summary["languages"]),
            "models": str(run.summary["models"]),
            "accuracy at home": f"{run.summary['mean accuracy at home']:.3f}",
            "accuracy abroad": f"{run.summary['mean accuracy abroad']:.3f}",
        },
        findings=tuple(_findings(run, rows)),
        panels=(_curve_panel(rows), *_family_panel(run), _map_panel(rows)),
        tables=tuple(
            Table(name, run.tables[name], caption, folded=name == "languages")
            for name, caption in CAPTIONS.items()
            if name in run.tables
        ),
        config=run.config,
        environment=run.environment,
    )


def _findings(run: Run, rows: list[Row]) -> list[Finding]:
    findings = [Finding(model, _model_text(own, run.config["source"])) for model, own in _by(rows, "model").items()]
    if unseen := run.summary["words with unseen labels"]:
        text = f"{count(unseen, 'word')} of the other languages have labels that {run.config['source']} never has."
        findings.append(Finding("Unseen labels", text))
    return findings


def _model_text(rows: list[Row], source: str) -> str:
    """The widest set of neurons at home and abroad, and the smallest that loses at most a hundredth abroad."""
    thresholds = _by([row for row in rows if row["kind"] == "threshold" and row["language"] != source], "threshold")
    means = {threshold: sum(row["score"] for row in own) / len(own) for threshold, own in thresholds.items()}
    widest = min(means)
    home = next(r for r in rows if r["language"] == source and r["threshold"] == widest)
    ranked = sorted(thresholds[widest], key=lambda row: -row["score"])
    kept = max(threshold for threshold, mean in means.items() if mean >= means[widest] - 0.01)
    few = thresholds[kept][0]["neurons"]
    text = f"{home['score']:.3f} on held-out sentences of {source}, {means[widest]:.3f} on average elsewhere, from "
    text += (
        f"{ranked[-1]['language']} ({ranked[-1]['score']:.3f}) to {ranked[0]['language']} ({ranked[0]['score']:.3f}). "
    )
    if not np.isnan(twin := np.mean([row.get("random_twin", np.nan) for row in thresholds[widest]])):
        text += f"With random weights: {twin:.3f} elsewhere. "
    if kept == widest:
        return f"{text}Every clustering costs more than a hundredth."
    return f"{text}Clustering at {kept:g} leaves {few:,} of {home['neurons']:,} neurons and costs at most a hundredth."


def _curve_panel(rows: list[Row]) -> Panel:
    thresholds = [row for row in rows if row["kind"] == "threshold"]
    views = tuple(
        View(model, model, _curves(own, "language"), "languages", {"model": model, "kind": "threshold"})
        for model, own in _by(thresholds, "model").items()
    )
    return Panel(
        "Fewer and fewer neurons",
        "Accuracy in each language when only one neuron of each cluster is kept. The neurons were clustered in the "
        "first language, and the same ones are kept in all.",
        views,
        choice="Model",
    )


def _family_panel(run: Run) -> list[Panel]:
    if "families" not in run.tables:
        return []
    rows = [row for row in run.tables["families"].to_dict("records") if row["kind"] == "threshold"]
    views = tuple(
        View(model, model, _curves(own, "family"), "families", {"model": model, "kind": "threshold"})
        for model, own in _by(rows, "model").items()
    )
    caption = "Means over the languages of each family, without the language that was learnt from."
    return [Panel("Families of languages", caption, views, choice="Model")]


def _curves(rows: list[Row], group: str) -> go.Figure:
    series = []
    for name, own in _by(rows, group).items():
        ordered = sorted(own, key=lambda row: row["threshold"])
        x, y = ([row[column] for row in ordered] for column in ("threshold", "score"))
        low, high = ([row.get(column, np.nan) for row in ordered] for column in ("low", "high"))
        series.append(Series(name, x, y, low, high))
    return line_chart(series, x="clustering threshold", y="accuracy", step=0.1)


def _map_panel(rows: list[Row]) -> Panel:
    views = tuple(
        View(model, model, _language_map(own), "languages", {"model": model})
        for model, own in _by(rows, "model").items()
    )
    languages = listed(list(dict.fromkeys(str(row["language"]) for row in rows)))
    return Panel(
        "Which neurons hold in which language",
        f"Accuracy in {languages} from each set of neurons: what clustering leaves, and subsets of layers.",
        views,
        choice="Model",
    )


def _language_map(rows: list[Row]) -> go.Figure:
    languages = [str(language) for language in _by(sorted(rows, key=lambda r: str(r["family"])), "language")]
    features = list(_by(rows, "features"))
    score = {(row["features"], row["language"]): row["score"] for row in rows}
    values = [[score[name, language] for language in languages] for name in features]
    return value_map(values, features, languages, x="language", y="neurons", colours="accuracy")


def _by(rows: list[Row], column: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return found
