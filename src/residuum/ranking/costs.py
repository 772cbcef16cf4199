"""What `ablate` and `neuron_cards` will take.

To ablate, the model reads once, probes learn, and it reads again for each set of silenced neurons.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus
from residuum.costs import Cost, Step, timed
from residuum.engine import HERE
from residuum.examples import MEMORY, whole_store
from residuum.maths.neuron_ids import split_id
from residuum.maths.probing import Recipe
from residuum.models import Model
from residuum.task_costs import Training, labelled_data
from residuum.tasks import Task, TaskCorpora


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
    max_memory: int = MEMORY,
    seed: int = 0,
    device: str = "auto",
    **reading: Any,
) -> Cost:
    """What `ablate` would take with the same settings."""
    found = labelled_data(source, data, task, seed=seed, device=device, **reading)
    training = Training(found, recipe or Recipe(), max_memory, HERE)
    sets = 1 + draws if neurons else len(set(shares)) * (2 + draws)
    widths = [found.layout.n_neurons, *found.layout.widths]
    train, _, test = found.reading
    again = [replace(test, name=f"test part again, {sets} times").times(sets)]
    if retrain:
        again += [
            replace(train, name=f"training part again, {sets} times").times(sets),
            training.step("probes of the ablated model", widths, seeds).times(sets),
        ]
    learnt: Step = training.step("probes", widths * (1 + found.control), seeds)
    return Cost(found.name, (*found.reading, learnt, *again))


def cards_cost(
    source: Model | ActivationStore | str | os.PathLike[str],
    data: Corpus | str | os.PathLike[str] | None,
    neurons: Sequence[str],
    *,
    max_memory: int = MEMORY,
    **reading: Any,
) -> Cost:
    """What `neuron_cards` would take: a model's reading, or that of the named layers of a store, by its first shard."""
    found = labelled_data(source, data, None, **reading)
    layers = list(dict.fromkeys(split_id(neuron)[0] for neuron in neurons))
    width = max(found.layout.widths)
    held = min(4 * sum(found.rows) * width, max_memory)
    if found.reading:
        return Cost(found.name, (*found.reading, Step("cards", 0.0, memory=held)))
    store = whole_store(source, layers=reading.get("layers", "all"))
    seconds = timed(lambda: store.shard(0, layers)) * len(store.manifest.shards)
    return Cost(found.name, (Step("cards", seconds, memory=held),))
