"""What long work will take, known before it begins: words, layers, width and workers, at the speed of this machine.

The speed is measured, not assumed: each part of the work is done for a moment, in the code that does it later, and
scaled by what it grows with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits

from residuum.engine import Engine
from residuum.errors import MemoryLimitError
from residuum.maths.clustering import cluster_correlation, dbscan_partition, kmeans_partition, square_distances
from residuum.maths.layer_blocks import scatter_bytes
from residuum.maths.moments import CHUNK, Moments, MomentsAccumulator, merge
from residuum.maths.similarity import array_similarity_matrix, similarity_matrices

TREE_NEURONS, TREE_WORDS = 5000, 2000
"""Neurons that are clustered, at most, to measure the speed of clustering, and the words that correlate them."""
TREE_GROWTH = 2.2
"""The power of their number with which that grows beyond: the square, and correlations ever farther from a cache."""
PARTITIONED, PARTITION_BYTES, CORRELATION_BYTES = 1000, 20, 8
"""Neurons, at most, that k-means and DBSCAN are measured with; bytes of a pair of neurons that they hold, and that the
process which asks for them keeps."""
SCATTER = 1 << 27
"""Bytes of sums that the speed of summing is measured with, at most: more than a cache holds."""
MORE = 3
"""Chunks of words that are summed besides a first one."""
PRODUCT_SIDE = 1024
"""Rows and columns of the matrices whose product tells how many operations a second this machine does."""


@dataclass(frozen=True)
class Step:
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

    def times(self, count: float) -> Step:
        """The same work done so often, one after the other."""
        return replace(self, seconds=self.seconds * count)


@dataclass(frozen=True)
class Cost:
    """What a command will take, step by step; as text, the lines to print before long work."""

    what: str
    steps: tuple[Step, ...]
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
    def largest(self) -> tuple[Step, int]:
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


def moments_step(
    name: str, widths: Sequence[int], words: int, tasks: int, engine: Engine, products: str = "float64"
) -> Step:
    """Second moments of all pairs of layers, by those of as many layers as `SCATTER` allows.

    Each task begins and ends its sums, and each chunk of words is added to them; both grow with the pairs of neurons.
    `name` is what the step is called.
    """
    width, area = max(1, round(float(np.mean(widths)))), scatter_bytes(widths)
    few = next(n for n in range(len(widths), 0, -1) if n == 1 or scatter_bytes([width] * n) <= SCATTER)
    with threadpool_limits(engine.threads):
        _summing([width] * few, 1, products)  # wakes the machine up
        one, more = (_quickest(lambda n=n: _summing([width] * few, n, products), 2) for n in (1, 1 + MORE))
    per_chunk = max(more - one, 0.0) / MORE
    per_task = max(one - per_chunk, 0.0)
    seconds = (words / CHUNK * per_chunk + tasks * per_task) * area / scatter_bytes([width] * few)
    return Step(name, seconds, tasks, memory=area + 8 * CHUNK * sum(widths))


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


def array_step(measure: str, widths: Sequence[int], sample: int, replicates: int, memory: int) -> Step:
    """A measure of the sampled words themselves, which one process takes for each replicate."""
    width = max(1, round(float(np.mean(widths))))
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((sample, width), dtype=np.float32) for _ in range(3)]
    one, three = (_quickest(lambda n=n: array_similarity_matrix(layers[:n], measure), 1) for n in (1, 3))
    per_pair = max(three - 3 * one, 0.0) / 6
    per_layer = max(one - per_pair, 0.0)
    n = len(widths)
    return Step(measure, replicates * (per_layer * n + per_pair * n**2), memory=memory)


def clustering_step(n_neurons: int, memory: int) -> Step:
    """The merge tree of all neurons, which one process makes."""
    few = min(TREE_NEURONS, n_neurons)
    correlation = _layered_correlation(few)
    seconds = _quickest(lambda: cluster_correlation(correlation.copy(), np.zeros(few, dtype=bool)))
    return Step("clustering", seconds * (n_neurons / few) ** TREE_GROWTH, memory=memory)


def partitions_at_once(n_neurons: int, max_memory: int) -> int:
    """How many processes may have the distances of neurons beside the one that keeps their correlation; one may."""
    pairs = n_neurons**2
    return max(1, (max_memory - CORRELATION_BYTES * pairs) // (PARTITION_BYTES * pairs))


def partition_steps(
    n_neurons: int, kmeans: Sequence[float], dbscan: Sequence[float], engine: Engine, max_memory: int
) -> list[Step]:
    """k-means and DBSCAN at some thresholds, a task each: of clusters that are not known yet, the most they can be.

    k-means grows with the square of the neurons and with the clusters, DBSCAN with the square of the neurons.
    """
    few = min(PARTITIONED, n_neurons)
    clustering = cluster_correlation(_layered_correlation(few), np.zeros(few, dtype=bool))
    n_clusters, pairs = -(-few // 8), n_neurons**2
    import sklearn.cluster  # noqa: F401 - before its threads are limited

    with threadpool_limits(engine.threads):
        slow = _quickest(lambda: kmeans_partition(square_distances(clustering), n_clusters), 2) / (few**2 * n_clusters)
        quick = _quickest(lambda: dbscan_partition(square_distances(clustering), 0.5), 2) / few**2
    most = sum(max(1, round((1 - threshold) * n_neurons)) for threshold in kmeans)
    seconds = {"k-means": (slow * pairs * most, len(kmeans)), "DBSCAN": (quick * pairs * len(dbscan), len(dbscan))}
    held = {
        "memory": PARTITION_BYTES * pairs,
        "beside": CORRELATION_BYTES * pairs,
        "at_once": None if engine.client else partitions_at_once(n_neurons, max_memory),
    }
    return [Step(name, *work, **held) for name, work in seconds.items() if work[1]]


def _layered_correlation(n_neurons: int, n_layers: int = 8) -> np.ndarray:
    """Of neurons that are like those at their place a layer below; unlike noise, a tree of them is made quickly."""
    width = -(-n_neurons // n_layers)
    layers = np.random.default_rng(0).standard_normal((n_layers, width, TREE_WORDS), dtype=np.float32)
    for below, layer in pairwise(layers):
        layer *= 0.45
        layer += 0.9 * below
    neurons = layers.reshape(-1, TREE_WORDS)[:n_neurons]
    neurons -= neurons.mean(axis=1, keepdims=True)
    neurons /= np.linalg.norm(neurons, axis=1, keepdims=True)
    return (neurons @ neurons.T).astype(np.float64)


def _summing(widths: Sequence[int], chunks: int, products: str) -> None:
    """What a task does with so many chunks of words."""
    accumulator = MomentsAccumulator(widths, products=products)
    layers = list(_random_layers(widths))
    for _ in range(chunks):
        accumulator.update(layers)
    accumulator.result()


def _random_moments(widths: Sequence[int]) -> Moments:
    accumulator = MomentsAccumulator(widths)
    for seed in range(-(-3 * max(widths) // CHUNK)):  # more words than neurons, as real text has
        accumulator.update(list(_random_layers(widths, seed)))
    return accumulator.result()


def _random_layers(widths: Sequence[int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((CHUNK, width), dtype=np.float32) for width in widths]


def _quickest(work: Callable[[], object], times: int = 3) -> float:
    return min(timed(work) for _ in range(times))
