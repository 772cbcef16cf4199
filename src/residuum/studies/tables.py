"""The tables of a study beside its findings: what the document shows, what was trained, and what was run."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from residuum.studies.declarations import Document, Results
from residuum.studies.estimates import score_on_test

EXHIBITS = ("document", "shows", "step", "command", "table", "rows")
TRAINED = ("model", "task", "left_out", "frozen", "metric", "score", "low", "high", "majority", "seeds", "learnt")


def exhibit_table(document: Document, results: Results) -> pd.DataFrame:
    """A row for each step that holds something of a table or figure of the document, in the document's order."""
    rows = [
        {
            "document": one.label,
            "shows": one.title,
            "step": step.name,
            "command": run.command,
            "table": one.table,
            "rows": len(run.tables[one.table]) if one.table in run.tables else 0,
        }
        for one in document.exhibits
        for step, run in results.of(one.kind)
    ]
    return pd.DataFrame(rows, columns=pd.Index(EXHIBITS))


def trained_table(results: Results) -> pd.DataFrame:
    """A row for each fine-tuned model: its score on the test part, of several seeds the mean, task by task."""
    trained = [(step, results.runs[step.name]) for step in results.steps if step.name in results.runs]
    rows = []
    for step, run in trained:
        if run.command != "finetune":
            continue
        score = score_on_test(run)
        rows.append(
            {
                "model": step.model,
                "task": step.task,
                "left_out": run.config["drop"] or "",
                "frozen": run.config["freeze"] or "",
                "metric": run.summary["metric"],
                "score": score.value,
                "low": score.low,
                "high": score.high,
                "majority": run.summary.get("test majority accuracy", math.nan),
                "seeds": len(run.config["seeds"]),
                "learnt": run.summary["examples"]["train"],
            }
        )
    table = pd.DataFrame(rows, columns=pd.Index(TRAINED))
    return table.sort_values(["task", "model"], kind="stable", ignore_index=True)


def step_table(results: Results, seconds: Mapping[str, float]) -> pd.DataFrame:
    """A row for each step, in the order in which they were run."""
    rows = [
        {
            "step": step.name,
            "title": step.title,
            "command": results.runs[step.name].command if step.name in results.runs else "extract",
            "seconds": round(seconds[step.name], 2),
        }
        for step in results.steps
    ]
    return pd.DataFrame(rows)
