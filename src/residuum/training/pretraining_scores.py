"""What a pretraining is measured by on the way: perplexity on held-out text, retrieval of translations by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from residuum.training.pretraining_objectives import (
    BUILDERS,
    IGNORED,
    Ids,
    Pieces,
    mean_pooled,
    padded_batch,
    prediction_loss,
)
from residuum.training.pretraining_settings import Objective

BATCH = 64


def perplexity(
    network: nn.Module, sentences: Sequence[tuple[Ids, ...]], objective: Objective, pieces: Pieces, seed: int
) -> float:
    """exp of the mean cross-entropy over guessed pieces; which ones are masked is drawn from the seed."""
    total, count = 0.0, 0
    for number, items in enumerate(_in_batches(sentences)):
        batch = BUILDERS[objective.kind](items, objective, pieces, np.random.default_rng((seed, number)))
        batch = {name: value.to(_device(network)) for name, value in batch.items()}
        guessed = int((batch["wanted"] != IGNORED).sum())
        total += float(prediction_loss(network, batch)) * guessed
        count += guessed
    return math.exp(total / count)


def retrieval_by_layer(
    network: nn.Module, pairs: Sequence[tuple[Ids, Ids]], length: int, pieces: Pieces
) -> list[tuple[float, float]]:
    """For each layer, how often a first sentence's nearest second one (by cosine) is its own, and the other way."""
    first, second = (layer_means(network, [(pair[side],) for pair in pairs], length, pieces) for side in (0, 1))
    own = torch.arange(len(pairs))
    accuracies = []
    for a, b in zip(first, second, strict=True):
        cosine = functional.normalize(a, dim=-1) @ functional.normalize(b, dim=-1).T
        forth, back = cosine.argmax(1) == own, cosine.argmax(0) == own
        accuracies.append((forth.double().mean().item(), back.double().mean().item()))
    return accuracies


def layer_means(network: nn.Module, sentences: Sequence[tuple[Ids, ...]], length: int, pieces: Pieces) -> Tensor:
    """Mean-pooled states of all layers: layer × sentence × hidden."""
    order = sorted(range(len(sentences)), key=lambda place: len(sentences[place][0]))
    body: Any = network.base_model
    parts = []
    for items in _in_batches([sentences[place] for place in order]):
        batch = {name: value.to(_device(network)) for name, value in padded_batch(items, length, pieces).items()}
        hidden = body(input_ids=batch["ids"], attention_mask=batch["mask"], output_hidden_states=True).hidden_states
        parts.append(torch.stack([mean_pooled(states, batch["mask"]) for states in hidden]).cpu())
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(parts, 1)[:, back]


def evaluation(
    network: nn.Module,
    held_out: Mapping[str, Sequence[tuple[Ids, ...]]],
    retrieval: Mapping[str, Sequence[tuple[Ids, Ids]]],
    objectives: Sequence[Objective],
    pieces: Pieces,
    seed: int,
) -> Callable[[int], dict[str, float]]:
    """The scores at a step: perplexity per language, retrieval per set and layer, and the mean of the best layers."""
    predicting = next((objective for objective in objectives if objective.kind in ("mlm", "clm")), None)
    length = max(objective.length for objective in objectives)

    def scores(step: int) -> dict[str, float]:
        found: dict[str, float] = {}
        if predicting is not None:
            for language, sentences in held_out.items():
                found[f"perplexity {language}"] = perplexity(network, sentences, predicting, pieces, seed)
        best = []
        for name, pairs in retrieval.items():
            by_layer = retrieval_by_layer(network, pairs, length, pieces)
            for layer, (forth, back) in enumerate(by_layer):
                found[f"retrieval {name} layer {layer}"] = forth
                found[f"retrieval {name} back layer {layer}"] = back
            best.append(max(forth for forth, _ in by_layer))
        if best:
            found["retrieval"] = float(np.mean(best))
        return found

    return scores


def _in_batches(items: Sequence[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), BATCH):
        yield list(items[start : start + BATCH])


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device
