"""Tasks by name: what a probe, a classifier or a fine-tuned model predicts, and where a corpus says it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from residuum.corpus.corpus import Corpus, Options
from residuum.corpus.reading import chosen_file, files_of_split, has_part_column, has_split, read_corpus
from residuum.corpus.records import candidate_pairs, known_text_columns
from residuum.corpus.text_files import first_lines
from residuum.errors import CorpusError, DataError, MissingSplitError, SettingError
from residuum.settings import plain_path

SHARES = (0.8, 0.1, 0.1)
"""Train, development and test shares of a corpus that comes in one piece."""

_HUB_SPLITS = {"dev": ("validation", "dev"), "test": ("test",)}


@dataclass(frozen=True)
class Task:
    """What is predicted of each word or sentence, and the score that speaks for it.

    `label` names the labels where there may be several; of a table the usual columns of text and label are found.
    Without a `metric` it is the first of its kind: accuracy, span F1 where tags mark spans, Pearson's correlation.
    `positive` is the class whose F1 counts, where the labels are written out: GLUE's class 1.
    """

    name: str
    label: str | None = None
    unit: str = "word"
    metric: str | None = None
    regression: bool = False
    hub: str | None = None  # where its data is when none is given
    positive: str | None = None
    part: str | None = None  # which development and test part, where there are several: `matched`
    columns: tuple[str, ...] | None = None  # of a table without a header


COLA = ("source", "label", "mark", "sentence")
"""The columns of CoLA's training and development files, which have no header."""

_NAMED = (
    Task("upos", "upos"),
    Task("xpos", "xpos"),
    Task("deprel", "deprel"),
    Task("deprel_main", "deprel_main"),
    Task("pos", "pos"),
    Task("chunk", "chunk", metric="span_f1"),
    Task("sem", "sem"),
    Task("ccg", "ccg"),
    Task("ner", "ner", metric="span_f1"),
    Task("cola", unit="sentence", metric="matthews", hub="nyu-mll/glue:cola", columns=COLA),
    Task("sst2", unit="sentence", metric="accuracy", hub="nyu-mll/glue:sst2"),
    Task("mrpc", unit="sentence", metric="f1", hub="nyu-mll/glue:mrpc", positive="equivalent"),
    Task("stsb", unit="sentence", regression=True, metric="spearman", hub="nyu-mll/glue:stsb"),
    Task("qqp", unit="sentence", metric="f1", hub="nyu-mll/glue:qqp", positive="duplicate"),
    Task("mnli", unit="sentence", metric="accuracy", hub="nyu-mll/glue:mnli", part="matched"),
    Task("qnli", unit="sentence", metric="accuracy", hub="nyu-mll/glue:qnli"),
    Task("rte", unit="sentence", metric="accuracy", hub="nyu-mll/glue:rte"),
    Task("sentence", unit="sentence"),
    Task("regression", unit="sentence", regression=True, metric="pearson"),
    Task("choice", unit="sentence"),
)
TASKS = {task.name: task for task in _NAMED}
"""The tasks known by name; any other name is that of a corpus' word labels, such as a UD feature (`Number`)."""


def named_task(name: str | Task) -> Task:
    """The task of that name; a name that is not known is taken for the name of word labels."""
    if isinstance(name, Task):
        return name
    if not isinstance(name, str):
        raise SettingError(f"task is {name!r:.80}; expected a name or a Task.")
    if not name:
        raise SettingError(f"The task has no name; choose one of {', '.join(TASKS)}, or name a corpus' word labels.")
    return TASKS.get(name.lower(), Task(name, name))


NAMED_LABELS = 5
"""Labels that a note names before it goes on with dots."""


@dataclass(frozen=True, eq=False)
class TaskCorpora:
    """The three parts of a task's data, and notes that say where parts that were not given came from."""

    train: Corpus
    dev: Corpus
    test: Corpus
    notes: tuple[str, ...] = ()

    def items(self) -> list[tuple[str, Corpus]]:
        """The parts by name."""
        return [("train", self.train), ("dev", self.dev), ("test", self.test)]

    def as_pairs(self) -> TaskCorpora:
        """The same parts, in which every candidate of a multiple choice is an example of its own, right or wrong."""
        return replace(self, **{part: candidate_pairs(corpus) for part, corpus in self.items()})


