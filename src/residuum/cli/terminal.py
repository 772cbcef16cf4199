"""Results in a terminal: a compact table with the best row in bold and the baselines below, the answer, what is next.

Where output goes to a file or another program, a result is its plain `text()`; `--json` is for machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    from residuum.storage.results import Run

MOST_ROWS = 16


@dataclass(frozen=True)
class TerminalTable:
    """Which table of a command is shown: its columns under their headings, and the row that is in bold."""

    table: str
    columns: Mapping[str, str]
    score: str  # the column that `low` and `high` belong to, and the baselines
    best: Callable[[pd.DataFrame], Any] = lambda rows: None  # index of a row
    where: str = ""


def _best_layer(rows: pd.DataFrame) -> Any:
    layers = rows.loc[rows["kind"] == "layer", "dev"]
    return layers.idxmax() if len(layers) else None


def _last(rows: pd.DataFrame) -> Any:
    return rows.index[-1]


def _highest(column: str) -> Callable[[pd.DataFrame], Any]:
    return lambda rows: known.idxmax() if len(known := rows[column].dropna()) else None


BESIDE = {"control": "control task", "selectivity": "selectivity", "random_twin": "random twin"}
SIZES = {"neurons": "neurons", "share": "share"}
TABLES = {
    "probe": TerminalTable("scores", {"features": "features", "score": "score", **BESIDE}, "score", _best_layer),
    "rank": TerminalTable("minimal", {"set": "set", **SIZES, "score": "score", **BESIDE}, "score", _last),
    "redundancy": TerminalTable("reduction", {"set": "set", **SIZES, "score": "score"}, "score", _last),
    "transfer": TerminalTable(
        "steps",
        {"step": "step", "layer": "layers", **SIZES, "test": "score", "bytes": "MB", "ms": "ms per text"},
        "test",
        lambda rows: rows.index[list(rows["step"]).index("as saved")],
    ),
    "compare": TerminalTable(
        "curves",
        {"model": "model", "layer": "layer", "value": "likeness to the next layer"},
        "value",
        _highest("value"),
        "curve == 'to_next_layer' and measure == 'cka'",
    ),
    "distill": TerminalTable(
        "scores",
        {"score": "score", "subject": "student/language", "value": "value"},
        "value",
        where="step == step.max()",
    ),
    "evaluate retrieval": TerminalTable(
        "retrieval",
        {"query": "from", "candidates": "to", "score": "by", "layers": "layers", "accuracy": "accuracy"},
        "accuracy",
        _highest("accuracy"),
    ),
}


def show(run: Run, console: Console, *, tables: str = "") -> None:
    """Print a run: table, warnings, the answer in one sentence, the next command, and where its tables are."""
    view = TABLES.get(run.command)
    if view is not None and view.table in run.tables:
        console.print(result_table(run, view))
    for warning in run.summary.get("warnings", []):
        console.print(str(warning), style="yellow", markup=False, highlight=False)
    console.print(_answer(run), style="bold", markup=False, highlight=False)
    if following := run.summary.get("next"):
        console.print(f"Next: {following}", markup=False, highlight=False, soft_wrap=True)
    if tables:
        console.print(tables, style="dim", markup=False, highlight=False, soft_wrap=True)


def result_table(run: Run, view: TerminalTable) -> Table:
    """The rows of a command's main table, the best one in bold, and its baselines."""
    from rich import box
    from rich.table import Table

    rows = run.tables[view.table]
    rows = rows.query(view.where) if view.where else rows
    best, left = view.best(rows) if len(rows) else None, max(len(rows) - MOST_ROWS, 0)
    kept = rows.loc[[*dict.fromkeys([*rows.index[:MOST_ROWS], *([] if best is None else [best])])]]
    columns = [name for name in view.columns if name in kept and kept[name].notna().any()]
    table = Table(box=box.ROUNDED, header_style="", caption=f"{left} more rows in the folder" if left else None)
    for name in columns:
        table.add_column(view.columns[name], justify="left" if kept[name].dtype == object else "right")
    for place, row in kept.iterrows():
        table.add_row(*(_cell(name, row, view.score) for name in columns), style="bold" if place == best else None)
    flat = {name.removesuffix(" baseline"): n for name, n in run.summary.items() if name.endswith(" baseline")}
    for name, value in {**flat, **run.summary.get("baselines", {})}.items():
        cells = {columns[0]: f"{name} (baseline)", view.score: f"{value:.3f}"}
        table.add_row(*(cells.get(column, "") for column in columns), style="dim")
    return table


def _cell(name: str, row: Mapping[Any, Any], score: str) -> str:
    value = row[name]
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if math.isnan(value):
        return "–"
    if name in ("share", "bytes"):
        return f"{value:.1%}" if name == "share" else f"{value / 1e6:.1f}"
    if name in ("ms", "layer", "neurons"):
        return f"{value:.2f}" if name == "ms" else f"{value:,.0f}"
    low, high = (row.get(bound, math.nan) for bound in ("low", "high"))
    bounds = "" if name != score or math.isnan(low) or math.isnan(high) else f" [{low:.3f}, {high:.3f}]"
    return f"{value:.3f}{bounds}"


def _answer(run: Run) -> str:
    """What the command says itself, or the first finding of its page."""
    if answer := run.summary.get("answer"):
        return str(answer)
    from residuum.reporting.report import section

    return next((finding.text for finding in section(run).findings), "")
