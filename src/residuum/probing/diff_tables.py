"""What `diff` measures in one model, and the tables of all models: the change from the base at equal relative depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from residuum.activations.auditing import audit_table
from residuum.activations.store import ActivationStore
from residuum.engine import Workers
from residuum.maths.metrics import SentenceSums, combined_interval
from residuum.maths.profiles import depth_weights
from residuum.maths.selection import MinimalSet, top_and_bottom
from residuum.probing.baselines import baselines
from residuum.probing.diff_reading import LabelledText, ReadModel
from residuum.probing.examples import Splits
from residuum.probing.orders import class_neuron_table, find_minimal_set, layer_spread_table, neuron_orders
from residuum.probing.probe_data import ProbeData, same_examples
from residuum.probing.rank import selection_table
from residuum.probing.scores import (
    ALL,
    PartScores,
    ProbeGrid,
    all_layers,
    neuron_set,
    score_columns,
    score_table,
    single_layers,
    train_grids,
)
from residuum.probing.settings import DiffSettings
from residuum.storage.results import Run


def probe_tasks(
    store: ActivationStore,
    text: LabelledText,
    settings: DiffSettings,
    max_memory: int,
    workers: Workers,
    say: Callable[[str], object],
) -> Run:
    """All tasks of a text in one model: its tables have a column `task`, its tensors are named after tasks.

    `sums TASK`: run × layer (and last, all of them together) × sentence × the sums that the task's metric needs;
    `sentences TASK`: the numbers of these sentences.
    """
    tables: dict[str, list[pd.DataFrame]] = {}
    tensors: dict[str, np.ndarray] = {}
    training = (settings.seed, workers, settings.penalty, settings.seeds)
    groups: list[list[Splits]] = []  # tasks with labels of the same words: their probes train in one pass
    for splits in (text.splits(store, task) for task in text.tasks):
        fitting = next((group for group in groups if same_examples(group[0], splits)), None)
        if fitting is None:
            groups.append([splits])
        else:
            fitting.append(splits)
    for together in groups:
        first = ProbeData(together[0], settings.probe_recipe(), max_memory, *training)
        layers = single_layers(first.splits.layout)
        grids = [ProbeGrid(replace(first, splits=splits), layers) for splits in together]
        names = ", ".join(splits.task.name for splits in together)
        say(f"{store.name}, {names}: {sum(len(grid.probes) for grid in grids)} probes of layers.")
        for grid in train_grids(grids):
            dev, test, task = grid.on("dev"), grid.on("test"), grid.grid.data.splits.task.name
            say(f"{store.name}, {task}: the neurons that matter.")
            for name, table in _task_tables(dev, test, settings).items():
                table.insert(0, "task", task)
                tables.setdefault(name, []).append(table)
            runs = zip(*([score.sums.sums for score in test.runs(layer.name)] for layer in layers), strict=True)
            tensors[f"sums {task}"] = np.stack([np.stack(run) for run in runs]).astype(np.float64)
            tensors[f"sentences {task}"] = np.unique(test.data.examples("test").sentences).astype(np.int64)
    return Run("diff", {}, {}, {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}, tensors)


def _task_tables(dev: PartScores, test: PartScores, settings: DiffSettings) -> dict[str, pd.DataFrame]:
    """The tables of one task in one model."""
    data, layout, by = test.data, test.data.splits.layout, settings.by
    oracles = [score.probe for score in test.runs(ALL)]
    orders = {name: ranking.order for name, ranking in neuron_orders(data, [by, "random"], oracle=oracles[0]).items()}
    selection = selection_table(data, oracles, orders, settings.shares)
    minimal = find_minimal_set(
        data,
        lambda fold: neuron_orders(fold, [by])[by].order,
        orders[by],
        settings.keep,
        oracle=dev.runs(ALL)[0].sums,
    )
    salient = {(by, "minimal"): minimal.neurons}
    salient |= {(by, f"top {share:.3g}"): top_and_bottom(orders[by], share)[0] for share in settings.shares}
    return {
        "scores": score_table(dev, test, {}, settings.keep).drop(columns=["layers", "random_twin"]),
        "properties": class_neuron_table(data, oracles[0], settings.properties),
        "baselines": pd.DataFrame(baselines(data).items(), columns=["baseline", "score"]).assign(metric=data.metric),
        "selection": selection.loc[selection["method"] != "random"].drop(columns="method").reset_index(drop=True),
        "minimal": _minimal_table(minimal, dev, test),
        "spread": layer_spread_table(salient, layout).drop(columns="method"),
    }


def _minimal_table(minimal: MinimalSet, dev: PartScores, test: PartScores) -> pd.DataFrame:
    """All neurons beside the minimal set (Durrani et al. 2021, table 7)."""
    layout = test.data.splits.layout
    chosen = neuron_set("minimal", "minimal", layout, minimal.neurons, ordered=True)
    trained = ProbeGrid(test.data, [chosen]).train()
    rows = [
        {
            "set": name,
            "neurons": neurons.n_neurons,
            "share": neurons.n_neurons / layout.n_neurons,
            "dev": on_dev.mean(neurons.name),
            **score_columns(on_test, neurons.name),
        }
        for name, neurons, on_dev, on_test in (
            ("all", all_layers(layout), dev, test),
            ("minimal", chosen, trained.on("dev"), trained.on("test")),
        )
    ]
    return pd.DataFrame(rows).assign(sufficient=[True, minimal.sufficient])


def task_tables(
    probed: Sequence[Sequence[Run]], models: Sequence[ReadModel], texts: Sequence[LabelledText], seed: int
) -> dict[str, pd.DataFrame]:
    """The tables of all models and tasks, and the change from the base; `probed` holds one run per model and text."""
    base, *others = models
    change = [
        change_table(task.name, base, other, probed[0][t], probed[m][t], seed)
        for t, text in enumerate(texts)
        for task in text.tasks
        for m, other in enumerate(others, 1)
    ]
    names = [task.name for text in texts for task in text.tasks]
    tables = {"change": pd.concat(change, ignore_index=True)}
    for name in ("scores", "selection", "minimal", "spread", "properties"):
        parts = [
            run.tables[name].assign(model=model.name)
            for model, runs in zip(models, probed, strict=True)
            for run in runs
        ]
        table = pd.concat(parts, ignore_index=True)
        order = table["task"].map(names.index).argsort(kind="stable")
        columns = ["task", "model", *(name for name in table if name not in ("task", "model"))]
        table = table[columns].iloc[order].reset_index(drop=True)
        tables[name] = with_depth(table, models) if "layer" in table else table
    tables["baselines"] = pd.concat([run.tables["baselines"] for run in probed[0]], ignore_index=True)
    return tables


def model_tables(similarity: Run, clustered: Sequence[Run], models: Sequence[ReadModel]) -> dict[str, pd.DataFrame]:
    """The tables that need no labels."""
    base, *others = models
    pairs = with_depth(with_depth(similarity.tables["similarity"], models, "_a"), models, "_b")
    layers = similarity.tables["layers"]
    rows = [
        {
            "model": model.name,
            "blocks": model.n_layers,
            "layers": len(model.stores[0].layers),
            "neurons": sum(model.stores[0].widths),
            "constant": layers.loc[layers["model"] == model.name, "constant"].sum(),
            "fingerprint": model.stores[0].manifest.model["fingerprint"],
        }
        for model in models
    ]
    tables = {
        "similarity": pairs,
        "likeness": likeness_table(pairs, base, others),
        "curves": with_depth(similarity.tables["curves"], models),
        "models": pd.DataFrame(rows),
    }
    for name in ("survivors", "thresholds"):
        parts = [run.tables[name].assign(model=model.name) for model, run in zip(models, clustered, strict=True)]
        table = pd.concat(parts, ignore_index=True)
        table.insert(0, "model", table.pop("model"))
        tables[name] = with_depth(table, models) if "layer" in table else table
    return tables


def audit(models: Sequence[ReadModel]) -> pd.DataFrame:
    """What became of the words of each text in each model."""
    readings = [(store, model.name) for model in models for store in model.stores]
    return audit_table([store for store, _ in readings], [name for _, name in readings])


def change_table(task: str, base: ReadModel, other: ReadModel, before: Run, after: Run, seed: int) -> pd.DataFrame:
    """How a task's score changed from the base: one row per layer of the other model, and one for all layers.

    A layer at the depth d is compared with the base's curve at d, linear between its layers. The interval is that of
    the difference: both models answer the same sentences, which are resampled together.
    """
    scores = after.tables["scores"]
    metric = str(scores.loc[scores["task"] == task, "metric"].iloc[0])
    numbers = [run.tensors[f"sentences {task}"] for run in (after, before)]
    _, in_after, in_before = np.intersect1d(*numbers, assume_unique=True, return_indices=True)
    new, old = after.tensors[f"sums {task}"][:, :, in_after], before.tensors[f"sums {task}"][:, :, in_before]
    between = depth_weights(other.depths, base.depths)
    weights = np.block([[between, np.zeros((len(between), 1))], [np.zeros(between.shape[1]), 1.0]])
    layers: list[int | None] = [*other.stores[0].layers, None]
    rows = []
    for i, layer in enumerate(layers):
        of_base = [(j, w) for j, w in enumerate(weights[i].tolist()) if w]
        runs = [
            [(1.0, SentenceSums(metric, new[run, i])), *((-w, SentenceSums(metric, old[run, j])) for j, w in of_base)]
            for run in range(len(new))
        ]
        interval = combined_interval(runs, seed=seed)
        score = float(np.mean([terms[0][1].value for terms in runs]))
        rows.append(
            {
                "task": task,
                "model": other.name,
                "features": ALL if layer is None else f"layer {layer}",
                "layer": layer,
                "base_layer": np.nan if layer is None else float(between[i] @ base.stores[0].layers),
                "depth": np.nan if layer is None else float(other.depths[i]),
                "metric": metric,
                "score": score,
                "base": score - float(interval.value),
                "change": float(interval.value),
                "low": float(interval.low),
                "high": float(interval.high),
                "seeds": len(new),
            }
        )
    return pd.DataFrame(rows).astype({"layer": "Int64"})


def likeness_table(similarity: pd.DataFrame, base: ReadModel, others: Sequence[ReadModel]) -> pd.DataFrame:
    """Similarity of each layer to the base at its relative depth, and the most similar layer of the base.

    `value` lies on the line between the two neighbouring layers of the base, and so do its bounds: those of a weighted
    mean are at most that far apart.
    """
    tables = []
    for other in others:
        rows = similarity.loc[(similarity["model_a"] == other.name) & (similarity["model_b"] == base.name)]
        for measure, of_measure in rows.groupby("measure", sort=False):
            layers, below = (sorted(of_measure[column].unique().tolist()) for column in ("layer_a", "layer_b"))
            pairs = pd.MultiIndex.from_product([layers, below])
            values = of_measure.set_index(["layer_a", "layer_b"])[["value", "low", "high"]].reindex(pairs)
            value, low, high = values.to_numpy(float).T.reshape(3, len(layers), len(below))
            depths = np.array(layers) / other.n_layers
            weights = depth_weights(depths, np.array(below) / base.n_layers)
            closest = value.argmax(axis=1)
            columns = {
                "measure": measure,
                "model": other.name,
                "layer": layers,
                "depth": depths,
                "base_layer": weights @ below,
                "value": (weights * value).sum(axis=1),
                "low": (weights * low).sum(axis=1),
                "high": (weights * high).sum(axis=1),
                "closest_layer": np.array(below)[closest],
                "closest": value[np.arange(len(layers)), closest],
            }
            tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def with_depth(table: pd.DataFrame, models: Sequence[ReadModel], suffix: str = "") -> pd.DataFrame:
    """The table with the relative depth of each row's layer, after the layer; `suffix` is that of its columns."""
    blocks = {model.name: model.n_layers for model in models}
    layers, names = table[f"layer{suffix}"].tolist(), table[f"model{suffix}"].tolist()
    depth = [np.nan if pd.isna(layer) else layer / blocks[name] for layer, name in zip(layers, names, strict=True)]
    deeper = table.copy()
    deeper.insert(list(table.columns).index(f"layer{suffix}") + 1, f"depth{suffix}", depth)
    return deeper
