"""The section of a `study distillation` run: several distillations side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from residuum.reporting.charts import interval_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import count
from residuum.storage.results import Run

COLUMNS = {"scores": ("row", "score", "subject", "value", "parameters")}
CAPTION = "The last scores of each distillation; all had the same steps, texts and teacher."
LOWER_IS_BETTER = ("perplexity",)


def distillation_rows_section(run: Run, source: str = "") -> Section:
    """Which way of distilling serves best."""
    check_tables(run, source or "This run", "study of distillation", "study monolingual", COLUMNS)
    scores = run.tables["scores"]
    means = {str(score): _means(own) for score, own in scores.groupby("score", sort=False)}
    views = tuple(_view(score, own) for score, own in means.items())
    panel = Panel("Distillations side by side", f"{CAPTION} A dot is a mean over students.", views, choice="Score")
    return Section(
        command=run.command,
        title="What does each part of the distillation do?",
        source=source,
        facts={"distillations": str(scores["row"].nunique()), "scores": ", ".join(means)},
        findings=tuple(_finding(score, own) for score, own in means.items()),
        panels=(panel,),
        tables=(Table("scores", scores, CAPTION),),
        config=run.config,
        environment=run.environment,
    )


def _means(scores: pd.DataFrame) -> dict[str, float]:
    """The mean over students and languages of each distillation, the best first."""
    values = {str(row): own["value"].tolist() for row, own in scores.groupby("row", sort=False)}
    means = {row: math.fsum(own) / len(own) for row, own in values.items()}
    highest_first = str(scores["score"].iloc[0]) not in LOWER_IS_BETTER
    return dict(sorted(means.items(), key=lambda item: item[1], reverse=highest_first))


def _view(score: str, means: Mapping[str, float]) -> View:
    values = list(means.values())
    figure = interval_chart(list(means), values, values, values, x=score)
    drawn = pd.DataFrame({"row": list(means), "mean": values})
    return View(score, score, figure, table="scores", where={"score": score}, own=drawn)


def _finding(score: str, means: Mapping[str, float]) -> Finding:
    ordered = ", ".join(f"{row} {value:.4g}" for row, value in means.items())
    return Finding(score.capitalize(), f"From best to worst of {count(len(means), 'distillation')}: {ordered}.")
