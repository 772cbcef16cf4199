"""Sentences one by one, as the readers of treebanks and column files find them, put together as a corpus."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from residuum.corpus.corpus import Corpus, WordLabels, WrittenText
from residuum.corpus.spans import Span


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
