"""Cards of neurons: the words at both ends, texts coloured by activation; and the section of a `describe` run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from residuum.reporting.charts import interval_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Card, Finding, Panel, Section, Table, View, Word
from residuum.storage.results import Run

COLUMNS = {
    "card_words": ("neuron", "end", "rank", "word", "mean", "z", "count"),
    "card_contexts": ("neuron", "context", "word", "activation", "z", "peak"),
}
CAPTIONS = {
    "card_words": "The words with the highest and lowest mean activation of each described neuron.",
    "card_contexts": "Its strongest reactions, with the words around them.",
    "card_classes": "Its activations in each class.",
}
LEVELS = (0.5, 1.0, 2.0)
"""Standard deviations from the mean at which a word's colour becomes stronger."""


def cards_section(run: Run, source: str = "") -> Section:
    """Which words some neurons of a model react to."""
    check_tables(run, source or "This run", "description of neurons", "describe", COLUMNS)
    words = run.tables["card_words"]
    neurons = words["neuron"].unique()
    return Section(
        command=run.command,
        title=f"What do neurons of {run.config['model']} react to?",
        source=source,
        facts={"neurons": f"{len(neurons):,}", f"{run.config['unit']}s": f"{run.summary[run.config['unit'] + 's']:,}"},
        findings=tuple(_findings(run, words)),
        panels=(_words_panel(words),),
        tables=tuple(Table(name, run.tables[name], CAPTIONS[name], folded=True) for name in COLUMNS),
        config=run.config,
        environment=run.environment,
        cards=tuple(neuron_cards(run, lambda neuron: _note(run, neuron))),
    )


def neuron_cards(run: Run, note: Callable[[str], str]) -> list[Card]:
    """A card for each neuron that a run describes; `note` is what is said of it first."""
    if not COLUMNS.keys() <= run.tables.keys():
        return []
    words, contexts = run.tables["card_words"], run.tables["card_contexts"]
    return [
        Card(
            title=f"Neuron {neuron}",
            note=note(str(neuron)),
            lists={
                f"{_ends(end)} on": tuple(map(_counted, part.to_dict("records"))) for end, part in own.groupby("end")
            },
            texts=tuple(
                tuple(map(_word, part.to_dict("records")))
                for _, part in contexts.loc[contexts["neuron"] == neuron].groupby("context")
            ),
        )
        for neuron, own in words.groupby("neuron", sort=False)
    ]


def _note(run: Run, neuron: str) -> str:
    if neuron in run.summary.get("constant", "").split(", "):
        return "It is constant."
    unit = run.config["unit"]
    return f"Over {run.summary[unit + 's']:,} {unit}s."


def _findings(run: Run, words: pd.DataFrame) -> list[Finding]:
    constant = run.summary.get("constant", "")
    found = [Finding("Constant", f"{constant} say the same whatever is read.")] if constant else []
    for neuron, own in words.loc[words["rank"] == 1].groupby("neuron", sort=False):
        ends = [f"{_ends(row['end']).lower()} on {row['word']} ({_signed(row['z'])})" for row in own.to_dict("records")]
        found.append(Finding(f"Neuron {neuron}", f"It is {' and '.join(ends)}.", minor=len(found) > 4))
    return found


def _words_panel(words: pd.DataFrame) -> Panel:
    views = []
    for neuron, own in words.groupby("neuron", sort=False):
        rows = own.sort_values("z", ascending=False, kind="stable")
        unknown = [np.nan] * len(rows)
        names = rows["word"].tolist()
        figure = interval_chart(names, rows["z"].tolist(), unknown, unknown, x="standard deviations", bound=0.0)
        views.append(View(str(neuron), str(neuron), figure, "card_words", {"neuron": str(neuron)}))
    caption = "Mean activation on the words at both ends of a neuron, from its mean on all words."
    return Panel("The words at both ends", caption, tuple(views), choice="Neuron")


def _ends(end: object) -> str:
    return "Highest" if end == "high" else "Lowest"


def _counted(row: dict[str, Any]) -> str:
    return f"{row['word']} {_signed(row['z'])}"


def _word(row: dict[str, Any]) -> Word:
    size = sum(abs(row["z"]) >= bound for bound in LEVELS)
    level = int(np.sign(row["z"])) * (4 if row["peak"] else size)
    return Word(str(row["word"]), level, _signed(row["z"]))


def _signed(z: float) -> str:
    return f"{z:+.1f}".replace("-", "−")
