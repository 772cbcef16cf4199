"""The clusters of the neurons by the method that was chosen, and how far other methods find the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from residuum.costs import partitions_at_once
from residuum.engine import Engine, Workers, as_engine, run_tasks
from residuum.maths.clustering import (
    Clustering,
    Distances,
    Labels,
    dbscan_partition,
    kmeans_partition,
    partition_agreement,
    square_distances,
)
from residuum.probing.redundancy_settings import METHODS, Settings
from residuum.storage.files import whole_file
from residuum.storage.results import Run, read_run, write_run

AVERAGE, KMEANS, DBSCAN = METHODS


@dataclass(frozen=True, eq=False)
class Partitions:
    """Partitions of the neurons by any method and threshold: those of average linkage, and the others once found."""

    clustering: Clustering
    settings: Settings
    _found: dict[tuple[str, float], Labels] = field(default_factory=dict, init=False, repr=False)

    def find_others(self, folder: Path, workers: Workers, max_memory: int) -> None:
        """Let k-means and DBSCAN cluster where they are asked for, each cell kept in `folder` when it is finished.

        k-means finds as many clusters as average linkage does at c_t; DBSCAN's radius is c_t. Those workers of this
        machine that may hold the distances at once read them from the folder.
        """
        places = {cell: folder / f"{cell[0]}-{cell[1]!r}" for cell in self.slow_cells}
        todo = [cell for cell, place in places.items() if not (place / "result.json").exists()]
        engine = _that_fit(as_engine(workers), len(self.clustering.constant), max_memory)
        for cell, labels in zip(todo, self._partitions(todo, folder, engine), strict=True):
            write_run(places[cell], Run("redundancy", {}, {}, {}, {"labels": labels}))
        self._found.update({cell: read_run(place).tensors["labels"] for cell, place in places.items()})

    @property
    def slow_cells(self) -> list[tuple[str, float]]:
        """The methods and thresholds that the merge tree does not answer: those of tables, and that of the pictures."""
        asked = [(method, threshold) for threshold, method in self.others]
        looked_at = [(self.settings.clusters, self.settings.focus)] if self.settings.pictures else []
        every = dict.fromkeys([*asked, *looked_at])
        return [(method, threshold) for method, threshold in every if method != AVERAGE and threshold > 0]

    def _partitions(self, cells: Sequence[tuple[str, float]], folder: Path, engine: Engine) -> Iterator[Labels]:
        if not cells:
            return
        import sklearn.cluster  # noqa: F401 - here, because only threads of libraries that are there can be limited

        sizes = {threshold: int(self.clustering.labels(threshold).max()) + 1 for _, threshold in cells}
        arguments = [(method, threshold, sizes[threshold], self.settings.seed) for method, threshold in cells]
        if engine.alone:
            yield from run_tasks(lambda *cell: _partition(square_distances(self.clustering), *cell), arguments, engine)
            return
        path = folder.absolute() / "distances.npy"
        try:
            with whole_file(path) as temporary, temporary.open("wb") as file:
                np.save(file, square_distances(self.clustering))
            yield from run_tasks(partial(_partition_there, path), arguments, engine)
        finally:
            path.unlink(missing_ok=True)

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
        return sorted(asked, key=lambda pair: (pair[0], list(METHODS).index(pair[1])))

    def columns(self) -> dict[str, Labels]:
        """Every partition as a column of the table `neurons`: the chosen ones, then those of the other methods.

        The clusters of average linkage are given as `average linkage` where they are not the chosen ones.
        """
        settings = self.settings
        found = {f"cluster {threshold:g}": self.chosen(threshold) for threshold in settings.cuts}
        if settings.clusters != AVERAGE:
            found |= {_column(AVERAGE, threshold): self.labels(AVERAGE, threshold) for threshold in settings.cuts}
        new = [(t, m) for t, m in self.others if m != settings.clusters or t not in settings.cuts]
        return found | {_column(method, threshold): self.labels(method, threshold) for threshold, method in new}

    def agreement(self) -> pd.DataFrame:
        """How far the other methods find the clusters of average linkage (adjusted Rand index)."""
        rows = []
        for threshold, method in self.others:
            own, other = self.labels(AVERAGE, threshold), self.labels(method, threshold)
            counts = int(own.max()) + 1, int(other.max()) + 1
            rows.append((threshold, METHODS[method], *counts, partition_agreement(own, other)))
        names = ["threshold", "method", "clusters", "clusters of method", "agreement"]
        return pd.DataFrame(rows, columns=pd.Index(names))


def _that_fit(engine: Engine, n_neurons: int, max_memory: int) -> Engine:
    """Those workers of this machine that may be at it at once."""
    at_once = partitions_at_once(n_neurons, max_memory)
    return engine if engine.client else replace(engine, workers=min(engine.workers, at_once))


def _partition_there(path: Path, *cell: Any) -> Labels:
    import sklearn.cluster  # noqa: F401 - as above

    with threadpool_limits(1):
        return _partition(np.load(path), *cell)


def _partition(distances: Distances, method: str, threshold: float, n_clusters: int, seed: int) -> Labels:
    if method == DBSCAN:
        return dbscan_partition(distances, threshold)
    return kmeans_partition(distances, n_clusters, seed)


def _column(method: str, threshold: float) -> str:
    return f"{METHODS[method]} {threshold:g}"
