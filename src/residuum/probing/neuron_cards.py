"""`describe`: one card per neuron: the words it reacts to, its activations in context, and its means per class.

Words and contexts need no labels; `rank` adds the classes of its task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Float

from residuum.activations.auditing import audit_table
from residuum.errors import SettingError
from residuum.maths.features import check_finite, constant_columns, windows
from residuum.maths.layouts import split_id
from residuum.probing.examples import Examples, activations_folder, held_memory, whole_store
from residuum.probing.settings import DescribeSettings
from residuum.settings import command
from residuum.storage.results import Result, Run, finished_run, write_run

TOP_WORDS = 10
MIN_COUNT = 3
"""Minimum occurrences of a word: below it, its mean says more about the occurrence than about the word."""
CONTEXTS = 5
CONTEXT_WORDS = 12
"""Words shown on either side of the one with the strongest reaction."""
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}

Activations = Float[np.ndarray, " row"]


@dataclass(frozen=True, eq=False)
class NeuronCards(Result):
    """The result of `describe`. `frame` has one row per neuron and word at either end of its range."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """neuron, end, rank, word, mean, z, count."""
        return self.run.tables["card_words"]

    @property
    def contexts(self) -> pd.DataFrame:
        """The strongest reactions of each neuron: every word around them, with its activation."""
        return self.run.tables["card_contexts"]

    def card(self, neuron: str) -> dict[str, pd.DataFrame]:
        """The tables of one neuron: its words and its contexts."""
        tables = card_of(self.run.tables, neuron)
        if tables["words"].empty:
            raise SettingError(f"Neuron {neuron} has no card; the cards are {', '.join(self.run.config['neurons'])}.")
        return tables

    def text(self) -> str:
        """The first words at both ends of each neuron, as lines for a terminal."""
        lines = []
        for neuron, rows in self.frame.groupby("neuron", sort=False):
            high, low = (", ".join(rows.loc[rows["end"] == end, "word"].head(5)) for end in ("high", "low"))
            lines.append(f"{neuron:>8}  highest on {high}; lowest on {low or 'none'}")
        return "\n".join(lines)


@command(DescribeSettings)
def describe(settings: DescribeSettings) -> NeuronCards:
    """The words that some neurons (`layer:index`) react to, and their activations in context.

    `model` is a store, whose words are described, or a model, which reads `corpus`; only the layers of these neurons
    are kept, in `activations` or in `out`.
    """
    layers = sorted({split_id(neuron)[0] for neuron in settings.neurons})
    names = ("unit", "table", "split", "limit", "max_loss", "device", "fresh", "max_memory", "progress")
    options = {name: getattr(settings, name) for name in names}
    with activations_folder(settings.activations, settings.out) as folder, settings.opened_engine() as engine:
        store = whole_store(
            settings.model, settings.corpus, activations=folder, layers=layers, workers=engine, **options
        )
        rows = Examples(store, np.arange(store.n_rows), ())
        ids = list(dict.fromkeys(rows.layout.format(rows.layout.parse(settings.neurons))))
        config = {
            "model": store.name,
            "data": f"{store.manifest.corpus['name']} {store.fingerprint}",
            "unit": store.unit,
            "neurons": ids,
        }
        if settings.out is not None and (run := finished_run(settings.out, "describe", config, fresh=settings.fresh)):
            return NeuronCards(run)
        tables = {**card_tables(rows, ids, held_memory(settings.max_memory)), "audit": audit_table([store])}
    words = tables["card_words"]
    constant = [
        str(neuron)
        for neuron, rows_of_neuron in words.groupby("neuron", sort=False)
        if not np.any(rows_of_neuron["z"].to_numpy())
    ]
    summary = {f"{store.unit}s": store.n_rows, "neurons": len(ids)}
    run = Run("describe", config, summary | ({"constant": ", ".join(constant)} if constant else {}), tables)
    if settings.out is not None:
        write_run(settings.out, run)
    return NeuronCards(run)


def card_tables(
    rows: Examples, neurons: Sequence[str], max_memory: int, labelled: Examples | None = None
) -> dict[str, pd.DataFrame]:
    """`card_words` and `card_contexts` of neurons over some rows; with `labelled` rows also `card_classes`.

    z = (activation − mean) / standard deviation over the rows, so that neurons compare; 0 where a neuron is constant.
    Its sign is arbitrary: words are listed from both ends. One layer is held at a time.
    """
    places = np.empty(0, np.int64) if labelled is None else np.searchsorted(rows.rows, labelled.rows)
    labels = None if labelled is None else dict(zip(places.tolist(), map(str, labelled.labels), strict=True))
    tables: dict[str, list[pd.DataFrame]] = {}
    for neuron, (activation, z) in _activations(rows, neurons, max_memory).items():
        parts = {
            "card_words": _top_words(rows.words, activation, z),
            "card_contexts": _contexts(rows, labels, activation, z),
        }
        if labelled is not None:
            parts["card_classes"] = _by_class(labelled.labels, activation[places])
        for name, part in parts.items():
            part.insert(0, "neuron", neuron)
            tables.setdefault(name, []).append(part)
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}


def card_of(tables: Mapping[str, pd.DataFrame], neuron: str) -> dict[str, pd.DataFrame]:
    """The tables `words`, `contexts` and `classes` of one neuron; they are empty where it has no card."""
    return {
        name.removeprefix("card_"): table.loc[table["neuron"] == neuron].drop(columns="neuron").reset_index(drop=True)
        for name, table in tables.items()
        if name.startswith("card_")
    }


def _activations(rows: Examples, neurons: Sequence[str], max_memory: int) -> dict[str, tuple[Activations, Activations]]:
    """Each neuron's activations and their z; whether a neuron is constant is judged within its whole layer."""
    by_neuron = {}
    for layer in dict.fromkeys(split_id(neuron)[0] for neuron in neurons):
        in_layer = replace(rows, store=whole_store(rows.store, layers=[layer]))
        ids = [neuron for neuron in neurons if split_id(neuron)[0] == layer]
        columns, features = in_layer.layout.parse(ids), in_layer.features(max_memory)
        x = np.empty((len(in_layer), len(ids)), np.float32)
        for window in windows(features):
            check_finite(window)
            x[window.words] = window.x[:, columns]
        constant = constant_columns(features)[columns]
        for place, neuron in enumerate(ids):
            centred = x[:, place].astype(np.float64) - x[:, place].mean(dtype=np.float64)
            z = np.zeros_like(centred) if constant[place] else centred / np.sqrt(np.mean(centred**2))
            by_neuron[neuron] = x[:, place], z
    return {neuron: by_neuron[neuron] for neuron in neurons}


