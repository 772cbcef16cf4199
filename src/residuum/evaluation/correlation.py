"""`evaluate correlate`: do models that align languages better score better downstream (table 4.11 of the thesis)?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xxhash

from residuum.errors import SettingError
from residuum.evaluation.retrieval import COMMAND as RETRIEVAL
from residuum.evaluation.retrieval import Retrieval
from residuum.evaluation.settings import CorrelationSettings
from residuum.maths.statistics import pearson, spearman
from residuum.settings import command, named_values
from residuum.storage.results import Result, Run, clear_content_errors, finished_run, read_run, write_run

COMMAND = "evaluate correlate"
MEASURES = {"pearson": pearson, "spearman": spearman}


@dataclass(frozen=True, eq=False)
class AlignmentCorrelation(Result):
    """Correlation of retrieval accuracy with downstream scores over models."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """direction, score, layers, measure, value, low, high, p_value and runs."""
        return self.run.tables["correlations"]

    def text(self) -> str:
        """One line per correlation."""
        return "\n".join(
            f"{row['direction']}  {row['score']:9}  layers {row['layers']:5}  {row['measure']} {row['value']:+.3f} "
            f"({row['low']:+.3f} to {row['high']:+.3f}), {row['runs']} models"
            for row in self.frame.to_dict("records")
        )


@command(CorrelationSettings)
def correlate_alignment(settings: CorrelationSettings) -> AlignmentCorrelation:
    """Correlate the retrieval accuracy of several models with their downstream scores, both named by model.

    A downstream score is a number, or the folder of a run of `adapt` with one strategy or of `evaluate adapted`. Per
    direction, score and choice of layers that all runs have: Pearson's and Spearman's correlation with intervals and
    p-values. A run's accuracy is its mean over language pairs.
    """
    retrievals, downstream = named_values(settings.retrievals), named_values(settings.downstream)
    if not isinstance(retrievals, Mapping) or not isinstance(downstream, Mapping):
        raise SettingError("Retrieval runs and downstream scores are matched by name; write all as NAME=FOLDER.")
    if set(retrievals) != set(downstream) or len(retrievals) < 2:
        named = [", ".join(names) or "no model" for names in (retrievals, downstream)]
        raise SettingError(
            f"Retrieval is given for {named[0]}, downstream scores for {named[1]}; expected both for the same two or "
            "more models."
        )
    scores = {name: _downstream_score(value) for name, value in downstream.items()}
    accuracies = {name: _accuracies(retrieval) for name, retrieval in retrievals.items()}
    prints = {name: xxhash.xxh3_64_hexdigest(values.to_csv().encode()) for name, values in accuracies.items()}
    config = {**settings.identity(), "retrievals": prints, "downstream": scores}
    if settings.out is not None and (run := finished_run(settings.out, COMMAND, config, fresh=settings.fresh)):
        return AlignmentCorrelation(run)
    aligned = pd.DataFrame(accuracies).dropna()
    if aligned.empty:
        raise SettingError(
            "The runs have no score and choice of layers in common; evaluate them with the same --layers."
        )
    downstream_scores = np.array([scores[name] for name in aligned.columns], dtype=float)
    rows = []
    for key, values in zip(aligned.index, aligned.to_numpy(dtype=float), strict=True):
        for name, measure in MEASURES.items():
            r = measure(values, downstream_scores, level=settings.level)
            estimate = {"value": r.r, "low": r.low, "high": r.high, "p_value": r.p_value, "runs": r.n}
            rows.append({**dict(zip(aligned.index.names, key, strict=True)), "measure": name, **estimate})
    table = pd.DataFrame(rows)
    run = Run(COMMAND, config, {"models": len(scores)}, {"correlations": table})
    if settings.out is not None:
        write_run(settings.out, run)
    return AlignmentCorrelation(run)


def _accuracies(retrieval: Retrieval | str | Path) -> pd.Series:
    """The mean accuracy over language pairs, by direction, score and layers."""
    if not isinstance(retrieval, Retrieval):
        run = read_run(retrieval)
        if run.command != RETRIEVAL:
            raise SettingError(f"{retrieval} holds a run of `{run.command}`; expected one of `{RETRIEVAL}`.")
        retrieval = Retrieval(run)
    with clear_content_errors(RETRIEVAL, retrieval.run.folder):
        keys = ["direction", "score", "layers"]
        table = retrieval.averages.astype({**dict.fromkeys(keys, str), "accuracy": float})
        accuracies = table.set_index(keys).loc[:, "accuracy"]
        if not accuracies.index.is_unique:
            raise ValueError("two averages of one direction, score and choice of layers")
        return accuracies


def _downstream_score(score: Any) -> float:
    """A number as it is, or the first test score of a run: zero-shot, the mean over languages."""
    try:
        return float(score)
    except (TypeError, ValueError):
        run = read_run(score)
    with clear_content_errors(run.command, run.folder):
        if run.command == "evaluate adapted":
            return float(run.tables["scores"]["value"].iloc[0])
        scores = run.summary.get(f"test {run.summary.get('metric')}") if run.command == "adapt" else None
        if isinstance(scores, dict) and len(scores) == 1:
            return float(next(iter(scores.values())))
        named = f" with the strategies {', '.join(scores)}" if isinstance(scores, dict) else ""
        raise SettingError(
            f"{score} holds a run of `{run.command}`{named}; expected one of `adapt` with one strategy or of "
            "`evaluate adapted`, or write the number."
        )
