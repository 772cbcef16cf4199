"""Stores and labels with known contents: what a layer knows is put there by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

from residuum.activations import foreign
from residuum.activations.exchange import import_activations
from residuum.activations.store import ActivationStore

TAGS = ("ADJ", "NOUN", "VERB")
NOISE, TAG, BOTH = 0, 1, 2  # what the layers of `known_data` are
HIDDEN = 8


@dataclass(frozen=True, eq=False)
class KnownData:
    """Sentences, a tag for each word, and activations: words × layers × hidden."""

    sentences: list[list[str]]
    tags: list[list[str]]
    activations: np.ndarray

    def store(self, folder: Path, **options: int) -> ActivationStore:
        """The activations as a store."""
        return made_store(folder, self.sentences, self.activations, **options)


def known_data(n_sentences: int = 120, seed: int = 0, n_types: int = 12) -> KnownData:
    """Tags that no word tells. Layer 0 knows the word alone, layer 1 the tag alone, layer 2 both."""
    rng = np.random.default_rng(seed)
    kinds = np.random.default_rng(99).standard_normal((n_types, HIDDEN))  # the same whatever the seed
    directions = np.random.default_rng(98).standard_normal((len(TAGS), HIDDEN))
    lengths = rng.integers(3, 9, n_sentences)
    words, tags = rng.integers(0, n_types, lengths.sum()), rng.integers(0, len(TAGS), lengths.sum())
    noise = 0.1 * rng.standard_normal((3, lengths.sum(), HIDDEN))
    layers = [kinds[words] + noise[0], directions[tags] + noise[1], kinds[words] + directions[tags] + noise[2]]
    stops = np.cumsum(lengths)[:-1]
    return KnownData(
        [[f"w{word}" for word in part] for part in np.split(words, stops)],
        [[TAGS[tag] for tag in part] for part in np.split(tags, stops)],
        np.stack(layers, axis=1).astype(np.float32),
    )


def made_store(
    folder: Path, sentences: list[list[str]], activations: np.ndarray, *, shard_words: int = 100
) -> ActivationStore:
    """A store of given activations: words × layers × hidden."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_suffix(".npz")
    np.savez(
        file,
        activations=activations,
        layers=np.arange(activations.shape[1]),
        sentence=np.repeat(np.arange(len(sentences)), [len(words) for words in sentences]),
        word=np.array([word for words in sentences for word in words]),
    )
    return import_activations(file, folder, shard_words=shard_words)


def conllu(sentences: list[list[str]], tags: list[list[str]]) -> str:
    """Sentences and their tags as a treebank."""
    parts = []
    for number, (words, own) in enumerate(zip(sentences, tags, strict=True), 1):
        rows = [
            f"{i}\t{word}\t_\t{tag}\t_\t_\t{i - 1}\t{'dep' if i > 1 else 'root'}\t_\t_"
            for i, (word, tag) in enumerate(zip(words, own, strict=True), 1)
        ]
        parts.append("\n".join([f"# sent_id = s{number}", *rows, "", ""]))
    return "".join(parts)


def broken_store(folder: Path, sentences: list[list[str]], activations: np.ndarray) -> ActivationStore:
    """A store that holds what is not finite, which import refuses."""
    with patch.object(foreign, "_finite", lambda path, where, values: values):
        return made_store(folder, sentences, activations)
