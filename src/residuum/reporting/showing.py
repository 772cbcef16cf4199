"""A run in a notebook: its findings with the first rows of a table, and its figures one by one."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from markupsafe import escape

from residuum.errors import SettingError
from residuum.reporting.content import Panel, View
from residuum.reporting.sections import section
from residuum.storage.results import Run

ROWS = 8


def run_html(run: Run, frame: pd.DataFrame) -> str:
    """The title, the few numbers and the findings that the report has of a run, and the first rows of `frame`."""
    shown = section(run)
    facts = " · ".join(f"{escape(name)} <b>{escape(value)}</b>" for name, value in shown.facts.items())
    findings = "".join(f"<li><b>{escape(one.topic)}</b>: {escape(one.text)}</li>" for one in shown.findings)
    rest = f"<p>{ROWS} of {len(frame):,} rows; <code>.frame</code> has all.</p>" if len(frame) > ROWS else ""
    figures = f"<p><code>.plot()</code> draws {escape(_titles(shown.panels))}.</p>" if shown.panels else ""
    return (
        f"<div><h4>{escape(shown.title)}</h4><p>{facts}</p><ul>{findings}</ul>"
        f"{frame.head(ROWS).to_html(index=False)}{rest}{figures}</div>"
    )


def run_figure(run: Run, title: str = "", view: str = "") -> go.Figure:
    """The first figure of a run's report whose title has `title` in it, and of it the view of that key or label."""
    panels = section(run).panels
    if not panels:
        raise SettingError(f"Of this run of {run.command} nothing can be drawn; .frame has its numbers.")
    chosen = next((panel for panel in panels if title.lower() in panel.title.lower()), None)
    if chosen is None:
        raise SettingError(f"{run.command} has no figure {title!r}; there are {_titles(panels)}.")
    return _view(chosen, view or chosen.first_key).figure


def _view(panel: Panel, key: str) -> View:
    """The view of a key or label."""
    chosen = next((view for view in panel.views if key in (view.key, view.label)), None)
    if chosen is None:
        there = ", ".join(view.key for view in panel.views)
        raise SettingError(f"The figure {panel.title!r} has no view {key!r}; choose one of {there}.")
    return chosen


def _titles(panels: tuple[Panel, ...]) -> str:
    return ", ".join(repr(panel.title) for panel in panels)
