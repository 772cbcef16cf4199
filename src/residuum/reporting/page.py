"""Sections → one HTML text, by a template; tables, figures and scripts are embedded as text that is safe in HTML."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from residuum.reporting.charts import has_marks
from residuum.reporting.content import Panel, Section, View
from residuum.reporting.studies import study_overview
from residuum.storage.results import clear_content_errors

STUDY = "study"
TILES = 6  # at most, on the first screen
HEROES = ("transfer", "shrink", "prune", "distill", "rank", "redundancy", "probe", "diff", "compare")
"""Commands by how much their first figure tells a reader who sees only one."""
EMBEDDED_ROWS = 50_000  # of one table; a page with more opens slowly
USUAL_HEIGHT, MOST_HEIGHT = 420, 1600  # of a figure, in pixels: beyond the one it is kept, up to the other
HALF_COLUMNS = 8  # of a map, up to which it and its numbers fit in half the width
DIGITS = 7  # significant; the run's own files have all
SCRIPTS = ("data.js", "theme.js", "figures.js", "tables.js", "main.js")


def render(sections: Sequence[Section], title: str) -> str:
    """The whole page. Whatever comes from data is escaped by the template, or embedded as JSON without `<`."""
    loader = PackageLoader("residuum.reporting", "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    numbered = [_section(section, f"run-{number}") for number, section in enumerate(sections, start=1)]
    chapters = _chapters(numbered)
    leads = [chapter["lead"] for chapter in chapters]
    told = leads if any(lead["content"].command in HEROES for lead in leads) else numbered  # else steps of studies tell
    order = {command: place for place, command in enumerate(HEROES)}
    ranked = sorted(told, key=lambda section: order.get(section["content"].command, len(HEROES)))
    first = ranked[0]["content"]
    shown = leads if told is numbered else ranked  # a study's own numbers say more than those of its steps
    tiles = dict(list(shown[0]["content"].facts.items())[:4])
    for section in shown[1:]:
        for name, value in list(section["content"].facts.items())[:1]:  # a run's first fact is its answer
            tiles.setdefault(f"{name} ({section['label']})", value)
    panels = [panel for section in ranked for panel in section["panels"]]
    wide = [panel for panel in panels if panel["content"].shape == "wide" and not panel["whole_row"]]
    answers = [study_overview(sections)] if told is numbered else []
    plotly, own = get_plotlyjs(), script_block("\n".join(_asset(environment, name) for name in SCRIPTS))
    return environment.get_template("page.html").render(
        title=title,
        several=len(sections) > 1,
        digits=DIGITS,
        sections=numbered,
        chapters=chapters,
        answer=next(filter(None, [*answers, *(finding.text for finding in first.findings)]), ""),
        headline=dict(list(tiles.items())[:TILES]),
        hero={**wide[0], "id": "hero"} if wide and len(sections) > 1 else None,
        style=Markup(_asset(environment, "style.css")),
        plotly=packed(plotly),
        script=own,
        script_hashes=" ".join(script_hash(script) for script in (plotly, own)),
    )


def _asset(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _section(section: Section, key: str) -> dict[str, Any]:
    """A section as the template reads it: every part has the id by which the page's scripts find its data.

    A figure of a single dot is left out, since a finding says as much.
    """
    telling = (
        replace(panel, views=tuple(v for v in panel.views if has_marks(v.figure, 2))) for panel in section.panels
    )
    section = replace(section, panels=tuple(panel for panel in telling if panel.views))
    table_ids = {table.name: f"{key}-table-{n}" for n, table in enumerate(section.tables, start=1)}
    frames = {table.name: table.frame for table in section.tables}
    with clear_content_errors(section.command, section.source):
        return {
            "id": key,
            "content": section,
            "label": Path(section.source).name or f"{section.command} {key.removeprefix('run-')}",
            "panels": _in_rows(
                _panel(panel, f"{key}-figure-{n}", table_ids, frames) for n, panel in enumerate(section.panels, start=1)
            ),
            "tables": [
                {"id": table_ids[table.name], "content": table, "data": json_block(table_data(table.frame))}
                for table in section.tables
            ],
            "settings": list(_lines(section.config)),
            "versions": list(_lines(section.environment)),
        }


def _chapters(sections: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sections that lead, each with its steps: the runs whose folders lie in the folder of a study."""
    folders = [Path(section["content"].source) if section["content"].source else None for section in sections]
    studies = {
        folder: section
        for folder, section in zip(folders, sections, strict=True)
        if folder is not None and section["content"].command == STUDY
    }
    homes = [None if folder is None else studies.get(folder.parent) for folder in folders]
    return [
        {"lead": section, "steps": [step for step, home in zip(sections, homes, strict=True) if home is section]}
        for section, home in zip(sections, homes, strict=True)
        if home is None or home is section
    ]


