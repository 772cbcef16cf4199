"""Numbers and lists as people write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

CONFIDENCE = "95\u00a0%"  # of the intervals that the commands write


def count(n: int, noun: str) -> str:
    """`1 layer`, `4,284 words`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def shown(value: Any) -> str:
    """A value of a summary: counts in full, other numbers with four significant digits, the parts of lists in a row."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "; ".join(f"{key} {shown(part)}" for key, part in value.items())
    return ", ".join(map(shown, value)) if isinstance(value, list | tuple) else str(value)


def listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def layer_range(layers: Sequence[int]) -> str:
    """`layers 0–6` where none is missing, else `layers 0, 3, 6`."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if list(layers) == list(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]}–{layers[-1]}"
    return f"layers {', '.join(map(str, layers))}"


def interval(low: float, high: float) -> str:
    """`0.911 to 0.932`; empty where there is none."""
    return "" if np.isnan(low) or np.isnan(high) else f"{low:.3f} to {high:.3f}"
