"""Killed, interrupted and distributed training ends with the same weights as training that ran through."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_runs import main, regression

from residuum.storage.files import read_json

PROGRAM = str(Path(__file__).with_name("training_runs.py"))


@pytest.fixture(scope="module")
def start():
    """Run the program in a process of its own, forked from one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["accelerate", "pandas", "residuum.training"])

    def run(out: Path, *options: str) -> int | None:
        process = context.Process(target=main, args=(str(out), *options))
        process.start()
        process.join()
        return process.exitcode

    return run


@pytest.fixture(scope="module")
def unbroken(start, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("unbroken")
    assert start(out) == 0
    return out


@pytest.mark.parametrize("steps", [*(pytest.param([step], marks=pytest.mark.slow) for step in (2, 29)), [6, 11, 19]])
def test_a_run_killed_after_some_steps_ends_with_the_same_bits(start, unbroken, tmp_path, steps):
    for step in steps:
        assert start(tmp_path, f"kill_at={step}") == -signal.SIGKILL
    assert start(tmp_path) == 0
    _assert_same_run(unbroken, tmp_path)


@pytest.mark.parametrize(
    "call", [2, *(pytest.param(call, marks=pytest.mark.slow) for call in (1, 5))]
)  # weights and optimiser of the checkpoints in turn
def test_a_run_killed_while_it_writes_a_checkpoint_ends_with_the_same_bits(start, unbroken, tmp_path, call):
    assert start(tmp_path, f"kill_in={call}") == -signal.SIGKILL
    assert list(tmp_path.glob("checkpoints/.step-*")), "the kill must fall into the writing"
    assert start(tmp_path) == 0
    assert not list(tmp_path.glob("checkpoints/.step-*"))
    _assert_same_run(unbroken, tmp_path)


def test_an_interrupt_ends_the_step_writes_a_checkpoint_and_resumes_to_the_same_bits(start, unbroken, tmp_path):
    assert start(tmp_path, "kill_at=6", f"signal={int(signal.SIGINT)}") not in (0, None)
    assert _last(tmp_path).name == "step-000000006", "the interrupt itself leaves a checkpoint"
    assert start(tmp_path) == 0
    _assert_same_run(unbroken, tmp_path)


def test_a_finished_run_is_not_trained_again(tmp_path):
    first, again = regression(), regression()
    history = first.train(tmp_path, steps=6).history
    steps: list[int] = []
    assert again.train(tmp_path, after_step=steps.append, steps=6).history.equals(history)
    assert steps == []
    assert torch.equal(again.net[0].weight, first.net[0].weight)


@pytest.mark.slow
def test_two_processes_equal_one_with_twice_the_batch(start, tmp_path):
    options = ["dropout=0", "steps=8"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", PROGRAM]
    subprocess.run([*torchrun, str(tmp_path / "two"), "size=4", *options], check=True, capture_output=True)
    assert start(tmp_path / "one", "size=8", *options) == 0
    two, one = (_last(tmp_path / name) for name in ("two", "one"))
    weights, expected = (load_file(folder / "weights.safetensors") for folder in (two, one))
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-6)
    curves = [read_json(folder / "progress.json") for folder in (two, one)]
    assert [row["tokens"] for row in curves[0]["losses"]] == [row["tokens"] for row in curves[1]["losses"]]
    assert [row["error"] for row in curves[0]["losses"]] == pytest.approx([row["error"] for row in curves[1]["losses"]])


def _assert_same_run(first: Path, second: Path) -> None:
    one, two = _last(first), _last(second)
    assert one.name == two.name
    for file in ("weights.safetensors", "optimiser.safetensors"):
        assert (one / file).read_bytes() == (two / file).read_bytes()
    rows = [read_json(folder / "progress.json") for folder in (one, two)]
    for kind in ("losses", "scores"):
        assert _without_time(rows[0][kind]) == _without_time(rows[1][kind])


def _without_time(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def _last(out: Path) -> Path:
    return max(out.glob("checkpoints/step-*"))
