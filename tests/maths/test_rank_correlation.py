"""Spearman's correlation: against scipy, and the coverage of its interval."""

import numpy as np
import pytest
from scipy import stats

from residuum.errors import DataError
from residuum.maths.statistics import spearman

# Table 4.11 of the thesis, without the teacher: downstream average, BERTScore average, cosine average
TABLE = np.array(
    [
        [0.552, 0.297, 0.215], [0.634, 0.177, 0.255], [0.649, 0.183, 0.256], [0.649, 0.179, 0.258],
        [0.620, 0.183, 0.256], [0.645, 0.160, 0.257], [0.610, 0.120, 0.217], [0.642, 0.186, 0.267],
        [0.616, 0.122, 0.222], [0.582, 0.379, 0.359],
    ]
)  # fmt: skip


def test_against_scipy_with_ties():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, size=(2, 40)).astype(float)
    found = spearman(x, y)
    assert (found.r, found.p_value) == pytest.approx(tuple(stats.spearmanr(x, y)))
    assert found.low < found.r < found.high


def test_a_monotone_map_changes_nothing():
    x, y = np.random.default_rng(0).normal(size=(2, 20))
    assert spearman(np.exp(x), y**3) == spearman(x, y)


def test_against_paper_table_4_11_alignment_does_not_go_with_downstream_scores():
    downstream, by_bertscore, by_cosine = TABLE.T
    for alignment in (by_bertscore, by_cosine):
        found = spearman(alignment, downstream)
        assert found.n == 10
        assert found.low < 0.1
        assert found.high - found.low > 0.9  # ten runs tell little


def test_the_interval_covers_the_truth():
    rng = np.random.default_rng(0)
    rho = 6 / np.pi * np.arcsin(0.6 / 2)  # of two normal variables with correlation 0.6
    hits = 0
    for _ in range(400):
        x = rng.normal(size=30)
        found = spearman(x, 0.6 * x + 0.8 * rng.normal(size=30))
        hits += found.low < rho < found.high
    assert 0.91 < hits / 400 < 0.985


def test_what_has_no_correlation_or_no_interval_says_so():
    assert np.isnan(spearman(np.ones(5), np.arange(5.0)).r)
    three = spearman(np.array([1.0, 2, 3]), np.array([1.0, 3, 2]))
    assert three.r == pytest.approx(0.5)
    assert np.isnan(three.low)
    same = spearman(np.arange(6.0), np.arange(6.0))
    assert (same.low, same.high) == (pytest.approx(1), pytest.approx(1))
    with pytest.raises(DataError, match="expected two of equal length"):
        spearman(np.arange(3.0), np.arange(4.0))
