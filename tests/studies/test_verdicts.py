"""A verdict follows from the numbers of all cases and a rule."""

import math

import pytest

from residuum.studies.verdicts import CANNOT_BE_SAID, DID_NOT_HOLD, HELD, Measured, Rule, agreeing_cases, verdict


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.1, 0.2), HELD),
        ((-0.1, -0.2), DID_NOT_HOLD),
        ((0.1, -0.2), CANNOT_BE_SAID),
        ((0.0,), DID_NOT_HOLD),
    ],
)
def test_a_finding_holds_where_all_cases_agree_and_fails_where_none_does(values, expected):
    assert verdict(Measured(values), Rule(0.0)) == expected


def test_a_rule_can_ask_for_less():
    few = Measured((0.05, 0.07))
    assert verdict(few, Rule(0.1, above=False)) == HELD
    assert verdict(few, Rule(0.06, above=False)) == CANNOT_BE_SAID
    assert agreeing_cases(few, Rule(0.06, above=False)) == 1
    assert str(Rule(0.1, above=False)) == "< 0.1"


def test_without_a_number_nothing_can_be_said():
    assert Measured.of([math.nan]) is None
    assert verdict(None, Rule(0.0)) == CANNOT_BE_SAID


def test_cases_without_a_number_are_left_out():
    measured = Measured.of([0.5, math.nan, 0.1])
    assert measured is not None
    assert measured.values == (0.5, 0.1)
    assert measured.mean == pytest.approx(0.3)
