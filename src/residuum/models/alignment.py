"""Words ↔ sub-words of any fast tokenizer, by character offsets, and the audit of what was lost on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from residuum.errors import CorpusError, ModelError, clear_panics
from residuum.storage.notebook import facts_html

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase

SHOWN = 5  # how many lost words an error message quotes
AT_ONCE = 1 << 16  # characters whose encodings are held together; a longer text is encoded alone
SAMPLED = 2_000  # characters of a text by which its tokens are guessed
ENCODED_BYTES = 1_000  # what a token takes while its sentence is encoded and aligned


@dataclass(frozen=True)
class Window:
    """A run of tokens that the model reads at once: a whole sentence, or a part of one that is too long."""

    ids: list[int]
    types: list[int]
    content: Int[np.ndarray, " token"]  # positions that are not special tokens


@dataclass(frozen=True)
class Alignment:
    """One sentence as the model reads it: its windows and, for each word, where its sub-words are.

    Each window lists only the words that have sub-words in it (`words_in`), so that all of it grows with the sentence
    and not with its square. A word is read in window `choice[w]` (none: −1).
    """

    windows: list[Window]
    places: WordPlaces
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

    def words_in(self, window: int) -> WordPlaces:
        """The words that have sub-words in a window, and where."""
        return self.places.part(self._bounds[window], self._bounds[window + 1])

    def words_read_in(self, window: int) -> WordPlaces:
        """The words that are read in a window: those of `words_in` that no other window shows better."""
        here = self.words_in(window)
        return here.part(self.choice[here.word] == window)

    @cached_property
    def row(self) -> Int[np.ndarray, " word"]:
        """The number of each word among those that are kept."""
        return np.cumsum(self.choice >= 0) - 1

    @cached_property
    def n_content(self) -> int:
        """The tokens of all windows that are not special; a token that two windows show counts twice."""
        return sum(len(window.content) for window in self.windows)

    @cached_property
    def _bounds(self) -> list[int]:
        return np.searchsorted(self.places.window, np.arange(len(self.windows) + 1)).tolist()


@dataclass(frozen=True)
class WordPlaces:
    """Where words stand in windows, ordered by window and word: sub-words are the tokens first … stop − 1."""

    window: Int[np.ndarray, " place"]
    word: Int[np.ndarray, " place"]
    first: Int[np.ndarray, " place"]
    stop: Int[np.ndarray, " place"]

    def part(self, start: Any, stop: int | None = None) -> WordPlaces:
        """Places start … stop − 1, or those of a mask."""
        chosen = start if stop is None else slice(start, stop)
        return WordPlaces(self.window[chosen], self.word[chosen], self.first[chosen], self.stop[chosen])

    def __len__(self) -> int:
        return len(self.window)


class Aligner:
    """Aligns sentences for one tokenizer; long sentences are read in overlapping windows, so that no word is lost.

    The tokenizer's own padding and truncation are switched off (some ship with a limit of 128 tokens), and special
    tokens that occur in the text are read as plain text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, window: int | None, overlap: float = 0.5) -> None:
        from tokenizers import Tokenizer

        core = getattr(tokenizer, "backend_tokenizer", None)
        if core is None:
            raise ModelError(
                f"{type(tokenizer).__name__} gives no character offsets; a fast tokenizer (tokenizer.json) is needed."
            )
        self.backend = Tokenizer.from_str(core.to_str())  # a copy: the other one keeps its padding and truncation
        self.backend.no_padding()
        self.backend.no_truncation()
        self.backend.encode_special_tokens = True
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
        aligned: list[Alignment] = []
        for run in _runs(texts):
            with clear_panics(bare=True):
                encodings = [[first, *first.overflowing] for first in self.backend.encode_batch(list(texts[run]))]
            places = _word_places(encodings, spans[run])
            aligned += [
                self._align_one([_window(part) for part in parts], placed, len(words))
                for parts, placed, words in zip(encodings, places, spans[run], strict=True)
            ]
        return aligned

    def encoded_bytes(self, text: str) -> int:
        """About what a text takes while it is aligned, by the tokens of its beginning."""
        self.backend.no_truncation()
        beginning = text[:SAMPLED]
        with clear_panics(bare=True):
            tokens = len(self.backend.encode(beginning)) * len(text) / max(len(beginning), 1)
        return int(tokens * ENCODED_BYTES)

    def align_pairs(self, texts: Sequence[str], pairs: Sequence[str]) -> list[Alignment]:
        """Encode pairs of segments for sentence tasks; the longer one is cut where both do not fit."""
        self.backend.no_truncation()
        if self.window is not None:
            self.backend.enable_truncation(self.window, strategy="longest_first")
        with clear_panics(bare=True):
            encodings = self.backend.encode_batch(list(zip(texts, pairs, strict=True)))
        aligned = []
        for encoding, text, pair in zip(encodings, texts, pairs, strict=True):
            window, truncated = _window(encoding), 0
            for k, segment in enumerate((text, pair) if encoding.overflowing else ()):  # words after the last token
                ends = [stop for (_, stop), s in zip(encoding.offsets, encoding.sequence_ids, strict=True) if s == k]
                truncated += len(segment[max(ends, default=0) :].split())
            nowhere = np.zeros(0, dtype=np.int64)
            alignment = Alignment(
                windows=[window],
                places=WordPlaces(nowhere, nowhere, nowhere, nowhere),
                choice=nowhere,
                n_words=len(text.split()) + len(pair.split()),
                n_subwords=len(window.content),
                unknown=sum(encoding.ids[i] == self.unknown_id for i in window.content),
                truncated=truncated,
            )
            aligned.append(alignment)
        return aligned

    def _align_one(self, windows: list[Window], places: WordPlaces, n_words: int) -> Alignment:
        length = places.stop - places.first
        longest = np.zeros(n_words, dtype=np.int64)
        np.maximum.at(longest, places.word, length)
        whole = places.part(length == longest[places.word])
        choice = _best_window(whole, windows, n_words)
        read, unknown = whole.part(choice[whole.word] == whole.window), 0
        if self.unknown_id is not None and any(self.unknown_id in w.ids for w in windows):
            spots = zip(read.window.tolist(), read.first.tolist(), read.stop.tolist(), strict=True)
            unknown = sum(self.unknown_id in windows[v].ids[first:stop] for v, first, stop in spots)
        return Alignment(
            windows=windows,
            places=places,
            choice=choice,
            n_words=n_words,
            n_subwords=int(longest.sum()),
            unknown=unknown,
        )


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
            share = self.lost / total_words
            digits = f"{share * 1.05:.2g}"  # two significant digits, never less than the share itself
            enough = digits if float(digits) >= share else f"{share * 1.2:.2g}"
            raise CorpusError(
                f"{self.lost} of {total_words} words are lost ({self.dropped} have no sub-word, {self.truncated} are "
                f"cut off): {'; '.join(self.examples)}. Remove them, or allow it with --max-loss {enough}."
            )

    def check_rest(self) -> None:
        """Fail where not one word is left."""
        if self.lost == self.words > 0:
            raise CorpusError(
                f"All {self.words:,} words are lost, so that nothing is left: {'; '.join(self.examples)}."
            )

    def _repr_html_(self) -> str:
        facts = {f.name: f"{getattr(self, f.name):,}" for f in fields(self) if f.name != "examples"}
        if self.examples:
            facts["examples"] = "; ".join(self.examples)
        return facts_html("What became of the words", facts)

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


