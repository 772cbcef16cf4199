"""Several corpora as one."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from residuum.corpus.corpus import Corpus, WrittenText
from residuum.errors import CorpusError

Row = TypeVar("Row")


def join_corpora(parts: Sequence[Corpus], name: str) -> Corpus:
    """The sentences of all parts, one part after another; a label that a part lacks is None there."""
    if not parts:
        raise CorpusError(f"There is nothing to join as {name}; give at least one corpus.")
    for what in ("pairs", "choices"):
        if len({getattr(part, what) is None for part in parts}) > 1:
            raise CorpusError(f"Some parts of {name} have {what} and others have none; join corpora of one kind.")
    return Corpus(
        name=name,
        sentences=_chained(parts, lambda part: part.sentences),
        labels={key: _chained(parts, _word_rows(key)) for key in _keys(parts, "labels")},
        sentence_labels={key: _chained(parts, _sentence_rows(key)) for key in _keys(parts, "sentence_labels")},
        pairs=None if parts[0].pairs is None else _chained(parts, lambda part: part.pairs or []),
        ids=_chained(parts, lambda part: part.ids),
        language=parts[0].language if len({part.language for part in parts}) == 1 else None,
        skipped={key: sum(part.skipped.get(key, 0) for part in parts) for key in _keys(parts, "skipped")},
        numbered=all(part.numbered for part in parts),
        written=_joined_text(parts),
        choices=None if parts[0].choices is None else _chained(parts, lambda part: part.choices or []),
    )


def _chained(parts: Sequence[Corpus], rows: Callable[[Corpus], Sequence[Row]]) -> list[Row]:
    return [row for part in parts for row in rows(part)]


def _keys(parts: Sequence[Corpus], table: str) -> list[str]:
    return list(dict.fromkeys(key for part in parts for key in getattr(part, table)))


def _word_rows(key: str) -> Callable[[Corpus], list[list[str | None]]]:
    return lambda part: part.labels.get(key) or [[None] * len(words) for words in part.sentences]


def _sentence_rows(key: str) -> Callable[[Corpus], list[str | float | None]]:
    return lambda part: part.sentence_labels.get(key) or [None] * len(part)


def _joined_text(parts: Sequence[Corpus]) -> WrittenText | None:
    """The text as written where any part has it; the others' words stand with spaces between them, as models read."""
    if all(part.written is None for part in parts):
        return None
    everywhere = [(part, index) for part in parts for index in range(len(part))]
    return WrittenText(
        texts=[part.text(index) for part, index in everywhere],
        spans=[part.spans(index) for part, index in everywhere],
        pair_texts=None if parts[0].pairs is None else [part.pair_text(index) or "" for part, index in everywhere],
    )
