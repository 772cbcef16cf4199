"""Which neurons of a store rise and fall together: streamed moments → correlation → clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from residuum.activations.store import ActivationStore
from residuum.maths import clustering
from residuum.maths.clustering import Clustering, Labels, cluster_correlation, moments_correlation
from residuum.maths.moments import Moments, MomentsAccumulator


def cluster_neurons(x: ActivationStore | Float[np.ndarray, "word neuron"], threshold: float) -> Labels:
    """Cluster the neurons of an array, or of all layers of a store side by side, at one threshold c_t in [0, 1].

    Gives a label for each neuron, counted from 0 in order of first member: average linkage on 1 − |correlation|
    (Dalvi et al. 2020). A store is read shard by shard. For several thresholds of a store, cut `cluster_store` often.
    """
    if isinstance(x, ActivationStore):
        return cluster_store(x).labels(threshold)
    return clustering.cluster_neurons(x, threshold)


def cluster_store(store: ActivationStore, rows: Int[np.ndarray, " row"] | None = None) -> Clustering:
    """The merge tree of all neurons of a store over all of its rows, or some (ascending)."""
    return cluster_correlation(*moments_correlation(neuron_moments(store, rows)))


def neuron_moments(
    store: ActivationStore,
    rows: Int[np.ndarray, " row"] | None = None,
    *,
    advance: Callable[[int], object] = lambda words: None,
) -> Moments:
    """The joint second moments of all layers over all rows of a store, or some (ascending).

    Memory does not grow with the store: one shard at a time. Products are float32, sums float64: correlations are good
    to about 1e-6. `advance` is told how many rows were added.
    """
    accumulator = MomentsAccumulator(store.widths, products="float32")
    stop = 0
    for index, shard in enumerate(store.manifest.shards):
        start, stop = stop, stop + shard.rows
        chosen = None if rows is None else rows[slice(*np.searchsorted(rows, [start, stop]))] - start
        if chosen is not None and not chosen.size:
            continue
        layers = [layer if chosen is None else layer[chosen] for layer in store.shard(index)]
        accumulator.update(layers)
        advance(len(layers[0]))
    return accumulator.result()
