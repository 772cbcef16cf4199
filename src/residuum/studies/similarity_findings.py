"""What the findings of Wu et al. (2020) come to in numbers: each function gives one number for every case."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from residuum.storage.results import Run
from residuum.studies.declarations import Results
from residuum.studies.estimates import Estimate, correlation_estimate, mean_estimate, score_on_test
from residuum.studies.verdicts import Measured

ONE_FAMILY = "the models are all of one family"


def neurons_are_of_a_model(results: Results) -> Measured | str | None:
    """Neuron similarity within models less that across families."""
    found = _within_and_across(results, "neuron")
    return ONE_FAMILY if found is None else Measured.of({"all models": found[0] - found[1]})


def layers_are_shared_more_than_neurons(results: Results) -> Measured | str | None:
    """Likeness across families as a share of that within models: CKA's less neuron similarity's."""
    neurons, layers = _within_and_across(results, "neuron"), _within_and_across(results, "cka")
    if neurons is None or layers is None:
        return ONE_FAMILY
    return Measured.of({"all models": layers[1] / layers[0] - neurons[1] / neurons[0]})


def family_is_alike(results: Results) -> Measured | str | None:
    """Mean CKA of layers of different models of one family less that of models of different families."""
    pairs, foreign = _pairs_and_foreign(results, "cka")
    related = pairs.loc[~foreign & (pairs["model_a"] != pairs["model_b"])]
    if related.empty or not foreign.any():
        return ONE_FAMILY if foreign.any() or len(related) else "there is one model"
    return Measured.of({"all models": mean_estimate(related) - mean_estimate(pairs.loc[foreign])})


def lower_layers_are_shared(results: Results) -> Measured | str | None:
    """Mean CKA of the lower half of a model's layers with other families' layers, less that of the upper half."""
    pairs, foreign = _pairs_and_foreign(results, "cka")
    if not foreign.any():
        return ONE_FAMILY
    models = pairs.loc[foreign].groupby("model_a")
    return Measured.of({str(model): _lower_less_upper(own, "layer_a") for model, own in models})


def neighbours_are_alike(results: Results) -> Measured | None:
    """Mean CKA of adjacent layers less that of more distant ones, for each model."""
    return Measured.of({model: adjacent_less_distant(own) for model, own in own_layers(results).items()})


def own_layers(results: Results) -> dict[str, pd.DataFrame]:
    """CKA of the pairs of layers of each model."""
    ((_, run),) = results.of("compare")
    pairs = _pairs(run, "cka")
    inside = pairs.loc[pairs["model_a"] == pairs["model_b"]]
    return {str(model): own for model, own in inside.groupby("model_a", sort=False)}


def adjacent_less_distant(own: pd.DataFrame) -> Estimate:
    """Mean likeness of adjacent layers less that of layers further apart."""
    distance = (own["layer_a"] - own["layer_b"]).abs()
    return mean_estimate(own.loc[distance == 1]) - mean_estimate(own.loc[distance > 1])


def upper_layers_are_localized(results: Results) -> Measured | None:
    """Spearman's correlation of layer and localization."""
    ((_, run),) = results.of("compare")
    curves = run.tables["curves"]
    localization = curves.loc[curves["curve"] == "localization"]
    return Measured.of({str(model): _rank_correlation(own) for model, own in localization.groupby("model")})


def random_is_unlike(results: Results) -> Measured | None:
    """Mean CKA among a trained model's layers, less that of its layers with its random twin's."""
    ((_, run),) = results.of("random")
    pairs = _pairs(run, "cka")
    cases = {}
    for model in [name for name in pairs["model_a"].unique() if not str(name).endswith("(random)")]:
        own = pairs.loc[(pairs["model_a"] == model) & (pairs["model_b"] == model)]
        twin = pairs.loc[(pairs["model_a"] == model) & (pairs["model_b"] == f"{model} (random)")]
        cases[model] = mean_estimate(own.loc[own["layer_a"] != own["layer_b"]]) - mean_estimate(twin)
    return Measured.of(cases)


def tuning_changes_the_top(results: Results, measure: str) -> Measured | None:
    """Likeness of the same layer before and after: lower half less upper half, for each model and task."""
    cases = {}
    for step, run in results.of("tuned"):
        pairs = _pairs(run, measure)
        base = pairs.loc[(pairs["model_a"] == step.model) & (pairs["model_b"] != step.model)]
        same_layer = base.loc[base["layer_a"] == base["layer_b"]]
        for other, own in same_layer.groupby("model_b"):
            cases[f"{step.model}, {other}"] = _lower_less_upper(own, "layer_a")
    return Measured.of(cases)


def tuning_spreads_the_top(results: Results) -> Measured | None:
    """Localization of the last layer before fine-tuning, less that after."""
    cases = {}
    for step, run in results.of("tuned"):
        curves = run.tables["curves"]
        local = curves.loc[curves["curve"] == "localization"]
        top = local.loc[local["layer"] == local["layer"].max()]
        last = {str(model): mean_estimate(own) for model, own in top.groupby("model", sort=False)}
        before = last.pop(step.model)
        cases |= {f"{step.model}, {name}": before - after for name, after in last.items()}
    return Measured.of(cases)


def freezing_the_bottom_costs_less(results: Results) -> Measured | None:
    """Test score with the lowest layers frozen less that with as many of the highest, for each model, task, number."""
    scores = {(step.model, step.task, step.variant): score_on_test(run) for step, run in results.of("frozen")}
    return Measured.of(
        {
            f"{model}, {task}, {variant.removeprefix('bottom:')} layers": score
            - scores[model, task, variant.replace("bottom", "top")]
            for (model, task, variant), score in scores.items()
            if variant.startswith("bottom")
        }
    )


def _pairs(run: Run, measure: str) -> pd.DataFrame:
    table = run.tables["similarity"]
    return table.loc[table["measure"] == measure]


def _pairs_and_foreign(results: Results, measure: str) -> tuple[pd.DataFrame, np.ndarray]:
    """All pairs of layers, and which of them are of models of different families."""
    ((_, run),) = results.of("compare")
    pairs, families = _pairs(run, measure), results.families
    models = zip(pairs["model_a"], pairs["model_b"], strict=True)
    return pairs, np.array([families.get(a) != families.get(b) for a, b in models], dtype=bool)


def _within_and_across(results: Results, measure: str) -> tuple[Estimate, Estimate] | None:
    """Mean likeness of different layers of one model, and of layers of models of different families."""
    pairs, foreign = _pairs_and_foreign(results, measure)
    same = (pairs["model_a"] == pairs["model_b"]) & (pairs["layer_a"] != pairs["layer_b"])
    within, across = pairs.loc[same], pairs.loc[foreign]
    return None if across.empty or within.empty else (mean_estimate(within), mean_estimate(across))


def _rank_correlation(own: pd.DataFrame) -> Estimate:
    ordered = own.sort_values("layer")["value"].rank().to_numpy(dtype=float)
    if len(ordered) < 3:
        return Estimate.counted(math.nan)
    return correlation_estimate(ordered, np.arange(len(ordered), dtype=float))


def _lower_less_upper(rows: pd.DataFrame, layer: str) -> Estimate:
    half = rows[layer].max() / 2
    return mean_estimate(rows.loc[rows[layer] <= half]) - mean_estimate(rows.loc[rows[layer] > half])