def _runs(texts: Sequence[str]) -> Iterator[slice]:
    """Neighbouring texts of at most `AT_ONCE` characters together, or one that is longer."""
    start = size = 0
    for i, text in enumerate(texts):
        if size + len(text) > AT_ONCE and i > start:
            yield slice(start, i)
            start, size = i, 0
        size += len(text)
    if start < len(texts):
        yield slice(start, len(texts))


def _window(encoding: Encoding) -> Window:
    content = np.flatnonzero(np.array(encoding.special_tokens_mask, dtype=np.int64) == 0)
    return Window(encoding.ids, encoding.type_ids, content)


def _word_places(
    encodings: Sequence[Sequence[Encoding]], spans: Sequence[Sequence[tuple[int, int]]]
) -> list[WordPlaces]:
    """For each sentence the words of each window, with the first and one past the last token that overlaps each.

    All windows of all sentences are searched at once: each sentence has its own stretch of one long line of characters,
    and every token looks for the words that it overlaps. Neither tokens nor words need to ascend.
    """
    parts = [part for sentence in encodings for part in sentence]
    tokens = _Tokens.of(parts)
    n_windows, n_words = _lengths(encodings), _lengths(spans)
    words = _pairs(chain.from_iterable(spans))
    stretch = 1 + max(tokens.offsets.max(initial=0), words.max(initial=0))
    words += np.repeat(np.arange(len(spans)) * stretch, n_words)[:, None]
    sentence = np.repeat(np.arange(len(encodings)), n_windows)
    token, word = _overlaps(tokens.offsets + (sentence[tokens.part] * stretch)[:, None], words)
    place = tokens.part[token] * len(words) + word
    order = np.argsort(place, kind="stable")  # the tokens of a place stay in their order
    token, word, part = token[order], word[order], tokens.part[token[order]]
    begins = np.flatnonzero(np.diff(place[order], prepend=-1))
    ends = np.append(begins, len(order))[1:] - 1
    first_part = np.cumsum(n_windows) - n_windows
    first_word = np.cumsum(n_words) - n_words
    of = sentence[part[begins]]
    places = WordPlaces(
        part[begins] - first_part[of],
        word[begins] - first_word[of],
        tokens.position[token[begins]],
        tokens.position[token[ends]] + 1,
    )
    bounds = np.searchsorted(of, np.arange(len(encodings) + 1)).tolist()
    return [places.part(start, stop) for start, stop in pairwise(bounds)]


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


