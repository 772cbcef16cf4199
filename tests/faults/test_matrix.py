"""The fault matrix of the guide is what the commands do, it knows every command, and no cell of it is empty."""

from __future__ import annotations

import pytest
from kill_commands import write_world
from matrix import DONE, FAULTS, GOES_ON, NOTHING, REFUSED, ROWS, row, written_table

QUICK = ("extract", "trim", "describe", "import", "export npz", "sample")
CELLS = {REFUSED, GOES_ON, DONE, NOTHING, "has no limit"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matrix") / "world"
    write_world(folder)
    return folder


def test_the_matrix_has_every_command_and_fault_and_no_empty_cell():
    table = written_table()
    assert list(table) == [command.name for command in ROWS]
    for name, cells in table.items():
        assert list(cells) == list(FAULTS), name
        assert set(cells.values()) <= CELLS, name


@pytest.mark.parametrize("name", QUICK)
def test_a_command_does_what_the_matrix_says(name, world):
    command = next(command for command in ROWS if command.name == name)
    assert row(command, world) == written_table()[name]


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in ROWS if c.name not in QUICK], ids=lambda command: command.name)
def test_every_command_does_what_the_matrix_says(command, world):
    assert row(command, world) == written_table()[command.name]
