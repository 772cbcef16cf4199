"""`transfer`: the fewest layers and neurons that keep a task's score, written as a folder to use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, TaskCorpora, named_task, read_task
from residuum.errors import SettingError, StoreError
from residuum.maths.probing import Recipe
from residuum.models.loading import Model, as_model
from residuum.models.onnx_graphs import check_packages
from residuum.probing.batteries import parse_penalty
from residuum.shrinking.card import write_card
from residuum.shrinking.predicting import Predictor, Unit
from residuum.shrinking.product import load_product
from residuum.shrinking.settings import STEPS, THRESHOLDS, Budget, Settings
from residuum.shrinking.texts import Text
from residuum.shrinking.truncation import check_can_be_cut
from residuum.shrinking.work import Extras, Work
from residuum.storage.results import Result, Run, finished_run, read_run, scratch, write_run


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
        """What came out, in a few lines."""
        summary = self.run.summary
        speed, low, high = summary["speed-up"]
        line = (
            f"{summary['task']}: {summary['layers']} of {summary['layers before']} layers and {summary['neurons']:,} "
            f"neurons ({summary['share of neurons']:.1%}) keep {summary['share of oracle']:.1%} of the "
            f"{summary['metric']} of all ({summary['score']:.4f} of {summary['oracle']:.4f} on test); "
            f"{speed:.1f} times faster ({low:.1f}–{high:.1f})."
        )
        missed = "" if summary["good enough"] else "\nNo set of neurons was good enough on dev; all were kept."
        return f"{self.frame.to_string(index=False)}\n{line}{missed}"

    @cached_property
    def predictor(self) -> Predictor:
        """What the folder holds, loaded."""
        return load_product(self.folder)

    def predict(self, texts: Sequence[Text]) -> list[Any]:
        """The label of each text, or of a word task a list with the label of each word."""
        return self.predictor.predict(texts)


def transfer(
    model: Model | str | os.PathLike[str],
    corpus: Corpus | TaskCorpora | str | os.PathLike[str],
    task: str | Task,
    out: str | os.PathLike[str],
    *,
    steps: Sequence[str] = STEPS,
    layer_loss: float = 0.01,
    neuron_loss: float = 0.01,
    thresholds: Sequence[float] = THRESHOLDS,
    representatives: str = "medoid",
    budget: str | Budget | None = None,
    trim: bool = False,
    narrow: bool = False,
    onnx: bool = False,
    penalty: str = "1e-5,1e-5",
    recipe: Recipe | None = None,
    pooling: str = "last",
    position: str = "auto",
    activations: str | os.PathLike[str] | None = None,
    max_memory: int | None = None,
    max_loss: float = 0.0,
    seed: int = 0,
    seeds: int = 1,
    device: str = "auto",
    fresh: bool | Literal["changed"] = False,
    progress: bool = True,
    say: Callable[[str], object] = lambda line: None,
    **reading: Any,
) -> Transfer:
    """Find the fewest layers and neurons that keep a task's score, and write a smaller model with a classifier.

    LayerSelector keeps the lowest layers that lose at most the share `layer_loss` of the oracle's score (all layers);
    correlation clustering and feature selection lose at most the share `neuron_loss` of what is left; `steps` says
    which are taken. A `budget` (`layers=3`, `neurons=300`, `bytes=60MB`, `ms=2.5`) takes the place of the loss. `trim`
    keeps only the embeddings of pieces that the training and development texts use; `narrow` also measures what
    dropping unused hidden dimensions does; `onnx` also writes model.onnx. Everything is chosen on dev and reported on
    test; the oracle and what each step chose are trained from `seeds` seeds, whose mean and deviation stand beside it.
    `reading` are options of `read_task` (`dev`, `test`, `format`, `limit`). A run that was killed goes on; `fresh`
    starts over, "changed" only where the folder holds a transfer of other data or settings.
    """
    found, folder = named_task(task), Path(out)
    settings = _settings(steps, layer_loss, neuron_loss, thresholds, representatives, budget, penalty, seed, seeds)
    corpora = corpus if isinstance(corpus, TaskCorpora) else read_task(found, corpus, seed=seed, **reading)
    network = as_model(model, device=device, max_memory=max_memory)
    check_can_be_cut(network)
    unit = Unit(found.unit, pooling, position, corpora.train.pairs is not None)
    if onnx:
        check_packages()
    extras = Extras(trim, narrow, onnx)
    work = Work(
        network, corpora, found, settings, recipe or Recipe(), unit, extras, max_memory, max_loss, progress, say
    )
    if run := _finished(folder, work.config, fresh):
        return Transfer(run, folder)
    anew = fresh is True
    with scratch(folder, work.config, fresh=anew) as kept:
        run = work.run(folder, kept, kept / "activations" if activations is None else Path(activations), fresh=anew)
        write_card(folder, run)
        write_run(folder, run)
    return Transfer(run, folder)


def _finished(folder: Path, config: dict[str, Any], fresh: bool | Literal["changed"]) -> Run | None:
    """The run that is there, if it is this one; with "changed" another transfer gives way to it."""
    try:
        return finished_run(folder, "transfer", config, fresh=fresh is True)
    except StoreError:
        if fresh != "changed" or read_run(folder).command != "transfer":
            raise
        return finished_run(folder, "transfer", config, fresh=True)


def _settings(
    steps: Sequence[str],
    layer_loss: float,
    neuron_loss: float,
    thresholds: Sequence[float],
    representatives: str,
    budget: str | Budget | None,
    penalty: str,
    seed: int,
    seeds: int,
) -> Settings:
    penalties = parse_penalty(penalty)
    if penalties is None:
        raise SettingError("`transfer` does not search penalties; find them with `probe --penalty search`.")
    limit = Budget.parse(budget) if isinstance(budget, str) else budget
    losses = (layer_loss, neuron_loss)
    return Settings(tuple(steps), *losses, tuple(thresholds), representatives, limit, *penalties, seed, seeds)
