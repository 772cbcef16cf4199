"""What the clusters are like: over which layers they reach, and whether other methods find them too."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError
from residuum.maths.clustering import Clustering, Labels, by_first_member
from residuum.maths.neuron_ids import NeuronLayout

Distances = Float[np.ndarray, "neuron neuron"]


@dataclass(frozen=True, eq=False)
class ClusterWindows:
    """How many clusters reach over 1, 2, 3, … neighbouring layers (Dalvi et al. 2020, figure 3).

    `counts[w − 1]` is the number of clusters whose lowest and highest layer are w − 1 apart.
    """

    counts: Int[np.ndarray, " window"]

    @property
    def shares(self) -> dict[str, float]:
        """Share of clusters within one layer, within two and three neighbouring layers, and further apart."""
        total = max(int(self.counts.sum()), 1)
        within = {name: int(self.counts[w : w + 1].sum()) / total for w, name in enumerate(("1", "2", "3"))}
        return within | {"further": int(self.counts[3:].sum()) / total}


def cluster_windows(labels: Labels, layout: NeuronLayout, *, smallest: int = 1) -> ClusterWindows:
    """Count clusters by the layers they reach over; `smallest=2` leaves out neurons that are alone."""
    if len(labels) != layout.n_neurons:
        raise DataError(f"{len(labels)} labels came with {layout.n_neurons} neurons; give one label per neuron.")
    members = by_first_member(labels)
    sizes = np.bincount(members)
    lowest = np.full(len(sizes), len(layout.widths))
    highest = np.zeros(len(sizes), int)
    np.minimum.at(lowest, members, layout.positions)
    np.maximum.at(highest, members, layout.positions)
    reach = (highest - lowest)[sizes >= smallest]
    return ClusterWindows(np.bincount(reach, minlength=len(layout.widths)))


def kmeans_partition(distances: Distances, n_clusters: int, seed: int = 0) -> Labels:
    """k-means where a neuron is described by its distances (see `square_distances`, which are overwritten) to all.

    k-means needs points, not distances; neurons with the same distances to all others are the same point.
    """
    from sklearn.cluster import KMeans  # slow to import, and seldom needed

    fitted = KMeans(n_clusters, init="k-means++", random_state=seed, copy_x=False).fit(distances)
    return by_first_member(np.asarray(fitted.labels_))


def dbscan_partition(distances: Distances, threshold: float, smallest: int = 2) -> Labels:
    """DBSCAN with radius c_t on distances (see `square_distances`); what it calls noise are clusters of one neuron."""
    from sklearn.cluster import DBSCAN  # slow to import, and seldom needed

    fitted = DBSCAN(eps=max(threshold, np.finfo(float).tiny), min_samples=smallest, metric="precomputed")
    labels = fitted.fit(distances).labels_.astype(int)
    noise = labels < 0
    labels[noise] = labels.max(initial=-1) + 1 + np.arange(noise.sum())
    return by_first_member(labels)


def partition_agreement(a: Labels, b: Int[np.ndarray, " other"]) -> float:
    """Adjusted Rand index: 1 for the same partition, about 0 for unrelated ones."""
    from sklearn.metrics import adjusted_rand_score  # slow to import, and seldom needed

    if len(a) != len(b):
        raise DataError(f"The partitions have {len(a)} and {len(b)} labels; they must label the same neurons.")
    return float(adjusted_rand_score(a, b))


def square_distances(clustering: Clustering) -> Distances:
    """1 − |corr| as a square float32 matrix, zero on the diagonal; constant neurons are 1 from all others."""
    distances = np.abs(clustering.correlation, dtype=np.float32)
    np.subtract(1, distances, out=distances)
    np.clip(distances, 0, 1, out=distances)
    distances[clustering.constant] = 1
    distances[:, clustering.constant] = 1
    np.fill_diagonal(distances, 0)
    return distances
