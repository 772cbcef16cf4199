"""`probe_languages`: learn a task in one language, test it in others, from ever fewer neurons."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from residuum.activations.auditing import audit_table
from residuum.activations.correlation import check_room, cluster_store
from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, labels_of, named_task
from residuum.engine import Workers
from residuum.errors import SettingError
from residuum.maths.clustering import Clustering
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probing import LAMBDA, Recipe
from residuum.probing.batteries import TASK, Bench
from residuum.probing.examples import Splits, activations_folder, check_classes, examples, held_memory
from residuum.probing.language_tables import (
    cluster_table,
    family_table,
    language_baselines,
    language_table,
    unseen_labels,
    wide_table,
)
from residuum.probing.measuring import Battery, NeuronSet, everything, subsets_of_layers, targets_of
from residuum.probing.parallel import SHARES, ParallelTreebanks, parallel_treebanks
from residuum.probing.twins import random_twin as build_twin
from residuum.probing.twins import twin_folder
from residuum.storage.results import Result, Run, finished_run, write_run

if TYPE_CHECKING:
    from residuum.models.loading import Model

THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Clustering thresholds of the study of multilingual models (tables B.1 and B.2); 0 keeps all neurons."""


@dataclass(frozen=True)
class LanguagePlan:
    """What `probe_languages` does with the data: part of a run's identity."""

    thresholds: tuple[float, ...]
    representatives: str
    subsets: bool
    seeds: int
    seed: int
    penalties: tuple[float, float]
    recipe: Recipe

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.seed < 0:
            raise SettingError(f"Found {self.seeds} seeds from {self.seed} on; expected at least 1, from 0 or more.")
        if not self.thresholds or len(set(self.thresholds)) != len(self.thresholds):
            raise SettingError(f"The thresholds are {list(self.thresholds)}; give at least one, each once.")
        if not all(0 <= threshold <= 1 for threshold in self.thresholds):
            raise SettingError(f"The thresholds are {list(self.thresholds)}; they must lie between 0 and 1.")

    @property
    def probe_seeds(self) -> range:
        """One seed for each repetition."""
        return range(self.seed, self.seed + self.seeds)


