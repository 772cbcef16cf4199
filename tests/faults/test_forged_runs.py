"""A finished run that was forged, with right checksums, is one line when its own command is run again."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from kill_commands import COMMANDS, write_world
from typer.testing import CliRunner

from residuum.cli import app
from residuum.errors import StoreError
from residuum.storage.results import read_run, write_run

SHOWN = [  # what says nothing of a result, and studies, whose steps are those of the others, are left out
    command
    for command in COMMANDS
    if not command.name.startswith(("extract", "export", "import", "sample", "report", "study"))
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forged") / "world"
    write_world(folder)
    return folder


@pytest.mark.parametrize("command", SHOWN, ids=lambda command: command.name)
def test_a_forged_run_is_one_line(command, world, tmp_path):
    out = tmp_path / "out"

    def run():
        return CliRunner().invoke(app, command.words(world, out), catch_exceptions=False)

    assert run().exit_code == 0
    again = run()
    assert again.exit_code == 0
    whole = read_run(out)
    nonsense = {name: pd.DataFrame({"nonsense": ["x"]}) for name in whole.tables}
    write_run(out, replace(whole, summary={"perplexity": "x", "trimming": 3}, tables=nonsense))
    with pytest.raises(StoreError, match=r"is not a complete run of"):
        run()
