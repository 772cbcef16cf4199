"""What `diff` reads: each text once per model, however many tasks its words have labels for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus, join_corpora, split_indices
from residuum.corpus.tasks import (
    SHARES,
    Task,
    check_labels,
    in_one_piece,
    known_labels,
    labels_of,
    named_task,
    read_task,
    read_whole,
    unseen_notes,
)
from residuum.errors import SettingError, StoreError
from residuum.maths.profiles import relative_depths
from residuum.probing.examples import PARTS, Splits, examples
from residuum.settings import named_source, plain_path
from residuum.storage.files import folder_name

if TYPE_CHECKING:
    from residuum.models.loading import Model

CorpusSource = Corpus | str | os.PathLike[str]
TaskChoice = str | Sequence[str | Task] | Mapping[str, CorpusSource | None]
Sources = Sequence[Any] | Mapping[str, Any]
"""Models, their folders or names, or stores; the base comes first."""


@dataclass(frozen=True, eq=False)
class LabelledText:
    """One text in one piece, the sentences of its train, dev and test parts, and the tasks that it has labels for."""

    corpus: Corpus
    parts: dict[str, list[int]]
    tasks: tuple[Task, ...]
    notes: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """What a label belongs to, and so what a row of activations is: `word` or `sentence`."""
        return self.tasks[0].unit

    def splits(self, store: ActivationStore, task: Task) -> Splits:
        """The examples of one of the tasks in the activations of a model."""
        whole = examples(store, labels_of(self.corpus, task))
        splits = Splits(task, *(whole.select(self.parts[part]) for part in PARTS), notes=self.notes)
        if splits.regression:
            raise SettingError(f"The labels of {task.name} are numbers; `diff` compares accuracies, so give classes.")
        return splits


def read_texts(
    corpus: CorpusSource,
    tasks: TaskChoice,
    *,
    dev: str | os.PathLike[str] | None = None,
    test: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    **table: Any,
) -> list[LabelledText]:
    """Read the texts of some tasks, each text once: `corpus`, and the corpora of tasks that have another one.

    Tasks are names, `NAME=CORPUS` for labels of another corpus, or a mapping of both. `dev`, `test` and where
    tables have their columns belong to `corpus`. The first text is that of the first task.
    """
    if isinstance(tasks, Mapping):
        pairs: list[tuple[str | Task, CorpusSource | None]] = list(tasks.items())
    else:
        names = [part.strip() for part in tasks.split(",")] if isinstance(tasks, str) else list(tasks)
        split = [(name, "") if isinstance(name, Task) else name.partition("=")[::2] for name in names if name]
        pairs = [(name, path or None) for name, path in split]
    chosen = [(named_task(name), path) for name, path in pairs]
    names = [task.name for task, _ in chosen]
    if not names or len(set(names)) < len(names):
        raise SettingError(f"The tasks are {', '.join(names) or 'none'}; give at least one, and each once.")
    if numbers := [task.name for task, _ in chosen if task.regression]:
        raise SettingError(f"{numbers[0]} predicts numbers; `diff` compares accuracies, so give tasks with classes.")
    groups: dict[tuple[object, str], tuple[CorpusSource, list[Task]]] = {}
    for task, other in chosen:
        source = corpus if other is None else other
        key = (source if isinstance(source, Corpus) else plain_path("corpus", source), task.unit)
        groups.setdefault(key, (source, []))[1].append(task)
    reading = {"dev": dev, "test": test, **table}
    return [
        _read_text(source, of_source, limit, seed, **(reading if source is corpus else {}))
        for source, of_source in groups.values()
    ]


def _read_text(
    source: CorpusSource, tasks: Sequence[Task], limit: int | None, seed: int, **reading: Any
) -> LabelledText:
    """Read a text for tasks of one unit; a text in one piece is split by the seed, a corpus in parts keeps them."""
    if isinstance(source, Corpus) or in_one_piece(source, **reading):
        table = {name: value for name, value in reading.items() if name not in ("dev", "test")}
        whole = read_whole(tasks[0], source, limit=limit, **table)
        parts = split_indices(len(whole), SHARES, seed)
        shares = ", ".join(f"{share:.0%}" for share in SHARES)
        notes = (f"{whole.name} was split into {shares} by seed {seed}",)
    else:
        corpora = read_task(tasks[0], source, limit=limit, seed=seed, **reading)
        whole = join_corpora([corpus for _, corpus in corpora.items()], Path(source).name)
        starts = [0, len(corpora.train), len(corpora.train) + len(corpora.dev), len(whole)]
        parts = [list(range(start, stop)) for start, stop in pairwise(starts)]
        notes = corpora.notes
    for task in tasks:
        check_labels(task, whole)
        labels = [known_labels(whole.select(part), task) for part in parts]
        notes += tuple(f"{task.name}: {note}" for note in unseen_notes(labels[0], dev=labels[1], test=labels[2]))
    return LabelledText(whole, dict(zip(PARTS, parts, strict=True)), tuple(tasks), notes)


@dataclass(frozen=True, eq=False)
class NamedSource:
    """A model (or its folder or hub name) or a store of its activations, under the name that the tables use."""

    name: str
    source: Model | ActivationStore | str

    @property
    def has_attention(self) -> bool:
        """Whether attention can be read; a model that is loaded here can be asked for it."""
        if isinstance(self.source, ActivationStore):
            return self.source.n_heads > 0
        return isinstance(self.source, str) or self.source.gives_attention


def named_sources(sources: Sources) -> list[NamedSource]:
    """The base and the others under their names: those of a mapping or of `NAME=MODEL`, else the models' own."""
    from residuum.models.loading import short_name

    pairs = list(sources.items()) if isinstance(sources, Mapping) else [named_source(source) for source in sources]
    named = []
    for name, source in pairs:
        if isinstance(source, str | os.PathLike):
            is_store = (Path(source) / "manifest.json").exists()
            source = ActivationStore.open(Path(source)) if is_store else os.fspath(source)
        named.append(NamedSource(name or (short_name(source) if isinstance(source, str) else source.name), source))
    if len(named) < 2:
        raise SettingError(f"Found {len(named)} model to compare; give the base and at least one other.")
    names = [source.name for source in named]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingError(f"Two models are called {twice[0]}; name them, such as base=FOLDER and tuned=FOLDER.")
    return named


