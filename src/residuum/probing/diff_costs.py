"""What `diff` will take: all models read all texts, are compared, clustered and probed.

The models read a few sentences into stores that are thrown away, so that each part is measured in its own code.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.activations.correlation import clustering_bytes
from residuum.activations.store import ActivationStore
from residuum.comparison import compare_cost
from residuum.comparison.comparing import ATTENTION
from residuum.corpus.tasks import Task, labels_of
from residuum.costs import Cost, Step, clustering_step, moments_step, spread
from residuum.engine import Engine, Workers, as_engine, cut_into_tasks, worker_count
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probing import Recipe
from residuum.probing.diff import possible_measures
from residuum.probing.diff_models import NamedSource, named_sources, read_models
from residuum.probing.diff_probing import steps_at_once
from residuum.probing.diff_salience import ROUNDS
from residuum.probing.diff_settings import MEASURES, SHARES, Settings
from residuum.probing.diff_texts import CorpusSource, TaskChoice, Text, read_texts
from residuum.probing.examples import held_memory
from residuum.probing.task_costs import LabelledData, Training

if TYPE_CHECKING:
    from residuum.models.loading import Model

SENTENCES = 64
"""Of each text, that every model reads."""


def diff_cost(
    sources: Sequence[Model | ActivationStore | str | os.PathLike[str]] | Mapping[str, Any],
    corpus: CorpusSource,
    tasks: TaskChoice,
    *,
    measures: str | Sequence[str] = MEASURES,
    groups: int = 5,
    shares: Sequence[float] = SHARES,
    seeds: int = 3,
    seed: int = 0,
    recipe: Recipe | None = None,
    device: str = "auto",
    workers: Workers = None,
    max_memory: int | None = None,
    layers: str | int | Sequence[int] = "all",
    **reading: Any,
) -> Cost:
    """What `diff` would take with the same settings; `reading` are `dev`, `test`, `format` and `limit`."""
    named, texts = named_sources(sources), read_texts(corpus, tasks, seed=seed, **reading)
    chosen, _ = possible_measures(measures, named, texts[0])
    attention = bool(set(chosen) & set(ATTENTION))
    engine, wide = as_engine(workers), as_engine(workers, Engine(worker_count(None)))
    with tempfile.TemporaryDirectory(prefix="residuum-") as folder:
        trial = _Trial(texts, layers, attention, device, engine, Path(folder))
        tried = [trial.of(source) for source in named]
        steps = [step for one in tried for step in one.reading]
        sizes = [_n_rows(text) * one.layout.n_neurons for one in tried for text in texts]
        trees = [clustering_bytes(one.layout.n_neurons, one.layout.widths) for one in tried]
        at_once = steps_at_once(sizes, held_memory(max_memory), max(trees)) if workers is None else 1
        compared = compare_cost(
            _comparable(tried),
            measures=chosen,
            groups=groups,
            products=Settings(measures=tuple(chosen)).products,
            workers=wide,
            max_memory=held_memory(max_memory),
            times=_longer(tried, texts[0]),
        )
        steps += [replace(step, name=f"similarity: {step.name}") for step in compared.steps]
    probing = _Probing(texts, tuple(shares), seeds, recipe or Recipe(), held_memory(max_memory), engine, at_once)
    steps += [step for one in tried for step in probing.steps(one)]
    words, names = sum(text.corpus.n_words for text in texts), ", ".join(source.name for source in named)
    return Cost(f"{names}: {words:,} words", tuple(steps), wide.width, wide.client is not None)


@dataclass(frozen=True, eq=False)
class _Tried:
    """What a model made of a few sentences of each text, or what was given of all; and what reading all takes."""

    name: str
    stores: tuple[ActivationStore, ...]
    reading: tuple[Step, ...]

    @property
    def layout(self) -> NeuronLayout:
        return NeuronLayout(tuple(self.stores[0].widths), tuple(self.stores[0].layers))


@dataclass(frozen=True, eq=False)
class _Trial:
    """The reading of all texts by one model after the other, of which one is held at a time."""

    texts: Sequence[Text]
    layers: str | int | Sequence[int]
    attention: bool
    device: str
    engine: Engine
    folder: Path

    def of(self, source: NamedSource) -> _Tried:
        if isinstance(source.thing, ActivationStore):
            (model,) = read_models([source], self.texts, self.folder, attention=self.attention)
            return _Tried(source.name, model.stores, ())
        from residuum.activations.estimates import extraction_step
        from residuum.activations.extraction import Extraction, Settings
        from residuum.models.loading import as_model

        model = as_model(source.thing, device=self.device, attention=self.attention)
        few = [replace(text, corpus=text.corpus.select(spread(len(text.corpus), SENTENCES))) for text in self.texts]
        loaded, options = replace(source, thing=model), {"layers": self.layers, "max_loss": 1.0, "progress": False}
        (read,) = read_models([loaded], few, self.folder, attention=self.attention, **options)
        steps = [
            extraction_step(Extraction.of(model, text.corpus, self.layers, settings), self.engine)
            for number, text in enumerate(self.texts)
            for settings in [Settings(unit=text.unit, attention=self.attention and number == 0)]
        ]
        return _Tried(source.name, read.stores, tuple(replace(s, name=f"{source.name}: {s.name}") for s in steps))


def _comparable(tried: Sequence[_Tried]) -> list[ActivationStore]:
    """Stores over the same words: a store beside models is taken to cost what the first of these does."""
    sampled = [one for one in tried if one.reading]
    return [(one if one.reading or not sampled else sampled[0]).stores[0] for one in tried]


def _longer(tried: Sequence[_Tried], text: Text) -> float:
    """How many times longer the first text is than what was read of it."""
    sampled = next((one for one in tried if one.reading), None)
    return 1.0 if sampled is None else _n_rows(text) / sampled.stores[0].n_rows


def _n_rows(text: Text) -> int:
    return text.corpus.n_words if text.unit == "word" else len(text.corpus)


@dataclass(frozen=True, eq=False)
class _Probing:
    """Clusters and probes of one model after the other, or of some at a time."""

    texts: Sequence[Text]
    shares: tuple[float, ...]
    seeds: int
    recipe: Recipe
    max_memory: int
    engine: Engine
    at_once: int

    def steps(self, model: _Tried) -> list[Step]:
        layout, n = model.layout, model.layout.n_neurons
        first = self.texts[0]
        rows = [len(words) if first.unit == "word" else 1 for words in first.corpus.sentences]
        parts = [
            moments_step("correlation", layout.widths, sum(rows), len(cut_into_tasks(rows)), self.engine, "float32"),
            clustering_step(n, 16 * n**2),
        ]
        for text in self.texts:
            for task in text.tasks:
                training = Training(_labelled(model, text, task), self.recipe, self.max_memory, self.engine)
                parts += self._of_task(training, task.name)
        return [replace(self._beside_others(part), name=f"{model.name}: {part.name}") for part in parts]

    def _beside_others(self, step: Step) -> Step:
        return step if self.at_once == 1 else replace(step, tasks=self.at_once, at_once=self.at_once)

    def _of_task(self, training: Training, task: str) -> list[Step]:
        """Each layer and all of them; top and bottom neurons; the rungs of the minimal set, all of them at most."""
        layout, targets = training.data.layout, 1 + training.data.control
        n = layout.n_neurons
        few = [max(1, round(share * n)) for share in self.shares for _ in ("top", "bottom")]
        rungs = [max(1, round(share * n)) for shares in ROUNDS for share in shares]
        return [
            training.step(f"probes of {task}", [*layout.widths, n], self.seeds, targets),
            training.step(f"neurons of {task}", few, self.seeds, picked=True),
            training.step(f"fewest neurons of {task}", rungs, 1, picked=True),
        ]


def _labelled(model: _Tried, text: Text, task: Task) -> LabelledData:
    labels = labels_of(text.corpus, task)
    parts = {name: [labels[i] for i in chosen] for name, chosen in text.parts.items()}
    known = {name: [label for own in rows for label in _flat(own) if label is not None] for name, rows in parts.items()}
    return LabelledData(
        model.name,
        model.layout,
        tuple(len(_flat(own)) for own in parts["train"]),
        n_train=len(known["train"]),
        n_examples=sum(map(len, known.values())),
        n_classes=len(set(known["train"])),
        control=text.unit == "word",
    )


def _flat(labels: Any) -> list[Any]:
    """The labels of the words of a sentence, or the one that it has itself."""
    return list(labels) if isinstance(labels, list | tuple) else [labels]
