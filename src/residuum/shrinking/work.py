"""The steps of one transfer in order: costs, activations, choices, the folder, and what is measured of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from residuum.corpus.tasks import Task, TaskCorpora, labels_of
from residuum.errors import SettingError
from residuum.maths.probing import Recipe
from residuum.models.loading import Model
from residuum.models.vocabularies import Vocabulary
from residuum.probing.batteries import Bench
from residuum.probing.examples import Splits, held_memory, labelled_splits
from residuum.shrinking.candidates import Candidate, Candidates, probes_on, seed_scores
from residuum.shrinking.costs import Costs, layer_costs, sampled
from residuum.shrinking.measuring import measure_narrowed, measure_product
from residuum.shrinking.onnx_export import write_onnx
from residuum.shrinking.predicting import Predictor, Unit
from residuum.shrinking.product import load_product, write_product
from residuum.shrinking.records import Chosen, transfer_run
from residuum.shrinking.selection import (
    affordable_layers,
    layer_sets,
    most_neurons,
    select_layers,
    select_neurons,
    select_representatives,
)
from residuum.shrinking.settings import Settings
from residuum.shrinking.truncation import trimmed, truncated, vocabulary_of
from residuum.storage.results import Run, finished_step


@dataclass(frozen=True)
class Extras:
    """What is done beside the choice of layers and neurons."""

    trim: bool = False
    narrow: bool = False
    onnx: bool = False


@dataclass(frozen=True, eq=False)
class Work:
    """One transfer: what it is given, and its steps. `seconds` says how long each took."""

    model: Model
    corpora: TaskCorpora
    task: Task
    settings: Settings
    recipe: Recipe
    unit: Unit
    extras: Extras
    max_memory: int | None
    max_loss: float
    progress: bool
    say: Callable[[str], object]
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.corpora.train.choices is not None:
            raise SettingError(
                f"{self.corpora.train.name} has several candidates for each text; `transfer` labels single texts."
            )

    @cached_property
    def config(self) -> dict[str, Any]:
        """What decides the result."""
        settings = asdict(self.settings)
        chosen = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
        return {
            "model": self.model.name,
            "weights": self.model.fingerprint,
            "task": self.task.name,
            "data": {part: f"{corpus.name} {corpus.fingerprint[:16]}" for part, corpus in self.corpora.items()},
            "notes": list(self.corpora.notes),
            **chosen,
            "budget": None if self.settings.budget is None else str(self.settings.budget),
            "recipe": asdict(self.recipe),
            **asdict(self.unit),
            **asdict(self.extras),
        }

    @cached_property
    def labels(self) -> list[str]:
        """The classes of the training part, sorted; none where numbers are predicted."""
        if self.task.regression:
            return []
        rows = labels_of(self.corpora.train, self.task)
        flat = [label for row in rows for label in row] if self.task.unit == "word" else rows
        return sorted({str(label) for label in flat if label is not None})

    @property
    def _n_rows(self) -> int:
        """The rows of a classifier's weight."""
        return max(len(self.labels), 1)

    @cached_property
    def vocabulary(self) -> Vocabulary | None:
        """The pieces that are kept, where the vocabulary is trimmed."""
        return vocabulary_of(self.model, [self.corpora.train, self.corpora.dev]) if self.extras.trim else None

    def run(self, out: Path, kept: Path, activations: Path, *, fresh: bool = False) -> Run:
        """Do all of it; a step that was finished before is read from the folder `kept`."""
        costs = self._costs(kept)
        affordable_layers(costs, self.settings, self._n_rows)  # what cannot be had is said before hours are spent
        splits = self._timed("extraction", lambda: self._splits(activations, fresh))
        bench = Bench(splits, self.recipe, held_memory(self.max_memory), self.settings.seed)
        chosen = self._choose(bench, costs, kept)
        self._write(out, chosen.last, bench)
        product = load_product(out, device=str(self.model.device))
        full = Predictor(self.model, chosen.oracle.classifier(splits.layout, self.labels), self.unit)
        measured = self._timed("measuring", lambda: self._measure(product, full))
        if self.extras.narrow:
            measured |= self._timed("narrowing", lambda: self._narrow(bench, chosen.last, product, kept))
        if self.extras.onnx:
            measured["largest difference of ONNX"] = write_onnx(product, out)
        scores = self._seed_scores(bench, chosen, kept)
        return transfer_run(self.config, bench, chosen, costs, measured, self._facts(), self.seconds, scores)

    def _costs(self, kept: Path) -> Costs:
        def compute() -> Run:
            found = layer_costs(self.model, self._n_rows, self.vocabulary, sampled(self.corpora.test), self.unit)
            return Run("transfer", {}, {}, {"costs": pd.DataFrame(list(found.values()))})

        table = self._timed("costs", lambda: finished_step(kept, "costs", compute)).tables["costs"]
        return {int(row["layers"]): {str(key): value for key, value in row.items()} for row in table.to_dict("records")}

    def _splits(self, activations: Path, fresh: bool) -> Splits:
        n_words = sum(corpus.n_words for _, corpus in self.corpora.items())
        self.say(f"{self.model.name} reads {n_words:,} words.")
        return labelled_splits(
            self.model, self.corpora, self.task, activations=activations, fresh=fresh, **self._extraction
        )

    @property
    def _extraction(self) -> dict[str, Any]:
        return {
            "pooling": self.unit.pooling,
            "position": self.unit.position,
            "progress": self.progress,
            "max_memory": self.max_memory,
            "max_loss": self.max_loss,
        }

    def _choose(self, bench: Bench, costs: Costs, kept: Path) -> Chosen:
        """The candidates of each step that is taken; the layers (or the oracle alone) come first."""
        settings = self.settings
        found = {"layers": self._step("layers", kept, lambda: self._layers(bench, costs))}
        layers = found["layers"].best
        if "clusters" in settings.steps:
            found["clusters"] = self._step("clusters", kept, lambda: select_representatives(bench, layers, settings))
        if "neurons" in settings.steps:
            base, most = [*found.values()][-1].best, most_neurons(costs, layers, settings)
            found["neurons"] = self._step("neurons", kept, lambda: select_neurons(bench, base, layers, settings, most))
        return Chosen(found, settings.steps)

    def _layers(self, bench: Bench, costs: Costs) -> Candidates:
        """The longest of the steps: what it takes is said first."""
        self.say(f"{bench.estimate(probes_on(layer_sets(bench, self.settings).values(), self.settings))} …")
        return select_layers(bench, self.settings, costs)

    def _seed_scores(self, bench: Bench, chosen: Chosen, kept: Path) -> dict[str, list[float]]:
        """The test scores of the oracle and of what each step chose, one for each seed."""

        def compute() -> Run:
            return Run("transfer", {}, {"scores": seed_scores(bench, chosen.named, self.settings)})

        return self._timed("seeds", lambda: finished_step(kept, "seeds", compute)).summary["scores"]

    def _step(self, name: str, kept: Path, choose: Callable[[], Candidates]) -> Candidates:
        run = self._timed(name, lambda: finished_step(kept, name, lambda: choose().as_run()))
        found = Candidates.of_run(run)
        best = found.best
        self.say(f"{name}: layers up to {best.layer}, {best.n_neurons:,} neurons, {best.dev:.4f} on dev.")
        return found

    def _write(self, out: Path, chosen: Candidate, bench: Bench) -> None:
        classifier = chosen.classifier(bench.splits.layout, self.labels)
        network: Any = truncated(self.model, chosen.layer)
        tokenizer = self.model.tokenizer
        if self.vocabulary is not None:
            network, tokenizer = trimmed(network, self.vocabulary), self.vocabulary.tokenizer
        write_product(out, network, tokenizer, classifier, self.unit, self.task.name)

    def _measure(self, product: Predictor, full: Predictor) -> dict[str, Any]:
        return measure_product(product, full, self.corpora.test, self.task, self.settings.seed)

    def _narrow(self, bench: Bench, chosen: Candidate, product: Predictor, kept: Path) -> dict[str, Any]:
        def read(small: Model) -> Splits:
            return labelled_splits(small, self.corpora, self.task, activations=kept / "narrowed", **self._extraction)

        sample = sampled(self.corpora.test)
        return measure_narrowed(self.model, chosen, product, read, bench, self.settings, self.vocabulary, sample)

    def _facts(self) -> dict[str, Any]:
        """What the record says of the model before and of the vocabulary."""
        facts = {"layers before": self.model.n_layers, "parameters before": self.model.n_parameters}
        if self.vocabulary is None:
            return facts
        config: Any = self.model.module.config
        return facts | {
            "pieces before": config.vocab_size,
            "pieces": len(self.vocabulary.kept),
            "characters without a piece become": self.vocabulary.fallback,
        }

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        self.seconds[name] = time.perf_counter() - start
        return result
