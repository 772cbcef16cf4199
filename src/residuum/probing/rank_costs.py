"""What `rank_neurons`, `ablate` and `neuron_cards` will take.

To ablate, the model reads once, probes learn, and it reads again for each set of silenced neurons.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, TaskCorpora
from residuum.costs import Cost, Step, moments_step, timed
from residuum.engine import HERE, Workers, as_engine
from residuum.maths.moments import CHUNK
from residuum.maths.neuron_ids import split_id
from residuum.maths.probing import Recipe
from residuum.maths.rankings import LIMIT, intersection_over_union, scatter_of_words
from residuum.models.loading import Model
from residuum.probing.examples import held_memory, whole_store
from residuum.probing.orders import METHODS
from residuum.probing.rank_settings import SHARES
from residuum.probing.sampling import SAMPLE, SAMPLED, Sample
from residuum.probing.task_costs import Training, labelled_data

IOU_NEURONS = 16
"""Neurons of which it is seen where they fire, to measure the speed of that."""


def rank_cost(
    source: Any,
    data: Any,
    task: str | Task,
    *,
    methods: Sequence[str] = METHODS,
    by: str = "lca",
    shares: Sequence[float] = SHARES,
    sample: int = SAMPLE,
    seeds: int = 3,
    penalty: str = "",
    random_twin: bool = False,
    recipe: Recipe | None = None,
    max_memory: int | None = None,
    workers: Workers = None,
    **reading: Any,
) -> Cost:
    """What `rank_neurons` would take with the same settings."""
    engine, found = as_engine(workers), labelled_data(source, data, task, workers=workers, **reading)
    training = Training(found, recipe or Recipe(), held_memory(max_memory), engine)
    n, targets = found.layout.n_neurons, 1 + found.control
    if by not in methods:
        methods = [by, *methods]
    sets = [max(1, round(share * n)) for _ in methods for share in shares for _ in ("top", "bottom")]
    steps = [
        training.step("probes of all neurons", [n], seeds, targets),
        *_sampled_steps(training, methods, sample),
        training.step("top and bottom neurons", sets, seeds, picked=True),
        training.minimal_set(seeds, targets),
    ]
    if penalty == "search":
        steps.insert(0, training.penalty_search())
    if random_twin:
        probes = training.step("probes of the twin", [n, max(1, n // 10)], seeds, picked=True)
        steps += [*found.reading, probes, *_sampled_steps(training, [by], sample, " of the twin")]
    return Cost(found.name, (*found.reading, *steps), engine.width, engine.client is not None)


def ablate_cost(
    source: Model | str | os.PathLike[str],
    data: Corpus | TaskCorpora | str | os.PathLike[str],
    task: str | Task = "upos",
    *,
    neurons: Sequence[str] = (),
    shares: Sequence[float] = (0.05,),
    retrain: bool = False,
    draws: int = 3,
    seeds: int = 3,
    recipe: Recipe | None = None,
    max_memory: int | None = None,
    seed: int = 0,
    device: str = "auto",
    **reading: Any,
) -> Cost:
    """What `ablate` would take with the same settings."""
    found = labelled_data(source, data, task, seed=seed, device=device, **reading)
    training = Training(found, recipe or Recipe(), held_memory(max_memory), HERE)
    sets = 1 + draws if neurons else len(set(shares)) * (2 + draws)
    widths = [found.layout.n_neurons, *found.layout.widths]
    train, _, test = found.reading
    again = [replace(test, name=f"test part again, {sets} times").times(sets)]
    if retrain:
        again += [
            replace(train, name=f"training part again, {sets} times").times(sets),
            training.step("probes of the ablated model", widths, seeds).times(sets),
        ]
    learnt: Step = training.step("probes", widths, seeds, 1 + found.control)
    return Cost(found.name, (*found.reading, learnt, *again))


def cards_cost(
    source: Model | ActivationStore | str | os.PathLike[str],
    data: Corpus | str | os.PathLike[str] | None,
    neurons: Sequence[str],
    *,
    max_memory: int | None = None,
    **reading: Any,
) -> Cost:
    """What `neuron_cards` would take: a model's reading, or that of the named layers of a store, by its first shard."""
    found = labelled_data(source, data, None, **reading)
    layers = list(dict.fromkeys(split_id(neuron)[0] for neuron in neurons))
    width = max(found.layout.widths)
    held = min(4 * sum(found.rows) * width, held_memory(max_memory))
    if found.reading:
        return Cost(found.name, (*found.reading, Step("cards", 0.0, memory=held)))
    store = whole_store(source, layers=reading.get("layers", "all"))
    seconds = timed(lambda: store.shard(0, layers)) * len(store.manifest.shards)
    return Cost(found.name, (Step("cards", seconds, memory=held),))


def _sampled_steps(training: Training, methods: Sequence[str], wanted: int, of: str = "") -> list[Step]:
    """The rankings from sampled words, beside the features that are held where both fit."""
    data = training.data
    if not data.n_classes:
        return []
    sample = Sample.of(data.n_train, data.layout, data.n_classes, wanted, training.max_memory)
    seconds = {"gaussian": _gaussian_seconds, "iou": _iou_seconds}
    steps = []
    for method in SAMPLED:
        if method in methods:
            own = sample.n_bytes(method)
            held = training.held if training.held + own <= training.max_memory else 0
            steps.append(Step(f"{method} ranking{of}", seconds[method](sample), memory=own + held))
    return steps


def _gaussian_seconds(sample: Sample) -> float:
    """The scatter of all neurons, or its columns one by one; and two factors that grow with each pick."""
    widths, n = sample.layout.widths, sample.layout.n_neurons
    picks = min(LIMIT, n)
    known, words = np.ones((max(1, picks // 2), n)), np.ones((CHUNK, n), np.float32)
    seconds = picks * 2 * timed(lambda: known[:, 0] @ known)
    if sample.joint:
        return seconds + moments_step("scatter", widths, sample.n_words, 1, HERE).seconds
    scatter = scatter_of_words(words)
    return seconds + picks * timed(lambda: scatter.column(0)) * sample.n_words / CHUNK


def _iou_seconds(sample: Sample) -> float:
    rng = np.random.default_rng(0)
    few = min(IOU_NEURONS, sample.layout.n_neurons)
    x, classes = rng.standard_normal((sample.n_words, few)), rng.integers(0, sample.n_classes, sample.n_words)
    return timed(lambda: intersection_over_union(x, classes)) * sample.layout.n_neurons / few
