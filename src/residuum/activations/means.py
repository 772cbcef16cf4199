"""What each neuron does on average."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from residuum.activations.store import ActivationStore


def neuron_means(store: ActivationStore) -> dict[int, Float64[np.ndarray, " neuron"]]:
    """The mean of every neuron over all rows of a store, by layer; read a shard at a time."""
    sums = {layer: np.zeros(width) for layer, width in zip(store.layers, store.widths, strict=True)}
    for index in range(len(store.manifest.shards)):
        for layer, block in zip(store.layers, store.shard(index), strict=True):
            sums[layer] += block.sum(axis=0, dtype=np.float64)
    return {layer: total / store.n_rows for layer, total in sums.items()}