def _in_rows(panels: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Panels in rows of two halves. Beside a full one, a half would stand in a void: it gets the whole row too."""
    rows: list[dict[str, Any]] = []
    waiting = None  # the first half of a row
    for panel in panels:
        if panel["whole_row"] and waiting is not None:
            waiting["shape"] += " full"
        waiting = panel if waiting is None and not panel["whole_row"] else None
        rows.append(panel)
    if waiting is not None:
        waiting["shape"] += " full"
    return rows


def _panel(panel: Panel, key: str, table_ids: Mapping[str, str], frames: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    views = [
        {"key": view.key, "note": view.note, "table": table_ids[view.table], "where": dict(view.where)}
        | {"having": list(view.having)}
        | rows_shown(view, frames[view.table])
        | figure_data(view.figure)
        for view in panel.views
    ]
    groups = {view.group: [other for other in panel.views if other.group == view.group] for view in panel.views}
    tall = panel.shape == "wide" and any(view["height"] for view in views)
    drawn = [view.figure.to_plotly_json()["data"] for view in panel.views]
    columns = [{x for trace in traces for x in trace.get("x", ())} for traces in drawn]  # of a map of blocks
    wide_map = panel.shape == "square" and max(map(len, columns)) > HALF_COLUMNS
    return {
        "id": key,
        "content": panel,
        "shape": f"{panel.shape} {'full' if tall or wide_map else 'small'}",
        "whole_row": tall or wide_map,
        "groups": groups,
        "first": panel.first_key,
        "data": json_block(views),
    }


def _lines(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Settings as (name, values), with the names of nested ones joined by dots."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _lines(value, f"{prefix}{name}.")
        else:
            values = value if isinstance(value, list | tuple) and value else [value]
            yield f"{prefix}{name}", [_shown(part) for part in values]


def _shown(value: Any) -> str:
    if value is None or value in ({}, [], ()):
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def json_block(value: Any) -> Markup:
    """JSON for a `<script type="application/json">`: no `<` in it, so that nothing in the data can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def packed(source: str) -> Markup:
    """A script as gzip in base64, a third of its size; the page unpacks it and runs it under its hash."""
    return Markup(base64.b64encode(gzip.compress(source.encode(), compresslevel=9, mtime=0)).decode())


def script_block(source: str) -> Markup:
    """JavaScript for a `<script>`: an end tag or comment inside a string of it is broken up, with the same meaning."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")  # as a browser reads them, or the hash would differ
    return Markup(re.sub("<(?=/script|!--)", r"<\\", source, flags=re.IGNORECASE))


def script_hash(script: str) -> str:
    """A script's name in a content security policy, which then lets no other script run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def table_data(frame: pd.DataFrame) -> dict[str, Any]:
    """A table by columns: numbers as such, other values as text, and how many rows it has in all."""
    shown = frame.head(EMBEDDED_ROWS)
    columns = [_column(str(name), shown.iloc[:, place]) for place, name in enumerate(frame.columns)]
    return {"columns": columns, "rows": len(shown), "total": len(frame)}


def rows_shown(view: View, frame: pd.DataFrame) -> dict[str, Any]:
    """What a view shows, where the page cannot find it in its table: computed points, or rows of a table that is cut.

    Of a cut table, the number of rows is given in any case, and the rows unless they are too many as well.
    """
    if view.points is not None:
        return {"rows": len(view.points), "points": table_data(view.points)}
    if len(frame) <= EMBEDDED_ROWS:
        return {}
    shown = frame.loc[fitting_rows(view, frame)]
    return {"rows": len(shown), **({"points": table_data(shown)} if len(shown) <= EMBEDDED_ROWS else {})}


def fitting_rows(view: View, frame: pd.DataFrame) -> np.ndarray:
    """Which rows of its table a view shows; `rowsWhere` of the page finds the same ones."""
    fits = np.asarray(frame[list(view.having)].notna().to_numpy().all(axis=1))
    for name, values in view.where.items():
        column, several = pd.Series(frame[name]), (values,) if isinstance(values, str) else values
        if _is_numeric(column):
            numbers, near = column.to_numpy(dtype=float, na_value=math.nan), 10.0 ** (1 - DIGITS)
            fits &= np.any([np.isclose(numbers, float(value), rtol=near, atol=0) for value in several], axis=0)
        else:
            fits &= column.map(_text).isin(several).to_numpy(dtype=bool)
    return fits


def figure_data(figure: go.Figure) -> dict[str, Any]:
    """A figure's traces and layout. Its size is the page's to decide, but for the height that many rows need."""
    parts = figure.to_plotly_json()
    layout = {key: value for key, value in parts["layout"].items() if key not in ("width", "height", "template")}
    height = parts["layout"].get("height") or 0
    tall = min(height, MOST_HEIGHT) if height > USUAL_HEIGHT else None
    return {"data": _finite(parts["data"]), "layout": _finite(layout), "height": tall}


def _is_numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _column(name: str, values: pd.Series) -> dict[str, Any]:
    if _is_numeric(values):
        return {"name": name, "numeric": True, "values": [_number(value) for value in values]}
    levels: dict[str, int] = {}  # not by pandas, of which old versions take texts that end in NUL for others
    texts = values.map(_text, na_action="ignore")
    codes = [levels.setdefault(text, len(levels)) if isinstance(text, str) else -1 for text in texts]
    return {"name": name, "numeric": False, "values": codes, "levels": list(levels)}


def _number(value: Any) -> int | float | None:
    if pd.isna(value):
        return None
    return int(value) if isinstance(value, int | np.integer) else _brief(float(f"{value:.{DIGITS}g}"))


def _brief(value: float) -> int | float | None:
    """A number without a needless `.0`; nothing where it is not finite."""
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _text(value: Any) -> str:
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


def _finite(value: Any) -> Any:
    """Plain JSON values: arrays as lists, and nothing where a number is not finite."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return _finite(value.tolist())
    return _brief(value) if isinstance(value, float) else value
