"""Where the activations of some sentences stand until they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from residuum.activations.pooling import Segments, membership, pool, word_attention
from residuum.alignment import Alignment


class Room:
    """Memory that group after group is read into; it is asked of the system once, so it neither grows nor scatters."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, rows: int, width: int) -> Tensor:
        """Rows of zeros that last until the next taking of that name."""
        if name not in self._held or len(self._held[name]) < rows:
            self._held.pop(name, None)
            self._held[name] = torch.empty(rows, width)
        return self._held[name][:rows].zero_()


@dataclass(frozen=True, eq=False)
class Buffers:
    """The activations of a run of sentences, in corpus order, before they are written."""

    layers: list[int]
    hidden: list[Tensor]  # row × neuron, one per layer
    blocks: list[int]
    attention: list[Tensor]  # word pair × head, one per block
    first_row: np.ndarray  # of each sentence, and the end
    first_pair: np.ndarray

    @classmethod
    def empty(cls, rows: Sequence[int], widths: Mapping[int, int], heads: Mapping[int, int], room: Room) -> Buffers:
        """Buffers for sentences of so many rows each: the widths of the layers, the heads of the blocks."""
        pairs = np.square(rows) if heads else np.zeros(len(rows), dtype=np.int64)
        first_row, first_pair = (np.concatenate([[0], np.cumsum(n)]) for n in (rows, pairs))
        return cls(
            layers=list(widths),
            hidden=[room.take(f"layer {n}", int(first_row[-1]), width) for n, width in widths.items()],
            blocks=list(heads),
            attention=[room.take(f"block {n}", int(first_pair[-1]), n_heads) for n, n_heads in heads.items()],
            first_row=first_row,
            first_pair=first_pair,
        )

    def put_hidden(self, hidden: list[Tensor], segments: list[Segments], reduction: str) -> None:
        """Pool the tokens of a batch and put the rows where they belong."""
        length, device = hidden[0].shape[1], hidden[0].device
        tokens = torch.from_numpy(np.concatenate([s.tokens + b * length for b, s in enumerate(segments)]))
        lengths = torch.from_numpy(np.concatenate([s.lengths for s in segments]))
        rows = torch.from_numpy(np.concatenate([s.rows for s in segments]))
        weights = [s.weights for s in segments if s.weights is not None]
        for buffer, states in zip(self.hidden, hidden, strict=True):
            pooled = pool(states, tokens.to(device), lengths.to(device), reduction).cpu()
            if weights:
                scale = torch.from_numpy(np.concatenate(weights)).float()
                buffer.index_add_(0, rows, pooled * scale[:, None])
            else:
                buffer[rows] = pooled

    def put_attention(self, attention: list[Tensor], alignments: list[Alignment], items: list[tuple[int, int]]) -> None:
        """Turn a batch's attention into word-by-word attention and put it where it belongs."""
        ranges = [alignments[s].ranges[v, alignments[s].kept] for s, v in items]
        table = torch.from_numpy(membership(ranges, attention[0].shape[-1])).to(attention[0].device)
        for buffer, weights in zip(self.attention, attention, strict=True):
            words = word_attention(weights, table).permute(0, 2, 3, 1).cpu()  # batch × from × to × head
            for b, (s, v) in enumerate(items):
                n = len(ranges[b])
                rows = np.flatnonzero(alignments[s].choice[alignments[s].kept] == v)
                target = buffer[self.first_pair[s] : self.first_pair[s + 1]].view(n, n, -1)
                target[rows] = words[b, rows, :n]

    def tensors(self, first: int, stop: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """The tensors of a shard: sentences first … stop − 1 of these."""
        rows = slice(self.first_row[first], self.first_row[stop])
        pairs = slice(self.first_pair[first], self.first_pair[stop])
        return {
            **{f"layer-{layer}": t[rows].to(dtype) for layer, t in zip(self.layers, self.hidden, strict=True)},
            **{f"attention-{layer}": t[pairs].to(dtype) for layer, t in zip(self.blocks, self.attention, strict=True)},
        }
