"""Network and classifier in forms that other programs run: a model of transformers with a head, an ONNX graph."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residuum.errors import ModelError
from residuum.models.loading import probe_batch
from residuum.models.onnx_graphs import NAMES, write_graph
from residuum.shrinking.classifier import Classifier, Unit
from residuum.shrinking.predicting import Predictor

SMALL = 1e-4
"""The scale at which tanh passes its input on: tanh(SMALL · x) = SMALL · x to within 1e-5 of it, for |x| up to 50."""
LARGE = 100.0
"""What is added before a ReLU, so that it passes everything on."""


@torch.inference_mode()
def with_head(network: Any, classifier: Classifier, unit: Unit) -> Any:
    """The network as a model of transformers whose own head gives W x + b of its last hidden state.

    Heads with a hidden layer (a pooler with tanh, a dense layer with ReLU) are set so that it passes its input on.
    Whether the head gives the same scores is checked; what has another kind of head is refused.
    """
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    n_rows, labels = len(classifier.bias), classifier.labels
    config = copy.deepcopy(network.config)
    config.num_labels = n_rows
    if labels:
        config.id2label, config.label2id = dict(enumerate(labels)), {label: i for i, label in enumerate(labels)}
    config.problem_type = "single_label_classification" if labels else "regression"
    auto = AutoModelForTokenClassification if unit.unit == "word" else AutoModelForSequenceClassification
    try:
        with torch.random.fork_rng(devices=[]):
            model: Any = auto.from_config(config).eval().to(network.device)
    except ValueError as error:
        raise ModelError(f"transformers has no such head for {type(network).__name__} ({error}).") from error
    model.base_model.load_state_dict(network.state_dict(), strict=False)
    weight = torch.zeros(n_rows, config.hidden_size)
    weight[:, torch.from_numpy(classifier.indices)] = torch.from_numpy(classifier.weight)
    _set_head(model, weight, torch.from_numpy(classifier.bias))
    batch = probe_batch(network)
    states = network(**batch).last_hidden_state.cpu()
    expected = (states if unit.unit == "word" else states[:, 0]) @ weight.T + torch.from_numpy(classifier.bias)
    if not torch.allclose(model(**batch).logits.cpu(), expected, rtol=1e-3, atol=1e-3):
        raise ModelError(
            f"{type(model).__name__} cannot hold the classifier: its head is not linear. Use --save-as residuum."
        )
    return model


def _set_head(model: Any, weight: Tensor, bias: Tensor) -> None:
    """Write W and b into the head; layers before its last one pass their input on."""
    last: Any = getattr(model, "classifier", None) or getattr(model, "score", None)
    hidden, pooler, shift = None, getattr(model.base_model, "pooler", None), 0.0
    if hasattr(last, "out_proj"):
        last, hidden = last.out_proj, getattr(last, "dense", None)
    elif hasattr(model, "pre_classifier"):
        hidden, shift = model.pre_classifier, LARGE
    elif pooler is not None and type(model).__name__.endswith("ForSequenceClassification"):
        hidden = pooler.dense
    if not isinstance(last, nn.Linear) or last.bias is None:
        raise ModelError(f"The head of {type(model).__name__} is not a linear map with a bias; use --save-as residuum.")
    scale = 1.0 if hidden is None or shift else SMALL
    if hidden is not None:
        hidden.weight.copy_(scale * torch.eye(weight.shape[1]))
        hidden.bias.fill_(shift)
    last.weight.copy_(weight / scale)
    last.bias.copy_(bias - shift * weight.sum(dim=1))


def write_onnx(predictor: Predictor, folder: Path) -> float:
    """Write `model.onnx` and return its largest difference from the network in torch, which is at most 1e-4.

    Its inputs are what the tokenizer gives (`token_type_ids` too where that has them, so pairs are read as pairs). It
    gives batch × token × class. The scores of a word or sentence are those of the token that stands for it; the
    scores of a mean over tokens are the mean of their scores. Of words that are the largest values of their
    sub-words, which no scores of tokens can tell, `word_ids` are one input more (the word in which a token has
    characters, −1 for none), and the second axis is that of words.
    """
    model = predictor.model
    of_words = predictor.unit.unit == "word" and predictor.unit.pooling == "max"
    graph = _WordScores(predictor) if of_words else _TokenScores(predictor)
    return write_graph(graph, model.module, model.tokenizer, folder, "scores", graph.names)


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
