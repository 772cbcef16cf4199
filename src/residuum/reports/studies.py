"""The section of a `study` run: every finding of the document beside ours, and where its tables and figures are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from residuum.reports.completeness import check_tables
from residuum.reports.content import Finding, Section, Table
from residuum.reports.wording import count, listed
from residuum.results import Run

COLUMNS = {
    "findings": ("where", "finding", "document", "ours", "lowest", "highest", "rule", "cases", "verdict", "note"),
    "exhibits": ("document", "shows", "step", "command", "table", "rows"),
    "steps": ("step", "title", "command", "seconds"),
}
CAPTIONS = {
    "findings": "A finding held where the number of every case (a model, or a model and a task) follows the rule, and "
    "did not hold where none does. The document's own number stands here only for its own models and data.",
    "exhibits": "The document's tables and figures in its order, and the step and table in which ours are.",
    "steps": "What was run, in order; each has a folder of that name.",
}
VERDICTS = ("held", "did not hold", "cannot be said")


def study_section(run: Run, source: str = "") -> Section:
    """Which findings of a document held."""
    check_tables(run, source or "This run", "study", f"study {run.config.get('study', '')}", COLUMNS)
    return Section(
        command=run.command,
        title=str(run.summary["title"]),
        source=source,
        facts=_facts(run),
        findings=(_overview(run), *map(_finding, run.tables["findings"].to_dict("records"))),
        panels=(),
        tables=tuple(Table(name, run.tables[name], CAPTIONS[name], folded=name == "steps") for name in CAPTIONS),
        config=run.config,
        environment=run.environment,
    )


def _facts(run: Run) -> dict[str, str]:
    return {
        **{verdict: str(run.summary.get(verdict, 0)) for verdict in VERDICTS},
        "steps": str(run.summary["steps"]),
    }


def _overview(run: Run) -> Finding:
    total = len(run.tables["findings"])
    held = [f"{run.summary.get(verdict, 0)} {verdict}" for verdict in VERDICTS]
    models = listed(list(run.config["models"]))
    return Finding(
        "Study",
        f"{run.summary['source']}. Of {count(total, 'finding')}, {listed(held)}, with {models} at the scale "
        f"{run.config['scale']}.",
    )


def _finding(row: Mapping[Any, Any]) -> Finding:
    text = f"{row['finding']} {row['verdict'].capitalize()}"
    if not np.isnan(row["ours"]):
        text += f": {row['ours']:.3g} on average, expected {row['rule']}, so in {row['cases']}"
    if not np.isnan(row["document"]):
        text += f"; the document has {row['document']:.4g}"
    return Finding(row["where"], f"{text}." if not row["note"] else f"{text} ({row['note']}).")
