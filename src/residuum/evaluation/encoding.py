"""Sentences → windows of tokens → padded batches → the states of tokens and the mean of each sentence, per layer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from residuum.activations.extraction import batches
from residuum.errors import CorpusError, DataError
from residuum.maths.retrieval import TokenStates, unit_rows
from residuum.models.alignment import Aligner, Window
from residuum.models.loading import Model, only_first_layers
from residuum.storage.files import clear_disk_errors, reserve_space

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH_TOKENS = 1024


@dataclass(frozen=True, eq=False)
class EncodedSentences:
    """Sentence means (sentence × neuron) per layer, and the token states if they were asked for."""

    means: dict[int, Tensor]
    tokens: TokenStates | None
    windowed: int  # sentences that are longer than the model's window


def encode(
    model: Model,
    texts: Sequence[str],
    layers: Sequence[int],
    space: Scratch,
    *,
    tokens: bool,
    special_tokens: bool,
    source: str,
) -> EncodedSentences:
    """Run a model over sentences in batches of similar length; `source` names them in messages.

    The mean of a sentence is over all its tokens, or without `special_tokens` over the ordinary ones.
    """
    rows = TokenRows.of(token_windows(model.tokenizer, model.window, texts, source))
    weights = torch.from_numpy(rows.mean_weights(special_tokens))
    means = {layer: space.zeros(len(texts), model.widths[layer]) for layer in layers}
    states = {layer: space.zeros(len(rows.sentence), model.widths[layer]) for layer in layers} if tokens else {}
    with only_first_layers(model, max(layers)):
        for chosen in batches(np.diff(rows.starts).tolist(), BATCH_TOKENS, model.pads):
            batch = padded_batch(model.tokenizer, [rows.windows[i] for i in chosen], model.device)
            places = np.concatenate([np.arange(rows.starts[i], rows.starts[i + 1]) for i in chosen])
            sentences, places = torch.from_numpy(rows.sentence[places]), torch.from_numpy(places)
            filled = batch["attention_mask"].bool()
            for layer, hidden in zip(layers, model.read(batch, layers).hidden, strict=True):
                vectors = hidden[filled].float().cpu()
                means[layer].index_add_(0, sentences, vectors * weights[places, None])
                if tokens:
                    states[layer][places] = unit_rows(vectors)
    for layer, vectors in means.items():
        if (bad := ~torch.isfinite(vectors).all(dim=1)).any():
            raise DataError(
                f"Layer {layer} of {model.name} is not finite in sentence {int(bad.nonzero()[0]) + 1} of {source}; "
                "its weights are damaged."
            )
    token_states = TokenStates(states, rows.boundaries, rows.content) if tokens else None
    return EncodedSentences(means, token_states, rows.windowed)


@dataclass(frozen=True, eq=False)
class TokenRows:
    """One row per token, for all sentences after one another, window by window."""

    windows: list[Window]
    starts: np.ndarray  # the first row of each window, and the end
    boundaries: np.ndarray  # the first row of each sentence, and the end
    sentence: np.ndarray  # the sentence of each row
    content: np.ndarray  # which rows are not special tokens
    windowed: int  # sentences with several windows

    @classmethod
    def of(cls, sentences: list[list[Window]]) -> TokenRows:
        """The rows of sentences that are split into windows."""
        windows = [window for parts in sentences for window in parts]
        starts = np.concatenate([[0], np.cumsum([len(window.ids) for window in windows])])
        boundaries = starts[np.concatenate([[0], np.cumsum([len(parts) for parts in sentences])])]
        content = np.zeros(starts[-1], dtype=bool)
        content[np.concatenate([start + window.content for start, window in zip(starts, windows, strict=False)])] = True
        sentence = np.repeat(np.arange(len(sentences)), np.diff(boundaries))
        return cls(windows, starts, boundaries, sentence, content, sum(len(parts) > 1 for parts in sentences))

    def mean_weights(self, special_tokens: bool) -> np.ndarray:
        """The weight of each token in the mean of its sentence."""
        counted = np.ones(len(self.content)) if special_tokens else self.content.astype(float)
        sums = np.add.reduceat(counted, self.boundaries[:-1])
        return (counted / np.repeat(sums, np.diff(self.boundaries))).astype(np.float32)


def token_windows(
    tokenizer: PreTrainedTokenizerBase, window: int | None, texts: Sequence[str], source: str
) -> list[list[Window]]:
    """The tokens of each text, each once: a text longer than the model's window is split into several windows.

    `source` names the texts in the error about a text without tokens.
    """
    aligned = Aligner(tokenizer, window, overlap=0.0).align(texts, [[] for _ in texts])
    for number, (text, sentence) in enumerate(zip(texts, aligned, strict=True), 1):
        if not sum(len(part.content) for part in sentence.windows):
            raise CorpusError(f"Sentence {number} of {source} ({text[:60]!r}) has no token; take it out.")
    return [sentence.windows for sentence in aligned]


def padded_batch(
    tokenizer: PreTrainedTokenizerBase, windows: Iterable[Window], device: torch.device
) -> Mapping[str, Tensor]:
    """The inputs of a transformers model, padded to the longest window."""
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


@dataclass(eq=False)
class Scratch:
    """Space for means and token states: in memory up to `memory` bytes, beyond that in files."""

    folder: Path
    memory: int
    files: int = 0

    def zeros(self, rows: int, width: int) -> Tensor:
        """A float32 array."""
        self.memory -= 4 * rows * width
        if self.memory >= 0:
            return torch.zeros(rows, width)
        self.files += 1
        path = self.folder / f"states-{self.files}"
        with clear_disk_errors(path):
            array = np.memmap(path, dtype=np.float32, mode="w+", shape=(rows, width))
            reserve_space(path)
            with suppress(PermissionError):  # Windows keeps the name of a mapped file
                path.unlink()  # a file without a name is freed when the process ends, however it ends
        return torch.from_numpy(array)


@contextmanager
def scratch(memory: int) -> Iterator[Scratch]:
    """Scratch space whose files are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="residuum-") as folder:
        yield Scratch(Path(folder), memory)
