"""What long work will take, known before it begins: words, layers, width and workers, at the speed of this machine.

The speed is measured, not assumed: each part of the work is done for a moment, in the code that does it later, and
scaled by what it grows with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from residuum.errors import MemoryLimitError

PARTITION_BYTES, CORRELATION_BYTES = 20, 8
"""Bytes per pair of neurons that k-means and DBSCAN hold, and that the process which asks for them keeps."""
PRODUCT_SIDE = 1024
"""Rows and columns of the matrices whose product tells how many operations a second this machine does."""


@dataclass(frozen=True)
class CostStep:
    """A part of the work: `seconds` of one worker, in so many tasks; bytes of memory in each process, and on disk.

    `at_once` is how many workers may take it together, where memory bounds that; `beside` are bytes of the process that
    gives them their tasks.
    """

    name: str
    seconds: float
    tasks: int = 1
    memory: int = 0
    disk: int = 0
    at_once: int | None = None
    beside: int = 0

    def processes(self, workers: int) -> int:
        """How many of the workers have something to do."""
        return min(workers, self.tasks, self.at_once or workers)

    def lasts(self, workers: int) -> float:
        """The seconds that it lasts when so many workers take the tasks in turn."""
        rounds = -(-self.tasks // self.processes(workers))
        return self.seconds * rounds / self.tasks

    def times(self, count: float) -> CostStep:
        """The same work done so often, one after the other."""
        return replace(self, seconds=self.seconds * count)


@dataclass(frozen=True)
class Cost:
    """What a command will take, step by step; as text, the lines to print before long work."""

    what: str
    steps: tuple[CostStep, ...]
    workers: int = 1
    elsewhere: bool = False  # whether the workers are those of a cluster, each with memory of its own

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return sum(step.lasts(self.workers) for step in self.steps)

    @property
    def memory(self) -> int:
        """The most bytes that one process holds."""
        return max(step.memory for step in self.steps)

    @property
    def largest(self) -> tuple[CostStep, int]:
        """The step that holds most on one machine, all of its processes together, and how many bytes."""
        here = 1 if self.elsewhere else self.workers
        held = {step: step.memory * step.processes(here) + step.beside for step in self.steps}
        step = max(held, key=lambda one: held[one])
        return step, held[step]

    @property
    def disk(self) -> int:
        """The bytes that are written."""
        return sum(step.disk for step in self.steps)

    def __str__(self) -> str:
        rows = [
            f"  {step.name:<24} {duration(step.lasts(self.workers)):>9} {size(step.memory):>9} in memory"
            + (f" {size(step.disk):>9} on disk" if step.disk else "")
            for step in self.steps
        ]
        by = "one worker" if self.workers == 1 else f"{self.workers} workers"
        total = f"about {duration(self.seconds)} with {by}, {size(self.memory)} in memory, {size(self.disk)} on disk"
        return "\n".join([f"{self.what}: {total}", *rows])


def within(cost: Cost, limit: int | None, remedy: str = "Allow more, or give it less to do at once") -> Cost:
    """The cost itself, where no part of it holds more than `limit` bytes; else an error that names the part."""
    step, held = cost.largest
    if limit is None or held <= limit:
        return cost
    raise MemoryLimitError(
        f"The step {step.name!r} of {cost.what} needs {exactly(held)} of memory, but --max-memory allows "
        f"{exactly(limit)}. {remedy}."
    )


def duration(seconds: float) -> str:
    """Seconds as one would say them."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}" if seconds >= 10 * length else f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def size(n_bytes: float) -> str:
    """Bytes as one would say them."""
    for unit, length in (("TB", 1e12), ("GB", 1e9)):
        if n_bytes >= length:
            return f"{n_bytes / length:.1f} {unit}"
    return f"{n_bytes / 1e6:.0f} MB"


def exactly(n_bytes: float) -> str:
    """Bytes with so many digits that two that differ are told apart."""
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"


def spread(n: int, k: int) -> list[int]:
    """At most k of n places, evenly from the first to the last: a sample to measure on."""
    return np.unique(np.linspace(0, n - 1, min(k, n)).round().astype(int)).tolist()


def timed(work: Callable[[], object]) -> float:
    """The seconds of a piece of work, done once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def operations_a_second(seconds: float = 0.2) -> float:
    """What this machine does now, with all threads: multiplications and additions of a float32 product."""
    a = np.ones((PRODUCT_SIDE, PRODUCT_SIDE), np.float32)
    np.matmul(a, a)
    products, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or not products:
        np.matmul(a, a)
        products += 1
    return products * 2 * PRODUCT_SIDE**3 / elapsed


def partitions_at_once(n_neurons: int, max_memory: int) -> int:
    """How many processes may have the distances of neurons beside the one that keeps their correlation; one may."""
    pairs = n_neurons**2
    return max(1, (max_memory - CORRELATION_BYTES * pairs) // (PARTITION_BYTES * pairs))


def quickest(work: Callable[[], object], times: int = 3) -> float:
    """The seconds of a piece of work, the least of several times."""
    return min(timed(work) for _ in range(times))
