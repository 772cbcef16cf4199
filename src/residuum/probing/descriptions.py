"""`neuron_cards`: which words neurons react to, and in which sentences most; no task and no labels are needed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from residuum.activations.auditing import audit_table
from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus
from residuum.errors import SettingError
from residuum.maths.neuron_ids import split_id
from residuum.probing.cards import card_of, card_tables
from residuum.probing.examples import Examples, activations_folder, held_memory, whole_store
from residuum.storage.results import Result, Run, finished_run, write_run

if TYPE_CHECKING:
    from residuum.models.loading import Model


@dataclass(frozen=True, eq=False)
class NeuronCards(Result):
    """What `neuron_cards` found. `frame` has one row for each neuron and word at one of its two ends."""

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
        found = card_of(self.run.tables, neuron)
        if found["words"].empty:
            raise SettingError(f"Neuron {neuron} was not described; there are {', '.join(self.run.config['neurons'])}.")
        return found

    def text(self) -> str:
        """The first words at both ends of each neuron, as lines for a terminal."""
        lines = []
        for neuron, own in self.frame.groupby("neuron", sort=False):
            ends = [", ".join(own.loc[own["end"] == end, "word"].head(5)) for end in ("high", "low")]
            lines.append(f"{neuron:>8}  highest on {ends[0]}; lowest on {ends[1] or 'none'}")
        return "\n".join(lines)


def neuron_cards(
    source: Model | ActivationStore | Mapping[str, ActivationStore] | str | os.PathLike[str],
    corpus: Corpus | str | os.PathLike[str] | None = None,
    neurons: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    activations: str | os.PathLike[str] | None = None,
    max_memory: int | None = None,
    fresh: bool = False,
    **reading: Any,
) -> NeuronCards:
    """The words that some neurons (`layer:index`) react to, and their activations in context.

    `source` is a store, whose words are described, or a model, which reads `corpus`; of it only the layers of these
    neurons are kept, in `activations` or in `out`. `reading` is that of `read_corpus` (`format`, `split`, `limit`) and
    of `extract` (`device`, `unit`, `workers`, …).
    """
    if not neurons:
        raise SettingError("No neuron was named; give at least one, for example 3:17.")
    layers = sorted({split_id(neuron)[0] for neuron in neurons})
    with activations_folder(activations, out) as folder:
        reading |= {"fresh": fresh, "max_memory": max_memory}
        store = whole_store(source, corpus, activations=folder, layers=layers, **reading)
        rows = Examples(store, np.arange(store.n_rows), ())
        ids = list(dict.fromkeys(rows.layout.format(rows.layout.parse(neurons))))
        config = {
            "model": store.name,
            "data": f"{store.manifest.corpus['name']} {store.fingerprint}",
            "unit": store.unit,
            "neurons": ids,
        }
        if out is not None and (run := finished_run(out, "describe", config, fresh=fresh)):
            return NeuronCards(run)
        tables = {**card_tables(rows, ids, held_memory(max_memory)), "audit": audit_table([store])}
    run = Run("describe", config, _summary(store, tables["card_words"]), tables)
    if out is not None:
        write_run(out, run)
    return NeuronCards(run)


def _summary(store: ActivationStore, words: pd.DataFrame) -> dict[str, Any]:
    reactions = {str(neuron): own["z"] for neuron, own in words.groupby("neuron", sort=False)}
    constant = [neuron for neuron, z in reactions.items() if not np.any(z.to_numpy())]
    return {
        f"{store.unit}s": store.n_rows,
        "neurons": len(reactions),
        **({"constant": ", ".join(constant)} if constant else {}),
    }
