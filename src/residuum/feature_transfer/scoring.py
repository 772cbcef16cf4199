"""How good predictions are: the share of right labels, or Pearson's r of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from residuum.errors import CorpusError, DataError
from residuum.maths.probe_scores import number_scores


def prediction_score(predicted: Sequence[Any], truth: Sequence[Any], *, unit: str, regression: bool) -> float:
    """Accuracy over words or sentences, or Pearson's r; what has no true label does not count."""
    if len(predicted) != len(truth):
        raise CorpusError(f"{len(truth)} labels came with {len(predicted)} texts; expected one (or one list) for each.")
    pairs = _word_pairs(predicted, truth) if unit == "word" else list(zip(predicted, truth, strict=True))
    labelled = [(found, true) for found, true in pairs if true is not None]
    if not labelled:
        raise DataError("There is no label to score against; expected at least one.")
    if regression:
        found, true = (np.array(side, np.float64) for side in zip(*labelled, strict=True))
        return number_scores(found, true).pearson
    return float(np.mean([found == str(true) for found, true in labelled]))


def _word_pairs(predicted: Sequence[Any], truth: Sequence[Any]) -> list[tuple[Any, Any]]:
    for number, (found, true) in enumerate(zip(predicted, truth, strict=True)):
        if len(found) != len(true):
            raise CorpusError(f"Text {number} has {len(found)} words, but {len(true)} labels; expected one a word.")
    return [pair for found, true in zip(predicted, truth, strict=True) for pair in zip(found, true, strict=True)]
