"""Intervals and tests: jackknife, bootstrap, paired permutation, Pearson correlation with Fisher's interval.

Words of one sentence are not independent, so all of these resample or delete whole sentences or groups of sentences.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from residuum.errors import DataError, SettingError

Scale = Literal["identity", "logit", "fisher"]
Rng = int | np.random.Generator


@dataclass(frozen=True, eq=False)
class Interval:
    """A value with its confidence interval; all fields have the same shape."""

    value: Float[np.ndarray, "*shape"]
    low: Float[np.ndarray, "*shape"]
    high: Float[np.ndarray, "*shape"]
    standard_error: Float[np.ndarray, "*shape"]


def jackknife(
    value: Float[np.ndarray, "*shape"] | float,
    leave_one_out: Float[np.ndarray, "group *shape"],
    sizes: Sequence[float] | Float[np.ndarray, " group"] | None = None,
    *,
    level: float = 0.95,
    scale: Scale = "identity",
) -> Interval:
    """The interval of a value from its values with one group of sentences left out at a time.

    With h_j = n/m_j (n words, m_j of them in group j) and pseudo-values θ̃_j = h_j θ − (h_j − 1) θ_(j), the variance is
    mean_j (θ̃_j − mean θ̃)² / (h_j − 1) (Busing, Meijer and van der Leeden 1999; equal `sizes` give the common
    jackknife), and the interval θ ± t se with Student's t of g − 1 degrees of freedom. `scale` does this on the logit
    scale (values in [0, 1]) or Fisher's (in [−1, 1]) and maps back, so that the interval stays in range.
    """
    theta, left_out = np.asarray(value, dtype=np.float64), np.asarray(leave_one_out, dtype=np.float64)
    _check_level(level)
    if left_out.shape[1:] != theta.shape:
        raise DataError(f"The value has shape {theta.shape}; leave-one-out values {left_out.shape}, expected one more axis.")
    groups = len(left_out)
    if groups < 2:
        unknown = np.full(theta.shape, np.nan)
        return Interval(theta, unknown, unknown, unknown)
    forward, back, slope = _SCALES[scale]
    error = _jackknife_error(forward(theta), forward(left_out), _group_shares(sizes, groups))
    reach = error * float(stats.t.ppf((1 + level) / 2, groups - 1))
    low, high = back(forward(theta) - reach), back(forward(theta) + reach)
    # The way there and back must not cut the value out of its own interval by a rounding.
    return Interval(theta, np.minimum(low, theta), np.maximum(high, theta), error * slope(theta))


def bootstrap(
    statistic: Callable[[Int[np.ndarray, " sentence"]], float | np.ndarray],
    sentences: int,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    rng: Rng = 0,
) -> Interval:
    """The percentile interval of `statistic(indices)` over resamples of the sentence indices with replacement."""
    _check_level(level)
    if sentences < 1 or resamples < 2:
        raise SettingError(f"Found {sentences} sentences and {resamples} resamples; expected at least 1 and 2.")
    generator = np.random.default_rng(rng)
    draws = np.stack(
        [np.asarray(statistic(generator.integers(sentences, size=sentences)), float) for _ in range(resamples)]
    )
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    value = np.asarray(statistic(np.arange(sentences)), float)
    return Interval(value, np.asarray(low), np.asarray(high), np.asarray(draws.std(axis=0, ddof=1)))


def bootstrap_mean(
    values: Float[np.ndarray, "sentence *shape"], *, resamples: int = 1000, level: float = 0.95, rng: Rng = 0
) -> Interval:
    """The mean of one value for each sentence (or test item), with the percentile interval."""
    values = _finite(values)
    return bootstrap(lambda chosen: values[chosen].mean(axis=0), len(values), resamples=resamples, level=level, rng=rng)


def paired_bootstrap(
    a: Float[np.ndarray, "sentence *shape"],
    b: Float[np.ndarray, "sentence *shape"],
    *,
    resamples: int = 1000,
    level: float = 0.95,
    rng: Rng = 0,
) -> Interval:
    """The mean of a − b over sentences that both systems saw, with the percentile interval."""
    return bootstrap_mean(_paired_differences(a, b), resamples=resamples, level=level, rng=rng)


def paired_permutation_test(
    a: Float[np.ndarray, " sentence"], b: Float[np.ndarray, " sentence"], *, resamples: int = 10_000, rng: Rng = 0
) -> float:
    """The two-sided p-value of mean(a) ≠ mean(b): how often random signs give |mean(a − b)| as large or larger.

    All 2ⁿ signs are tried when they are no more than `resamples`; else (hits + 1) / (resamples + 1), never 0.
    """
    differences = _paired_differences(a, b)
    n = len(differences)
    exact = n < 60 and 2**n <= resamples
    threshold = abs(differences.mean()) * (1 - 1e-12)
    signs = _all_signs(n) if exact else _random_signs(n, resamples, np.random.default_rng(rng))
    hits = sum(int((np.abs(chunk @ differences) / n >= threshold).sum()) for chunk in signs)
    return hits / 2**n if exact else (hits + 1) / (resamples + 1)


@dataclass(frozen=True)
class Correlation:
    """Pearson's r of n points, its interval and the two-sided p-value of r ≠ 0; NaN where they are undefined."""

    r: float
    low: float
    high: float
    p_value: float
    n: int


