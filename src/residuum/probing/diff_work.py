"""The steps of a `diff` once all models have read: similarities, clusters and probes, then the tables of all models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from residuum.activations.auditing import audit_table
from residuum.activations.correlation import check_room, clustering_bytes
from residuum.activations.store import ActivationStore
from residuum.comparison import compare
from residuum.engine import Engine, Workers, run_tasks, worker_count
from residuum.probing.diff_changes import change_table, likeness_table, with_depth
from residuum.probing.diff_loads import clustering_load, probing_load, similarity_load
from residuum.probing.diff_models import ReadModel
from residuum.probing.diff_probing import probe_tasks, steps_at_once
from residuum.probing.diff_settings import Settings
from residuum.probing.diff_texts import Text
from residuum.probing.redundancy_general import general_redundancy
from residuum.probing.redundancy_settings import Settings as ClusterSettings
from residuum.storage.results import Run, finished_step

Say = Callable[[str], object]


@dataclass(frozen=True, eq=False)
class Work:
    """The steps of a run; each one that is finished is kept in `steps` until the run is whole."""

    models: list[ReadModel]
    texts: list[Text]
    settings: Settings
    clusters: ClusterSettings
    steps: Path
    workers: Workers
    max_memory: int
    progress: bool
    say: Say

    def measured(self, left_out: str) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        """The summary and the tables."""
        done = self._done()
        similarity, clustered = done["similarity"], [done[f"clusters-{m}"] for m in range(len(self.models))]
        probed = [[done[f"probes-{m}-{t}"] for t in range(len(self.texts))] for m in range(len(self.models))]
        tables = self._task_tables(probed) | self._model_tables(similarity, clustered) | {"audit": self._audit()}
        return self._summary(tables, similarity, left_out), tables

    def _audit(self) -> pd.DataFrame:
        readings = [(store, model.name) for model in self.models for store in model.stores]
        return audit_table([store for store, _ in readings], [name for _, name in readings])

    def _done(self) -> dict[str, Run]:
        """All steps by their names. None needs another, so that some run at a time unless workers were asked for.

        Where there are more cores than readings, the similarities have all of them to themselves first.
        """
        readings = [store for model in self.models for store in model.stores]
        at_once = self._at_once(readings)
        alone = _Manner(self.workers, self.max_memory, self.progress, self.say)
        if at_once == 1:
            return {name: step(alone) for name, step in self._steps().items()}
        steps, done = self._steps(), {}
        if worker_count(None) > len(readings):
            done["similarity"] = steps.pop("similarity")(alone)
        self.say(f"{len(steps)} steps, {at_once} at a time: probes, clusters" + ("." if done else ", similarities."))
        beside = _Manner(None, self.max_memory // at_once, progress=False, say=_silent, beside=True)
        found = run_tasks(_run, [(step, beside) for step in steps.values()], Engine(at_once))
        return done | dict(zip(steps, found, strict=True))

    def _at_once(self, readings: list[ActivationStore]) -> int:
        """How many steps run at a time; neurons that are too many to be clustered are refused before any begins."""
        clustered = [model.stores[0] for model in self.models]
        for store in clustered:
            check_room(store, self.max_memory)
        if self.workers is not None:
            return 1
        trees = [clustering_bytes(sum(store.widths), store.widths) for store in clustered]
        return steps_at_once([_size(store) for store in readings], self.max_memory, max(trees))

    def _steps(self) -> dict[str, Callable[[_Manner], Run]]:
        """What is to be done, the longest first; a step that was finished before is only read."""
        firsts = [model.stores[0] for model in self.models]
        steps = {
            "similarity": (
                similarity_load(firsts, self.settings),
                partial(_compared, self.steps, firsts, self.settings),
            )
        }
        for m, model in enumerate(self.models):
            for t, (store, text) in enumerate(zip(model.stores, self.texts, strict=True)):
                name = f"probes-{m}-{t}"
                work = partial(_probed, self.steps, name, store, text, self.settings)
                steps[name] = (probing_load(store, text, self.settings), work)
            name = f"clusters-{m}"
            steps[name] = (clustering_load(firsts[m]), partial(_clustered, self.steps, name, firsts[m], self.clusters))
        ordered = sorted(steps.items(), key=lambda step: step[1][0], reverse=True)
        return {name: work for name, (_, work) in ordered}

    def _task_tables(self, probed: list[list[Run]]) -> dict[str, pd.DataFrame]:
        """The tables of all models and tasks, and the change from the base."""
        base, *others = self.models
        change = [
            change_table(task.name, base, other, probed[0][t], probed[m][t], self.settings.seed)
            for t, text in enumerate(self.texts)
            for task in text.tasks
            for m, other in enumerate(others, 1)
        ]
        tables = {"change": pd.concat(change, ignore_index=True)}
        for name in ("scores", "selection", "minimal", "spread", "properties"):
            parts = [
                run.tables[name].assign(model=model.name)
                for model, runs in zip(self.models, probed, strict=True)
                for run in runs
            ]
            tables[name] = self._of_models(pd.concat(parts, ignore_index=True))
        tables["baselines"] = pd.concat([run.tables["baselines"] for run in probed[0]], ignore_index=True)
        return tables

    def _of_models(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows of one task stand together; the model comes second, and the depth of a layer after it."""
        names = [task.name for text in self.texts for task in text.tasks]
        order = table["task"].map(names.index).argsort(kind="stable")
        columns = ["task", "model", *(name for name in table if name not in ("task", "model"))]
        sorted_table = table[columns].iloc[order].reset_index(drop=True)
        return with_depth(sorted_table, self.models) if "layer" in columns else sorted_table

    def _model_tables(self, similarity: Run, clustered: list[Run]) -> dict[str, pd.DataFrame]:
        """The tables that need no labels."""
        base, *others = self.models
        pairs = with_depth(with_depth(similarity.tables["similarity"], self.models, "_a"), self.models, "_b")
        tables = {
            "similarity": pairs,
            "likeness": likeness_table(pairs, base, others),
            "curves": with_depth(similarity.tables["curves"], self.models),
            "models": self._model_table(similarity.tables["layers"]),
        }
        for name in ("survivors", "thresholds"):
            parts = [run.tables[name].assign(model=m.name) for m, run in zip(self.models, clustered, strict=True)]
            table = pd.concat(parts, ignore_index=True)
            table.insert(0, "model", table.pop("model"))
            tables[name] = with_depth(table, self.models) if "layer" in table else table
        return tables

    def _model_table(self, layers: pd.DataFrame) -> pd.DataFrame:
        rows = [
            {
                "model": model.name,
                "blocks": model.n_layers,
                "layers": len(model.stores[0].layers),
                "neurons": sum(model.stores[0].widths),
                "constant": layers.loc[layers["model"] == model.name, "constant"].sum(),
                "fingerprint": model.stores[0].manifest.model["fingerprint"],
            }
            for model in self.models
        ]
        return pd.DataFrame(rows)

    def _summary(self, tables: dict[str, pd.DataFrame], similarity: Run, left_out: str) -> dict[str, Any]:
        whole = tables["change"].loc[tables["change"]["layer"].isna()]
        changes = {f"{row['task']}, {row['model']}": row["change"] for row in whole.to_dict("records")}
        return {
            "base": self.models[0].name,
            "models": len(self.models),
            "tasks": sum(len(text.tasks) for text in self.texts),
            "words": sum(text.corpus.n_words for text in self.texts),
            "groups": similarity.summary["groups"],
            "change of all layers": changes,
            **({"left out": left_out} if left_out else {}),
            "notes": [note for text in self.texts for note in text.notes],
        }


