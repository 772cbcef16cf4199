"""The section of an `evaluate adapted` run: how a student that has learnt a task answers one file."""

from __future__ import annotations

from residuum.reporting.charts import interval_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.storage.results import Run

COLUMNS = {"scores": ("metric", "value")}
CAPTION = "Each score of the task, over all examples of the file."


def adapted_section(run: Run, source: str = "") -> Section:
    """The scores of what `adapt` wrote on another file."""
    check_tables(run, source or "This run", "adaptation", "evaluate adapted", COLUMNS)
    table = run.tables["scores"]
    metrics, values = table["metric"].astype(str).tolist(), table["value"].tolist()
    figure = interval_chart(metrics, values, values, values, x="score")
    return Section(
        command=run.command,
        title=f"How well is {run.summary['task']} answered?",
        source=source,
        facts={"examples": f"{run.summary['examples']:,}"},
        findings=tuple(
            Finding(metric, f"{value:.3f} over {run.summary['examples']:,} examples.")
            for metric, value in zip(metrics, values, strict=True)
        ),
        panels=(Panel("Scores", CAPTION, (View("scores", "Scores", figure, "scores"),)),),
        tables=(Table("scores", table, CAPTION),),
        config=run.config,
        environment=run.environment,
    )
