"""Batches and losses of the objectives: masked and causal language models, translation LM, translation ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from residuum.training import ShuffledBatches, StepLosses
from residuum.training.pretraining_networks import states_of_layer, vocabulary_head
from residuum.training.pretraining_settings import Objective
from residuum.training.pretraining_texts import N_SPECIAL

IGNORED = -100
Ids = np.ndarray  # the pieces of a sentence without special tokens


@dataclass(frozen=True)
class Pieces:
    """The ids that batches are built with."""

    begin: int
    end: int
    padding: int
    mask: int
    size: int  # of the vocabulary


@dataclass(frozen=True, eq=False)
class Source:
    """Tokenized sentences (or pairs of them) of one language or text, and how often they are drawn."""

    items: Sequence[tuple[Ids, ...]]
    chance: float


class MixedBatches:
    """Batches of several objectives: which one, and from which source, is drawn by (seed, position).

    Each source goes through its own sentences in an order shuffled by epochs, batches of like lengths together.
    """

    per_epoch = None

    def __init__(
        self,
        objectives: Sequence[Objective],
        texts: Sequence[Source],
        pairs: Sequence[Source],
        pieces: Pieces,
        seed: int,
    ) -> None:
        self.objectives, self.pieces, self.seed = objectives, pieces, seed
        self.chances = _normalised([objective.share for objective in objectives])
        self.sources: list[list[ShuffledBatches[tuple[Ids, ...]]]] = []
        self.source_chances: list[np.ndarray] = []
        for objective in objectives:
            chosen = pairs if objective.kind in ("tlm", "ranking") else texts
            self.source_chances.append(_normalised([source.chance for source in chosen]))
            self.sources.append([_batches(source, objective, seed) for source in chosen])

    def __call__(self, position: int) -> dict[str, Any]:
        """The batch at a position, with the number of its objective."""
        generator = np.random.default_rng((self.seed, 1, position))
        number = int(generator.choice(len(self.objectives), p=self.chances))
        source = int(generator.choice(len(self.sources[number]), p=self.source_chances[number]))
        items = self.sources[number][source](position)
        objective = self.objectives[number]
        return {"objective": number, **BUILDERS[objective.kind](items, objective, self.pieces, generator)}


def losses_of(network: nn.Module, objectives: Sequence[Objective], batch: Mapping[str, Any]) -> StepLosses:
    """The loss of a batch by its own objective."""
    objective = objectives[batch["objective"]]
    if objective.kind == "ranking":
        loss, tokens = _ranking_loss(network, objective, batch), _count(batch["first"]) + _count(batch["second"])
        name = f"ranking {objective.layer}"
    else:
        loss, tokens, name = prediction_loss(network, batch), _count(batch), objective.kind
    return StepLosses(loss, {name: loss.detach()}, tokens=tokens)


def prediction_loss(network: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Mean cross-entropy of the wanted pieces; only their states meet the vocabulary."""
    body: Any = network.base_model
    states = body(input_ids=batch["ids"], attention_mask=batch["mask"]).last_hidden_state
    wanted = batch["wanted"] != IGNORED
    logits = vocabulary_head(network)(states[wanted])
    return functional.cross_entropy(logits, batch["wanted"][wanted])


def mean_pooled(states: Tensor, mask: Tensor) -> Tensor:
    """The mean state of the tokens that are no padding: batch × token × hidden → batch × hidden."""
    weights = mask.to(states.dtype)[..., None]
    return (states * weights).sum(1) / weights.sum(1)


def info_nce(first: Tensor, second: Tensor, temperature: float, same: Tensor | None = None) -> Tensor:
    """Symmetric InfoNCE of cosines c: mean over i of −log softmax_j(c_ij / t)_i, both ways (van den Oord et al. 2018).

    `first` and `second` are pair × hidden. `same` (pair × pair) marks pairs that must not count as negatives.
    """
    cosine = functional.normalize(first, dim=-1) @ functional.normalize(second, dim=-1).T / temperature
    if same is not None:
        off_diagonal = ~torch.eye(len(first), dtype=torch.bool, device=first.device)
        cosine = cosine.masked_fill(same & off_diagonal, -torch.inf)
    target = torch.arange(len(first), device=first.device)
    return (functional.cross_entropy(cosine, target) + functional.cross_entropy(cosine.T, target)) / 2


