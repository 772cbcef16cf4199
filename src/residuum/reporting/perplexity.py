"""The section of an `evaluate perplexity` run: how well a model predicts each text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from residuum.reporting.charts import interval_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import interval
from residuum.storage.results import Run

COLUMNS = {"perplexity": ("text", "lines", "tokens", "loss", "perplexity", "low", "high")}
CAPTION = (
    "exp of the mean −log p of a predicted token; the interval is over lines. Only models with one tokenizer compare."
)


def perplexity_section(run: Run, source: str = "") -> Section:
    """How well a model predicts some texts."""
    check_tables(run, source or "This run", "perplexity", "evaluate perplexity", COLUMNS)
    table = run.tables["perplexity"]
    value, low, high = (table[column].tolist() for column in ("perplexity", "low", "high"))
    figure = interval_chart(table["text"].tolist(), value, low, high, x="perplexity")
    return Section(
        command=run.command,
        title=f"How well does {run.summary['model']} predict text?",
        source=source,
        facts={"texts": str(len(table)), "tokens predicted": f"{sum(table['tokens'].tolist()):,}"},
        findings=tuple(_finding(row) for row in table.to_dict("records")),
        panels=(Panel("Perplexity of each text", CAPTION, (View("perplexity", "Perplexity", figure, "perplexity"),)),),
        tables=(Table("perplexity", table, CAPTION),),
        config=run.config,
        environment=run.environment,
    )


def _finding(row: Mapping[Any, Any]) -> Finding:
    return Finding(str(row["text"]), f"Perplexity {row['perplexity']:.4g} ({interval(row['low'], row['high'])}).")
