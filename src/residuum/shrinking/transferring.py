"""`transfer`: the fewest layers and neurons that keep a task's score, written as a folder to use."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from residuum.corpus.tasks import Task, TaskCorpora, labels_of, named_task, read_task
from residuum.errors import ModelError, SettingError
from residuum.maths.layouts import NeuronLayout
from residuum.models.cards import check_hub, push_to_hub
from residuum.models.loading import Model, as_model
from residuum.models.onnx_graphs import check_packages
from residuum.models.sentences import stated_position
from residuum.models.surgery import layer_count, save_whole
from residuum.models.vocabularies import Vocabulary, cut_model
from residuum.probing.baselines import random_twin
from residuum.probing.examples import Splits, held_memory, labelled_splits
from residuum.probing.probe_data import TASK, ProbeData
from residuum.settings import command
from residuum.shrinking.classifier import Unit, write_classifier
from residuum.shrinking.measuring import Costs, layer_costs, measure_product, sampled, sentence_milliseconds
from residuum.shrinking.networks import (
    check_can_be_cut,
    narrowed,
    saved_parameters,
    size_of,
    truncated,
    vocabulary_of,
)
from residuum.shrinking.predicting import Predictor, Text, load_predictor, with_head, write_onnx
from residuum.shrinking.records import Chosen, baseline_text, kept_share, transfer_run, write_card
from residuum.shrinking.selection import Candidate, Candidates, FeatureSelection, affordable_layers, reference_score
from residuum.shrinking.settings import TransferSettings
from residuum.storage.results import Result, Run, finished_run, finished_step, scratch, write_run


@dataclass(frozen=True, eq=False)
class Transfer(Result):
    """What `transfer` wrote: the folder to use, and the record of how it came about."""

    run: Run
    folder: Path

    @property
    def frame(self) -> pd.DataFrame:
        """Oracle, LayerSelector, clustering and feature selection side by side; then what was written."""
        return self.run.tables["steps"]

    @property
    def curve(self) -> pd.DataFrame:
        """Every set of neurons that was tried, with scores, costs and the Pareto fronts."""
        return self.run.tables["curve"]

    @property
    def neurons(self) -> pd.DataFrame:
        """The chosen neurons: rank, neuron, layer, index."""
        return self.run.tables["neurons"]

    def text(self) -> str:
        """What came out, in a few lines: sizes, scores beside the baselines, speed, warnings."""
        summary, frame = self.run.summary, self.frame.assign(MB=self.frame["bytes"] / 1e6)
        columns = ["step", "layer", "neurons", "share", "dev", "test", "low", "high", "share_of_oracle", "MB", "ms"]
        columns += ["mean", "sd"] if self.run.config["seeds"] > 1 else []
        speed, low, high = summary["speed-up"]
        lines = [
            frame.loc[:, columns].to_string(index=False, float_format="{:.3f}".format, na_rep="–"),
            f"{summary['task']}: {summary['layers']} of {summary['layers before']} layers and {summary['neurons']:,} "
            f"neurons ({summary['share of neurons']:.1%}) reach {summary['metric']} {summary['score']:.4f} on test"
            f"{kept_share(summary)}; {speed:.1f} times faster ({low:.1f}–{high:.1f}).",
            baseline_text(summary),
            *summary["warnings"],
            f"`residuum predict {self.folder} < texts` uses it; README.md there says more.",
        ]
        return "\n".join(line for line in lines if line)

    @cached_property
    def predictor(self) -> Predictor:
        """What the folder holds, loaded."""
        return load_predictor(self.folder)

    def __getstate__(self) -> dict[str, Any]:
        return {"run": self.run, "folder": self.folder}  # the loaded model is read again

    def predict(self, texts: Sequence[Text]) -> list[Any]:
        """The label of each text, or of a word task a list with the label of each word."""
        return self.predictor.predict(texts)


@command(TransferSettings)
def transfer(settings: TransferSettings) -> Transfer:
    """Find the fewest layers and neurons that keep a task's score, and write a smaller model with a classifier.

    LayerSelector keeps the lowest sufficient layers; correlation clustering and feature selection keep few of their
    neurons, so that the share `keep` of the score of the oracle (a probe on all neurons of all layers) stays. A
    `budget` (`layers=3`, `neurons=300`, `bytes=60MB`, `ms=2.5`) takes precedence. Everything is chosen on dev and
    reported on test. A killed run continues where it was.
    """
    check_hub(settings.push_to_hub)
    job, folder = _prepared(settings), Path(settings.out)
    if run := finished_run(folder, "transfer", job.config, fresh=settings.fresh):
        push_to_hub(folder, settings.push_to_hub)
        return Transfer(run, folder)
    with scratch(folder, job.config, fresh=settings.fresh) as kept:
        run = job.run(folder, kept)
        write_card(folder, run, None if job.model.origin is None else job.model.origin.name_or_path)
        write_run(folder, run)
    push_to_hub(folder, settings.push_to_hub)
    return Transfer(run, folder)


def _prepared(settings: TransferSettings) -> TransferJob:
    """Model and data, and everything refused that cannot work."""
    task, corpora = named_task(settings.task), settings.corpus
    if not isinstance(corpora, TaskCorpora):
        reading = {name: getattr(settings, name) for name in ("dev", "test", "limit", "seed")}
        corpora = read_task(task, corpora, **reading, **settings.table)
    if corpora.train.choices is not None:
        raise SettingError(
            f"{corpora.train.name} has several candidates for each text; `transfer` labels single texts."
        )
    if settings.onnx:
        check_packages()
    model = as_model(settings.model, device=settings.device, max_memory=settings.max_memory)
    check_can_be_cut(model)
    kind = "word" if task.unit == "word" else "sentence"
    pooling, position = ("first", "cls") if settings.one_layer else (settings.pooling, settings.position)
    unit = Unit(kind, pooling, stated_position(model, position), corpora.train.pairs is not None)
    return TransferJob(settings, model, corpora, task, unit)


@dataclass(frozen=True, eq=False)
class TransferJob:
    """One transfer: what it is given, and its steps. `seconds` says how long each took."""

    settings: TransferSettings
    model: Model
    corpora: TaskCorpora
    task: Task
    unit: Unit
    seconds: dict[str, float] = field(default_factory=dict)

    @cached_property
    def config(self) -> dict[str, Any]:
        """What decides the result."""
        settings, recipe = self.settings, self.settings.probe_recipe()
        return {
            **settings.identity(),
            "model": self.model.name,
            "weights": self.model.fingerprint,
            "task": self.task.name,
            "data": {part: f"{corpus.name} {corpus.fingerprint[:16]}" for part, corpus in self.corpora.items()},
            "notes": list(self.corpora.notes),
            "budget": None if settings.budget is None else str(settings.budget),
            "recipe": {"name": type(recipe).__name__, **asdict(recipe)},
            **asdict(self.unit),
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
        return vocabulary_of(self.model, [self.corpora.train, self.corpora.dev]) if self.settings.trim else None

    def run(self, out: Path, kept: Path) -> Run:
        """Do all of it; a step that was finished before is read from the folder `kept`."""
        settings = self.settings
        costs = self._costs(kept)
        affordable_layers(costs, settings, self._n_rows)  # refuse what cannot be reached before hours are spent
        splits = self._timed("extraction", lambda: self._splits(kept))
        data = ProbeData(splits, settings.probe_recipe(), held_memory(settings.max_memory), settings.seed)
        # Layers that are the last hidden state of a network cut there; a closing norm leaves only the top one.
        layers = range(self.model.n_layers + 1) if settings.one_layer else ()
        single_layers = [layer for layer in layers if layer_count(truncated(self.model, layer)) == layer]
        selection = FeatureSelection(data, settings, costs, single_layers)
        chosen = self._choose(selection, kept)
        twin = self._timed("random twin", lambda: self._twin_score(data, kept)) if settings.random_twin else {}
        self._write(out, chosen.last, splits.layout)
        product = load_predictor(out, device=str(self.model.device))
        full = Predictor(self.model, chosen.oracle.classifier(splits.layout, self.labels), self.unit)
        measured = self._timed("measuring", lambda: measure_product(product, full, self.corpora.test, self.task, data))
        measured |= twin
        if settings.narrow:
            measured |= self._timed("narrowing", lambda: self._narrow(selection, chosen.last, product, kept))
        if settings.onnx:
            measured["largest difference of ONNX"] = write_onnx(product, out)

        def of_seeds() -> Run:
            return Run("transfer", {}, {"scores": selection.seed_scores(chosen.named)})

        scores = self._timed("seeds", lambda: finished_step(kept, "seeds", of_seeds)).summary["scores"]
        facts = {"layers before": self.model.n_layers, "parameters before": self.model.n_parameters}
        if self.vocabulary is not None:
            config: Any = self.model.module.config
            facts |= {
                "pieces before": config.vocab_size,
                "pieces": len(self.vocabulary.kept),
                "characters without a piece become": self.vocabulary.fallback,
            }
        return transfer_run(self.config, data, chosen, costs, measured, facts, self.seconds, scores)

    def _costs(self, kept: Path) -> Costs:
        def compute() -> Run:
            by_layer = layer_costs(self.model, self._n_rows, self.vocabulary, sampled(self.corpora.test), self.unit)
            return Run("transfer", {}, {}, {"costs": pd.DataFrame(list(by_layer.values()))})

        table = self._timed("costs", lambda: finished_step(kept, "costs", compute)).tables["costs"]
        return {int(row["layers"]): {str(key): value for key, value in row.items()} for row in table.to_dict("records")}

    def _splits(self, kept: Path) -> Splits:
        n_words = sum(corpus.n_words for _, corpus in self.corpora.items())
        self.settings.say(f"{self.model.name} reads {n_words:,} words.")
        folder, fresh = self.settings.activations or kept / "activations", self.settings.fresh
        return labelled_splits(self.model, self.corpora, self.task, activations=folder, fresh=fresh, **self._extraction)

    @property
    def _extraction(self) -> dict[str, Any]:
        return {
            "pooling": self.unit.pooling,
            "position": self.unit.position,
            "progress": self.settings.progress,
            "max_memory": self.settings.max_memory,
            "max_loss": self.settings.max_loss,
        }

    def _choose(self, selection: FeatureSelection, kept: Path) -> Chosen:
        """The candidates of each step that is taken; the layers (or the oracle alone) come first."""
        settings = self.settings
        by_step = {"layers": self._step("layers", kept, selection.layers)}
        layers, clusters = by_step["layers"].best, None
        reference = reference_score(by_step["layers"].tried[-1], layers, settings)
        if "clusters" in settings.steps:
            by_step["clusters"] = self._step("clusters", kept, lambda: selection.representatives(layers, reference))
            clusters = by_step["clusters"].best
        if "neurons" in settings.steps:
            by_step["neurons"] = self._step("neurons", kept, lambda: selection.neurons(layers, clusters, reference))
        path = self._timed(
            "path", lambda: finished_step(kept, "path", lambda: selection.path(by_step["layers"]).as_run())
        )
        return Chosen(by_step, settings.steps, Candidates.of_run(path))

    def _twin_score(self, data: ProbeData, kept: Path) -> dict[str, float]:
        """What a probe on all neurons of the same architecture with random weights scores on test."""

        def compute() -> Run:
            settings = self.settings
            twin = random_twin(self.model, seed=settings.seed, device=settings.device)
            options = {"activations": kept / "random", "fresh": settings.fresh, **self._extraction}
            other = data.of(labelled_splits(twin, self.corpora, self.task, **options))
            (score,) = other.score(other.train([other.probe(TASK)]), "test")
            return Run("transfer", {}, {"random twin": score.value})

        return finished_step(kept, "twin", compute).summary

    def _step(self, name: str, kept: Path, choose: Callable[[], Candidates]) -> Candidates:
        run = self._timed(name, lambda: finished_step(kept, name, lambda: choose().as_run()))
        candidates = Candidates.of_run(run)
        best = candidates.best
        self.settings.say(f"{name}: layers up to {best.layer}, {best.n_neurons:,} neurons, {best.dev:.4f} on dev.")
        return candidates

    def _write(self, out: Path, chosen: Candidate, layout: NeuronLayout) -> None:
        classifier = chosen.classifier(layout, self.labels)
        network: Any = truncated(self.model, chosen.layer)
        tokenizer = self.model.tokenizer
        if self.vocabulary is not None:
            network, tokenizer = cut_model(network, self.vocabulary), self.vocabulary.tokenizer
        if self.settings.one_layer:
            network = with_head(network, classifier, self.unit)
        save_whole(network, tokenizer, out)
        write_classifier(out, classifier, self.unit, self.task.name)

    def _narrow(self, selection: FeatureSelection, chosen: Candidate, product: Predictor, kept: Path) -> dict[str, Any]:
        """The chosen neurons of a network without the hidden dimensions that none of them uses, with a new probe.

        Where nothing can be measured, `narrowing` says why.
        """
        model, classifier = self.model, product.classifier
        dimensions = np.unique(classifier.indices)
        if len(dimensions) == model.hidden_size:
            return {"narrowing": f"nothing to drop: each of the {model.hidden_size} hidden dimensions has a neuron"}
        try:
            small = narrowed(model, chosen.layer, dimensions)
        except ModelError as error:
            return {"narrowing": str(error)}
        splits = labelled_splits(small, self.corpora, self.task, activations=kept / "narrowed", **self._extraction)
        columns = np.array(splits.layout.starts)[classifier.layers] + np.searchsorted(dimensions, classifier.indices)
        small_selection = replace(selection, data=selection.data.of(splits))
        candidate = small_selection.train("narrowed", {len(dimensions): columns})[0]
        predictor = Predictor(small, candidate.classifier(splits.layout, classifier.labels), product.unit)
        size, saved = size_of(small.module), saved_parameters(small.module, self.vocabulary)
        return {
            "narrowing": f"{len(dimensions)} of {model.hidden_size} hidden dimensions",
            "narrowed": {
                **{key: getattr(candidate, key) for key in ("layer", "dev", "test", "low", "high")},
                "neurons": candidate.n_neurons,
                "parameters": size.parameters - saved + classifier.weight.size + len(classifier.bias),
                "bytes": size.n_bytes - 4 * saved + classifier.n_bytes,
                "ms": sentence_milliseconds(predictor, sampled(self.corpora.test)),
            },
        }

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        self.seconds[name] = time.perf_counter() - start
        return result