def masked_batch(items: Sequence[tuple[Ids, ...]], objective: Objective, pieces: Pieces, generator: Any) -> dict:
    """A batch with some of its pieces to be guessed: 80 % of them masked, 10 % random, 10 % as they are."""
    batch = padded_batch(items, objective.length, pieces)
    ids = batch["ids"].numpy()
    ordinary = (ids >= N_SPECIAL) & (ids != pieces.mask)
    chosen = ordinary & (generator.random(ids.shape) < objective.mask)
    if not chosen.any():
        chosen[tuple(np.argwhere(ordinary)[0])] = True
    wanted = np.where(chosen, ids, IGNORED)
    fate = generator.random(ids.shape)
    ids[chosen & (fate < 0.8)] = pieces.mask
    replaced = chosen & (fate >= 0.8) & (fate < 0.9)
    ids[replaced] = generator.integers(N_SPECIAL, pieces.size - 1, replaced.sum())
    return {**batch, "wanted": torch.from_numpy(wanted)}


def _normalised(chances: Sequence[float]) -> np.ndarray:
    return np.array(chances) / np.sum(chances)


def padded_batch(items: Sequence[tuple[Ids, ...]], length: int, pieces: Pieces) -> dict[str, Tensor]:
    """Ids and mask (batch × token) of sentences, or of sentences side by side, with their special tokens."""
    return _padded([_joined(item, length, pieces) for item in items], pieces)


def _batches(source: Source, objective: Objective, seed: int) -> ShuffledBatches[tuple[Ids, ...]]:
    lengths = [sum(len(side) for side in item) for item in source.items]
    return ShuffledBatches(source.items, min(objective.batch, len(source.items)), seed=seed, lengths=lengths)


def _causal_batch(items: Sequence[tuple[Ids, ...]], objective: Objective, pieces: Pieces, generator: Any) -> dict:
    """A batch in which every piece is to be guessed from those before it."""
    batch = padded_batch(items, objective.length, pieces)
    following = batch["ids"][:, 1:].masked_fill(batch["mask"][:, 1:] == 0, IGNORED)
    return {**batch, "wanted": functional.pad(following, (0, 1), value=IGNORED)}


def _ranking_batch(items: Sequence[tuple[Ids, ...]], objective: Objective, pieces: Pieces, generator: Any) -> dict:
    """Both sides of some pairs; which of them say the same, so that no translation counts as a wrong one."""
    sides = [[_joined((item[side],), objective.length, pieces) for item in items] for side in (0, 1)]
    same = torch.zeros(len(items), len(items), dtype=torch.bool)
    for side in sides:
        keys = [line.tobytes() for line in side]
        numbers = torch.tensor([keys.index(key) for key in keys])
        same |= numbers[:, None] == numbers[None]
    return {"first": _padded(sides[0], pieces), "second": _padded(sides[1], pieces), "same": same}


def _ranking_loss(network: nn.Module, objective: Objective, batch: Mapping[str, Any]) -> Tensor:
    assert objective.layer is not None
    first, second = (
        mean_pooled(states_of_layer(network, side["ids"], side["mask"], objective.layer), side["mask"])
        for side in (batch["first"], batch["second"])
    )
    return info_nce(first, second, objective.temperature, batch["same"])


def _joined(item: tuple[Ids, ...], length: int, pieces: Pieces) -> Ids:
    """`<s> a </s>` or `<s> a </s> </s> b </s>`, each sentence cut so that all fits."""
    room = (length - 2) // len(item) - (2 if len(item) > 1 else 0)
    parts: list[Any] = [[pieces.begin]]
    for number, side in enumerate(item):
        parts += [[pieces.end]] * (number > 0) + [side[: max(room, 1)], [pieces.end]]
    return np.concatenate(parts).astype(np.int64)


def _padded(lines: Sequence[Ids], pieces: Pieces) -> dict[str, Tensor]:
    width = max(len(line) for line in lines)
    ids = np.full((len(lines), width), pieces.padding, np.int64)
    for row, line in zip(ids, lines, strict=True):
        row[: len(line)] = line
    tensor = torch.from_numpy(ids)
    return {"ids": tensor, "mask": (tensor != pieces.padding).long()}


def _count(batch: Mapping[str, Tensor]) -> int:
    return int(batch["mask"].sum())


BUILDERS = {"mlm": masked_batch, "tlm": masked_batch, "clm": _causal_batch, "ranking": _ranking_batch}
