"""`redundancy`: what a model repeats in general, and what a task can do without."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.activations.auditing import audit_table
from residuum.activations.correlation import check_room, clustering_bytes
from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus
from residuum.engine import Workers
from residuum.errors import SettingError
from residuum.maths.layouts import NeuronLayout
from residuum.maths.metrics import SentenceSums
from residuum.maths.selection import MinimalSet
from residuum.probing.baselines import READING, baselines, read_task_data, twin_identity
from residuum.probing.clusters import ClusterSettings, general_redundancy, representatives
from residuum.probing.examples import Splits, activations_folder, held_memory, whole_store
from residuum.probing.orders import find_minimal_set, growth_table, neuron_order
from residuum.probing.probe_data import TASK, ProbeData
from residuum.probing.scores import (
    ALL,
    BASELINES,
    NeuronSet,
    ProbeGrid,
    all_layers,
    class_layer_table,
    class_table,
    doubts,
    kept_text,
    neuron_set,
    score_table,
    single_layers,
)
from residuum.probing.settings import ProbeTraining, RedundancySettings, arguments
from residuum.settings import command, setting_fields
from residuum.storage.notebook import progress_bar
from residuum.storage.results import Result, Run, finished_run, finished_step, scratch, write_run

Neurons = Int[np.ndarray, " neuron"]
ORACLE = "oracle"
ROUNDED = ("thresholds", "agreement")
OF_TASK = {"keep", "keep_layers", "by", "representatives"}
"""Settings that mean nothing without a task."""


@dataclass(frozen=True, eq=False)
class Redundancy(Result):
    """What `redundancy` measured. `frame` has one row for each clustering threshold, 0 being all neurons.

    Without a task the columns of scores, and the tables `reduction`, `tried`, `selected`, `classes` and `class_layers`,
    are not there.
    """

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """threshold, neurons, share, grouped, largest cluster; with a task also scores on dev and test."""
        return self.run.tables["thresholds"]

    @property
    def layers(self) -> pd.DataFrame:
        """Each layer's neurons, mean CKA with the others, and scores; a `sufficient` layer needs no other."""
        return self.run.tables["layers"]

    @property
    def survivors(self) -> pd.DataFrame:
        """Representatives per threshold and layer, by the rule that picks them."""
        return self.run.tables["survivors"]

    @property
    def windows(self) -> pd.DataFrame:
        """The share of clusters within 1, 2 or 3 neighbouring layers, or further, per threshold."""
        return self.run.tables["windows"]

    @property
    def similarity(self) -> pd.DataFrame:
        """Linear CKA of every pair of layers."""
        return self.run.tables["similarity"]

    @property
    def pictures(self) -> pd.DataFrame:
        """Activations of some neurons of the largest clusters over some sentences."""
        return self.run.tables["pictures"]

    @property
    def neurons(self) -> pd.DataFrame:
        """Each neuron's cluster at each threshold, by the chosen method and by others that were asked."""
        return self.run.tables["neurons"]

    @property
    def reduction(self) -> pd.DataFrame:
        """Oracle, lowest sufficient layer, clustered neurons and minimal sets side by side."""
        return self._of_task("reduction")

    @property
    def classes(self) -> pd.DataFrame:
        """Precision, recall, F1 and support of each class from each layer; absent where numbers are predicted."""
        return self._of_task("classes")

    @property
    def class_layers(self) -> pd.DataFrame:
        """Which layers are sufficient for each class; absent where numbers are predicted."""
        return self._of_task("class_layers")

    @property
    def selected(self) -> pd.DataFrame:
        """The neurons of the minimal sets, most important first."""
        return self._of_task("selected")

    def representatives(self, threshold: float, rule: str = "medoid", seed: int = 0) -> list[str]:
        """One neuron of each cluster at a measured threshold, as `layer:index`."""
        if threshold != 0 and f"cluster {threshold:g}" not in self.neurons:
            there = ", ".join(name.split()[1] for name in self.neurons if name.startswith("cluster "))
            raise SettingError(f"The threshold {threshold:g} was not measured; there are {there}.")
        return self.neurons["neuron"].iloc[representatives(self.neurons, threshold, rule, seed)].tolist()

    def text(self) -> str:
        """Neurons left at each threshold and, with a task, the sets that are sufficient, baselines and the answer."""
        names = [name for name in ("threshold", "neurons", "share", "metric", "score") if name in self.frame]
        lines = [self.frame.loc[:, names].to_string(index=False, float_format="{:.3f}".format)]
        if "reduction" in self.run.tables:
            columns = ["set", "neurons", "share", "score", "low", "high", "selectivity", "sufficient"]
            lines.append(self.reduction.loc[:, columns].to_string(index=False, float_format="{:.3f}".format))
            summary = self.run.summary
            known = ", ".join(f"{name} {value:.3f}" for name, value in summary["baselines"].items())
            lines += [f"baselines: {known}"] if known else []
            lines.append("\n".join([*summary["warnings"], summary["answer"], f"Next: {summary['next']}"]))
        return "\n\n".join(lines)

    def _of_task(self, table: str) -> pd.DataFrame:
        if table not in self.run.tables:
            if "reduction" in self.run.tables:
                raise SettingError(f"There is no table {table}: the task predicts numbers, which have no classes.")
            raise SettingError(f"There is no table {table}: no task was given. Run `redundancy` with a task.")
        return self.run.tables[table]


