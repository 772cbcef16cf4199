"""General redundancy, which needs no labels: which layers are alike, which neurons say the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from residuum.activations.correlation import neuron_moments
from residuum.activations.store import ActivationStore
from residuum.engine import Workers
from residuum.maths.clustering import cluster_correlation, cluster_windows, medoids, moments_correlation, random_members
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.similarity import similarity_matrix
from residuum.probing.examples import MEMORY
from residuum.probing.redundancy_partitions import Partitions
from residuum.probing.redundancy_pictures import PICTURE_COLUMNS, Scales, cluster_pictures
from residuum.probing.redundancy_settings import RULES, Settings
from residuum.storage.results import Run

Rows = Int[np.ndarray, " row"]


def general_redundancy(
    store: ActivationStore,
    rows: Rows | None,
    settings: Settings,
    *,
    workers: Workers = None,
    max_memory: int = MEMORY,
    folder: Path | None = None,
    advance: Callable[[int], object] = lambda words: None,
) -> Run:
    """All that one pass over a store's rows (all by default) tells of its layers and neurons.

    The moments give way to the correlation, and that to the tree, so that never all three are held. Clusters of other
    methods than average linkage are kept in `folder` when they are found.
    """
    layout = NeuronLayout(tuple(store.widths), tuple(store.layers))
    moments = neuron_moments(store, rows, workers=workers, advance=advance)
    cka = similarity_matrix(moments, "cka")
    scales = Scales.of(moments)
    correlation, constant = moments_correlation(moments)
    n_words = moments.n
    del moments
    clustering = cluster_correlation(correlation, constant)
    partitions = Partitions(clustering, settings)
    if partitions.slow_cells:
        assert folder is not None, "there is a folder for what is slow to find"
        partitions.find_others(folder, workers, max_memory)
    labels = [partitions.chosen(threshold) for threshold in settings.cuts]
    central = [medoids(correlation, own, constant) for own in labels]
    tables = {
        "thresholds": _threshold_table(settings, labels, layout),
        "layers": _layer_table(layout, constant, cka),
        "windows": _window_table(settings, labels, layout),
        "survivors": _survivor_table(settings, labels, central, layout),
        "similarity": _similarity_table(store, cka),
        "pictures": pd.DataFrame(
            cluster_pictures(store, rows, partitions, layout, scales), columns=pd.Index(PICTURE_COLUMNS)
        ),
        "neurons": _neuron_table(partitions, central, layout),
    }
    if partitions.others:
        tables["agreement"] = partitions.agreement()
    summary = {f"{store.unit}s": n_words, "neurons": layout.n_neurons, "constant neurons": clustering.n_constant}
    return Run("redundancy", {}, summary, tables, {"tree": clustering.tree})


def representatives(neurons: pd.DataFrame, threshold: float, rule: str, seed: int = 0) -> Int[np.ndarray, " neuron"]:
    """One neuron (column) of each cluster at a threshold, ascending, from the table `neurons`.

    Random ones are drawn by the seed and the threshold alone, whatever other thresholds there are.
    """
    if threshold == 0:
        return np.arange(len(neurons))
    labels = neurons[f"cluster {threshold:g}"].to_numpy()
    if rule == "medoid":
        return np.flatnonzero(neurons[f"medoid {threshold:g}"].to_numpy())
    if rule == "first":
        return np.sort(np.unique(labels, return_index=True)[1])
    return np.sort(random_members(labels, np.random.default_rng([seed, round(threshold * 1e6)])))


def _threshold_table(settings: Settings, labels: list[np.ndarray], layout: NeuronLayout) -> pd.DataFrame:
    """Neurons left at each c_t, 0 being all; how many stand in a cluster with others, and the largest cluster."""
    sizes = [np.ones(layout.n_neurons, int), *(np.bincount(own) for own in labels)]
    return pd.DataFrame(
        {
            "threshold": [0.0, *settings.cuts],
            "neurons": [len(own) for own in sizes],
            "share": [len(own) / layout.n_neurons for own in sizes],
            "grouped": [int(own[own > 1].sum()) for own in sizes],
            "largest cluster": [int(own.max()) for own in sizes],
        }
    )


def _layer_table(layout: NeuronLayout, constant: np.ndarray, cka: Float[np.ndarray, "layer layer"]) -> pd.DataFrame:
    """Neurons, constant ones, and how alike a layer is to the model's other layers on average (NaN without others)."""
    others = len(cka) - 1
    return pd.DataFrame(
        {
            "layer": layout.layers,
            "neurons": layout.widths,
            "constant": layout.spread(np.flatnonzero(constant)),
            "mean cka": (cka.sum(axis=1) - np.diag(cka)) / others if others else np.full(1, np.nan),
        }
    )


