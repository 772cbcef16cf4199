"""`diff`: a base model beside what was made of it, over several tasks; each model reads each text once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from residuum.activations.correlation import check_room, clustering_bytes
from residuum.activations.store import ActivationStore
from residuum.comparison.compare import ATTENTION, chosen_measures, compare
from residuum.engine import Engine, Workers, run_tasks, worker_count
from residuum.errors import SettingError
from residuum.probing.clusters import ClusterSettings, general_redundancy
from residuum.probing.diff_reading import (
    LabelledText,
    NamedSource,
    ReadModel,
    named_sources,
    read_models,
    read_texts,
)
from residuum.probing.diff_tables import audit, model_tables, probe_tasks, task_tables
from residuum.probing.examples import activations_folder, held_memory
from residuum.probing.scores import rival_warnings
from residuum.probing.settings import MEASURES, DiffSettings
from residuum.settings import command
from residuum.storage.notebook import progress_bar
from residuum.storage.results import Result, Run, finished_run, finished_step, scratch, write_run

COPIES = 2
"""Copies of a model's activations that a step holds: as features, and those of the neurons that some probes need."""
Say = Callable[[str], object]


@dataclass(frozen=True, eq=False)
class Difference(Result):
    """The result of `diff`. `frame` has one row per task, model and layer: its score, the base's, and the change."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """task, model, features, layer, base_layer, depth, score, base, change, low, high."""
        return self.run.tables["change"]

    @property
    def scores(self) -> pd.DataFrame:
        """The probing curves of all models: score, interval, control task and selectivity of every layer."""
        return self.run.tables["scores"]

    @property
    def selection(self) -> pd.DataFrame:
        """Accuracy with only the top or bottom neurons, before and after retraining."""
        return self.run.tables["selection"]

    @property
    def minimal(self) -> pd.DataFrame:
        """All neurons beside the minimal set, for every task and model."""
        return self.run.tables["minimal"]

    @property
    def spread(self) -> pd.DataFrame:
        """Salient neurons per layer."""
        return self.run.tables["spread"]

    @property
    def properties(self) -> pd.DataFrame:
        """The most salient neurons of each class of each task."""
        return self.run.tables["properties"]

    @property
    def similarity(self) -> pd.DataFrame:
        """Every pair of layers of all models, as `compare` measures it."""
        return self.run.tables["similarity"]

    @property
    def likeness(self) -> pd.DataFrame:
        """Similarity of each layer to the base at the same relative depth, and the most similar layer of the base."""
        return self.run.tables["likeness"]

    @property
    def curves(self) -> pd.DataFrame:
        """Localization, layer average and the other curves of `compare`."""
        return self.run.tables["curves"]

    @property
    def survivors(self) -> pd.DataFrame:
        """Neurons left per layer and model at each clustering threshold."""
        return self.run.tables["survivors"]

    def text(self) -> str:
        """Per task and model: all layers, the layer that changed most, and the minimal set; then the answer."""
        sizes = {(row["task"], row["model"], row["set"]): row["neurons"] for row in self.minimal.to_dict("records")}
        baselines: dict[str, float] = {}
        for row in self.run.tables["baselines"].to_dict("records"):
            baselines[row["task"]] = max(row["score"], baselines.get(row["task"], 0.0))
        rows = self.frame.to_dict("records")
        lines = []
        for whole in (row for row in rows if pd.isna(row["layer"])):
            task, model = key = (whole["task"], whole["model"])
            layers = [row for row in rows if (row["task"], row["model"]) == key and not pd.isna(row["layer"])]
            most = max(layers, key=lambda row: abs(row["change"]))
            lines.append(
                f"{task}, {model}: all layers {whole['score']:.3f} ({whole['change']:+.3f} "
                f"[{whole['low']:+.3f}, {whole['high']:+.3f}], baseline {baselines[task]:.3f}), most at layer "
                f"{most['layer']} ({most['change']:+.3f}), minimal set {sizes[*key, 'minimal']:,} of "
                f"{sizes[*key, 'all']:,} neurons"
            )
        return "\n".join(
            [*lines, *self.run.summary.get("warnings", []), self.answer, f"Next: {self.run.summary['next']}"]
        )

    @property
    def answer(self) -> str:
        """Which models lost or gained which tasks, in a sentence."""
        return self.run.summary["answer"]


@command(DiffSettings)
def diff(settings: DiffSettings) -> Difference:
    """Compare a base model, the first of `models`, with what was made of it: fine-tuned, pruned, distilled.

    `models` are models, their folders or hub names (`NAME=MODEL` gives a name, as does a mapping), or stores over
    `corpus`. `tasks` are names of labels of the corpus; `chunk=PATH` takes a task from another one. Every model reads
    every text once, for probes, minimal sets, clusters and similarities alike; attention is read where `measures`
    need it. Layers of models of different depths are compared at equal relative depth. `limit` applies to each part of
    a corpus. Similarities and clusters are those of the text of the first task.
    """
    named, out = named_sources(settings.models), settings.out
    reading = {name: getattr(settings, name) for name in ("dev", "test", "limit", "seed")}
    texts = read_texts(settings.corpus, settings.tasks, **reading, **settings.table)
    measures, left_out = possible_measures(settings.measures, named, texts[0])
    clusters = ClusterSettings(settings.thresholds, pictures=0, seed=settings.seed)
    names = ("layers", "pooling", "max_loss", "device", "fresh", "progress", "max_memory")
    options = {name: getattr(settings, name) for name in names}
    attention = bool(set(measures) & set(ATTENTION))
    with activations_folder(settings.activations, out) as folder, settings.opened_engine() as engine:
        options |= {"workers": engine, "say": settings.say}
        models = read_models(named, texts, folder, attention=attention, **options)
        # Steps may run in other processes, which need neither the models nor the corpus.
        settings = replace(settings, measures=measures, models=(), corpus=(), tasks=(), workers=None)
        config = _config(models, texts, settings)
        if out is not None and (run := finished_run(out, "diff", config, fresh=settings.fresh)):
            return Difference(run)
        with scratch(out, config, fresh=settings.fresh) as steps:
            alone = StepResources(engine, held_memory(settings.max_memory), settings.progress, settings.say)
            done = _run_steps(_steps(models, texts, settings, clusters, steps), models, alone)
            run = Run("diff", config, *_joined(done, models, texts, settings, left_out))
        if out is not None:
            write_run(out, run)
    return Difference(run)


def possible_measures(
    measures: str | Sequence[str], sources: Sequence[NamedSource], text: LabelledText
) -> tuple[list[str], str]:
    """The measures, and why those of attention are left out; it is an error where they were chosen explicitly."""
    chosen = chosen_measures(measures)
    without = [source.name for source in sources if not source.has_attention]
    if not set(chosen) & set(ATTENTION) or (text.unit == "word" and not without):
        return chosen, ""
    reason = f"{text.tasks[0].name} is about sentences, and attention is read word by word"
    if text.unit == "word":
        reason = f"{without[0]} gives none (extract it with --attention, or load it with attention=True)"
    if chosen != list(MEASURES):
        raise SettingError(f"There is no attention to compare: {reason}. Choose measures without attention.")
    return [name for name in chosen if name not in ATTENTION], f"attention: {reason}"


def _config(models: Sequence[ReadModel], texts: Sequence[LabelledText], settings: DiffSettings) -> dict[str, Any]:
    return {
        "models": {model.name: [store.fingerprint for store in model.stores] for model in models},
        "layers": {model.name: model.stores[0].layers for model in models},
        "texts": {f"{i} {text.corpus.name}": text.corpus.fingerprint for i, text in enumerate(texts, 1)},
        "tasks": {task.name: text.corpus.name for text in texts for task in text.tasks},
        "sentences": [{part: len(numbers) for part, numbers in text.parts.items()} for text in texts],
        **settings.identity(),
    }


@dataclass(frozen=True, eq=False)
class StepResources:
    """What a step may use: workers, memory, the terminal; and whether other steps run beside it."""

    workers: Workers
    max_memory: int
    progress: bool
    say: Say
    beside_others: bool = False


DiffStep = Callable[[StepResources], Run]


def _steps(
    models: Sequence[ReadModel],
    texts: Sequence[LabelledText],
    settings: DiffSettings,
    clusters: ClusterSettings,
    folder: Path,
) -> dict[str, DiffStep]:
    """What is to be done, the longest first; a step that was finished before is only read from `folder`."""
    steps: dict[str, DiffStep] = {"similarity": partial(_compared, folder, [m.stores[0] for m in models], settings)}
    for m, model in enumerate(models):
        for t, (store, text) in enumerate(zip(model.stores, texts, strict=True)):
            name = f"probes-{m}-{t}"
            steps[name] = partial(_probed, folder, name, store, text, settings)
    for m, model in enumerate(models):
        name = f"clusters-{m}"
        steps[name] = partial(_clustered, folder, name, model.stores[0], clusters)
    return steps


def _run_steps(steps: dict[str, DiffStep], models: Sequence[ReadModel], alone: StepResources) -> dict[str, Run]:
    """Run all steps. No step needs another, so several run at a time unless workers were asked for.

    Where there are more cores than readings, the similarities have all of them to themselves first.
    """
    for model in models:
        check_room(model.stores[0], alone.max_memory)
    readings = [store for model in models for store in model.stores]
    at_once = 1 if alone.workers is not None else steps_at_once(readings, alone.max_memory)
    if at_once == 1:
        return {name: step(alone) for name, step in steps.items()}
    done = {}
    if worker_count(None) > len(readings):
        done["similarity"] = steps.pop("similarity")(alone)
    alone.say(f"{len(steps)} steps, {at_once} at a time: probes, clusters" + ("." if done else ", similarities."))
    beside = StepResources(None, alone.max_memory // at_once, progress=False, say=_silent, beside_others=True)
    runs = run_tasks(_run, [(step, beside) for step in steps.values()], Engine(at_once))
    return done | dict(zip(steps, runs, strict=True))


def steps_at_once(readings: Sequence[ActivationStore], max_memory: int) -> int:
    """How many steps run at a time: as many as there are cores, and memory for the largest of each kind.

    The steps of small probes are too short to gain from threads, so that each is given one.
    """
    features = max(COPIES * 4 * store.n_rows * sum(store.widths) for store in readings)
    tree = max(clustering_bytes(sum(store.widths), store.widths) for store in readings)
    return max(1, min(worker_count(None), len(readings), max_memory // max(features, tree)))


def _silent(line: str) -> None:
    """For steps beside others, whose lines would mix."""


def _run(step: DiffStep, resources: StepResources) -> Run:
    return step(resources)


def _compared(folder: Path, stores: Sequence[ActivationStore], settings: DiffSettings, resources: StepResources) -> Run:
    """The similarities of all layers of all models."""
    resources.say(f"Similarity of all layers by {', '.join(settings.measures)}.")
    options: dict[str, Any] = {name: getattr(settings, name) for name in ("measures", "groups", "seed", "products")}
    options |= {"max_memory": resources.max_memory, "progress": resources.progress}
    workers: Any = 1 if resources.beside_others else resources.workers
    return compare(stores, out=folder / "similarity", workers=workers, **options).run


def _probed(
    folder: Path,
    name: str,
    store: ActivationStore,
    text: LabelledText,
    settings: DiffSettings,
    resources: StepResources,
) -> Run:
    """The probes of one model on one text."""
    options = (resources.max_memory, resources.workers, resources.say)
    return finished_step(folder, name, lambda: probe_tasks(store, text, settings, *options))


def _clustered(
    folder: Path, name: str, store: ActivationStore, settings: ClusterSettings, resources: StepResources
) -> Run:
    """How many neurons of a model are left at each threshold."""

    def compute() -> Run:
        resources.say(f"{store.name}: clusters of {sum(store.widths):,} neurons.")
        with progress_bar(total=store.n_rows, unit=" words", shown=resources.progress, leave=False) as bar:
            run = general_redundancy(store, None, settings, workers=resources.workers, advance=bar.update)
        return Run("diff", {}, run.summary, {table: run.tables[table] for table in ("survivors", "thresholds")})

    return finished_step(folder, name, compute)


def _joined(
    done: Mapping[str, Run],
    models: Sequence[ReadModel],
    texts: Sequence[LabelledText],
    settings: DiffSettings,
    left_out: str,
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """The summary and the tables of all steps."""
    similarity, clustered = done["similarity"], [done[f"clusters-{m}"] for m in range(len(models))]
    probed = [[done[f"probes-{m}-{t}"] for t in range(len(texts))] for m in range(len(models))]
    tables = {
        **task_tables(probed, models, texts, settings.seed),
        **model_tables(similarity, clustered, models),
        "audit": audit(models),
    }
    whole, oracles = (t.loc[t["layer"].isna()].to_dict("records") for t in (tables["change"], tables["scores"]))
    known, warnings = tables["baselines"].to_dict("records"), []
    for row in oracles:
        rivals = {f"{rival['baseline']} baseline": rival["score"] for rival in known if rival["task"] == row["task"]}
        warnings += rival_warnings(row, rivals, f" of {row['model']} for {row['task']}")
    summary = {
        "base": models[0].name,
        "models": len(models),
        "tasks": sum(len(text.tasks) for text in texts),
        "words": sum(text.corpus.n_words for text in texts),
        "groups": similarity.summary["groups"],
        "change of all layers": {f"{row['task']}, {row['model']}": row["change"] for row in whole},
        **({"left out": left_out} if left_out else {}),
        "notes": [note for text in texts for note in text.notes],
        "warnings": warnings,
        "answer": _answer(tables["change"], settings),
        "next": "residuum ablate MODEL CORPUS --task TASK --out OUT (does the model use what it encodes?)",
    }
    return summary, tables


def _answer(change: pd.DataFrame, settings: DiffSettings) -> str:
    """Which models lost or gained which tasks, by the intervals of all layers together."""
    whole = change.loc[change["layer"].isna()]
    changed = whole.loc[(whole["low"] > 0) | (whole["high"] < 0)].to_dict("records")
    beside = f"{len(whole)} comparisons, {settings.probes_in_words}, 95 % intervals"
    if not changed:
        return f"No change of all layers together is larger than chance ({beside})."
    listed = ", ".join(f"{row['task']} in {row['model']} ({row['change']:+.3f})" for row in changed)
    return f"Changed beyond chance ({beside}): {listed}."
