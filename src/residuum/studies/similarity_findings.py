"""What the findings of Wu et al. (2020) come to in numbers: each function gives one number for every case."""

from __future__ import annotations

import numpy as np
import pandas as pd

from residuum.results import Run
from residuum.studies.declarations import Results
from residuum.studies.numbers import mean
from residuum.studies.verdicts import Measured

ONE_FAMILY = "the models are all of one family"


def _pairs(run: Run, measure: str) -> pd.DataFrame:
    table = run.tables["similarity"]
    return table.loc[table["measure"] == measure]


def _within_and_across(results: Results, measure: str) -> tuple[float, float] | None:
    """Mean likeness of different layers of one model, and of layers of models of different families."""
    ((_, run),) = results.of("compare")
    families = results.families
    pairs = _pairs(run, measure)
    same = pairs["model_a"] == pairs["model_b"]
    foreign = pairs["model_a"].map(families.get) != pairs["model_b"].map(families.get)
    within = pairs.loc[same & (pairs["layer_a"] != pairs["layer_b"]), "value"]
    across = pairs.loc[foreign, "value"]
    return None if across.empty or within.empty else (mean(within), mean(across))


def neurons_are_of_a_model(results: Results) -> Measured | str | None:
    """Neuron similarity within models less that across families."""
    found = _within_and_across(results, "neuron")
    return ONE_FAMILY if found is None else Measured.of([found[0] - found[1]])


def layers_are_shared_more_than_neurons(results: Results) -> Measured | str | None:
    """Likeness across families as a share of that within models: CKA's less neuron similarity's."""
    neurons, layers = _within_and_across(results, "neuron"), _within_and_across(results, "cka")
    if neurons is None or layers is None:
        return ONE_FAMILY
    return Measured.of([layers[1] / layers[0] - neurons[1] / neurons[0]])


def family_is_alike(results: Results) -> Measured | str | None:
    """Mean CKA of layers of different models of one family less that of models of different families."""
    ((_, run),) = results.of("compare")
    families, pairs = results.families, _pairs(run, "cka")
    others = pairs.loc[pairs["model_a"] != pairs["model_b"]]
    related = others["model_a"].map(families.get) == others["model_b"].map(families.get)
    if related.all() or not related.any():
        return ONE_FAMILY if len(others) else "there is one model"
    return Measured.of([mean(others.loc[related, "value"]) - mean(others.loc[~related, "value"])])


def lower_layers_are_shared(results: Results) -> Measured | str | None:
    """Mean CKA of the lower half of a model's layers with other families' layers, less that of the upper half."""
    ((_, run),) = results.of("compare")
    families, pairs = results.families, _pairs(run, "cka")
    foreign = pairs.loc[pairs["model_a"].map(families.get) != pairs["model_b"].map(families.get)]
    if foreign.empty:
        return ONE_FAMILY
    return Measured.of([_lower_less_upper(own, "layer_a") for _, own in foreign.groupby("model_a")])


def neighbours_are_alike(results: Results) -> Measured | None:
    """Mean CKA of adjacent layers less that of more distant ones, for each model."""
    ((_, run),) = results.of("compare")
    pairs = _pairs(run, "cka")
    values = []
    for _, own in pairs.loc[pairs["model_a"] == pairs["model_b"]].groupby("model_a"):
        distance = (own["layer_a"] - own["layer_b"]).abs()
        values.append(mean(own.loc[distance == 1, "value"]) - mean(own.loc[distance > 1, "value"]))
    return Measured.of(values)


def upper_layers_are_localized(results: Results) -> Measured | None:
    """Spearman's correlation of layer and localization."""
    ((_, run),) = results.of("compare")
    curves = run.tables["curves"]
    localization = curves.loc[curves["curve"] == "localization"]
    return Measured.of([_rank_correlation(own) for _, own in localization.groupby("model")])


def _rank_correlation(own: pd.DataFrame) -> float:
    ordered = own.sort_values("layer")["value"].rank().to_numpy(dtype=float)
    return float(np.corrcoef(ordered, np.arange(len(ordered)))[0, 1]) if len(ordered) > 2 else np.nan


def random_is_unlike(results: Results) -> Measured | None:
    """Mean CKA among a trained model's layers, less that of its layers with its random twin's."""
    ((_, run),) = results.of("random")
    pairs = _pairs(run, "cka")
    values = []
    for model in [name for name in pairs["model_a"].unique() if not str(name).endswith("(random)")]:
        own = pairs.loc[(pairs["model_a"] == model) & (pairs["model_b"] == model)]
        twin = pairs.loc[(pairs["model_a"] == model) & (pairs["model_b"] == f"{model} (random)")]
        values.append(mean(own.loc[own["layer_a"] != own["layer_b"], "value"]) - mean(twin["value"]))
    return Measured.of(values)


def tuning_changes_the_top(results: Results, measure: str) -> Measured | None:
    """Likeness of the same layer before and after: lower half less upper half, for each model and task."""
    values = []
    for step, run in results.of("tuned"):
        pairs = _pairs(run, measure)
        base = pairs.loc[(pairs["model_a"] == step.model) & (pairs["model_b"] != step.model)]
        same_layer = base.loc[base["layer_a"] == base["layer_b"]]
        values += [_lower_less_upper(own, "layer_a") for _, own in same_layer.groupby("model_b")]
    return Measured.of(values)


def _lower_less_upper(rows: pd.DataFrame, layer: str) -> float:
    half = rows[layer].max() / 2
    return mean(rows.loc[rows[layer] <= half, "value"]) - mean(rows.loc[rows[layer] > half, "value"])


def tuning_spreads_the_top(results: Results) -> Measured | None:
    """Localization of the last layer before fine-tuning, less that after."""
    values = []
    for step, run in results.of("tuned"):
        curves = run.tables["curves"]
        local = curves.loc[curves["curve"] == "localization"]
        top = local.loc[local["layer"] == local["layer"].max()]
        last = dict(zip(top["model"], top["value"], strict=True))
        values += [last[step.model] - value for name, value in last.items() if name != step.model]
    return Measured.of(values)


def freezing_the_bottom_costs_less(results: Results) -> Measured | None:
    """Test score with the lowest layers frozen less that with as many of the highest, for each model, task, number."""
    scores = {(step.model, step.task, step.variant): _test_score(run) for step, run in results.of("frozen")}
    return Measured.of(
        [
            value - scores[model, task, variant.replace("bottom", "top")]
            for (model, task, variant), value in scores.items()
            if variant.startswith("bottom")
        ]
    )


def _test_score(run: Run) -> float:
    return float(run.summary[f"test {run.summary['metric']}"])


def frozen_score(task: str, variant: str, model: str, results: Results) -> float | None:
    """The test score of a model on a task with some layers frozen."""
    found = results.of("frozen" if variant else "finetune", model=model, task=task, variant=variant)
    return _test_score(found[0][1]) if found else None
