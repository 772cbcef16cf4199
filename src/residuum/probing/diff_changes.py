"""From the base to the others: change of scores and likeness of layers, at equal relative depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from residuum.maths.profiles import depth_weights
from residuum.probing.batteries import accuracy_interval
from residuum.probing.diff_models import ReadModel
from residuum.probing.measuring import ALL
from residuum.storage.results import Run


def change_table(task: str, base: ReadModel, other: ReadModel, before: Run, after: Run, seed: int) -> pd.DataFrame:
    """How a task's score changed from the base, a row for each layer of the other model and one for all layers.

    A layer at the depth d is set against the base's curve at d, linear between its layers. The interval is that of
    the difference: both probes answer the same words, so whole sentences are drawn with both answers
    (a paired bootstrap).
    """
    right, was_right, sentences = _paired(after, before, task)
    weights = depth_weights(other.depths, base.depths)
    expected = np.concatenate([weights @ was_right[:-1], was_right[-1:]])
    layers: list[int | None] = [*other.stores[0].layers, None]
    rows = [
        {
            "task": task,
            "model": other.name,
            "features": ALL if layer is None else f"layer {layer}",
            "layer": layer,
            "base_layer": np.nan if layer is None else float(weights[i] @ base.stores[0].layers),
            "depth": np.nan if layer is None else float(other.depths[i]),
            "score": float(right[i].mean()),
            "base": float(expected[i].mean()),
            **_interval(right[i] - expected[i], sentences, seed),
        }
        for i, layer in enumerate(layers)
    ]
    return pd.DataFrame(rows).astype({"layer": "Int64"})


def likeness_table(similarity: pd.DataFrame, base: ReadModel, others: Sequence[ReadModel]) -> pd.DataFrame:
    """How alike each layer is to the base at its relative depth, and which layer of the base is most like it.

    `value` lies on the line between the two neighbouring layers of the base, and so do its bounds: those of a weighted
    mean are at most that far apart.
    """
    parts = [
        _likeness(measure, square, base, other)
        for other in others
        for measure, square in _squares(similarity, other.name, base.name).items()
    ]
    return pd.concat(parts, ignore_index=True)


def with_depth(table: pd.DataFrame, models: Sequence[ReadModel], suffix: str = "") -> pd.DataFrame:
    """The table with the relative depth of each row's layer, after the layer; `suffix` is that of its columns."""
    blocks = {model.name: model.n_layers for model in models}
    layers, names = table[f"layer{suffix}"].tolist(), table[f"model{suffix}"].tolist()
    depth = [np.nan if pd.isna(layer) else layer / blocks[name] for layer, name in zip(layers, names, strict=True)]
    found = table.copy()
    found.insert(list(table.columns).index(f"layer{suffix}") + 1, f"depth{suffix}", depth)
    return found


def _paired(
    after: Run, before: Run, task: str
) -> tuple[Float[np.ndarray, "set example"], Float[np.ndarray, "base_set example"], Int[np.ndarray, " example"]]:
    """The answers of two models to the examples that both have, and the sentences of these."""
    keys = [_keys(run.tensors[f"places {task}"]) for run in (after, before)]
    common, here, there = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    right, was_right = after.tensors[f"correct {task}"], before.tensors[f"correct {task}"]
    return right[:, here], was_right[:, there], common >> 32


def _keys(places: Int[np.ndarray, "example 2"]) -> Int[np.ndarray, " example"]:
    return (places[:, 0] << 32) + places[:, 1]


def _interval(
    difference: Float[np.ndarray, " example"], sentences: Int[np.ndarray, " example"], seed: int
) -> dict[str, Any]:
    found = accuracy_interval(difference, sentences, seed=seed)
    return {"change": float(difference.mean()), "low": float(found.low), "high": float(found.high)}


def _squares(similarity: pd.DataFrame, model: str, base: str) -> Mapping[str, pd.DataFrame]:
    rows = similarity.loc[(similarity["model_a"] == model) & (similarity["model_b"] == base)]
    return {str(measure): own for measure, own in rows.groupby("measure", sort=False)}


def _likeness(measure: str, rows: pd.DataFrame, base: ReadModel, other: ReadModel) -> pd.DataFrame:
    layers, below = (sorted(rows[column].unique().tolist()) for column in ("layer_a", "layer_b"))
    pairs = pd.MultiIndex.from_product([layers, below])
    found = rows.set_index(["layer_a", "layer_b"])[["value", "low", "high"]].reindex(pairs).to_numpy(float)
    value, low, high = found.T.reshape(3, len(layers), len(below))
    depths = np.array(layers) / other.n_layers
    weights = depth_weights(depths, np.array(below) / base.n_layers)
    closest = value.argmax(axis=1)
    return pd.DataFrame(
        {
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
    )
