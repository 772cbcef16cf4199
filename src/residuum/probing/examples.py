"""Labelled activations: the rows of a store that have a label, in train, development and test parts."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from jaxtyping import Float, Int

from residuum.activations.auditing import audit_table
from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus, candidate_pairs, split_indices
from residuum.corpus.tasks import SHARES, Task, TaskCorpora, labels_of, named_task, read_task, read_whole, unseen_notes
from residuum.errors import CorpusError, DataError, SettingError
from residuum.maths.features import Features, ShardedFeatures
from residuum.maths.layouts import NeuronLayout
from residuum.storage.remote import is_address

if TYPE_CHECKING:
    import pandas as pd

    from residuum.models.loading import Model

PARTS = ("train", "dev", "test")
MEMORY = 4 << 30
"""Bytes of activations that are held at once unless told otherwise; more is read in windows."""


def held_memory(max_memory: int | None) -> int:
    """The bytes of activations that may be held: `max_memory`, or `MEMORY` where that sets no bound."""
    return MEMORY if max_memory is None else max_memory


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of a store with a label each: what a probe learns from, or is tested on."""

    store: ActivationStore
    rows: Int[np.ndarray, " example"]
    labels: tuple[str, ...] | Float[np.ndarray, " example"]
    n_unlabelled: int = 0
    among: Int[np.ndarray, " sentence"] | None = None  # the sentences that they are taken from; None: all of the store

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def words(self) -> list[str]:
        """The word of each example (of a sentence task: its text)."""
        sentences = self.store.sentences
        if self.store.unit == "sentence":
            return [" ".join(sentences[row]) for row in self.rows]
        return [sentences[s][w] for s, w in self.store.row_words[self.rows].tolist()]

    @property
    def bags(self) -> list[list[tuple[int, str]]]:
        """The words of each example's sentence, each with the number of its segment (1 is the second of a pair)."""
        numbers = self.sentences.tolist()
        segments = [self.store.sentences, *([] if self.store.pairs is None else [self.store.pairs])]
        return [[(place, word) for place, texts in enumerate(segments) for word in texts[n]] for n in numbers]

    @cached_property
    def sentences(self) -> Int[np.ndarray, " example"]:
        """The number of the sentence of each example, over which intervals are taken."""
        return self.store.row_words[self.rows, 0]

    @property
    def with_unlabelled(self) -> Examples:
        """All rows of the same sentences, whether they have a label or not, without labels."""
        places = self.store.row_words[:, 0]
        inside = np.ones(len(places), bool) if self.among is None else np.isin(places, self.among)
        return Examples(self.store, np.flatnonzero(inside), (), among=self.among)

    @cached_property
    def rows_key(self) -> tuple[object, ...]:
        """What tells the features of these rows from all others, in any process."""
        return self.store.fingerprint, tuple(self.store.layers), xxhash.xxh3_64_hexdigest(self.rows.tobytes())

    @property
    def label_fingerprint(self) -> str:
        """A hash of the rows and their labels."""
        return xxhash.xxh3_64_hexdigest(json.dumps([self.rows.tolist(), list(self.labels)]).encode())

    @property
    def layout(self) -> NeuronLayout:
        """Which layers stand side by side in the features."""
        return NeuronLayout(tuple(self.store.widths), tuple(self.store.layers))

    def features(self, max_memory: int = MEMORY, neurons: Int[np.ndarray, " neuron"] | None = None) -> Features:
        """Examples × neurons of all layers: an array where it fits `max_memory` bytes, else shards read in windows."""
        width = self.layout.n_neurons if neurons is None else len(neurons)
        parts = self._rows_by_shard()
        loaders = tuple(partial(_load, self.store, shard, rows, neurons) for shard, rows in parts)
        lengths = tuple(len(rows) for _, rows in parts)
        shards = ShardedFeatures(loaders, lengths, width, max(max_memory // (4 * width), 1))
        if len(self) > shards.window:
            return shards
        array = np.empty(shards.shape, np.float32)  # filled shard by shard, so that the data is never there twice
        end = 0
        for load, length in zip(loaders, lengths, strict=True):
            start, end = end, end + length
            array[start:end] = load()
        return array

    def select(self, sentences: Sequence[int]) -> Examples:
        """The examples of some sentences, and how many of their rows have no label."""
        chosen = np.flatnonzero(np.isin(self.sentences, sentences))
        if not chosen.size:
            raise CorpusError("None of the chosen sentences has a label; choose others or give more.")
        labels = (
            self.labels[chosen]
            if isinstance(self.labels, np.ndarray)
            else tuple(self.labels[i] for i in chosen.tolist())
        )
        n_rows = int(self.store.lengths[list(sentences)].sum())
        return Examples(self.store, self.rows[chosen], labels, n_rows - len(chosen), np.unique(sentences))

    def _rows_by_shard(self) -> list[tuple[int, Int[np.ndarray, " row"]]]:
        starts = np.cumsum([0, *(shard.rows for shard in self.store.manifest.shards)])
        cuts = np.searchsorted(self.rows, starts)
        parts = [(i, self.rows[cuts[i] : cuts[i + 1]] - starts[i]) for i in range(len(starts) - 1)]
        return [(shard, rows) for shard, rows in parts if len(rows)]


class FeatureCache:
    """Features that were read, by the rows that they are of: tasks of the same examples share them."""

    def __init__(self) -> None:
        self._features: dict[tuple[object, ...], Features] = {}

    def features(self, examples: Examples, room: int) -> Features:
        """The features of the examples within so many bytes, read when they are first needed."""
        key = (*examples.rows_key, room)
        if key not in self._features:
            self._features[key] = examples.features(room)
        return self._features[key]

    def held(self, examples: Examples, room: int) -> Features | None:
        """The same features if they have been read."""
        return self._features.get((*examples.rows_key, room))

    @property
    def n_bytes(self) -> int:
        """The memory of all features that are held as arrays."""
        return sum(features.nbytes for features in self._features.values() if isinstance(features, np.ndarray))

    def clear(self) -> None:
        """Let go of all features."""
        self._features.clear()


def examples(store: ActivationStore, labels: Sequence[Any]) -> Examples:
    """Join a store with labels: a list of labels for each sentence, or (of a store of sentences) one label each.

    Numbers with a decimal point are to be predicted as numbers, all other labels are classes. Rows whose label is
    None are left out and counted.
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
    values = np.array(kept, np.float64) if are_numbers(kept) else tuple(map(str, kept))
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
    def audit(self) -> pd.DataFrame:
        """What became of the words of the texts that the examples are of."""
        return audit_table(getattr(self, part).store for part in PARTS)

    @property
    def facts(self) -> dict[str, Any]:
        """What identifies the data in a result's settings."""
        stores = {part: getattr(self, part) for part in PARTS}
        return {
            "task": self.task.name,
            "model": self.train.store.name,
            "layers": list(self.layout.layers),
            "data": {part: f"{e.store.manifest.corpus['name']} {e.store.fingerprint}" for part, e in stores.items()},
            "labels": {part: e.label_fingerprint for part, e in stores.items()},
            "examples": {part: len(e) for part, e in stores.items()},
            "unlabelled": {part: e.n_unlabelled for part, e in stores.items()},
            "notes": [*self.notes, *self._unseen],
        }

    @property
    def _unseen(self) -> list[str]:
        if self.regression:
            return []
        return unseen_notes(list(self.train.labels), dev=list(self.dev.labels), test=list(self.test.labels))


def labelled_splits(
    source: Model | ActivationStore | Mapping[str, ActivationStore] | str | os.PathLike[str],
    data: Sequence[Any] | Mapping[str, Sequence[Any]] | Corpus | TaskCorpora | str | os.PathLike[str],
    task: str | Task = "labels",
    *,
    activations: str | os.PathLike[str] | None = None,
    layers: str | int | Sequence[int] = "all",
    dev: str | os.PathLike[str] | None = None,
    test: str | os.PathLike[str] | None = None,
    table: Mapping[str, Any] | None = None,
    limit: int | None = None,
    seed: int = 0,
    device: str = "auto",
    **extraction: Any,
) -> Splits:
    """The examples of a task, whatever it is given as.

    `source` is a model (or its name), which reads the corpora into stores in the folder `activations`; a store; or
    one store for each of train, dev and test (or a folder of these). `data` is a corpus (a path is read as `read_task`
    does), or the labels themselves: one list for a store, which is then cut by sentences into 80 / 10 / 10, or one
    for each part. `layers` are those that are read, or that are taken from a store that has more. Of multiple choice
    every candidate is an example, with its context, and is right or wrong.
    """
    task = named_task(task)
    opened_source = opened(source)
    reading = {**(table or {}), "limit": limit}
    if isinstance(opened_source, ActivationStore):
        if dev is not None or test is not None:
            raise SettingError(
                f"{opened_source.path} is one store, which is cut into train, dev and test; to give them as "
                "files of their own, give the model, or one store for each."
            )
        return _of_one_store(_with_layers(opened_source, layers), data, task, seed, reading)
    if isinstance(data, str | os.PathLike | Corpus):
        data = read_task(task, data, dev=dev, test=test, seed=seed, **reading)
    if isinstance(data, TaskCorpora):
        data = data.as_pairs()
    if isinstance(opened_source, Mapping):
        return _of_stores({part: _with_layers(store, layers) for part, store in opened_source.items()}, data, task)
    if activations is None:
        raise SettingError(f"{opened_source} is a model; say in which folder its activations shall be kept.")
    if not isinstance(data, TaskCorpora):
        raise SettingError(f"{opened_source} is a model; give it a corpus to read, not labels alone.")
    return _of_model(opened_source, data, task, Path(activations), device, {"layers": layers, **extraction})


def check_classes(train: Examples, dev: Examples, test: Examples) -> None:
    """Raise an error where the classes are too many to be learnt, or not those of training; numbers have none."""
    if isinstance(train.labels, np.ndarray):
        return
    seen = set(train.labels)
    every = seen.union(*(part.labels for part in (dev, test) if not isinstance(part.labels, np.ndarray)))
    if len(seen) == len(train) > 1 or len(train) < len(every):
        raise DataError(
            f"Found {len(train)} training examples of {len(seen)} classes, and {len(every)} classes in all parts; "
            "expected classes that recur, and at least one example for each. Give more examples, merge rare classes, "
            "or give what is to be predicted as a number with a decimal point."
        )
    for name, part in (("dev", dev), ("test", test)):
        if seen.isdisjoint(part.labels):
            raise DataError(
                f"No label of the {name} part ({', '.join(sorted(map(str, set(part.labels)))[:3])}, …) is one of the "
                f"training part ({', '.join(sorted(seen)[:3])}, …); expected the same classes in all parts."
            )


def whole_store(
    source: Model | ActivationStore | Mapping[str, ActivationStore] | str | os.PathLike[str],
    corpus: Corpus | str | os.PathLike[str] | None = None,
    *,
    activations: str | os.PathLike[str] | None = None,
    layers: str | int | Sequence[int] = "all",
    table: Mapping[str, Any] | None = None,
    split: str | None = None,
    limit: int | None = None,
    device: str = "auto",
    **extraction: Any,
) -> ActivationStore:
    """One store, for what needs no labels: `source` itself (of several: train), or what a model reads of a corpus."""
    opened_source = opened(source)
    if isinstance(opened_source, Mapping):
        opened_source = opened_source["train"]
    if isinstance(opened_source, ActivationStore):
        return _with_layers(opened_source, layers)
    if corpus is None or activations is None:
        lacking = "the corpus to read" if corpus is None else "the folder to keep its activations in"
        raise SettingError(f"{opened_source} is a model, not an activation store; give {lacking}.")
    from residuum.activations.extraction import extract
    from residuum.corpus import read_corpus
    from residuum.models.loading import as_model

    text = corpus if isinstance(corpus, Corpus) else read_corpus(corpus, split=split, limit=limit, **(table or {}))
    model = as_model(opened_source, device=device, max_memory=extraction.get("max_memory"))
    return extract(model, text, Path(activations), layers=layers, **extraction)


@contextmanager
def activations_folder(
    activations: str | os.PathLike[str] | None, out: str | os.PathLike[str] | None
) -> Iterator[Path]:
    """Where a model's activations go: where it was said, else beside the result, else away after this run."""
    if activations is not None:
        yield Path(activations)
    elif out is not None:
        yield Path(out) / "activations"
    else:
        with tempfile.TemporaryDirectory(prefix="residuum-") as folder:
            yield Path(folder) / "activations"


def opened(
    source: Model | ActivationStore | Mapping[str, ActivationStore] | str | os.PathLike[str],
) -> Model | ActivationStore | Mapping[str, ActivationStore] | str:
    """The store or stores in a folder; what is no such folder is a model or its name, and comes back as it is."""
    if not isinstance(source, str | os.PathLike):
        return source
    if is_address(source):
        return ActivationStore.open(os.fspath(source))
    folder = Path(source)
    if (folder / "manifest.json").exists():
        return ActivationStore.open(folder)
    if all((folder / part / "manifest.json").exists() for part in PARTS):
        return {part: ActivationStore.open(folder / part) for part in PARTS}
    return os.fspath(source)


def _with_layers(store: ActivationStore, layers: str | int | Sequence[int]) -> ActivationStore:
    """The same store with some of its layers; nothing is copied."""
    if layers == "all":
        return store
    from residuum.models.loading import parse_layers

    wanted = parse_layers(layers, max(store.layers))
    if missing := [layer for layer in wanted if layer not in store.layers]:
        raise SettingError(f"Layer {missing[0]} is not in {store.path}; it has the layers {store.layers}.")
    widths = [store.widths[store.layers.index(layer)] for layer in wanted]
    return replace(store, manifest=replace(store.manifest, layers=wanted, widths=widths))


def _of_model(
    source: Model | str, corpora: TaskCorpora, task: Task, folder: Path, device: str, extraction: dict[str, Any]
) -> Splits:
    from residuum.activations.extraction import extract
    from residuum.models.loading import as_model

    model = as_model(source, device=device, max_memory=extraction.get("max_memory"))
    stores = {
        part: extract(model, corpus, folder / part, unit=task.unit, **extraction)  # pyright: ignore[reportArgumentType]
        for part, corpus in corpora.items()
    }
    return _of_stores(stores, corpora, task)


def _of_stores(stores: Mapping[str, ActivationStore], data: Any, task: Task) -> Splits:
    labels = {part: labels_of(corpus, task) for part, corpus in data.items()} if isinstance(data, TaskCorpora) else data
    for what, parts_given in {"store": stores, "list of labels": labels}.items():
        if missing := [part for part in PARTS if not isinstance(parts_given, Mapping) or part not in parts_given]:
            raise SettingError(
                f"There is no {what} for {' and '.join(missing)}; give one for each of train, dev and test."
            )
    task = _of_unit(task, stores["train"], data)
    parts = {part: examples(stores[part], labels[part]) for part in PARTS}
    if len({part_examples.layout for part_examples in parts.values()}) > 1:
        raise DataError(
            "The stores of train, dev and test hold different layers; extract the same from the same model."
        )
    check_classes(**parts)
    return Splits(task, **parts, notes=data.notes if isinstance(data, TaskCorpora) else ())


def _of_one_store(store: ActivationStore, data: Any, task: Task, seed: int, reading: dict[str, Any]) -> Splits:
    if isinstance(data, TaskCorpora):
        raise SettingError(f"{store.path} is one store; give one for each of train, dev and test.")
    if isinstance(data, str | os.PathLike):
        data = read_whole(task, data, **reading)
    if isinstance(data, Corpus):
        data = candidate_pairs(data)
    task = _of_unit(task, store, data)
    whole = examples(store, labels_of(data, task) if isinstance(data, Corpus) else data)
    parts = [whole.select(part) for part in split_indices(len(store.sentences), SHARES, seed)]
    check_classes(*parts)
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    return Splits(task, *parts, notes=(f"the sentences were cut into {shares} by seed {seed}",))


def _of_unit(task: Task, store: ActivationStore, data: Any) -> Task:
    """The task itself; where labels came without a corpus, they are of the unit that the store has."""
    if task.unit == store.unit:
        return task
    if isinstance(data, Corpus | TaskCorpora):
        raise SettingError(
            f"{task.name} is about {task.unit}s, but the rows of {store.path} are {store.unit}s; "
            f"extract it with unit {task.unit!r}."
        )
    return replace(task, unit=store.unit)


def _word_labels(store: ActivationStore, labels: Sequence[Sequence[Any]]) -> list[Any]:
    for index, (words, row) in enumerate(zip(store.sentences, labels, strict=True)):
        if len(words) != len(row):
            raise DataError(
                f"Sentence {index} of {store.path} has {len(words)} words, but {len(row)} labels; "
                "read the corpus that it was extracted from."
            )
    return [labels[s][w] for s, w in store.row_words.tolist()]


def are_numbers(labels: Sequence[Any]) -> bool:
    """Whole numbers alone are names of classes."""
    numeric = all(isinstance(label, int | float | np.number) and not isinstance(label, bool) for label in labels)
    return numeric and any(isinstance(label, float | np.floating) for label in labels)


def _load(
    store: ActivationStore, shard: int, rows: Int[np.ndarray, " row"], neurons: Int[np.ndarray, " neuron"] | None
) -> Float[np.ndarray, "word neuron"]:
    everything = rows if len(rows) != store.manifest.shards[shard].rows else slice(None)
    layers = [layer[everything] for layer in store.shard(shard)]
    joined = np.concatenate(layers, axis=1) if len(layers) > 1 else layers[0]
    return joined if neurons is None else joined[:, neurons]
