"""What `probe` and `redundancy` will take: reading activations, clustering neurons, training probes.

A model is loaded and reads a few words; of stores only words and labels are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, TaskCorpora, known_labels, named_task, read_task
from residuum.costs import Cost, Step, clustering_step, moments_step, partition_steps
from residuum.engine import HERE, Engine, Workers, as_engine, cut_into_tasks
from residuum.maths.description_length import FRACTIONS
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probing import TRAINING_BYTES, Recipe
from residuum.maths.selection import layer_subsets
from residuum.probing.batteries import CELL_WEIGHTS, copies_that_fit, features_memory, step_seconds, weights_memory
from residuum.probing.examples import Splits, are_numbers, held_memory, labelled_splits, opened, whole_store

if TYPE_CHECKING:
    from residuum.models.loading import Model


@dataclass(frozen=True)
class LabelledData:
    """What the cost of probes depends on, and what it takes to have their activations."""

    name: str
    layout: NeuronLayout
    rows: tuple[int, ...]  # of each shard, or sentence, of the training part
    n_train: int = 0
    n_examples: int = 0  # of all parts
    n_classes: int = 0  # 0 where numbers are predicted
    control: bool = False  # whether there is a control task beside the task
    reading: tuple[Step, ...] = ()


def probe_cost(
    source: Any,
    data: Any,
    task: str | Task,
    *,
    seeds: int = 3,
    penalty: str = "",
    recipe: Recipe | None = None,
    subsets: bool = True,
    random_twin: bool = False,
    description_length: bool = False,
    max_memory: int | None = None,
    workers: Workers = None,
    **reading: Any,
) -> Cost:
    """What `probe` would take with the same settings."""
    engine, found = as_engine(workers), labelled_data(source, data, task, workers=workers, **reading)
    training = Training(found, recipe or Recipe(), held_memory(max_memory), engine)
    layout, targets = found.layout, 1 + found.control
    single = [*layout.widths, layout.n_neurons]
    more = [len(layout.columns(layers)) for layers in layer_subsets(layout).values()] if subsets else []
    steps = [training.step("probes", [*single, *more], seeds, targets)]
    if penalty == "search":
        steps.insert(0, training.penalty_search())
    if description_length:
        steps.append(training.description_lengths(single, targets))
    if random_twin:
        steps += [*found.reading, training.step("probes of the twin", single, seeds)]
    return Cost(found.name, (*found.reading, *steps), engine.width, engine.client is not None)


def redundancy_cost(
    source: Any,
    data: Any = None,
    task: str | Task | None = None,
    *,
    thresholds: Sequence[float],
    clusters: str = "average",
    focus: float = 0.3,
    agreement: Sequence[float] = (),
    random_twin: bool = False,
    seeds: int = 3,
    recipe: Recipe | None = None,
    max_memory: int | None = None,
    workers: Workers = None,
    **reading: Any,
) -> Cost:
    """What `redundancy` would take with the same settings; of clusters that are not known yet, the most it can be."""
    engine, found = as_engine(workers), labelled_data(source, data, task, workers=workers, **reading)
    layout, targets = found.layout, 1 + found.control
    n, tasks = layout.n_neurons, len(cut_into_tasks(found.rows))
    steps = [
        moments_step("correlation", layout.widths, sum(found.rows), tasks, engine, "float32"),
        clustering_step(n, 16 * n**2),
        *_partitions(n, clusters, [*thresholds, focus], agreement, engine, held_memory(max_memory)),
    ]
    if task is not None:
        training = Training(found, recipe or Recipe(), held_memory(max_memory), engine)
        single = [n, *layout.widths]
        kept = [max(1, round((1 - t) * n)) for t in thresholds if t > 0]
        steps.append(training.step("probes of layers", single, seeds, targets))
        if kept:
            steps.append(training.step("probes of clusters", kept, seeds, targets, picked=True))
        steps.append(training.minimal_set(seeds, targets))
        if random_twin:
            steps += [*found.reading, training.step("probes of the twin", single, seeds)]
    return Cost(found.name, (*found.reading, *steps), engine.width, engine.client is not None)


def _partitions(
    n: int, clusters: str, thresholds: Sequence[float], agreement: Sequence[float], engine: Engine, max_memory: int
) -> list[Step]:
    """What clusters of other methods than average linkage take, at each threshold once."""
    asked = {name: {*agreement, *(thresholds if clusters == name else ())} - {0.0} for name in ("kmeans", "dbscan")}
    if not any(asked.values()):
        return []
    return partition_steps(n, sorted(asked["kmeans"]), sorted(asked["dbscan"]), engine, max_memory)


@dataclass(frozen=True, eq=False)
class Training:
    """Batteries on the same data, at the speed of this machine."""

    data: LabelledData
    recipe: Recipe
    max_memory: int
    engine: Engine

    def step(self, name: str, widths: Sequence[int], seeds: int, targets: int = 1, *, picked: bool = False) -> Step:
        """A battery that every seed trains once: on sets of so many neurons a probe of each target.

        The sets are whole layers, or neurons that are `picked` one by one.
        """
        rows, batch = max(self.data.n_classes, 1) * targets, self.recipe.batch_size
        n_weights = seeds * sum(rows * (width + 1) for width in widths)
        batches = self.recipe.epochs * -(-self.data.n_train // batch) + self._scored / batch
        cells = seeds * min(len(widths) * targets, -(-n_weights // (seeds * CELL_WEIGHTS)))
        largest = max(widths) * max(self.data.n_classes, 1)
        n_neurons, threads = self.data.layout.n_neurons, self.engine.threads
        return Step(
            name,
            batches * seeds * step_seconds(n_neurons, tuple(widths), rows, batch, threads, picked=picked),
            1 if self.engine.alone else cells,
            memory=self.held + self._learning(n_weights if self.engine.alone else n_weights // cells),
            at_once=None if self.engine.client else self._copies(max(largest, n_weights // cells)),
        )

    @property
    def _scored(self) -> float:
        """Held-out examples, as so many that are learnt from: of a step's three products they take the first."""
        return (self.data.n_examples - self.data.n_train) / 3

    @property
    def held(self) -> int:
        """The bytes of features that are held: of all three parts, or as many as may be."""
        return min(4 * self.data.n_examples * self.data.layout.n_neurons, features_memory(self.max_memory))

    def penalty_search(self) -> Step:
        """The grid of penalties on all neurons, in this process whoever else works."""
        return replace(self, engine=HERE).step("search of penalties", [self.data.layout.n_neurons], 1, 64)

    def description_lengths(self, widths: Sequence[int], targets: int) -> Step:
        """Probes on growing shares of the training part, in this process, which holds a copy of the largest."""
        one = replace(self, engine=HERE).step("description lengths", widths, 1, targets).times(sum(FRACTIONS[:-1]))
        memory = features_memory(self.max_memory)
        copied = 4 * self.data.n_train * self.data.layout.n_neurons // 2
        return replace(one, memory=one.memory - self.held + min(self.held + copied, memory))

    def minimal_set(self, seeds: int, targets: int) -> Step:
        """The search of the fewest neurons: sizes that double up to all of them, and the set that is found."""
        n = self.data.layout.n_neurons
        doubling = [n // 2**k for k in range(n.bit_length())]
        searched = self.step("search of the fewest neurons", doubling, 1, picked=True)
        kept = self.step("", [max(1, n // 10)], seeds, targets, picked=True)
        return replace(searched, seconds=searched.seconds + kept.seconds)

    def _copies(self, n_weights: int) -> int:
        """How many workers may hold the training part, and so many weights, at once; the other parts are held here."""
        training = self.held * self.data.n_train // max(1, self.data.n_examples)
        return copies_that_fit(training, n_weights, self.max_memory - (self.held - training))

    def _learning(self, n_weights: int) -> int:
        """The bytes of weights that learn together: all of them, or as many as may be."""
        return min(TRAINING_BYTES * n_weights, weights_memory(self.max_memory))


def labelled_data(
    source: Any,
    data: Any,
    task: str | Task | None,
    *,
    workers: Workers = None,
    layers: str | int | Sequence[int] = "all",
    device: str = "auto",
    split: str | None = None,
    seed: int = 0,
    **reading: Any,
) -> LabelledData:
    """The sizes of a task's data, whatever it is given as (see `examples.labelled_splits`)."""
    found = opened(source)
    if isinstance(found, ActivationStore | Mapping):
        if task is None:
            return _of_store(whole_store(found, layers=layers))
        return _of_splits(labelled_splits(found, data, task, layers=layers, seed=seed, **reading))
    from residuum.corpus import read_corpus
    from residuum.models.loading import as_model

    model = as_model(found, device=device)
    if task is None:
        text = data if isinstance(data, Corpus) else read_corpus(data, split=split, **reading)
        return _of_text(model, text, layers, as_engine(workers))
    task = named_task(task)
    corpora = data if isinstance(data, TaskCorpora) else read_task(task, data, seed=seed, **reading)
    return _of_corpora(model, corpora.as_pairs(), task, layers, as_engine(workers))


def _of_store(store: ActivationStore) -> LabelledData:
    layout = NeuronLayout(tuple(store.widths), tuple(store.layers))
    rows = tuple(shard.rows for shard in store.manifest.shards)
    return LabelledData(_name(store.name, "", sum(rows), store.unit, layout), layout, rows)


def _of_splits(splits: Splits) -> LabelledData:
    train, store = splits.train, splits.train.store
    classes = 0 if isinstance(train.labels, np.ndarray) else len(set(train.labels))
    return LabelledData(
        _name(store.name, splits.task.name, len(train), store.unit, splits.layout),
        splits.layout,
        tuple(shard.rows for shard in store.manifest.shards),
        n_train=len(train),
        n_examples=len(train) + len(splits.dev) + len(splits.test),
        n_classes=classes,
        control=splits.task.unit == "word" and classes > 0,
    )


def _of_text(model: Model, corpus: Corpus, layers: str | int | Sequence[int], engine: Engine) -> LabelledData:
    from residuum.activations.estimates import extraction_step
    from residuum.activations.extraction import Extraction

    extraction = Extraction.of(model, corpus, layers)
    layout = _layout(model, extraction.layers)
    rows = tuple(len(words) for words in corpus.sentences)
    name = _name(model.name, "", sum(rows), "word", layout)
    return LabelledData(name, layout, rows, reading=(extraction_step(extraction, engine),))


def _of_corpora(
    model: Model, corpora: TaskCorpora, task: Task, layers: str | int | Sequence[int], engine: Engine
) -> LabelledData:
    from residuum.activations.estimates import extraction_step
    from residuum.activations.extraction import Extraction, Settings

    parts = [corpus for _, corpus in corpora.items()]
    extractions = [Extraction.of(model, corpus, layers, Settings(unit=task.unit)) for corpus in parts]
    labels = [known_labels(corpus, task) for corpus in parts]
    classes = 0 if task.regression or are_numbers(labels[0]) else len(set(labels[0]))
    layout = _layout(model, extractions[0].layers)
    return LabelledData(
        _name(model.name, task.name, len(labels[0]), task.unit, layout),
        layout,
        tuple(len(words) if task.unit == "word" else 1 for words in parts[0].sentences),
        n_train=len(labels[0]),
        n_examples=sum(map(len, labels)),
        n_classes=classes,
        control=task.unit == "word" and classes > 0,
        reading=tuple(extraction_step(extraction, engine) for extraction in extractions),
    )


def _layout(model: Model, layers: Sequence[int]) -> NeuronLayout:
    return NeuronLayout(tuple(model.widths[layer] for layer in layers), tuple(layers))


def _name(model: str, task: str, n: int, unit: str, layout: NeuronLayout) -> str:
    return f"{model}{', ' + task if task else ''}: {n:,} {unit}s × {layout.n_neurons:,} neurons"
