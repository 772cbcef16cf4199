"""BERTScore of all pairs of sentences at once: greedy matching of token states (Zhang et al. 2020), without idf.

    P = mean over tokens x of the one sentence of max over tokens y of the other of cos(x, y)
    R = the same with both exchanged,  F = 2PR / (P + R)

As in the authors' program, special tokens may be the best match of a token but do not count in the means.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from residuum.errors import DataError
from residuum.maths.retrieval import RankCounter, Ranks

BLOCK_TOKENS = 1024  # a block of similarities is this squared: it stays in the cache, and the product is fast

LayerPair = tuple[int, int]  # a layer of the source's model and one of the target's


@dataclass(frozen=True, eq=False)
class TokenStates:
    """Sentences as the unit-length states of their tokens, by layer.

    The tokens of sentence i are rows first[i] … first[i + 1] − 1; `counted` are those that are not special.
    """

    states: dict[int, Float[Tensor, "token _"]]
    first: Int[np.ndarray, " boundary"]
    counted: Bool[np.ndarray, " token"]

    def __post_init__(self) -> None:
        counts = np.add.reduceat(self.counted.astype(np.int64), self.first[:-1]) if len(self.first) > 1 else []
        empty = np.flatnonzero((np.diff(self.first) == 0) | (np.asarray(counts) == 0))
        if len(empty):
            raise DataError(f"Sentence {empty[0]} has no token that counts; expected at least one in each.")

    def __len__(self) -> int:
        return len(self.first) - 1

    @cached_property
    def weights(self) -> Float[Tensor, " token"]:
        """The share of each token in its sentence's mean."""
        lengths = np.diff(self.first)
        counts = np.add.reduceat(self.counted.astype(np.int64), self.first[:-1])
        return torch.from_numpy((self.counted / np.repeat(counts, lengths)).astype(np.float32))


def bertscore(source: TokenStates, target: TokenStates, layers: LayerPair) -> Float[Tensor, "source target"]:
    """F of every source with every target, in one layer of each; −1 … 1, 0 where nothing matches."""
    scores = torch.empty(len(source), len(target))
    for rows, block in bertscore_rows(source, target, [layers]):
        scores[rows] = block[0]
    return scores


def bertscore_ranks(
    source: TokenStates, target: TokenStates, choices: Sequence[Sequence[LayerPair]]
) -> list[tuple[Ranks, Ranks]]:
    """Retrieval by BERTScore averaged over the layers of each choice: source → target and target → source.

    A layer that is in several choices is scored once. Sentence i of the one belongs to sentence i of the other.
    """
    pairs = list(dict.fromkeys(pair for choice in choices for pair in choice))
    members = [[pairs.index(pair) for pair in choice] for choice in choices]
    own = own_bertscores(source, target, pairs)
    counters = [RankCounter(own[chosen].mean(dim=0)) for chosen in members]
    columns = torch.arange(len(target))
    for rows, scores in bertscore_rows(source, target, pairs):
        for chosen, counter in zip(members, counters, strict=True):
            counter.update(rows, columns, scores[chosen].mean(dim=0))
    return [counter.ranks() for counter in counters]


def bertscore_rows(
    source: TokenStates, target: TokenStates, layers: Sequence[LayerPair]
) -> Iterator[tuple[Int[Tensor, " row"], Float[Tensor, "layer row target"]]]:
    """F of some sources with all targets, a block of sources at a time, of sentences of like length."""
    targets = _blocks(target)
    for block in _blocks(source):
        scores = torch.empty(len(layers), len(block.sentences), len(target))
        for index, (a, b) in enumerate(layers):
            states = source.states[a][block.flat]
            for other in targets:
                scores[index][:, other.sentences] = _block_scores(states, block, target.states[b][other.flat], other)
        yield block.sentences, scores


def own_bertscores(
    source: TokenStates, target: TokenStates, layers: Sequence[LayerPair]
) -> Float[Tensor, "layer pair"]:
    """F of sentence i of the one with sentence i of the other."""
    scores = torch.empty(len(layers), len(source))
    for i in range(len(source)):
        here, there = (slice(*tokens.first[i : i + 2].tolist()) for tokens in (source, target))
        for index, (a, b) in enumerate(layers):
            similarity = source.states[a][here] @ target.states[b][there].T
            best_of_target, best_of_source = similarity.amax(dim=0), similarity.amax(dim=1)
            scores[index, i] = f_score(
                (best_of_source * source.weights[here]).sum(), (best_of_target * target.weights[there]).sum()
            )
    return scores


def f_score(precision: Float[Tensor, "*shape"], recall: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The harmonic mean; 0 where either is not positive, since it would have a pole there."""
    positive = (precision > 0) & (recall > 0)
    return torch.where(positive, 2 * precision * recall / (precision + recall), 0.0)


@dataclass(frozen=True, eq=False)
class _Block:
    """Sentences of like length, filled up to the longest by repeating the first token, which changes no maximum."""

    sentences: Int[Tensor, " sentence"]
    tokens: Int[Tensor, "place sentence"]
    weights: Float[Tensor, "place sentence"]

    @property
    def flat(self) -> Int[Tensor, " token"]:
        return self.tokens.reshape(-1)


def _blocks(tokens: TokenStates) -> list[_Block]:
    lengths = np.diff(tokens.first)
    order = np.argsort(lengths, kind="stable")
    blocks, start = [], 0
    while start < len(order):
        sizes = lengths[order[start:]] * np.arange(1, len(order) - start + 1)
        stop = start + max(1, int(np.searchsorted(sizes, BLOCK_TOKENS, side="right")))
        blocks.append(_padded(tokens, order[start:stop], lengths))
        start = stop
    return blocks


def _padded(tokens: TokenStates, sentences: np.ndarray, lengths: np.ndarray) -> _Block:
    places = np.arange(lengths[sentences].max())[:, None]
    inside = places < lengths[sentences]
    rows = torch.from_numpy(tokens.first[sentences] + np.where(inside, places, 0))
    weights = tokens.weights[rows] * torch.from_numpy(inside)
    return _Block(torch.from_numpy(sentences), rows, weights)


def _block_scores(a: Tensor, block_a: _Block, b: Tensor, block_b: _Block) -> Float[Tensor, "row column"]:
    """Places come before sentences on both sides, so that both maxima run along memory."""
    similarity = (a @ b.T).view(*block_a.tokens.shape, *block_b.tokens.shape)
    of_source = torch.einsum("pij,pi->ij", similarity.amax(dim=2), block_a.weights)
    of_target = torch.einsum("iqj,qj->ij", similarity.amax(dim=0), block_b.weights)
    return f_score(of_source, of_target)
