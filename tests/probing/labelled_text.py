"""A text with three kinds of labels, of which one is known for some words only."""

from __future__ import annotations

from itertools import cycle, islice

from residuum.corpus import Corpus
from tiny import TEXT

TAGS = ("DET", "NOUN", "VERB")


def labelled_text(n_sentences: int = 40, name: str = "text") -> Corpus:
    """Sentences of several scripts; the labels follow from the words."""
    sentences = [line.split() for line in islice(cycle(TEXT), n_sentences)]
    tags = [[TAGS[(place + len(word)) % 3] for place, word in enumerate(words)] for words in sentences]
    lengths = [["odd" if len(word) % 2 else "even" for word in words] for words in sentences]
    some = [[tag if tag != "DET" else None for tag in row] for row in tags]
    return Corpus(name, sentences, {"upos": tags, "length": lengths, "some": some})
