"""Whether a finding holds: from our numbers, their intervals and a rule, never by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from residuum.studies.estimates import Estimate

HOLDS, DOES_NOT_HOLD, UNCLEAR, NOT_MEASURED = "holds", "does not hold", "unclear", "not measured"


@dataclass(frozen=True)
class Rule:
    """A number agrees with a finding where it lies above (or below) a bound."""

    bound: float
    above: bool = True

    def agrees(self, value: float) -> bool:
        """Whether one number agrees; one that is not a number does not."""
        return value > self.bound if self.above else value < self.bound

    def __str__(self) -> str:
        return f"{'>' if self.above else '<'} {self.bound:g}"


@dataclass(frozen=True)
class Measured:
    """A number with its interval for each case (a model, or a model and a task): a finding is about all of them."""

    cases: Mapping[str, Estimate]
    note: str = ""

    @staticmethod
    def of(cases: Mapping[str, Estimate], note: str = "") -> Measured | None:
        """The cases that have a number; None where none has."""
        known = {name: one for name, one in cases.items() if not math.isnan(one.value)}
        return Measured(known, note) if known else None

    @staticmethod
    def counted(cases: Mapping[str, float], note: str = "") -> Measured | None:
        """Cases whose numbers were counted, and have no intervals of their own."""
        return Measured.of({name: Estimate.counted(value) for name, value in cases.items()}, note)

    @property
    def values(self) -> tuple[float, ...]:
        """The number of each case."""
        return tuple(one.value for one in self.cases.values())

    @property
    def mean(self) -> float:
        """The mean over cases."""
        return math.fsum(self.values) / len(self.values)

    @property
    def low(self) -> float:
        """The lowest end of the intervals of all cases."""
        return min(one.low for one in self.cases.values())

    @property
    def high(self) -> float:
        """The highest end of the intervals of all cases."""
        return max(one.high for one in self.cases.values())


def verdict(measured: Measured | None, rule: Rule) -> str:
    """By the interval that covers those of all cases: `unclear` where it contains the bound, be it at its very end."""
    if measured is None:
        return NOT_MEASURED
    if measured.low <= rule.bound <= measured.high:
        return UNCLEAR
    return HOLDS if rule.agrees(measured.mean) else DOES_NOT_HOLD


def agreeing_cases(measured: Measured, rule: Rule) -> int:
    """How many cases agree with a rule, by their numbers alone."""
    return sum(rule.agrees(value) for value in measured.values)
