"""The folder that is used: a plain model, its tokenizer, and a classifier on some of its neurons."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from residuum.errors import StoreError
from residuum.models.loading import first_layers, load_model
from residuum.models.surgery import save_whole
from residuum.shrinking.classifiers import Classifier
from residuum.shrinking.predicting import Predictor, Unit
from residuum.storage.files import read_json, write_json
from residuum.storage.schemas import conforming
from residuum.storage.tensors import read_tensors, write_tensors

VERSION = 1
DESCRIPTION, TENSORS = "classifier.json", "classifier.safetensors"


def write_product(folder: Path, network: Any, tokenizer: Any, classifier: Classifier, unit: Unit, task: str) -> None:
    """Write model, tokenizer and classifier; the model is read back and compared before it is kept."""
    save_whole(network, tokenizer, folder)
    parts = ("weight", "bias", "layers", "indices")
    write_tensors(folder / TENSORS, {name: getattr(classifier, name) for name in parts})
    write_json(
        folder / DESCRIPTION,
        {
            "version": VERSION,
            "task": task,
            "labels": list(classifier.labels),
            "unit": unit.unit,
            "pooling": unit.pooling,
            "position": unit.position,
            "pairs": unit.pairs,
            "layer": classifier.top_layer,
            "neurons": classifier.n_neurons,
        },
    )


def load_product(folder: str | Path, *, device: str = "auto") -> Predictor:
    """Read what `write_product` wrote; nothing else is needed, not even the model that it came from."""
    folder = Path(folder)
    classifier, unit = read_classifier(folder)
    model = load_model(folder, device=device)
    if classifier.top_layer > model.n_layers or classifier.indices.max() >= min(model.widths):
        raise StoreError(f"The classifier and the model in {folder} do not belong together; copy the folder again.")
    return Predictor(first_layers(model, classifier.top_layer), classifier, unit)


def read_classifier(folder: Path) -> tuple[Classifier, Unit]:
    """The classifier of a folder and what it labels; both are checked before anything is built on them."""
    description = _description(folder)
    unit = Unit(description.unit, description.pooling, description.position, description.pairs)
    return _classifier(folder, tuple(description.labels)), unit


@dataclass(frozen=True)
class _Description:
    """What `classifier.json` holds."""

    version: int
    task: str
    labels: list[str]
    unit: Literal["word", "sentence"]
    pooling: Literal["last", "first", "mean", "max"]
    position: Literal["auto", "cls", "last", "mean"]
    pairs: bool
    layer: int
    neurons: int


def _description(folder: Path) -> _Description:
    path = folder / DESCRIPTION
    if not path.exists():
        raise StoreError(f"{folder} holds no {DESCRIPTION}; expected a folder that `transfer` wrote.")
    raw = read_json(path)
    if (version := raw.get("version") if isinstance(raw, dict) else None) != VERSION:
        found = f"{path} has format version {str(version)[:20]}"
        raise StoreError(f"{found}; this residuum reads version {VERSION}. Run `transfer` again.")
    return conforming(raw, _Description, path, StoreError, "Run `transfer` again.")


def _classifier(folder: Path, labels: tuple[str, ...]) -> Classifier:
    path = folder / TENSORS
    try:
        classifier = Classifier(**read_tensors(path, remedy="Copy the folder again."), labels=labels)
    except TypeError as error:
        raise StoreError(f"{path} holds other tensors than a classifier ({error}); copy the folder again.") from None
    if fault := _misfit(classifier):
        raise StoreError(f"{path} does not fit {DESCRIPTION} or itself: {fault}; copy the folder again.")
    return classifier


def _misfit(classifier: Classifier) -> str | None:
    """What does not fit in shape, kind or number; None where all does."""
    n_rows, n_neurons = len(classifier.labels) or 1, classifier.indices.size
    expected = {
        "weight": ((n_rows, n_neurons), "f"),
        "bias": ((n_rows,), "f"),
        "layers": ((n_neurons,), "iu"),
        "indices": ((n_neurons,), "iu"),
    }
    for name, (shape, kinds) in expected.items():
        found = getattr(classifier, name)
        if found.shape != shape or found.dtype.kind not in kinds:
            return f"{name} is of shape {found.shape} and type {found.dtype}, expected {shape}"
        if not np.isfinite(found).all():
            return f"{name} holds values that are not finite"
    if not n_neurons or min(classifier.layers.min(), classifier.indices.min()) < 0:
        return "it looks at no neuron, or at one of a negative number"
    return None