@dataclass(frozen=True, eq=False)
class ReadModel:
    """The activations of a model, one store per text."""

    name: str
    stores: tuple[ActivationStore, ...]

    @property
    def n_layers(self) -> int:
        """The blocks of the model, whether or not all were read."""
        store = self.stores[0]
        return int(store.manifest.model.get("n_layers") or max(store.layers))

    @property
    def depths(self) -> Float[np.ndarray, " layer"]:
        """The relative depth of each layer that was read."""
        return relative_depths(self.stores[0].layers, self.n_layers)


def read_models(
    sources: Sequence[NamedSource],
    texts: Sequence[LabelledText],
    folder: Path,
    *,
    attention: bool,
    device: str = "auto",
    say: Callable[[str], object] = lambda line: None,
    **extraction: Any,
) -> list[ReadModel]:
    """Let every model read every text into a store in `folder`; the first text with its attention, if wanted.

    One model is loaded at a time. What is in the folder already, from this run or another, is not read again.
    """
    from residuum.activations.extraction import extract
    from residuum.models.loading import as_model, check_configs

    check_configs(source.source for source in sources)
    read = []
    for named in sources:
        say(f"{named.name} reads {sum(text.corpus.n_words for text in texts):,} words.")
        if isinstance(named.source, ActivationStore):
            _check_store(named.source, texts)
            stores = [named.source]
        else:
            options = {"device": device, "attention": attention, "max_memory": extraction.get("max_memory")}
            model = as_model(named.source, **options)
            of_model = folder / f"{folder_name(named.name)}-{model.fingerprint[:8]}"
            stores = []
            for text in texts:
                place = of_model / f"{text.unit}s-{text.corpus.text_fingerprint[:8]}"
                units = {"unit": text.unit, "attention": attention and text is texts[0]}
                stores.append(extract(model, text.corpus, place, **units, **extraction))
        read.append(ReadModel(named.name, tuple(store.renamed(named.name) for store in stores)))
    return read


def _check_store(store: ActivationStore, texts: Sequence[LabelledText]) -> None:
    """Raise an error unless a store holds the words of the only text."""
    if len(texts) > 1:
        raise SettingError(
            f"{store.path} holds the activations of one text, but the tasks need {len(texts)}; give the model itself."
        )
    text = texts[0]
    if store.unit != text.unit:
        raise StoreError(f"{store.path} has one row per {store.unit}, but {text.tasks[0].name} labels {text.unit}s.")
    pairs = zip(store.sentences, text.corpus.sentences, strict=False)
    differing = next((number for number, (a, b) in enumerate(pairs, 1) if a != b), None)
    if differing is not None or len(store.sentences) != len(text.corpus):
        lengths = f"{len(store.sentences)} and {len(text.corpus)} sentences"
        raise StoreError(
            f"{store.path} and {text.corpus.name} are over different words "
            f"({f'sentence {differing} differs' if differing else lengths}); give the corpus that the store "
            "was extracted from, with the same limit, or the model itself."
        )
