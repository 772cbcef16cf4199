"""The section of an `evaluate correlate` run: does alignment go with downstream scores?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from residuum.reporting.charts import interval_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.storage.results import Run

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

COLUMNS = {"correlations": ("direction", "score", "layers", "measure", "value", "low", "high", "p_value", "runs")}
CAPTION = "Correlation over models of retrieval accuracy with the downstream score; with few models intervals are wide."


def correlation_section(run: Run, source: str = "") -> Section:
    """Each measure of correlation with its interval, for every direction, score and choice of layers."""
    check_tables(run, source or "This run", "correlations", "evaluate correlate", COLUMNS)
    table = run.tables["correlations"]
    views = tuple(
        View(str(measure), str(measure).capitalize(), _figure(own), "correlations", {"measure": str(measure)})
        for measure, own in table.groupby("measure", sort=False)
    )
    apart = sum(low > 0 or high < 0 for low, high in zip(table["low"], table["high"], strict=True))
    said = f"{apart} of {len(table)} correlations have an interval without 0."
    return Section(
        command=run.command,
        title="Does alignment go with downstream scores?",
        source=source,
        facts={"models": str(run.summary["models"])},
        findings=(Finding("Correlation", said),),
        panels=(Panel("Alignment and downstream scores", CAPTION, views),),
        tables=(Table("correlations", table, CAPTION),),
        config=run.config,
        environment=run.environment,
    )


def _figure(own: pd.DataFrame) -> go.Figure:
    names = [f"{row['direction']}, {row['score']}, layers {row['layers']}" for row in own.to_dict("records")]
    value, low, high = (own[column].tolist() for column in ("value", "low", "high"))
    return interval_chart(names, value, low, high, x="correlation", bound=0.0)
