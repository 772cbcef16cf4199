"""The rows that a figure offers as CSV are those that it draws: it changes with each of them, and with no other."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from every_run import every_run

from residuum.reporting.content import View
from residuum.reporting.page import fitting_rows
from residuum.reporting.report import section

RUNS = {run.command: run for run in every_run("word")}
MOVED = 0.0123  # far more than what is rounded away
KEYS = {"threshold", "depth"}  # by which rows are found, and in these tables also the share of neurons
SHARES_ARE_KEYS = ("selection", "ablation")
COUNTS = ("neurons", "medoid")
BY_LAYER_ALONE = "Layers that were kept"  # draws no number that could be moved


def first_views(run):
    return {panel.title: panel.views[0] for panel in section(run).panels}


def drawn(view):
    return json.dumps(view.figure.to_plotly_json(), default=str, sort_keys=True)


def rounds(run):
    """The first views of all figures that draw rows; those of a round are of different tables."""
    left = {t: view for t, view in first_views(run).items() if view.points is None and t != BY_LAYER_ALONE}
    while left:
        tables = {view.table: title for title, view in reversed(left.items())}
        yield {title: left.pop(title) for title in tables.values()}


def moved(run, chosen):
    """The run with other numbers in the rows that are chosen for each view; what rows are found by stays."""
    tables = dict(run.tables)
    for view, rows in chosen:
        table = tables[view.table].copy()
        keys = KEYS | set(view.where) | ({"share"} if view.table in SHARES_ARE_KEYS else set())
        for name in [name for name in table if name not in keys]:
            if pd.api.types.is_float_dtype(table[name]):
                table.loc[rows, name] += MOVED
            elif name in COUNTS and pd.api.types.is_integer_dtype(table[name]):
                table.loc[rows, name] += 1
        tables[view.table] = table
    return first_views(replace(run, tables=tables))


@pytest.mark.parametrize("command", RUNS)
def test_a_figure_changes_with_a_row_of_its_csv_and_with_no_others(command):
    run = RUNS[command]
    for views in rounds(run):
        rows = {title: fitting_rows(view, run.tables[view.table]) for title, view in views.items()}
        assert all(some.any() for some in rows.values()), views
        with_one = moved(run, [(views[t], np.arange(len(rows[t])) == np.flatnonzero(rows[t])[-1]) for t in views])
        with_others = moved(run, [(views[title], ~rows[title]) for title in views])
        for title, view in views.items():
            assert drawn(with_one[title]) != drawn(view), title
            assert drawn(with_others[title]) == drawn(view), title


@pytest.mark.parametrize(("command", "column"), [("trim", "share"), ("study distillation", "mean")])
def test_what_was_made_of_rows_is_a_table_of_its_own(command, column):
    for view in first_views(RUNS[command]).values():
        (trace,) = view.figure.data
        points = trace.y if command == "trim" else trace.x
        assert view.points[column].round(4).tolist() == list(points)


def test_a_view_chooses_rows_by_one_value_by_one_of_several_and_by_what_is_known():
    frame = pd.DataFrame({"kind": ["a", "b", "c"], "share": [1 / 3, 0.5, np.nan], "layer": [0, None, 2]})
    view = View("", "", None, "table")
    assert fitting_rows(view, frame).tolist() == [True, True, True]
    assert fitting_rows(replace(view, where={"kind": "b"}), frame).tolist() == [False, True, False]
    assert fitting_rows(replace(view, where={"kind": ("a", "c")}), frame).tolist() == [True, False, True]
    assert fitting_rows(replace(view, where={"share": "0.3333333"}), frame).tolist() == [True, False, False]
    assert fitting_rows(replace(view, having=("layer", "share")), frame).tolist() == [True, False, False]
