"""Words ↔ sub-words of any fast tokenizer, by character offsets, and the audit of what was lost on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from residuum.errors import CorpusError, ModelError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer
    from transformers import PreTrainedTokenizerBase

SHOWN = 5  # how many lost words an error message quotes


@dataclass(frozen=True)
class Window:
    """A run of tokens that the model reads at once: a whole sentence, or a part of one that is too long."""

    ids: list[int]
    types: list[int]
    content: Int[np.ndarray, " token"]  # positions that are not special tokens


@dataclass(frozen=True)
class Alignment:
    """One sentence as the model reads it: its windows and, for each word, where its sub-words are.

    The sub-words of word w in window v are the tokens `ranges[v, w, 0]` … `ranges[v, w, 1] − 1` (none: both 0); the
    word is read in window `choice[w]` (none: −1).
    """

    windows: list[Window]
    ranges: Int[np.ndarray, "window word 2"]
    choice: Int[np.ndarray, " word"]
    n_words: int
    n_subwords: int
    unknown: int  # words with a piece outside the vocabulary
    truncated: int = 0  # words cut off because a pair did not fit the window

    @cached_property
    def kept(self) -> Int[np.ndarray, " word"]:
        """The words that have sub-words."""
        return np.flatnonzero(self.choice >= 0)

    @cached_property
    def lost(self) -> list[int]:
        """The words that no sub-word stands for."""
        return np.flatnonzero(self.choice < 0).tolist()


class Aligner:
    """Aligns sentences for one tokenizer; long sentences are read in overlapping windows, so that no word is lost.

    The tokenizer's own padding and truncation are switched off (some ship with a limit of 128 tokens), and special
    tokens that occur in the text are read as plain text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, window: int | None, overlap: float = 0.5) -> None:
        self.backend = _backend(tokenizer)
        self.unknown_id = tokenizer.unk_token_id
        self.window = window
        if window is not None:
            room = window - self.backend.num_special_tokens_to_add(is_pair=False)
            if room < 1:
                raise ModelError(f"A window of {window} tokens leaves no room for words beside the special tokens.")
            self.stride = min(int(room * overlap), room - 1)

    def align(self, texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]) -> list[Alignment]:
        """Align a batch of sentences; `spans` gives the characters of each word in its text."""
        if self.window is None:
            self.backend.no_truncation()
        else:
            self.backend.enable_truncation(self.window, stride=self.stride)
        encodings = [[first, *first.overflowing] for first in self.backend.encode_batch(list(texts))]
        ranges = iter(_token_ranges(encodings, spans))
        return [self._align_one([_window(part) for part in parts], next(ranges)) for parts in encodings]

    def align_pairs(self, texts: Sequence[str], pairs: Sequence[str]) -> list[Alignment]:
        """Encode pairs of segments for sentence tasks; the longer one is cut where both do not fit."""
        self.backend.no_truncation()
        if self.window is not None:
            self.backend.enable_truncation(self.window, strategy="longest_first")
        encodings = self.backend.encode_batch(list(zip(texts, pairs, strict=True)))
        return [
            self._align_pair(encoding, text, pair) for encoding, text, pair in zip(encodings, texts, pairs, strict=True)
        ]

    def _align_one(self, windows: list[Window], ranges: Int[np.ndarray, "window word 2"]) -> Alignment:
        choice = _best_window(ranges, windows)
        return Alignment(
            windows=windows,
            ranges=ranges,
            choice=choice,
            n_words=ranges.shape[1],
            n_subwords=int((ranges[..., 1] - ranges[..., 0]).max(axis=0, initial=0).sum()),
            unknown=self._count_unknown(windows, ranges, choice),
        )

    def _align_pair(self, encoding: Encoding, text: str, pair: str) -> Alignment:
        window = _window(encoding)
        return Alignment(
            windows=[window],
            ranges=np.zeros((1, 0, 2), dtype=np.int64),
            choice=np.zeros(0, dtype=np.int64),
            n_words=len(text.split()) + len(pair.split()),
            n_subwords=len(window.content),
            unknown=sum(encoding.ids[i] == self.unknown_id for i in window.content),
            truncated=sum(_words_after(encoding, k, segment) for k, segment in enumerate((text, pair))),
        )

    def _count_unknown(
        self, windows: list[Window], ranges: Int[np.ndarray, "window word 2"], choice: Int[np.ndarray, " word"]
    ) -> int:
        if self.unknown_id is None or not any(self.unknown_id in w.ids for w in windows):
            return 0
        places = ((windows[v].ids, *ranges[v, w]) for w, v in enumerate(choice) if v >= 0)
        return sum(self.unknown_id in ids[first:stop] for ids, first, stop in places)


