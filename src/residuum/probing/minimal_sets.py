"""The one search for minimal sets: the smallest head of an order of neurons that keeps the oracle's score.

Sizes are bisected over nested sets, each with its own probe. A set is sufficient by the one-standard-error rule: its
paired difference, over sentences, to the share of the oracle's score that is to be kept is at most one standard error.
With few dev examples the sets are cross-validated on train and dev. The neurons keep the order in which they were
searched, so the probe that is reported is the probe that was found sufficient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.errors import StoreError
from residuum.maths.metrics import SentenceSums, paired_loss
from residuum.maths.selection import SMALL_DEV, MinimalSet, SetScore, sentence_folds, smallest_sufficient_set
from residuum.probing.probe_data import TASK, ProbeData
from residuum.storage.files import read_json, write_json

FOLDS = 5
Neurons = Int[np.ndarray, " neuron"]
Ranker = Callable[[ProbeData], Neurons]
"""The order of a task's neurons, from its training part alone."""


def find_minimal_set(
    data: ProbeData,
    ranker: Ranker,
    order: Neurons,
    keep: float,
    *,
    oracle: SentenceSums | None = None,
    known: Path | None = None,
) -> MinimalSet:
    """The smallest head of an order whose probe keeps the share `keep` of the score of all neurons.

    `order` is what `ranker` gives for the data; each fold of a cross-validation has an order of its own. `oracle` are
    the sums of all neurons on dev, where these are known. Scores are kept in the file `known` as they come, so that
    a killed search goes on.
    """
    parts = held_out_parts(data, ranker, order, oracle)

    def measure(sizes: Sequence[int]) -> list[SetScore]:
        whole = pool([part.oracle for part in parts])
        candidates = zip(*(part.sums(sizes) for part in parts), strict=True)
        return [paired_loss(pool(sums), whole, keep) for sums in candidates]

    scored = remembered_scores(measure, known)
    return smallest_sufficient_set(order, lambda sets: scored([len(neurons) for neurons in sets]))


def held_out_parts(
    data: ProbeData, ranker: Ranker, order: Neurons, oracle: SentenceSums | None = None
) -> list[HeldOutPart]:
    """What heads of an order are judged on: dev and, where that is small, the folds of the training part.

    Folds are of whole sentences; each is held out in turn, λ2 is chosen on dev. A fold without which fewer than two
    classes are left (for Matthews' correlation: not all of them) is not used.
    """
    parts, train = [HeldOutPart(data, order, "dev", oracle)], data.splits.train
    if len(data.splits.dev) >= SMALL_DEV or len(np.unique(train.sentences)) < FOLDS:
        return parts
    fold, classes = sentence_folds(train.sentences, FOLDS), data.targets[TASK].n_classes
    for number in range(FOLDS):
        numbers = [np.unique(train.sentences[own]).tolist() for own in (fold != number, fold == number)]
        learnt, held_out = (train.select(sentences) for sentences in numbers)
        left = len(set(learnt.labels)) if classes else 2
        if left >= (classes if data.metric == "matthews" else 2):
            own = data.of(replace(data.splits, train=learnt, test=held_out))
            parts.append(HeldOutPart(own, ranker(own), "test"))
    return parts


def growth_table(minimal: MinimalSet) -> pd.DataFrame:
    """The sizes that were tried on the way to the minimal set, and their scores on held-out data."""
    sizes, scores = zip(*minimal.tried, strict=True)
    return pd.DataFrame({"neurons": sizes, "dev": scores, "required": minimal.required})


def pool(sums: Sequence[SentenceSums]) -> SentenceSums:
    """The sums of the sentences of several parts."""
    return replace(sums[0], sums=np.concatenate([part.sums for part in sums]))


@dataclass(frozen=True, eq=False)
class HeldOutPart:
    """A part that probes are scored on, and the order whose heads they read."""

    data: ProbeData
    order: Neurons
    part: str
    known_oracle: SentenceSums | None = None

    def sums(self, sizes: Sequence[int]) -> list[SentenceSums]:
        """Per-sentence sums of the probe of each head; λ2 is chosen on dev."""
        return self._sums_of([self.order[:size] for size in sizes])

    def _sums_of(self, sets: Sequence[Neurons | None]) -> list[SentenceSums]:
        probes = [self.data.probe(TASK, neurons) for neurons in sets]
        sums = [score.sums for score in self.data.score(self.data.train(probes), self.part)]
        if self.part == "test" and FOLDS * self.data.cache.n_bytes > self.data.max_memory:
            self.data.cache.clear()  # all folds at once would be too much
        return sums

    @cached_property
    def oracle(self) -> SentenceSums:
        """The same of all neurons, whether the order has them or not."""
        return self.known_oracle or self._sums_of([None])[0]


def remembered_scores(
    measure: Callable[[Sequence[int]], list[SetScore]], path: Path | None
) -> Callable[[Sequence[int]], list[SetScore]]:
    """The same measure, that looks first in a file: the scores that a killed search left, by number of neurons."""
    known = read_json(path) if path is not None and path.exists() else {}
    usable = isinstance(known, dict) and all(
        size.isdecimal() and isinstance(score, list) and list(map(type, score)) == [float] * 3
        for size, score in known.items()
    )
    if not usable:
        raise StoreError(f"{path} does not hold scores by number of neurons; remove it, and they are computed again.")

    def measured(sizes: Sequence[int]) -> list[SetScore]:
        new = [size for size in sizes if str(size) not in known]
        if new:
            scores = measure(new)
            known.update({str(n): [s.score, s.excess, s.standard_error] for n, s in zip(new, scores, strict=True)})
            if path is not None:
                write_json(path, known)
        return [SetScore(*known[str(size)]) for size in sizes]

    return measured
