"""Whether a finding held: from our numbers and a rule, never by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

HELD, DID_NOT_HOLD, CANNOT_BE_SAID = "held", "did not hold", "cannot be said"


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
    """A number for each case (a model, or a model and a task): a finding is about all of them."""

    values: tuple[float, ...]
    note: str = ""

    @staticmethod
    def of(values: Sequence[float], note: str = "") -> Measured | None:
        """The cases that have a number; None where none has."""
        known = tuple(float(value) for value in values if not math.isnan(value))
        return Measured(known, note) if known else None

    @property
    def mean(self) -> float:
        """The mean over cases."""
        return math.fsum(self.values) / len(self.values)


def verdict(measured: Measured | None, rule: Rule) -> str:
    """`held` where all cases agree, `did not hold` where none does; else, or without a case, it cannot be said."""
    if measured is None:
        return CANNOT_BE_SAID
    agreeing = agreeing_cases(measured, rule)
    if agreeing == len(measured.values):
        return HELD
    return CANNOT_BE_SAID if agreeing else DID_NOT_HOLD


def agreeing_cases(measured: Measured, rule: Rule) -> int:
    """How many cases agree with a rule."""
    return sum(rule.agrees(value) for value in measured.values)
