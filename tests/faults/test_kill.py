"""A few kills in every test run; `make kill` takes many more, of all commands that write."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from kill import watch_files
from kill_commands import COMMANDS
from kill_snapshots import differences, snapshot
from typer.main import get_command

from residuum.cli.app import app, evaluate_app, study_app
from residuum.results import Run, write_run
from residuum.tensor_files import write_tensors

HARNESS = Path(__file__).parent / "kill.py"
SILENT = {"verify", "predict"}  # they write no file
CHAINS = {"demo"}  # the studies one after the other, each of which is killed by itself


def killed(commands: str, kills: int, seconds: int) -> str:
    """What the harness says."""
    command = [sys.executable, str(HARNESS), "--only", commands, "--kills", str(kills), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}"
    return done.stdout


def test_killed_commands_end_with_the_bits_of_undisturbed_ones():
    said = killed("extract,trim,finetune", 10, 100)
    assert int(re.search(r"(\d+) kills, 0 wrong results", said)[1]) >= 5


@pytest.mark.slow
def test_every_long_command_ends_with_the_bits_of_undisturbed_ones():
    assert "0 wrong results" in killed("", 150, 1500)


def test_every_command_that_writes_is_killed():
    assert {command.words(Path(), Path())[0] for command in COMMANDS} == set(commands_of(app)) - SILENT - CHAINS
    for group in (evaluate_app, study_app):
        killed_in_it = {command.words(Path(), Path())[1] for command in COMMANDS}
        assert set(commands_of(group)) <= killed_in_it


def commands_of(group) -> list[str]:
    return list(get_command(group).commands)


def test_kills_come_in_safetensors_too_whose_files_python_does_not_see_opened(tmp_path):
    child = os.fork()
    if child == 0:
        watch_files(operation=2)  # after that of making the folder
        write_tensors(tmp_path / "tensors.safetensors", {"map": np.eye(2)})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".tmpAbC123"]


RUN = Run("probe", {"seed": 0}, {"seconds": 1.0}, {"t": pd.DataFrame({"a": [0.5, np.nan]})}, {"map": np.eye(2)})


def changed_table(folder):
    pd.DataFrame({"a": [np.nextafter(0.5, 1), np.nan]}).to_parquet(folder / "t.parquet")


def changed_summary(folder):
    path = folder / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "summary": {"seconds": 2.0}}))


@pytest.mark.parametrize(
    ("change", "places"),
    [
        (lambda folder: None, set()),
        (lambda folder: (folder / ".x.7.part").write_text("left"), {".x.7.part"}),
        (lambda folder: (folder / "tensors.safetensors").unlink(), {"tensors.safetensors:map"}),
        (changed_table, {"t.parquet:a"}),
        (changed_summary, {"result.json.summary.seconds"}),
    ],
)
def test_the_harness_sees_every_difference(tmp_path, change, places):
    write_run(tmp_path / "a", RUN)
    write_run(tmp_path / "b", RUN)
    change(tmp_path / "b")
    assert differences(snapshot(tmp_path / "a"), snapshot(tmp_path / "b")) == places