def read_task(
    task: str | Task,
    corpus: Corpus | str | os.PathLike[str],
    *,
    dev: str | os.PathLike[str] | None = None,
    test: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    **table: Any,
) -> TaskCorpora:
    """Read a task's train, development and test parts: a folder of splits, files of their own, or one file.

    A part that is absent is cut from another by the seed: development from train; all three (80 / 10 / 10) from a
    corpus in one piece. Where the test part is unlabelled, as in GLUE, the development part is tested on and another
    is cut from train. `limit` applies to each part. `table` are the options of `read_corpus` that say where a table has
    its text and label; of a word task, `label` names the labels to learn under the task's name.
    """
    task = named_task(task)
    if isinstance(corpus, Corpus) or in_one_piece(corpus, dev, test, **table):
        whole = read_whole(task, corpus, limit=limit, **table)
        shares = ", ".join(f"{share:.0%}" for share in SHARES)
        lacking = "" if isinstance(corpus, Corpus) or Path(corpus).is_file() else "there is no train part: "
        note = f"{lacking}{whole.name} was cut into {shares} by seed {seed}"
        return TaskCorpora(*whole.split(SHARES, seed), notes=(note,))
    table["limit"] = limit
    whole_file = Path(corpus).is_file() and not _has_part_column(Path(corpus), table)
    parts = {
        "train": _read(task, corpus, None if whole_file else "train", table),
        "dev": _optional(task, corpus, dev, "dev", table),
        "test": _optional(task, corpus, test, "test", table),
    }
    check_labels(task, parts["train"])
    return _completed(task, parts, seed)


def read_whole(
    task: str | Task, corpus: Corpus | str | os.PathLike[str], *, limit: int | None = None, **table: Any
) -> Corpus:
    """Read a task's data as one piece."""
    task = named_task(task)
    if isinstance(corpus, Corpus):
        whole = corpus if limit is None else corpus.limit(limit)
    else:
        whole = _read(task, corpus, None, {**table, "limit": limit})
    check_labels(task, whole)
    return whole


def in_one_piece(
    corpus: str | os.PathLike[str],
    dev: str | os.PathLike[str] | None = None,
    test: str | os.PathLike[str] | None = None,
    **table: Any,
) -> bool:
    """Whether a corpus comes without parts of its own, so that it is to be cut."""
    path = plain_path("corpus", corpus)
    if dev is not None or test is not None or not path.exists():
        return False
    if path.is_file():
        return not _has_part_column(path, table)
    parts = [split for split in ("train", "dev", "test") if has_split(path, split)]
    if parts == ["dev", "test"]:
        raise CorpusError(
            f"The folder {path} has no train part, only dev and test; add one, or name one of its files, which is then "
            "cut into train, dev and test."
        )
    return "train" not in parts


def labels_of(corpus: Corpus, task: Task) -> list[Any]:
    """A task's labels of a corpus: a list for each sentence of a word task, one value for each of a sentence task."""
    if task.unit == "word":
        return corpus.word_labels(task.label or task.name)
    found = corpus.targets(task.label if task.label in corpus.sentence_labels else None)
    numbers = [label for label in found if isinstance(label, float)]
    if numbers and task.hub is not None and not task.regression:
        whole = all(number.is_integer() for number in numbers)
        remedy = (
            "write them as whole numbers (tables with gaps store these so)" if whole else "take the task regression"
        )
        raise DataError(
            f"{task.name} is about classes, but the labels of {corpus.name} are numbers with a decimal point, such as "
            f"{numbers[0]}; {remedy}."
        )
    return found


def known_labels(corpus: Corpus, task: Task) -> list[Any]:
    """A task's labels of a corpus one after another, without words or sentences that have none."""
    labels = labels_of(corpus, task)
    flat = [label for row in labels for label in row] if task.unit == "word" else labels
    return [label for label in flat if label is not None]


def unseen_notes(train: Sequence[Any], **held_out: Sequence[Any]) -> list[str]:
    """In words, how many labels of each other part training never saw; nothing of parts that have none such."""
    seen, notes = set(map(str, train)), []
    for part, labels in held_out.items():
        if unseen := [str(label) for label in labels if str(label) not in seen]:
            names = sorted(set(unseen))
            shown = ", ".join(names[:NAMED_LABELS]) + (", …" if len(names) > NAMED_LABELS else "")
            found = f"{len(unseen):,} of {len(labels):,} {part} examples have labels that training never saw ({shown})"
            notes.append(f"{found} and count as errors")
    return notes


