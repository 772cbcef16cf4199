"""From estimates to tidy tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from itertools import product

import numpy as np
import pandas as pd
from jaxtyping import Float

from residuum.comparison.estimates import ComparisonPlan, LayerEstimate, LayerVariance
from residuum.errors import SettingError
from residuum.maths.profiles import adjacent_profile, layer_average, localization
from residuum.maths.similarity import MEASURES
from residuum.maths.statistics import jackknife

Labels = list[tuple[str, int]]


def similarity_table(plan: ComparisonPlan, estimates: dict[str, LayerEstimate]) -> pd.DataFrame:
    """One row for each measure and ordered pair of layers."""
    parts = []
    for measure, estimate in estimates.items():
        labels = layer_labels(plan, blocks_only="attention" in MEASURES[measure].source)
        wide = np.array(plan.widths)
        interval = _interval(plan, estimate, measure, np.maximum.outer(wide, wide))
        null = estimate.null if estimate.null is not None else np.zeros((0, *estimate.value.shape))
        mean, spread, p = null_summary(estimate.value, null)
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
                    "null": mean.ravel(),
                    "null_sd": spread.ravel(),
                    "p": p.ravel(),
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
        value = localization(estimates["neuron"].value, estimates["svcca"].value)
        localized = LayerEstimate(value, np.zeros((0, *value.shape)))  # no interval: SVCCA has none that covers
        parts.append(_curve(plan, "localization", "neuron − svcca", localized, layer_labels(plan)))
    for measure, estimate in estimates.items():
        labels = layer_labels(plan, blocks_only="attention" in MEASURES[measure].source)
        models: dict[str, list[int]] = {}
        for i, (model, _) in enumerate(labels):
            models.setdefault(model, []).append(i)
        for members in models.values():
            if len(members) < 2:
                continue
            inside = _derive(lambda m, members=members: m[np.ix_(members, members)], estimate)
            here = [labels[i] for i in members]
            average, adjacent = _derive(layer_average, inside), _derive(adjacent_profile, inside)
            parts.append(_curve(plan, "layer_average", measure, average, here))
            parts.append(_curve(plan, "to_next_layer", measure, adjacent, here[:-1]))
    if context is not None:
        parts.append(_curve(plan, "context_specificity", "cosine", context, layer_labels(plan)))
    columns = ["model", "layer", "curve", "measure", "value", "low", "high"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=pd.Index(columns))


def layer_table(
    plan: ComparisonPlan, variances: list[LayerVariance] | None, first_share: Float[np.ndarray, " layer"]
) -> pd.DataFrame:
    """Each layer's neurons, how many are constant, and how its variance is spread over the others and over words."""
    labels = layer_labels(plan)
    names = [field.name for field in fields(LayerVariance)]
    spread = {name: [getattr(v, name) for v in variances] if variances else None for name in names}
    last = {model: max(layer for name_of_layer, layer in labels if name_of_layer == model) for model, _ in labels}
    return pd.DataFrame(
        {
            "model": [model for model, _ in labels],
            "layer": [layer for _, layer in labels],
            "depth": [layer / max(last[model], 1) for model, layer in labels],
            "neurons": plan.widths,
            **spread,
            "first_word_share": first_share,
        }
    )


def model_table(plan: ComparisonPlan, estimates: dict[str, LayerEstimate]) -> pd.DataFrame:
    """Model × model: the mean over the layers of one of the highest similarity to a layer of the other.

    A model beside itself is compared with its other layers.
    """
    rows = []
    for measure, estimate in estimates.items():
        labels = layer_labels(plan, blocks_only="attention" in MEASURES[measure].source)
        models = list(dict.fromkeys(model for model, _ in labels))
        places = {model: [i for i, (name, _) in enumerate(labels) if name == model] for model in models}
        for a, b in product(models, models):
            block = estimate.value[np.ix_(places[a], places[b])].copy()
            if a == b:
                np.fill_diagonal(block, np.nan)
            known = block[~np.isnan(block).all(axis=1)]
            best = float(np.nanmax(known, axis=1).mean()) if known.size else np.nan
            rows.append((measure, a, b, best, float(np.nanmean(block)) if known.size else np.nan))
    return pd.DataFrame(rows, columns=pd.Index(["measure", "model_a", "model_b", "best_layers", "all_layers"]))