@dataclass(frozen=True)
class Audit:
    """What became of the words of a corpus; printed and stored with every extraction. Audits add up."""

    sentences: int = 0
    words: int = 0
    subwords: int = 0
    dropped: int = 0  # words without any sub-word
    truncated: int = 0  # words beyond the model's window
    unknown: int = 0  # words with a piece outside the vocabulary
    windowed: int = 0  # sentences read in several windows
    examples: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, alignment: Alignment, words: Sequence[str], where: str) -> Audit:
        """Count one sentence; `where` names it in messages."""
        examples = [f"word {i + 1} {words[i]!r} of sentence {where}" for i in alignment.lost[:SHOWN]]
        if alignment.truncated:
            examples.append(f"{alignment.truncated} words cut off sentence {where}")
        return cls(
            sentences=1,
            words=alignment.n_words,
            subwords=alignment.n_subwords,
            dropped=len(alignment.lost),
            truncated=alignment.truncated,
            unknown=alignment.unknown,
            windowed=int(len(alignment.windows) > 1),
            examples=examples,
        )

    def __add__(self, other: Audit) -> Audit:
        counts = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Audit(**{**counts, "examples": counts["examples"][:SHOWN]})

    @property
    def lost(self) -> int:
        """Words that have no representation."""
        return self.dropped + self.truncated

    def check(self, max_loss: float, total_words: int) -> None:
        """Fail as soon as more than the share `max_loss` of all the corpus' words is lost."""
        if self.lost > max_loss * total_words:
            raise CorpusError(
                f"{self.lost} of {total_words} words are lost ({self.dropped} have no sub-word, {self.truncated} are "
                f"cut off): {'; '.join(self.examples)}. Remove them, or allow it with --max-loss "
                f"{_round_up(self.lost / total_words)}."
            )

    def check_rest(self) -> None:
        """Fail where not one word is left."""
        if self.lost == self.words > 0:
            raise CorpusError(
                f"All {self.words:,} words are lost, so that nothing is left: {'; '.join(self.examples)}."
            )

    def __str__(self) -> str:
        counts = [
            f"{self.words:,} words in {self.sentences:,} sentences",
            f"{self.subwords:,} sub-words",
            f"{self.dropped:,} words dropped",
            f"{self.truncated:,} truncated",
            f"{self.unknown:,} with unknown pieces",
        ]
        if self.windowed:
            counts.append(f"{self.windowed:,} sentences read in windows")
        return ", ".join(counts)


def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """A copy of the tokenizer's Rust core, free of the padding and truncation it may ship with."""
    from tokenizers import Tokenizer

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"{type(tokenizer).__name__} gives no character offsets; a fast tokenizer (tokenizer.json) is needed."
        )
    backend = Tokenizer.from_str(backend.to_str())
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True
    return backend


def _window(encoding: Encoding) -> Window:
    content = np.flatnonzero(np.array(encoding.special_tokens_mask, dtype=np.int64) == 0)
    return Window(encoding.ids, encoding.type_ids, content)


def _words_after(encoding: Encoding, segment: int, text: str) -> int:
    """How many words of a segment begin after its last encoded token."""
    ends = [stop for (_, stop), s in zip(encoding.offsets, encoding.sequence_ids, strict=True) if s == segment]
    return len(text[max(ends, default=0) :].split()) if encoding.overflowing else 0


