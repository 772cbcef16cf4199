"""A task's data ready for probing: features that are read once, targets, training, scores and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from residuum.costs import exactly
from residuum.engine import Engine, Workers, as_engine, run_tasks
from residuum.errors import MemoryLimitError
from residuum.maths.features import Features
from residuum.maths.metrics import SentenceSums, Truth, are_span_tags, score_interval
from residuum.maths.probe_scores import ClassScores, NumberScores, class_scores, number_scores
from residuum.maths.probe_stack import Columns
from residuum.maths.probing import (
    ConvergedRecipe,
    HeldOut,
    PaperRecipe,
    Probe,
    ProbeRecipe,
    TrainedProbe,
    predict_probes,
    train_probes,
    view_key,
)
from residuum.maths.statistics import Interval
from residuum.maths.targets import ControlTask, Target, class_target, number_target, varied_control_task
from residuum.probing.examples import MEMORY, PARTS, Examples, FeatureCache, Splits

TASK, CONTROL = "task", "control"
"""The targets of probes: the labels themselves, and a random label for each word type (Hewitt & Liang 2019)."""
CELL_WEIGHTS = 1_000_000
"""Weights that are worth a worker's task of their own."""
SHARE_OF_WEIGHTS = 8
"""An eighth of the memory is for probes while they train; the rest is for the features."""


@dataclass(frozen=True, eq=False)
class Score:
    """One trained probe on held-out examples: the task's metric (of a control task: accuracy), and the details."""

    probe: TrainedProbe
    sums: SentenceSums
    details: ClassScores | NumberScores
    predicted: np.ndarray

    @property
    def value(self) -> float:
        """The metric over all examples."""
        return self.sums.value

    @property
    def plain(self) -> float:
        """Accuracy, or Pearson's correlation of numbers: what compares with a control task."""
        return self.details.accuracy if isinstance(self.details, ClassScores) else self.details.pearson


