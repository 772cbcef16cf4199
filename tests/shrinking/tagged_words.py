"""A task that tiny models can do: the tag of a word is told by the word itself."""

from __future__ import annotations

import numpy as np

from residuum.corpus import Corpus
from residuum.maths.probing import PaperRecipe

KINDS = {
    "NOUN": ["fox", "dog", "model", "text", "word"],
    "VERB": ["jumps", "reads"],
    "OTHER": ["the", "a", "over", "by", "quick", "brown", "lazy", "small"],
}
TAG = {word: tag for tag, words in KINDS.items() for word in words}
RECIPE = PaperRecipe(epochs=15, batch_size=32, learning_rate=0.05)
"""Tiny networks and few words: large steps learn the task in a second."""


def tagged_corpus(n_sentences: int = 80, seed: int = 0) -> Corpus:
    """Sentences of random words; `upos` tags each, the sentence label says whether the first is a noun."""
    rng = np.random.default_rng(seed)
    sentences = [list(map(str, rng.choice(list(TAG), size))) for size in rng.integers(2, 9, n_sentences)]
    return Corpus(
        "tagged",
        sentences,
        labels={"upos": [[TAG[word] for word in words] for words in sentences]},
        sentence_labels={"label": ["noun" if TAG[words[0]] == "NOUN" else "other" for words in sentences]},
    )


def numbered_corpus(n_sentences: int = 80, seed: int = 0) -> Corpus:
    """Pairs of sentences; the number to predict is the share of nouns in both."""
    corpus, other = tagged_corpus(n_sentences, seed), tagged_corpus(n_sentences, seed + 1)
    shares = [
        float(np.mean([TAG[word] == "NOUN" for word in (*first, *second)]))
        for first, second in zip(corpus.sentences, other.sentences, strict=True)
    ]
    return Corpus("numbered", corpus.sentences, pairs=other.sentences, sentence_labels={"score": list(shares)})
