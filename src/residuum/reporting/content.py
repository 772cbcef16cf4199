"""What a page is made of: sections with findings, figures and tables. No HTML here, and nothing is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go


@dataclass(frozen=True)
class Finding:
    """One sentence or two for the front of the page, with the numbers in them.

    `verdict` stands before the text; of many findings those that are `minor` are folded away.
    """

    topic: str
    text: str
    verdict: str = ""
    minor: bool = False


@dataclass(frozen=True, eq=False)
class View:
    """One drawing, and the rows of one of the section's tables that it shows.

    They are those where every column of `where` has that value (or one of those values), and every column of `having`
    any. Where no row is drawn, but what was made of them, `own` is a table of just that.
    """

    key: str
    label: str
    figure: go.Figure
    table: str
    where: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    having: tuple[str, ...] = ()
    own: pd.DataFrame | None = None
    group: str = ""  # under which the label stands when the reader chooses
    note: str = ""


@dataclass(frozen=True, eq=False)
class Panel:
    """A figure of the page. With several views the reader chooses one; equal keys in a section are chosen together."""

    title: str
    caption: str
    views: tuple[View, ...]
    first: str = ""  # the key that is shown at first; else the first view
    choice: str = "Measure"
    shape: Literal["wide", "square"] = "wide"

    @property
    def first_key(self) -> str:
        """The key of the view that is shown at first."""
        keys = [view.key for view in self.views]
        return self.first if self.first in keys else keys[0]


@dataclass(frozen=True, eq=False)
class Table:
    """A table of a run."""

    name: str
    frame: pd.DataFrame
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Word:
    """A word of a text that is coloured by a value: `level` from −4 (far below) over 0 to 4 (far above)."""

    text: str
    level: int
    value: str = ""  # shown beside the word where it stands out, and by pointing at any word


@dataclass(frozen=True)
class Card:
    """What one neuron reacts to: lists of words, and texts whose words are coloured by its activation."""

    title: str
    note: str
    lists: Mapping[str, tuple[str, ...]]
    texts: tuple[tuple[Word, ...], ...]


@dataclass(frozen=True, eq=False)
class Section:
    """All that is shown of one run."""

    command: str
    title: str
    source: str  # the run's folder, if it has one
    facts: Mapping[str, str]  # the few numbers that stand large on the front
    findings: tuple[Finding, ...]
    panels: tuple[Panel, ...]
    tables: tuple[Table, ...]
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    cards: tuple[Card, ...] = ()
    label: str = ""  # in the navigation; else the command
