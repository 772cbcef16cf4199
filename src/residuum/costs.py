"""What long work will take, known before it begins: words, layers, width and workers, at the speed of this machine.

The speed is measured, not assumed: each part of the work is done for a moment, in the code that does it later, and
scaled by what it grows with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from residuum.engine import Engine
from residuum.maths.clustering import cluster_correlation
from residuum.maths.layer_blocks import scatter_bytes
from residuum.maths.moments import CHUNK, Moments, MomentsAccumulator, merge
from residuum.maths.similarity import array_similarity_matrix, similarity_matrices

TREE_NEURONS = 1000
"""Neurons that are clustered to measure the speed of clustering."""


@dataclass(frozen=True)
class Step:
    """A part of the work: `seconds` of one worker, in so many tasks; bytes of memory in each process, and on disk."""

    name: str
    seconds: float
    tasks: int = 1
    memory: int = 0
    disk: int = 0

    def lasts(self, workers: int) -> float:
        """The seconds that it lasts when so many workers take the tasks in turn."""
        rounds = -(-self.tasks // workers)
        return self.seconds * rounds / self.tasks


@dataclass(frozen=True)
class Cost:
    """What a command will take, step by step; as text, the lines to print before long work."""

    what: str
    steps: tuple[Step, ...]
    workers: int = 1

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return sum(step.lasts(self.workers) for step in self.steps)

    @property
    def memory(self) -> int:
        """The most bytes that one process holds."""
        return max(step.memory for step in self.steps)

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


def moments_step(
    name: str, widths: Sequence[int], words: int, tasks: int, engine: Engine, products: str = "float64"
) -> Step:
    """Second moments of all pairs of layers: words × (a Σ width + b Σ width × width), a and b measured.

    `name` is what the step is called.
    """
    width = max(1, round(float(np.mean(widths))))
    area = scatter_bytes(widths) / 8
    with threadpool_limits(engine.threads):
        one, three = (_chunk_seconds([width] * layers, products) for layers in (1, 3))
    # one layer has 1 pair, three have 6 with themselves
    per_area = max(three - 3 * one, 0.0) / (3 * width**2)
    per_width = max(one - per_area * width**2, 0.0) / width
    seconds = words / CHUNK * (per_area * area + per_width * sum(widths))
    return Step(name, seconds, tasks, memory=scatter_bytes(widths) + 8 * CHUNK * sum(widths))


def evaluation_step(
    widths: Sequence[int], measures: Sequence[str], replicates: int, engine: Engine, **options: object
) -> Step:
    """Measures of all pairs of layers for each replicate: a layers + b layers², and taking a group's moments away."""
    width = max(1, round(float(np.mean(widths))))
    with threadpool_limits(engine.threads):
        few = {n: _random_moments([width] * n) for n in (1, 3)}
        one, three = (_quickest(lambda m=m: similarity_matrices(m, measures, **options)) for m in few.values())
        away = _quickest(lambda: merge(few[3], few[3])) / scatter_bytes([width] * 3)
    per_pair = max(three - 3 * one, 0.0) / 6
    per_layer = max(one - per_pair, 0.0)
    n, held = len(widths), scatter_bytes(widths)
    seconds = replicates * (per_layer * n + per_pair * n**2 + away * held)
    return Step("measures", seconds, replicates, memory=3 * held, disk=replicates * held)


def array_step(measure: str, widths: Sequence[int], sample: int, replicates: int) -> Step:
    """A measure of the sampled words themselves, which one process takes for each replicate."""
    width = max(1, round(float(np.mean(widths))))
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((sample, width), dtype=np.float32) for _ in range(3)]
    one, three = (_quickest(lambda n=n: array_similarity_matrix(layers[:n], measure), 1) for n in (1, 3))
    per_pair = max(three - 3 * one, 0.0) / 6
    per_layer = max(one - per_pair, 0.0)
    n = len(widths)
    return Step(measure, replicates * (per_layer * n + per_pair * n**2), memory=4 * sample * sum(widths))


def clustering_step(n_neurons: int, memory: int) -> Step:
    """The merge tree of all neurons, which one process makes: it grows with the square of their number."""
    rng = np.random.default_rng(0)
    few = min(TREE_NEURONS, n_neurons)
    correlation = np.atleast_2d(np.corrcoef(rng.standard_normal((few, 2 * few))))
    seconds = _quickest(lambda: cluster_correlation(correlation.copy(), np.zeros(few, dtype=bool)), times=2)
    return Step("clustering", seconds * (n_neurons / few) ** 2, memory=memory)


def _chunk_seconds(widths: Sequence[int], products: str) -> float:
    accumulator = MomentsAccumulator(widths, products=products)
    layers = list(_random_layers(widths))
    accumulator.update(layers)  # the first chunk also finds the shift
    return _quickest(lambda: accumulator.update(layers))


def _random_moments(widths: Sequence[int]) -> Moments:
    accumulator = MomentsAccumulator(widths)
    for seed in range(-(-3 * max(widths) // CHUNK)):  # more words than neurons, as real text has
        accumulator.update(list(_random_layers(widths, seed)))
    return accumulator.result()


def _random_layers(widths: Sequence[int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((CHUNK, width), dtype=np.float32) for width in widths]


def _quickest(work: Callable[[], object], times: int = 3) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)
