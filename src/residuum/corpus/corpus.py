"""The corpus: sentences as lists of words, and what is known of each word and sentence."""

import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from residuum.corpus.spans import Span, joined_spans
from residuum.corpus.splitting import split_indices
from residuum.errors import CorpusError, SettingError

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
        if not self.ids:
            object.__setattr__(self, "ids", [str(number) for number in range(1, len(self.sentences) + 1)])
        self._check_lengths()
        self._check_word_labels()

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
        """The word labels called `name`: one list a sentence, one entry a word. The hub's `ner_tags` are also `ner`."""
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
        if n < 1:
            raise SettingError(f"limit is {n}; expected at least 1 sentence.")
        return self.select(range(min(n, len(self))))

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

    def _check_lengths(self) -> None:
        lengths = {"ids": len(self.ids)} | {name: len(rows) for name, rows in self.labels.items()}
        lengths |= {name: len(rows) for name, rows in self.sentence_labels.items()}
        if self.pairs is not None:
            lengths["pairs"] = len(self.pairs)
        if self.choices is not None:
            lengths["choices"] = len(self.choices)
        for what, length in lengths.items():
            if length != len(self.sentences):
                raise CorpusError(f"{self.name} has {len(self.sentences)} sentences but {length} entries of {what!r}.")

    def _check_word_labels(self) -> None:
        lengths = list(map(len, self.sentences))
        for name, rows in self.labels.items():
            found = list(map(len, rows))
            if found != lengths:
                index = next(i for i in range(len(self)) if found[i] != lengths[i])
                raise CorpusError(
                    f"Sentence {self.ids[index]} of {self.name} has {lengths[index]} words, "
                    f"but {found[index]} labels {name!r}; expected one a word."
                )


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
    return "".join(f"<{tag}>{html.escape(_shortened(str(value)))}</{tag}>" for value in values)


def _shortened(text: str, length: int = 200) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
