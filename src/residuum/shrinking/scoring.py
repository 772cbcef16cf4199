"""How good predictions are: the share of right labels, or Pearson's r of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from residuum.errors import CorpusError, DataError
from residuum.maths.probe_scores import number_scores
from residuum.maths.statistics import Interval
from residuum.probing.batteries import accuracy_interval, pearson_interval

Labelled = tuple[Any, Any, int]
"""What was predicted, what is true, and the number of the text."""


def prediction_score(predicted: Sequence[Any], truth: Sequence[Any], *, unit: str, regression: bool) -> float:
    """Accuracy over words or sentences, or Pearson's r; what has no true label does not count."""
    labelled = _labelled(predicted, truth, unit)
    if regression:
        return number_scores(*_numbers(labelled)).pearson
    return float(_right(labelled).mean())


def prediction_interval(
    predicted: Sequence[Any], truth: Sequence[Any], *, unit: str, regression: bool, seed: int = 0
) -> Interval:
    """The same score with its 95 % bootstrap interval over texts, as probes have theirs (`Bench.interval`)."""
    labelled = _labelled(predicted, truth, unit)
    texts = np.array([text for _, _, text in labelled])
    if not regression:
        return accuracy_interval(_right(labelled), texts, seed=seed)
    found, true = _numbers(labelled)
    return pearson_interval([found], true, texts, seed=seed)


def _labelled(predicted: Sequence[Any], truth: Sequence[Any], unit: str) -> list[Labelled]:
    """The words or texts that have a true label."""
    if len(predicted) != len(truth):
        raise CorpusError(f"{len(truth)} labels came with {len(predicted)} texts; expected one (or one list) for each.")
    pairs = list(zip(predicted, truth, strict=True))
    if unit == "word":
        _check_lengths(pairs)
        every = [(a, b, text) for text, (x, y) in enumerate(pairs) for a, b in zip(x, y, strict=True)]
    else:
        every = [(a, b, text) for text, (a, b) in enumerate(pairs)]
    labelled = [row for row in every if row[1] is not None]
    if not labelled:
        raise DataError("There is no label to score against; expected at least one.")
    return labelled


def _check_lengths(pairs: Sequence[tuple[Any, Any]]) -> None:
    for number, (found, true) in enumerate(pairs):
        if len(found) != len(true):
            raise CorpusError(f"Text {number} has {len(found)} words, but {len(true)} labels; expected one a word.")


def _right(labelled: Sequence[Labelled]) -> np.ndarray:
    return np.array([found == str(true) for found, true, _ in labelled], np.float64)


def _numbers(labelled: Sequence[Labelled]) -> tuple[np.ndarray, np.ndarray]:
    found, true, _ = zip(*labelled, strict=True)
    return np.array(found, np.float64), np.array(true, np.float64)
