"""The tables of `evaluate retrieval`: a row for each pair of languages, direction, score and choice of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from residuum.evaluation.layer_choices import LayerChoice
from residuum.evaluation.pairs import SentencePairs
from residuum.maths.retrieval import Ranks
from residuum.maths.statistics import bootstrap_mean

NORMAL = float(stats.norm.ppf(0.975))


@dataclass(frozen=True, eq=False)
class Outcome:
    """One row to be: the ranks of one direction by one score in one choice of layers."""

    task: SentencePairs
    score: str
    choice: LayerChoice
    backward: bool
    ranks: Ranks


def retrieval_table(outcomes: Sequence[Outcome], *, resamples: int, seed: int) -> tuple[pd.DataFrame, list[np.ndarray]]:
    """Accuracy and mean reciprocal rank with intervals, and what each sentence of each row earned."""
    hits = [outcome.ranks.hits for outcome in outcomes]
    rows = [_row(outcome, resamples, seed) for outcome in outcomes]
    return pd.DataFrame(rows).astype({"layer": "Int64"}), hits


def average_table(table: pd.DataFrame) -> pd.DataFrame:
    """The mean over pairs of languages; the interval takes their errors as independent."""
    averages = (
        table.groupby(["direction", "score", "layers"], sort=False)
        .agg(
            layer=("layer", "first"),
            pairs=("pair", "size"),
            accuracy=("accuracy", "mean"),
            mrr=("mrr", "mean"),
            error=("error", lambda errors: float(np.sqrt((errors**2).sum())) / len(errors)),
        )
        .reset_index()
    )
    reach = NORMAL * averages["error"]
    low, high = averages["accuracy"] - reach, averages["accuracy"] + reach
    return averages.assign(low=low.clip(lower=0), high=high.clip(upper=1))


def _row(outcome: Outcome, resamples: int, seed: int) -> dict[str, Any]:
    ranks, task = outcome.ranks, outcome.task
    values = np.stack([ranks.hits, ranks.reciprocals], axis=1)
    found = bootstrap_mean(values, resamples=resamples, rng=seed)
    query, candidates = task.languages[::-1] if outcome.backward else task.languages
    return {
        "pair": task.name,
        "direction": "backward" if outcome.backward else "forward",
        "query": query,
        "candidates": candidates,
        "score": outcome.score,
        "layers": outcome.choice.name,
        "layer": outcome.choice.layer,
        "sentences": len(values),
        "accuracy": found.value[0],
        "low": found.low[0],
        "high": found.high[0],
        "error": found.standard_error[0],
        "mrr": found.value[1],
        "mrr_low": found.low[1],
        "mrr_high": found.high[1],
    }
