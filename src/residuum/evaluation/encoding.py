"""Sentences → the states of their tokens and the mean of each sentence, layer by layer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from residuum.activations.extraction import batches
from residuum.errors import DataError
from residuum.evaluation.token_batches import padded_batch, token_windows
from residuum.maths.retrieval import TokenStates, unit_rows
from residuum.models.alignment import Window
from residuum.models.loading import Model, only_first_layers
from residuum.storage.files import clear_disk_errors, reserve_space

BATCH_TOKENS = 1024


@dataclass(frozen=True, eq=False)
class Encoded:
    """What a model makes of some sentences: means (sentence × neuron) by layer, and token states if asked for."""

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
) -> Encoded:
    """Run a model over sentences, in batches of like length; `source` names them in messages.

    The mean of a sentence is over all its tokens, or without `special_tokens` over those that are not special.
    """
    rows = TokenRows(token_windows(model.tokenizer, model.window, texts, source))
    shares = torch.from_numpy(rows.shares(special_tokens))
    means = {layer: space.zeros(len(texts), model.widths[layer]) for layer in layers}
    states = {layer: space.zeros(rows.total, model.widths[layer]) for layer in layers} if tokens else {}
    with only_first_layers(model, max(layers)):
        for chosen in batches(rows.sizes, BATCH_TOKENS, model.pads):
            batch = padded_batch(model.tokenizer, [rows.windows[i] for i in chosen], model.device)
            places = torch.from_numpy(np.concatenate([rows.places(i) for i in chosen]))
            sentences = torch.from_numpy(np.concatenate([rows.sentence_of(i) for i in chosen]))
            filled = batch["attention_mask"].bool()
            for layer, hidden in zip(layers, model.read(batch, layers).hidden, strict=True):
                found = hidden[filled].float().cpu()
                means[layer].index_add_(0, sentences, found * shares[places, None])
                if tokens:
                    states[layer][places] = unit_rows(found)
    _check_finite(means, model.name, source)
    held = TokenStates(states, rows.boundaries, rows.content) if tokens else None
    return Encoded(means, held, rows.windowed)


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Where the tokens of some sentences stand when all are put one after another, window by window."""

    sentences: list[list[Window]]

    @cached_property
    def windows(self) -> list[Window]:
        """All windows in the order of the sentences."""
        return [window for windows in self.sentences for window in windows]

    @cached_property
    def sizes(self) -> list[int]:
        """The tokens of each window."""
        return [len(window.ids) for window in self.windows]

    @property
    def total(self) -> int:
        """All tokens."""
        return int(self._starts[-1])

    @property
    def windowed(self) -> int:
        """How many sentences have several windows."""
        return sum(len(windows) > 1 for windows in self.sentences)

    @cached_property
    def boundaries(self) -> np.ndarray:
        """The first row of each sentence, and the end."""
        counts = [sum(len(window.ids) for window in windows) for windows in self.sentences]
        return np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def content(self) -> np.ndarray:
        """Which rows are not special tokens."""
        rows = [self._starts[i] + window.content for i, window in enumerate(self.windows)]
        content = np.zeros(self.total, dtype=bool)
        content[np.concatenate(rows)] = True
        return content

    def places(self, window: int) -> np.ndarray:
        """The rows of a window."""
        return np.arange(self._starts[window], self._starts[window + 1])

    def sentence_of(self, window: int) -> np.ndarray:
        """The sentence of each token of a window."""
        return np.full(self.sizes[window], self._owners[window])

    def shares(self, special_tokens: bool) -> np.ndarray:
        """What each token counts in the mean of its sentence."""
        counted = np.ones(self.total) if special_tokens else self.content.astype(float)
        sums = np.add.reduceat(counted, self.boundaries[:-1])
        return (counted / np.repeat(sums, np.diff(self.boundaries))).astype(np.float32)

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def _owners(self) -> list[int]:
        return [sentence for sentence, windows in enumerate(self.sentences) for _ in windows]


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
            with suppress(PermissionError):  # Windows keeps the name of a file that is mapped
                path.unlink()  # without a name the space goes with the process, however that ends
        return torch.from_numpy(array)


@contextmanager
def scratch(memory: int) -> Iterator[Scratch]:
    """Space whose files vanish at the end."""
    with tempfile.TemporaryDirectory(prefix="residuum-") as folder:
        yield Scratch(Path(folder), memory)


def _check_finite(means: dict[int, Tensor], model: str, source: str) -> None:
    for layer, vectors in means.items():
        bad = ~torch.isfinite(vectors).all(dim=1)
        if bad.any():
            raise DataError(
                f"Layer {layer} of {model} is not finite in sentence {int(bad.nonzero()[0]) + 1} of {source}; "
                "its weights are damaged."
            )
