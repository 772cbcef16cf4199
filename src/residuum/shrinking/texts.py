"""From what a caller holds (texts, lists of words, pairs, labels) to a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from residuum.corpus import Corpus
from residuum.errors import CorpusError, SettingError

Text = str | Sequence[str]
"""A text whose words stand between spaces, or its words; of a task on pairs: the two segments."""


def corpus_of(texts: Iterable[Text], *, unit: str, pairs: bool = False, name: str = "texts") -> Corpus:
    """The corpus of some texts. Words are what stands between white space, unless they come as a list."""
    if isinstance(texts, str):
        raise SettingError("Found one text; expected a list of texts.")
    given = list(texts)
    if pairs:
        segments = [_segments(text, number) for number, text in enumerate(given)]
        firsts, seconds = [first for first, _ in segments], [second for _, second in segments]
        return Corpus(name, firsts, pairs=seconds)
    sentences = [_words(text, number) for number, text in enumerate(given)]
    if unit == "sentence":
        _check_not_empty(sentences)
    return Corpus(name, sentences)


def labelled_corpus(texts: Iterable[Text], labels: Sequence[Any], *, unit: str, regression: bool) -> Corpus:
    """The corpus of some texts and the labels that came with them: a list for each text of a word task, else one.

    What is labelled None has no label: it is read with its sentence, but nothing is learnt from it.
    """
    given = list(texts)
    if len(given) != len(labels):
        raise CorpusError(f"{len(given)} texts came with {len(labels)} labels; expected one (or one list) for each.")
    pairs = unit == "sentence" and bool(given) and not isinstance(given[0], str)
    corpus = corpus_of(given, unit=unit, pairs=pairs)
    if unit == "word":
        rows = [[_known(label, str) for label in row] for row in labels]
        return Corpus(corpus.name, corpus.sentences, labels={"labels": rows})
    values = [_known(label, float if regression else str) for label in labels]
    return Corpus(corpus.name, corpus.sentences, sentence_labels={"labels": values}, pairs=corpus.pairs)


def _known(label: Any, kind: Callable[[Any], Any]) -> Any:
    return None if label is None else kind(label)


def _words(text: Text, number: int) -> list[str]:
    if isinstance(text, str):
        return text.split()
    words = list(text)
    if wrong := [word for word in words if not isinstance(word, str) or not word or word.isspace()]:
        raise CorpusError(f"Text {number} has the word {wrong[0]!r}; expected words that are not empty.")
    return words


def _segments(text: Text, number: int) -> tuple[list[str], list[str]]:
    parts = [text] if isinstance(text, str) else list(text)
    if len(parts) != 2 or not all(isinstance(part, str) and part.split() for part in parts):
        raise CorpusError(f"Text {number} is {str(text)[:60]!r}; expected two segments: the task is about pairs.")
    return parts[0].split(), parts[1].split()


def _check_not_empty(sentences: list[list[str]]) -> None:
    empty = next((number for number, words in enumerate(sentences) if not words), None)
    if empty is not None:
        raise CorpusError(f"Text {empty} is empty; expected at least one word.")
