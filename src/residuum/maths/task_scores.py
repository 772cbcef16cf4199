"""Scores of whole tasks: classes, numbers, and spans of tags, by the names that GLUE and seqeval use."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError
from residuum.maths.probe_scores import class_scores, number_scores

Span = tuple[int, int, str]
_CLOSING = frozenset("ESLU")  # the tag ends its span
_OPENING = frozenset("BSU")  # the tag begins a span whatever was before


def classification_scores(
    predicted: Int[np.ndarray, " example"], truth: Int[np.ndarray, " example"], n_classes: int, positive: int = 1
) -> dict[str, float]:
    """accuracy, macro_f1 and matthews; of two classes also f1, that of the positive one (GLUE's class 1).

    Matthews' correlation is that of Gorodkin (2004) for any number of classes, in [−1, 1], and 0 where either side
    holds one class only. A true class that training never saw is −1 and counts as an error.
    """
    scores = class_scores(predicted, truth, n_classes)
    found = {"accuracy": scores.accuracy, "macro_f1": float(scores.f1.mean())}
    if n_classes == 2:
        found["f1"] = float(scores.f1[positive])
    return {**found, "matthews": matthews(predicted, truth)}


def matthews(predicted: Int[np.ndarray, " example"], truth: Int[np.ndarray, " example"]) -> float:
    """R_K = (c·s − Σ p_k t_k) / √(s² − Σ p_k²) √(s² − Σ t_k²): c of s right, p_k predicted and t_k true of class k."""
    classes = np.union1d(predicted, truth)
    p, t = ((side[:, None] == classes).sum(axis=0).astype(np.float64) for side in (predicted, truth))
    right, total = float((predicted == truth).sum()), float(len(truth))
    scale = np.sqrt((total**2 - p @ p) * (total**2 - t @ t))
    return float((right * total - p @ t) / scale) if scale > 0 else 0.0


def regression_scores(
    predicted: Float[np.ndarray, " example"], truth: Float[np.ndarray, " example"]
) -> dict[str, float]:
    """pearson, spearman and mean_squared_error."""
    return dict(vars(number_scores(predicted, truth)))


def span_scores(predicted: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> dict[str, float]:
    """span_precision, span_recall and span_f1 over all sentences, a span being right if its ends and kind are.

    The counts are those of conlleval, as seqeval makes them: micro-averaged over kinds.
    """
    if list(map(len, predicted)) != list(map(len, truth)):
        raise DataError("The predicted tags and the true ones are of different sentences; give one tag a word in both.")
    found, wanted = ([set(spans(tags)) for tags in side] for side in (predicted, truth))
    right = sum(len(a & b) for a, b in zip(found, wanted, strict=True))
    n_found, n_wanted = sum(map(len, found)), sum(map(len, wanted))
    precision, recall = right / max(n_found, 1), right / max(n_wanted, 1)
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"span_f1": f1, "span_precision": precision, "span_recall": recall}


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans of a tagged sentence as (first word, one past the last, kind), from IOB1, IOB2, IOBES or BILOU tags.

    A span goes on as long as its kind is the same and no tag begins or ends one; a stray `I-` begins one.
    """
    found: list[Span] = []
    first, kind, open_ = 0, "", False
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, label = tag.partition("-")
        goes_on = open_ and tag != "O" and label == kind and prefix not in _OPENING
        if kind and not goes_on:
            found.append((first, place, kind))
            kind = ""
        if tag != "O" and not goes_on:
            first, kind = place, label or prefix
        open_ = tag != "O" and prefix not in _CLOSING
    return found
