"""A probe made ready for use: it multiplies the chosen neurons and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probing import TrainedProbe


@dataclass(frozen=True, eq=False)
class Classifier:
    """Scores of each class (or one number) from chosen neurons: y = W x + b.

    Column j of W belongs to neuron `indices[j]` of layer `layers[j]`; both ascend, layer by layer. `labels` are the
    names of the rows, empty where a number is predicted.
    """

    weight: Float[np.ndarray, "class neuron"]
    bias: Float[np.ndarray, " class"]
    layers: Int[np.ndarray, " neuron"]
    indices: Int[np.ndarray, " neuron"]
    labels: tuple[str, ...] = ()

    @property
    def top_layer(self) -> int:
        """The highest layer that is looked at: nothing above it needs to run."""
        return int(self.layers.max())

    @property
    def n_neurons(self) -> int:
        """The number of neurons that are looked at."""
        return len(self.indices)

    @property
    def n_bytes(self) -> int:
        """The size of weights and biases, and of the neurons' places, as they are written."""
        return classifier_bytes(len(self.bias), self.n_neurons)

    def by_layer(self) -> dict[int, Int[np.ndarray, " neuron"]]:
        """The chosen neurons of each layer that has some, lowest layer first."""
        return {int(layer): self.indices[self.layers == layer] for layer in np.unique(self.layers)}

    def scores(self, x: Float[np.ndarray, "row neuron"]) -> Float[np.ndarray, "row class"]:
        """W x + b for rows of the chosen neurons."""
        return x @ self.weight.T + self.bias

    def decide(self, x: Float[np.ndarray, "row neuron"]) -> np.ndarray:
        """The likeliest label of each row, or its number."""
        scores = self.scores(x)
        return np.array(self.labels, object)[scores.argmax(axis=1)] if self.labels else scores[:, 0]


def folded_classifier(probe: TrainedProbe, layout: NeuronLayout, labels: Sequence[str]) -> Classifier:
    """The classifier of a trained probe: W = θ / σ and b = β − θ (μ / σ) where the probe standardised its neurons."""
    weight, bias = folded(probe)
    return classifier_of(weight, bias, probe.neurons, layout, labels)


def folded(probe: TrainedProbe) -> tuple[Float[np.ndarray, "class neuron"], Float[np.ndarray, " class"]]:
    """Weight and bias for neurons as the model gives them."""
    if probe.centre is None or probe.scale is None:
        return probe.weight, probe.bias
    weight = probe.weight.astype(np.float64) / probe.scale
    return weight.astype(np.float32), (probe.bias - weight @ probe.centre.astype(np.float64)).astype(np.float32)


def classifier_of(
    weight: Float[np.ndarray, "class neuron"],
    bias: Float[np.ndarray, " class"],
    columns: Int[np.ndarray, " neuron"],
    layout: NeuronLayout,
    labels: Sequence[str],
) -> Classifier:
    """A classifier whose column j looks at the column `columns[j]` of all layers side by side."""
    order = np.argsort(columns, kind="stable")
    places = layout.positions[columns[order]]
    return Classifier(
        weight=np.ascontiguousarray(weight[:, order], dtype=np.float32),
        bias=np.asarray(bias, np.float32),
        layers=np.array(layout.layers)[places],
        indices=columns[order] - np.array(layout.starts)[places],
        labels=tuple(labels),
    )


def classifier_bytes(n_rows: int, n_neurons: int) -> int:
    """float32 weights and biases, and two int64 numbers for each neuron's place."""
    return 4 * n_rows * (n_neurons + 1) + 16 * n_neurons
