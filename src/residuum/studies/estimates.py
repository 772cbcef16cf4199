"""Numbers with their 95 % intervals, and what becomes of these in means, differences and ratios."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from residuum.maths.statistics import pearson
from residuum.storage.results import Run

NORMAL = 1.959963984540054  # the 97.5 % quantile of the normal distribution
TINY = 1e-12  # below it a bound of a positive number is no longer told from 0


@dataclass(frozen=True)
class Estimate:
    """A number and its interval; a number that was counted, not sampled, is its own interval."""

    value: float
    low: float
    high: float

    @staticmethod
    def counted(value: float) -> Estimate:
        """A number without an interval of its own, such as a share of neurons."""
        return Estimate(float(value), float(value), float(value))

    def __sub__(self, other: Estimate) -> Estimate:
        """The difference, by the variances recovered from both intervals (MOVER, Zou and Donner 2008).

        low = a − b − √((a − low_a)² + (high_b − b)²), and so for high. It takes the errors as independent; those of
        two numbers from the same words go together, so that this interval is rather too wide than too narrow.
        """
        value = self.value - other.value
        below = math.hypot(self.value - self.low, other.high - other.value)
        above = math.hypot(self.high - self.value, other.value - other.low)
        return Estimate(value, value - below, value + above)

    def __truediv__(self, other: Estimate) -> Estimate:
        """The ratio of two positive numbers: the same rule for the difference of their logarithms."""
        logarithm = self._log() - other._log()
        return Estimate(self.value / other.value, math.exp(logarithm.low), math.exp(logarithm.high))

    def _log(self) -> Estimate:
        low, value, high = (math.log(max(part, TINY)) for part in (self.low, self.value, self.high))
        return Estimate(value, low, high)


def mean_estimate(rows: pd.DataFrame, column: str = "value") -> Estimate:
    """The mean of a column, and of the columns `low` and `high` where they are known.

    Rows come from the same text and their errors go together, so averaging does not narrow the interval.
    """
    values = rows[column].to_numpy(dtype=float)
    if not values.size:
        return Estimate.counted(math.nan)
    low, high = (_bounds(rows, name, values).mean() for name in ("low", "high"))
    return Estimate(float(values.mean()), float(low), float(high))


def accuracy_estimate(value: float, examples: int) -> Estimate:
    """A share of right answers with the interval of Agresti and Coull (1998): two right and two wrong are added."""
    n = examples + NORMAL**2
    centre = (value * examples + NORMAL**2 / 2) / n
    reach = NORMAL * math.sqrt(centre * (1 - centre) / n)
    return Estimate(value, min(max(centre - reach, 0.0), value), max(min(centre + reach, 1.0), value))


def correlation_estimate(x: np.ndarray, y: np.ndarray) -> Estimate:
    """Pearson's correlation with Fisher's interval, which needs four points."""
    found = pearson(x, y)
    if math.isnan(found.low):
        return Estimate.counted(found.r)
    return Estimate(found.r, found.low, found.high)


def tested_score(run: Run) -> float:
    """What a fine-tuned model scores on its test part."""
    return score_on_test(run).value


def score_on_test(run: Run) -> Estimate:
    """What a fine-tuned model scores on its test part, of several seeds the mean; only accuracy has an interval."""
    metric = run.summary["metric"]
    value = float(run.summary[f"test {metric}"])
    return (
        accuracy_estimate(value, run.summary["examples"]["test"]) if metric == "accuracy" else Estimate.counted(value)
    )


def _bounds(rows: pd.DataFrame, name: str, values: np.ndarray) -> np.ndarray:
    """A column of bounds, with the value itself where there is none."""
    if name not in rows:
        return values
    bounds = rows[name].to_numpy(dtype=float)
    return np.where(np.isnan(bounds), values, bounds)
