"""General redundancy, which needs no labels: similar layers, clusters of neurons, and pictures of clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits

from residuum.activations.correlation import neuron_moments
from residuum.activations.store import ActivationStore
from residuum.costs import partitions_at_once
from residuum.engine import Workers, as_engine, run_tasks
from residuum.maths.clustering import (
    Clustering,
    Distances,
    Labels,
    cluster_correlation,
    cluster_members,
    cluster_windows,
    dbscan_partition,
    kmeans_partition,
    medoids,
    moments_correlation,
    partition_agreement,
    random_members,
    square_distances,
)
from residuum.maths.layouts import NeuronLayout
from residuum.maths.moments import Moments
from residuum.maths.similarity import similarity_matrix
from residuum.probing.examples import MEMORY
from residuum.probing.settings import CLUSTERINGS, THRESHOLDS
from residuum.storage.files import whole_file
from residuum.storage.results import Run, read_run, write_run

Rows = Int[np.ndarray, " row"]
AVERAGE, KMEANS, DBSCAN = CLUSTERINGS
RULES = ("random", "medoid", "first")
"""Which neuron represents its cluster."""
PICTURE_COLUMNS = (
    "cluster", "size", "neuron", "correlation", "sentence", "position", "word", "activation", "deviations",
)  # fmt: skip
PICTURE_NEURONS = 8  # of a cluster that are drawn
PICTURE_SENTENCES = 2
PICTURE_LENGTHS = range(6, 19)  # rows of a sentence that is easily read


@dataclass(frozen=True)
class ClusterSettings:
    """Everything that decides clusters, beside the data.

    `focus` is the threshold at which clusters are drawn and `pictures` how many of them; `agreement` are the thresholds
    at which k-means and DBSCAN cluster too, and `clusters` the method whose clusters are used.
    """

    thresholds: tuple[float, ...] = THRESHOLDS
    focus: float = 0.3
    pictures: int = 3
    agreement: tuple[float, ...] = ()
    clusters: str = AVERAGE
    seed: int = 0

    @property
    def cuts(self) -> tuple[float, ...]:
        """The thresholds above 0: what is left at 0, all neurons, stands first in every table anyway."""
        return tuple(threshold for threshold in self.thresholds if threshold > 0)


def general_redundancy(
    store: ActivationStore,
    rows: Rows | None,
    settings: ClusterSettings,
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
    scales = NeuronScales.of(moments)
    correlation, constant = moments_correlation(moments)
    n_words = moments.n
    del moments
    clustering = cluster_correlation(correlation, constant)
    partitions = Partitions(clustering, settings)
    if partitions.slow_cells:
        assert folder is not None, "there is a folder for what is slow to find"
        partitions.find_others(folder, workers, max_memory)
    labels = [partitions.chosen(threshold) for threshold in settings.cuts]
    central = [medoids(correlation, partition, constant) for partition in labels]
    tables = {
        **_threshold_tables(settings, labels, central, layout),
        **_layer_tables(store, constant, cka),
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


def _threshold_tables(
    settings: ClusterSettings, labels: list[np.ndarray], central: list[np.ndarray], layout: NeuronLayout
) -> dict[str, pd.DataFrame]:
    """What is left at each c_t, 0 being all neurons.

    `thresholds`: neurons left, how many stand in a cluster with others, and the largest cluster. `windows`: share of
    clusters within 1, 2, 3 neighbouring layers or further; also of those with two neurons or more. `survivors`:
    representatives per layer, by each rule that picks them.
    """
    sizes = [np.ones(layout.n_neurons, int), *(np.bincount(partition) for partition in labels)]
    thresholds = pd.DataFrame(
        {
            "threshold": [0.0, *settings.cuts],
            "neurons": [len(counts) for counts in sizes],
            "share": [len(counts) / layout.n_neurons for counts in sizes],
            "grouped": [int(counts[counts > 1].sum()) for counts in sizes],
            "largest cluster": [int(counts.max()) for counts in sizes],
        }
    )
    windows, survivors = [], [_survivors(0.0, dict.fromkeys(RULES, np.arange(layout.n_neurons)), layout)]
    for threshold, partition, middle in zip(settings.cuts, labels, central, strict=True):
        every, grouped = cluster_windows(partition, layout), cluster_windows(partition, layout, smallest=2)
        for window, share in every.shares.items():
            windows.append((threshold, window, round(share * every.counts.sum()), share, grouped.shares[window]))
        drawn = random_members(partition, np.random.default_rng([settings.seed, round(threshold * 1e6)]))
        first = np.unique(partition, return_index=True)[1]
        survivors.append(_survivors(threshold, {"random": drawn, "medoid": middle, "first": first}, layout))
    names = pd.Index(["threshold", "window", "clusters", "share", "share of groups"])
    return {
        "thresholds": thresholds,
        "windows": pd.DataFrame(windows, columns=names),
        "survivors": pd.concat(survivors, ignore_index=True),
    }


def _layer_tables(
    store: ActivationStore, constant: np.ndarray, cka: Float[np.ndarray, "layer layer"]
) -> dict[str, pd.DataFrame]:
    """`layers`: neurons, constant ones, and how alike a layer is to the others on average (NaN without others).

    `similarity`: linear CKA of every pair of layers, in the columns of `compare`, which adds intervals.
    """
    layout, others = NeuronLayout(tuple(store.widths), tuple(store.layers)), len(cka) - 1
    layers = pd.DataFrame(
        {
            "layer": layout.layers,
            "neurons": layout.widths,
            "constant": layout.spread(np.flatnonzero(constant)),
            "mean cka": (cka.sum(axis=1) - np.diag(cka)) / others if others else np.full(1, np.nan),
        }
    )
    pairs = list(product(store.layers, store.layers))
    similarity = pd.DataFrame(
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
    return {"layers": layers, "similarity": similarity}


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


@dataclass(frozen=True, eq=False)
class Partitions:
    """Partitions of the neurons by any method and threshold: those of average linkage, and the others once found."""

    clustering: Clustering
    settings: ClusterSettings
    _found: dict[tuple[str, float], Labels] = field(default_factory=dict, init=False, repr=False)

    def find_others(self, folder: Path, workers: Workers, max_memory: int) -> None:
        """Let k-means and DBSCAN cluster where they are asked for, each cell kept in `folder` when it is finished.

        k-means finds as many clusters as average linkage does at c_t; DBSCAN's radius is c_t. Those workers of this
        machine that may hold the distances at once read them from the folder.
        """
        places = {cell: folder / f"{cell[0]}-{cell[1]!r}" for cell in self.slow_cells}
        todo = [cell for cell, place in places.items() if not (place / "result.json").exists()]
        engine = as_engine(workers)
        if not engine.client:
            at_once = partitions_at_once(len(self.clustering.constant), max_memory)
            engine = replace(engine, workers=min(engine.workers, at_once))
        if todo:
            import sklearn.cluster  # noqa: F401 - here, because only threads of libraries that are there can be limited
        sizes = {threshold: int(self.clustering.labels(threshold).max()) + 1 for _, threshold in todo}
        arguments = [(method, threshold, sizes[threshold], self.settings.seed) for method, threshold in todo]
        path = folder.absolute() / "distances.npy"
        try:
            work: Callable[..., Labels] = partial(_partition_there, path)
            if engine.alone:
                work = lambda *cell: _partition(square_distances(self.clustering), *cell)  # noqa: E731
            elif todo:
                with whole_file(path) as temporary, temporary.open("wb") as file:
                    np.save(file, square_distances(self.clustering))
            for cell, labels in zip(todo, run_tasks(work, arguments, engine), strict=True):
                write_run(places[cell], Run("redundancy", {}, {}, {}, {"labels": labels}))
        finally:
            path.unlink(missing_ok=True)
        self._found.update({cell: read_run(place).tensors["labels"] for cell, place in places.items()})

    @property
    def slow_cells(self) -> list[tuple[str, float]]:
        """The methods and thresholds that the merge tree does not answer: those of tables, and that of the pictures."""
        asked = [(method, threshold) for threshold, method in self.others]
        drawn = [(self.settings.clusters, self.settings.focus)] if self.settings.pictures else []
        every = dict.fromkeys([*asked, *drawn])
        return [(method, threshold) for method, threshold in every if method != AVERAGE and threshold > 0]

    def chosen(self, threshold: float) -> Labels:
        """The clusters that representatives stand for."""
        return self.labels(self.settings.clusters, threshold)

    def labels(self, method: str, threshold: float) -> Labels:
        """The cluster of each neuron, counted from 0 in order of first member."""
        if method == AVERAGE or threshold == 0:
            return self.clustering.labels(threshold)
        return self._found[method, threshold]

    @property
    def others(self) -> list[tuple[float, str]]:
        """At which thresholds other methods than average linkage are asked for."""
        settings = self.settings
        asked = {(threshold, method) for threshold in settings.agreement for method in (KMEANS, DBSCAN)}
        if settings.clusters != AVERAGE:
            asked |= {(threshold, settings.clusters) for threshold in settings.cuts}
        return sorted(asked, key=lambda pair: (pair[0], list(CLUSTERINGS).index(pair[1])))

    def columns(self) -> dict[str, Labels]:
        """Every partition as a column of the table `neurons`: the chosen ones, then those of the other methods.

        The clusters of average linkage are given as `average linkage` where they are not the chosen ones.
        """
        settings = self.settings
        columns = {f"cluster {threshold:g}": self.chosen(threshold) for threshold in settings.cuts}
        if settings.clusters != AVERAGE:
            columns |= {_column(AVERAGE, threshold): self.labels(AVERAGE, threshold) for threshold in settings.cuts}
        new = [(t, m) for t, m in self.others if m != settings.clusters or t not in settings.cuts]
        return columns | {_column(method, threshold): self.labels(method, threshold) for threshold, method in new}

    def agreement(self) -> pd.DataFrame:
        """How far the other methods find the clusters of average linkage (adjusted Rand index)."""
        rows = []
        for threshold, method in self.others:
            average, other = self.labels(AVERAGE, threshold), self.labels(method, threshold)
            counts = int(average.max()) + 1, int(other.max()) + 1
            rows.append((threshold, CLUSTERINGS[method], *counts, partition_agreement(average, other)))
        names = ["threshold", "method", "clusters", "clusters of method", "agreement"]
        return pd.DataFrame(rows, columns=pd.Index(names))


def _partition_there(path: Path, *cell: Any) -> Labels:
    import sklearn.cluster  # noqa: F401 - as above

    with threadpool_limits(1):
        return _partition(np.load(path), *cell)


def _partition(distances: Distances, method: str, threshold: float, n_clusters: int, seed: int) -> Labels:
    if method == DBSCAN:
        return dbscan_partition(distances, threshold)
    return kmeans_partition(distances, n_clusters, seed)


def _column(method: str, threshold: float) -> str:
    return f"{CLUSTERINGS[method]} {threshold:g}"


@dataclass(frozen=True, eq=False)
class NeuronScales:
    """Mean and standard deviation of each neuron, in which pictures are drawn; a constant neuron's deviation is 1."""

    mean: Float[np.ndarray, " neuron"]
    deviation: Float[np.ndarray, " neuron"]

    @staticmethod
    def of(moments: Moments) -> NeuronScales:
        """The scales of the neurons of all layers side by side."""
        squares = np.concatenate([np.diag(moments.blocks[i, i]) for i in range(moments.n_layers)])
        deviation = np.sqrt(np.maximum(squares, 0) / moments.n)
        return NeuronScales(moments.mean, np.where(deviation > 0, deviation, 1.0))