def check_labels(task: Task, corpus: Corpus) -> None:
    """Raise an error unless some word or sentence of a corpus has a label of the task, and all are text or numbers."""
    known = known_labels(corpus, task)
    if not known:
        raise CorpusError(f"{corpus.name} has no {task.name} label on any {task.unit}; expected at least some.")
    wrong = [label for label in known if not isinstance(label, str | int | float)]
    # half a surrogate pair, which only programs make, can be written nowhere
    wrong = wrong or [label for label in set(known) if isinstance(label, str) and re.search("[\ud800-\udfff]", label)]
    if wrong:
        raise CorpusError(f"{corpus.name} has the {task.name} label {ascii(wrong[0])[:60]}; expected text or a number.")


def _completed(task: Task, parts: dict[str, Corpus | None], seed: int) -> TaskCorpora:
    """Fill the parts that are absent or unlabelled from the others, and say so."""
    train, dev, test, notes = parts["train"], parts["dev"], parts["test"], []
    assert train is not None, "the training part is read or an error was raised"
    if test is None and dev is not None:
        dev, test = None, dev
        notes.append(f"the test part is absent or unlabelled: {test.name} is the test")
    if test is None:
        train, test = train.split((0.9, 0.1), seed)
        notes.append(f"test is a tenth of {train.name}, cut by seed {seed}")
    if dev is None:
        train, dev = train.split((0.9, 0.1), seed)
        notes.append(f"dev is a tenth of {train.name}, cut by seed {seed}")
    return TaskCorpora(train, dev, test, tuple(notes))


def _optional(
    task: Task,
    corpus: str | os.PathLike[str],
    file: str | os.PathLike[str] | None,
    split: str,
    table: dict[str, Any],
) -> Corpus | None:
    """The part of a split: the file that was named for it, or what the corpus has; None without it or its labels."""
    local = Path(corpus).exists()
    if file is not None:
        part = _read(task, file, None, table)
    else:
        names = (split,) if local else _HUB_SPLITS[split]
        special = [f"{name}_{task.part}" for name in names] if task.part is not None else []  # validation_matched
        part = _first_part(task, corpus, [*special, *names], table)
    if part is None:
        return None
    if file is None and (not local or (split == "test" and task.unit == "sentence")):
        labels = part.labels if task.unit == "word" else part.sentence_labels
        if not labels or not known_labels(part, task):
            return None  # as GLUE ships its tests; some labels, but not the task's, are an error
    check_labels(task, part)
    return part


def _first_part(task: Task, corpus: str | os.PathLike[str], names: list[str], table: dict[str, Any]) -> Corpus | None:
    """The first part of these names that is there."""
    path = Path(corpus)
    if path.is_file():
        return _read(task, path, names[-1], table) if _has_part_column(path, table) else None
    if path.exists():
        split = next((name for name in names if has_split(path, name)), None)
        if split is not None and len(files := files_of_split(path, split)) > 1:
            listed = ", ".join(file.name for file in files)
            raise CorpusError(
                f"The folder {path} has several {split} parts: {listed}. Name one with {names[-1]}='FILE'."
            )
        return None if split is None else _read(task, corpus, split, table)
    for name in names:
        with suppress(MissingSplitError):
            return _read(task, corpus, name, table)
    return None


def _read(task: Task, source: str | os.PathLike[str], split: str | None, table: dict[str, Any]) -> Corpus:
    """Read one part, with the labels under the task's name where another was asked for."""
    label, options = table.get("label"), {name: value for name, value in table.items() if value is not None}
    if task.unit == "word":
        options.pop("label", None)
    if task.columns is not None and "columns" not in options and Path(source).exists():
        cells = next(iter(first_lines(chosen_file(Path(source), split))), "").split("\t")
        if len(cells) == len(task.columns) and known_text_columns(cells) is None:  # without a header, as CoLA
            options["columns"] = task.columns
    corpus = read_corpus(source, split=split, regression=task.regression or None, **options)
    if task.unit == "sentence" or label is None:
        return corpus
    name = (options.get("columns") or [])[label] if isinstance(label, int) else label
    return replace(corpus, labels={**corpus.labels, (task.label or task.name): corpus.word_labels(name)})


def _has_part_column(path: Path, table: dict[str, Any]) -> bool:
    known: dict[str, Any] = {name: table.get(name) for name in ("text", "columns", "label", "delimiter", "header")}
    return has_part_column(path, table.get("format"), Options(**known))
