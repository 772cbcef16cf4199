"""Numbers from columns of tables, of a plain type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def mean(values: Any) -> float:
    """The mean of a column; not a number where it is empty."""
    found = np.asarray(values, dtype=float)
    return float(found.mean()) if found.size else math.nan
