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
from residuum.activations.correlation import check_room
from residuum.activations.store import ActivationStore
from residuum.comparison import compare
from residuum.differences.changes import change_table, likeness_table, with_depth
from residuum.differences.models import ReadModel
from residuum.differences.probing import probe_tasks, probed_at_once
from residuum.differences.settings import Settings
from residuum.differences.texts import Text
from residuum.engine import HERE, Engine, Workers, run_tasks
from residuum.redundancies.general import general_redundancy
from residuum.redundancies.settings import Settings as ClusterSettings
from residuum.results import Run, finished_step

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
        similarity = self._similarity()
        clustered = [self._clustered(number) for number in range(len(self.models))]
        probed = self._probed()
        tables = self._task_tables(probed) | self._model_tables(similarity, clustered) | {"audit": self._audit()}
        return self._summary(tables, similarity, left_out), tables

    def _audit(self) -> pd.DataFrame:
        readings = [(store, model.name) for model in self.models for store in model.stores]
        return audit_table([store for store, _ in readings], [name for _, name in readings])

    def _similarity(self) -> Run:
        self.say(f"Similarity of all layers by {', '.join(self.settings.measures)}.")
        return compare(
            [model.stores[0] for model in self.models],
            measures=self.settings.measures,
            groups=self.settings.groups,
            seed=self.settings.seed,
            out=self.steps / "similarity",
            workers=self.workers,
            progress=self.progress,
        ).run

    def _clustered(self, number: int) -> Run:
        model = self.models[number]
        store = model.stores[0]

        def compute() -> Run:
            check_room(store, self.max_memory)
            self.say(f"{model.name}: clusters of {sum(store.widths):,} neurons.")
            bar = tqdm(total=store.n_rows, unit=" words", disable=None if self.progress else True, leave=False)
            with bar:
                run = general_redundancy(store, None, self.clusters, workers=self.workers, advance=bar.update)
            kept = {name: run.tables[name] for name in ("survivors", "thresholds")}
            return Run("diff", {}, run.summary, kept)

        return finished_step(self.steps, f"clusters-{number}", compute)

    def _probed(self) -> list[list[Run]]:
        """The probes of every model and text: some at a time, each by one thread, unless workers were asked for."""
        stores = [store for model in self.models for store in model.stores]
        sizes = [store.n_rows * sum(store.widths) for store in stores]
        at_once = probed_at_once(sizes, self.max_memory) if self.workers is None else 1
        names = [f"probes-{m}-{t}" for m in range(len(self.models)) for t in range(len(self.texts))]
        texts = self.texts * len(self.models)
        if at_once == 1:
            task = partial(_probe_step, say=self.say, workers=self.workers)
        else:
            self.say(f"Probes of {len(stores)} readings, {at_once} at a time.")
            task = _probe_step
        room = self.max_memory // at_once
        arguments = [
            (self.steps, name, store, text, self.settings, room)
            for name, store, text in zip(names, stores, texts, strict=True)
        ]
        runs = run_tasks(task, arguments, HERE if at_once == 1 else Engine(at_once))
        return [[next(runs) for _ in self.texts] for _ in self.models]

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


def _probe_step(
    steps: Path,
    name: str,
    store: ActivationStore,
    text: Text,
    settings: Settings,
    max_memory: int,
    *,
    say: Say = lambda line: None,
    workers: Workers = None,
) -> Run:
    return finished_step(steps, name, lambda: probe_tasks(store, text, settings, max_memory, workers, say))
