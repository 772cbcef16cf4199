"""Claims of a document and the verdict on each: it follows from our numbers, their 95 % intervals and a rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from residuum.maths.statistics import pearson
from residuum.storage.results import Run

if TYPE_CHECKING:
    from residuum.studies.documents import Results

HOLDS, DOES_NOT_HOLD, INCONCLUSIVE, NOT_MEASURED = "holds", "does not hold", "inconclusive", "not measured"
NORMAL = 1.959963984540054  # the 97.5 % quantile of the normal distribution
TINY = 1e-12  # positive bounds below this are treated as this, so that their logarithm exists


@dataclass(frozen=True)
class Measurement:
    """A number and its 95 % interval; a number that was counted rather than sampled is its own interval."""

    value: float
    low: float
    high: float

    @staticmethod
    def exact(value: float) -> Measurement:
        """A number without sampling error, such as a fraction of neurons."""
        return Measurement(float(value), float(value), float(value))

    @staticmethod
    def mean(rows: pd.DataFrame, column: str = "value") -> Measurement:
        """The mean of a column, and the means of the columns `low` and `high` where they are known.

        Where these columns hold no bound at all the interval is unknown (NaN), not exact. The rows come from the same
        text and their errors are correlated, so averaging does not narrow the interval.
        """
        values = rows[column].to_numpy(dtype=float)
        if not values.size:
            return Measurement.exact(math.nan)
        bounds = [rows[name].to_numpy(dtype=float) if name in rows else values for name in ("low", "high")]
        if all(np.isnan(bound).all() for bound in bounds):
            return Measurement(float(values.mean()), math.nan, math.nan)
        low, high = (float(np.where(np.isnan(bound), values, bound).mean()) for bound in bounds)
        return Measurement(float(values.mean()), low, high)

    @staticmethod
    def sampled(values: Sequence[float] | np.ndarray) -> Measurement:
        """The mean of values (of tasks, or of pairs of languages) with Student's interval over them, 95 %."""
        mean = Measurement.exact(float(np.mean(values)))
        return mean.over_seeds(np.asarray(values, dtype=float))

    @staticmethod
    def accuracy(value: float, examples: int) -> Measurement:
        """A fraction of correct answers with the interval of Agresti and Coull (1998), also wide at 0 % and 100 %."""
        n = examples + NORMAL**2
        centre = (value * examples + NORMAL**2 / 2) / n
        reach = NORMAL * math.sqrt(centre * (1 - centre) / n)
        return Measurement(value, min(max(centre - reach, 0.0), value), max(min(centre + reach, 1.0), value))

    @staticmethod
    def correlation(x: np.ndarray, y: np.ndarray) -> Measurement:
        """Pearson's correlation with Fisher's interval, which needs four points."""
        result = pearson(x, y)
        if math.isnan(result.low):
            return Measurement.exact(result.r)
        return Measurement(result.r, result.low, result.high)

    @staticmethod
    def test_score(run: Run) -> Measurement:
        """The test score of a fine-tuned model, averaged over seeds.

        The interval joins both sources of error: the choice of examples (only accuracy has a known one) and, with at
        least two seeds, Student's interval over seeds; their half-widths add in squares.
        """
        metric = run.summary["metric"]
        value = float(run.summary[f"test {metric}"])
        score = Measurement.exact(value)
        if metric == "accuracy":
            score = Measurement.accuracy(value, run.summary["examples"]["test"])
        if "scores" not in run.tables:
            return score
        table = run.tables["scores"]
        return score.over_seeds(table.loc[(table["part"] == "test") & (table["metric"] == metric), "value"].to_numpy())

    @staticmethod
    def test_accuracy(run: Run) -> float:
        """The accuracy of a fine-tuned model on the test part, averaged over seeds; NaN for a regression.

        The documents print it for every task, also where a task's own metric is F1.
        """
        table = run.tables["scores"]
        return float(table.loc[(table["part"] == "test") & (table["metric"] == "accuracy"), "value"].mean())

    def over_seeds(self, values: np.ndarray) -> Measurement:
        """The same number with the error of its seeds, whose scores are `values`, added to that of its examples."""
        if len(values) < 2:
            return self
        reach = float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / math.sqrt(len(values)))
        low, high = (math.hypot(own, reach) for own in (self.value - self.low, self.high - self.value))
        return Measurement(self.value, self.value - low, self.value + high)

    def __sub__(self, other: Measurement) -> Measurement:
        """The difference, by the variances recovered from both intervals (MOVER, Zou and Donner 2008).

        low = a − b − √((a − low_a)² + (high_b − b)²), and high likewise. The errors are taken as independent; those of
        two numbers from the same words are correlated, so this interval is too wide rather than too narrow.
        """
        value = self.value - other.value
        below = math.hypot(self.value - self.low, other.high - other.value)
        above = math.hypot(self.high - self.value, other.value - other.low)
        return Measurement(value, value - below, value + above)

    def __truediv__(self, other: Measurement) -> Measurement:
        """The ratio of two positive numbers: the same rule for the difference of their logarithms."""
        logs = [
            Measurement(*(math.log(max(bound, TINY)) for bound in (number.value, number.low, number.high)))
            for number in (self, other)
        ]
        log_ratio = logs[0] - logs[1]
        return Measurement(self.value / other.value, math.exp(log_ratio.low), math.exp(log_ratio.high))


