"""Pictures of clusters: what some of their neurons do, word by word (Dalvi et al. 2020, figure 6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from residuum.activations.store import ActivationStore
from residuum.maths.clustering import cluster_members, medoids
from residuum.maths.moments import Moments
from residuum.maths.neuron_ids import NeuronLayout
from residuum.probing.redundancy_partitions import Partitions

PICTURE_COLUMNS = (
    "cluster", "size", "neuron", "correlation", "sentence", "position", "word", "activation", "deviations",
)  # fmt: skip
NEURONS = 8  # of a cluster that are drawn
SENTENCES = 2
LENGTHS = range(6, 19)  # rows of a sentence that is easily read


@dataclass(frozen=True, eq=False)
class Scales:
    """Mean and standard deviation of each neuron, in which pictures are drawn; a constant neuron's deviation is 1."""

    mean: Float[np.ndarray, " neuron"]
    deviation: Float[np.ndarray, " neuron"]

    @staticmethod
    def of(moments: Moments) -> Scales:
        """The scales of the neurons of all layers side by side."""
        squares = np.concatenate([np.diag(moments.blocks[i, i]) for i in range(moments.n_layers)])
        deviation = np.sqrt(np.maximum(squares, 0) / moments.n)
        return Scales(moments.mean, np.where(deviation > 0, deviation, 1.0))


def cluster_pictures(
    store: ActivationStore,
    rows: Int[np.ndarray, " row"] | None,
    partitions: Partitions,
    layout: NeuronLayout,
    scales: Scales,
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
    found = []
    for members in largest:
        places = np.unique(np.linspace(0, len(members) - 1, min(NEURONS, len(members))).round().astype(int))
        number = int(labels[members[0]])
        for neuron, name in zip(members[places].tolist(), layout.format(members[places].tolist()), strict=True):
            correlation = float(clustering.correlation[neuron, central[number]])
            for sentence, position, word, values in words:
                deviations = (values[neuron] - scales.mean[neuron]) / scales.deviation[neuron]
                place = (number, len(members), name, correlation, sentence, position, word)
                found.append((*place, float(values[neuron]), float(deviations)))
    return found


def _words(
    store: ActivationStore, rows: Int[np.ndarray, " row"] | None
) -> Iterator[tuple[int, int, str, Float[np.ndarray, " neuron"]]]:
    """Sentence, position, word and all activations of the words of some sentences (or of some whole sentences)."""
    own = store.row_words if rows is None else store.row_words[rows]
    numbers = np.unique(own[:, 0])
    for sentence in _readable(store, numbers) if store.unit == "word" else numbers[: LENGTHS.stop].tolist():
        block = store.read(sentence, sentence + 1)
        joined = np.concatenate(block.layers, axis=1)
        for (_, position), values in zip(block.places.tolist(), joined, strict=True):
            words = store.sentences[sentence]
            yield sentence, position, words[position] if store.unit == "word" else " ".join(words), values


def _readable(store: ActivationStore, numbers: Int[np.ndarray, " sentence"]) -> list[int]:
    """The first sentences of an easy length; without such, those with most words of the first hundred."""
    lengths = store.lengths[numbers]
    fitting = numbers[(lengths >= LENGTHS.start) & (lengths < LENGTHS.stop)]
    if len(fitting) < SENTENCES:
        fitting = numbers[:100][np.argsort(-lengths[:100], kind="stable")]
    return fitting[:SENTENCES].tolist()