@command(RedundancySettings)
def redundancy(settings: RedundancySettings) -> Redundancy:
    """Find which neurons and layers of a model carry the same information, and which a task can do without.

    `model` is a store, one store for each of train, dev and test, or a model that reads the corpus `data`. A task, or
    labels, adds probes: on all neurons, each layer, the representatives of clusters, and the minimal sets that keep the
    share `keep` of the score of all neurons; a layer that alone keeps `keep_layers` is sufficient. Clusters come from
    the training part. `random_twin` adds the scores of the same architecture with random weights.
    """
    rounded = {name: tuple(float(f"{value:g}") for value in getattr(settings, name)) for name in ROUNDED}
    settings = replace(settings, **rounded, focus=float(f"{settings.focus:g}"))  # as tables say them
    out, memory = settings.out, held_memory(settings.max_memory)
    with activations_folder(settings.activations, out) as place, settings.opened_engine() as engine:
        store, splits, twin = _read(settings, place, engine)
        training = (settings.seed, engine, settings.penalty, settings.seeds)
        data = None if splits is None else ProbeData(splits, settings.probe_recipe(), memory, *training)
        config = _config(store, data, twin, settings)
        if out is not None and (run := finished_run(out, "redundancy", config, fresh=settings.fresh)):
            return Redundancy(run)
        check_room(store, memory, slow=settings.clusters != "average" or bool(settings.agreement))
        with scratch(out, config, fresh=settings.fresh) as folder:
            general = finished_step(
                folder, "general", lambda: _general(store, splits, settings, folder, engine, memory)
            )
            audit = audit_table([store]) if splits is None else splits.audit
            run = Run("redundancy", config, general.summary, {**general.tables, "audit": audit}, general.tensors)
            if data is not None:
                run = _with_task(run, data, twin, settings, folder)
        if out is not None:
            write_run(out, run)
    return Redundancy(run)


def _read(
    settings: RedundancySettings, place: Path, engine: Workers
) -> tuple[ActivationStore, Splits | None, Splits | None]:
    """The store whose neurons are clustered and, with a task, its examples and those of the random twin."""
    data = settings.data
    if settings.task is not None or not (data is None or isinstance(data, str | os.PathLike | Corpus)):
        splits, twin = read_task_data(settings, place, engine)
        return splits.train.store, splits, twin
    if settings.random_twin or settings.twin_stores is not None:
        raise SettingError("Probes are compared with the random twin, and without a task there are none.")
    if parts := [part for part in ("dev", "test") if getattr(settings, part) is not None]:
        raise SettingError(
            f"Probes are tested on the {' and '.join(parts)} part, and without a task there are none. Pass the task, "
            "or only the text whose neurons are clustered."
        )
    options = {name: getattr(settings, name) for name in READING if name not in ("dev", "test")}
    options |= {"layers": settings.layers, "split": settings.split, "workers": engine, "table": settings.table}
    return whole_store(settings.model, data, activations=place, **options), None, None


def _config(
    store: ActivationStore, data: ProbeData | None, twin: Splits | None, settings: RedundancySettings
) -> dict[str, Any]:
    chosen = settings.identity()
    if data is not None:
        return data.facts | {"random_twin": twin_identity(twin)} | chosen
    corpus = store.manifest.corpus["name"]
    facts = {"model": store.name, "layers": store.layers, "data": f"{corpus} {store.fingerprint}"}
    of_task = {setting.name for setting in setting_fields(ProbeTraining)} - {"seed"} | OF_TASK
    return facts | {key: value for key, value in chosen.items() if key not in of_task}


def _general(
    store: ActivationStore,
    splits: Splits | None,
    settings: RedundancySettings,
    folder: Path,
    engine: Workers,
    memory: int,
) -> Run:
    rows = None  # all, labelled or not; of a store that holds other parts too those of the training sentences
    if splits is not None and store.path == splits.test.store.path:
        rows = np.flatnonzero(np.isin(store.row_words[:, 0], np.unique(splits.train.sentences)))
    n_rows, n_neurons = store.n_rows if rows is None else len(rows), sum(store.widths)
    size = clustering_bytes(n_neurons, store.widths) / 1e9
    settings.say(f"Clustering {n_neurons:,} neurons over {n_rows:,} {store.unit}s: about {size:.1f} GB.")
    names = ("thresholds", "focus", "pictures", "agreement", "clusters", "seed")
    clusters = ClusterSettings(**{name: getattr(settings, name) for name in names})
    with progress_bar(total=n_rows, unit=f" {store.unit}s", shown=settings.progress, leave=False) as bar:
        options = {"workers": engine, "max_memory": memory, "folder": folder, "advance": bar.update}
        return general_redundancy(store, rows, clusters, **options)


