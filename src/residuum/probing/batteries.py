"""Batteries of probes on a task's three parts: train on one, score on another, with what must stand beside a score."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import xxhash
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits

from residuum.costs import exactly
from residuum.engine import Engine, Workers, as_engine, run_tasks
from residuum.errors import MemoryLimitError, SettingError
from residuum.maths.features import Features
from residuum.maths.penalty_search import SEARCH_COPIES, PenaltyScore, penalty_grid, search_penalty
from residuum.maths.probe_scores import (
    ClassScores,
    NumberScores,
    bag_of_words_baseline,
    class_scores,
    majority_baseline,
    number_scores,
    pearson_score,
    word_majority_baseline,
)
from residuum.maths.probing import (
    TRAINING_BYTES,
    Probe,
    Recipe,
    TrainedProbe,
    battery_bytes,
    fit,
    predict_probes,
    train_probes,
    view_key,
)
from residuum.maths.statistics import Interval, bootstrap, bootstrap_ratio
from residuum.maths.targets import ControlTask, Target, class_target, number_target, varied_control_task
from residuum.probing.examples import MEMORY, PARTS, Examples, Splits

TASK, CONTROL = "task", "control"
"""The names of a battery's targets: the labels themselves, and a random label for each word type."""
FEW_STEPS, MORE_STEPS = 4, 14
"""The steps whose difference tells the speed of training."""
MOST_COLUMNS, MOST_ROWS, MOST_WORDS, MOST_BYTES = 20_000, 64, 256, 80_000_000
"""The neurons (of all probes together), classes, batch and bytes of features that it is measured with, at most."""
CELL_WEIGHTS = 1_000_000
"""Weights that are worth a task of their own: the words that it gathers for them cost little beside these."""
SHARE_OF_WEIGHTS = 8
"""An eighth of the memory is for probes while they learn; the rest is for the features."""


@dataclass(frozen=True, eq=False)
class Score:
    """One probe on held-out examples: accuracy, or Pearson's r where numbers are predicted."""

    probe: TrainedProbe
    value: float
    details: ClassScores | NumberScores
    predicted: np.ndarray


@dataclass(frozen=True)
class Estimate:
    """What a battery will take, known before it trains; as text, the line to print before long work."""

    n_probes: int
    n_examples: int
    n_weights: int
    n_bytes: int
    seconds: float

    def __str__(self) -> str:
        duration = f"{self.seconds / 60:.0f} min" if self.seconds >= 100 else f"{max(self.seconds, 1):.0f} s"
        return (
            f"{self.n_probes} probes ({self.n_weights / 1e6:.1f} million weights) on {self.n_examples:,} examples: "
            f"about {duration} and {self.n_bytes / 1e9:.1f} GB"
        )


