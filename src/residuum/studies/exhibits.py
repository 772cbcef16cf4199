"""The tables and figures of the documents in their own shape, made from the tables of the steps.

A figure's table is tidy: one row per point. A document's table is wide: its rows and columns are those of the document.
`Drawing` says how the report draws a table, so that it can be drawn again from the folder alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from residuum.storage.results import Run
from residuum.studies.documents import Results, StudyStep

Shape = Literal["", "heatmaps", "maps", "lines", "bars", "words"]
AVERAGE = "Average"


@dataclass(frozen=True)
class Drawing:
    """How a table is drawn: one panel per value of `panel`; lines, bars or cells of `y` over `x`, told apart by `by`.

    `heatmaps` are pairs of layers, one view per panel; `maps` are grids of cells with the value `by`; without a shape
    the exhibit is a table.
    """

    shape: Shape = ""
    x: str = ""
    y: str = ""
    by: str = ""
    panel: str = ""


TABLE = Drawing()


@dataclass(frozen=True, eq=False)
class Exhibit:
    """A table or figure of the document under its own number, and how ours is made from the steps of some kinds."""

    label: str
    title: str
    kinds: tuple[str, ...]
    make: Callable[[Results], pd.DataFrame]
    drawing: Drawing = TABLE

    @property
    def table(self) -> str:
        """The name of its table and files: `table-4.3`, `figure-1`."""
        return re.sub(r"[^\w.]+", "-", self.label.lower()).strip("-")


def gathered(results: Results, kinds: str | Sequence[str], table: str, **facts: str) -> pd.DataFrame:
    """One table of all steps of some kinds below each other, with the model, task and variant of each step in front.

    A column that the table has already keeps its name; the step's fact is then `step model`, and so on. Of several
    metrics only the task's own one is kept.
    """
    parts = []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        for step, run in results.of(kind, **facts):
            if table in run.tables:
                own = run.tables[table]
                if "metric" in run.summary and "metric" in own:
                    own = own.loc[own["metric"] == run.summary["metric"]]
                parts.append(with_facts(own, step))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def tuned_scores(results: Results, kinds: Sequence[str]) -> pd.DataFrame:
    """One row per fine-tuned model and seed: its accuracy on the test part, which the documents print for every task.

    A regression has its own metric instead.
    """
    parts = []
    for step, run in (pair for kind in kinds for pair in results.of(kind)):
        table = chosen(run.tables["scores"], part="test")
        metric = "accuracy" if "accuracy" in set(table["metric"]) else run.summary["metric"]
        parts.append(with_facts(chosen(table, metric=metric), step))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def with_facts(table: pd.DataFrame, step: StudyStep) -> pd.DataFrame:
    """A table with the model, task and variant of its step as its first columns."""
    known = {name: getattr(step, name) for name in ("model", "task", "variant") if getattr(step, name)}
    facts = {f"step {name}" if name in table else name: value for name, value in known.items()}
    return table.assign(**facts).reindex(columns=[*facts, *table.columns])


def wide(
    frame: pd.DataFrame, rows: str | list[str], columns: str | list[str], values: str, *, average: str = ""
) -> pd.DataFrame:
    """One row per value of `rows`, one column per value of `columns`, in the order in which they occur.

    `average` adds the mean of a row as a last column of that name.
    """
    if frame.empty:
        return frame
    table = frame.pivot_table(index=rows, columns=columns, values=values, sort=False, aggfunc="mean", dropna=False)
    table = table.dropna(how="all").dropna(how="all", axis=1)
    names = [name if isinstance(name, tuple) else (name,) for name in table.columns]
    texts = [[f"{part:g}" if isinstance(part, float) else str(part) for part in name] for name in names]
    table.columns = pd.Index([" ".join(text) for text in texts])
    if average:
        table[average] = table.mean(axis=1)
    return table.reset_index()


def with_average_row(table: pd.DataFrame, name: str = AVERAGE) -> pd.DataFrame:
    """A wide table with the mean of each column as its last row."""
    if table.empty:
        return table
    numeric = table.select_dtypes("number").columns
    last = {column: table[column].mean() if column in numeric else name for column in table.columns}
    return pd.concat([table, pd.DataFrame([last])], ignore_index=True)


def rows_of(results: Results, kinds: str | Sequence[str], row: Callable[[StudyStep, Run], Any]) -> pd.DataFrame:
    """One row per step: what `row` reads in its run, or several rows where it gives a list."""
    rows: list[Any] = []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        for step, run in results.of(kind):
            found = row(step, run)
            rows += found if isinstance(found, list) else [found]
    return pd.DataFrame(rows)


def chosen(frame: pd.DataFrame, **where: Any) -> pd.DataFrame:
    """The rows whose columns have these values (or one of them)."""
    for name, value in where.items():
        if name not in frame:
            return frame.iloc[:0]
        frame = frame.loc[frame[name].isin(value if isinstance(value, tuple | list) else [value])]
    return frame


def heatmaps(kind: str, *measures: str) -> tuple[Callable[[Results], pd.DataFrame], Drawing]:
    """The similarity of all layers by some measures, drawn as one heatmap per measure."""

    def make(results: Results) -> pd.DataFrame:
        return chosen(gathered(results, kind, "similarity"), measure=measures)

    return make, Drawing("heatmaps", panel="measure")


def layer_maps(kind: str) -> tuple[Callable[[Results], pd.DataFrame], Drawing]:
    """CKA of the layers of each model, drawn as a grid of maps."""

    def make(results: Results) -> pd.DataFrame:
        pairs = chosen(gathered(results, kind, "similarity"), measure="cka")
        inside = pairs.loc[pairs["model_a"] == pairs["model_b"]] if len(pairs) else pairs
        return inside.rename(columns={"model_a": "model"}).drop(columns="model_b", errors="ignore")

    return make, Drawing("maps", x="layer_b", y="layer_a", by="value", panel="model")


def curves(kind: str, curve: str, measure: str = "") -> Callable[[Results], pd.DataFrame]:
    """One value per layer and model."""

    def make(results: Results) -> pd.DataFrame:
        found = chosen(gathered(results, kind, "curves"), curve=curve)
        return chosen(found, measure=measure) if measure else found

    return make


def data_table(results: Results, kinds: Sequence[str], tasks: Sequence[str] = ()) -> pd.DataFrame:
    """Examples (words or sentences) of each part of each task, and the number of labels where there are classes."""

    def row(step: StudyStep, run: Run) -> dict[str, Any]:
        examples = {**run.config.get("examples", {}), **run.summary.get("examples", {})}
        labels = run.tables["classes"]["class"].nunique() if "classes" in run.tables else np.nan
        parts = {part: examples.get(part, np.nan) for part in ("train", "dev", "test")}
        return {"task": step.task, **parts, "labels": labels}

    table = rows_of(results, kinds, row)
    if table.empty:
        return table
    table = table.drop_duplicates("task", ignore_index=True)
    return chosen(table, task=tuple(tasks)) if tasks else table
