"""Nearest-neighbour retrieval: where a sentence's own partner stands among all candidates, in both directions.

Scores come in blocks and only counts are kept, so the memory does not grow with the square of the sentences.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import digamma
from torch import Tensor

from residuum.errors import DataError

TIE = 1e-6  # scores this close are equal: float32 products of unit vectors differ by less for equal sentences


@dataclass(frozen=True, eq=False)
class Ranks:
    """For each query, how many candidates score higher than its own partner, and how many others equal it."""

    better: Int[np.ndarray, " query"]
    equal: Int[np.ndarray, " query"]
    nearest: Int[np.ndarray, " query"] | None = None  # the number of the candidate with the highest score

    @property
    def f1(self) -> Float[np.ndarray, " query"]:
        """F1 of each partner as a class, 2 · hit / (1 + number of queries whose nearest candidate it is).

        Precision falls where one candidate is nearest to many queries (a hub); the mean is scikit-learn's weighted F1.
        """
        assert self.nearest is not None, "F1 needs the nearest candidates"
        answered = np.bincount(self.nearest, minlength=len(self.better))
        return 2 * self.hits / (1 + answered)

    @property
    def hits(self) -> Float[np.ndarray, " query"]:
        """1 where the partner is nearest, 0 where it is not; among e equals it is found once in e + 1 times.

        So equal sentences, or a model that maps all sentences to one point, earn no more than chance.
        """
        return np.where(self.better == 0, 1.0 / (self.equal + 1), 0.0)

    @property
    def reciprocals(self) -> Float[np.ndarray, " query"]:
        """1 / rank; the mean over the ranks b + 1 … b + e + 1 that a partner with b better and e equals can take.

        Σ_{k=b+1}^{b+e+1} 1/k = ψ(b + e + 2) − ψ(b + 1), with the digamma function ψ.
        """
        total = digamma(self.better + self.equal + 2.0) - digamma(self.better + 1.0)
        return total / (self.equal + 1)


def cosine_ranks(
    source: Float[Tensor, "pair neuron"],
    target: Float[Tensor, "pair neuron"],
    *,
    block: tuple[int, int] = (1024, 8192),
    neighbours: int | None = None,
) -> tuple[Ranks, Ranks]:
    """Retrieval by cosine: the ranks of row i of `target` for row i of `source`, and the other way round.

    With `neighbours` k the score is the margin of CSLS (Conneau et al. 2018), 2 cos(x, y) − r(x) − r(y), where r is the
    mean cosine of a sentence with its k nearest of the other side, so that hubs, near to everything, win less often.
    `block` is how many sources × targets are scored at once; memory is that of one block beside the arrays. A vector
    of zeros has cosine 0 with all.
    """
    source, target = unit_rows(source), unit_rows(target)
    own = torch.einsum("pn,pn->p", source, target)  # a product of all would be as large as one of them
    of_source = of_target = torch.zeros_like(own)
    if neighbours is not None:
        of_source = _neighbour_means(source, target, neighbours, block)
        of_target = _neighbour_means(target, source, neighbours, block)
        own = 2 * own - of_source - of_target
    counter = RankCounter(own)
    for rows in _ranges(len(source), block[0]):
        for columns in _ranges(len(target), block[1]):
            scores = source[rows] @ target[columns].T
            if neighbours is not None:
                scores = scores.mul_(2).sub_(of_source[rows, None]).sub_(of_target[columns])
            counter.update(rows, columns, scores)
    return counter.ranks()


def _neighbour_means(queries: Tensor, candidates: Tensor, k: int, block: tuple[int, int]) -> Float[Tensor, " query"]:
    """The mean cosine of each query with its k nearest candidates."""
    means, k = torch.empty(len(queries)), min(k, len(candidates))
    for rows in _ranges(len(queries), block[0]):
        best = torch.empty(len(rows), 0)
        for columns in _ranges(len(candidates), block[1]):
            together = torch.cat([best, queries[rows] @ candidates[columns].T], dim=1)
            best = together.topk(min(k, together.shape[1]), dim=1).values
        means[rows] = best.mean(dim=1)
    return means


class RankCounter:
    """Counts, from blocks of scores in any order, who scores higher than the own partner: `own[i]` is that of pair i.

    Every entry of the pair × pair table must be given once.
    """

    def __init__(self, own: Float[Tensor, " pair"]) -> None:
        if not torch.isfinite(own).all():
            pair = int((~torch.isfinite(own)).nonzero()[0])
            raise DataError(f"Pair {pair} has the score {own[pair].item()}; expected finite ones. Look at the model.")
        self.own = own
        self.above = [torch.zeros(len(own), dtype=torch.int64) for _ in range(2)]  # of sources, of targets
        self.not_below = [torch.zeros(len(own), dtype=torch.int64) for _ in range(2)]
        self.highest = [torch.full((len(own),), -torch.inf) for _ in range(2)]
        self.nearest = [torch.zeros(len(own), dtype=torch.int64) for _ in range(2)]

    def update(
        self, rows: Int[Tensor, " row"], columns: Int[Tensor, " column"], scores: Float[Tensor, "row column"]
    ) -> None:
        """Count a block: the scores of sources `rows` with targets `columns`. The block is written into."""
        # A block's own pairs get exactly their own score: summed in another order it differs in the last digits.
        place = torch.full((len(self.own),), -1)
        place[columns] = torch.arange(len(columns))
        column = place[rows]
        present = column >= 0
        scores[present.nonzero()[:, 0], column[present]] = self.own[rows[present]]
        larger = torch.empty_like(scores)  # sums of float 0 and 1 are exact here, and ten times as fast as of bool
        for axis, mine in ((1, self.own[rows, None]), (0, self.own[columns])):
            places, others = (rows, columns) if axis == 1 else (columns, rows)
            highest, where = scores.max(dim=axis)
            nearer = highest > self.highest[1 - axis][places]
            self.highest[1 - axis][places[nearer]] = highest[nearer]
            self.nearest[1 - axis][places[nearer]] = others[where[nearer]]
            for counts, limit in ((self.above, mine + TIE), (self.not_below, mine - TIE)):
                counts[1 - axis][places] += torch.gt(scores, limit, out=larger).sum(dim=axis).long()

    def ranks(self) -> tuple[Ranks, Ranks]:
        """Source → target and target → source."""
        forward, backward = (
            Ranks(above.numpy(), (not_below - above - 1).numpy(), nearest.numpy())
            for above, not_below, nearest in zip(self.above, self.not_below, self.nearest, strict=True)
        )
        return forward, backward


def unit_rows(vectors: Float[Tensor, "row neuron"]) -> Float[Tensor, "row neuron"]:
    """Every row divided by its length; zeros stay zeros."""
    tiny = torch.finfo(vectors.dtype).tiny
    # By the largest entry first: squares of 1e20 or 1e-20 are no float32 numbers.
    scaled = vectors / vectors.abs().amax(dim=1, keepdim=True).clamp(min=tiny)
    return scaled / scaled.norm(dim=1, keepdim=True).clamp(min=tiny)


def _ranges(total: int, size: int) -> Iterator[Tensor]:
    for start in range(0, total, size):
        yield torch.arange(start, min(start + size, total))


BLOCK_TOKENS = 1024  # a block of similarities is this squared: it stays in the cache, and the product is fast
STRIPE = 1 << 23  # similarities of a sentence longer than a block that are held at once: 32 MB

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
            states, others = source.states[a][here], target.states[b][there]
            of_source, of_target = [], torch.full((len(others),), -torch.inf)
            for stripe in states.split(max(1, STRIPE // len(others))):
                similarity = stripe @ others.T
                of_source.append(similarity.amax(dim=1))
                of_target = torch.maximum(of_target, similarity.amax(dim=0))
            scores[index, i] = f_score(
                (torch.cat(of_source) * source.weights[here]).sum(), (of_target * target.weights[there]).sum()
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
        sentences = order[start:stop]
        places = np.arange(lengths[sentences].max())[:, None]
        inside = places < lengths[sentences]
        rows = torch.from_numpy(tokens.first[sentences] + np.where(inside, places, 0))
        weights = tokens.weights[rows] * torch.from_numpy(inside)
        blocks.append(_Block(torch.from_numpy(sentences), rows, weights))
        start = stop
    return blocks


def _block_scores(a: Tensor, block_a: _Block, b: Tensor, block_b: _Block) -> Float[Tensor, "row column"]:
    """Places come before sentences on both sides, so that both maxima run along memory.

    A sentence longer than a block is a block of its own; its places are scored a stripe at a time.
    """
    if len(b) > len(a) and len(a) * len(b) > STRIPE:
        return _block_scores(b, block_b, a, block_a).T
    sentences, (places, others) = block_a.tokens.shape[1], block_b.tokens.shape
    of_source, best_of_target = torch.zeros(sentences, others), torch.full((sentences, places, others), -torch.inf)
    size = max(1, STRIPE // (sentences * len(b)))
    for stripe, weights in zip(a.split(size * sentences), block_a.weights.split(size), strict=True):
        similarity = (stripe @ b.T).view(-1, sentences, places, others)
        of_source += torch.einsum("pij,pi->ij", similarity.amax(dim=2), weights)
        best_of_target = torch.maximum(best_of_target, similarity.amax(dim=0))
    return f_score(of_source, torch.einsum("iqj,qj->ij", best_of_target, block_b.weights))