@dataclass(frozen=True, eq=False)
class Bench:
    """A task's data made ready for any number of batteries; features are read once and kept while they fit."""

    splits: Splits
    recipe: Recipe = field(default_factory=Recipe)
    max_memory: int = MEMORY
    seed: int = 0
    workers: Workers = None  # who trains: None is this process, all probes at once

    def beside(self, splits: Splits) -> Bench:
        """The bench of another task of the same examples; what one of them reads serves both."""
        assert same_examples(self.splits, splits), "features can only be shared over the same examples"
        other = replace(self, splits=splits)
        vars(other)["_held"] = self._held
        return other

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
        """A random label per word type; None for sentences, which hardly ever recur, and for numbers.

        None also where the training words are so few, or so often of one class, that no draw gives them two labels.
        """
        if not self._may_have_control:
            return None
        train = self.splits.train
        assert not isinstance(train.labels, np.ndarray)
        return varied_control_task(train.labels, train.words, self.seed)

    @property
    def facts(self) -> dict[str, Any]:
        """What identifies the data in a result's settings, with a note where a control task had to be left out."""
        facts = self.splits.facts
        if not self._may_have_control or self.control is not None:
            return facts
        n_types = len(set(self.splits.train.words))
        note = f"there is no control task: random labels of the {n_types} word types of the training part are all one"
        return facts | {"notes": [*facts["notes"], note]}

    @property
    def _may_have_control(self) -> bool:
        labels = self.splits.train.labels
        return self.splits.task.unit == "word" and not isinstance(labels, np.ndarray) and len(set(labels)) > 1

    def features(self, part: str) -> Features:
        """The features of `train`, `dev` or `test`, read when they are first asked for."""
        if part not in self._held:
            self._held[part] = self._examples(part).features(self._room(part))
        return self._held[part]

    def some_features(self, part: str, chosen: Int[np.ndarray, " _"]) -> Float[np.ndarray, "example neuron"]:
        """The features of some examples of a part (ascending), copied from what is held, else read for this alone."""
        held, examples = self._held.get(part), self._examples(part)
        if isinstance(held, np.ndarray):
            return held[chosen]
        some = replace(examples, rows=examples.rows[chosen], labels=())
        found = some.features(4 * len(chosen) * self.splits.layout.n_neurons)
        assert isinstance(found, np.ndarray), "as much room as they need"
        return found

    def make_room(self, n_bytes: int) -> None:
        """Let go of all features, to be read again, where so many bytes beside them exceed the memory."""
        held = sum(features.nbytes for features in self._held.values() if isinstance(features, np.ndarray))
        if held + n_bytes > features_memory(self.max_memory):
            self._held.clear()

    def outline(self, part: str) -> Features:
        """What `features` will be, in shape and kind, without reading any."""
        return self._held[part] if part in self._held else self._examples(part).outline(self._room(part))

    def truth(self, part: str, target: str = TASK) -> np.ndarray:
        """The true classes (as numbers, −1 where training has no such label) or values of a part."""
        examples = self._examples(part)
        if target == CONTROL:
            assert self.control is not None, "only word tasks have a control task"
            return self.control.values(examples.words)
        if isinstance(examples.labels, np.ndarray):
            return examples.labels
        return self.targets[TASK].encode(examples.labels)

    def train(self, probes: Sequence[Probe]) -> list[TrainedProbe]:
        """Train a battery on the training part."""
        return self.train_for(self.targets, probes)

    def train_for(self, targets: Mapping[str, Target], probes: Sequence[Probe]) -> list[TrainedProbe]:
        """Train probes of any targets of the training examples, in one pass, or cell by cell where workers do it.

        The cells depend on the probes and the memory alone, so that any number of workers gives the same weights to
        the bit.
        """
        if self.workers is None:
            groups = self.groups(probes, targets)
            return [done for own in groups for done in train_probes(self.features("train"), targets, own, self.recipe)]
        n_weights = [self._n_weights(probe, targets) for probe in probes]
        cells = probe_cells(probes, n_weights, min(CELL_WEIGHTS, self._most_weights(n_weights)))
        engine = self.trainers(max(sum(n_weights[i] for i in cell) for cell in cells))
        if engine.alone:
            task = partial(train_probes, self.features("train"))
        else:
            task = partial(_train_here, replace(self.splits.train, labels=()), self._room("train"))
        arguments = [(targets, [probes[i] for i in cell], self.recipe) for cell in cells]
        trained = {}
        for cell, found in zip(cells, run_tasks(task, arguments, engine), strict=True):
            trained |= dict(zip(cell, found, strict=True))
        return [replace(trained[i], probe=probe) for i, probe in enumerate(probes)]

    def groups(self, probes: Sequence[Probe], targets: Mapping[str, Target], copies: int = 0) -> list[Sequence[Probe]]:
        """Neighbouring probes whose weights, and so many copies of each, are within their share of the memory."""
        n_weights = [self._n_weights(probe, targets) for probe in probes]
        return [[probes[i] for i in own] for own in packed(n_weights, self._most_weights(n_weights, copies))]

    def score(self, trained: Sequence[TrainedProbe], part: str) -> list[Score]:
        """Score trained probes on a part."""
        predictions = predict_probes(trained, self.features(part))
        truths = {target: self.truth(part, target) for target in {probe.probe.target for probe in trained}}
        pairs = zip(trained, predictions, strict=True)
        return [_scored(probe, predicted, truths[probe.probe.target]) for probe, predicted in pairs]

    def set_scorer(self, part: str = "dev", **settings: float) -> Callable[[Sequence[np.ndarray]], list[float]]:
        """A function from sets of neurons to the score of a probe trained on each (see `maths.selection`)."""

        def score_sets(sets: Sequence[Int[np.ndarray, " neuron"]]) -> list[float]:
            probes = [Probe(TASK, neurons, seed=self.seed, **settings) for neurons in sets]
            return [score.value for score in self.score(self.train(probes), part)]

        return score_sets

    def search_penalty(self) -> list[PenaltyScore]:
        """Score the λ grid of Durrani et al. (2021) on all neurons: trained on train, scored on dev."""
        if self.splits.regression:
            raise SettingError("The λ search scores accuracies, and this task predicts numbers; give the penalties.")
        train, dev = self.features("train"), self.features("dev")
        at_once = len(self.groups(self.penalty_probes, self.targets, copies=SEARCH_COPIES)[0])
        settings = {"seed": self.seed, "recipe": self.recipe, "at_once": at_once}
        return search_penalty(train, self.targets[TASK], dev, self.truth("dev"), **settings)

    @property
    def penalty_probes(self) -> list[Probe]:
        """The probes that `search_penalty` trains."""
        return penalty_grid(TASK, seed=self.seed)

    def interval(self, scores: Score | Sequence[Score], part: str, resamples: int = 1000) -> Interval:
        """The 95 % bootstrap interval, over sentences, of a probe's score, or of the mean score of several seeds."""
        scores = [scores] if isinstance(scores, Score) else scores
        if isinstance(scores[0].details, NumberScores):
            predicted, sentences = [s.predicted for s in scores], self._examples(part).sentences
            return pearson_interval(predicted, self.truth(part), sentences, resamples=resamples, seed=self.seed)
        correct = np.mean([s.details.correct for s in scores if isinstance(s.details, ClassScores)], axis=0)
        return accuracy_interval(correct, self._examples(part).sentences, resamples=resamples, seed=self.seed)

    def baselines(self, part: str = "test") -> dict[str, float]:
        """What is right without looking at any activation.

        The majority label; of word tasks each word's majority label; of sentence tasks what a bag of words tells.
        """
        train, held_out = self.splits.train, self._examples(part)
        if isinstance(train.labels, np.ndarray) or isinstance(held_out.labels, np.ndarray):
            return {}
        found = {"majority": majority_baseline(train.labels, held_out.labels)}
        if self.splits.task.unit == "word":
            found["word majority"] = word_majority_baseline(train.words, train.labels, held_out.words, held_out.labels)
        else:
            found["bag of words"] = bag_of_words_baseline(train.bags, train.labels, held_out.bags, held_out.labels)
        return found

    def estimate(self, probes: Sequence[Probe]) -> Estimate:
        """What training a battery will take on this machine, by its speed at a few steps."""
        n_examples = len(self.splits.train)
        n_weights = sum(self._n_weights(probe, self.targets) for probe in probes)
        steps = self.recipe.epochs * -(-n_examples // self.recipe.batch_size)
        groups = self.groups(probes, self.targets)
        by_kind = [[probe for probe in probes if isinstance(probe.neurons, np.ndarray) == kind] for kind in (0, 1)]
        return Estimate(
            n_probes=len(probes),
            n_examples=n_examples,
            n_weights=n_weights,
            n_bytes=max(battery_bytes(self.outline("train"), self.targets, own) for own in groups),
            seconds=steps * sum(self._step_seconds(own) for own in by_kind if own),
        )

    def trainers(self, most_weights: int) -> Engine:
        """As many of this machine's workers as may hold the training part, and a cell of so many weights, at once.

        They are fewer where memory is short, and not given less each: the windows decide what is learnt. Each worker of
        a cluster has its own room.
        """
        engine = as_engine(self.workers)
        if engine.client:
            return engine
        # The training part is a window of it where it is long; the other two are held here.
        row = 4 * self.splits.layout.n_neurons
        train, *others = (min(row * len(self._examples(part)), self._room(part)) for part in PARTS)
        copies = copies_that_fit(train, most_weights, self.max_memory - sum(others))
        return replace(engine, workers=min(engine.workers, copies))

    @cached_property
    def _held(self) -> dict[str, Features]:
        return {}

    def _room(self, part: str) -> int:
        """The bytes of activations that a part may hold; whoever reads it, for they decide the windows."""
        total = len(self.splits.train) + len(self.splits.dev) + len(self.splits.test)
        return features_memory(self.max_memory) * len(self._examples(part)) // total

    def _most_weights(self, n_weights: Sequence[int], copies: int = 0) -> int:
        """How many weights may learn at once, with copies; an error where one of the probes alone has more."""
        each = TRAINING_BYTES + 4 * copies
        most = weights_memory(self.max_memory) // each
        if (largest := max(n_weights, default=0)) > most:
            raise MemoryLimitError(
                f"A probe of {largest:,} weights needs {exactly(each * largest)} while it learns, but of the "
                f"{exactly(self.max_memory)} that --max-memory allows 1/{SHARE_OF_WEIGHTS} is for that. Allow more, or "
                "probe fewer neurons at once."
            )
        return most

    def _step_seconds(self, probes: Sequence[Probe]) -> float:
        """Of one step of probes that are all on whole layers, or all on neurons picked one by one."""
        n_neurons, picked = self.splits.layout.n_neurons, isinstance(probes[0].neurons, np.ndarray)
        views = {(probe.seed, view_key(probe.neurons)): _width(probe, n_neurons) for probe in probes}
        widths = tuple(views.values())
        rows = -(-sum(self._n_weights(probe, self.targets) for probe in probes) // sum(width + 1 for width in widths))
        return step_seconds(n_neurons, widths, rows, self.recipe.batch_size, picked=picked)

    def _n_weights(self, probe: Probe, targets: Mapping[str, Target]) -> int:
        width = _width(probe, self.splits.layout.n_neurons)
        return max(targets[probe.target].n_classes, 1) * (width + 1)

    def _examples(self, part: str) -> Examples:
        return {"train": self.splits.train, "dev": self.splits.dev, "test": self.splits.test}[part]


def _scored(probe: TrainedProbe, predicted: np.ndarray, truth: np.ndarray) -> Score:
    if not probe.n_classes:
        details = number_scores(predicted, truth)
        return Score(probe, details.pearson, details, predicted)
    details = class_scores(predicted, truth, probe.n_classes)
    return Score(probe, details.accuracy, details, predicted)


def weights_memory(max_memory: int) -> int:
    """The bytes that probes may take while they learn."""
    return max_memory // SHARE_OF_WEIGHTS


def features_memory(max_memory: int) -> int:
    """The bytes that are for features: all others."""
    return max_memory - weights_memory(max_memory)


def copies_that_fit(held: int, n_weights: int, max_memory: int) -> int:
    """How many processes may hold so many bytes of features each, and so many weights that learn; one may always."""
    return max(1, max_memory // max(1, held + TRAINING_BYTES * n_weights))


def same_examples(a: Splits, b: Splits) -> bool:
    """Whether two tasks have labels of the same rows of the same stores, so that their probes can train together."""
    return all(
        getattr(a, part).store is getattr(b, part).store
        and np.array_equal(getattr(a, part).rows, getattr(b, part).rows)
        for part in PARTS
    )


def train_together(batteries: Sequence[tuple[Bench, Sequence[Probe]]]) -> list[list[TrainedProbe]]:
    """Train the probes of several tasks of the same examples in one pass; each learns what it would learn alone."""
    first = batteries[0][0]
    assert all(same_examples(first.splits, bench.splits) for bench, _ in batteries[1:]), "examples differ"
    targets = {f"{i} {name}": t for i, (bench, _) in enumerate(batteries) for name, t in bench.targets.items()}
    probes = [replace(p, target=f"{i} {p.target}") for i, (_, own) in enumerate(batteries) for p in own]
    trained = iter(first.train_for(targets, probes))
    return [[replace(next(trained), probe=probe) for probe in own] for _, own in batteries]


def probe_cells(probes: Sequence[Probe], n_weights: Sequence[int], most: int) -> list[list[int]]:
    """The numbers of the probes that train together: of one seed, and with no more weights than these."""
    cells: list[list[int]] = []
    for seed in sorted({probe.seed for probe in probes}):
        own = [i for i, probe in enumerate(probes) if probe.seed == seed]
        cells += [[own[place] for place in cell] for cell in packed([n_weights[i] for i in own], most)]
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


_features_here: dict[tuple[object, ...], Features] = {}
"""What this process, as a worker, has read of the last training part that it was asked for."""


def _train_here(
    examples: Examples, room: int, targets: Mapping[str, Target], probes: Sequence[Probe], recipe: Recipe
) -> list[TrainedProbe]:
    """Train probes where the features have to be read from the store first."""
    store = examples.store
    key = (store.fingerprint, tuple(store.layers), xxhash.xxh3_64_hexdigest(examples.rows.tobytes()), room)
    if key not in _features_here:
        _features_here.clear()
        _features_here[key] = examples.features(room)
    return train_probes(_features_here[key], targets, probes, recipe)


def accuracy_interval(
    correct: np.ndarray, sentences: Int[np.ndarray, " example"], *, resamples: int = 1000, seed: int = 0
) -> Interval:
    """The bootstrap interval of a share of right answers, whole sentences being drawn: Σ right / Σ examples."""
    _, place = np.unique(sentences, return_inverse=True)
    sizes: Float[np.ndarray, " sentence"] = np.bincount(place).astype(float)
    right: Float[np.ndarray, " sentence"] = np.bincount(place, weights=correct)
    return bootstrap_ratio(right, sizes, resamples=resamples, rng=seed)


def pearson_interval(
    predicted: Sequence[np.ndarray],
    truth: np.ndarray,
    sentences: Int[np.ndarray, " example"],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """The bootstrap interval of Pearson's r, the mean of several predictions' ones, whole sentences being drawn."""
    order = np.argsort(sentences, kind="stable")
    _, starts, sizes = np.unique(sentences[order], return_index=True, return_counts=True)

    def correlation(chosen: Int[np.ndarray, " sentence"]) -> float:
        lengths = sizes[chosen]
        before = np.cumsum(lengths) - lengths
        rows = order[np.repeat(starts[chosen] - before, lengths) + np.arange(lengths.sum())]
        return float(np.mean([pearson_score(own[rows], truth[rows]) for own in predicted]))

    return bootstrap(correlation, len(starts), resamples=resamples, rng=seed)


def parse_penalty(text: str) -> tuple[float, float] | None:
    """λ1 and λ2 from `1e-5,1e-4` (or one number for both); None for `search`, which is to find them."""
    if text == "search":
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 2 or not all(0 <= number < np.inf for number in numbers):
        raise SettingError(f"The penalty is {text!r}; expected λ1,λ2 such as 1e-5,1e-4, or search.")
    return numbers[0], numbers[-1]


def _width(probe: Probe, n_neurons: int) -> int:
    if probe.neurons is None:
        return n_neurons
    if isinstance(probe.neurons, slice):
        return len(range(*probe.neurons.indices(n_neurons)))
    return len(probe.neurons)


@cache
def step_seconds(
    n_neurons: int,
    widths: tuple[int, ...],
    rows: int,
    batch: int = 128,
    threads: int | None = None,
    *,
    picked: bool = False,
) -> float:
    """Of one step of probes on sets of so many of the neurons, with so many classes on each, by steps of a sample.

    It is no multiple of the weights: with few classes, most of it is reading the words of a batch, whoever they serve.
    Sets of whole layers are read where they stand, those of neurons `picked` one by one are copied.
    """
    every = -(-sum(widths) // MOST_COLUMNS)
    first = min(every // 2, len(widths) - 1)
    sampled = [min(width, MOST_COLUMNS) for width in sorted(widths)[first::every]]
    share = sum(sampled) / sum(widths)
    rng, n_columns = np.random.default_rng(0), max(*sampled, min(MOST_COLUMNS, round(share * n_neurons)))
    n_rows, n_words = min(rows, MOST_ROWS), min(batch, MOST_WORDS, MOST_BYTES // (4 * MORE_STEPS * n_columns))
    x = rng.standard_normal((MORE_STEPS * n_words, n_columns), dtype=np.float32)
    values = rng.integers(0, n_rows, len(x)) if n_rows > 1 else x[:, 0]
    classes = tuple(map(str, range(n_rows))) if n_rows > 1 else ()
    if picked:
        sets = [np.sort(rng.permutation(n_columns)[:width]) for width in sampled]
    else:
        starts = [(n_columns - width) * i // len(sampled) for i, width in enumerate(sampled)]
        sets = [slice(start, start + width) for start, width in zip(starts, sampled, strict=True)]
    probes = [Probe(TASK, neurons) for neurons in sets]

    def steps(n: int) -> float:
        target = Target(values[: n * n_words], classes)
        start = time.perf_counter()
        fit(x[: n * n_words], {TASK: target}, probes, Recipe(epochs=1, batch_size=n_words))
        return time.perf_counter() - start

    with threadpool_limits(threads):
        few, more = (min(steps(n) for _ in range(3)) for n in (FEW_STEPS, MORE_STEPS))
    left_out = rows / n_rows * batch / n_words / share
    # Where all of it takes less than others' work on this machine does, the start of a training cannot be told apart.
    per_step = (more - few) / (MORE_STEPS - FEW_STEPS) if more > few else more / MORE_STEPS
    return per_step * left_out
