"""The rankings that need many words at once: how many are drawn, how they are held, and what that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from jaxtyping import Float, Int

from residuum.costs import Cost, Step, within
from residuum.maths.class_sums import class_sums
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.rankings import (
    JOINT_NEURONS,
    Ranking,
    gaussian_bytes,
    gaussian_ranking,
    iou_bytes,
    iou_ranking,
    joint_scatter,
    scatter_of_words,
)
from residuum.probing.batteries import TASK, Bench

SAMPLED = ("gaussian", "iou")
"""The rankings that are taken from sampled words; the others see all."""
SAMPLE = 20_000
"""Words that are drawn for them."""
FEWEST = 1000
"""Words below which a ranking would say little, however short memory is."""
PIECE = 256
"""Words whose float64 copies are summed at a time."""


@dataclass(frozen=True)
class Sample:
    """So many words of these neurons, and how they are ranked within the memory."""

    n_words: int
    layout: NeuronLayout
    n_classes: int
    max_memory: int

    @staticmethod
    def of(n_words: int, layout: NeuronLayout, n_classes: int, wanted: int, max_memory: int) -> Sample:
        """As many of `n_words` as are wanted, and as fit half of the memory beside what else is needed."""
        beside = Sample(0, layout, n_classes, max_memory)._gaussian_bytes(joint=False)
        most = min(max_memory // 2, max_memory - beside) // (4 * layout.n_neurons)
        return Sample(min(wanted, n_words, max(most, FEWEST)), layout, n_classes, max_memory)

    @property
    def joint(self) -> bool:
        """Whether the Gaussian ranking holds the scatter of all neurons: where it fits, and saves time."""
        return self.layout.n_neurons <= JOINT_NEURONS and self._gaussian_bytes(joint=True) <= self.max_memory

    def n_bytes(self, method: str) -> int:
        """The most memory that a ranking holds, the words among it."""
        if method == "gaussian":
            return self._gaussian_bytes(joint=self.joint)
        return self._words + iou_bytes(self.n_words, self.layout.n_neurons, self.n_classes)

    def _gaussian_bytes(self, *, joint: bool) -> int:
        return self._words + gaussian_bytes(self.layout.widths, self.n_classes, joint=joint)

    @property
    def _words(self) -> int:
        """The words, and float64 copies of some of them, of their squares and of whether they are finite."""
        return (4 * self.n_words + 17 * PIECE) * self.layout.n_neurons


def check_room(bench: Bench, methods: Sequence[str], wanted: int) -> None:
    """Raise an error before anything is ranked where the smallest form of a ranking is too large for the memory."""
    chosen = [method for method in SAMPLED if method in methods]
    if not chosen:
        return
    sample = sample_of(bench, wanted)
    steps = tuple(Step(f"{method} ranking", 0.0, memory=sample.n_bytes(method)) for method in chosen)
    what = f"{sample.n_words:,} sampled words × {sample.layout.n_neurons:,} neurons"
    within(Cost(what, steps), bench.max_memory, "Allow more, leave it out (--methods), or rank fewer layers (--layers)")


def sample_of(bench: Bench, wanted: int) -> Sample:
    """The sample that is drawn of a task's training part."""
    layout, n_classes = bench.splits.layout, bench.targets[TASK].n_classes
    return Sample.of(len(bench.splits.train), layout, n_classes, wanted, bench.max_memory)


def sampled_rankings(bench: Bench, methods: Sequence[str], wanted: int) -> dict[str, Ranking]:
    """Those of the methods that are taken from sampled words; features of all words give way where room is short."""
    chosen = [method for method in SAMPLED if method in methods]
    if not chosen:
        return {}
    sample = sample_of(bench, wanted)
    bench.make_room(max(sample.n_bytes(method) for method in chosen))
    x, classes = _drawn(bench, sample, np.random.default_rng([bench.seed, 2]))
    rankings = {"gaussian": lambda: _gaussian(x, classes, sample), "iou": lambda: iou_ranking(x, classes)}
    return {method: rankings[method]() for method in chosen}


def _drawn(
    bench: Bench, sample: Sample, generator: np.random.Generator
) -> tuple[Float[np.ndarray, "word neuron"], Int[np.ndarray, " word"]]:
    """Some training words drawn without replacement, in their order, and their classes."""
    n_words, classes = len(bench.splits.train), bench.targets[TASK].values
    if sample.n_words == n_words and isinstance(whole := bench.features("train"), np.ndarray):
        return whole, classes
    chosen = np.sort(generator.choice(n_words, sample.n_words, replace=False))
    return bench.some_features("train", chosen), classes[chosen]


def _gaussian(x: Float[np.ndarray, "word neuron"], classes: Int[np.ndarray, " word"], sample: Sample) -> Ranking:
    starts = range(0, len(x), PIECE)
    sums = reduce(add, (class_sums(x[s : s + PIECE], classes[s : s + PIECE], sample.n_classes) for s in starts))
    return gaussian_ranking(sums, joint_scatter(x, sample.layout.widths) if sample.joint else scatter_of_words(x))