def _overlaps(
    tokens: Int[np.ndarray, "token 2"], words: Int[np.ndarray, "word 2"]
) -> tuple[Int[np.ndarray, " overlap"], Int[np.ndarray, " overlap"]]:
    """The numbers of the tokens and words whose characters overlap, one pair after another.

    Of words in the order of their starts, those that a token can overlap follow each other: the first that ends, or has
    one before it that ends, after the token's start, up to the last that starts before the token's end.
    """
    order = np.argsort(words[:, 0], kind="stable")
    starts, stops = words[order].T
    first = np.searchsorted(np.maximum.accumulate(stops), tokens[:, 0], side="right")
    count = np.maximum(np.searchsorted(starts, tokens[:, 1], side="left") - first, 0)
    token = np.repeat(np.arange(len(tokens)), count)
    place = np.arange(len(token)) - np.repeat(np.cumsum(count) - count - first, count)
    overlapping = stops[place] > tokens[token, 0]
    return token[overlapping], order[place[overlapping]]


def _lengths(rows: Sequence[Sequence[object] | Encoding]) -> Int[np.ndarray, " row"]:
    return np.fromiter(map(len, rows), np.int64, len(rows))


def _pairs(pairs: Iterable[tuple[int, int]]) -> Int[np.ndarray, "_ 2"]:
    return _flat(pairs).reshape(-1, 2)


def _flat(rows: Iterable[Sequence[int]]) -> Int[np.ndarray, " _"]:
    return np.fromiter(chain.from_iterable(rows), np.int64)


def _best_window(whole: WordPlaces, windows: list[Window], n_words: int) -> Int[np.ndarray, " word"]:
    """Read every word in the first of the windows that show all of it and most of its context on the poorer side."""
    choice = np.full(n_words, -1)
    left_edge = np.array([w.content[0] if w.content.size else 0 for w in windows])
    right_edge = np.array([w.content[-1] + 1 if w.content.size else 0 for w in windows])
    left = np.where(whole.window == 0, right_edge.max(), whole.first - left_edge[whole.window])
    right = np.where(whole.window == len(windows) - 1, right_edge.max(), right_edge[whole.window] - whole.stop)
    best_last = np.lexsort((-whole.window, np.minimum(left, right)))  # the sentence's own ends cut nothing off
    choice[whole.word[best_last]] = whole.window[best_last]
    return choice
