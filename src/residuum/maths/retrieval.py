"""Nearest-neighbour retrieval: where a sentence's own partner stands among all candidates, in both directions.

Scores come in blocks and only counts are kept, so the memory does not grow with the square of the sentences.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import digamma
from torch import Tensor

from residuum.errors import DataError

TIE = 1e-6  # scores this close are equal: float32 products of unit vectors differ by less for equal sentences


@dataclass(frozen=True, eq=False)
class Ranks:
    """For each query, how many candidates score higher than its own partner, and how many others equal it."""

    better: Int[np.ndarray, " query"]
    equal: Int[np.ndarray, " query"]

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
    source: Float[Tensor, "pair neuron"], target: Float[Tensor, "pair neuron"], *, block: tuple[int, int] = (1024, 8192)
) -> tuple[Ranks, Ranks]:
    """Retrieval by cosine: the ranks of row i of `target` for row i of `source`, and the other way round.

    `block` is how many sources × targets are scored at once; memory is that of one block beside the arrays. A vector
    of zeros has cosine 0 with all.
    """
    source, target = unit_rows(source), unit_rows(target)
    counter = RankCounter(torch.einsum("pn,pn->p", source, target))  # a product of all would be as large as one of them
    for rows in _ranges(len(source), block[0]):
        for columns in _ranges(len(target), block[1]):
            counter.update(rows, columns, source[rows] @ target[columns].T)
    return counter.ranks()


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

    def update(
        self, rows: Int[Tensor, " row"], columns: Int[Tensor, " column"], scores: Float[Tensor, "row column"]
    ) -> None:
        """Count a block: the scores of sources `rows` with targets `columns`. The block is written into."""
        self._put_own(rows, columns, scores)
        larger = torch.empty_like(scores)  # sums of float 0 and 1 are exact here, and ten times as fast as of bool
        for axis, mine in ((1, self.own[rows, None]), (0, self.own[columns])):
            places = rows if axis == 1 else columns
            for counts, limit in ((self.above, mine + TIE), (self.not_below, mine - TIE)):
                counts[1 - axis][places] += torch.gt(scores, limit, out=larger).sum(dim=axis).long()

    def ranks(self) -> tuple[Ranks, Ranks]:
        """Source → target and target → source."""
        forward, backward = (
            Ranks(above.numpy(), (not_below - above - 1).numpy())
            for above, not_below in zip(self.above, self.not_below, strict=True)
        )
        return forward, backward

    def _put_own(self, rows: Tensor, columns: Tensor, scores: Tensor) -> None:
        """A block's own pairs get exactly their own score: summed in another order it differs in the last digits."""
        place = torch.full((len(self.own),), -1)
        place[columns] = torch.arange(len(columns))
        found = place[rows]
        here = found >= 0
        scores[here.nonzero()[:, 0], found[here]] = self.own[rows[here]]


def unit_rows(vectors: Float[Tensor, "row neuron"]) -> Float[Tensor, "row neuron"]:
    """Every row divided by its length; zeros stay zeros."""
    tiny = torch.finfo(vectors.dtype).tiny
    # By the largest entry first: squares of 1e20 or 1e-20 are no float32 numbers.
    scaled = vectors / vectors.abs().amax(dim=1, keepdim=True).clamp(min=tiny)
    return scaled / scaled.norm(dim=1, keepdim=True).clamp(min=tiny)


def _ranges(total: int, size: int) -> Iterator[Tensor]:
    for start in range(0, total, size):
        yield torch.arange(start, min(start + size, total))
