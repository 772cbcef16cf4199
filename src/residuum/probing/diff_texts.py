"""What the models read: each text once, whatever the number of tasks that its words have labels for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

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
from residuum.errors import SettingError
from residuum.probing.examples import PARTS, Splits, examples

CorpusSource = Corpus | str | os.PathLike[str]
TaskChoice = str | Sequence[str | Task] | Mapping[str, CorpusSource | None]


@dataclass(frozen=True, eq=False)
class Text:
    """One text in one piece, which of its sentences are learnt from, chosen on and tested on, and its tasks."""

    corpus: Corpus
    parts: dict[str, list[int]]
    tasks: tuple[Task, ...]
    notes: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """What a label belongs to, and so what a row of activations is: `word` or `sentence`."""
        return self.tasks[0].unit

    def splits(self, store: ActivationStore, task: Task) -> Splits:
        """The examples of one of the tasks, as the model of a store reads them."""
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
    format: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> list[Text]:
    """Read the texts of some tasks, each text once: `corpus`, and those of tasks that come with their own.

    Tasks are names, `name=corpus` for labels that are elsewhere, or a mapping of both. `dev`, `test` and `format` are
    of `corpus`. The first text is that of the first task.
    """
    groups: dict[tuple[object, str], tuple[CorpusSource, list[Task]]] = {}
    for task, own in chosen_tasks(tasks):
        source = corpus if own is None else own
        key = (source if isinstance(source, Corpus) else os.fspath(source), task.unit)
        groups.setdefault(key, (source, []))[1].append(task)
    reading = {"dev": dev, "test": test, "format": format}
    return [
        read_text(source, found, limit=limit, seed=seed, **(reading if source is corpus else {}))
        for source, found in groups.values()
    ]


def chosen_tasks(tasks: TaskChoice) -> list[tuple[Task, CorpusSource | None]]:
    """The tasks, each with its own corpus or None, in the order in which they were given."""
    if isinstance(tasks, Mapping):
        pairs: list[tuple[str | Task, CorpusSource | None]] = list(tasks.items())
    else:
        given = [part.strip() for part in tasks.split(",")] if isinstance(tasks, str) else list(tasks)
        pairs = [_name_and_corpus(one) for one in given if one]
    chosen = [(named_task(name), own) for name, own in pairs]
    names = [task.name for task, _ in chosen]
    if not names or len(set(names)) < len(names):
        raise SettingError(f"The tasks are {', '.join(names) or 'none'}; give at least one, and each once.")
    if numbers := [task.name for task, _ in chosen if task.regression]:
        raise SettingError(f"{numbers[0]} predicts numbers; `diff` compares accuracies, so give tasks with classes.")
    return chosen


def read_text(
    source: CorpusSource, tasks: Sequence[Task], *, limit: int | None = None, seed: int = 0, **reading: Any
) -> Text:
    """Read a text for tasks of one unit; a text in one piece is cut by the seed, parts of its own are kept."""
    if isinstance(source, Corpus) or in_one_piece(source, reading.get("dev"), reading.get("test")):
        whole = read_whole(tasks[0], source, format=reading.get("format"), limit=limit)
        cut = split_indices(len(whole), SHARES, seed)
        shares = ", ".join(f"{share:.0%}" for share in SHARES)
        notes = (f"{whole.name} was cut into {shares} by seed {seed}",)
    else:
        corpora = read_task(tasks[0], source, limit=limit, seed=seed, **reading)
        whole = join_corpora([corpus for _, corpus in corpora.items()], Path(source).name)
        starts = [0, len(corpora.train), len(corpora.train) + len(corpora.dev), len(whole)]
        cut = [list(range(start, stop)) for start, stop in pairwise(starts)]
        notes = corpora.notes
    for task in tasks:
        check_labels(task, whole)
        labels = [known_labels(whole.select(part), task) for part in cut]
        notes += tuple(f"{task.name}: {note}" for note in unseen_notes(labels[0], dev=labels[1], test=labels[2]))
    return Text(whole, dict(zip(PARTS, cut, strict=True)), tuple(tasks), notes)


def _name_and_corpus(task: str | Task) -> tuple[str | Task, str | None]:
    if isinstance(task, Task):
        return task, None
    name, _, own = task.partition("=")
    return name, own or None
