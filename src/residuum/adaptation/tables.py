"""The tables of an `adapt` run, with intervals over seeds and draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from residuum.maths.statistics import jackknife

KEYS = ["strategy", "language", "k", "part", "metric"]
RANGES = dict.fromkeys(("pearson", "spearman", "matthews"), (-1.0, 1.0)) | {"mean_squared_error": (0.0, np.inf)}
SHARE = (0.0, 1.0)  # the range of all other metrics


def mean_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """strategy, language, k, part, metric, value, low, high, n: the mean over seeds and draws.

    The interval is Student's, 95 %; draws of one seed share its first stage, so with one seed it tells how much the few
    examples matter, not how much the seed does. It ends where the metric does. One value alone has none.
    """
    rows = []
    for _, own in scores.groupby(KEYS, sort=False):
        values, keys = own["value"].to_numpy(dtype=float), own.iloc[0][KEYS].to_dict()
        rows.append({**keys, **_interval(values, RANGES.get(keys["metric"], SHARE)), "n": len(values)})
    return pd.DataFrame(rows)


def strategy_table(means: pd.DataFrame, metric: str, part: str, k: int = 0) -> pd.DataFrame:
    """Scores after k examples, a row a language and a column a strategy; the last of several rows is their average."""
    chosen = means.loc[(means["metric"] == metric) & (means["part"] == part) & (means["k"] == k)]
    table = chosen.pivot(index="language", columns="strategy", values="value")
    table = table.loc[list(dict.fromkeys(chosen["language"])), list(dict.fromkeys(chosen["strategy"]))]
    if len(table) > 1:
        table.loc["average"] = table.mean(axis=0)
    return table.reset_index().rename_axis(columns=None)


def strategy_averages(means: pd.DataFrame, metric: str, part: str) -> dict[str, float]:
    """The last row of `strategy_table`, by strategy: what each scores over all languages."""
    table = strategy_table(means, metric, part).set_index("language")
    return dict(zip(map(str, table.columns), table.to_numpy(dtype=float)[-1].tolist(), strict=True))


def below_each_other(tables: Sequence[tuple[dict[str, object], pd.DataFrame]]) -> pd.DataFrame:
    """Tables in one, each row led by what its table is of."""
    led = []
    for labels, frame in tables:
        columns = {name: frame[name] for name in frame.columns}
        led.append(pd.DataFrame({**labels, **columns}))
    return pd.concat(led, ignore_index=True)


def _interval(values: np.ndarray, bounds: tuple[float, float]) -> dict[str, float]:
    n, mean = len(values), float(values.mean())
    left_out = (values.sum() - values) / (n - 1) if n > 1 else values[:0]
    found = jackknife(np.asarray(mean), left_out)
    low, high = np.clip([found.low, found.high], *bounds)
    return {"value": mean, "low": float(low), "high": float(high)}
