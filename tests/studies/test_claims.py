"""Intervals of differences, ratios, means and accuracies, and the verdicts that follow from them."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from residuum.storage.results import Run
from residuum.studies.claims import DOES_NOT_HOLD, HOLDS, INCONCLUSIVE, Evidence, Measurement, Rule


def counted(*values):
    return Evidence.exact({f"case {i}": value for i, value in enumerate(values)})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.1, 0.2), HOLDS),
        ((-0.1, -0.2), DOES_NOT_HOLD),
        ((0.1, -0.2), INCONCLUSIVE),
        ((0.0,), INCONCLUSIVE),  # a tie, as between two scores of 100 %, says neither
    ],
)
def test_a_claim_holds_where_all_cases_agree_and_fails_where_none_does(values, expected):
    assert counted(*values).verdict(Rule(0.0)) == expected


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Measurement(0.1, 0.05, 0.2), HOLDS),
        (Measurement(0.1, -0.05, 0.2), INCONCLUSIVE),
        (Measurement(-0.1, -0.2, 0.05), INCONCLUSIVE),
        (Measurement(-0.1, -0.2, -0.05), DOES_NOT_HOLD),
    ],
)
def test_an_interval_that_contains_the_bound_leaves_a_claim_inconclusive(interval, expected):
    assert Evidence({"all": interval}).verdict(Rule(0.0)) == expected


def test_one_wide_interval_makes_a_claim_inconclusive():
    sure, unsure = Measurement(0.3, 0.2, 0.4), Measurement(0.3, -0.1, 0.7)
    measured = Evidence({"sure": sure, "unsure": unsure})
    assert measured.verdict(Rule(0.0)) == INCONCLUSIVE
    assert (measured.low, measured.high) == (-0.1, 0.7)
    assert measured.supporting(Rule(0.0)) == 2


def test_a_rule_can_ask_for_less():
    few = counted(0.05, 0.07)
    assert few.verdict(Rule(0.1, above=False)) == HOLDS
    assert few.verdict(Rule(0.06, above=False)) == INCONCLUSIVE
    assert few.supporting(Rule(0.06, above=False)) == 1
    assert str(Rule(0.1, above=False)) == "below 0.1"


def test_without_a_number_nothing_can_be_said():
    assert Evidence.exact({"a": math.nan}) is None


def test_cases_without_a_number_are_left_out():
    measured = counted(0.5, math.nan, 0.1)
    assert measured is not None
    assert measured.values == (0.5, 0.1)
    assert measured.mean == pytest.approx(0.3)


def normal(value, error):
    reach = stats.norm.ppf(0.975) * error
    return Measurement(value, value - reach, value + reach)


def test_the_difference_of_normal_numbers_has_the_root_of_the_summed_squares():
    found = normal(5.0, 0.3) - normal(2.0, 0.4)
    expected = normal(3.0, 0.5)
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_a_lopsided_interval_stays_lopsided_and_turns_round_when_taken_away():
    lopsided, sure = Measurement(1.0, 0.9, 1.4), Measurement.exact(0.5)
    assert (lopsided - sure) == Measurement(0.5, pytest.approx(0.4), pytest.approx(0.9))
    assert (sure - lopsided) == Measurement(-0.5, pytest.approx(-0.9), pytest.approx(-0.4))


def test_the_interval_of_a_ratio_covers_it_nineteen_times_in_twenty():
    rng = np.random.default_rng(0)
    a, b, error = 0.9, 0.6, 0.03
    pairs = rng.normal([a, b], error, size=(2000, 2))
    covered = [r.low <= a / b <= r.high for r in (normal(x, error) / normal(y, error) for x, y in pairs)]
    assert 0.93 < np.mean(covered) < 0.97


def test_a_mean_of_rows_is_as_wide_as_they_are():
    rows = pd.DataFrame({"value": [1.0, 3.0], "low": [0.5, math.nan], "high": [1.5, math.nan]})
    assert Measurement.mean(rows) == Measurement(2.0, 1.75, 2.25)
    unknown = Measurement.mean(rows.iloc[1:])
    assert (unknown.value, math.isnan(unknown.low), math.isnan(unknown.high)) == (3.0, True, True)
    assert Evidence({"exact": Measurement.exact(4.0), "unknown": unknown}).verdict(Rule(0.0)) == INCONCLUSIVE
    assert Measurement.mean(rows[["value"]]) == Measurement.exact(2.0)
    assert math.isnan(Measurement.mean(rows.iloc[:0]).value)


def test_the_interval_of_an_accuracy_covers_it_nineteen_times_in_twenty():
    rng = np.random.default_rng(0)
    drawn = rng.binomial(100, 0.9, size=2000) / 100
    covered = [found.low <= 0.9 <= found.high for found in (Measurement.accuracy(value, 100) for value in drawn)]
    assert 0.93 < np.mean(covered) < 0.98


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_few_answers_all_alike_do_not_make_certainty(value):
    found = Measurement.accuracy(value, 20)
    assert found.low <= value <= found.high
    assert found.high - found.low > 0.1
    assert Measurement.accuracy(value, 2000).high - Measurement.accuracy(value, 2000).low < 0.01


def test_a_correlation_of_few_points_has_no_interval():
    x = np.array([0.0, 1.0, 2.0])
    found = Measurement.correlation(x, x)
    assert (found.low, found.value, found.high) == pytest.approx((1.0, 1.0, 1.0))
    y = np.array([0.0, 2.0, 1.0, 3.0, 5.0])
    found = Measurement.correlation(np.arange(5.0), y)
    assert found.value == pytest.approx(np.corrcoef(np.arange(5.0), y)[0, 1])
    assert -1 < found.low < found.value < found.high < 1


def test_only_accuracy_is_a_share_of_answers():
    def tuned(metric):
        return Run("finetune", {}, {"metric": metric, f"test {metric}": 0.8, "examples": {"test": 50}})

    assert Measurement.test_score(tuned("accuracy")) == Measurement.accuracy(0.8, 50)
    assert Measurement.test_score(tuned("pearson")) == Measurement.exact(0.8)
