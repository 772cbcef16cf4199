"""Batches of text, one per language: streamed, shuffled, split into pieces and masked, each a function of its position.

What is masked depends on the line and not on its batch, so several processes with small batches see what one process
with a large batch sees.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xxhash
from torch import Tensor

from residuum.corpus.streams import TextOptions, text_lines
from residuum.distillation.settings import TextSettings
from residuum.errors import CorpusError, ModelError
from residuum.training.batches import ShuffledBatches, StreamBatches, shuffled_stream
from residuum.training.processes import process_count

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROGRESS = "progress"  # among the batches of a step: the share of the training that lies behind it
IGNORED = -100  # the label of a position that is not predicted
TOKENIZED_TOGETHER = 256  # lines, among whose windows the windows of a long line are spread
SPARE = 8  # tokens for special ones, a leading space and characters that normalising expands
SHARE_TO_MASK, SHARE_TO_RANDOM = 0.8, 0.1  # of the chosen positions; the rest stay as they are


@dataclass(frozen=True)
class NumberedLine:
    """A line of a text, and which pass over the text it was read in; of a long line, one window of its tokens."""

    number: int
    epoch: int
    text: str
    window: int = 0
    ids: tuple[int, ...] | None = None  # of the window, with special tokens; None: those of the whole text


@dataclass(frozen=True, eq=False)
class LineEncoder:
    """From lines to tensors: input_ids, attention_mask, labels (what to predict there), soft (where to compare).

    `pieces` are the ids that a random piece is drawn from; `soft_positions` is masked, all or a share of the tokens.
    A decoder predicts every next piece and masks nothing.
    """

    tokenizer: PreTrainedTokenizerBase
    settings: TextSettings
    language: str
    pieces: np.ndarray
    soft_positions: str | float
    max_length: int
    causal: bool
    seed: int

    def __call__(self, lines: Sequence[NumberedLine]) -> dict[str, Tensor]:
        """One padded batch."""
        whole = iter(self._ids([line.text for line in lines if line.ids is None]))
        rows = [self._row(next(whole) if line.ids is None else line.ids, line) for line in lines]
        width = max(len(row[0]) for row in rows)
        return {
            "input_ids": _padded([row[0] for row in rows], width, self._id("pad")),
            "attention_mask": _padded([np.ones_like(row[0]) for row in rows], width, 0),
            "labels": _padded([row[1] for row in rows], width, IGNORED),
            "soft": _padded([row[2] for row in rows], width, 0).bool(),
        }

    def windows(self, lines: Sequence[NumberedLine]) -> list[NumberedLine]:
        """The lines, and for each with more tokens than fit, windows of equal length that hold all of them.

        What may be too long is tokenized here, all at once, and not again.
        """
        if self.settings.long_lines == "truncate":
            return list(lines)
        may_be_long = [len(line.text.encode()) + SPARE > self.max_length for line in lines]  # a token is a byte or more
        texts = [line.text for line, asked in zip(lines, may_be_long, strict=True) if asked]
        tokenized = self.tokenizer(texts, return_special_tokens_mask=True, verbose=False) if texts else {}
        rows = iter(zip(*(tokenized.get(name, []) for name in ("input_ids", "special_tokens_mask")), strict=True))
        windows: list[NumberedLine] = []
        for line, asked in zip(lines, may_be_long, strict=True):
            windows += self._cut(line, *next(rows)) if asked else [line]
        return windows

    def _cut(self, line: NumberedLine, ids: list[int], special: list[int]) -> list[NumberedLine]:
        """A line of these tokens as windows of equal length, each with the special tokens at its ends."""
        if len(ids) <= self.max_length:
            return [replace(line, ids=tuple(ids))]
        ordinary = np.flatnonzero(np.asarray(special) == 0)
        first, last = int(ordinary[0]), int(ordinary[-1]) + 1
        before, after = ids[:first], ids[last:]
        count = math.ceil((last - first) / (self.max_length - len(before) - len(after)))
        size = math.ceil((last - first) / count)
        return [
            replace(line, window=window, ids=(*before, *ids[start : min(start + size, last)], *after))
            for window, start in enumerate(range(first, last, size))
        ]

    def plain(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """One padded batch in which nothing is masked."""
        ids = [np.asarray(row) for row in self._ids(texts)]
        width = max(map(len, ids))
        return {
            "input_ids": _padded(ids, width, self._id("pad")),
            "attention_mask": _padded([np.ones_like(row) for row in ids], width, 0),
        }

    def translations(self, pairs: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
        """Both sides of some translations, `input_ids_0` and `input_ids_1` with their masks."""
        sides = [self.plain([pair[side] for pair in pairs]) for side in (0, 1)]
        return {f"{name}_{side}": tensor for side, batch in enumerate(sides) for name, tensor in batch.items()}

    def _id(self, name: str) -> int:
        return int(getattr(self.tokenizer, f"{name}_token_id") or 0)

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        return self.tokenizer(list(texts), truncation=True, max_length=self.max_length)["input_ids"]  # pyright: ignore[reportReturnType]

    def _row(self, ids: Sequence[int], line: NumberedLine) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Masked ids, labels, and where soft targets are compared."""
        epoch = line.epoch if self.settings.new_masks_each_epoch else 0
        place = (line.number, epoch, line.window) if line.window else (line.number, epoch)
        generator = np.random.default_rng((self.seed, zlib.crc32(self.language.encode()), *place))
        tokens = np.asarray(ids)
        if self.causal:
            labels = np.append(tokens[1:], IGNORED)
        else:
            tokens, labels = self._masked(tokens, generator)
        predicted = labels != IGNORED
        if self.soft_positions == "masked":
            return tokens, labels, predicted
        if self.soft_positions == "all":
            return tokens, labels, np.ones_like(predicted)
        return tokens, labels, generator.random(len(tokens)) < float(self.soft_positions)

    def _masked(self, tokens: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """15 % of the pieces are to be predicted: 80 % of them are masked, 10 % random, 10 % as they are."""
        ordinary = ~np.isin(tokens, self.tokenizer.all_special_ids)
        chosen = ordinary & (generator.random(len(tokens)) < self.settings.masked)
        if ordinary.any() and not chosen.any():  # a short line too has something to predict
            chosen[generator.choice(np.flatnonzero(ordinary))] = True
        fate = generator.random(len(tokens))
        drawn = self.pieces[generator.integers(len(self.pieces), size=len(tokens))]
        masked = np.where(chosen & (fate < SHARE_TO_MASK), self._id("mask"), tokens)
        replaced = chosen & (fate >= SHARE_TO_MASK) & (fate < SHARE_TO_MASK + SHARE_TO_RANDOM)
        return np.where(replaced, drawn, masked), np.where(chosen, tokens, IGNORED)


class LanguageBatches:
    """One batch of every language at each position, and one of each pair of languages whose translations are given."""

    def __init__(
        self,
        texts: Mapping[str, str],
        encoders: Mapping[str, LineEncoder],
        settings: TextSettings,
        pairs: Mapping[str, Sequence[tuple[str, str]]] | None = None,
        sizes: Mapping[str, int] | None = None,  # lines of each language per step; None: batch_size
    ) -> None:
        self.streams = {
            language: StreamBatches(
                _Stream(source, settings, encoders[language]),
                settings.batch_size if sizes is None else sizes[language],
                collate=encoders[language],
            )
            for language, source in texts.items()
        }
        encoder = next(iter(encoders.values()))
        self.pairs = {
            f"pairs {pair}": ShuffledBatches(
                translations, settings.batch_size, seed=encoder.seed, collate=encoder.translations
            )
            for pair, translations in (pairs or {}).items()
        }

    @property
    def per_epoch(self) -> None:
        """Not known: texts are streamed."""
        return None

    def __call__(self, position: int) -> dict[str, dict[str, Tensor]]:
        """The batches of all languages and pairs."""
        return {name: source(position) for name, source in [*self.streams.items(), *self.pairs.items()]}


class PairwiseBatches:
    """The batch of one (language, student) pair at a time, as algorithm 1 of the thesis goes through them.

    The pairs of a step follow each other; those of one language get the same batch. Several processes take the same
    pair at the same time, and different lines.
    """

    def __init__(self, batches: LanguageBatches, pairs: Sequence[tuple[str, str]]) -> None:
        self.batches, self.pairs = batches, pairs
        self._last: tuple[tuple[int, str], dict[str, Tensor]] | None = None

    @property
    def per_epoch(self) -> None:
        """Not known: texts are streamed."""
        return None

    def __call__(self, position: int) -> dict[str, dict[str, Tensor]]:
        """{language/student: batch}."""
        turns, process = divmod(position, process_count())
        step, turn = divmod(turns, len(self.pairs))
        step = step * process_count() + process
        language, student = self.pairs[turn]
        if self._last is None or self._last[0] != (step, language):
            self._last = ((step, language), self.batches.streams[language](step))
        return {f"{language}/{student}": self._last[1]}


@dataclass(frozen=True)
class ScheduledBatches:
    """Batches that also say which share of the training lies behind them."""

    batches: LanguageBatches | PairwiseBatches
    positions: int  # of the whole training

    @property
    def per_epoch(self) -> None:
        """Not known: texts are streamed."""
        return None

    def __call__(self, position: int) -> dict[str, Any]:
        """The batches and, under PROGRESS, the share of the training, from 0 at the first to 1 at the last."""
        return {**self.batches(position), PROGRESS: position / max(1, self.positions - 1)}


def batch_sizes(texts: Mapping[str, str], settings: TextSettings) -> dict[str, int]:
    """Lines of each language per step: `batch_size` on average, in proportion to (lines of its text)^sampling."""
    if not settings.sampling:
        return dict.fromkeys(texts, settings.batch_size)
    if streamed := [source for source in texts.values() if not Path(source).exists()]:
        raise CorpusError(
            f"text.sampling counts the lines of every text, but {streamed[0]} is streamed from the hub; set it to 0, "
            "or download the text."
        )
    options = TextOptions(**settings.reading)
    counts = {language: sum(1 for _ in text_lines(source, options)) for language, source in texts.items()}
    parts = {language: float(count) ** settings.sampling for language, count in counts.items()}
    lines = settings.batch_size * len(texts) / sum(parts.values())
    return {language: max(1, round(lines * part)) for language, part in parts.items()}


@dataclass(frozen=True)
class _Stream:
    """A text pass by pass, shuffled, without the lines that are held out."""

    source: str
    settings: TextSettings
    encoder: LineEncoder

    def __call__(self, epoch: int) -> Iterator[NumberedLine]:
        lines = text_lines(self.source, TextOptions(**self.settings.reading))
        if (share := self.settings.held_out_share) is None:
            lines = islice(lines, self.settings.held_out, None)
        else:
            lines = ((number, text) for number, text in lines if not is_held_out(text, share))
        if self.settings.deduplicate:
            lines = distinct_lines(lines, held_out_lines(self.source, self.settings))
        numbered = (NumberedLine(number, epoch, text) for number, text in lines)
        buffer, seed = self.settings.shuffle_buffer, self.encoder.seed
        shuffled = shuffled_stream(numbered, buffer, seed, epoch)
        if self.settings.long_lines == "truncate":
            return shuffled
        # Lines become windows after they were shuffled: a full buffer need not be tokenized before the first step.
        blocks = iter(lambda: list(islice(shuffled, TOKENIZED_TOGETHER)), [])
        windows = (window for block in blocks for window in self.encoder.windows(block))
        return shuffled_stream(windows, min(buffer, TOKENIZED_TOGETHER), seed + 1, epoch)


def distinct_lines(lines: Iterable[tuple[int, str]], known: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The first of equal lines, without those that are known; 64-bit hashes are held, not the lines."""
    seen = {xxhash.xxh3_64_intdigest(text.encode()) for text in known}
    for number, text in lines:
        if (key := xxhash.xxh3_64_intdigest(text.encode())) not in seen:
            seen.add(key)
            yield number, text


def is_held_out(text: str, share: float) -> bool:
    """Whether a line is among the share that is held out, by its hash: equal lines always stand on one side."""
    return xxhash.xxh3_64_intdigest(text.encode()) < share * 2**64


def held_out_lines(source: str, settings: TextSettings) -> list[str]:
    """The lines of a text that are measured on and not trained on: the first ones, or the first of a share by hash."""
    texts = (text for _, text in text_lines(source, TextOptions(**settings.reading)))
    if (share := settings.held_out_share) is not None:
        found = list(islice((text for text in texts if is_held_out(text, share)), settings.held_out))
        if settings.held_out and not found:
            raise CorpusError(
                f"{source} has no line in the share text.held_out_share={share:g}. Raise it, or set text.held_out to 0."
            )
        return found
    lines = list(islice(texts, settings.held_out + 1))
    if len(lines) <= settings.held_out:
        raise CorpusError(
            f"{source} has {len(lines)} lines, and text.held_out is {settings.held_out}: none is left to train on. "
            "Lower text.held_out."
        )
    return lines[: settings.held_out]


def translation_pairs(files: tuple[str, str]) -> list[tuple[str, str]]:
    """The translations in two files, line by line."""
    sides = [[text for _, text in text_lines(file)] for file in files]
    if len(sides[0]) != len(sides[1]) or len(sides[0]) < 2:
        raise CorpusError(
            f"{files[0]} has {len(sides[0])} lines and {files[1]} has {len(sides[1])}; expected translations line by "
            "line, at least 2, without blank lines."
        )
    return list(zip(*sides, strict=True))


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, *, causal: bool, embeddings: int) -> None:
    """Whether a tokenizer fits its model and the task."""
    if len(tokenizer) > embeddings:
        raise ModelError(
            f"The teacher's tokenizer has {len(tokenizer):,} pieces, its model only {embeddings:,} embeddings: they do "
            "not belong together. Give a folder where they do."
        )
    if not causal and tokenizer.mask_token_id is None:
        raise ModelError("The teacher's tokenizer has no mask token; a masked-language-model teacher needs one.")


def _padded(rows: Sequence[np.ndarray], width: int, fill: int) -> Tensor:
    table = np.full((len(rows), width), fill, dtype=np.int64)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(table)
