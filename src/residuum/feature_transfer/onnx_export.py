"""Network and classifier as one ONNX graph: token ids in, the scores of every token out."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.errors import ModelError, SettingError
from residuum.feature_transfer.predicting import Predictor, Unit
from residuum.files import whole_file
from residuum.models import probe_batch

TOLERANCE = 1e-4
FILE = "model.onnx"


def write_onnx(predictor: Predictor, folder: Path) -> float:
    """Write `model.onnx` and return its largest difference from the network in torch, which is at most 1e-4.

    The graph gives batch × token × class. The scores of a word are those of its last sub-word (or whichever token
    stands for it); the scores of a mean over tokens are the mean of their scores.
    """
    check_onnx(predictor.unit)
    graph = _TokenScores(predictor).eval()
    inputs = _inputs(predictor)
    with whole_file(folder / FILE) as path, torch.no_grad():
        _export(graph, inputs, path)
        difference = _difference(graph, _inputs(predictor, n_texts=3), path)
        if difference > TOLERANCE:
            raise ModelError(
                f"The ONNX graph differs from the network by {difference:.1e}; expected {TOLERANCE} at most."
            )
    return difference


def check_onnx(unit: Unit) -> None:
    """Say before anything is computed that a graph cannot be written."""
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise SettingError(f"{' and '.join(missing)} cannot be imported; ONNX needs pip install 'residuum[onnx]'.")
    if unit.pooling == "max" or unit.pairs:
        raise SettingError("ONNX scores single texts token by token; it cannot be written for pairs or pooling max.")


class _TokenScores(nn.Module):
    """W x + b of every token, x being the chosen neurons."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.network = predictor.model.module
        self.chosen = predictor.classifier.by_layer()
        self.linear = nn.Linear(predictor.classifier.n_neurons, len(predictor.classifier.bias))
        self.linear.weight = nn.Parameter(torch.from_numpy(predictor.classifier.weight))
        self.linear.bias = nn.Parameter(torch.from_numpy(predictor.classifier.bias))
        self.reader = predictor.model.reader
        self.types = "token_type_ids" in predictor.model.tokenizer.model_input_names

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Batch × token × class."""
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self.types:
            batch["token_type_ids"] = torch.zeros_like(input_ids)
        hidden = self.reader(self.network, batch, list(self.chosen), False).hidden
        parts = [
            states.index_select(-1, torch.from_numpy(indices))
            for states, indices in zip(hidden, self.chosen.values(), strict=True)
        ]
        return self.linear(torch.cat(parts, dim=-1))


def _inputs(predictor: Predictor, n_texts: int = 2) -> tuple[Tensor, Tensor]:
    """Some tokens, the later texts shorter, so that the mask matters."""
    one = probe_batch(predictor.model.module, predictor.model.tokenizer, size=6 + n_texts)["input_ids"].cpu()
    ids = one.repeat(n_texts, 1)
    lengths = torch.arange(ids.shape[1], ids.shape[1] - n_texts, -1)
    mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).to(ids.dtype)
    return ids, mask


def _export(graph: nn.Module, inputs: tuple[Tensor, Tensor], path: Path) -> None:
    import warnings

    axes = {0: "text", 1: "token"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own notices
        torch.onnx.export(
            graph,
            inputs,
            path,
            input_names=["input_ids", "attention_mask"],
            output_names=["scores"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes, "scores": axes},
            dynamo=False,
        )


def _difference(graph: nn.Module, inputs: tuple[Tensor, Tensor], path: Path) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    named = dict(zip(("input_ids", "attention_mask"), (part.numpy() for part in inputs), strict=True))
    found: Any = session.run(None, named)[0]
    shown = inputs[1].bool().numpy()
    return float(np.abs(found - graph(*inputs).numpy())[shown].max())
