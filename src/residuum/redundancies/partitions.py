"""The clusters of the neurons by the method that was chosen, and how far other methods find the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from residuum.maths.clustering import Clustering, Labels
from residuum.maths.partitions import dbscan_partition, kmeans_partition, partition_agreement
from residuum.redundancies.settings import METHODS, Settings

AVERAGE, KMEANS, DBSCAN = METHODS


@dataclass(frozen=True, eq=False)
class Partitions:
    """Partitions of the neurons by any method and threshold, each found once, when it is first asked for."""

    clustering: Clustering
    settings: Settings
    _found: dict[tuple[str, float], Labels] = field(default_factory=dict, init=False, repr=False)

    def chosen(self, threshold: float) -> Labels:
        """The clusters that representatives stand for."""
        return self.labels(self.settings.clusters, threshold)

    def labels(self, method: str, threshold: float) -> Labels:
        """The cluster of each neuron, counted from 0 in order of first member.

        k-means finds as many clusters as average linkage does at c_t; DBSCAN's radius is c_t.
        """
        if method == AVERAGE or threshold == 0:
            return self.clustering.labels(threshold)
        if (method, threshold) not in self._found:
            self._found[method, threshold] = self._other(method, threshold)
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

    def _other(self, method: str, threshold: float) -> Labels:
        if method == DBSCAN:
            return dbscan_partition(self.clustering, threshold)
        n_clusters = int(self.clustering.labels(threshold).max()) + 1
        return kmeans_partition(self.clustering, n_clusters, self.settings.seed)


def _column(method: str, threshold: float) -> str:
    return f"{METHODS[method]} {threshold:g}"
