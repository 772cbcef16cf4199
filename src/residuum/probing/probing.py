"""`probe`: every layer, their concatenation and subsets of them, with all that must stand beside an accuracy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, TaskCorpora
from residuum.engine import Workers
from residuum.errors import SettingError
from residuum.maths.description_length import description_lengths
from residuum.maths.features import Features
from residuum.maths.penalty_search import best_penalty
from residuum.maths.probing import LAMBDA, Recipe
from residuum.probing.batteries import TASK, Bench, features_memory, parse_penalty
from residuum.probing.class_tables import class_layer_table
from residuum.probing.examples import Splits, activations_folder, held_memory, labelled_splits
from residuum.probing.measuring import ALL, Battery, NeuronSet, single_layers, subsets_of_layers, targets_of
from residuum.probing.tables import class_table, description_table, penalty_table, score_table, unseen_table
from residuum.probing.twins import Twin, twin_identity, twin_splits
from residuum.storage.results import Result, Run, finished_run, write_run

if TYPE_CHECKING:
    from residuum.models.loading import Model

Say = Callable[[str], object]


@dataclass(frozen=True)
class Plan:
    """What `probe` does with the data: part of a run's identity."""

    seeds: int
    seed: int
    penalties: tuple[float, float] | None  # None: by grid search on dev
    subsets: bool
    description_length: bool
    keep: float  # share of the oracle's score that is enough
    recipe: Recipe

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.seed < 0:
            raise SettingError(f"Found {self.seeds} seeds from {self.seed} on; expected at least 1, from 0 or more.")
        if not 0 < self.keep <= 1:
            raise SettingError(f"The share of the oracle to keep is {self.keep}; it must lie above 0 and at most at 1.")

    @property
    def probe_seeds(self) -> range:
        """One seed for each repetition."""
        return range(self.seed, self.seed + self.seeds)

    @property
    def config(self) -> dict[str, Any]:
        """As a run keeps it."""
        return {**asdict(self), "penalties": "search" if self.penalties is None else list(self.penalties)}


