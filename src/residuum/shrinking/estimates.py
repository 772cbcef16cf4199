"""What `transfer` will take, known before anything is trained."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, TaskCorpora, named_task, read_task
from residuum.costs import Cost, Step, clustering_step, moments_step
from residuum.engine import as_engine, cut_into_tasks
from residuum.maths.probing import Recipe
from residuum.models.loading import Model
from residuum.probing.examples import held_memory
from residuum.probing.task_costs import LabelledData, Training, labelled_data
from residuum.shrinking.costs import CURVE_REPEATS, CURVE_SAMPLE, REPEATS, SAMPLE
from residuum.shrinking.settings import STEPS, THRESHOLDS


def transfer_cost(
    model: Model | str | os.PathLike[str],
    corpus: Corpus | TaskCorpora | str | os.PathLike[str],
    task: str | Task,
    *,
    steps: Sequence[str] = STEPS,
    thresholds: Sequence[float] = THRESHOLDS,
    recipe: Recipe | None = None,
    max_memory: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    device: str = "auto",
    **reading: Any,
) -> Cost:
    """What `transfer` would take with the same settings: a few seconds of each part are done, and nothing is kept.

    Which layers and neurons stay is not known yet, so clustering and selection are those of all of them: the most
    that it can be.
    """
    named, engine = named_task(task), as_engine(None)
    corpora = corpus if isinstance(corpus, TaskCorpora) else read_task(named, corpus, seed=seed, **reading)
    found = labelled_data(model, corpora, named, device=device)
    training, layout = Training(found, recipe or Recipe(), held_memory(max_memory), engine), found.layout
    n = layout.n_neurons
    parts = [training.step("probes of the layers", list(accumulate(layout.widths)) if "layers" in steps else [n], 1)]
    if "clusters" in steps:
        tasks, kept = len(cut_into_tasks(found.rows)), [max(1, round((1 - t) * n)) for t in thresholds]
        parts += [
            moments_step("correlation", layout.widths, sum(found.rows), tasks, engine, "float32"),
            clustering_step(n, 16 * n**2),
            training.step("probes of the clusters", kept, 1, picked=True),
        ]
    if "neurons" in steps:
        parts.append(training.minimal_set(1, 1))
    if seeds > 1:
        parts.append(training.step("probes of more seeds", [n], seeds - 1))
    return Cost(found.name, (*found.reading, *parts, _timing(found, corpora.test)), engine.width)


def _timing(found: LabelledData, test: Corpus) -> Step:
    """Timing every number of layers (half of them on the average) and the product, and reading the test part."""
    n_layers = len(found.layout.layers)
    timed = n_layers / 2 * CURVE_REPEATS * CURVE_SAMPLE + 2 * (REPEATS + 1) * SAMPLE
    reading = found.reading[-1]
    return Step("timing and testing", reading.seconds * (1 + timed / max(1, len(test))), memory=reading.memory)