@dataclass(frozen=True, eq=False)
class ProbeData:
    """A task's examples, and how probes are trained on them; features are read once and kept while they fit."""

    splits: Splits
    recipe: ProbeRecipe = field(default_factory=ConvergedRecipe)
    max_memory: int = MEMORY
    seed: int = 0
    workers: Workers = None  # None: this process trains all probes at once
    penalty: tuple[float, float] | None = None  # (λ1, λ2); None: λ2 is chosen on dev, or the papers' penalty
    seeds: int = 1  # of the papers' recipe; a converged probe has none
    cache: FeatureCache = field(default_factory=FeatureCache, repr=False)

    def of(self, splits: Splits) -> ProbeData:
        """The same kind of probes on other examples, such as those of a random twin."""
        return replace(self, splits=splits, cache=FeatureCache())

    @property
    def run_seeds(self) -> range:
        """The seeds with which each set of neurons is probed: one for converged probes, which do not depend on it."""
        return range(self.seed, self.seed + (self.seeds if isinstance(self.recipe, PaperRecipe) else 1))

    def probe(self, target: str, neurons: Columns | None = None, seed: int | None = None) -> Probe:
        """A probe with the penalty of these settings."""
        l1, l2 = self.penalty or (None, None)
        return Probe(target, neurons, l1, l2, self.seed if seed is None else seed)

    @cached_property
    def targets(self) -> dict[str, Target]:
        """What probes can predict: the task and, for words with classes, the control task."""
        train = self.splits.train
        if isinstance(train.labels, np.ndarray):
            return {TASK: number_target(train.labels)}
        targets = {TASK: class_target(train.labels)}
        return targets if self.control is None else targets | {CONTROL: self.control.target(train.words)}

    @cached_property
    def control(self) -> ControlTask | None:
        """A random label per word type; None for sentences, which hardly ever recur, and for numbers.

        None also where the training words are so few, or so often of one class, that no draw gives them two labels.
        """
        train = self.splits.train
        if not self._may_have_control or isinstance(train.labels, np.ndarray):
            return None
        return varied_control_task(train.labels, train.words, self.seed)

    @property
    def metric(self) -> str:
        """The task's own metric: its name in tables and reports."""
        asked, classes = self.splits.task.metric, self.targets[TASK].classes
        if not classes:
            return asked if asked in ("pearson", "spearman") else "pearson"
        spans = self.splits.task.unit == "word" and are_span_tags(classes)
        if asked == "span_f1" or asked is None:
            return "span_f1" if spans else "accuracy"
        return "accuracy" if asked == "f1" and len(classes) != 2 else asked

    @property
    def facts(self) -> dict[str, Any]:
        """What identifies the data in a result's settings, with a note where a control task had to be left out."""
        facts = self.splits.facts
        if not self._may_have_control or self.control is not None:
            return facts
        n_types = len(set(self.splits.train.words))
        note = f"there is no control task: random labels of the {n_types} word types of the training part are all equal"
        return facts | {"notes": [*facts["notes"], note]}

    @property
    def _may_have_control(self) -> bool:
        labels = self.splits.train.labels
        return self.splits.task.unit == "word" and not isinstance(labels, np.ndarray) and len(set(labels)) > 1

    def examples(self, part: str) -> Examples:
        """The examples of `train`, `dev` or `test`."""
        return {"train": self.splits.train, "dev": self.splits.dev, "test": self.splits.test}[part]

    def features(self, part: str) -> Features:
        """The features of a part, read when they are first needed."""
        return self.cache.features(self.examples(part), self._room(part))

    def some_features(self, part: str, chosen: Int[np.ndarray, " _"]) -> Float[np.ndarray, "example neuron"]:
        """The features of some examples of a part (ascending), copied from what is in memory, else read for this."""
        examples = self.examples(part)
        held = self.cache.held(examples, self._room(part))
        if isinstance(held, np.ndarray):
            return held[chosen]
        some = replace(examples, rows=examples.rows[chosen], labels=())
        features = some.features(4 * len(chosen) * self.splits.layout.n_neurons)
        assert isinstance(features, np.ndarray), "as much memory as they need"
        return features

    def make_room(self, n_bytes: int) -> None:
        """Drop all features, to be read again, where so many bytes beside them exceed the memory limit."""
        if self.cache.n_bytes + n_bytes > features_memory(self.max_memory):
            self.cache.clear()

    def truth(self, part: str, target: str = TASK) -> Truth:
        """The true classes or numbers of a part, with the metric that scores them."""
        if (part, target) in self._truths:
            return self._truths[part, target]
        examples, (classes, positive) = self.examples(part), (self.targets[TASK].classes, self.splits.task.positive)
        if target == CONTROL:
            assert self.control is not None, "only word tasks have a control task"
            truth = Truth("accuracy", self.control.values(examples.words), examples.sentences, self.control.classes)
        elif isinstance(examples.labels, np.ndarray):
            truth = Truth(self.metric, examples.labels, examples.sentences)
        else:
            values = self.targets[TASK].encode(examples.labels)
            place = classes.index(positive) if positive in classes else 1
            truth = Truth(self.metric, values, examples.sentences, classes, examples.labels, place)
        return self._truths.setdefault((part, target), truth)

    @cached_property
    def _truths(self) -> dict[tuple[str, str], Truth]:
        return {}

    def train(self, probes: Sequence[Probe]) -> list[TrainedProbe]:
        """Train probes of the task and the control task on the training part; the task's λ2 is chosen on dev.

        A control probe gets the λ2 of the task probe on the same neurons, so that both have the same capacity.
        """
        dev = {name: self.truth("dev", name) for name in self.targets}
        if isinstance(self.recipe, PaperRecipe) or all(probe.l2 is not None for probe in probes):
            return self.train_for(self.targets, probes, dev)
        tasks = [probe for probe in probes if probe.target != CONTROL]
        trained = self.train_for(self.targets, tasks, dev) if tasks else []
        chosen = {view_key(done.probe.neurons): done.penalty[1] for done in trained}
        controls = [
            replace(probe, l2=chosen.get(view_key(probe.neurons))) if probe.l2 is None else probe
            for probe in probes
            if probe.target == CONTROL
        ]
        parts = {False: iter(trained), True: iter(self.train_for(self.targets, controls, dev) if controls else [])}
        return [replace(next(parts[probe.target == CONTROL]), probe=probe) for probe in probes]

    def train_for(
        self, targets: Mapping[str, Target], probes: Sequence[Probe], dev: Mapping[str, Truth]
    ) -> list[TrainedProbe]:
        """Train probes of any targets of the training examples, in one pass, or cell by cell where workers do it.

        `dev` is the truth of the targets on the development part. The cells depend on the probes and the memory
        alone, so that any number of workers gives the same weights to the bit.
        """
        n_weights = [self._n_weights(probe, targets) for probe in probes]
        most = self._most_weights(n_weights)
        choose = isinstance(self.recipe, ConvergedRecipe) and any(probe.l2 is None for probe in probes)
        if self.workers is None:
            held_out = _held_out(self.features("dev"), dev) if choose else None
            groups = [[probes[i] for i in group] for group in packed(n_weights, most)]
            train = partial(train_probes, self.features("train"), targets)
            return [done for group in groups for done in train(group, self.recipe, held_out)]
        cells = probe_cells(probes, n_weights, min(CELL_WEIGHTS, most))
        engine = self.trainers(max(sum(n_weights[i] for i in cell) for cell in cells))
        parts = [(replace(self.examples(part), labels=()), self._room(part)) for part in ("train", "dev")]
        cache = self.cache if engine.alone else None
        task = partial(_train_cell, cache, parts if choose else parts[:1], dev)
        arguments = [(targets, [probes[i] for i in cell], self.recipe) for cell in cells]
        trained = {}
        for cell, in_cell in zip(cells, run_tasks(task, arguments, engine), strict=True):
            trained |= dict(zip(cell, in_cell, strict=True))
        return [replace(trained[i], probe=probe) for i, probe in enumerate(probes)]

    def groups(self, probes: Sequence[Probe], targets: Mapping[str, Target], copies: int = 0) -> list[Sequence[Probe]]:
        """Neighbouring probes whose weights, and so many copies of each, are within their share of the memory."""
        n_weights = [self._n_weights(probe, targets) for probe in probes]
        return [[probes[i] for i in group] for group in packed(n_weights, self._most_weights(n_weights, copies))]

    def score(self, trained: Sequence[TrainedProbe], part: str) -> list[Score]:
        """Score trained probes on a part."""
        scores = []
        for probe, predicted in zip(trained, predict_probes(trained, self.features(part)), strict=True):
            truth = self.truth(part, probe.probe.target)
            if probe.n_classes:
                details = class_scores(predicted, truth.values, probe.n_classes)
            else:
                details = number_scores(predicted, truth.values)
            scores.append(Score(probe, truth.sums(predicted), details, predicted))
        return scores

    def interval(self, scores: Score | Sequence[Score]) -> Interval:
        """The 95 % interval of a score over sentences or, of several seeds, of their mean over sentences and seeds."""
        scores = [scores] if isinstance(scores, Score) else scores
        return score_interval([score.sums for score in scores], seed=self.seed)

    def trainers(self, most_weights: int) -> Engine:
        """As many local workers as can hold the training part, and a cell of so many weights, at the same time.

        Where memory is short there are fewer workers, not smaller windows: windows decide what is learnt. Each worker
        of a cluster has its own memory.
        """
        engine = as_engine(self.workers)
        if engine.client:
            return engine
        # The training part is a window of it where it is long; the other two are held here.
        row = 4 * self.splits.layout.n_neurons
        train, *others = (min(row * len(self.examples(part)), self._room(part)) for part in PARTS)
        copies = copies_that_fit(train, most_weights, self.max_memory - sum(others), self.recipe.weight_bytes)
        return replace(engine, workers=min(engine.workers, copies))

    def _room(self, part: str) -> int:
        """The bytes of activations that a part may hold, whoever reads it, because they decide the windows."""
        total = len(self.splits.train) + len(self.splits.dev) + len(self.splits.test)
        return features_memory(self.max_memory) * len(self.examples(part)) // total

    def _most_weights(self, n_weights: Sequence[int], copies: int = 0) -> int:
        """How many weights may train at once, with copies; an error where one of the probes alone has more."""
        each = self.recipe.weight_bytes + 4 * copies
        most = weights_memory(self.max_memory) // each
        if (largest := max(n_weights, default=0)) > most:
            raise MemoryLimitError(
                f"A probe of {largest:,} weights needs {exactly(each * largest)} while it trains, but of the "
                f"{exactly(self.max_memory)} that --max-memory allows 1/{SHARE_OF_WEIGHTS} is for that. Allow more, or "
                "probe fewer neurons at once."
            )
        return most

    def _n_weights(self, probe: Probe, targets: Mapping[str, Target]) -> int:
        n_neurons, neurons = self.splits.layout.n_neurons, probe.neurons
        if isinstance(neurons, slice):
            width = len(range(*neurons.indices(n_neurons)))
        else:
            width = n_neurons if neurons is None else len(neurons)
        return max(targets[probe.target].n_classes, 1) * (width + 1)


