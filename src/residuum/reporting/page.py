"""Sections → one HTML text, by a template, with scripts, styles and data inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from residuum.reporting.content import Panel, Section, Table
from residuum.reporting.embedding import (
    DIGITS,
    figure_data,
    json_block,
    rows_shown,
    script_block,
    script_hash,
    table_data,
)
from residuum.reporting.studies import study_overview
from residuum.storage.results import clear_content_errors

STUDY = "study"
SCRIPTS = ("data.js", "theme.js", "figures.js", "tables.js", "main.js")


def render(sections: Sequence[Section], title: str) -> str:
    """The whole page. Whatever comes from data is escaped by the template, or embedded as JSON without `<`."""
    loader = PackageLoader("residuum.reporting", "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    numbered = [_section(section, f"run-{number}") for number, section in enumerate(sections, start=1)]
    scripts = [script_block(get_plotlyjs()), script_block("\n".join(_asset(environment, name) for name in SCRIPTS))]
    return environment.get_template("page.html").render(
        title=title,
        several=len(sections) > 1,
        digits=DIGITS,
        sections=numbered,
        chapters=_chapters(numbered),
        overview=study_overview(sections),
        style=Markup(_asset(environment, "style.css")),
        scripts=scripts,
        script_hashes=" ".join(script_hash(script) for script in scripts),
    )


def _asset(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _section(section: Section, key: str) -> dict[str, Any]:
    """A section as the template reads it: every part has the id by which the page's scripts find its data."""
    table_ids = {table.name: f"{key}-table-{n}" for n, table in enumerate(section.tables, start=1)}
    frames = {table.name: table.frame for table in section.tables}
    with clear_content_errors(section.command, section.source):
        return {
            "id": key,
            "content": section,
            "folder": Path(section.source).name,
            "panels": [
                _panel(panel, f"{key}-figure-{n}", table_ids, frames) for n, panel in enumerate(section.panels, start=1)
            ],
            "tables": [_table(table, table_ids[table.name]) for table in section.tables],
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
    return {
        "id": key,
        "content": panel,
        "shape": f"{panel.shape} tall" if tall else panel.shape,
        "groups": groups,
        "first": panel.first_key,
        "data": json_block(views),
    }


def _table(table: Table, key: str) -> dict[str, Any]:
    return {"id": key, "content": table, "data": json_block(table_data(table.frame))}


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
