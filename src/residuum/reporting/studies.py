"""The section of a `study` run: every finding of the document beside ours, and where its tables and figures are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from residuum.reporting.charts import interval_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import CONFIDENCE, count, listed
from residuum.storage.results import Run

COLUMNS = {
    "findings": ("where", "finding", "document", "ours", "low", "high", "rule", "bound", "cases", "verdict", "note"),
    "cases": ("where", "finding", "case", "value", "low", "high", "agrees"),
    "exhibits": ("document", "shows", "step", "command", "table", "rows"),
    "steps": ("step", "title", "command", "seconds"),
}
TRAINED = ("model", "task", "left_out", "frozen", "metric", "score", "low", "high", "majority", "seeds", "learnt")
CAPTIONS = {
    "findings": "ours is the mean over cases (a model, or a model and a task); low and high cover the intervals of all "
    "of them. A finding holds where that interval lies on its side of the bound, does not hold where it lies on the "
    "other, and is unclear where it contains the bound. The document's own number stands here only for its own models "
    "and data.",
    "cases": "Every number behind the findings. A number that was counted, not sampled, is its own interval.",
    "trained": "Every fine-tuned model on the test part of its task, of several seeds the mean; left_out and frozen "
    "name the layers that were taken off before or did not learn. majority is the accuracy of the most frequent label.",
    "exhibits": "The document's tables and figures in its order, and the step and table in which ours are.",
    "steps": "What was run, in order; each has a folder of that name.",
}
FOLDED = ("cases", "steps")
VERDICTS = ("holds", "does not hold", "unclear", "not measured")


def study_section(run: Run, source: str = "") -> Section:
    """Which findings of a document hold."""
    columns = COLUMNS | ({"trained": TRAINED} if "trained" in run.tables else {})
    check_tables(run, source or "This run", "study", f"study {run.config.get('study', '')}", columns)
    return Section(
        command=run.command,
        title=str(run.summary["title"]),
        source=source,
        facts=_facts(run),
        findings=(_overview(run), *map(_finding, run.tables["findings"].to_dict("records"))),
        panels=_panels(run),
        tables=tuple(
            Table(name, run.tables[name], caption, folded=name in FOLDED)
            for name, caption in CAPTIONS.items()
            if name in run.tables
        ),
        config=run.config,
        environment=run.environment,
        label=str(run.config["study"]),
    )


def study_overview(sections: Sequence[Section]) -> str:
    """How many findings of several studies hold, in a sentence; empty where there are not several."""
    studies = [one for one in sections if one.command == "study"]
    if len(studies) < 2:
        return ""
    verdicts = Counter(finding.verdict for one in studies for finding in one.findings if finding.verdict)
    counts = [_counted(verdicts[verdict], verdict) for verdict in VERDICTS if verdicts[verdict]]
    total = count(sum(verdicts.values()), "finding")
    return f"{len(studies)} studies asked after {total} of their documents: {listed(counts)}."


def _counted(n: int, verdict: str) -> str:
    """`1 holds`, `4 hold`."""
    one, several = {
        "holds": ("holds", "hold"),
        "does not hold": ("does not hold", "do not hold"),
        "unclear": ("is unclear", "are unclear"),
        "not measured": ("was not measured", "were not measured"),
    }[verdict]
    return f"{n} {one if n == 1 else several}"


def _facts(run: Run) -> dict[str, str]:
    return {**_counts(run), "steps": str(run.summary["steps"])}


def _counts(run: Run) -> dict[str, str]:
    """How many findings have each verdict; those of the first three always, the last where there are any."""
    found = {verdict: int(run.summary.get(verdict, 0)) for verdict in VERDICTS}
    return {verdict: str(n) for verdict, n in found.items() if n or verdict != VERDICTS[-1]}


def _overview(run: Run) -> Finding:
    total = len(run.tables["findings"])
    verdicts = [_counted(int(n), verdict) for verdict, n in _counts(run).items() if n != "0"]
    models = listed(list(run.config["models"]))
    return Finding(
        "Study",
        f"{run.summary['source']}. Of {count(total, 'finding')}: {listed(verdicts)}, with {models} at the scale "
        f"{run.config['scale']}.",
    )


def _finding(row: Mapping[Any, Any]) -> Finding:
    text = row["finding"]
    if not np.isnan(row["ours"]):
        text += f" Ours is {row['ours']:.3g}{_interval(row)}, expected {row['rule']}; so in {row['cases']} cases"
    if not np.isnan(row["document"]):
        text += f"; the document has {row['document']:.4g}"
    note = f" ({row['note']})" if row["note"] else ""
    minor = row["verdict"] not in VERDICTS[:2]
    return Finding(str(row["where"]), f"{text.removesuffix('.')}{note}.", str(row["verdict"]), minor)


def _interval(row: Mapping[Any, Any]) -> str:
    return "" if np.isnan(row["low"]) else f" ({row['low']:.3g} to {row['high']:.3g} over all cases)"


def _panels(run: Run) -> tuple[Panel, ...]:
    """The cases of each finding against its bound, and what was trained."""
    findings = run.tables["findings"].drop_duplicates(subset=["where", "finding"])
    cases = run.tables["cases"]
    views = [
        _view(place, row, cases.loc[(cases["where"] == row["where"]) & (cases["finding"] == row["finding"])])
        for place, row in enumerate(findings.to_dict("records"))
        if row["finding"] in set(cases["finding"])
    ]
    caption = (
        f"A dot is the number of one case, the line through it its {CONFIDENCE} interval; the dashed line is the bound "
        "that the finding is read against."
    )
    drawn = [Panel("Every finding, case by case", caption, tuple(views), choice="Finding")] if views else []
    return (*drawn, *([_trained_panel(run.tables["trained"])] if "trained" in run.tables else ()))


def _trained_panel(table: pd.DataFrame) -> Panel:
    """What each training of a task reached."""
    return Panel(
        "What did every training reach?",
        "The score of each fine-tuned model on the test part of its task, with all layers, with some left out and with "
        f"some frozen. The line through a dot is its {CONFIDENCE} interval, where the score is an accuracy; the dashed "
        "line is what the most frequent label reaches.",
        tuple(_trained_view(str(task), table.loc[table["task"] == task]) for task in table["task"].unique()),
        choice="Task",
    )


def _trained_view(task: str, rows: pd.DataFrame) -> View:
    names = [
        ", ".join(filter(None, (row["model"], _layers(row["left_out"], "without"), _layers(row["frozen"], "frozen"))))
        for row in rows.to_dict("records")
    ]
    majority, metric = float(rows["majority"].iloc[0]), str(rows["metric"].iloc[0])
    bound = None if np.isnan(majority) or metric != "accuracy" else majority
    score, low, high = (rows[column].tolist() for column in ("score", "low", "high"))
    figure = interval_chart(names, score, low, high, x=metric.replace("_", " "), bound=bound)
    return View(f"task {task}", task, figure, "trained", {"task": task})


def _layers(layers: str, what: str) -> str:
    return f"{what} {layers}" if layers else ""


def _view(place: int, row: Mapping[Any, Any], cases: pd.DataFrame) -> View:
    value, low, high = (cases[column].tolist() for column in ("value", "low", "high"))
    return View(
        key=f"finding {place + 1}",
        label=f"{row['where']}: {row['finding']}",
        figure=interval_chart(
            cases["case"].tolist(), value, low, high, x=f"our number, expected {row['rule']}", bound=float(row["bound"])
        ),
        table="cases",
        where={"where": row["where"], "finding": row["finding"]},
        note=f"{row['finding']} {row['verdict'].capitalize()}.",
    )
