"""What a page is made of: sections with findings, figures and tables, and how a section is built from a run.

A command has one function that turns a run into a `Section`, and one mapping that describes the tables it writes. What
all sections share (checking tables, notes on the data, empty figures, the audit) happens once, in `build_section`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.errors import StoreError
from residuum.reporting.charts import has_marks
from residuum.reporting.wording import capital, count, shown
from residuum.storage.results import Run

Row = dict[str, Any]
AUDIT = "audit"
SAID = ("answer", "warnings", "next", "left out", "notes")  # of a summary: findings of every command, or none


@dataclass(frozen=True)
class Finding:
    """One or two sentences for the front of the page, with the numbers in them.

    `verdict` is shown before the text; of many findings the `minor` ones are collapsed.
    """

    topic: str
    text: str
    verdict: str = ""
    minor: bool = False


@dataclass(frozen=True, eq=False)
class View:
    """One drawing, and the rows of one of the section's tables that it shows.

    These are the rows where every column of `where` has that value (or one of those values) and no column of `having`
    is missing. Where the drawing shows something computed from the rows, `points` is the table of what it shows.
    """

    key: str
    label: str
    figure: go.Figure
    table: str
    where: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    having: tuple[str, ...] = ()
    points: pd.DataFrame | None = None
    group: str = ""  # heading of the label in the list of views
    note: str = ""


@dataclass(frozen=True, eq=False)
class Panel:
    """A figure of the page. The reader chooses one of its views; equal keys in a section are chosen together."""

    title: str
    caption: str
    views: tuple[View, ...]
    first: str = ""  # key of the view that is shown first; by default the first one
    choice: str = "Measure"
    shape: Literal["wide", "square"] = "wide"

    @property
    def first_key(self) -> str:
        """The key of the view that is shown first."""
        keys = [view.key for view in self.views]
        return self.first if self.first in keys else keys[0]


@dataclass(frozen=True, eq=False)
class SectionTable:
    """A table of a run, with its caption."""

    name: str
    frame: pd.DataFrame
    caption: str = ""


@dataclass(frozen=True)
class ColouredWord:
    """A word in a text that is coloured by a value: `level` from −4 (far below the mean) to 4 (far above)."""

    text: str
    level: int
    value: str = ""  # beside the strongest word of a text, and the tooltip of every word


@dataclass(frozen=True)
class Card:
    """What one neuron reacts to: lists of words, and texts whose words are coloured by its activation."""

    title: str
    note: str
    lists: Mapping[str, tuple[str, ...]]
    texts: tuple[tuple[ColouredWord, ...], ...]


@dataclass(frozen=True, eq=False)
class Section:
    """All that the page shows of one run. A command gives the first six fields; `build_section` adds the others.

    Tables that a command gives are only captions of tables that are named in no `TableSpec`.
    """

    title: str
    facts: Mapping[str, Any]  # the few numbers in large type; None is left out
    findings: Iterable[Finding]
    panels: Iterable[Panel]
    cards: Iterable[Card] = ()
    command: str = ""
    source: str = ""  # the run's folder, if it has one
    tables: tuple[SectionTable, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableSpec:
    """A table that a command writes: its caption, and the columns that its section needs (none: it may be absent)."""

    caption: str
    columns: str | tuple[str, ...] = ""  # names, or their list with commas

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the columns that the section needs."""
        return tuple(filter(None, self.columns.split(", "))) if isinstance(self.columns, str) else self.columns


AUDIT_TABLE = TableSpec(
    "What happened to the words of each text in each model. Dropped words have no sub-word, truncated words lie beyond "
    "the model's window, and unknown words have a piece outside its vocabulary; `not read` is what the file reader "
    "skipped. Only dropped and truncated words have no activations. Imported activations have no counts.",
    "model, text, words, sub-words, dropped, truncated, unknown, not read",
)


