"""Results in a terminal: what stands in the table, what is bold, and what comes after it."""

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from residuum.cli.terminal import TABLES, result_table, show
from residuum.storage.results import Run


def probing(n_layers=3) -> Run:
    layers = [
        {"kind": "layer", "features": f"layer {n}", "dev": 0.5 + n / 100, "score": 0.6 + n / 100}
        for n in range(n_layers)
    ]
    rows = [{"kind": "all", "features": "all layers", "dev": 0.9, "score": 0.9}, *layers]
    frame = pd.DataFrame(rows).assign(low=0.55, high=0.95, selectivity=np.nan, random_twin=0.4)
    summary = {"answer": "Use layer 2.", "next": "residuum rank m d", "warnings": ["Warning: few words."]}
    return Run("probe", {}, {**summary, "baselines": {"majority": 0.25}}, {"scores": frame})


def shown(run: Run, **options) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    show(run, console, **options)
    return console.file.getvalue()


def test_a_probe_shows_scores_with_intervals_beside_the_twin_and_the_baseline():
    lines = shown(probing(), tables="Tables: runs/upos").splitlines()
    assert lines[0].startswith("╭"), "rounded"
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert cells[0] == ["features", "score", "random twin"], "a column without any number is left out"
    assert cells[1] == ["all layers", "0.900 [0.550, 0.950]", "0.400"]
    assert cells[-1] == ["majority (baseline)", "0.250", ""]
    assert lines[-4:] == ["Warning: few words.", "Use layer 2.", "Next: residuum rank m d", "Tables: runs/upos"]


def test_only_the_best_layer_is_bold():
    table = result_table(probing(), TABLES["probe"])
    assert [str(row.style) for row in table.rows] == ["None", "None", "None", "bold", "dim"]


def test_many_rows_are_cut_but_the_best_stays():
    table = result_table(probing(40), TABLES["probe"])
    assert len(table.rows) == 16 + 1 + 1, "the first, the best and the baseline"
    assert table.columns[0]._cells[-2] == "layer 39"
    assert "more rows" in str(table.caption)


def test_a_command_without_a_table_of_its_own_ends_in_its_first_finding():
    pruned = Run("count words", {}, {"words": 3}, {"t": pd.DataFrame({"a": [1]})})
    assert shown(pruned).startswith("The command count words wrote t (1 row).")


@pytest.mark.parametrize("command", TABLES)
def test_every_table_that_is_shown_is_one_that_the_page_knows(command):
    from residuum.reporting.report import SECTIONS

    specs = SECTIONS[command][1]
    assert TABLES[command].table in specs