def _with_task(run: Run, data: ProbeData, twin: Splits | None, settings: RedundancySettings, folder: Path) -> Run:
    """The run with the scores of its layers and thresholds, and with the minimal sets."""
    twin_scores: dict[str, float] = {}
    if twin is not None:
        twin_run = finished_step(folder, "twin", lambda: _twin_scores(data.of(twin), settings))
        twin_scores = dict(zip(twin_run.tables["twin"]["set"], twin_run.tables["twin"]["score"], strict=True))
    probes = finished_step(folder, "probes", lambda: _probed(data, run.tables, twin_scores, settings))
    minimal = finished_step(folder, "minimal", lambda: _minimal_sets(data, run.tables, probes, settings, folder))
    summary = {"task": data.splits.task.name, **run.summary, **probes.summary, **minimal.summary}
    return replace(run, summary=summary, tables={**run.tables, **probes.tables, **minimal.tables})


def _twin_scores(data: ProbeData, settings: RedundancySettings) -> Run:
    """The test scores of all neurons and each layer of the random twin."""
    settings.say("Probing the random twin.")
    scores = ProbeGrid(data, single_layers(data.splits.layout), [TASK]).train().on("test")
    rows = [(neurons.name, scores.mean(neurons.name)) for neurons in scores.sets]
    return Run("redundancy", {}, {}, {"twin": pd.DataFrame(rows, columns=pd.Index(["set", "score"]))})


def _probed(
    data: ProbeData, tables: Mapping[str, pd.DataFrame], twin: Mapping[str, float], settings: RedundancySettings
) -> Run:
    """Probe all neurons, each layer, and the representatives at each threshold; add the scores to the tables.

    A set is chosen on dev and reported on test. Random representatives are drawn `seeds` times.
    """
    layers = single_layers(data.splits.layout)
    cuts = [_representative_set(data, tables["neurons"], threshold, settings) for threshold in settings.cuts]
    grid = ProbeGrid(data, [*layers, *cuts])
    settings.say(f"Probing: {len(grid.probes)} probes on {len(data.splits.train):,} examples.")
    trained, known = grid.train(), baselines(data)
    dev, test = trained.on("dev"), trained.on("test")
    scores = score_table(dev, test, twin, settings.keep, known)
    of_layers = [dev.loss(neurons.name, settings.keep_layers).sufficient for neurons in layers[:-1]]
    scores.loc[scores["kind"] == "layer", "sufficient"] = of_layers
    learnt = trained.on("train")
    scores["train"] = [learnt.mean(name) for name in scores["features"]]
    chosen = [
        t for t, neurons in zip(settings.cuts, cuts, strict=True) if dev.loss(neurons.name, settings.keep).sufficient
    ]
    result = {
        "layers": _with_scores(tables["layers"], scores.loc[scores["kind"] == "layer"]),
        "thresholds": _with_scores(tables["thresholds"], scores.loc[scores["kind"].isin(["all", "threshold"])]),
    }
    if not data.splits.regression:
        result["classes"] = class_table(layers, dev, test, settings.keep_layers)
        result["class_layers"] = class_layer_table(result["classes"])
    oracle = scores.loc[scores["features"] == ALL].to_dict("records")[0]
    summary = {
        "metric": data.metric,
        "oracle": oracle["score"],
        "required on dev": settings.keep * oracle["dev"],
        "required of layers on dev": settings.keep_layers * oracle["dev"],
        "threshold": max(chosen, default=None),
        "baselines": known,
        "warnings": doubts(data, oracle, known, settings.keep),
    }
    return Run("redundancy", {}, summary, result, {"oracle": dev.runs(ALL)[0].sums.sums})


def _representative_set(
    data: ProbeData, neurons: pd.DataFrame, threshold: float, settings: RedundancySettings
) -> NeuronSet:
    """One neuron per cluster; at random, as many draws as there are seeds."""
    n_draws = settings.seeds if settings.representatives == "random" else 1
    seeds = range(settings.seed, settings.seed + n_draws)
    draws = [representatives(neurons, threshold, settings.representatives, seed) for seed in seeds]
    return neuron_set(f"threshold {threshold:g}", "threshold", data.splits.layout, *draws)