@dataclass(frozen=True, eq=False)
class _Manner:
    """How a step is done: by whom, in how much memory, what is shown of it, and whether others run beside it."""

    workers: Workers
    max_memory: int
    progress: bool
    say: Say
    beside: bool = False


def _size(store: ActivationStore) -> int:
    return store.n_rows * sum(store.widths)


def _silent(line: str) -> None:
    """For steps beside others, whose lines would mix."""


def _run(step: Callable[[_Manner], Run], manner: _Manner) -> Run:
    return step(manner)


def _probed(steps: Path, name: str, store: ActivationStore, text: Text, settings: Settings, manner: _Manner) -> Run:
    """The probes of a reading."""
    return finished_step(
        steps, name, lambda: probe_tasks(store, text, settings, manner.max_memory, manner.workers, manner.say)
    )


def _compared(steps: Path, stores: list[ActivationStore], settings: Settings, manner: _Manner) -> Run:
    """The similarities of all layers of all models."""
    manner.say(f"Similarity of all layers by {', '.join(settings.measures)}.")
    return compare(
        stores,
        measures=settings.measures,
        groups=settings.groups,
        seed=settings.seed,
        products=settings.products,
        out=steps / "similarity",
        workers=1 if manner.beside else manner.workers,
        max_memory=manner.max_memory,
        progress=manner.progress,
    ).run


def _clustered(steps: Path, name: str, store: ActivationStore, settings: ClusterSettings, manner: _Manner) -> Run:
    """How many neurons of a model are left at each threshold."""

    def compute() -> Run:
        manner.say(f"{store.name}: clusters of {sum(store.widths):,} neurons.")
        with tqdm(total=store.n_rows, unit=" words", disable=None if manner.progress else True, leave=False) as bar:
            run = general_redundancy(store, None, settings, workers=manner.workers, advance=bar.update)
        return Run("diff", {}, run.summary, {table: run.tables[table] for table in ("survivors", "thresholds")})

    return finished_step(steps, name, compute)