@dataclass(frozen=True, eq=False)
class Probing(Result):
    """What `probe` measured. `frame` has a row for each layer, for all layers together, and for subsets of them."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """Score with interval and seeds, control task, selectivity, random twin, and whether it is enough."""
        return self.run.tables["scores"]

    @property
    def classes(self) -> pd.DataFrame:
        """Precision, recall, F1 and support of each class from each layer; absent where numbers are predicted."""
        return self._table("classes")

    @property
    def class_layers(self) -> pd.DataFrame:
        """Which layers are enough for each class."""
        return self._table("class_layers")

    @property
    def baselines(self) -> pd.DataFrame:
        """What is right without looking at any activation."""
        return self._table("baselines")

    @property
    def unseen(self) -> pd.DataFrame:
        """Labels of the test part that training never saw."""
        return self._table("unseen")

    def text(self) -> str:
        """The scores as lines for a terminal, and what stands beside them."""
        lines = [
            f"{row['features']:>18}  {row['score']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            + ("" if np.isnan(row["sd"]) else f"  sd {row['sd']:.3f}")
            + ("" if np.isnan(row["control"]) else f"  control {row['control']:.3f}")
            + ("" if np.isnan(row["random_twin"]) else f"  random twin {row['random_twin']:.3f}")
            + ("  sufficient" if row["sufficient"] else "")
            for row in self.frame.to_dict("records")
        ]
        return "\n".join([*lines, *(f"{key}: {value}" for key, value in self.run.summary.items())])

    def _table(self, name: str) -> pd.DataFrame:
        if name not in self.run.tables:
            raise SettingError(f"This run has no table {name}; it has {', '.join(self.run.tables)}.")
        return self.run.tables[name]


def probe(
    source: Model | ActivationStore | Mapping[str, ActivationStore] | str | os.PathLike[str],
    data: Sequence[Any] | Mapping[str, Sequence[Any]] | Corpus | TaskCorpora | str | os.PathLike[str],
    task: str | Task = "labels",
    *,
    out: str | Path | None = None,
    seeds: int = 3,
    seed: int = 0,
    penalty: str | tuple[float, float] = (LAMBDA, LAMBDA),
    recipe: Recipe | None = None,
    subsets: bool = True,
    random_twin: Twin = None,
    description_length: bool = False,
    keep: float = 0.99,
    activations: str | os.PathLike[str] | None = None,
    max_memory: int | None = None,
    workers: Workers = None,
    fresh: bool = False,
    say: Say | None = None,
    **reading: Any,
) -> Probing:
    """Probe every layer of a model for a task, all layers together, and `subsets` of them.

    `source` and `data` are a store and labels, or a model and a corpus (see `examples.labelled_splits`, which takes
    `reading`: `layers`, `dev`, `test`, `limit`, `device`, …). A model's activations are kept in `activations`, or in
    `out`. Probes learn from the training part; choices are made on dev; scores are those of test, means over `seeds`.
    `penalty` is (λ1, λ2) or "search"; `keep` is the share of all layers' score that is enough. A model is probed
    beside its twin with random weights unless `random_twin` is False (it can be the twin's stores, too); activations
    alone have none, which is noted. `description_length` adds Voita and Titov's. `workers` (processes, or an `Engine`)
    read and train, each holding up to `max_memory` bytes. `say` is told what is coming.
    """
    penalties = parse_penalty(penalty) if isinstance(penalty, str) else penalty
    plan = Plan(seeds, seed, penalties, subsets, description_length, keep, recipe or Recipe())
    reading |= {"seed": seed, "fresh": fresh, "workers": workers, "max_memory": max_memory}
    with activations_folder(activations, out) as folder:
        splits = labelled_splits(source, data, task, activations=folder, **reading)
        splits, twin = twin_splits(splits, source, data, task, random_twin, folder, reading)
        bench = Bench(splits, plan.recipe, held_memory(max_memory), seed, workers)
        config = {**bench.facts, "random_twin": twin_identity(twin), **plan.config}
        if out is not None and (run := finished_run(out, "probe", config, fresh=fresh)):
            return Probing(run)
        run = Run("probe", config, *_measured(bench, twin, plan, say or (lambda _: None)))
    if out is not None:
        write_run(out, run)
    return Probing(run)


def _measured(
    bench: Bench, twin: Splits | None, plan: Plan, say: Say
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """The summary and the tables of a run."""
    _check(bench, plan)
    layers = single_layers(bench.splits.layout)
    subsets = subsets_of_layers(bench.splits.layout) if plan.subsets else []
    tables: dict[str, pd.DataFrame] = {}
    penalties = plan.penalties
    if penalties is None:
        say(f"λ1 and λ2 are searched on the development part: {bench.estimate(bench.penalty_probes)} …")
        grid = bench.search_penalty()
        best = best_penalty(grid)
        penalties, tables["penalties"] = (best.l1, best.l2), penalty_table(grid, best)
    random = {}
    if twin is not None:
        random = _twin_scores(Battery(replace(bench, splits=twin), layers, [TASK], plan.probe_seeds, penalties), say)
    battery = Battery(bench, [*layers, *subsets], targets_of(bench), plan.probe_seeds, penalties)
    say(f"{bench.estimate(battery.probes)} …")
    dev, test = battery.on("dev"), battery.on("test")
    tables = {"scores": score_table(battery.sets, dev, test, random, plan.keep), **tables}
    baselines = bench.baselines("test")
    if not bench.splits.regression:
        tables["classes"] = class_table(layers, dev, test, plan.keep)
        tables["class_layers"] = class_layer_table(tables["classes"])
        tables["unseen"] = unseen_table(bench)
        tables["baselines"] = pd.DataFrame(baselines.items(), columns=["baseline", "score"])
    if plan.description_length:
        say("Description lengths …")
        tables["description"] = _description(bench, layers, plan.seed, penalties)
    tables["audit"] = bench.splits.audit
    return _summary(bench, tables, penalties, baselines), tables


def _check(bench: Bench, plan: Plan) -> None:
    """Raise an error for what cannot be done, before anything is read or trained."""
    if plan.description_length and bench.splits.regression:
        raise SettingError("The description length is one of classes, and this task predicts numbers; leave it out.")


def _twin_scores(battery: Battery, say: Say) -> dict[str, float]:
    """What the twin scores on the test part; its features are gone before the model's own are needed."""
    say(f"Random twin: {battery.bench.estimate(battery.probes)} …")
    found = battery.on("test")
    return {one.name: found.mean(one.name) for one in battery.sets}


def _description(bench: Bench, layers: list[NeuronSet], seed: int, penalties: tuple[float, float]) -> pd.DataFrame:
    probes, features = Battery(bench, layers, targets_of(bench), [seed], penalties).probes, _growing_features(bench)
    found = []
    for some in bench.groups(probes, bench.targets):
        generator = np.random.default_rng(seed)  # words in the same order for all of them
        found += description_lengths(features, bench.targets, some, generator, recipe=bench.recipe)
    return description_table(layers, probes, found)


def _growing_features(bench: Bench) -> Features:
    """The training part, of which up to a half is copied: in memory where both fit, else read in windows of a half."""
    train = bench.splits.train
    half, memory = 2 * len(train) * bench.splits.layout.n_neurons, features_memory(bench.max_memory)
    if 3 * half <= memory:
        bench.make_room(half)
        return bench.features("train")
    bench.make_room(bench.max_memory)
    return train.features(memory // 2)


def _summary(
    bench: Bench, tables: dict[str, pd.DataFrame], penalties: tuple[float, float], baselines: dict[str, float]
) -> dict[str, Any]:
    rows = tables["scores"].to_dict("records")
    single = [row for row in rows if row["kind"] == "layer"]
    oracle = next(row for row in rows if row["features"] == ALL)
    best = max(single, key=lambda row: row["dev"])
    unseen = tables["unseen"]["examples"].tolist() if "unseen" in tables else []
    return {
        "metric": "pearson" if bench.splits.regression else "accuracy",
        "oracle": oracle["score"],
        "oracle selectivity": _number(oracle["selectivity"]),
        "best layer": best["layer"],
        "best layer score": best["score"],
        "lowest sufficient layer": min((row["layer"] for row in single if row["sufficient"]), default=None),
        **{f"{name} baseline": value for name, value in baselines.items()},
        "classes": bench.targets[TASK].n_classes or None,
        "l1": penalties[0],
        "l2": penalties[1],
        "unseen labels": sum(unseen),
        "examples": {part: len(getattr(bench.splits, part)) for part in ("train", "dev", "test")},
    }


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
