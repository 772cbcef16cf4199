"""Labelled activations: the rows of a store that have a label, in train, development and test parts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus, split_indices
from residuum.errors import CorpusError, DataError, SettingError
from residuum.maths.features import Features, ShardedFeatures
from residuum.maths.neuron_ids import NeuronLayout
from residuum.tasks import SHARES, Task, TaskCorpora, labels_of, named_task, read_task

if TYPE_CHECKING:
    from residuum.models import Model

PARTS = ("train", "dev", "test")
MEMORY = 4 << 30
"""Bytes of activations that are held at once unless told otherwise; more is read in windows."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of a store with a label each: what a probe learns from, or is tested on."""

    store: ActivationStore
    rows: Int[np.ndarray, " example"]
    labels: tuple[str, ...] | Float[np.ndarray, " example"]
    n_unlabelled: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def words(self) -> list[str]:
        """The word of each example (of a sentence task: its text)."""
        sentences = self.store.sentences
        if self.store.unit == "sentence":
            return [" ".join(sentences[row]) for row in self.rows]
        return [sentences[s][w] for s, w in self.store.row_words[self.rows].tolist()]

    @cached_property
    def sentences(self) -> Int[np.ndarray, " example"]:
        """The number of the sentence of each example, over which intervals are taken."""
        return self.store.row_words[self.rows, 0]

    @property
    def layout(self) -> NeuronLayout:
        """Which layers stand side by side in the features."""
        return NeuronLayout(tuple(self.store.widths), tuple(self.store.layers))

    def features(self, max_memory: int = MEMORY, neurons: Int[np.ndarray, " neuron"] | None = None) -> Features:
        """Examples × neurons of all layers: an array where it fits `max_memory` bytes, else shards read in windows."""
        width = self.layout.n_neurons if neurons is None else len(neurons)
        loaders, lengths = [], []
        for shard, rows in self._rows_by_shard():
            loaders.append(partial(_load, self.store, shard, rows, neurons))
            lengths.append(len(rows))
        window = max(max_memory // (4 * width), 1)
        if len(self) <= window:
            return _filled(loaders, lengths, width)
        return ShardedFeatures(tuple(loaders), tuple(lengths), width, window)

    def select(self, sentences: Sequence[int]) -> Examples:
        """The examples of some sentences."""
        chosen = np.flatnonzero(np.isin(self.sentences, sentences))
        if not chosen.size:
            raise CorpusError("None of the chosen sentences has a label; choose others or give more.")
        labels = (
            self.labels[chosen]
            if isinstance(self.labels, np.ndarray)
            else tuple(self.labels[i] for i in chosen.tolist())
        )
        return Examples(self.store, self.rows[chosen], labels)

    def _rows_by_shard(self) -> list[tuple[int, Int[np.ndarray, " row"]]]:
        starts = np.cumsum([0, *(shard.rows for shard in self.store.manifest.shards)])
        cuts = np.searchsorted(self.rows, starts)
        parts = [(i, self.rows[cuts[i] : cuts[i + 1]] - starts[i]) for i in range(len(starts) - 1)]
        return [(shard, rows) for shard, rows in parts if len(rows)]


def examples(store: ActivationStore, labels: Sequence[Any]) -> Examples:
    """Join a store with labels: a list of labels for each sentence, or (of a store of sentences) one label each.

    Rows whose label is None are left out and counted.
    """
    if len(labels) != len(store.sentences):
        raise DataError(
            f"{store.path} has {len(store.sentences)} sentences, but labels of {len(labels)} came with it; "
            "read the corpus that it was extracted from."
        )
    flat = list(labels) if store.unit == "sentence" else _word_labels(store, labels)
    rows = np.array([row for row, label in enumerate(flat) if label is not None], dtype=np.int64)
    if not rows.size:
        raise CorpusError(f"None of the {len(flat)} {store.unit}s of {store.path} has a label; expected at least two.")
    kept = [flat[row] for row in rows.tolist()]
    numbers = all(isinstance(label, int | float) and not isinstance(label, bool) for label in kept)
    values = np.array(kept, np.float64) if numbers else tuple(map(str, kept))
    return Examples(store, rows, values, n_unlabelled=len(flat) - len(kept))


@dataclass(frozen=True, eq=False)
class Splits:
    """A task's examples in three parts: learnt from, chosen on, reported on."""

    task: Task
    train: Examples
    dev: Examples
    test: Examples
    notes: tuple[str, ...] = ()

    @property
    def layout(self) -> NeuronLayout:
        """Which layers stand side by side in the features."""
        return self.train.layout

    @property
    def regression(self) -> bool:
        """Whether numbers are predicted, not classes."""
        return isinstance(self.train.labels, np.ndarray)

    @property
    def facts(self) -> dict[str, Any]:
        """What identifies the data in a result's settings."""
        stores = {part: getattr(self, part) for part in PARTS}
        return {
            "task": self.task.name,
            "model": self.train.store.name,
            "layers": list(self.layout.layers),
            "data": {part: f"{e.store.manifest.corpus['name']} {e.store.fingerprint}" for part, e in stores.items()},
            "examples": {part: len(e) for part, e in stores.items()},
            "unlabelled": {part: e.n_unlabelled for part, e in stores.items()},
            "notes": list(self.notes),
        }


def labelled_splits(
    source: Model | ActivationStore | Mapping[str, ActivationStore] | str | os.PathLike[str],
    data: Sequence[Any] | Mapping[str, Sequence[Any]] | Corpus | TaskCorpora | str | os.PathLike[str],
    task: str | Task = "labels",
    *,
    activations: str | os.PathLike[str] | None = None,
    seed: int = 0,
    **extraction: Any,
) -> Splits:
    """The examples of a task, whatever it is given as.

    `source` is a model (or its name), which reads the corpora into stores in the folder `activations`; a store; or
    one store for each of train, dev and test. `data` is a corpus (a path as `read_task` takes it), or the labels
    themselves: one list for a store, which is then cut by sentences into 80 / 10 / 10, or one for each part.
    """
    task = named_task(task)
    if isinstance(source, Mapping):
        return _of_stores(source, data, task)
    if isinstance(source, str | os.PathLike) and (Path(source) / "manifest.json").exists():
        source = ActivationStore.open(Path(source))
    if isinstance(source, ActivationStore):
        return _of_one_store(source, data, task, seed)
    if isinstance(source, str | os.PathLike) and all(
        (Path(source) / part / "manifest.json").exists() for part in PARTS
    ):
        return _of_stores({part: ActivationStore.open(Path(source) / part) for part in PARTS}, data, task)
    if activations is None:
        raise SettingError(f"{source} is a model; say in which folder its activations shall be kept.")
    if not isinstance(data, Corpus | TaskCorpora | str | os.PathLike):
        raise SettingError(f"{source} is a model; give it a corpus to read, not labels alone.")
    corpora = data if isinstance(data, TaskCorpora) else read_task(task, data, seed=seed)
    return _of_model(source, corpora, task, Path(activations), extraction)


def _of_model(
    source: Model | str | os.PathLike[str], corpora: TaskCorpora, task: Task, folder: Path, extraction: dict[str, Any]
) -> Splits:
    from residuum.activations.extraction import extract
    from residuum.models import Model, load_model

    model = source if isinstance(source, Model) else load_model(os.fspath(source))
    stores = {
        part: extract(model, corpus, folder / part, unit=task.unit, **extraction) for part, corpus in corpora.items()
    }
    return _of_stores(stores, corpora, task)


def _of_stores(stores: Mapping[str, ActivationStore], data: Any, task: Task) -> Splits:
    if missing := [part for part in PARTS if part not in stores]:
        raise SettingError(f"There is no store for {' and '.join(missing)}; give one for each of train, dev and test.")
    if isinstance(data, str | os.PathLike | Corpus):
        data = read_task(task, data)
    labels = (
        {part: labels_of(corpus, task) for part, corpus in data.items()}
        if isinstance(data, TaskCorpora)
        else dict(data)
    )
    parts = {part: examples(stores[part], labels[part]) for part in PARTS}
    layouts = {part: found.layout for part, found in parts.items()}
    if len(set(layouts.values())) > 1:
        raise DataError(
            "The stores of train, dev and test hold different layers; extract the same from the same model."
        )
    return Splits(task, **parts, notes=data.notes if isinstance(data, TaskCorpora) else ())


def _of_one_store(store: ActivationStore, data: Any, task: Task, seed: int) -> Splits:
    if isinstance(data, str | os.PathLike):
        from residuum.corpus import read_corpus

        data = read_corpus(data)
    labels = labels_of(data, task) if isinstance(data, Corpus) else data
    whole = examples(store, labels)
    parts = [whole.select(part) for part in split_indices(len(store.sentences), SHARES, seed)]
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    return Splits(task, *parts, notes=(f"the sentences were cut into {shares} by seed {seed}",))


def _word_labels(store: ActivationStore, labels: Sequence[Sequence[Any]]) -> list[Any]:
    for index, (words, row) in enumerate(zip(store.sentences, labels, strict=True)):
        if len(words) != len(row):
            raise DataError(
                f"Sentence {index} of {store.path} has {len(words)} words, but {len(row)} labels; "
                "read the corpus that it was extracted from."
            )
    return [labels[s][w] for s, w in store.row_words.tolist()]


def _load(
    store: ActivationStore, shard: int, rows: Int[np.ndarray, " row"], neurons: Int[np.ndarray, " neuron"] | None
) -> Float[np.ndarray, "word neuron"]:
    everything = rows if len(rows) != store.manifest.shards[shard].rows else slice(None)
    layers = [layer[everything] for layer in store.shard(shard)]
    joined = np.concatenate(layers, axis=1) if len(layers) > 1 else layers[0]
    return joined if neurons is None else joined[:, neurons]


def _filled(loaders: list[Any], lengths: list[int], width: int) -> Float[np.ndarray, "word neuron"]:
    """One array, filled shard by shard, so that the data is never there twice."""
    array = np.empty((sum(lengths), width), np.float32)
    end = 0
    for load, length in zip(loaders, lengths, strict=True):
        start, end = end, end + length
        array[start:end] = load()
    return array