def cluster_pictures(
    store: ActivationStore,
    rows: Int[np.ndarray, " row"] | None,
    partitions: Partitions,
    layout: NeuronLayout,
    scales: NeuronScales,
) -> list[tuple[Any, ...]]:
    """The largest clusters at the focus: activations of up to eight neurons each over two sentences, as rows.

    The neurons stand evenly between the lowest and the highest layer of the cluster; `correlation` is that with the
    cluster's medoid, so its sign tells which neurons mirror it.
    """
    clustering, settings = partitions.clustering, partitions.settings
    if not settings.pictures:
        return []
    labels = partitions.chosen(settings.focus)
    groups = [members for members in cluster_members(labels) if len(members) > 1]
    largest = sorted(groups, key=lambda members: (-len(members), members[0]))[: settings.pictures]
    central = medoids(clustering.correlation, labels, clustering.constant)
    words = list(_words(store, rows)) if largest else []
    pictures = []
    for members in largest:
        places = np.unique(np.linspace(0, len(members) - 1, min(PICTURE_NEURONS, len(members))).round().astype(int))
        number = int(labels[members[0]])
        for neuron, name in zip(members[places].tolist(), layout.format(members[places].tolist()), strict=True):
            correlation = float(clustering.correlation[neuron, central[number]])
            for sentence, position, word, values in words:
                deviations = (values[neuron] - scales.mean[neuron]) / scales.deviation[neuron]
                place = (number, len(members), name, correlation, sentence, position, word)
                pictures.append((*place, float(values[neuron]), float(deviations)))
    return pictures


def _words(
    store: ActivationStore, rows: Int[np.ndarray, " row"] | None
) -> Iterator[tuple[int, int, str, Float[np.ndarray, " neuron"]]]:
    """Sentence, position, word and all activations of the words of some sentences (or of some whole sentences)."""
    places = store.row_words if rows is None else store.row_words[rows]
    numbers = np.unique(places[:, 0])
    chosen = numbers[: PICTURE_LENGTHS.stop]
    if store.unit == "word":
        # The first sentences of an easy length; without such, those with most words of the first hundred.
        lengths = store.lengths[numbers]
        chosen = numbers[(lengths >= PICTURE_LENGTHS.start) & (lengths < PICTURE_LENGTHS.stop)][:PICTURE_SENTENCES]
        if len(chosen) < PICTURE_SENTENCES:
            chosen = numbers[:100][np.argsort(-lengths[:100], kind="stable")][:PICTURE_SENTENCES]
    for sentence in chosen.tolist():
        block = store.read(sentence, sentence + 1)
        joined = np.concatenate(block.layers, axis=1)
        for (_, position), values in zip(block.places.tolist(), joined, strict=True):
            words = store.sentences[sentence]
            yield sentence, position, words[position] if store.unit == "word" else " ".join(words), values
