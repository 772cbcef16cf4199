"""Runs as `compare` writes them, with made-up numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from residuum.storage.results import Run

MEASURES = (
    "neuron", "mixed", "svcca", "pwcca", "cka", "cka_debiased", "procrustes", "cka_rbf", "rsa", "knn",
    "attention_norm", "attention_pearson", "attention_js", "attention_svcca", "attention_pwcca", "attention_cka",
)  # fmt: skip


def comparison_run(
    models: Mapping[str, int],
    measures: Sequence[str] = ("neuron", "svcca", "cka"),
    *,
    intervals: bool = True,
    null: bool = True,
    constant: Mapping[tuple[str, int], int] | None = None,
    summary: Mapping[str, object] | None = None,
) -> Run:
    """Models given with their number of layers; similarity falls with the distance of two layers."""
    labels = [(model, layer) for model, n in models.items() for layer in range(n)]
    similarity = pd.concat([_pairs(labels, measure, intervals, null) for measure in measures], ignore_index=True)
    curves = pd.concat([_averages(similarity), _steps(similarity)], ignore_index=True)
    found = constant or {}
    layers = pd.DataFrame(
        {
            "model": [model for model, _ in labels],
            "layer": [layer for _, layer in labels],
            "neurons": 32,
            "constant": [found.get(label, 0) for label in labels],
            "top_neuron": 3,
            "top_share": 0.1,
            "effective_rank": 20.0,
        }
    )
    return Run(
        command="compare",
        config={"sources": [f"{model} 00ff" for model in models], "measures": list(measures), "options": {"top_k": 3}},
        summary={"words": 1234, "layers": len(labels), "groups": 5, **(summary or {})},
        tables={"similarity": similarity, "curves": curves, "layers": layers},
        environment={"python": "3.11", "residuum": "0.1.0"},
    )


def _pairs(labels: list[tuple[str, int]], measure: str, intervals: bool, null: bool) -> pd.DataFrame:
    pairs = list(product(labels, labels))
    value = np.array([1.0 if a == b else 0.9 - 0.07 * abs(a[1] - b[1]) - 0.03 * (a[0] != b[0]) for a, b in pairs])
    return pd.DataFrame(
        {
            "measure": measure,
            "model_a": [a[0] for a, _ in pairs],
            "layer_a": [a[1] for a, _ in pairs],
            "model_b": [b[0] for _, b in pairs],
            "layer_b": [b[1] for _, b in pairs],
            "value": value,
            "low": value - 0.01 if intervals else np.nan,
            "high": np.minimum(value + 0.01, 1) if intervals else np.nan,
            "null": 0.05 if null else np.nan,
        }
    )


def _averages(similarity: pd.DataFrame) -> pd.DataFrame:
    inside = similarity[
        (similarity["model_a"] == similarity["model_b"]) & (similarity["layer_a"] != similarity["layer_b"])
    ]
    means = inside.groupby(["measure", "model_a", "layer_a"], sort=False)[["value", "low", "high"]].mean().reset_index()
    return _as_curve(means, "layer_average")


def _steps(similarity: pd.DataFrame) -> pd.DataFrame:
    inside = similarity[similarity["model_a"] == similarity["model_b"]]
    return _as_curve(inside[inside["layer_b"] == inside["layer_a"] + 1], "to_next_layer")


def _as_curve(rows: pd.DataFrame, curve: str) -> pd.DataFrame:
    named = rows.rename(columns={"model_a": "model", "layer_a": "layer"}).assign(curve=curve)
    return named[["model", "layer", "curve", "measure", "value", "low", "high"]]
