"""A linear classifier on chosen neurons, and the two files that hold it in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import StoreError
from residuum.maths.layouts import NeuronLayout
from residuum.maths.probing import TrainedProbe
from residuum.storage.files import read_json, write_json
from residuum.storage.schemas import conforming
from residuum.storage.tensors import read_tensors, write_tensors

VERSION = 1
DESCRIPTION, TENSORS = "classifier.json", "classifier.safetensors"


@dataclass(frozen=True)
class Unit:
    """What is labelled, and which tokens represent it (as in `extract`)."""

    unit: Literal["word", "sentence"] = "word"
    pooling: Literal["last", "first", "mean", "max"] = "last"
    position: Literal["auto", "cls", "last", "mean", "all"] = "auto"
    pairs: bool = False


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
        """The highest layer with a chosen neuron: nothing above it needs to run."""
        return int(self.layers.max())

    @property
    def n_neurons(self) -> int:
        """The number of chosen neurons."""
        return len(self.indices)

    @property
    def n_bytes(self) -> int:
        """The size of the tensors as they are written."""
        return classifier_bytes(len(self.bias), self.n_neurons)

    def by_layer(self) -> dict[int, Int[np.ndarray, " neuron"]]:
        """The chosen neurons of each layer that has some, lowest layer first."""
        return {int(layer): self.indices[self.layers == layer] for layer in np.unique(self.layers)}

    def scores(self, x: Float[np.ndarray, "row neuron"]) -> Float[np.ndarray, "row class"]:
        """W x + b for rows of the chosen neurons."""
        return x @ self.weight.T + self.bias

    def decide(self, x: Float[np.ndarray, "row neuron"]) -> np.ndarray:
        """The most likely label of each row, or its number."""
        scores = self.scores(x)
        return np.array(self.labels, object)[scores.argmax(axis=1)] if self.labels else scores[:, 0]


def folded(probe: TrainedProbe) -> tuple[Float[np.ndarray, "class neuron"], Float[np.ndarray, " class"]]:
    """A probe's weight and bias for raw activations: W = θ / σ and b = β − θ (μ / σ) where it was standardised."""
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
    """A classifier whose weight j belongs to column `columns[j]` of all layers side by side."""
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
    """float32 weights and biases, and two int64 numbers per neuron for its place."""
    return 4 * n_rows * (n_neurons + 1) + 16 * n_neurons


def write_classifier(folder: Path, classifier: Classifier, unit: Unit, task: str) -> None:
    """Write the tensors and their description beside a model."""
    tensors = {name: getattr(classifier, name) for name in ("weight", "bias", "layers", "indices")}
    write_tensors(folder / TENSORS, tensors)
    description = {
        "version": VERSION,
        "task": task,
        "labels": list(classifier.labels),
        "unit": unit.unit,
        "pooling": unit.pooling,
        "position": unit.position,
        "pairs": unit.pairs,
        "layer": classifier.top_layer,
        "neurons": classifier.n_neurons,
    }
    write_json(folder / DESCRIPTION, description)


def read_classifier(folder: Path) -> tuple[Classifier, Unit]:
    """The classifier of a folder and what it labels; both are checked before anything is built on them."""
    path = folder / DESCRIPTION
    if not path.exists():
        found = f"has no {DESCRIPTION}" if folder.exists() else "does not exist"
        raise StoreError(f"{folder} {found}; expected a folder that `transfer` wrote.")
    raw = read_json(path)
    if (version := raw.get("version") if isinstance(raw, dict) else None) != VERSION:
        problem = f"{path} has format version {str(version)[:20]}"
        raise StoreError(f"{problem}; this residuum reads version {VERSION}. Run `transfer` again.")
    stored = conforming(raw, _StoredDescription, path, StoreError, "Run `transfer` again.")
    unit = Unit(stored.unit, stored.pooling, stored.position, stored.pairs)
    return _read_tensors(folder / TENSORS, tuple(stored.labels)), unit


@dataclass(frozen=True)
class _StoredDescription:
    """The contents of `classifier.json`."""

    version: int
    task: str
    labels: list[str]
    unit: Literal["word", "sentence"]
    pooling: Literal["last", "first", "mean", "max"]
    position: Literal["auto", "cls", "last", "mean", "all"]
    pairs: bool
    layer: int
    neurons: int


def _read_tensors(path: Path, labels: tuple[str, ...]) -> Classifier:
    try:
        classifier = Classifier(**read_tensors(path, remedy="Copy the folder again."), labels=labels)
    except TypeError as error:
        raise StoreError(f"{path} holds other tensors than a classifier ({error}); copy the folder again.") from None
    if fault := _misfit(classifier):
        raise StoreError(f"{path} does not fit {DESCRIPTION} or itself: {fault}; copy the folder again.")
    return classifier


def _misfit(classifier: Classifier) -> str | None:
    """What is wrong in shape, type or value; None where all fits."""
    n_rows, n_neurons = len(classifier.labels) or 1, classifier.indices.size
    expected = {
        "weight": ((n_rows, n_neurons), "f"),
        "bias": ((n_rows,), "f"),
        "layers": ((n_neurons,), "iu"),
        "indices": ((n_neurons,), "iu"),
    }
    for name, (shape, kinds) in expected.items():
        tensor = getattr(classifier, name)
        if tensor.shape != shape or tensor.dtype.kind not in kinds:
            return f"{name} is of shape {tensor.shape} and type {tensor.dtype}, expected {shape}"
        if not np.isfinite(tensor).all():
            return f"{name} holds values that are not finite"
    if not n_neurons or min(classifier.layers.min(), classifier.indices.min()) < 0:
        return "it looks at no neuron, or at one of a negative number"
    return None
