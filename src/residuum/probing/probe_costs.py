"""What `probe_languages` will take: every model reads every treebank, clusters its neurons and trains probes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, labels_of, named_task
from residuum.costs import Cost, Step, clustering_step, moments_step
from residuum.engine import Engine, Workers, as_engine, cut_into_tasks
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probing import Recipe
from residuum.maths.selection import layer_subsets
from residuum.probing.examples import held_memory
from residuum.probing.languages import THRESHOLDS
from residuum.probing.parallel import SHARES, ParallelTreebanks, parallel_treebanks
from residuum.probing.task_costs import LabelledData, Training

if TYPE_CHECKING:
    from residuum.models.loading import Model


def languages_cost(
    models: Sequence[Model | str | os.PathLike[str]] | Model | str | os.PathLike[str],
    corpora: Mapping[str, Corpus | str | os.PathLike[str]] | Sequence[Corpus | str | os.PathLike[str]],
    task: str | Task = "upos",
    *,
    source: str | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    subsets: bool = True,
    random_twin: bool = False,
    shares: tuple[float, float] = SHARES,
    seeds: int = 3,
    seed: int = 0,
    recipe: Recipe | None = None,
    layers: str | int | Sequence[int] = "all",
    limit: int | None = None,
    max_memory: int | None = None,
    device: str = "auto",
    workers: Workers = None,
) -> Cost:
    """What `probe_languages` would take with the same settings; of clusters not known yet, the most it can be."""
    from residuum.models.loading import Model, as_model

    task, engine = named_task(task), as_engine(workers)
    treebanks = parallel_treebanks(corpora, task, source=source, shares=shares, seed=seed, limit=limit)
    steps: list[Step] = []
    for given in [models] if isinstance(models, Model | str | os.PathLike) else models:
        model = as_model(given, device=device)
        data = _data(model, treebanks, task, layers, engine)
        training, n = Training(data, recipe or Recipe(), held_memory(max_memory), engine), data.layout.n_neurons
        sets = [max(1, round((1 - threshold) * n)) for threshold in thresholds]
        if subsets:
            sets += [len(data.layout.columns(own)) for own in layer_subsets(data.layout).values()]
        parts = [
            *data.reading,
            moments_step("correlation", data.layout.widths, sum(data.rows), _tasks(data), engine, "float32"),
            clustering_step(n, 16 * n**2),
            training.step("probes", sets, seeds, 1 + data.control, picked=True),
        ]
        if random_twin:
            parts += [*data.reading, training.step("probes of the twin", [n], seeds)]
        steps += [replace(part, name=f"{model.name}: {part.name}") for part in parts]
    what = f"{task.name} in {', '.join(treebanks.corpora)}"
    return Cost(what, tuple(steps), engine.width, engine.client is not None)


def _data(
    model: Model, treebanks: ParallelTreebanks, task: Task, layers: str | int | Sequence[int], engine: Engine
) -> LabelledData:
    """Sizes of the source's training and held-out sentences, and what reading all languages takes."""
    from residuum.activations.estimates import extraction_step
    from residuum.activations.extraction import Extraction, Settings

    settings = Settings(unit=task.unit)
    extractions = [Extraction.of(model, corpus, layers, settings) for corpus in treebanks.corpora.values()]
    labels = labels_of(treebanks.corpora[treebanks.source], task)
    train, held_out = ([labels[i] for i in part] for part in (treebanks.train, treebanks.held_out))
    chosen = extractions[0].layers
    return LabelledData(
        model.name,
        NeuronLayout(tuple(model.widths[layer] for layer in chosen), tuple(chosen)),
        tuple(_size(own) for own in train),
        n_train=sum(map(_size, train)),
        n_examples=sum(map(_size, (*train, *held_out))),
        n_classes=len({label for own in train for label in (own if isinstance(own, list) else [own]) if label}),
        control=task.unit == "word",
        reading=tuple(extraction_step(extraction, engine) for extraction in extractions),
    )


def _size(labels: object) -> int:
    """Rows of a sentence: its words, or itself."""
    return len(labels) if isinstance(labels, list) else 1


def _tasks(data: LabelledData) -> int:
    return len(cut_into_tasks(data.rows))
