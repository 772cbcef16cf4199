"""A verdict follows from the numbers of all cases, their intervals and a rule."""

import math

import pytest

from residuum.studies.estimates import Estimate
from residuum.studies.verdicts import (
    DOES_NOT_HOLD,
    HOLDS,
    NOT_MEASURED,
    UNCLEAR,
    Measured,
    Rule,
    agreeing_cases,
    verdict,
)


def counted(*values):
    return Measured.counted({f"case {i}": value for i, value in enumerate(values)})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.1, 0.2), HOLDS),
        ((-0.1, -0.2), DOES_NOT_HOLD),
        ((0.1, -0.2), UNCLEAR),
        ((0.0,), UNCLEAR),  # a tie, as between two scores of 100 %, says neither
    ],
)
def test_a_finding_holds_where_all_cases_agree_and_fails_where_none_does(values, expected):
    assert verdict(counted(*values), Rule(0.0)) == expected


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Estimate(0.1, 0.05, 0.2), HOLDS),
        (Estimate(0.1, -0.05, 0.2), UNCLEAR),
        (Estimate(-0.1, -0.2, 0.05), UNCLEAR),
        (Estimate(-0.1, -0.2, -0.05), DOES_NOT_HOLD),
    ],
)
def test_an_interval_that_contains_the_bound_leaves_a_finding_unclear(interval, expected):
    assert verdict(Measured({"all": interval}), Rule(0.0)) == expected


def test_one_wide_interval_is_enough_to_make_it_unclear():
    sure, unsure = Estimate(0.3, 0.2, 0.4), Estimate(0.3, -0.1, 0.7)
    measured = Measured({"sure": sure, "unsure": unsure})
    assert verdict(measured, Rule(0.0)) == UNCLEAR
    assert (measured.low, measured.high) == (-0.1, 0.7)
    assert agreeing_cases(measured, Rule(0.0)) == 2


def test_a_rule_can_ask_for_less():
    few = counted(0.05, 0.07)
    assert verdict(few, Rule(0.1, above=False)) == HOLDS
    assert verdict(few, Rule(0.06, above=False)) == UNCLEAR
    assert agreeing_cases(few, Rule(0.06, above=False)) == 1
    assert str(Rule(0.1, above=False)) == "< 0.1"


def test_without_a_number_nothing_can_be_said():
    assert Measured.counted({"a": math.nan}) is None
    assert verdict(None, Rule(0.0)) == NOT_MEASURED


def test_cases_without_a_number_are_left_out():
    measured = counted(0.5, math.nan, 0.1)
    assert measured is not None
    assert measured.values == (0.5, 0.1)
    assert measured.mean == pytest.approx(0.3)