def weights_memory(max_memory: int) -> int:
    """The bytes that probes may take while they train."""
    return max_memory // SHARE_OF_WEIGHTS


def features_memory(max_memory: int) -> int:
    """The bytes that are for features: all others."""
    return max_memory - weights_memory(max_memory)


def copies_that_fit(held: int, n_weights: int, max_memory: int, recipe_bytes: int = PaperRecipe.weight_bytes) -> int:
    """How many processes may hold so many bytes of features each, and so many weights in training; at least one."""
    return max(1, max_memory // max(1, held + recipe_bytes * n_weights))


def same_examples(a: Splits, b: Splits) -> bool:
    """Whether two tasks label the same rows of the same stores, so that their probes can train together."""
    return all(
        getattr(a, part).store is getattr(b, part).store
        and np.array_equal(getattr(a, part).rows, getattr(b, part).rows)
        for part in PARTS
    )


def train_together(jobs: Sequence[tuple[ProbeData, Sequence[Probe]]]) -> list[list[TrainedProbe]]:
    """Train the probes of several tasks of the same examples in one pass; each learns what it would learn alone."""
    first = jobs[0][0]
    assert all(same_examples(first.splits, data.splits) for data, _ in jobs[1:]), "examples differ"
    targets = {f"{i} {name}": t for i, (data, _) in enumerate(jobs) for name, t in data.targets.items()}
    probes = [replace(p, target=f"{i} {p.target}") for i, (_, asked) in enumerate(jobs) for p in asked]
    dev = {f"{i} {name}": data.truth("dev", name) for i, (data, _) in enumerate(jobs) for name in data.targets}
    trained = iter(first.train_for(targets, probes, dev))
    return [[replace(next(trained), probe=probe) for probe in asked] for _, asked in jobs]


def probe_cells(probes: Sequence[Probe], n_weights: Sequence[int], most: int) -> list[list[int]]:
    """The numbers of the probes that train together: of one seed, and with no more weights than these."""
    cells: list[list[int]] = []
    for seed in sorted({probe.seed for probe in probes}):
        of_seed = [i for i, probe in enumerate(probes) if probe.seed == seed]
        cells += [[of_seed[place] for place in cell] for cell in packed([n_weights[i] for i in of_seed], most)]
    return cells


def packed(sizes: Sequence[int], most: int) -> list[list[int]]:
    """The places of neighbours that are no larger than `most` together; what is larger stands alone."""
    groups: list[list[int]] = []
    total = 0
    for place, size in enumerate(sizes):
        if not groups or total + size > most:
            groups.append([])
            total = 0
        groups[-1].append(place)
        total += size
    return groups


def _held_out(features: Features, dev: Mapping[str, Truth]) -> HeldOut:
    """What λ2 is chosen on, by the task's own metric where accuracy would favour a constant answer."""
    scores = {
        name: lambda predicted, truth=truth: truth.sums(predicted).value
        for name, truth in dev.items()
        if truth.metric in ("matthews", "f1")
    }
    return HeldOut(features, {name: truth.values for name, truth in dev.items()}, scores)


_worker_cache = FeatureCache()
"""What this process, as a worker, has read of the last training and development parts."""


def _train_cell(
    cache: FeatureCache | None,
    parts: Sequence[tuple[Examples, int]],
    dev: Mapping[str, Truth],
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    recipe: ProbeRecipe,
) -> list[TrainedProbe]:
    """Train probes on parts that a worker, which has no cache yet, reads from the store first."""
    if cache is None:
        cache = _worker_cache
        if cache.held(*parts[0]) is None:
            cache.clear()
    train, *held_out = (cache.features(examples, room) for examples, room in parts)
    return train_probes(train, targets, probes, recipe, _held_out(held_out[0], dev) if held_out else None)
