"""From sub-words to words: representations and attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from residuum.models.alignment import Alignment, Window, WordPlaces


@dataclass(frozen=True)
class Segments:
    """Which tokens make up each row: `tokens` one after another, `lengths` of them per row."""

    rows: Int[np.ndarray, " row"]
    tokens: Int[np.ndarray, " piece"]
    lengths: Int[np.ndarray, " row"]
    weights: Float[np.ndarray, " row"] | None = None  # where a row is an average over windows


def word_segments(alignment: Alignment, window: int, pooling: str, first_row: int) -> Segments:
    """The rows of the words that are read in this window of a sentence."""
    read = alignment.words_read_in(window)
    start, stop = read.first, read.stop
    if pooling == "last":
        start = stop - 1
    elif pooling == "first":
        stop = start + 1
    lengths = stop - start
    return Segments(first_row + alignment.row[read.word], _ranges(start, lengths), lengths)


def sentence_segments(alignment: Alignment, window: int, position: str, cls_id: int | None, row: int) -> Segments:
    """The one row of a sentence: its [CLS], its last token, or the mean of its tokens; averaged over windows."""
    part = alignment.windows[window]
    if position == "last":  # the last window alone has read all
        tokens, weight = np.array([len(part.ids) - 1]), float(window == len(alignment.windows) - 1)
    elif position == "cls":
        tokens = np.array([part.ids.index(cls_id)] if cls_id in part.ids else [0])
        weight = 1 / len(alignment.windows)
    elif position == "all":
        tokens = np.arange(len(part.ids))
        weight = len(tokens) / max(sum(len(other.ids) for other in alignment.windows), 1)
    else:
        tokens, weight = part.content, len(part.content) / max(alignment.n_content, 1)
    return Segments(np.array([row]), tokens, np.array([len(tokens)]), np.array([weight]))


def pool(
    hidden: Float[Tensor, "batch token hidden"],
    tokens: Int[Tensor, " piece"],
    lengths: Int[Tensor, " row"],
    pooling: str,
) -> Float[Tensor, "row hidden"]:
    """Reduce the tokens of each row; `tokens` counts through the whole batch."""
    states = hidden.reshape(-1, hidden.shape[-1]).float().index_select(0, tokens)
    if pooling in ("last", "first"):
        return states
    return torch.segment_reduce(states, pooling, lengths=lengths, axis=0)


def word_attention(
    attention: Float[Tensor, "batch head token token"], membership: Float[Tensor, "batch word token"]
) -> Float[Tensor, "batch head word word"]:
    """Attention from word to word: the mean over the sub-words it comes from, the sum over those it goes to.

    Special tokens are left out and each row is made to sum to 1 again; a row that gave them everything becomes uniform
    over the words.
    """
    to_word = torch.einsum("bhst,bwt->bhsw", attention.float(), membership)
    share = membership / membership.sum(-1, keepdim=True).clamp(min=1)
    scores = torch.einsum("bvs,bhsw->bhvw", share, to_word)
    total = scores.sum(-1, keepdim=True)
    present = (membership.sum(-1) > 0).float()[:, None, None, :]
    uniform = present / present.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(total > 0, scores / total.clamp(min=torch.finfo(torch.float32).tiny), uniform)


def membership(places: list[WordPlaces], n_tokens: int) -> Float[np.ndarray, "batch word token"]:
    """1 where a token belongs to a word of its window, else 0; a window has only the words that stand in it."""
    table = np.zeros((len(places), max(map(len, places)), n_tokens), dtype=np.float32)
    for b, words in enumerate(places):
        lengths = words.stop - words.first
        table[b, np.repeat(np.arange(len(words)), lengths), _ranges(words.first, lengths)] = 1
    return table


def sentence_position(position: str, windows: list[Window], cls_id: int | None, causal: bool) -> str:
    """What `auto` means for a model: [CLS] where there is one, else the last token of a decoder, else the mean."""
    if position != "auto":
        return position
    if cls_id is not None and any(cls_id in w.ids for w in windows):
        return "cls"
    return "last" if causal else "mean"


def _ranges(start: Int[np.ndarray, " row"], lengths: Int[np.ndarray, " row"]) -> Int[np.ndarray, " piece"]:
    """start[0], start[0]+1, …, start[1], … : the numbers of several ranges one after another."""
    shift = np.repeat(start - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    return np.arange(lengths.sum()) + shift