def _top_words(words: Sequence[str], activation: Activations, z: Activations) -> pd.DataFrame:
    """The word types with the highest and with the lowest mean, among those that occur often enough."""
    types, place, counts = np.unique(np.array(words, dtype=object), return_inverse=True, return_counts=True)
    mean, mean_z = (np.bincount(place, weights=values) / counts for values in (activation, z))
    usable = np.flatnonzero(counts >= min(MIN_COUNT, counts.max()))
    ordered = usable[np.argsort(-mean_z[usable], kind="stable")]
    half = min(TOP_WORDS, -(-len(ordered) // 2))
    ends = {"high": ordered[:half], "low": ordered[::-1][: min(TOP_WORDS, len(ordered) - half)]}
    tables = [
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
    ]
    return pd.concat(tables, ignore_index=True)


def _contexts(
    rows: Examples, labels: Mapping[int, str] | None, activation: Activations, z: Activations
) -> pd.DataFrame:
    """The sentences with the strongest reactions, each once: the words around the strongest one, with their values.

    `labels` belong to some of the rows; the label of the others is empty.
    """
    strongest = np.argsort(-np.abs(z), kind="stable")
    _, first = np.unique(rows.sentences[strongest], return_index=True)
    tables = []
    for rank, peak in enumerate(strongest[np.sort(first)[:CONTEXTS]].tolist(), start=1):
        near = np.arange(max(peak - CONTEXT_WORDS, 0), min(peak + CONTEXT_WORDS + 1, len(z)))
        near = near[rows.sentences[near] == rows.sentences[peak]]
        tables.append(
            pd.DataFrame(
                {
                    "context": rank,
                    "sentence": rows.sentences[near],
                    "position": rows.store.row_words[rows.rows[near], 1],
                    "word": [rows.words[i] for i in near.tolist()],
                    **({} if labels is None else {"label": [labels.get(i, "") for i in near.tolist()]}),
                    "activation": activation[near],
                    "z": z[near],
                    "peak": near == peak,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def _by_class(labels: Sequence[str] | np.ndarray, activation: Activations) -> pd.DataFrame:
    """Count, mean, sd and quantiles of a neuron per class; numeric labels are split into lower and upper half."""
    if isinstance(labels, np.ndarray):
        middle = float(np.median(labels))
        labels = [f"at most {middle:g}" if value <= middle else f"above {middle:g}" for value in labels]
    groups = pd.Series(activation.astype(np.float64)).groupby(np.array(labels, dtype=object))
    quantiles = {name: groups.quantile(share) for name, share in QUANTILES.items()}
    table = pd.DataFrame({"count": groups.size(), "mean": groups.mean(), "sd": groups.std(ddof=0), **quantiles})
    return table.rename_axis("label").reset_index()
