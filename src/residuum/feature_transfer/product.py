"""The folder that is used: a plain model, its tokenizer, and a classifier on some of its neurons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from residuum.errors import StoreError
from residuum.feature_transfer.classifiers import Classifier
from residuum.feature_transfer.predicting import Predictor, Unit
from residuum.files import read_json, whole_file, write_json
from residuum.models import first_layers, load_model
from residuum.surgery import save_whole

VERSION = 1
DESCRIPTION, TENSORS = "classifier.json", "classifier.safetensors"


def write_product(folder: Path, network: Any, tokenizer: Any, classifier: Classifier, unit: Unit, task: str) -> None:
    """Write model, tokenizer and classifier; the model is read back and compared before it is kept."""
    from safetensors.numpy import save_file

    save_whole(network, tokenizer, folder)
    with whole_file(folder / TENSORS) as path:
        save_file(
            {
                "weight": classifier.weight,
                "bias": classifier.bias,
                "layers": classifier.layers,
                "indices": classifier.indices,
            },
            path,
        )
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
    description = _description(folder)
    classifier = _classifier(folder, description)
    model = load_model(folder, device=device)
    if classifier.top_layer > model.n_layers or classifier.indices.max() >= min(model.widths):
        raise StoreError(f"The classifier and the model in {folder} do not belong together; copy the folder again.")
    unit = Unit(*(description[key] for key in ("unit", "pooling", "position", "pairs")))
    return Predictor(first_layers(model, classifier.top_layer), classifier, unit)


def _description(folder: Path) -> dict[str, Any]:
    if not (folder / DESCRIPTION).exists():
        raise StoreError(f"{folder} holds no {DESCRIPTION}; expected a folder that `transfer` wrote.")
    description = read_json(folder / DESCRIPTION)
    if not isinstance(description, dict) or description.get("version") != VERSION:
        raise StoreError(f"{folder / DESCRIPTION} is not of format version {VERSION}; run `transfer` again.")
    return description


def _classifier(folder: Path, description: dict[str, Any]) -> Classifier:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        parts = load_file(folder / TENSORS)
        return Classifier(**parts, labels=tuple(description["labels"]))
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise StoreError(f"{folder / TENSORS} is damaged or missing ({error}); copy the folder again.") from None
