"""Does better alignment go with better scores downstream? Correlation over runs (table 4.11 of the thesis)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import xxhash

from residuum.errors import SettingError
from residuum.evaluation.retrieval import COMMAND as RETRIEVAL
from residuum.evaluation.retrieval import Retrieval
from residuum.maths.statistics import Correlation, pearson, spearman
from residuum.storage.results import Result, Run, clear_content_errors, finished_run, read_run, write_run

COMMAND = "evaluate correlate"
MEASURES = {"pearson": pearson, "spearman": spearman}


@dataclass(frozen=True, eq=False)
class AlignmentCorrelation(Result):
    """How retrieval accuracy goes with downstream scores over models."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """direction, score, layers, measure, value, low, high, p_value and runs."""
        return self.run.tables["correlations"]


def correlate_alignment(
    retrievals: Mapping[str, Retrieval | str | Path],
    downstream: Mapping[str, float | str | Path],
    *,
    level: float = 0.95,
    out: str | Path | None = None,
    fresh: bool = False,
) -> AlignmentCorrelation:
    """Correlate the retrieval accuracy of some models with their downstream scores, both named by model.

    A downstream score is a number, or the folder of a run of `adapt` with one strategy or of `evaluate adapted`.

    For each direction, score and choice of layers that all runs have: Pearson's and Spearman's correlation with
    intervals and p-values. A run's accuracy is its mean over pairs of languages.
    """
    if set(retrievals) != set(downstream) or len(retrievals) < 2:
        raise SettingError(
            f"Retrieval is given for {_listed(retrievals)}, downstream scores for {_listed(downstream)}; "
            "expected both for the same two or more models."
        )
    scores = {name: _downstream(value) for name, value in downstream.items()}
    accuracies = {name: _accuracies(retrieval) for name, retrieval in retrievals.items()}
    config = {"retrievals": _identities(accuracies), "downstream": scores, "level": level}
    if out is not None and (found := finished_run(out, COMMAND, config, fresh=fresh)):
        return AlignmentCorrelation(found)
    table = _correlations(accuracies, scores, level)
    run = Run(COMMAND, config, {"models": len(scores)}, {"correlations": table})
    if out is not None:
        write_run(out, run)
    return AlignmentCorrelation(run)


def _correlations(accuracies: Mapping[str, pd.Series], downstream: Mapping[str, float], level: float) -> pd.DataFrame:
    aligned = pd.DataFrame(dict(accuracies)).dropna()
    if aligned.empty:
        raise SettingError(
            "The runs have no score and choice of layers in common; evaluate them with the same --layers."
        )
    scores = np.array([downstream[name] for name in aligned.columns], dtype=float)
    rows = [
        {
            **dict(zip(aligned.index.names, key, strict=True)),
            "measure": name,
            **_row(measure(values, scores, level=level)),
        }
        for key, values in zip(aligned.index, aligned.to_numpy(dtype=float), strict=True)
        for name, measure in MEASURES.items()
    ]
    return pd.DataFrame(rows)


def _accuracies(retrieval: Retrieval | str | Path) -> pd.Series:
    """The mean accuracy over pairs of languages, by direction, score and layers."""
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


def _downstream(score: float | str | Path) -> float:
    """A score as it is, or the first test score of a run: zero-shot, the mean over languages."""
    if not isinstance(score, str | Path):
        return float(score)
    run = read_run(score)
    with clear_content_errors(run.command, run.folder):
        return _test_score(run, score)


def _test_score(run: Run, folder: str | Path) -> float:
    if run.command == "evaluate adapted":
        return float(run.tables["scores"]["value"].iloc[0])
    found = run.summary.get(f"test {run.summary.get('metric')}") if run.command == "adapt" else None
    if not isinstance(found, dict) or len(found) != 1:
        named = f" with the strategies {', '.join(found)}" if isinstance(found, dict) else ""
        raise SettingError(
            f"{folder} holds a run of `{run.command}`{named}; expected one of `adapt` with one strategy or of "
            "`evaluate adapted`, or write the number."
        )
    return float(next(iter(found.values())))


def _identities(accuracies: Mapping[str, pd.Series]) -> dict[str, str]:
    """What each run measured, for the config."""
    return {name: xxhash.xxh3_64_hexdigest(values.to_csv().encode()) for name, values in accuracies.items()}


def _row(found: Correlation) -> dict[str, float]:
    return {"value": found.r, "low": found.low, "high": found.high, "p_value": found.p_value, "runs": found.n}


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "no model"
