"""From estimates to tidy tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from itertools import product

import numpy as np
import pandas as pd

from residuum.comparison.estimates import ComparisonPlan, LayerEstimate, LayerVariance
from residuum.maths.profiles import adjacent_profile, layer_average, localization
from residuum.maths.similarity import MEASURES
from residuum.maths.statistics import jackknife

Labels = list[tuple[str, int]]


def similarity_table(plan: ComparisonPlan, estimates: dict[str, LayerEstimate]) -> pd.DataFrame:
    """One row for each measure and ordered pair of layers."""
    parts = []
    for measure, estimate in estimates.items():
        labels = layer_labels(plan, blocks_only="attention" in MEASURES[measure].source)
        interval = _interval(plan, estimate, (MEASURES[measure].lowest, 1.0))
        null = estimate.null if estimate.null is not None else np.full_like(estimate.value, np.nan)
        pairs = list(product(labels, labels))
        parts.append(
            pd.DataFrame(
                {
                    "measure": measure,
                    "model_a": [a[0] for a, _ in pairs],
                    "layer_a": [a[1] for a, _ in pairs],
                    "model_b": [b[0] for _, b in pairs],
                    "layer_b": [b[1] for _, b in pairs],
                    "value": estimate.value.ravel(),
                    "low": interval[0].ravel(),
                    "high": interval[1].ravel(),
                    "null": null.ravel(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def curve_table(
    plan: ComparisonPlan, estimates: dict[str, LayerEstimate], context: LayerEstimate | None
) -> pd.DataFrame:
    """Localization, layer average, likeness of neighbours and context-specificity: one row per layer and curve."""
    parts = []
    if {"neuron", "svcca"} <= estimates.keys():
        localized = _derive(localization, estimates["neuron"], estimates["svcca"])
        parts.append(_curve(plan, "localization", "neuron − svcca", localized, layer_labels(plan)))
    for measure, estimate in estimates.items():
        labels = layer_labels(plan, blocks_only="attention" in MEASURES[measure].source)
        for model, own in _models(labels).items():
            if len(own) < 2:
                continue
            inside = _derive(lambda m, own=own: m[np.ix_(own, own)], estimate)
            here = [labels[i] for i in own]
            average, adjacent = _derive(layer_average, inside), _derive(adjacent_profile, inside)
            bounds = (MEASURES[measure].lowest, 1.0)
            parts.append(_curve(plan, "layer_average", measure, average, here, bounds))
            parts.append(_curve(plan, "to_next_layer", measure, adjacent, here[:-1], bounds))
            assert model == here[0][0]
    if context is not None:
        parts.append(_curve(plan, "context_specificity", "cosine", context, layer_labels(plan)))
    columns = ["model", "layer", "curve", "measure", "value", "low", "high"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=pd.Index(columns))


def layer_table(plan: ComparisonPlan, variances: list[LayerVariance] | None) -> pd.DataFrame:
    """Each layer's neurons, how many are constant over the corpus, and how its variance is spread over the others."""
    labels = layer_labels(plan)
    return pd.DataFrame(
        {
            "model": [model for model, _ in labels],
            "layer": [layer for _, layer in labels],
            "neurons": plan.widths,
            **{field.name: _variance(variances, field.name) for field in fields(LayerVariance)},
        }
    )


def _variance(variances: list[LayerVariance] | None, name: str) -> list[float] | None:
    return None if variances is None else [getattr(variance, name) for variance in variances]


def layer_labels(plan: ComparisonPlan, *, blocks_only: bool = False) -> Labels:
    """(model, layer) in the order of all matrices; a model that is compared with itself is numbered."""
    names = [source.name for source in plan.sources]
    seen: Counter[str] = Counter()
    labels = []
    for source, name in zip(plan.sources, names, strict=True):
        seen[name] += 1
        label = f"{name} #{seen[name]}" if names.count(name) > 1 else name
        labels += [(label, layer) for layer in source.layers if layer > 0 or not blocks_only]
    return labels


def _models(labels: Labels) -> dict[str, list[int]]:
    models: dict[str, list[int]] = {}
    for i, (model, _) in enumerate(labels):
        models.setdefault(model, []).append(i)
    return models


def _derive(function: Callable[..., np.ndarray], *estimates: LayerEstimate) -> LayerEstimate:
    """A function of the values and of each leave-one-out value."""
    value = function(*(estimate.value for estimate in estimates))
    left_out = [function(*parts) for parts in zip(*(estimate.left_out for estimate in estimates), strict=True)]
    return LayerEstimate(value, np.stack(left_out) if left_out else np.zeros((0, *value.shape)))


def _curve(
    plan: ComparisonPlan,
    curve: str,
    measure: str,
    estimate: LayerEstimate,
    labels: Labels,
    bounds: tuple[float, float] | None = None,
) -> pd.DataFrame:
    low, high = _interval(plan, estimate, bounds)
    return pd.DataFrame(
        {
            "model": [model for model, _ in labels],
            "layer": [layer for _, layer in labels],
            "curve": curve,
            "measure": measure,
            "value": estimate.value,
            "low": low,
            "high": high,
        }
    )


def _interval(
    plan: ComparisonPlan, estimate: LayerEstimate, bounds: tuple[float, float] | None
) -> tuple[np.ndarray, np.ndarray]:
    sizes = [group.words for group in plan.groups][: len(estimate.left_out)]
    interval = jackknife(estimate.value, estimate.left_out, sizes or None, bounds=bounds)
    return interval.low, interval.high
