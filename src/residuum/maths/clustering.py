"""Correlation clustering: neurons that rise and fall together are one (Dalvi et al. 2020, §5.2).

correlation → distance 1 − |corr| → average linkage, once → cut at any number of thresholds → one
representative of each cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.cluster.hierarchy import fcluster, linkage

from residuum.errors import DataError, SettingError
from residuum.maths.arrays import constant_neurons, resolution_of, rounding_floor
from residuum.maths.layouts import NeuronLayout
from residuum.maths.moments import Moments

Labels = Int[np.ndarray, " neuron"]
Thresholds = float | Sequence[float] | Float[np.ndarray, " threshold"]


def cluster_neurons(x: Float[np.ndarray, "word neuron"], threshold: Thresholds) -> Labels | list[Labels]:
    """Cluster label of each neuron at a threshold c_t; labels count from 0 in order of first member.

    Several thresholds cut one tree, and give one array of labels each.
    """
    return cluster_correlation(*neuron_correlation(x)).cut(threshold)


def cluster_correlation(
    correlation: Float[np.ndarray, "neuron neuron"], constant: Bool[np.ndarray, " neuron"] | None = None
) -> "Clustering":
    """The average-linkage tree of 1 − |correlation|, from which every threshold is cut.

    `constant` marks neurons without variance; without it they are the rows whose diagonal is 0 or NaN. The
    tree is scipy's, on float64 distances. Memory beside the correlation: 8·D·(D−1) bytes (0.8 GB for 9,984
    neurons).
    """
    if constant is None:
        diagonal = np.diagonal(np.asarray(correlation))
        constant = np.isnan(diagonal) | (diagonal == 0)
    constant = np.asarray(constant, bool)
    distances = correlation_distances(correlation, constant)
    return Clustering(linkage(distances, method="average"), correlation, constant)


@dataclass(frozen=True, eq=False)
class Clustering:
    """The merge tree of the neurons; every threshold c_t ∈ [0, 1] is a cut through it.

    A cut joins neurons whose clusters are at most c_t apart on average. c_t = 0 keeps every neuron, even
    exact duplicates. A constant neuron correlates with nothing, so below c_t = 1 it is a cluster of its own.
    """

    tree: Float[np.ndarray, "merge 4"]
    correlation: Float[np.ndarray, "neuron neuron"]
    constant: Bool[np.ndarray, " neuron"]

    @property
    def n_constant(self) -> int:
        """Neurons without variance: they survive as clusters of their own, so they are counted apart."""
        return int(self.constant.sum())

    def labels(self, threshold: float) -> Labels:
        """Cluster of each neuron at c_t, counted from 0 in order of first member."""
        if not 0 <= threshold <= 1:
            raise SettingError(f"The clustering threshold is {threshold}; it must lie between 0 and 1.")
        if threshold == 0:
            return np.arange(len(self.constant))
        return by_first_member(fcluster(self.tree, threshold, criterion="distance"))

    def cut(self, threshold: Thresholds) -> Labels | list[Labels]:
        """`labels` at one threshold, or a list of them at several."""
        if np.ndim(threshold) == 0:
            return self.labels(threshold)  # pyright: ignore[reportArgumentType]
        return [self.labels(float(cut)) for cut in np.asarray(threshold, float)]

    def representatives(
        self, threshold: float, rule: str = "random", generator: np.random.Generator | None = None
    ) -> Int[np.ndarray, " cluster"]:
        """One neuron per cluster, ascending: a random one, the medoid, or the first (lowest layer)."""
        labels = self.labels(threshold)
        if rule == "medoid":
            return np.sort(medoids(self.correlation, labels, self.constant))
        if rule == "first":
            return np.sort(np.unique(labels, return_index=True)[1])
        if rule != "random":
            raise SettingError(f"There is no representative rule {rule!r}; choose random, medoid or first.")
        if generator is None:
            raise SettingError("Random representatives need a generator, so that the choice can be repeated.")
        return np.sort(random_members(labels, generator))

    def survivors(
        self,
        layout: NeuronLayout,
        thresholds: Sequence[float],
        rule: str = "random",
        generator: np.random.Generator | None = None,
    ) -> Int[np.ndarray, "layer threshold"]:
        """Representatives per layer and threshold (table 5.1 of the thesis on distilled models: `first`)."""
        kept = [self.representatives(threshold, rule, generator) for threshold in thresholds]
        return np.stack([layout.spread(neurons) for neurons in kept], axis=1)


def neuron_correlation(
    x: Float[np.ndarray, "word neuron"],
) -> tuple[Float[np.ndarray, "neuron neuron"], Bool[np.ndarray, " neuron"]]:
    """Pearson correlation of every pair of neurons, and which neurons are constant.

    A constant neuron (`maths.constancy`; all are taken for one layer) correlates 0 with every other and 1 with
    itself. Centred and summed in float64.
    """
    x = np.asarray(x)
    if x.ndim != 2 or x.shape[0] < 2 or x.shape[1] < 2:
        raise DataError(f"Found an array of shape {x.shape}; clustering needs at least 2 words × 2 neurons.")
    # A NaN or infinity shows in a column's extremes: no mask or copy as large as the data is needed.
    if not (np.isfinite(x.min(axis=0)).all() and np.isfinite(x.max(axis=0)).all()):
        raise DataError("The activations contain NaN or infinite values; extract them again or drop those words.")
    centred = x.astype(np.float64)
    mean = centred.mean(axis=0)
    centred -= mean
    correlation = centred.T @ centred
    squares = np.diagonal(correlation).copy()
    resolution = resolution_of(x.dtype)
    constant = constant_neurons(squares, rounding_floor(len(x), mean, resolution), resolution)
    scale = np.where(constant, 0, 1 / np.sqrt(np.where(constant, 1, squares)))
    correlation *= scale
    correlation *= scale[:, None]
    np.fill_diagonal(correlation, 1)
    return correlation, constant


def moments_correlation(
    moments: Moments,
) -> tuple[Float[np.ndarray, "neuron neuron"], Bool[np.ndarray, " neuron"]]:
    """`neuron_correlation` from streamed moments: S_kl / √(S_kk S_ll), the neurons of all layers side by side.

    Constant are the neurons that are so in their own layer (`Moments.alive`), as in a comparison.
    Memory beside the moments: 8·D² bytes (0.8 GB for 9,984 neurons).
    """
    if sum(moments.widths) < 2 or moments.n < 2:
        raise DataError(
            f"Found {moments.n} words × {sum(moments.widths)} neurons; clustering needs at least 2 words × 2 neurons."
        )
    squares = np.concatenate([np.diag(moments.blocks[i, i]) for i in range(moments.n_layers)])
    constant = ~np.concatenate([moments.alive(i) for i in range(moments.n_layers)])
    scale = np.where(constant, 0, 1 / np.sqrt(np.where(constant, 1, squares)))
    stops = np.cumsum(moments.widths)
    layers = [slice(stop - width, stop) for stop, width in zip(stops, moments.widths, strict=True)]
    correlation = np.empty((stops[-1], stops[-1]))
    for (i, j), block in moments.blocks.items():
        part = correlation[layers[i], layers[j]]
        np.multiply(block, scale[layers[i], None], out=part)
        part *= scale[layers[j]]
        if i != j:
            correlation[layers[j], layers[i]] = part.T
    np.fill_diagonal(correlation, 1)
    return correlation, constant


def correlation_distances(
    correlation: Float[np.ndarray, "neuron neuron"], constant: Bool[np.ndarray, " neuron"]
) -> Float[np.ndarray, " pair"]:
    """Condensed float64 distances 1 − |corr| ∈ [0, 1], in scipy's order; constant neurons are 1 away."""
    n_neurons = len(correlation)
    assert correlation.shape == (n_neurons, n_neurons), "a correlation is square"
    assert constant.shape == (n_neurons,), "one mark per neuron"
    if n_neurons < 2:
        raise DataError(f"Found {n_neurons} neurons; clustering needs at least two.")
    distances = np.empty(n_neurons * (n_neurons - 1) // 2)
    end = 0
    for row in range(n_neurons - 1):
        start, end = end, end + n_neurons - 1 - row
        # Rounding can put |corr| of duplicates a little above 1; a negative distance would be an invalid tree.
        distances[start:end] = np.clip(1 - np.abs(correlation[row, row + 1 :], dtype=np.float64), 0, None)
        distances[start:end][constant[row + 1 :] | constant[row]] = 1
    if not np.isfinite(distances).all():
        raise DataError("The correlation contains NaN beside the constant neurons; check the activations for NaN.")
    return distances


def medoids(
    correlation: Float[np.ndarray, "neuron neuron"], labels: Labels, constant: Bool[np.ndarray, " neuron"]
) -> Int[np.ndarray, " cluster"]:
    """The neuron of each cluster with the least total distance to the others; ties go to the first."""
    central = []
    for members in cluster_members(labels):
        varying = members[~constant[members]]
        if varying.size < 3:
            central.append(varying[0] if varying.size else members[0])
            continue
        # In blocks: a cluster can be nearly all neurons, and its part of the correlation as large as the whole.
        blocks = [varying[start : start + 1024] for start in range(0, varying.size, 1024)]
        closeness = [np.abs(correlation[np.ix_(block, varying)]).sum(axis=1, dtype=np.float64) for block in blocks]
        central.append(varying[np.concatenate(closeness).argmax()])
    return np.array(central)


def random_members(labels: Labels, generator: np.random.Generator) -> Int[np.ndarray, " cluster"]:
    """One neuron of each cluster, each member equally likely."""
    return np.array([generator.choice(members) for members in cluster_members(labels)])


def cluster_members(labels: Labels) -> list[Int[np.ndarray, " member"]]:
    """The neurons of each cluster, ascending, clusters in the order of their labels."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def by_first_member(labels: Labels) -> Labels:
    """The same partition with labels 0, 1, … in order of each cluster's first neuron."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


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
