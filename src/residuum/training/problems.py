"""What a head has to answer: a class, a number, a tag for each word, or one of some candidates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, labels_of
from residuum.errors import DataError
from residuum.maths.probe_scores import classification_scores, regression_scores, span_scores
from residuum.maths.targets import encode_labels

_SPAN_TAG = re.compile(r"[BIESLU]-\S+|O")
_METRICS = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "regression": ("pearson", "spearman", "mean_squared_error"),
    "tagging": ("accuracy",),
    "choice": ("accuracy",),
}


@dataclass(frozen=True)
class Problem:
    """A task as a head sees it: its kind, the classes in the order of the head's outputs, and its main score."""

    task: Task
    kind: str  # classification, regression, tagging or choice
    classes: tuple[str, ...]  # of choice: the places of the candidates

    @property
    def n_outputs(self) -> int:
        """How many numbers the head gives for an example, word or candidate."""
        return len(self.classes) if self.kind in ("classification", "tagging") else 1

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the scores, the main one first."""
        names = list(_METRICS[self.kind])
        if self.kind == "classification" and len(self.classes) == 2:
            names.append("f1")
        if self.has_spans:
            names += ["span_f1", "span_precision", "span_recall"]
        asked = self.task.metric or ("span_f1" if self.has_spans else "")
        main = asked if asked in names else names[0]
        return (main, *(name for name in names if name != main))

    @property
    def has_spans(self) -> bool:
        """Whether the tags mark spans, as those of named entities do."""
        return (
            self.kind == "tagging" and len(self.classes) > 1 and all(_SPAN_TAG.fullmatch(tag) for tag in self.classes)
        )

    def encode(self, labels: Sequence[Any]) -> list[float]:
        """Labels as numbers: the class' place, −1 where training knows no such class, or the number itself."""
        if self.kind == "regression":
            return [float(label) for label in labels]
        return encode_labels([str(label) for label in labels], self.classes).tolist()

    def scores(self, predicted: Sequence[Any], truth: Sequence[Any]) -> dict[str, float]:
        """All scores, from predicted and true labels (of tagging: lists of them, a sentence each)."""
        if self.kind == "regression":
            found = regression_scores(np.asarray(predicted, np.float64), np.asarray(truth, np.float64))
        elif self.kind == "tagging":
            found = self._tag_scores(predicted, truth)
        else:
            sides = [np.asarray(self.encode(side), np.int64) for side in (predicted, truth)]
            found = classification_scores(sides[0], sides[1], len(self.classes), self._positive)
        return {name: found[name] for name in self.metrics}

    @property
    def _positive(self) -> int:
        """The place of the class whose F1 counts: the task's, else the second (labels are sorted: that of 0 and 1)."""
        return self.classes.index(self.task.positive) if self.task.positive in self.classes else 1

    def _tag_scores(self, predicted: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> dict[str, float]:
        pairs = [pair for rows in zip(predicted, truth, strict=True) for pair in zip(*rows, strict=True)]
        accuracy = sum(a == b for a, b in pairs) / len(pairs)
        return {"accuracy": accuracy, **(span_scores(predicted, truth) if self.has_spans else {})}


def problem_of(task: Task, train: Corpus) -> Problem:
    """The problem that a task's training part poses."""
    labels = labels_of(train, task)
    if task.unit == "word":
        return Problem(task, "tagging", _classes(train, (label for row in labels for label in row)))
    if task.name == "choice" and train.choices is None:
        raise DataError(f"{train.name} has no candidates to choose from; expected several for each text.")
    if train.choices is not None:
        return Problem(task, "choice", tuple(str(place) for place in range(max(map(len, train.choices)))))
    if task.regression or all(label is None or isinstance(label, float) for label in labels):
        return Problem(task, "regression", ())
    return Problem(task, "classification", _classes(train, labels))


def _classes(corpus: Corpus, labels: Any) -> tuple[str, ...]:
    classes = tuple(sorted({str(label) for label in labels if label is not None}))
    if len(classes) < 2:
        raise DataError(f"{corpus.name} has the label {', '.join(classes) or 'none'} only; expected at least two.")
    return classes