def build_section(run: Run, source: str, describe: Callable[[Run], Section], specs: Mapping[str, TableSpec]) -> Section:
    """The section of a run: its own content, then the notes, the audit and the tables that every command has."""
    needed = {**specs, **({AUDIT: AUDIT_TABLE} if AUDIT in run.tables else {})}
    check_tables(run, source or "This run", needed)
    own = describe(replace(run, tables={name: frame for name, frame in run.tables.items() if name != AUDIT}))
    panels = (replace(panel, views=tuple(v for v in panel.views if has_marks(v.figure))) for panel in own.panels)
    names = [*(name for name in specs if name in run.tables), *(name for name in run.tables if name not in needed)]
    names += [AUDIT] if AUDIT in run.tables else []
    captions = {name: spec.caption for name, spec in needed.items()} | {one.name: one.caption for one in own.tables}
    said = [Finding("Answer", str(run.summary["answer"]))] if run.summary.get("answer") else []
    warnings = [capital(str(text).removeprefix("Warning: ")) for text in run.summary.get("warnings", [])]
    told = [*said, *own.findings]
    warned = [Finding("Warning", text) for text in warnings]  # after the answer
    left_out = str(run.summary.get("left out") or "")
    notes = [Finding("Left out", f"{capital(left_out)}.")] if left_out else []
    notes += [Finding("Data", f"{note}.") for note in run.summary.get("notes") or run.config.get("notes") or []]
    notes += [Finding("Audit", _audit_text(run.tables[AUDIT]))] if AUDIT in run.tables else []
    return replace(
        own,
        facts={name: shown(value) for name, value in own.facts.items() if value is not None},
        findings=(*told[:1], *warned, *told[1:], *notes),
        panels=tuple(panel for panel in panels if panel.views),
        cards=tuple(own.cards),
        command=run.command,
        source=source,
        tables=tuple(SectionTable(name, run.tables[name], captions.get(name, "")) for name in names),
        config=run.config,
        environment=run.environment,
    )


def check_tables(run: Run, source: str, specs: Mapping[str, TableSpec]) -> None:
    """Raise an error that names the first table that lacks columns, and how to make the run again."""
    for name, spec in specs.items():
        columns = list(run.tables[name].columns) if name in run.tables else []
        if missing := [column for column in spec.required if column not in columns]:
            raise StoreError(
                f"{source} is not a complete run of `{run.command}`: its table {name} has no {', '.join(missing)}. "
                f"Run `{run.command}` again with --fresh."
            )


def records(frame: pd.DataFrame, **where: Any) -> list[Row]:
    """The rows in which all of `where` holds."""
    for column, value in where.items():
        frame = frame.loc[frame[column] == value]
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def single_view(figure: go.Figure, table: str, **rows: Any) -> tuple[View, ...]:
    """The views of a panel that has one; `rows` are `where`, `having` and `points` of the view."""
    return (View(table, table, figure, table, **rows),)


def views_by(
    column: str,
    frame: pd.DataFrame,
    table: str,
    draw: Callable[[pd.DataFrame], go.Figure],
    *,
    label: Callable[[Any], str] = str,
    prefix: str = "",
    where: Mapping[str, str | tuple[str, ...]] | None = None,
    having: tuple[str, ...] = (),
    group: Callable[[Any], str] = lambda _: "",
    note: Callable[[Any], str] = lambda _: "",
) -> tuple[View, ...]:
    """One view per value of a column of the table `table`, of which `frame` holds the rows that are drawn."""
    return tuple(
        View(
            key=f"{prefix}{value}",
            label=label(value),
            figure=draw(frame.loc[frame[column] == value]),
            table=table,
            where={**(where or {}), column: f"{value:.7g}" if isinstance(value, float) else str(value)},
            having=having,
            group=group(value),
            note=note(value),
        )
        for value in frame[column].unique().tolist()
    )


def _audit_text(audit: pd.DataFrame) -> str:
    """What was lost of all texts in all models together, and in which text the most."""
    known = audit.loc[audit["words"].notna()]
    if known.empty:
        return "The activations were imported and come without counts of lost words."
    first = known.iloc[0]
    models, texts = known["model"].nunique(), known["text"].nunique()
    readings = f"{first['model']} on {first['text']}"
    if len(known) > 1:
        readings = f"{count(models, 'model')} on {count(texts, 'text')} (sums)"
    words, pieces, unknown = (int(known[column].sum()) for column in ("words", "sub-words", "unknown"))
    lost = (known["dropped"] + known["truncated"]).astype(int)
    text = f"{readings}: {count(words, 'word')}, {count(pieces, 'sub-word')}, {unknown:,} with unknown pieces, "
    if lost.any():
        worst = known.loc[lost.idxmax()]
        text += (
            f"{lost.sum():,} lost ({lost.sum() / words:.2%}), most of them in {worst['text']} by {worst['model']} "
            f"({worst['dropped']:,} without a sub-word, {worst['truncated']:,} beyond the window)."
        )
    else:
        text += "none lost."
    skipped = records(known.loc[known["not read"] != ""].drop_duplicates("text"))
    parts = "; ".join(f"{row['not read']} in {row['text']}" for row in skipped)
    return f"{text} Not read: {parts}." if parts else text


def has_numbers(frame: pd.DataFrame, column: str) -> bool:
    """Whether a table has a column with any number in it."""
    return column in frame and bool(frame[column].notna().to_numpy().any())


def is_known(value: Any) -> bool:
    """Whether there is a number."""
    return value is not None and not np.isnan(value)
