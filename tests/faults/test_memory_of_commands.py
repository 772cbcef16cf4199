"""`--max-memory` of every command that reads a model, where the system itself refuses more (see `memory.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from memory import COMMANDS, WEIGHTS

SCRIPT = Path(__file__).with_name("memory.py")


def outcomes(kinds: str, *names: str) -> list[dict[str, str | int]]:
    arguments = [sys.executable, str(SCRIPT), "--kinds", kinds, *names]
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HOME": "/tmp", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_command_refuses_a_model_that_is_larger_than_what_is_allowed():
    found = outcomes("refused")
    assert [one["command"] for one in found] == list(COMMANDS)
    for one in found:
        assert one["status"] == 1, one
        assert f"of memory, but --max-memory allows {WEIGHTS / 2e6:.1f} MB" in one["said"], one


def test_a_command_keeps_to_what_is_allowed_and_without_a_bound_runs_out_of_memory():
    without, kept = outcomes("without,kept", "extract")
    assert without["status"] == 1
    assert "Cannot allocate memory" in without["said"]
    assert kept["status"] == 0, kept


@pytest.mark.slow
def test_a_line_of_100_000_words_is_read_within_what_is_allowed_or_refused_by_name():
    for one in outcomes("line"):
        refused = one["status"] == 1 and "--max-memory allows" in one["said"]
        assert one["status"] == 0 or refused, one
        assert "Cannot allocate memory" not in one["said"], one


@pytest.mark.slow
def test_every_command_keeps_to_what_is_allowed_and_without_a_bound_runs_out_of_memory():
    for one in outcomes("without,kept"):
        assert one["status"] == (0 if one["kind"] == "kept" else 1), one
        assert ("Cannot allocate memory" in one["said"]) == (one["kind"] == "without"), one
