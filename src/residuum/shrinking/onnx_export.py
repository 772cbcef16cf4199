"""Network and classifier as one ONNX graph: token ids in, the scores of every token or word out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residuum.models.onnx_graphs import NAMES, write_graph
from residuum.shrinking.predicting import Predictor


def write_onnx(predictor: Predictor, folder: Path) -> float:
    """Write `model.onnx` and return its largest difference from the network in torch, which is at most 1e-4.

    Its inputs are what the tokenizer gives (`token_type_ids` too where that has them, so pairs are read as pairs). It
    gives batch × token × class. The scores of a word or sentence are those of the token that stands for it; the
    scores of a mean over tokens are the mean of their scores. Of words that are the largest values of their
    sub-words, which no scores of tokens can tell, `word_ids` are one input more (the word in which a token has
    characters, −1 for none), and the second axis is that of words.
    """
    model = predictor.model
    graph = _WordScores(predictor) if _of_words(predictor) else _TokenScores(predictor)
    return write_graph(graph, model.module, model.tokenizer, folder, "scores", graph.names)


def _of_words(predictor: Predictor) -> bool:
    return predictor.unit.unit == "word" and predictor.unit.pooling == "max"


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
        typed = "token_type_ids" in predictor.model.tokenizer.model_input_names
        self.names: tuple[str, ...] = (*NAMES, "token_type_ids") if typed else NAMES

    def forward(self, *inputs: Tensor) -> Tensor:
        """Batch × token × class."""
        return self.linear(self.neurons(*inputs))

    def neurons(self, *inputs: Tensor) -> Tensor:
        """Batch × token × chosen neuron."""
        batch = dict(zip(self.names, inputs, strict=False))
        hidden = self.reader(self.network, batch, list(self.chosen), False).hidden
        parts = [
            states.index_select(-1, torch.from_numpy(indices))
            for states, indices in zip(hidden, self.chosen.values(), strict=True)
        ]
        return torch.cat(parts, dim=-1)


class _WordScores(_TokenScores):
    """W x + b of every word, x being the largest value of each chosen neuron over the word's tokens."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        self.names = (*self.names, "word_ids")

    def forward(self, *inputs: Tensor) -> Tensor:
        """Batch × word × class; as many places as tokens, the bias alone where there is no word."""
        *known, words = inputs
        states = self.neurons(*known)
        # A text with tokens of no word has fewer words than tokens: its last place is free to take those tokens.
        places = torch.where(words < 0, words.shape[1] - 1, words)[..., None].expand_as(states)
        lowest = torch.full_like(states, torch.finfo(states.dtype).min)
        largest: Any = _ScatterMax.apply(lowest, places, states)
        return self.linear(torch.where(largest > lowest, largest, torch.zeros_like(states)))


class _ScatterMax(torch.autograd.Function):
    """`scatter_reduce` with the largest value as one node; the exporter's own has shapes that ONNX Runtime warns of."""

    @staticmethod
    def forward(ctx: Any, base: Tensor, places: Tensor, states: Tensor) -> Tensor:
        """`base` with the largest of itself and of the states that go to each place."""
        return base.scatter_reduce(1, places, states, "amax")

    @staticmethod
    def symbolic(g: Any, base: Any, places: Any, states: Any) -> Any:
        """The same in ONNX."""
        return g.op("ScatterElements", base, places, states, axis_i=1, reduction_s="max").setType(base.type())
