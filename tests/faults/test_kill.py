"""A few kills in every test run; `make kill` takes many more, of all commands that write."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pytest
from kill import MOST_KILLS, Tally, chosen, kill_all, say, watch_files
from kill_commands import Command
from kill_snapshots import differences, snapshot
from typer.main import get_command

from residuum.cli import app, evaluate_app
from residuum.storage.results import Run, write_run
from residuum.storage.tensors import write_tensors
from residuum.studies.running import DOCUMENTS

HARNESS = Path(__file__).parent / "kill.py"
SILENT = {"verify", "predict"}  # they write no file
CHAINS = {"demo"}  # the studies one after the other, each of which is killed by itself
MINUTES = {"monolingual"}  # killed by `kill.py --all` alone


def killed(kills: int, seconds: int, *which: str) -> str:
    """What the harness says; it fails where a result is wrong or a command was never killed."""
    command = [sys.executable, str(HARNESS), *which, "--kills", str(kills), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}"
    return done.stdout


def test_killed_commands_end_with_the_bits_of_undisturbed_ones():
    said = killed(10, 100, "--only", "extract,trim,finetune")
    assert int(re.search(r"(\d+) of 10 kills.*, 0 wrong results", said)[1]) >= 5


@pytest.mark.slow
def test_every_long_command_ends_with_the_bits_of_undisturbed_ones():
    assert ", 0 wrong results" in killed(150, 2400, "--all")


def test_every_command_that_writes_is_killed_and_all_but_one_that_takes_minutes_by_default():
    default, every = ([c.words(Path(), Path()) for c in chosen(minutes=minutes)] for minutes in (False, True))
    assert {words[0] for words in default} == set(commands_of(app)) - SILENT - CHAINS
    assert {words[1] for words in every if words[0] == "evaluate"} == set(commands_of(evaluate_app))
    assert {words[1] for words in default if words[0] == "evaluate"} == set(commands_of(evaluate_app)) - MINUTES
    assert {words[1] for words in every if words[0] == "study"} == set(DOCUMENTS)
    assert {words[1] for words in default if words[0] == "study"} == set(DOCUMENTS) - MINUTES


@pytest.fixture
def fake_kills(monkeypatch):
    """No run: every turn takes all the kills that it may, but `immortal` ends before any, and `broken` fails."""

    def reference(command, root):
        if command.name == "broken":
            raise RuntimeError("broken ended with 1")

    def kill_one(command, wanted, root, random, tally, most):
        tally.runs += 1
        tally.kills += most * (command.name != "immortal")

    monkeypatch.setattr("kill.reference", reference)
    monkeypatch.setattr("kill.kill_one", kill_one)
    return lambda commands, kills, seconds=60: kill_all(commands, Path(), Random(0), kills, seconds)


@pytest.mark.parametrize("kills", [7, 20, 100, 1000])
def test_kills_spread_over_all_commands(fake_kills, kills):
    tallies = fake_kills([Command(str(number), "") for number in range(7)], kills).values()
    counts = [tally.kills for tally in tallies]
    assert sum(counts) == kills
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= min(kills // 7, MOST_KILLS)


def test_a_command_that_takes_minutes_has_a_tenth_of_the_kills(fake_kills):
    commands = [Command("long", "", minutes=True), Command("short", "")]
    tallies = fake_kills(commands, 220)
    assert 10 <= tallies["long"].kills <= 30


def test_a_command_that_was_never_killed_or_fails_by_itself_is_a_fault_and_the_others_have_their_kills(
    fake_kills, capsys
):
    commands = [Command(name, "") for name in ("immortal", "extract")]
    assert say(fake_kills(commands, 10), 10) == 1
    assert "10 of 10 kills, 0 wrong results\nNever killed: immortal\n" in capsys.readouterr().out
    commands = [Command(name, "") for name in ("broken", "extract")]
    assert say(fake_kills(commands, 10), 10) == 1
    assert "broken: broken ended with 1\n10 of 10 kills, 1 wrong results" in capsys.readouterr().out
    assert say(fake_kills(commands, 10, seconds=0), 10) == 1
    assert "Never killed: broken, extract" in capsys.readouterr().out


def test_fewer_kills_than_asked_for_are_said_and_no_fault(capsys):
    assert say({"extract": Tally(kills=2), "trim": Tally(kills=1)}, 100) == 0
    assert "3 of 100 kills in the time, 0 wrong results\n" in capsys.readouterr().out


def test_a_name_that_no_command_has_is_said():
    with pytest.raises(SystemExit, match="There is no command extrakt"):
        chosen("trim,extrakt")


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