def beside_table(this: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The values of the same layers over two texts, and the first minus the second with its interval.

    The texts share no sentences, so the errors on either side add up in squares (Zou and Donner 2008).
    """
    cells = ["measure", "model_a", "layer_a", "model_b", "layer_b"]
    both = this.merge(other, on=cells, suffixes=("", "_beside"))
    if both.empty:
        raise SettingError(
            "The two comparisons have no measure of a pair of layers in common; name models alike with NAME=MODEL."
        )
    a, b = ({name: both[name + end].to_numpy(float) for name in ("value", "low", "high")} for end in ("", "_beside"))
    difference = a["value"] - b["value"]
    low = difference - np.hypot(a["value"] - a["low"], b["high"] - b["value"])
    high = difference + np.hypot(a["high"] - a["value"], b["value"] - b["low"])
    columns = {"value": a["value"], "beside": b["value"], "difference": difference, "low": low, "high": high}
    return both[cells].assign(**columns)


def null_summary(
    value: Float[np.ndarray, "*shape"], null: Float[np.ndarray, " permutation *shape"]
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Mean and standard deviation under permuted words, and p = (1 + permutations as high) / (1 + all)."""
    unknown = np.full(value.shape, np.nan)
    if not len(null):
        return unknown, unknown, unknown
    p = (1 + (null >= value).sum(axis=0)) / (1 + len(null))
    spread = null.std(axis=0, ddof=1) if len(null) > 1 else unknown
    return null.mean(axis=0), spread, np.where(np.isnan(value), np.nan, p)


def layer_labels(plan: ComparisonPlan, *, blocks_only: bool = False) -> Labels:
    """(model, layer) in the order of all matrices; a model that is compared with itself is numbered."""
    names = [source.name for source in plan.sources]
    seen: Counter[str] = Counter()
    labels = []
    for source, name in zip(plan.sources, names, strict=True):
        seen[name] += 1
        label = f"{name} #{seen[name]}" if names.count(name) > 1 else name
        if blocks_only and not source.n_heads:
            continue
        labels += [(label, layer) for layer in source.layers if layer > 0 or not blocks_only]
    return labels


def _derive(function: Callable[..., np.ndarray], *estimates: LayerEstimate) -> LayerEstimate:
    """A function of the values and of each leave-one-out value."""
    value = function(*(estimate.value for estimate in estimates))
    left_out = [function(*parts) for parts in zip(*(estimate.left_out for estimate in estimates), strict=True)]
    bias = None if any(e.bias is None for e in estimates) else value - function(*(e.value - e.bias for e in estimates))
    return LayerEstimate(value, np.stack(left_out) if left_out else np.zeros((0, *value.shape)), bias=bias)


def _curve(
    plan: ComparisonPlan,
    curve: str,
    measure: str,
    estimate: LayerEstimate,
    labels: Labels,
) -> pd.DataFrame:
    width = max(w for w, (model, _) in zip(plan.widths, layer_labels(plan), strict=True) if model == labels[0][0])
    low, high = _interval(plan, estimate, measure, np.full(estimate.value.shape, width))
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
    plan: ComparisonPlan, estimate: LayerEstimate, measure: str, widths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """NaN where there are too few words per neuron for an interval of this measure that covers."""
    known = MEASURES.get(measure)
    sizes = [group.words for group in plan.groups][: len(estimate.left_out)]
    bounds = (known.lowest, 1.0) if known else None
    interval = jackknife(estimate.value, estimate.left_out, sizes or None, bounds=bounds, bias=estimate.bias)
    least = known.words_per_neuron if known else 0.0
    if not 0 < least < np.inf:
        return interval.low, interval.high
    few = sum(group.words for group in plan.groups) < least * widths
    return np.where(few, np.nan, interval.low), np.where(few, np.nan, interval.high)
