"""A corpus: sentences of words with labels, where words stand in a text, and what a reader may be asked for."""

import hashlib
import html
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from random import Random
from typing import Any, TypeVar

from residuum.errors import CorpusError, SettingError
from residuum.settings import coerced, whole_number

Span = tuple[int, int]
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = {str, int, bool, type(None)}
SHOWN = 200  # characters of a cell in a notebook


def joined_spans(words: Sequence[str]) -> list[Span]:
    """The spans of words that are joined by single spaces."""
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return spans


def located_spans(tokens: Sequence[str], text: str) -> list[Span] | None:
    """The spans of tokens that make up the text apart from white space, or None if they do not."""
    spans, start = [], 0
    for token in tokens:
        start = _skip_space(text, start)
        if not text.startswith(token, start):
            return None
        spans.append((start, start + len(token)))
        start += len(token)
    return spans if _skip_space(text, start) == len(text) else None


def divided_span(span: Span, token: str, words: Sequence[str]) -> list[Span]:
    """The spans of the words of one token: its pieces if the words spell it, else all of it for each."""
    if "".join(words) != token:
        return [span] * len(words)
    spans, start = [], span[0]
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word)
    return spans


def _skip_space(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def split_indices(n: int, sizes: Sequence[float], seed: int = 0) -> list[list[int]]:
    """Disjoint random parts of range(n), each in ascending order: a pure function of (n, sizes, seed).

    `sizes` are whole numbers of sentences (`[900, 100]`) or shares (`[0.9, 0.1]`); what they do not add
    up to stays out. Parallel corpora have the same n, so they get the same parts.
    """
    counts = _counts(n, sizes)
    # Python promises that random() never changes for a seed; it does not promise that of shuffle().
    draw = Random(whole_number("seed", seed))
    order = sorted(range(n), key=lambda _: draw.random())
    bounds = accumulate(counts, initial=0)
    return [sorted(order[start:end]) for start, end in pairwise(bounds)]


def _counts(n: int, sizes: Sequence[float]) -> list[int]:
    sizes = coerced(sizes, Any)
    if not len(sizes) or any(isinstance(size, bool) or not size > 0 for size in sizes):
        raise SettingError(f"sizes are {list(sizes)}; expected positive numbers, such as [900, 100] or [0.9, 0.1].")
    whole = [isinstance(size, int) for size in sizes]
    if not all(whole) and any(whole):
        raise SettingError(f"sizes are {list(sizes)}; expected all whole numbers or all shares, not both.")
    if all(whole):
        counts = [int(size) for size in sizes]
    else:
        if sum(sizes) > 1 + 1e-9:
            raise SettingError(f"sizes are {list(sizes)}, together {sum(sizes):g}; expected shares of at most 1.")
        bounds = [round(n * total) for total in accumulate(sizes, initial=0.0)]
        counts = [end - start for start, end in pairwise(bounds)]
    if sum(counts) > n or 0 in counts:
        raise CorpusError(f"{n} sentences cannot be split into parts of {list(sizes)}.")
    return counts


WordLabels = list[list[str | None]]
SentenceLabels = list[str | float | None]


@dataclass(frozen=True)
class WrittenText:
    """The sentences as their source writes them, and where each word stands in them.

    Words that share a surface token and do not spell it (French `aux` = `à les`) share its span.
    """

    texts: list[str]
    spans: list[list[Span]]
    pair_texts: list[str] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Sentences as lists of words, with labels of words (same shape) and of sentences.

    A label is None where the source annotates nothing. `pairs` are second segments; `choices` are candidates, of
    which the label tells the right one by its place from 0. `ids` are the source's own (CoNLL-U `sent_id`), or, when
    `numbered`, the number of the line, row or sentence in the source. `skipped` counts what the reader left out. The
    lists may be shared: they are for reading only.
    """

    name: str
    sentences: list[list[str]]
    labels: dict[str, WordLabels] = field(default_factory=dict)
    sentence_labels: dict[str, SentenceLabels] = field(default_factory=dict)
    pairs: list[list[str]] | None = None
    ids: list[str] = field(default_factory=list)
    language: str | None = None
    skipped: dict[str, int] = field(default_factory=dict)
    numbered: bool = True
    written: WrittenText | None = None
    choices: list[list[str]] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _is_unicode([self.name]):
            raise CorpusError(f"A corpus has the name {ascii(self.name)[:60]}; expected text.")
        for name, kind in (("sentences", "words"), ("pairs", "words"), ("choices", "texts")):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, plain_rows(getattr(self, name), f"{self.name}, {name}", kind))
        ids = list(map(str, self.ids)) or [str(n) for n in range(1, len(self.sentences) + 1)]
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "labels", {name: _plain_labels(rows, 2) for name, rows in self.labels.items()})
        sentence_labels = {name: _plain_labels(rows, 1) for name, rows in self.sentence_labels.items()}
        object.__setattr__(self, "sentence_labels", sentence_labels)
        lengths = {"ids": len(self.ids)} | {name: len(rows) for name, rows in self.labels.items()}
        lengths |= {name: len(rows) for name, rows in self.sentence_labels.items()}
        if self.pairs is not None:
            lengths["pairs"] = len(self.pairs)
        if self.choices is not None:
            lengths["choices"] = len(self.choices)
        for what, length in lengths.items():
            if length != len(self.sentences):
                raise CorpusError(f"{self.name} has {len(self.sentences)} sentences but {length} entries of {what!r}.")
        n_words = list(map(len, self.sentences))
        for name, rows in self.labels.items():
            found = list(map(len, rows))
            if found != n_words:
                index = next(i for i in range(len(self)) if found[i] != n_words[i])
                raise CorpusError(
                    f"Sentence {self.ids[index]} of {self.name} has {n_words[index]} words, "
                    f"but {found[index]} labels {name!r}; expected one per word."
                )

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def n_words(self) -> int:
        """How many words the sentences have; the second segments of pairs do not count."""
        return sum(map(len, self.sentences))

    def text(self, index: int) -> str:
        """What a model reads of sentence `index`: the text as written if kept, else the words with spaces."""
        return self.written.texts[index] if self.written else " ".join(self.sentences[index])

    def spans(self, index: int) -> list[Span]:
        """The start and end of each word of sentence `index` in `text(index)`, in characters."""
        return self.written.spans[index] if self.written else joined_spans(self.sentences[index])

    def pair_text(self, index: int) -> str | None:
        """The second segment of sentence `index`, or None if the corpus has no pairs."""
        if self.pairs is None:
            return None
        if self.written and self.written.pair_texts is not None:
            return self.written.pair_texts[index]
        return " ".join(self.pairs[index])

    def word_labels(self, name: str) -> WordLabels:
        """Word labels called `name`: a list per sentence, an entry per word. The hub's `ner_tags` are also `ner`."""
        if name not in self.labels and f"{name}_tags" in self.labels:
            return self.labels[f"{name}_tags"]
        if name not in self.labels:
            raise CorpusError(f"{self.name} has no word labels {name!r}; it has {_listed(self.labels)}.")
        return self.labels[name]

    def targets(self, name: str | None = None) -> SentenceLabels:
        """The sentence labels called `name`; without a name, the only ones there are."""
        if name is None and len(self.sentence_labels) == 1:
            return next(iter(self.sentence_labels.values()))
        if name is None or name not in self.sentence_labels:
            asked = "one kind of sentence labels" if name is None else f"sentence labels {name!r}"
            raise CorpusError(f"{self.name} does not have {asked}; it has {_listed(self.sentence_labels)}.")
        return self.sentence_labels[name]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content: what a model reads, and all labels. Name, ids and language do not count."""
        word_labels = [part for name in sorted(self.labels) for part in (name, self.labels[name])]
        sentence_labels = [part for name in sorted(self.sentence_labels) for part in (name, self.sentence_labels[name])]
        return _digest([self.text_fingerprint, "word labels", *word_labels, "sentence labels", *sentence_labels])

    @cached_property
    def text_fingerprint(self) -> str:
        """SHA-256 of what a model reads: words, second segments, candidates and text as written, but no labels."""
        written = self.written
        as_written = [written.texts, written.spans, written.pair_texts or []] if written else []
        choices = ["choices", self.choices] if self.choices is not None else []
        return _digest([self.sentences, "pairs", self.pairs or [], "as written", *as_written, *choices])

    def select(self, indices: Iterable[int]) -> "Corpus":
        """The sentences at `indices`, in that order."""
        chosen = [int(index) for index in indices]
        outside = next((index for index in chosen if not 0 <= index < len(self)), None)
        if outside is not None:
            raise CorpusError(f"There is no sentence {outside} in {self.name}; it has sentences 0 to {len(self) - 1}.")

        def take(rows: list) -> list:
            return [rows[index] for index in chosen]

        written = self.written and WrittenText(
            take(self.written.texts),
            take(self.written.spans),
            None if self.written.pair_texts is None else take(self.written.pair_texts),
        )
        return replace(
            self,
            sentences=take(self.sentences),
            labels={name: take(rows) for name, rows in self.labels.items()},
            sentence_labels={name: take(rows) for name, rows in self.sentence_labels.items()},
            pairs=None if self.pairs is None else take(self.pairs),
            ids=take(self.ids),
            written=written,
            choices=None if self.choices is None else take(self.choices),
        )

    def limit(self, n: int) -> "Corpus":
        """The first `n` sentences, or all if there are fewer."""
        return self.select(range(min(whole_number("limit", n, at_least=1), len(self))))

    def split(self, sizes: Sequence[float], seed: int = 0) -> "list[Corpus]":
        """Disjoint random parts by `split_indices`: equal for every corpus with as many sentences."""
        return [self.select(part) for part in split_indices(len(self), sizes, seed)]

    def __repr__(self) -> str:
        facts = [f"{len(self)} sentences", f"{self.n_words} words"]
        if self.pairs is not None:
            facts.append("pairs")
        if self.choices is not None:
            facts.append("choices")
        if labels := [*self.labels, *self.sentence_labels]:
            facts.append(f"labels: {_listed(labels, at_most=8)}")
        if self.skipped:
            facts.append("left out: " + ", ".join(f"{count} {what}" for what, count in self.skipped.items()))
        return f"Corpus({self.name!r}, " + "; ".join(facts) + ")"

    def _repr_html_(self) -> str:
        heads = ["id", "text", *(["second segment"] if self.pairs is not None else []), *self.sentence_labels]
        rows = [
            [self.ids[i], self.text(i), *([self.pair_text(i)] if self.pairs is not None else [])]
            + [labels[i] for labels in self.sentence_labels.values()]
            for i in range(min(5, len(self)))
        ]
        body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
        return f"<p>{html.escape(repr(self))}</p><table><tr>{_cells(heads, 'th')}</tr>{body}</table>"


def plain_rows(rows: Any, where: str, kind: str = "words") -> list[list[str]]:
    """Lists of texts from whatever holds them (tuples, arrays, generators); what is no text is named by its place."""
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise CorpusError(f"{where}: found {repr(rows)[:60]}; expected a list of {kind} per sentence.")
    plain = list(rows)
    for number, row in enumerate(plain):
        if type(row) is list and not set(map(type, row)) - {str} and _is_unicode(row):
            continue
        place = f"{where}, number {number + 1}"
        if isinstance(row, str | bytes | Mapping) or not isinstance(row, Iterable):
            raise CorpusError(f"{place}: found {repr(row)[:60]}; expected a list of {kind}.")
        texts = list(row)
        for text in texts:
            if not isinstance(text, str):
                raise CorpusError(f"{place}: found {repr(text)[:60]} among its {kind}; expected text.")
        if not _is_unicode(texts):
            raise CorpusError(f"{place}: found half a surrogate pair in {ascii(texts)[:60]}; expected Unicode text.")
        plain[number] = list(map(str, texts))  # numpy's texts become plain ones
    return plain


def _is_unicode(texts: Sequence[str]) -> bool:
    """Whether texts can be written; a lone surrogate, which only programs make, cannot."""
    joined = "".join(texts)
    return joined.isascii() or not _SURROGATE.search(joined)


def _plain_labels(rows: Any, depth: int) -> Any:
    """Labels as plain values in lists, from lists, tuples, arrays or columns; NaN stands for none."""
    if type(rows) is list and depth == 2 and all(type(row) is list for row in rows):
        first = next(filter(None, rows), [])  # of lists only the first is looked at: a treebank has dozens of them
        return rows if not set(map(type, first)) - _PLAIN else [_plain_labels(row, 1) for row in rows]
    if type(rows) is list and depth == 1 and not set(map(type, rows)) - _PLAIN:
        return rows
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise CorpusError(f"Found {repr(rows)[:60]} as labels; expected a list of them.")
    values = list(getattr(rows, "tolist", lambda: rows)())
    if depth == 2:
        return [_plain_labels(row, 1) for row in values]
    values = [value.item() if type(value).__module__ == "numpy" else value for value in values]
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def _listed(names: Iterable[str], at_most: int | None = None) -> str:
    names = list(names)
    shown = names[:at_most]
    more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return (", ".join(shown) or "none") + more


def _digest(parts: Iterable[str | list]) -> str:
    """SHA-256 of JSON, which keeps all boundaries; in slices, so that a large corpus is not copied whole."""
    digest = hashlib.sha256()
    for part in parts:
        rows = [part] if isinstance(part, str) else part
        digest.update(f"{type(part).__name__} {len(rows)}\n".encode())
        for start in range(0, len(rows), 1000):
            digest.update(json.dumps(rows[start : start + 1000]).encode())
    return digest.hexdigest()


def _cells(values: Iterable[object], tag: str) -> str:
    texts = (text if len(text := str(value)) <= SHOWN else text[: SHOWN - 1] + "…" for value in values)
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, the labels that it has, its own id if any, and its text as written if kept."""

    words: list[str]
    labels: dict[str, list[str | None]]
    id: str | None = None
    written: tuple[str, list[Span]] | None = None


def corpus_of_sentences(name: str, sentences: Sequence[Sentence], skipped: Counter[str]) -> Corpus:
    """The corpus of these sentences; where a sentence lacks labels that others have, they are None."""
    names = dict.fromkeys(label for sentence in sentences for label in sentence.labels)
    # most features are absent from most sentences: one list a length saves a third of the memory
    absent: dict[int, list[str | None]] = {n: [None] * n for n in {len(sentence.words) for sentence in sentences}}
    labels: dict[str, WordLabels] = {
        label: [sentence.labels.get(label) or absent[len(sentence.words)] for sentence in sentences] for label in names
    }
    written = [sentence.written for sentence in sentences if sentence.written is not None]
    return Corpus(
        name=name,
        sentences=[sentence.words for sentence in sentences],
        labels=labels,
        ids=[sentence.id or str(number) for number, sentence in enumerate(sentences, 1)],
        numbered=all(sentence.id is None for sentence in sentences),
        skipped={what: count for what, count in skipped.items() if count},
        written=WrittenText([text for text, _ in written], [spans for _, spans in written]) if written else None,
    )


Row = TypeVar("Row")


def join_corpora(parts: Sequence[Corpus], name: str) -> Corpus:
    """The sentences of all parts, one part after another; a label that a part lacks is None there."""
    if not parts:
        raise CorpusError(f"There is nothing to join as {name}; give at least one corpus.")
    for what in ("pairs", "choices"):
        if len({getattr(part, what) is None for part in parts}) > 1:
            raise CorpusError(f"Some parts of {name} have {what} and others have none; join corpora of one kind.")
    written = None
    if any(part.written is not None for part in parts):  # others' words stand with spaces between, as models read them
        places = [(part, index) for part in parts for index in range(len(part))]
        written = WrittenText(
            texts=[part.text(index) for part, index in places],
            spans=[part.spans(index) for part, index in places],
            pair_texts=None if parts[0].pairs is None else [part.pair_text(index) or "" for part, index in places],
        )
    return Corpus(
        name=name,
        sentences=_chained(parts, lambda part: part.sentences),
        labels={
            key: _chained(
                parts, lambda part, key=key: part.labels.get(key) or [[None] * len(s) for s in part.sentences]
            )
            for key in _keys(parts, "labels")
        },
        sentence_labels={
            key: _chained(parts, lambda part, key=key: part.sentence_labels.get(key) or [None] * len(part))
            for key in _keys(parts, "sentence_labels")
        },
        pairs=None if parts[0].pairs is None else _chained(parts, lambda part: part.pairs or []),
        ids=_chained(parts, lambda part: part.ids),
        language=parts[0].language if len({part.language for part in parts}) == 1 else None,
        skipped={key: sum(part.skipped.get(key, 0) for part in parts) for key in _keys(parts, "skipped")},
        numbered=all(part.numbered for part in parts),
        written=written,
        choices=None if parts[0].choices is None else _chained(parts, lambda part: part.choices or []),
    )


def _chained(parts: Sequence[Corpus], rows: Callable[[Corpus], Sequence[Row]]) -> list[Row]:
    return [row for part in parts for row in rows(part)]


def _keys(parts: Sequence[Corpus], table: str) -> list[str]:
    return list(dict.fromkeys(key for part in parts for key in getattr(part, table)))


Column = str | int

_TABLE = frozenset({"text", "pair", "label", "regression", "on_error"})
_DELIMITED = frozenset({"columns", "delimiter", "header"})
_USED_BY = {
    "conllu": frozenset[str](),
    "columns": _DELIMITED,
    "lines": frozenset[str](),
    "sentences": frozenset[str](),
    "tsv": _TABLE | _DELIMITED,
    "csv": _TABLE | _DELIMITED,
    "json": _TABLE,
    "jsonl": _TABLE,
    "parquet": _TABLE,
    "dataset": _TABLE,
}


@dataclass(frozen=True)
class Options:
    """The settings of `read_corpus` that reach the reader of a format."""

    limit: int | None = None
    spacing: str = "words"
    text: Column | None = None
    pair: Column | None = None
    label: Column | None = None
    columns: Sequence[str | None] | None = None
    regression: bool | None = None
    on_error: str = "raise"
    delimiter: str | None = None
    header: bool | None = None  # None: as the first line looks
    part: str | None = None  # the rows of a file with a column of parts that are read

    def __post_init__(self) -> None:
        if self.limit is not None and (not isinstance(self.limit, int) or self.limit < 1):
            raise SettingError(f"limit is {self.limit!r}; expected a whole number of at least 1.")
        if self.spacing not in ("words", "text"):
            raise SettingError(f"spacing is {self.spacing!r}; expected 'words' or 'text'.")
        if self.on_error not in ("raise", "skip"):
            raise SettingError(f"on_error is {self.on_error!r}; expected 'raise' or 'skip'.")
        if self.pair is not None and self.text is None:
            raise SettingError(f"pair is {self.pair!r} without text; name the column of the first segment too.")

    @property
    def as_written(self) -> bool:
        """Whether the text is kept as its source writes it."""
        return self.spacing == "text"

    def check_for(self, format: str) -> None:
        """Refuse a setting that the format has no use for, rather than pass over it."""
        changed = {name for name in _TABLE | _DELIMITED if getattr(self, name) != getattr(Options, name)}
        if unused := changed - _USED_BY[format]:
            name = min(unused)
            value = getattr(self, name)
            raise SettingError(f"{name} is {value!r}, but means nothing for the format {format!r}; leave it out.")
