"""Network and classifier as one ONNX graph: token ids in, the scores of every token out."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from residuum.errors import SettingError
from residuum.feature_transfer.predicting import Predictor, Unit
from residuum.onnx_graphs import check_packages, write_graph


def write_onnx(predictor: Predictor, folder: Path) -> float:
    """Write `model.onnx` and return its largest difference from the network in torch, which is at most 1e-4.

    The graph gives batch × token × class. The scores of a word are those of its last sub-word (or whichever token
    stands for it); the scores of a mean over tokens are the mean of their scores.
    """
    check_onnx(predictor.unit)
    model = predictor.model
    return write_graph(_TokenScores(predictor), model.module, model.tokenizer, folder, "scores")


def check_onnx(unit: Unit) -> None:
    """Say before anything is computed that a graph cannot be written."""
    check_packages()
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
