"""Intervals of differences, ratios, means and shares, against formulas and against drawing again and again."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from residuum.storage.results import Run
from residuum.studies.estimates import (
    Estimate,
    accuracy_estimate,
    correlation_estimate,
    mean_estimate,
    score_on_test,
)


def normal(value, error):
    reach = stats.norm.ppf(0.975) * error
    return Estimate(value, value - reach, value + reach)


def test_the_difference_of_normal_numbers_has_the_root_of_the_summed_squares():
    found = normal(5.0, 0.3) - normal(2.0, 0.4)
    expected = normal(3.0, 0.5)
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_a_lopsided_interval_stays_lopsided_and_turns_round_when_taken_away():
    lopsided, sure = Estimate(1.0, 0.9, 1.4), Estimate.counted(0.5)
    assert (lopsided - sure) == Estimate(0.5, pytest.approx(0.4), pytest.approx(0.9))
    assert (sure - lopsided) == Estimate(-0.5, pytest.approx(-0.9), pytest.approx(-0.4))


def test_the_interval_of_a_ratio_covers_it_nineteen_times_in_twenty():
    rng = np.random.default_rng(0)
    a, b, error = 0.9, 0.6, 0.03
    pairs = rng.normal([a, b], error, size=(2000, 2))
    covered = [r.low <= a / b <= r.high for r in (normal(x, error) / normal(y, error) for x, y in pairs)]
    assert 0.93 < np.mean(covered) < 0.97


def test_a_mean_of_rows_is_as_wide_as_they_are():
    rows = pd.DataFrame({"value": [1.0, 3.0], "low": [0.5, math.nan], "high": [1.5, math.nan]})
    assert mean_estimate(rows) == Estimate(2.0, 1.75, 2.25)
    assert mean_estimate(rows[["value"]]) == Estimate.counted(2.0)
    assert math.isnan(mean_estimate(rows.iloc[:0]).value)


def test_the_interval_of_an_accuracy_covers_it_nineteen_times_in_twenty():
    rng = np.random.default_rng(0)
    drawn = rng.binomial(100, 0.9, size=2000) / 100
    covered = [found.low <= 0.9 <= found.high for found in (accuracy_estimate(value, 100) for value in drawn)]
    assert 0.93 < np.mean(covered) < 0.98


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_few_answers_all_alike_do_not_make_certainty(value):
    found = accuracy_estimate(value, 20)
    assert found.low <= value <= found.high
    assert found.high - found.low > 0.1
    assert accuracy_estimate(value, 2000).high - accuracy_estimate(value, 2000).low < 0.01


def test_a_correlation_of_few_points_has_no_interval():
    x = np.array([0.0, 1.0, 2.0])
    found = correlation_estimate(x, x)
    assert (found.low, found.value, found.high) == pytest.approx((1.0, 1.0, 1.0))
    y = np.array([0.0, 2.0, 1.0, 3.0, 5.0])
    found = correlation_estimate(np.arange(5.0), y)
    assert found.value == pytest.approx(np.corrcoef(np.arange(5.0), y)[0, 1])
    assert -1 < found.low < found.value < found.high < 1


def test_only_accuracy_is_a_share_of_answers():
    def tuned(metric):
        return Run("finetune", {}, {"metric": metric, f"test {metric}": 0.8, "examples": {"test": 50}})

    assert score_on_test(tuned("accuracy")) == accuracy_estimate(0.8, 50)
    assert score_on_test(tuned("pearson")) == Estimate.counted(0.8)
