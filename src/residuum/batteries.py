"""Batteries of probes on a task's three parts: train on one, score on another, with what must stand beside a score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from residuum.examples import MEMORY, Examples, Splits
from residuum.maths.features import Features
from residuum.maths.probe_scores import (
    ClassScores,
    NumberScores,
    class_scores,
    majority_baseline,
    number_scores,
    word_majority_baseline,
)
from residuum.maths.probing import Probe, Recipe, TrainedProbe, battery_bytes, predict_probes, train_probes
from residuum.maths.statistics import Interval, bootstrap
from residuum.maths.targets import ControlTask, Target, class_target, control_task, number_target

TASK, CONTROL = "task", "control"
"""The names of a battery's targets: the labels themselves, and a random label for each word type."""


@dataclass(frozen=True, eq=False)
class Score:
    """One probe on held-out examples: accuracy, or Pearson's r where numbers are predicted."""

    probe: TrainedProbe
    value: float
    details: ClassScores | NumberScores
    predicted: np.ndarray


@dataclass(frozen=True, eq=False)
class Bench:
    """A task's data made ready for any number of batteries; features are read once and kept while they fit."""

    splits: Splits
    recipe: Recipe = field(default_factory=Recipe)
    max_memory: int = MEMORY
    seed: int = 0

    @cached_property
    def targets(self) -> dict[str, Target]:
        """What probes of this bench can predict: the task and, of words with classes, the control task."""
        train = self.splits.train
        if isinstance(train.labels, np.ndarray):
            return {TASK: number_target(train.labels)}
        targets = {TASK: class_target(train.labels)}
        return targets if self.control is None else targets | {CONTROL: self.control.target(train.words)}

    @cached_property
    def control(self) -> ControlTask | None:
        """A random label per word type; None for sentences, which hardly ever recur, and for numbers."""
        if self.splits.regression or self.splits.task.unit == "sentence":
            return None
        assert not isinstance(self.splits.train.labels, np.ndarray)
        return control_task(self.splits.train.labels, self.seed)

    def features(self, part: str) -> Features:
        """The features of `train`, `dev` or `test`."""
        return self._features[part]

    def truth(self, part: str, target: str = TASK) -> np.ndarray:
        """The true classes (as numbers, −1 where training has no such label) or values of a part."""
        examples: Examples = getattr(self.splits, part)
        if target == CONTROL:
            assert self.control is not None, "only word tasks have a control task"
            return self.control.values(examples.words)
        if isinstance(examples.labels, np.ndarray):
            return examples.labels
        return self.targets[TASK].encode(examples.labels)

    def train(self, probes: Sequence[Probe]) -> list[TrainedProbe]:
        """Train a battery on the training part."""
        return train_probes(self.features("train"), self.targets, probes, self.recipe)

    def score(self, trained: Sequence[TrainedProbe], part: str) -> list[Score]:
        """Score trained probes on a part."""
        predictions = predict_probes(trained, self.features(part))
        return [self._score(probe, predicted, part) for probe, predicted in zip(trained, predictions, strict=True)]

    def set_scorer(self, part: str = "dev", **settings: float) -> Callable[[Sequence[np.ndarray]], list[float]]:
        """A function from sets of neurons to the score of a probe trained on each (see `maths.selection`)."""

        def score_sets(sets: Sequence[Int[np.ndarray, " neuron"]]) -> list[float]:
            probes = [Probe(TASK, neurons, seed=self.seed, **settings) for neurons in sets]
            return [score.value for score in self.score(self.train(probes), part)]

        return score_sets

    def interval(self, score: Score, part: str, resamples: int = 1000) -> Interval:
        """The 95 % bootstrap interval of a probe's score over sentences."""
        examples: Examples = getattr(self.splits, part)
        if isinstance(score.details, NumberScores):
            truth = self.truth(part)
            return bootstrap(
                lambda chosen: number_scores(score.predicted[chosen], truth[chosen]).pearson,
                len(truth),
                resamples=resamples,
                rng=self.seed,
            )
        return accuracy_interval(score.details.correct, examples.sentences, resamples=resamples, seed=self.seed)

    def baselines(self, part: str = "test") -> dict[str, float]:
        """What is right without looking at any activation: the majority label, and each word's majority label."""
        train, held_out = self.splits.train, getattr(self.splits, part)
        if isinstance(train.labels, np.ndarray) or isinstance(held_out.labels, np.ndarray):
            return {}
        found = {"majority": majority_baseline(train.labels, held_out.labels)}
        if self.splits.task.unit == "word":
            found["word majority"] = word_majority_baseline(train.words, train.labels, held_out.words, held_out.labels)
        return found

    def memory(self, probes: Sequence[Probe]) -> int:
        """Upper estimate of the bytes that training a battery takes."""
        return battery_bytes(self.features("train"), self.targets, probes)

    @cached_property
    def _features(self) -> Mapping[str, Features]:
        parts = {"train": self.splits.train, "dev": self.splits.dev, "test": self.splits.test}
        total = sum(map(len, parts.values()))
        return {name: part.features(self.max_memory * len(part) // total) for name, part in parts.items()}

    def _score(self, probe: TrainedProbe, predicted: np.ndarray, part: str) -> Score:
        truth = self.truth(part, probe.probe.target)
        if not probe.n_classes:
            details = number_scores(predicted, truth)
            return Score(probe, details.pearson, details, predicted)
        details = class_scores(predicted, truth, probe.n_classes)
        return Score(probe, details.accuracy, details, predicted)


def accuracy_interval(
    correct: np.ndarray, sentences: Int[np.ndarray, " example"], *, resamples: int = 1000, seed: int = 0
) -> Interval:
    """The bootstrap interval of a share of right answers, whole sentences being drawn: Σ right / Σ examples."""
    _, place = np.unique(sentences, return_inverse=True)
    sizes: Float[np.ndarray, " sentence"] = np.bincount(place).astype(float)
    right: Float[np.ndarray, " sentence"] = np.bincount(place, weights=correct)
    return bootstrap(
        lambda chosen: right[chosen].sum() / sizes[chosen].sum(), len(sizes), resamples=resamples, rng=seed
    )
