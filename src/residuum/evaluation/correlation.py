"""Does better alignment go with better scores downstream? Correlation over runs (table 4.11 of the thesis)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from residuum.errors import SettingError
from residuum.evaluation.retrieval import COMMAND, Retrieval
from residuum.maths.rank_correlation import spearman
from residuum.maths.statistics import Correlation, pearson
from residuum.results import read_run

MEASURES = {"pearson": pearson, "spearman": spearman}


def correlate_alignment(
    retrievals: Mapping[str, Retrieval | str | Path], downstream: Mapping[str, float], *, level: float = 0.95
) -> pd.DataFrame:
    """Correlate the retrieval accuracy of some models with their downstream scores, both named by model.

    For each direction, score and choice of layers that all runs have: Pearson's and Spearman's correlation with
    intervals and p-values. A run's accuracy is its mean over pairs of languages. The result is a table with the
    columns direction, score, layers, measure, value, low, high, p_value and runs.
    """
    if set(retrievals) != set(downstream) or len(retrievals) < 2:
        raise SettingError(
            f"Retrieval is given for {_listed(retrievals)}, downstream scores for {_listed(downstream)}; "
            "expected both for the same two or more models."
        )
    aligned = pd.DataFrame({name: _accuracies(retrieval) for name, retrieval in retrievals.items()}).dropna()
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
        if run.command != COMMAND:
            raise SettingError(f"{retrieval} holds a run of `{run.command}`; expected one of `{COMMAND}`.")
        retrieval = Retrieval(run)
    return retrieval.averages.set_index(["direction", "score", "layers"]).loc[:, "accuracy"]


def _row(found: Correlation) -> dict[str, float]:
    return {"value": found.r, "low": found.low, "high": found.high, "p_value": found.p_value, "runs": found.n}


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "no model"
