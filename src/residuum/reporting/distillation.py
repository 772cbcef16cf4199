"""The section of a `distill` run: how each loss fell, what the students scored, and how small they are."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.charts import Series, line_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import listed
from residuum.storage.results import Run

COLUMNS = {
    "losses": ("step", "student", "language", "term", "value"),
    "scores": ("step", "score", "subject", "value"),
    "parameters": ("part", "parameters"),
}
CAPTIONS = {
    "losses": "Every term of the loss, unweighted, for each student and language; a mean over the steps between rows.",
    "scores": "Perplexity on held-out lines by student/language; retrieval is the share of nearest translations.",
    "parameters": "Distinct parameters; what students share is counted once in the total.",
}
FIRST = ("loss", "learning_rate")


def distillation_section(run: Run, source: str = "") -> Section:
    """What the students of a teacher learnt."""
    check_tables(run, source or "This run", "distillation", "distill", COLUMNS)
    summary = run.summary
    panels = [_loss_panel(run.tables["losses"])]
    if not run.tables["scores"].empty:
        panels.append(_score_panel(run.tables["scores"]))
    return Section(
        command=run.command,
        title=f"What did the students of {summary['teacher']} learn?",
        source=source,
        facts=_facts(run),
        findings=tuple(_findings(run)),
        panels=tuple(panels),
        tables=tuple(Table(name, run.tables[name], CAPTIONS[name], folded=name == "losses") for name in COLUMNS),
        config=run.config,
        environment=run.environment,
    )


def _facts(run: Run) -> dict[str, str]:
    summary = run.summary
    return {
        "students": str(len(summary["students"])),
        "parameters of all": f"{summary['parameters of all students']:,}",
        "of the teacher": f"{summary['parameters of all students'] / summary['teacher parameters']:.0%}",
        "steps": f"{summary['steps']:,}",
    }


def _findings(run: Run) -> list[Finding]:
    summary, config = run.summary, run.config
    weights = listed([f"{term} {weight:.3g}" for term, weight in summary["weights"].items()])
    mapped = ", ".join(f"{m} ← {n}" for m, n in summary["layer map"].items())
    found = [
        Finding("Loss", f"{config['preset'] or 'Own weights'} under the recipe {config['recipe']}: {weights}."),
        Finding("Layers", f"Student layer ← teacher layer: {mapped}."),
    ]
    for kind in ("perplexity", "retrieval"):
        values = {name.partition(" ")[2]: value for name, value in summary.items() if name.startswith(f"{kind} ")}
        if values:
            listing = listed([f"{subject} {value:.3g}" for subject, value in values.items()])
            found.append(Finding(kind.capitalize(), f"At the end: {listing}."))
    return found


def _loss_panel(losses: pd.DataFrame) -> Panel:
    terms = sorted(losses["term"].unique(), key=lambda term: (term not in FIRST, term))
    views = []
    for term in terms:
        rows = losses.loc[losses["term"] == term]
        names = (rows["student"] + "/" + rows["language"]).str.strip("/").replace("", "all students")
        views.append(View(term, term, _chart(rows.assign(name=names), term), table="losses", where={"term": term}))
    caption = "Each term of the loss before it is weighed; `loss` is the weighted sum that was made smaller."
    return Panel("How the losses fell", caption, tuple(views), first="loss", choice="Term")


def _score_panel(scores: pd.DataFrame) -> Panel:
    views = []
    for score in scores["score"].unique():
        rows = scores.loc[scores["score"] == score].rename(columns={"subject": "name"})
        views.append(
            View(str(score), str(score), _chart(rows, str(score)), table="scores", where={"score": str(score)})
        )
    return Panel("What the students could do", CAPTIONS["scores"], tuple(views), choice="Score")


def _chart(rows: pd.DataFrame, y: str) -> go.Figure:
    groups = rows.groupby("name", sort=False)
    return line_chart(
        [Series(str(name), own["step"].tolist(), own["value"].tolist()) for name, own in groups], x="step", y=y
    )
