"""Stores with activations that are known, and labels that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from made_stores import made_store
from residuum.activations.store import ActivationStore

WORDS = ("red", "blue", "green", "old", "new", "run", "walk", "see", "say", "go")
TAGS = {word: ("COLOUR" if i < 3 else "AGE" if i < 5 else "VERB") for i, word in enumerate(WORDS)}
WIDTH, N_LAYERS = 6, 3
INFORMATIVE = {"COLOUR": (1, 2), "AGE": (1, 4), "VERB": (2, 0)}
"""The neuron (layer, index) that is high on each tag; all others are noise."""
IDS = {tag: f"{layer}:{index}" for tag, (layer, index) in INFORMATIVE.items()}


def tagged_sentences(n: int = 150, seed: int = 0) -> list[list[str]]:
    """Sentences of six words drawn by lot."""
    generator = np.random.default_rng(seed)
    return [generator.choice(WORDS, 6).tolist() for _ in range(n)]


def tagged_activations(sentences: Sequence[Sequence[str]], seed: int = 0, signal: float = 3.0) -> np.ndarray:
    """Three layers of six neurons: noise, and three neurons that each tell one tag from the others."""
    words = [word for sentence in sentences for word in sentence]
    x = np.random.default_rng(seed).standard_normal((len(words), N_LAYERS, WIDTH)).astype(np.float32)
    for tag, (layer, index) in INFORMATIVE.items():
        x[:, layer, index] += signal * np.array([TAGS[word] == tag for word in words])
    return x


def tagged_store(folder: Path, sentences: Sequence[Sequence[str]], **options: int) -> ActivationStore:
    """A store in which three neurons know the tags."""
    return made_store(folder, sentences, tagged_activations(sentences), **options)


def tags(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    """The tag of every word."""
    return [[TAGS[word] for word in sentence] for sentence in sentences]
