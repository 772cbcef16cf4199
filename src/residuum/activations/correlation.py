"""Which neurons of a store rise and fall together: streamed moments → correlation → clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from residuum.activations.store import ActivationStore
from residuum.costs import CORRELATION_BYTES, PARTITION_BYTES, Cost, CostStep, within
from residuum.engine import Workers, as_engine, cut_into_tasks, reduce_tasks
from residuum.maths import clustering
from residuum.maths.clustering import Clustering, Labels, Thresholds, cluster_correlation, moments_correlation
from residuum.maths.moments import Moments, MomentsAccumulator, merge


def cluster_neurons(
    x: ActivationStore | Float[np.ndarray, "word neuron"], threshold: Thresholds
) -> Labels | list[Labels]:
    """Cluster the neurons of an array, or of all layers of a store side by side, at thresholds c_t in [0, 1].

    Gives a label for each neuron, counted from 0 in order of first member: average linkage on 1 − |correlation|
    (Dalvi et al. 2020). Several thresholds cut one tree and give a list. A store is read shard by shard.
    """
    return (
        cluster_store(x).cut(threshold) if isinstance(x, ActivationStore) else clustering.cluster_neurons(x, threshold)
    )


def cluster_store(
    store: ActivationStore, rows: Int[np.ndarray, " row"] | None = None, *, workers: Workers = None
) -> Clustering:
    """The merge tree of all neurons of a store over all of its rows, or some (ascending)."""
    return cluster_correlation(*moments_correlation(neuron_moments(store, rows, workers=workers)))


def neuron_moments(
    store: ActivationStore,
    rows: Int[np.ndarray, " row"] | None = None,
    *,
    workers: Workers = None,
    advance: Callable[[int], object] = lambda words: None,
) -> Moments:
    """The joint second moments of all layers over all rows of a store, or some (ascending).

    Memory does not grow with the store: one shard at a time. Products are float32, sums float64: correlations are good
    to about 1e-6. Tasks are runs of shards, whatever the number of workers. `advance` is told how many rows were added.
    """
    chosen = _rows_by_shard(store, rows)
    runs = [chosen[run.start : run.stop] for run in cut_into_tasks([n for _, _, n in chosen])]
    tasks, alone = [[(run,) for run in runs]], as_engine(workers).alone
    task = partial(_moments_of_shards, store, advance=advance) if alone else partial(_moments_of_shards, store)

    def finished(run: list[ChosenRows]) -> None:
        if not alone:  # in this process the shards themselves are told
            advance(sum(n for _, _, n in run))

    (moments,) = reduce_tasks(task, tasks, merge, workers, finished)
    return moments


ChosenRows = tuple[int, Int[np.ndarray, " _"] | None, int]
"""A shard, which of its rows are wanted (None: all), and how many these are."""


def _rows_by_shard(store: ActivationStore, rows: Int[np.ndarray, " row"] | None) -> list[ChosenRows]:
    chosen, stop = [], 0
    for index, shard in enumerate(store.manifest.shards):
        start, stop = stop, stop + shard.rows
        wanted = None if rows is None else rows[slice(*np.searchsorted(rows, [start, stop]))] - start
        n = shard.rows if wanted is None else len(wanted)
        if n:
            chosen.append((index, wanted, n))
    return chosen


def _moments_of_shards(
    store: ActivationStore, shards: list[ChosenRows], advance: Callable[[int], object] = lambda words: None
) -> Moments:
    accumulator = MomentsAccumulator(store.widths, products="float32")
    for index, rows, n in shards:
        accumulator.update([layer if rows is None else layer[rows] for layer in store.shard(index)])
        advance(n)
    return accumulator.result()


def clustering_bytes(n_neurons: int, widths: Sequence[int]) -> int:
    """The most memory that clustering neurons holds: moments and correlation, or correlation and tree."""
    square = 8 * n_neurons**2
    moments = (square + 8 * sum(width**2 for width in widths)) // 2
    return square + max(moments, square)  # scipy's linkage works on a copy of the condensed distances


def check_room(store: ActivationStore, max_memory: int, *, slow: bool = False) -> None:
    """Raise an error before anything is clustered where the neurons of a store are too many for the memory.

    `slow` is whether k-means or DBSCAN cluster them, too.
    """
    n_neurons = sum(store.widths)
    each = PARTITION_BYTES + CORRELATION_BYTES if slow else 16
    held = each * n_neurons**2 if slow else clustering_bytes(n_neurons, store.widths)
    step = CostStep("clustering", 0.0, memory=held)
    remedy = f"Allow more ({each} bytes for each pair of neurons), or cluster fewer layers (--layers)"
    within(Cost(f"{n_neurons:,} neurons of {store.name}", (step,)), max_memory, remedy)
