"""A few seconds of the fuzzer that goes by coverage, where Atheris is there; `make fuzz-guided` takes longer turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = """
import json, os, sys
sys.path.insert(0, {here!r})
from coverage_guided import guided, instrumented
from target_kinds import Target, alone
with instrumented():  # no more than these two need: all that is imported is rewritten first
    from residuum.corpus import read_corpus
    from residuum.distillation.settings import read_settings
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
    seed, words = b"0123456789", b"1\\tA\\ta\\tX\\t_\\t_\\t0\\troot\\t_\\t_\\n\\n"
    return [
        alone(folder / "a.conllu", words, lambda path: read_corpus(path, format="conllu"), "conllu"),
        alone(folder / "a.yaml", b"teacher: t\\ntexts: {{en: a.txt}}\\n", read_settings, "distill settings"),
        Target("deadly", seed, deadly),
        Target("faulty", seed, faulty),
    ]

tallies = guided(make_targets, seconds=4)
rows = {{name: [t.inputs, t.refused, [[w, d.hex()] for w, d in t.faults.items()]] for name, t in tallies.items()}}
print(json.dumps(rows))
"""

pytestmark = pytest.mark.skipif(find_spec("atheris") is None, reason="Atheris has no wheel for this Python or system")
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def tallies(tmp_path_factory):
    """What became of two readers of the package, of one that raises what it must not, and of one that dies."""
    script = tmp_path_factory.mktemp("guided") / "script.py"
    script.write_text(SCRIPT.format(here=str(HERE)))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("reader", ["conllu", "distill settings"])
def test_a_reader_is_explored_and_its_inputs_are_counted(tallies, reader):
    inputs, refused, faults = tallies[reader]
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


@pytest.mark.slow
def test_all_readers_are_explored_within_the_time(tmp_path):
    started = time.monotonic()
    command = [sys.executable, HERE / "coverage_guided.py", "--seconds", "60", "--keep", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " readers, 0 faults" in ended.stdout
    assert " 0 inputs" not in ended.stdout
    assert time.monotonic() - started < 180, "one minute, and at most two more for imports and the last input"
