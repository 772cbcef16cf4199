"""Intervals and tests: jackknife, bootstrap, paired permutation, Pearson correlation with Fisher's interval.

Words of one sentence are not independent, so all of these resample or delete whole sentences or groups of sentences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtrit

from residuum.errors import DataError, SettingError

Rng = int | np.random.Generator

DRAWN = 1 << 18
"""Sentences that are drawn at once: their numbers stay in the cache."""


@dataclass(frozen=True, eq=False)
class Interval:
    """A value with its confidence interval, standard error and estimated bias, all of the same shape."""

    value: Float[np.ndarray, "*shape"]
    low: Float[np.ndarray, "*shape"]
    high: Float[np.ndarray, "*shape"]
    standard_error: Float[np.ndarray, "*shape"]
    bias: Float[np.ndarray, "*shape"]


def jackknife(
    value: Float[np.ndarray, "*shape"] | float,
    leave_one_out: Float[np.ndarray, "group ..."],
    sizes: ArrayLike | None = None,
    *,
    level: float = 0.95,
    bounds: tuple[float, float] | None = None,
    bias: Float[np.ndarray, "*shape"] | None = None,
) -> Interval:
    """The interval of a value θ from its values θ_(j) with one group of sentences left out at a time.

    Busing, Meijer and van der Leeden (1999), for groups of unequal `sizes` m_j (n in all, h_j = n/m_j): θ_J = gθ −
    Σ(1 − 1/h_j) θ_(j) is θ without its bias, se² = mean_j (h_j θ − (h_j − 1) θ_(j) − θ_J)² / (h_j − 1). The interval
    reaches t·se (Student's t, g − 1 degrees of freedom) beyond both θ and θ_J, and is cut at `bounds`. A bias that
    falls more slowly than 1/n, as that of CCA with many unrelated directions, is not seen. `bias` replaces
    the estimate where it is known otherwise.
    """
    _check_level(level)
    theta, left_out = np.asarray(value, dtype=np.float64), np.asarray(leave_one_out, dtype=np.float64)
    if left_out.shape[1:] != theta.shape:
        raise DataError(
            f"The value has shape {theta.shape}, the values with one group left out {left_out.shape}; "
            "expected the same with one axis before it."
        )
    if len(left_out) < 2:
        unknown = np.full(theta.shape, np.nan)
        return Interval(theta, unknown, unknown, unknown, unknown)
    estimate, error = _jackknife_moments(theta, left_out, sizes)
    bias = estimate if bias is None else np.where(np.isnan(bias), estimate, bias)
    reach = error * float(stdtrit(len(left_out) - 1, (1 + level) / 2))
    low, high = theta - np.maximum(bias, 0) - reach, theta - np.minimum(bias, 0) + reach
    if bounds is not None:
        low, high = np.clip(low, *bounds), np.clip(high, *bounds)
    return Interval(theta, np.asarray(low), np.asarray(high), error, bias)


def bootstrap(
    statistic: Callable[[Int[np.ndarray, " sentence"]], float | np.ndarray],
    sentences: int,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    rng: Rng = 0,
) -> Interval:
    """The percentile interval of `statistic(indices)` over resamples of sentence indices with replacement."""
    _check_level(level)
    if sentences < 1 or resamples < 2:
        raise SettingError(f"Found {sentences} sentences and {resamples} resamples; expected at least 1 and 2.")
    generator = np.random.default_rng(rng)
    draws = np.stack(
        [np.asarray(statistic(generator.integers(sentences, size=sentences)), float) for _ in range(resamples)]
    )
    return _percentiles(draws, np.asarray(statistic(np.arange(sentences)), float), level)


def bootstrap_ratio(
    part: Float[np.ndarray, " sentence"],
    whole: Float[np.ndarray, " other"],
    *,
    resamples: int = 1000,
    level: float = 0.95,
    rng: Rng = 0,
) -> Interval:
    """Σ part / Σ whole over sentences, as of right answers and questions, with the percentile interval.

    What `bootstrap` gives of that ratio, for a fraction of the time: many resamples are drawn at once.
    """
    _check_level(level)
    if len(part) != len(whole) or not len(part) or resamples < 2:
        raise SettingError(
            f"Found {len(part)} and {len(whole)} sentences and {resamples} resamples; expected as many of both, at "
            "least 1, and at least 2 resamples."
        )
    generator, sentences = np.random.default_rng(rng), len(part)
    draws, at_once = np.empty(resamples), max(1, DRAWN // sentences)
    for start in range(0, resamples, at_once):
        batch = draws[start : start + at_once]
        chosen = generator.integers(sentences, size=(len(batch), sentences))
        np.divide(part[chosen].sum(axis=1), whole[chosen].sum(axis=1), out=batch)
    return _percentiles(draws, np.asarray(part.sum() / whole.sum()), level)


def bootstrap_mean(
    values: Float[np.ndarray, "sentence ..."], *, resamples: int = 1000, level: float = 0.95, rng: Rng = 0
) -> Interval:
    """The mean of one value for each sentence (or test item), with the percentile interval."""
    values = _finite(values)
    return bootstrap(lambda chosen: values[chosen].mean(axis=0), len(values), resamples=resamples, level=level, rng=rng)


def _percentiles(draws: Float[np.ndarray, "resample ..."], value: np.ndarray, level: float) -> Interval:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    error, bias = draws.std(axis=0, ddof=1), draws.mean(axis=0) - value
    return Interval(value, np.asarray(low), np.asarray(high), np.asarray(error), np.asarray(bias))


def paired_bootstrap(
    a: Float[np.ndarray, "sentence ..."],
    b: Float[np.ndarray, "other ..."],
    *,
    resamples: int = 1000,
    level: float = 0.95,
    rng: Rng = 0,
) -> Interval:
    """The mean of a − b over sentences that both systems saw, with the percentile interval."""
    return bootstrap_mean(_paired_differences(a, b), resamples=resamples, level=level, rng=rng)


def paired_permutation_test(
    a: Float[np.ndarray, " sentence"],
    b: Float[np.ndarray, " other"],
    *,
    resamples: int = 10_000,
    rng: Rng = 0,
) -> float:
    """The two-sided p-value of mean(a) ≠ mean(b): how often random signs give |mean(a − b)| as large.

    All 2ⁿ signs are tried when they are no more than `resamples`; else (hits + 1) / (resamples + 1), never 0.
    """
    differences = _paired_differences(a, b)
    n = len(differences)
    exact = n < 60 and 2**n <= resamples
    threshold = abs(differences.mean()) * (1 - 1e-12)
    if exact:
        bits = iter([(np.arange(2**n)[:, None] >> np.arange(n)) & 1])
    else:  # in pieces, so that many sentences and many resamples do not need memory together
        generator, piece = np.random.default_rng(rng), max(1, 2_000_000 // n)
        sizes = (min(piece, resamples - start) for start in range(0, resamples, piece))
        bits = (generator.integers(0, 2, size=(size, n)) for size in sizes)
    hits = sum(int((np.abs((1.0 - 2.0 * chunk) @ differences) / n >= threshold).sum()) for chunk in bits)
    return hits / 2**n if exact else (hits + 1) / (resamples + 1)


@dataclass(frozen=True)
class Correlation:
    """Pearson's r of n points, its interval and the two-sided p-value of r ≠ 0; NaN where undefined."""

    r: float
    low: float
    high: float
    p_value: float
    n: int


def pearson(x: Float[np.ndarray, " point"], y: Float[np.ndarray, " other"], *, level: float = 0.95) -> Correlation:
    """Pearson's correlation with Fisher's interval tanh(artanh r ± z/√(n − 3)), which needs four points.

    Constant x or y have no correlation: all but n is NaN then.
    """
    from scipy.stats import pearsonr  # slow to import, and seldom needed

    _check_level(level)
    x, y = _finite(x), _finite(y)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise DataError(f"Found arrays of shape {x.shape} and {y.shape}; expected two of equal length, at least 2.")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(np.nan, np.nan, np.nan, np.nan, len(x))
    r, p_value = map(float, pearsonr(x, y))
    return Correlation(r, *_tanh_interval(r, len(x), level), p_value, len(x))


def _jackknife_moments(
    theta: Float[np.ndarray, "*shape"],
    left_out: Float[np.ndarray, "group ..."],
    sizes: ArrayLike | None,
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """The bias θ − θ_J and the standard error, from the changes θ − θ_(j), all exactly 0 for a constant."""
    groups = len(left_out)
    sizes = np.ones(groups) if sizes is None else np.asarray(sizes, dtype=np.float64)
    if sizes.shape != (groups,) or not (sizes > 0).all():
        raise DataError(f"Found sizes {sizes.tolist()}; expected {groups} positive ones, one for each group left out.")
    h = (sizes.sum() / sizes).reshape(-1, *[1] * theta.ndim)
    changes = theta - left_out
    bias = -((1 - 1 / h) * changes).sum(axis=0)
    error = np.sqrt((((h - 1) * changes + bias) ** 2 / (h - 1)).mean(axis=0))
    return np.asarray(bias), np.asarray(error)


def _tanh_interval(r: float, n: int, level: float, variance: float = 1.0) -> tuple[float, float]:
    """tanh(artanh r ± z √(variance / (n − 3)))."""
    if n < 4:
        return np.nan, np.nan
    if abs(r) >= 1:
        return r, r
    reach = float(ndtri((1 + level) / 2)) * np.sqrt(variance / (n - 3))
    return float(np.tanh(np.arctanh(r) - reach)), float(np.tanh(np.arctanh(r) + reach))


def _paired_differences(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = _finite(a), _finite(b)
    if a.shape != b.shape:
        raise DataError(f"Found {a.shape} and {b.shape} values; expected one of each for the same sentences.")
    return a - b


def _finite(values: np.ndarray | Sequence[float]) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        raise DataError(
            f"Found {array.size} values, {int((~np.isfinite(array)).sum())} not finite; expected finite ones."
        )
    return array


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise SettingError(f"level is {level}; expected a probability between 0 and 1, such as 0.95.")


def spearman(x: Float[np.ndarray, " point"], y: Float[np.ndarray, " other"], *, level: float = 0.95) -> Correlation:
    """Pearson's correlation of the ranks, equal values sharing theirs; `r` is ρ. Unchanged by monotone maps.

    The interval is tanh(artanh ρ ± z √((1 + ρ²/2) / (n − 3))) of Bonett and Wright (2000): Fisher's is too narrow for
    ranks. It needs four points; the p-value is that of scipy, by Student's t.
    """
    from scipy.stats import spearmanr  # slow to import, and seldom needed

    linear = pearson(x, y, level=level)  # also checks the input
    if np.isnan(linear.r):
        return linear
    rho, p_value = map(float, spearmanr(x, y))
    return Correlation(rho, *_tanh_interval(rho, linear.n, level, 1 + rho**2 / 2), p_value, linear.n)