def _token_ranges(
    encodings: Sequence[Sequence[Encoding]], spans: Sequence[Sequence[tuple[int, int]]]
) -> list[Int[np.ndarray, "window word 2"]]:
    """For each word the first and one past the last token whose characters overlap its own; empty where none does.

    All windows of all sentences are searched at once: each has its own stretch of one long line of characters.
    """
    parts = [part for sentence in encodings for part in sentence]
    tokens = _Tokens.of(parts)
    n_windows, n_words = _lengths(encodings), _lengths(spans)
    part_words = np.repeat(n_words, n_windows)
    words = _pairs(chain.from_iterable(s * n for s, n in zip(map(list, spans), n_windows.tolist(), strict=True)))
    stretch = 1 + max(tokens.offsets.max(initial=0), words.max(initial=0))
    words += np.repeat(np.arange(len(parts)) * stretch, part_words)[:, None]
    offsets = tokens.offsets + (tokens.part * stretch)[:, None]
    first, stop = _overlapping(offsets, words).T
    found = first < stop
    ranges = np.zeros_like(words)
    ranges[found, 0] = tokens.position[first[found]]
    ranges[found, 1] = tokens.position[stop[found] - 1] + 1
    pieces = np.split(ranges, np.cumsum(n_words * n_windows)[:-1])
    return [piece.reshape(n, -1, 2) for piece, n in zip(pieces, n_windows.tolist(), strict=True)]


@dataclass(frozen=True)
class _Tokens:
    """The tokens of many windows that are not special: their window, their place in it and their characters."""

    part: Int[np.ndarray, " token"]
    position: Int[np.ndarray, " token"]
    offsets: Int[np.ndarray, "token 2"]

    @classmethod
    def of(cls, parts: Sequence[Encoding]) -> _Tokens:
        lengths = _lengths(parts)
        content = np.flatnonzero(_flat(part.special_tokens_mask for part in parts) == 0)
        part = np.repeat(np.arange(len(parts)), lengths)
        position = np.arange(len(part)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        offsets = _pairs(chain.from_iterable(part.offsets for part in parts))
        return cls(part[content], position[content], offsets[content])


def _overlapping(offsets: Int[np.ndarray, "token 2"], words: Int[np.ndarray, "word 2"]) -> Int[np.ndarray, "word 2"]:
    """The first token that overlaps each word, and one past the last; not ascending where there is none."""
    starts, stops = offsets.T
    if (np.diff(starts) < 0).any() or (np.diff(stops) < 0).any():
        return _overlapping_unordered(offsets, words)
    first = np.searchsorted(stops, words[:, 0], side="right")
    stop = np.searchsorted(starts, words[:, 1], side="left")
    return np.stack([first, stop], axis=1)


def _overlapping_unordered(
    offsets: Int[np.ndarray, "token 2"], words: Int[np.ndarray, "word 2"]
) -> Int[np.ndarray, "word 2"]:
    """The same for the rare tokenizer whose offsets do not ascend: compare each word with every token."""
    found = np.zeros_like(words)
    for row, (start, stop) in enumerate(words.tolist()):
        tokens = np.flatnonzero((offsets[:, 0] < stop) & (offsets[:, 1] > start))
        if tokens.size:
            found[row] = tokens[0], tokens[-1] + 1
    return found


def _lengths(rows: Sequence[Sequence[object] | Encoding]) -> Int[np.ndarray, " row"]:
    return np.fromiter(map(len, rows), np.int64, len(rows))


def _pairs(pairs: Iterable[tuple[int, int]]) -> Int[np.ndarray, "_ 2"]:
    return _flat(pairs).reshape(-1, 2)


def _flat(rows: Iterable[Sequence[int]]) -> Int[np.ndarray, " _"]:
    return np.fromiter(chain.from_iterable(rows), np.int64)


def _best_window(ranges: Int[np.ndarray, "window word 2"], windows: list[Window]) -> Int[np.ndarray, " word"]:
    """Read every word in the window that shows the whole of it and most of its context on the poorer side."""
    length = ranges[..., 1] - ranges[..., 0]
    longest = length.max(axis=0)
    if len(windows) == 1:
        return np.where(longest > 0, 0, -1)
    edges = np.array([(w.content[0], w.content[-1] + 1) for w in windows])
    left = ranges[..., 0] - edges[:, None, 0]
    right = edges[:, None, 1] - ranges[..., 1]
    left[0], right[-1] = edges.max(), edges.max()  # the sentence's own ends cut nothing off
    context = np.where(length == longest, np.minimum(left, right), -1)
    return np.where(longest > 0, context.argmax(axis=0), -1)


def _round_up(share: float) -> str:
    """Two significant digits, never less than the share itself."""
    digits = f"{share * 1.05:.2g}"
    return digits if float(digits) >= share else f"{share * 1.2:.2g}"