def _window_table(settings: Settings, labels: list[np.ndarray], layout: NeuronLayout) -> pd.DataFrame:
    """Share of clusters within 1, 2, 3 neighbouring layers or further; also of those with two neurons or more."""
    rows = []
    for threshold, own in zip(settings.cuts, labels, strict=True):
        every, grouped = cluster_windows(own, layout), cluster_windows(own, layout, smallest=2)
        for window, share in every.shares.items():
            rows.append((threshold, window, round(share * every.counts.sum()), share, grouped.shares[window]))
    return pd.DataFrame(rows, columns=pd.Index(["threshold", "window", "clusters", "share", "share of groups"]))


def _survivor_table(
    settings: Settings, labels: list[np.ndarray], central: list[np.ndarray], layout: NeuronLayout
) -> pd.DataFrame:
    """Representatives per layer and threshold, by each rule that picks them; threshold 0 keeps all."""
    parts = [_survivors(0.0, dict.fromkeys(RULES, np.arange(layout.n_neurons)), layout)]
    for threshold, own, middle in zip(settings.cuts, labels, central, strict=True):
        drawn = random_members(own, np.random.default_rng([settings.seed, round(threshold * 1e6)]))
        first = np.unique(own, return_index=True)[1]
        parts.append(_survivors(threshold, {"random": drawn, "medoid": middle, "first": first}, layout))
    return pd.concat(parts, ignore_index=True)


def _survivors(threshold: float, kept: dict[str, np.ndarray], layout: NeuronLayout) -> pd.DataFrame:
    counts = {rule: layout.spread(neurons) for rule, neurons in kept.items()}
    return pd.DataFrame({"threshold": threshold, "layer": layout.layers, "neurons": layout.widths, **counts})


def _neuron_table(partitions: Partitions, central: list[np.ndarray], layout: NeuronLayout) -> pd.DataFrame:
    """Each neuron's cluster at each threshold, by other methods too, and whether it is the medoid of it."""
    columns = np.arange(layout.n_neurons)
    frame = {
        "neuron": layout.format(columns.tolist()),
        "layer": np.array(layout.layers)[layout.positions],
        "constant": partitions.clustering.constant,
        **partitions.columns(),
    }
    for threshold, middle in zip(partitions.settings.cuts, central, strict=True):
        frame[f"medoid {threshold:g}"] = np.isin(columns, middle)
    return pd.DataFrame(frame)


def _similarity_table(store: ActivationStore, cka: Float[np.ndarray, "layer layer"]) -> pd.DataFrame:
    """Linear CKA of every pair of layers, in the columns of `compare`, which adds intervals."""
    pairs = list(product(store.layers, store.layers))
    return pd.DataFrame(
        {
            "measure": "cka",
            "model_a": store.name,
            "layer_a": [a for a, _ in pairs],
            "model_b": store.name,
            "layer_b": [b for _, b in pairs],
            "value": cka.ravel(),
            "low": np.nan,
            "high": np.nan,
            "null": np.nan,
        }
    )
