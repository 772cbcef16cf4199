"""Texts → windows of tokens → padded batches that a network takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from residuum.errors import CorpusError
from residuum.models.alignment import Aligner, Window

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def token_windows(
    tokenizer: PreTrainedTokenizerBase, window: int | None, texts: Sequence[str], source: str
) -> list[list[Window]]:
    """The tokens of each text, once each: a text longer than the model's window is read in several, side by side.

    `source` says where the texts are from when one of them has no token.
    """
    aligned = Aligner(tokenizer, window, overlap=0.0).align(texts, [[] for _ in texts])
    for number, (text, one) in enumerate(zip(texts, aligned, strict=True), 1):
        if not sum(len(part.content) for part in one.windows):
            raise CorpusError(f"Sentence {number} of {source} ({text[:60]!r}) has no token; take it out.")
    return [one.windows for one in aligned]


def padded_batch(
    tokenizer: PreTrainedTokenizerBase, windows: Iterable[Window], device: torch.device
) -> Mapping[str, Tensor]:
    """What a network of transformers takes, filled up to the longest window."""
    rows = list(windows)
    padding = tokenizer.pad_token_id if isinstance(tokenizer.pad_token_id, int) else 0  # the mask hides it
    length = max(len(window.ids) for window in rows)
    ids = torch.full((len(rows), length), padding)
    mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, window in enumerate(rows):
        size = len(window.ids)
        ids[row, :size], types[row, :size], mask[row, :size] = torch.tensor(window.ids), torch.tensor(window.types), 1
    batch = {"input_ids": ids, "attention_mask": mask}
    if "token_type_ids" in tokenizer.model_input_names:
        batch["token_type_ids"] = types
    return {name: tensor.to(device) for name, tensor in batch.items()}