@dataclass(frozen=True, eq=False)
class LanguageProbing(Result):
    """What `probe_languages` measured. `frame` has a row for each model, language and set of neurons."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """Scores with interval and seeds, and how many words have labels that the first language never has."""
        return self.run.tables["languages"]

    @property
    def families(self) -> pd.DataFrame:
        """Means over the languages of a family, the one that was learnt from left out."""
        return self.run.tables["families"]

    @property
    def wide(self) -> pd.DataFrame:
        """A row for each threshold, a column for each language and model (tables B.1 and B.2 in shape)."""
        return self.run.tables["wide"]

    @property
    def baselines(self) -> pd.DataFrame:
        """What is right without looking at any activation."""
        return self.run.tables["baselines"]

    @property
    def unseen(self) -> pd.DataFrame:
        """Labels that the first language never has."""
        return self.run.tables["unseen"]

    def text(self) -> str:
        """The accuracy of every language and model at every threshold as lines for a terminal, and the summary."""
        with pd.option_context("display.width", 200, "display.max_columns", None):
            table = self.wide.set_index("threshold").T.round(3).to_string()
        return "\n".join([table, *(f"{key}: {value}" for key, value in self.run.summary.items())])


def probe_languages(
    models: Sequence[Model | str | os.PathLike[str]] | Model | str | os.PathLike[str],
    corpora: Mapping[str, Corpus | str | os.PathLike[str]] | Sequence[Corpus | str | os.PathLike[str]],
    task: str | Task = "upos",
    *,
    source: str | None = None,
    out: str | Path | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    representatives: str = "random",
    subsets: bool = True,
    families: Mapping[str, str] | None = None,
    shares: tuple[float, float] = SHARES,
    seeds: int = 3,
    seed: int = 0,
    penalty: tuple[float, float] = (LAMBDA, LAMBDA),
    recipe: Recipe | None = None,
    layers: str | int | Sequence[int] = "all",
    limit: int | None = None,
    random_twin: bool = False,
    activations: str | os.PathLike[str] | None = None,
    max_memory: int | None = None,
    max_loss: float = 0.0,
    device: str = "auto",
    workers: Workers = None,
    fresh: bool = False,
    say: Callable[[str], object] | None = None,
) -> LanguageProbing:
    """Probe models across the languages of parallel treebanks.

    Probes learn from the training share of `source` (by default the first treebank) and are tested on all sentences of
    every other language, and on the held-out ones. Neurons are clustered on the source's training sentences; the
    representatives of each threshold are the neurons that are kept in every language. Each model reads each treebank
    once. `families` names the families of languages that the package does not know. `random_twin` tests all neurons of
    each model with random weights in every language, too, which takes as many readings again. `workers` (processes, or
    an `Engine`) read, add up and train, each holding up to `max_memory` bytes.
    """
    task = named_task(task)
    plan = LanguagePlan(tuple(thresholds), representatives, subsets, seeds, seed, penalty, recipe or Recipe())
    treebanks = parallel_treebanks(corpora, task, source=source, shares=shares, seed=seed, limit=limit)
    bounds = {"max_memory": max_memory, "max_loss": max_loss}
    reading = {"layers": layers, "unit": task.unit, "workers": workers, "fresh": fresh, **bounds}
    with activations_folder(activations, out) as folder:
        read = partial(_read_languages, treebanks, reading)
        stores, twins = _read_all(models, read, folder, device, seed if random_twin else None, max_memory)
        config = {
            "task": task.name,
            "source": treebanks.source,
            "stores": _fingerprints(stores),
            "random_twins": _fingerprints(twins),
            "labels": {language: corpus.fingerprint for language, corpus in treebanks.corpora.items()},
            "sentences": {"train": len(treebanks.train), "held out": len(treebanks.held_out)},
            "families": dict(families or {}),
            **asdict(plan),
        }
        if out is not None and (run := finished_run(out, "probe-languages", config, fresh=fresh)):
            return LanguageProbing(run)
        splits = {model: _splits(own, treebanks, task) for model, own in stores.items()}
        random = {model: _splits(own, treebanks, task) for model, own in twins.items()}
        work = Work(
            treebanks, plan, dict(families or {}), random, held_memory(max_memory), workers, say or (lambda _: None)
        )
        run = Run("probe-languages", config, *_measured(splits, work))
    if out is not None:
        write_run(out, run)
    return LanguageProbing(run)


Stores = dict[str, dict[str, ActivationStore]]
"""A store for each model and language."""


def _read_all(
    models: Sequence[Model | str | os.PathLike[str]] | Model | str | os.PathLike[str],
    read: Callable[[Model, Path], dict[str, ActivationStore]],
    folder: Path,
    device: str,
    twin_seed: int | None,
    max_memory: int | None,
) -> tuple[Stores, Stores]:
    """What every model reads, and (with a seed) what its random twin does; they are loaded one after another."""
    from residuum.models.loading import Model, as_model, check_configs

    stores: Stores = {}
    twins: Stores = {}
    every = [models] if isinstance(models, Model | str | os.PathLike) else models
    check_configs(every)
    for given in every:
        model = as_model(given, device=device, max_memory=max_memory)
        if model.name in stores:
            raise SettingError(f"Two models are called {model.name}; rename a folder, so that their rows can be told.")
        own = re.sub(r"[^\w.-]+", "-", model.name)
        stores[model.name] = read(model, folder / own)
        if twin_seed is not None:
            twins[model.name] = read(build_twin(model, seed=twin_seed), twin_folder(folder) / own)
    if not stores:
        raise SettingError("Found no model to probe; give at least one.")
    return stores, twins


def _read_languages(
    treebanks: ParallelTreebanks, settings: Mapping[str, Any], model: Model, folder: Path
) -> dict[str, ActivationStore]:
    from residuum.activations.extraction import extract

    return {
        language: extract(model, corpus, folder / language, **settings)
        for language, corpus in treebanks.corpora.items()
    }


def _fingerprints(stores: Stores) -> dict[str, str]:
    return {f"{model} {language}": s.fingerprint for model, own in stores.items() for language, s in own.items()}


def _splits(stores: dict[str, ActivationStore], treebanks: ParallelTreebanks, task: Task) -> dict[str, Splits]:
    """For each language: learnt from is the source's training share, tested on are all sentences of the language.

    Of the source itself only the held-out sentences are tested on.
    """
    whole = {
        language: examples(store, labels_of(treebanks.corpora[language], task)) for language, store in stores.items()
    }
    source = whole[treebanks.source]
    if isinstance(source.labels, np.ndarray):
        raise SettingError(f"{task.name} predicts numbers; probing across languages needs classes.")
    train, held_out = source.select(treebanks.train), source.select(treebanks.held_out)
    check_classes(train, held_out, held_out)
    return {
        language: Splits(task, train, held_out, held_out if language == treebanks.source else own)
        for language, own in whole.items()
    }


@dataclass(frozen=True, eq=False)
class Work:
    """What is the same for all models of a run."""

    treebanks: ParallelTreebanks
    plan: LanguagePlan
    families: Mapping[str, str]
    twins: Mapping[str, dict[str, Splits]]  # of each model, what its random twin sees; none unless asked for
    max_memory: int
    workers: Workers
    say: Callable[[str], object]

    def bench(self, splits: Splits) -> Bench:
        """A bench that reads its features when they are needed, and loses them when it is dropped."""
        return Bench(splits, self.plan.recipe, self.max_memory, self.plan.seed, self.workers)


def _measured(splits: dict[str, dict[str, Splits]], work: Work) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """The summary and the tables of a run."""
    found = [_of_model(model, own, work) for model, own in splits.items()]
    languages = pd.concat([scores for scores, _ in found], ignore_index=True)
    benches = {language: work.bench(own) for language, own in next(iter(splits.values())).items()}
    tables = {
        "languages": languages,
        "families": family_table(languages, work.treebanks.source),
        "wide": wide_table(languages),
        "clusters": pd.concat([clusters for _, clusters in found], ignore_index=True),
        "baselines": language_baselines(benches, work.families),
        "unseen": unseen_labels(benches),
        "audit": audit_table(one.test.store for own in splits.values() for one in own.values()),
    }
    return _summary(languages, benches[work.treebanks.source], work.treebanks), tables


def _of_model(model: str, splits: dict[str, Splits], work: Work) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One model's scores in all languages, and what clustering left of its neurons."""
    random = _twin_scores(work.twins[model], work) if model in work.twins else {}
    plan, source = work.plan, work.bench(splits[work.treebanks.source])
    train = source.splits.train
    check_room(train.store, work.max_memory)
    clustering = cluster_store(train.store, train.rows, workers=work.workers)
    kept = _kept(clustering, train.layout, plan)
    sets = [*kept, *(subsets_of_layers(train.layout) if plan.subsets else [])]
    battery = Battery(source, sets, targets_of(source), plan.probe_seeds, plan.penalties)
    work.say(f"{model}: {source.estimate(battery.probes)} …")
    scores = [
        language_table(
            model,
            language,
            battery.on("test", work.bench(own)),
            sets,
            work.treebanks,
            random.get(language, np.nan),
            work.families,
        )
        for language, own in splits.items()
    ]
    return pd.concat(scores, ignore_index=True), cluster_table(model, kept, clustering)


