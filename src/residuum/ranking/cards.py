"""Neuron cards: the words that a neuron reacts to, its activations in context, and what it does in each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from residuum.examples import Examples
from residuum.maths.features import windows

TOP_WORDS = 10
MIN_COUNT = 3
"""Occurrences below which a word's mean says more about the occurrence than about the word."""
CONTEXTS = 5
CONTEXT_WORDS = 12
"""Words that are shown on either side of the one that a neuron reacts to most."""
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


@dataclass(frozen=True, eq=False)
class Cards:
    """Three tables with a row for each neuron and word, neuron and word in context, neuron and class."""

    words: pd.DataFrame
    contexts: pd.DataFrame
    classes: pd.DataFrame


def neuron_cards(examples: Examples, columns: Int[np.ndarray, " neuron"], max_memory: int) -> Cards:
    """Cards of some neurons over some examples; only these neurons are held.

    `z` is (activation − mean) / deviation over these examples, so that neurons compare. A neuron's sign means
    nothing: words are listed from both of its ends.
    """
    ids = examples.layout.format(columns.tolist())
    x = _activations(examples, columns, max_memory)
    tables: list[list[pd.DataFrame]] = [[], [], []]
    for place, neuron in enumerate(ids):
        own, z = x[:, place], _standardised(x[:, place])
        parts = (
            _top_words(examples.words, own, z),
            _contexts(examples, own, z),
            _by_class(examples.labels, own),
        )
        for table, part in zip(tables, parts, strict=True):
            part.insert(0, "neuron", neuron)
            table.append(part)
    words, contexts, classes = (pd.concat(table, ignore_index=True) for table in tables)
    return Cards(words, contexts, classes)


def _activations(
    examples: Examples, columns: Int[np.ndarray, " neuron"], max_memory: int
) -> Float[np.ndarray, "example neuron"]:
    x = np.empty((len(examples), len(columns)), np.float32)
    for window in windows(examples.features(max_memory, columns)):
        x[window.words] = window.x
    return x


def _standardised(own: Float[np.ndarray, " example"]) -> Float[np.ndarray, " example"]:
    centred = own.astype(np.float64) - own.mean(dtype=np.float64)
    deviation = np.sqrt(np.mean(centred**2))
    return centred / deviation if deviation > 1e-7 * np.abs(own).max() else np.zeros_like(centred)


def _top_words(
    words: Sequence[str], own: Float[np.ndarray, " example"], z: Float[np.ndarray, " example"]
) -> pd.DataFrame:
    """The word types with the highest and with the lowest mean, among those that occur often enough."""
    types, place, counts = np.unique(np.array(words, dtype=object), return_inverse=True, return_counts=True)
    mean, mean_z = (np.bincount(place, weights=values) / counts for values in (own, z))
    usable = np.flatnonzero(counts >= min(MIN_COUNT, counts.max()))
    ordered = usable[np.argsort(-mean_z[usable], kind="stable")]
    half = min(TOP_WORDS, -(-len(ordered) // 2))
    ends = {"high": ordered[:half], "low": ordered[::-1][: min(TOP_WORDS, len(ordered) - half)]}
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "end": end,
                    "rank": np.arange(1, len(chosen) + 1),
                    "word": types[chosen],
                    "mean": mean[chosen],
                    "z": mean_z[chosen],
                    "count": counts[chosen],
                }
            )
            for end, chosen in ends.items()
        ],
        ignore_index=True,
    )


def _contexts(examples: Examples, own: Float[np.ndarray, " example"], z: Float[np.ndarray, " example"]) -> pd.DataFrame:
    """The sentences with the strongest reactions, each once: every word around the strongest one, with its value."""
    strongest = np.argsort(-np.abs(z), kind="stable")
    _, first = np.unique(examples.sentences[strongest], return_index=True)
    peaks = strongest[np.sort(first)[:CONTEXTS]]
    tables = []
    for rank, peak in enumerate(peaks.tolist(), start=1):
        around = slice(max(peak - CONTEXT_WORDS, 0), peak + CONTEXT_WORDS + 1)
        near = np.arange(around.start, min(around.stop, len(own)))
        near = near[examples.sentences[near] == examples.sentences[peak]]
        tables.append(
            pd.DataFrame(
                {
                    "context": rank,
                    "sentence": examples.sentences[near],
                    "position": examples.store.row_words[examples.rows[near], 1],
                    "word": [examples.words[i] for i in near.tolist()],
                    "label": [str(examples.labels[i]) for i in near.tolist()],
                    "activation": own[near],
                    "z": z[near],
                    "peak": near == peak,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def _by_class(labels: Sequence[str] | np.ndarray, own: Float[np.ndarray, " example"]) -> pd.DataFrame:
    """Count, mean, deviation and quantiles of a neuron in each class; of numbers, in their lower and upper halves."""
    if isinstance(labels, np.ndarray):
        middle = float(np.median(labels))
        labels = [f"at most {middle:g}" if value <= middle else f"above {middle:g}" for value in labels]
    groups = pd.Series(own.astype(np.float64)).groupby(np.array(labels, dtype=object))
    quantiles = {name: groups.quantile(share) for name, share in QUANTILES.items()}
    table = pd.DataFrame({"count": groups.size(), "mean": groups.mean(), "sd": groups.std(ddof=0), **quantiles})
    return table.rename_axis("label").reset_index()
