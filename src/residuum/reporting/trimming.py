"""The section of a `trim` run: which pieces of the vocabulary stayed, and what that saved."""

from __future__ import annotations

import numpy as np
import pandas as pd

from residuum.reporting.charts import Series, line_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.storage.results import Run

COLUMNS = {"pieces": ("piece", "old_id", "new_id", "count")}
POINTS = 60  # of the curve, which thousands of pieces would only make slow


def trimming_section(run: Run, source: str = "") -> Section:
    """What a vocabulary can do without."""
    check_tables(run, source or "This run", "trimming", "trim", COLUMNS)
    summary, pieces = run.summary, run.tables["pieces"]
    text = (
        f"{summary['pieces after']:,} of {summary['pieces before']:,} pieces stayed, which saves "
        f"{summary['share saved']:.0%} of the parameters; {summary['lines split in another way']:,} lines of the texts "
        "are split in another way."
    )
    covered = _covered(pieces)
    line = Series("share of the texts", covered["pieces"].tolist(), covered["share"].tolist())
    figure = line_chart([line], x="pieces, the most frequent first", y="share of the texts")
    view = View("share", "Share", figure, table="pieces", own=covered)
    caption = "The share of the texts that the most frequent pieces make up: how many more could go."
    return Section(
        command=run.command,
        title="Which pieces of the vocabulary stayed?",
        source=source,
        facts={"pieces": f"{summary['pieces after']:,}", "parameters after": f"{summary['parameters after']:,}"},
        findings=(Finding("Vocabulary", text),),
        panels=(Panel("How much of the text the frequent pieces cover", caption, (view,)),),
        tables=(Table("pieces", pieces, "Old and new numbers of each piece, and how often the texts use it.", True),),
        config=run.config,
        environment=run.environment,
    )


def _covered(pieces: pd.DataFrame) -> pd.DataFrame:
    """How much of the texts the most frequent pieces make up: a row for each point of the curve."""
    counts = np.sort(pieces["count"].to_numpy(dtype=float))[::-1]
    covered = np.cumsum(counts) / max(counts.sum(), 1.0)
    places = np.unique(np.linspace(0, len(counts) - 1, POINTS).astype(int))
    return pd.DataFrame({"pieces": places + 1, "share": covered[places]})
