"""What a probe predicts: classes, numbers, or the control task of Hewitt & Liang (2019)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError

UNSEEN = -1
DRAWS = 100
"""How often random labels are drawn again while all words get the same one."""


@dataclass(frozen=True, eq=False)
class Target:
    """One value per training word: the place of its label in `classes`, or a number if there are none."""

    values: Int[np.ndarray, " word"] | Float[np.ndarray, " word"]
    classes: tuple[str, ...] = ()

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a regression."""
        return len(self.classes)

    def encode(self, labels: Sequence[str]) -> Int[np.ndarray, " word"]:
        """Other words' labels in the same numbers; a label that training never saw becomes `UNSEEN`."""
        return encode_labels(labels, self.classes)


def class_target(labels: Sequence[str]) -> Target:
    """Target of a classification; classes are sorted, so the numbers do not depend on the order of words."""
    if len(labels) == 0:
        raise DataError("There are no labels to learn from; give at least two words with different labels.")
    classes = tuple(sorted(set(labels)))
    if len(classes) == 1:
        raise DataError(f"All {len(labels)} labels are {labels[0]!r}; a probe needs at least two classes.")
    return Target(encode_labels(labels, classes), classes)


def number_target(values: Sequence[float] | Float[np.ndarray, " word"]) -> Target:
    """Target of a regression."""
    numbers = np.asarray(values, np.float32)
    if numbers.size == 0 or not np.isfinite(numbers).all():
        raise DataError("The target values are empty or contain NaN or infinite numbers; give one number per word.")
    if np.ptp(numbers) == 0:
        raise DataError(f"All {numbers.size} target values are {numbers[0]:g}; there is nothing to predict.")
    return Target(numbers)


def encode_labels(labels: Sequence[str], classes: Sequence[str]) -> Int[np.ndarray, " word"]:
    """Place of each label in `classes`, `UNSEEN` (−1) when it is not among them."""
    places = {label: place for place, label in enumerate(classes)}
    return np.fromiter((places.get(label, UNSEEN) for label in labels), np.int64, len(labels))


@dataclass(frozen=True)
class ControlTask:
    """A random label for each word *type*, drawn with the frequencies of the real labels.

    A type's label depends on the seed and the word alone, so training, development and test words agree, in
    any order. A probe can only solve it by remembering words (Hewitt & Liang 2019). `draw` tells repeated draws of a
    seed apart.
    """

    classes: tuple[str, ...]
    frequencies: tuple[float, ...]
    seed: int
    draw: int = 0

    def values(self, words: Sequence[str]) -> Int[np.ndarray, " word"]:
        """The control label of each word, as its place in `classes`."""
        upper, of_type = np.cumsum(self.frequencies)[:-1], {}
        seed = f"{self.seed}.{self.draw}" if self.draw else str(self.seed)
        for word in set(words):
            digest = blake2b(f"{seed}\t{word}".encode(), digest_size=8).digest()
            uniform = int.from_bytes(digest, "big") / 2**64
            of_type[word] = int(np.searchsorted(upper, uniform, side="right"))
        return np.fromiter((of_type[word] for word in words), np.int64, len(words))

    def target(self, words: Sequence[str]) -> Target:
        """The control labels of the training words, ready for a probe."""
        return Target(self.values(words), self.classes)


def control_task(labels: Sequence[str], seed: int = 0) -> ControlTask:
    """The control task beside a real task with these training labels."""
    counts = Counter(labels)
    classes = tuple(sorted(counts))
    if len(classes) < 2:
        raise DataError(f"The labels have {len(classes)} classes; a control task needs at least two.")
    return ControlTask(classes, tuple(counts[label] / len(labels) for label in classes), seed)


def varied_control_task(labels: Sequence[str], words: Sequence[str], seed: int = 0) -> ControlTask | None:
    """The first of `DRAWS` draws of the control task that gives the training words more than one label.

    None if there is none, as with a single word type: a probe cannot learn a task of one class.
    """
    first, types = control_task(labels, seed), sorted(set(words))
    draws = (replace(first, draw=draw) for draw in range(DRAWS))
    return next((task for task in draws if len(set(task.values(types).tolist())) > 1), None)