def _twin_scores(splits: dict[str, Splits], work: Work) -> dict[str, float]:
    """The accuracy of a random twin in each language, from all of its neurons."""
    source = work.bench(splits[work.treebanks.source])
    whole = everything(source.splits.layout)
    battery = Battery(source, [whole], [TASK], work.plan.probe_seeds, work.plan.penalties)
    work.say(f"{source.splits.train.store.name}: {source.estimate(battery.probes)} …")
    return {language: battery.on("test", work.bench(own)).mean(whole.name) for language, own in splits.items()}


def _kept(clustering: Clustering, layout: NeuronLayout, plan: LanguagePlan) -> list[NeuronSet]:
    """The neurons that each threshold leaves; at 0 all of them."""
    sets = []
    for threshold in plan.thresholds:
        if threshold == 0:
            whole = everything(layout)
            sets.append(NeuronSet("threshold 0", "threshold", whole.layers, whole.n_neurons))
            continue
        neurons = clustering.representatives(threshold, plan.representatives, np.random.default_rng(plan.seed))
        sets.append(NeuronSet(f"threshold {threshold:g}", "threshold", layout.layers, len(neurons), neurons))
    return sets


def _summary(languages: pd.DataFrame, bench: Bench, treebanks: ParallelTreebanks) -> dict[str, Any]:
    rows = [row for row in languages.to_dict("records") if row["kind"] == "threshold"]
    most = min(row["threshold"] for row in rows)
    home, abroad = (
        [row for row in rows if row["threshold"] == most and (row["language"] == treebanks.source) is at_home]
        for at_home in (True, False)
    )
    summary = {
        "learnt from": treebanks.source,
        "languages": len(treebanks.corpora),
        "models": len({row["model"] for row in rows}),
        "training sentences": len(treebanks.train),
        "classes": bench.targets[TASK].n_classes,
        "mean accuracy at home": float(np.mean([row["score"] for row in home])),
        "mean accuracy abroad": float(np.mean([row["score"] for row in abroad])),
        "words with unseen labels": sum({row["language"]: row["unseen"] for row in abroad}.values()),
    }
    twin = float(np.mean([row["random_twin"] for row in abroad]))
    return summary if np.isnan(twin) else summary | {"mean accuracy of random twins abroad": twin}
