"""A short turn of the fuzzer that goes by coverage, where Atheris is there; `make fuzz-guided` takes longer ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = """
import json, os, sys
sys.path.insert(0, {here!r})
from coverage_guided import guided
from fuzz_targets import _settings
from target_kinds import Target
from residuum.errors import StoreError

def faulty(data):
    if b"9" in data:
        raise KeyError("nine")
    if b"8" in data:
        raise StoreError("eight")

def deadly(data):
    if b"9" not in data:
        os._exit(3)

def make_targets(folder):
    folder.mkdir()
    seed = b"0123456789"
    return [_settings(folder / "settings")[0], Target("faulty", seed, faulty), Target("deadly", seed, deadly)]

tallies = guided(make_targets, seconds=3)
rows = {{name: [t.inputs, t.refused, [[w, d.hex()] for w, d in t.faults.items()]] for name, t in tallies.items()}}
print(json.dumps(rows))
"""

pytestmark = [
    pytest.mark.slow,  # all that is imported is rewritten first
    pytest.mark.skipif(find_spec("atheris") is None, reason="Atheris has no wheel for this Python or system"),
]


@pytest.fixture(scope="module")
def tallies(tmp_path_factory):
    """What became of a reader of the package, of one that raises what it must not, and of one that dies."""
    script = tmp_path_factory.mktemp("guided") / "script.py"
    script.write_text(SCRIPT.format(here=str(HERE)))
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


def test_a_reader_is_explored_and_its_inputs_are_counted(tallies):
    inputs, refused, faults = tallies["pretrain settings"]
    assert 0 < refused <= inputs
    assert faults == []


def test_an_error_that_is_no_clear_one_is_a_fault_and_its_input_is_kept(tallies):
    inputs, refused, ((place, data),) = tallies["faulty"]
    assert place.startswith("KeyError")
    assert b"9" in bytes.fromhex(data)
    assert 0 < refused < inputs


def test_a_process_that_dies_is_a_fault_and_leaves_the_input_it_died_of(tallies):
    _, _, ((place, data),) = tallies["deadly"]
    assert place.startswith("the process ended with")
    assert b"9" not in bytes.fromhex(data)
