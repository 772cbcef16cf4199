"""What the findings on distilled and multilingual models come to in numbers: each function, one for every case."""

from __future__ import annotations

import numpy as np
import pandas as pd

from residuum.storage.results import Run
from residuum.studies.declarations import Results
from residuum.studies.estimates import Estimate, correlation_estimate, mean_estimate
from residuum.studies.redundancy_findings import case_name
from residuum.studies.verdicts import Measured

CUT, HIGH = 0.3, 0.8  # clustering thresholds
ONE_MODEL = "there is no distilled model"


def distilled_layers_follow_the_original(results: Results) -> Measured | str | None:
    """Pearson's correlation of the layer averages of the original and of each other model, at equal relative depth."""
    ((_, run),) = results.of("compare")
    curves = run.tables["curves"]
    averages = curves.loc[curves["curve"] == "layer_average"]
    (_, original), *others = averages.sort_values("layer").groupby("model", sort=False)
    if not others:
        return ONE_MODEL
    return Measured.of({str(model): _correlation(original, other) for model, other in others})


def clustering_keeps_the_score(results: Results) -> Measured | None:
    """The score at the threshold 0.3 as a share of that of all neurons, for each model and task."""
    return Measured.of({case_name(step): _score(run, CUT) / _score(run, 0.0) for step, run in results.of("redundancy")})


def distilled_models_reach_the_original(results: Results) -> Measured | str | None:
    """The score of all neurons less that of the original, for each other model and task."""
    scores = {(step.model, step.task): _score(run, 0.0) for step, run in results.of("redundancy")}
    first = next(iter(scores))[0]
    others = {
        f"{model}, {task}": score - scores[first, task] for (model, task), score in scores.items() if model != first
    }
    return Measured.of(others) if others else ONE_MODEL


def survivors_lie_low(results: Results) -> Measured | None:
    """The share of representatives at the threshold 0.8 in the lower half of the layers; the first of each cluster."""
    cases = {}
    for step, run in results.of("redundancy"):
        table = run.tables["survivors"]
        high = table.loc[table["threshold"] == HIGH]
        low = high.loc[high["layer"] <= high["layer"].max() / 2, "first"]
        cases[case_name(step)] = sum(low.tolist()) / sum(high["first"].tolist())
    return Measured.counted(cases)


def germanic_languages_are_nearest(results: Results) -> Measured | str | None:
    """Mean score in Germanic languages less that in others, with all neurons, for each model and task."""
    cases = {}
    for step, run in results.of("languages"):
        for model, own in _abroad(run).groupby("model", sort=False):
            germanic = own["family"] == "Germanic"
            near, far = (mean_estimate(own.loc[chosen], "score") for chosen in (germanic, ~germanic))
            cases[f"{model}, {step.task}"] = near - far
    return Measured.of(cases) or "there are no languages of both kinds"


def distilled_models_transfer_nearly_as_well(results: Results) -> Measured | str | None:
    """Mean score in other languages less the original's, for each other model and task."""
    cases = {}
    for step, run in results.of("languages"):
        (_, original), *others = _abroad(run).groupby("model", sort=False)
        for model, own in others:
            cases[f"{model}, {step.task}"] = mean_estimate(own, "score") - mean_estimate(original, "score")
    return Measured.of(cases) or ONE_MODEL


def _correlation(original: pd.DataFrame, other: pd.DataFrame) -> Estimate:
    """Of two curves, the longer one read at the depths of the shorter."""
    depths = (other["layer"] / other["layer"].max()).to_numpy(dtype=float)
    places = (original["layer"] / original["layer"].max()).to_numpy(dtype=float)
    expected = np.interp(depths, places, original["value"].to_numpy(dtype=float))
    return correlation_estimate(expected, other["value"].to_numpy(dtype=float))


def _score(run: Run, threshold: float) -> Estimate:
    table = run.tables["thresholds"]
    return mean_estimate(table.loc[table["threshold"] == threshold], "test")


def _abroad(run: Run) -> pd.DataFrame:
    """The scores of all neurons in languages that were not learnt from."""
    table = run.tables["languages"]
    return table.loc[(table["threshold"] == 0) & (table["language"] != run.config["source"])]
