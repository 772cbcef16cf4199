"""The section of a `pretrain` run: how each loss fell, what the model could do along the way, what it read."""

from __future__ import annotations

from typing import Any

import pandas as pd

from residuum.reporting.charts import Series, line_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import count, listed
from residuum.storage.results import Run

COLUMNS = {
    "history": ("step", "loss", "learning_rate", "tokens"),
    "scores": ("step", "score", "subject", "layer", "value"),
    "pairs": ("name", "languages", "read", "kept", "excluded"),
}
CAPTIONS = {
    "history": "What the training loop wrote down, averaged between rows; each objective by its name.",
    "scores": "Perplexity on held-out sentences; retrieval is the share of sentences that find their translation.",
    "pairs": "Translations that were read, and what was left out of them; excluded: a side occurs in a retrieval set.",
}
NO_LOSS = ("step", "learning_rate", "gradient_norm", "tokens", "seconds")


def pretraining_section(run: Run, source: str = "") -> Section:
    """How a model came about."""
    check_tables(run, source or "This run", "pretraining", "pretrain", COLUMNS)
    scores = run.tables["scores"]
    return Section(
        command=run.command,
        title=f"How did {run.config['settings']['name']} learn?",
        source=source,
        facts={name: f"{run.summary[name]:,}" for name in ("parameters", "steps", "tokens")},
        findings=tuple(_findings(run)),
        panels=(_loss_panel(run.tables["history"]), *([_score_panel(scores)] if len(scores) else [])),
        tables=tuple(Table(name, run.tables[name], CAPTIONS[name], folded=name != "pairs") for name in COLUMNS),
        config=run.config,
        environment=run.environment,
    )


def _findings(run: Run) -> list[Finding]:
    found = []
    scores = run.tables["scores"]
    last = scores.loc[scores["step"] == scores["step"].max()].to_dict("records")
    perplexities = [f"{row['subject']} {row['value']:.1f}" for row in last if row["score"] == "perplexity"]
    if perplexities:
        found.append(Finding("Perplexity", f"On held-out sentences at the end: {listed(perplexities)}."))
    best: dict[str, dict[str, Any]] = {}
    for row in last:
        if row["score"] == "retrieval" and row["value"] > best.get(row["subject"], {"value": -1})["value"]:
            best[row["subject"]] = {str(name): value for name, value in row.items()}
    if best:
        listing = listed([f"{name} {row['value']:.3f} (layer {row['layer']})" for name, row in best.items()])
        found.append(Finding("Retrieval", f"The layer that finds most translations at the end: {listing}."))
    if excluded := run.summary["pairs excluded"]:
        text = f"{count(excluded, 'training pair')} occurred in a retrieval set and never reached training."
        found.append(Finding("Kept apart", text))
    return found


def _loss_panel(history: pd.DataFrame) -> Panel:
    names = [name for name in history if name not in NO_LOSS]
    views = []
    for name in names:
        rows = history[history[name].notna()]
        chart = line_chart([Series(str(name), rows["step"].tolist(), rows[name].tolist())], x="step", y=str(name))
        views.append(View(str(name), str(name), chart, table="history", having=(str(name),)))
    caption = "The loss of each objective, a mean over its batches between points; `loss` is the mean over all batches."
    return Panel("How the losses fell", caption, tuple(views), first="loss", choice="Objective")


def _score_panel(scores: pd.DataFrame) -> Panel:
    views = []
    kinds = scores[["score", "subject"]].drop_duplicates()
    for score, subject in zip(kinds["score"].tolist(), kinds["subject"].tolist(), strict=True):
        rows = scores.loc[(scores["score"] == score) & (scores["subject"] == subject)]
        where = {"score": score, "subject": subject}
        chart = line_chart(_by_layer(rows, subject), x="step", y=score)
        views.append(View(f"{score} {subject}", f"{score} {subject}", chart, table="scores", where=where))
    return Panel("What the model could do", CAPTIONS["scores"], tuple(views), choice="Score")


def _by_layer(rows: pd.DataFrame, subject: str) -> list[Series]:
    """A line for each layer; one with the subject's name where the score is of no layer."""
    series = []
    for layer in sorted(rows["layer"].unique().tolist()):
        own = rows.loc[rows["layer"] == layer]
        name = f"layer {layer}" if layer >= 0 else subject
        series.append(Series(name, own["step"].tolist(), own["value"].tolist()))
    return series
