"""Neuron cards: the words that a neuron reacts to, its activations in context, and what it does in each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Float

from residuum.maths.features import check_finite, constant_columns, windows
from residuum.maths.neuron_ids import split_id
from residuum.probing.examples import Examples, whole_store

TOP_WORDS = 10
MIN_COUNT = 3
"""Occurrences below which a word's mean says more about the occurrence than about the word."""
CONTEXTS = 5
CONTEXT_WORDS = 12
"""Words that are shown on either side of the one that a neuron reacts to most."""
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}

Activations = Float[np.ndarray, " row"]


def card_tables(
    rows: Examples, neurons: Sequence[str], max_memory: int, labelled: Examples | None = None
) -> dict[str, pd.DataFrame]:
    """`card_words` and `card_contexts` of neurons over some rows; of those that are `labelled` also `card_classes`.

    `z` is (activation − mean) / deviation over the rows, so that neurons compare; it is 0 where a neuron is constant.
    Its sign means nothing: words are listed from both of its ends. One layer is held at a time.
    """
    places = np.empty(0, np.int64) if labelled is None else np.searchsorted(rows.rows, labelled.rows)
    labels = None if labelled is None else dict(zip(places.tolist(), map(str, labelled.labels), strict=True))
    activations = _activations(rows, neurons, max_memory)
    tables: dict[str, list[pd.DataFrame]] = {}
    for neuron, (own, z) in activations.items():
        parts = {"card_words": _top_words(rows.words, own, z), "card_contexts": _contexts(rows, labels, own, z)}
        if labelled is not None:
            parts["card_classes"] = _by_class(labelled.labels, own[places])
        for name, part in parts.items():
            part.insert(0, "neuron", neuron)
            tables.setdefault(name, []).append(part)
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}


def card_of(tables: Mapping[str, pd.DataFrame], neuron: str) -> dict[str, pd.DataFrame]:
    """The tables of one neuron, `words`, `contexts` and `classes`; those of a neuron without a card are empty."""
    own = {name.removeprefix("card_"): table for name, table in tables.items() if name.startswith("card_")}
    return {
        name: table.loc[table["neuron"] == neuron].drop(columns="neuron").reset_index(drop=True)
        for name, table in own.items()
    }


def _activations(rows: Examples, neurons: Sequence[str], max_memory: int) -> dict[str, tuple[Activations, Activations]]:
    """Each neuron's activations, as they are and as z; whether it is constant is asked among the whole of its layer."""
    found = {}
    for layer in dict.fromkeys(split_id(neuron)[0] for neuron in neurons):
        own = replace(rows, store=whole_store(rows.store, layers=[layer]))
        ids = [neuron for neuron in neurons if split_id(neuron)[0] == layer]
        columns, features = own.layout.parse(ids), own.features(max_memory)
        x = np.empty((len(own), len(ids)), np.float32)
        for window in windows(features):
            check_finite(window)
            x[window.words] = window.x[:, columns]
        constant = constant_columns(features)[columns]
        for place, neuron in enumerate(ids):
            found[neuron] = x[:, place], _standardised(x[:, place], bool(constant[place]))
    return {neuron: found[neuron] for neuron in neurons}


def _standardised(own: Activations, constant: bool) -> Activations:
    centred = own.astype(np.float64) - own.mean(dtype=np.float64)
    return np.zeros_like(centred) if constant else centred / np.sqrt(np.mean(centred**2))


def _top_words(words: Sequence[str], own: Activations, z: Activations) -> pd.DataFrame:
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


def _contexts(rows: Examples, labels: Mapping[int, str] | None, own: Activations, z: Activations) -> pd.DataFrame:
    """The sentences with the strongest reactions, each once: every word around the strongest one, with its value.

    `labels` are those of some rows; the others have an empty one.
    """
    strongest = np.argsort(-np.abs(z), kind="stable")
    _, first = np.unique(rows.sentences[strongest], return_index=True)
    peaks = strongest[np.sort(first)[:CONTEXTS]]
    tables = []
    for rank, peak in enumerate(peaks.tolist(), start=1):
        around = slice(max(peak - CONTEXT_WORDS, 0), peak + CONTEXT_WORDS + 1)
        near = np.arange(around.start, min(around.stop, len(own)))
        near = near[rows.sentences[near] == rows.sentences[peak]]
        tables.append(
            pd.DataFrame(
                {
                    "context": rank,
                    "sentence": rows.sentences[near],
                    "position": rows.store.row_words[rows.rows[near], 1],
                    "word": [rows.words[i] for i in near.tolist()],
                    **({} if labels is None else {"label": [labels.get(i, "") for i in near.tolist()]}),
                    "activation": own[near],
                    "z": z[near],
                    "peak": near == peak,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def _by_class(labels: Sequence[str] | np.ndarray, own: Activations) -> pd.DataFrame:
    """Count, mean, deviation and quantiles of a neuron in each class; of numbers, in their lower and upper halves."""
    if isinstance(labels, np.ndarray):
        middle = float(np.median(labels))
        labels = [f"at most {middle:g}" if value <= middle else f"above {middle:g}" for value in labels]
    groups = pd.Series(own.astype(np.float64)).groupby(np.array(labels, dtype=object))
    quantiles = {name: groups.quantile(share) for name, share in QUANTILES.items()}
    table = pd.DataFrame({"count": groups.size(), "mean": groups.mean(), "sd": groups.std(ddof=0), **quantiles})
    return table.rename_axis("label").reset_index()
