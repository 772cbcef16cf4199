"""What the findings on distilled and multilingual models come to in numbers: each function, one for every case."""

from __future__ import annotations

import numpy as np
import pandas as pd

from residuum.results import Run
from residuum.studies.declarations import Results
from residuum.studies.numbers import mean
from residuum.studies.verdicts import Measured

CUT, HIGH = 0.3, 0.8  # clustering thresholds
ONE_MODEL = "there is no distilled model"


def distilled_layers_follow_the_original(results: Results) -> Measured | str | None:
    """Pearson's correlation of the layer averages of the original and of each other model, at equal relative depth."""
    ((_, run),) = results.of("compare")
    curves = run.tables["curves"]
    averages = curves.loc[curves["curve"] == "layer_average"]
    original, *others = (own.sort_values("layer") for _, own in averages.groupby("model", sort=False))
    if not others:
        return ONE_MODEL
    return Measured.of([_correlation(original, other) for other in others])


def clustering_keeps_the_score(results: Results) -> Measured | None:
    """The score at the threshold 0.3 as a share of that of all neurons, for each model and task."""
    return Measured.of([_score(run, CUT) / _score(run, 0.0) for _, run in results.of("redundancy")])


def distilled_models_reach_the_original(results: Results) -> Measured | str | None:
    """The score of all neurons less that of the original, for each other model and task."""
    scores = {(step.model, step.task): _score(run, 0.0) for step, run in results.of("redundancy")}
    first = next(iter(scores))[0]
    others = [value - scores[first, task] for (model, task), value in scores.items() if model != first]
    return Measured.of(others) if others else ONE_MODEL


def survivors_lie_low(results: Results) -> Measured | None:
    """The share of representatives at the threshold 0.8 in the lower half of the layers; the first of each cluster."""
    values = []
    for _, run in results.of("redundancy"):
        table = run.tables["survivors"]
        high = table.loc[table["threshold"] == HIGH]
        low = high.loc[high["layer"] <= high["layer"].max() / 2, "first"]
        values.append(sum(low.tolist()) / sum(high["first"].tolist()))
    return Measured.of(values)


def germanic_languages_are_nearest(results: Results) -> Measured | str | None:
    """Mean score in Germanic languages less that in others, with all neurons, for each model and task."""
    values = []
    for _, run in results.of("languages"):
        abroad = _abroad(run)
        for _, own in abroad.groupby("model", sort=False):
            germanic = own["family"] == "Germanic"
            values.append(mean(own.loc[germanic, "score"]) - mean(own.loc[~germanic, "score"]))
    return Measured.of(values) or "there are no languages of both kinds"


def distilled_models_transfer_nearly_as_well(results: Results) -> Measured | str | None:
    """Mean score in other languages less the original's, for each other model and task."""
    values = []
    for _, run in results.of("languages"):
        first, *others = (mean(own["score"]) for _, own in _abroad(run).groupby("model", sort=False))
        values += [other - first for other in others]
    return Measured.of(values) or ONE_MODEL


def _correlation(original: pd.DataFrame, other: pd.DataFrame) -> float:
    """Of two curves, the longer one read at the depths of the shorter."""
    depths = (other["layer"] / other["layer"].max()).to_numpy(dtype=float)
    places = (original["layer"] / original["layer"].max()).to_numpy(dtype=float)
    expected = np.interp(depths, places, original["value"].to_numpy(dtype=float))
    return float(np.corrcoef(expected, other["value"].to_numpy(dtype=float))[0, 1])


def _score(run: Run, threshold: float) -> float:
    table = run.tables["thresholds"]
    return mean(table.loc[table["threshold"] == threshold, "test"])


def _abroad(run: Run) -> pd.DataFrame:
    """The scores of all neurons in languages that were not learnt from."""
    table = run.tables["languages"]
    return table.loc[(table["threshold"] == 0) & (table["language"] != run.config["source"])]