def _with_scores(table: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """A table with the scores of its rows: all neurons or the first layer first."""
    order = scores.sort_values("kind", kind="stable")  # all neurons before thresholds
    columns = order[_score_columns(scores)].reset_index(drop=True)
    return pd.concat([table, columns], axis=1)


def _score_columns(scores: pd.DataFrame) -> list[str]:
    names = ["train", "dev", "metric", "score", "low", "high", "sd", "seeds", "control", "selectivity", *BASELINES]
    return [name for name in (*names, "random_twin", "sufficient") if name in scores]


def _minimal_sets(
    data: ProbeData, tables: Mapping[str, pd.DataFrame], probes: Run, settings: RedundancySettings, folder: Path
) -> Run:
    """Search the smallest sufficient head of the order of all neurons, and of the clustered ones (Dalvi et al. 2020).

    Table 8 of the paper takes all neurons; after clustering it is CCFS, table 9.
    """
    layout, threshold = data.splits.layout, probes.summary["threshold"]
    heads: dict[str, Neurons | None] = {"minimal set": None}
    if threshold is not None:
        heads["minimal set after clustering"] = _representative_set(data, tables["neurons"], threshold, settings).picked
    oracle, found = SentenceSums(data.metric, probes.tensors["oracle"]), {}
    for name, within in heads.items():
        settings.say(f"Searching the {name}.")
        order = neuron_order(data, settings.by, within)
        found[name] = find_minimal_set(
            data,
            lambda fold, within=within: neuron_order(fold, settings.by, within),
            order,
            settings.keep,
            oracle=oracle,
            known=folder / f"{name}.json",
        )
    sets = [neuron_set(name, "minimal", layout, minimal.neurons, ordered=True) for name, minimal in found.items()]
    trained = ProbeGrid(data, [all_layers(layout), *sets]).train()
    scores = score_table(trained.on("dev"), trained.on("test"), {}, settings.keep, probes.summary["baselines"])
    scores["sufficient"] = [True, *(minimal.sufficient for minimal in found.values())]
    tables = _minimal_tables(layout, probes, scores, found)
    rows = tables["reduction"].to_dict("records")
    sufficient = [row for row in rows if row["set"] in found and row["sufficient"] and row["share"] < 1]
    answer = "No smaller set of neurons is sufficient."
    if sufficient:
        smallest = min(sufficient, key=lambda row: row["neurons"])
        answer = f"{smallest['set'].capitalize()}: {kept_text(smallest, rows[0], settings.keep)}"
    summary = {
        **{name: len(minimal.neurons) for name, minimal in found.items()},
        "answer": answer,
        "next": f"residuum transfer {arguments(settings.model, settings.data, store=False)} --task "
        f"{data.splits.task.name}{settings.as_options} --out OUT",
    }
    return Run("redundancy", {}, summary, tables)


def _minimal_tables(
    layout: NeuronLayout, probes: Run, minimal: pd.DataFrame, found: Mapping[str, MinimalSet]
) -> dict[str, pd.DataFrame]:
    """`reduction`: all neurons, lowest sufficient layer, clustered neurons and minimal sets side by side.

    `tried`: every size of a minimal set that was tried, and its score on held-out data. `selected`: the neurons of each
    minimal set, most important first.
    """
    layers, thresholds = probes.tables["layers"], probes.tables["thresholds"]
    parts = [thresholds.iloc[[0]].assign(set=ORACLE)]
    sufficient = layers.loc[layers["sufficient"].astype(bool)]
    if not sufficient.empty:
        parts.append(sufficient.iloc[[0]].assign(set=f"layer {sufficient['layer'].iloc[0]} alone"))
    if (chosen := probes.summary["threshold"]) is not None:
        row = thresholds.loc[thresholds["threshold"] == chosen]
        parts.append(row.assign(set=f"clustered at {chosen:g}"))
    parts.append(minimal.iloc[1:].assign(set=minimal["features"].iloc[1:]))
    reduction = pd.concat(parts, ignore_index=True)
    columns = ["set", "neurons", *_score_columns(reduction)]
    reduction = reduction.loc[:, columns].astype({"neurons": int, "sufficient": bool})
    reduction.insert(2, "share", reduction["neurons"] / layout.n_neurons)
    tried, selected, of_neuron = [], [], np.array(layout.layers)[layout.positions]
    for name, minimal_set in found.items():
        tried.append(growth_table(minimal_set).assign(set=name))
        ids = layout.format(minimal_set.neurons.tolist())
        table = pd.DataFrame({"set": name, "rank": np.arange(1, len(ids) + 1), "neuron": ids})
        selected.append(table.assign(layer=of_neuron[minimal_set.neurons]))
    return {
        "reduction": reduction,
        "tried": pd.concat(tried, ignore_index=True).loc[:, ["set", "neurons", "dev", "required"]],
        "selected": pd.concat(selected, ignore_index=True),
    }