@dataclass(frozen=True)
class Rule:
    """A number supports a claim where it lies above (or below) a bound."""

    bound: float
    above: bool = True

    def supports(self, value: float) -> bool:
        """Whether a number supports the claim; NaN does not."""
        return value > self.bound if self.above else value < self.bound

    def __str__(self) -> str:
        return f"{'above' if self.above else 'below'} {self.bound:g}"


@dataclass(frozen=True)
class Evidence:
    """One number with its interval per case (a model, or a model and a task); a claim is about all of them."""

    cases: Mapping[str, Measurement]

    @staticmethod
    def of(cases: Mapping[str, Measurement]) -> Evidence | None:
        """The cases that have a number; None where none has."""
        known = {name: number for name, number in cases.items() if not math.isnan(number.value)}
        return Evidence(known) if known else None

    @staticmethod
    def exact(cases: Mapping[str, float]) -> Evidence | None:
        """Cases whose numbers were counted and have no interval."""
        return Evidence.of({name: Measurement.exact(value) for name, value in cases.items()})

    @property
    def values(self) -> tuple[float, ...]:
        """The number of each case."""
        return tuple(number.value for number in self.cases.values())

    @property
    def mean(self) -> float:
        """The mean over cases."""
        return math.fsum(self.values) / len(self.values)

    @property
    def low(self) -> float:
        """The lowest bound of any case; NaN where the interval of one is unknown."""
        return float(np.min([number.low for number in self.cases.values()]))

    @property
    def high(self) -> float:
        """The highest bound of any case; NaN where the interval of one is unknown."""
        return float(np.max([number.high for number in self.cases.values()]))

    def verdict(self, rule: Rule) -> str:
        """The verdict by the interval that covers those of all cases: inconclusive where it contains the bound.

        It is also inconclusive where an interval is unknown: a number alone decides nothing.
        """
        if not (rule.bound < self.low or rule.bound > self.high):
            return INCONCLUSIVE
        return HOLDS if rule.supports(self.mean) else DOES_NOT_HOLD

    def supporting(self, rule: Rule) -> int:
        """The number of cases that support the claim, ignoring intervals."""
        return sum(rule.supports(value) for value in self.values)


Measure = Callable[["Results"], Evidence | str | None]
"""Evidence for a claim; a sentence that says why these models or data cannot tell, or None."""


@dataclass(frozen=True, eq=False)
class Claim:
    """A finding of a document, where it stands there, our evidence for it, and when the evidence supports it."""

    where: str
    finding: str
    rule: Rule
    measure: Measure

    @property
    def quantity(self) -> str:
        """What the number of the claim is: the first line of what its function says of itself."""
        said = getattr(self.measure, "func", self.measure).__doc__ or ""
        return said.partition("\n")[0].removesuffix(".")


def claim(where: str, finding: str, *, above: float | None = None, below: float | None = None) -> Callable[..., Claim]:
    """Decorate the function that measures a claim: `@claim("§5.1, figure 1", "Neighbours are alike.", above=0)`.

    The first line of its docstring names the quantity wherever the claim is shown.
    """
    assert (above is None) != (below is None), "a claim has one bound"
    rule = Rule(above) if above is not None else Rule(below or 0.0, above=False)
    return lambda measure: Claim(where, finding, rule, measure)