def pearson(x: Float[np.ndarray, " point"], y: Float[np.ndarray, " point"], *, level: float = 0.95) -> Correlation:
    """Pearson's correlation with Fisher's interval tanh(artanh r ± z/√(n − 3)), which needs four points.

    Constant x or y have no correlation: all but n is NaN then.
    """
    _check_level(level)
    x, y = _finite(x), _finite(y)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise DataError(f"Found arrays of shape {x.shape} and {y.shape}; expected two of equal length, at least 2.")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(np.nan, np.nan, np.nan, np.nan, len(x))
    result = stats.pearsonr(x, y)
    r = float(result.statistic)
    low, high = _fisher_interval(r, len(x), level)
    return Correlation(r, low, high, float(result.pvalue), len(x))


def _jackknife_error(
    theta: Float[np.ndarray, "*shape"],
    left_out: Float[np.ndarray, "group *shape"],
    shares: Float[np.ndarray, " group"],
) -> Float[np.ndarray, "*shape"]:
    h = (1 / shares).reshape(-1, *[1] * theta.ndim)
    pseudo = theta + (h - 1) * (theta - left_out)
    return np.sqrt(((pseudo - pseudo.mean(axis=0)) ** 2 / (h - 1)).mean(axis=0))


def _group_shares(sizes: Sequence[float] | np.ndarray | None, groups: int) -> Float[np.ndarray, " group"]:
    sizes = np.ones(groups) if sizes is None else np.asarray(sizes, dtype=np.float64)
    if sizes.shape != (groups,) or not (sizes > 0).all():
        raise DataError(f"Found sizes {sizes.tolist()}; expected {groups} positive numbers, one for each group left out.")
    return sizes / sizes.sum()


def _logit(p: np.ndarray) -> np.ndarray:
    """ln p/(1 − p), with p kept just inside (0, 1) so that exact ends stay finite."""
    inside = np.clip(p, _EDGE, 1 - _EDGE)
    return np.log(inside / (1 - inside))


def _fisher(r: np.ndarray) -> np.ndarray:
    return np.arctanh(np.clip(r, _EDGE - 1, 1 - _EDGE))


_EDGE = 1e-12
# For each scale: the way there, the way back, and d value / d scaled value for the standard error.
_SCALES: dict[str, tuple[Callable, Callable, Callable]] = {
    "identity": (lambda v: v, lambda v: v, lambda v: np.ones_like(v)),
    "logit": (_logit, lambda v: 1 / (1 + np.exp(-v)), lambda v: v * (1 - v)),
    "fisher": (_fisher, np.tanh, lambda v: 1 - v**2),
}


def _all_signs(n: int) -> Iterator[Float[np.ndarray, "resample sentence"]]:
    bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    yield 1.0 - 2.0 * bits


def _random_signs(n: int, resamples: int, rng: np.random.Generator) -> Iterator[Float[np.ndarray, "resample sentence"]]:
    """In pieces, so that many sentences and many resamples do not need memory together."""
    piece = max(1, 2_000_000 // n)
    for start in range(0, resamples, piece):
        yield 1.0 - 2.0 * rng.integers(0, 2, size=(min(piece, resamples - start), n))


def _fisher_interval(r: float, n: int, level: float) -> tuple[float, float]:
    if n < 4:
        return np.nan, np.nan
    if abs(r) >= 1:
        return r, r
    reach = float(stats.norm.ppf((1 + level) / 2)) / np.sqrt(n - 3)
    return float(np.tanh(np.arctanh(r) - reach)), float(np.tanh(np.arctanh(r) + reach))


def _paired_differences(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = _finite(a), _finite(b)
    if a.shape != b.shape:
        raise DataError(f"Found {a.shape} and {b.shape} values; expected one of each for the same sentences.")
    return a - b


def _finite(values: np.ndarray | Sequence[float]) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        raise DataError(f"Found {array.size} values, {int((~np.isfinite(array)).sum())} not finite; expected finite ones.")
    return array


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise SettingError(f"level is {level}; expected a probability between 0 and 1, such as 0.95.")
