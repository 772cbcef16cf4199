"""Spearman's rank correlation with an interval, for few points such as runs or models."""

import numpy as np
from jaxtyping import Float
from scipy import stats

from residuum.maths.statistics import Correlation, pearson


def spearman(x: Float[np.ndarray, " point"], y: Float[np.ndarray, " other"], *, level: float = 0.95) -> Correlation:
    """Pearson's correlation of the ranks, equal values sharing theirs; `r` is ρ. Unchanged by monotone maps.

    The interval is tanh(artanh ρ ± z √((1 + ρ²/2) / (n − 3))) of Bonett and Wright (2000): Fisher's is too narrow for
    ranks. It needs four points; the p-value is that of scipy, by Student's t.
    """
    found = pearson(x, y, level=level)  # also checks the input
    if np.isnan(found.r):
        return found
    rho, p_value = map(float, stats.spearmanr(x, y))
    return Correlation(rho, *_bonett_wright(rho, found.n, level), p_value, found.n)


def _bonett_wright(rho: float, n: int, level: float) -> tuple[float, float]:
    if n < 4:
        return np.nan, np.nan
    if abs(rho) >= 1:
        return rho, rho
    reach = float(stats.norm.ppf((1 + level) / 2)) * np.sqrt((1 + rho**2 / 2) / (n - 3))
    return float(np.tanh(np.arctanh(rho) - reach)), float(np.tanh(np.arctanh(rho) + reach))
