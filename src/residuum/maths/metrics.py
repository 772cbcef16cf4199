"""A task's metric as a function of sums over sentences: its value, interval, and paired differences.

Every metric here depends on held-out data only through sums that can be taken sentence by sentence (right answers and
examples, spans, a confusion matrix, products of centred numbers). Words of one sentence are not independent, so
intervals and standard errors resample or delete whole sentences, and need the sums alone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from residuum.errors import DataError, SettingError
from residuum.maths.probe_scores import spans
from residuum.maths.selection import SetScore
from residuum.maths.statistics import DRAWN, Interval

CLASS_METRICS = ("accuracy", "matthews", "f1", "span_f1")
NUMBER_METRICS = ("pearson", "spearman")
SPAN_TAG = re.compile(r"[BIESLU]-\S+|O")


def are_span_tags(classes: Sequence[str]) -> bool:
    """Whether all labels are tags that mark spans, such as B-NP, I-NP and O."""
    return len(classes) > 1 and all(SPAN_TAG.fullmatch(label) for label in classes)


@dataclass(frozen=True, eq=False)
class SentenceSums:
    """Per-sentence sums of one prediction, and the metric that is a function of their total."""

    metric: str
    sums: Float[np.ndarray, "sentence sum"]

    @cached_property
    def value(self) -> float:
        """The metric over all sentences."""
        return float(metric_value(self.metric, self.sums.sum(axis=0)))

    @property
    def leave_one_out(self) -> Float[np.ndarray, " sentence"]:
        """The metric without each sentence in turn."""
        return metric_value(self.metric, self.sums.sum(axis=0) - self.sums)


@dataclass(frozen=True, eq=False)
class Truth:
    """The true classes (−1: not seen in training) or numbers of held-out examples, and the metric that scores them.

    `labels` are the true labels as text, which span F1 needs; `classes` the training classes; `positive` is the class
    whose F1 counts. The metric of numbers is Pearson's or Spearman's correlation.
    """

    metric: str
    values: Int[np.ndarray, " example"] | Float[np.ndarray, " example"]
    sentences: Int[np.ndarray, " example"]
    classes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    positive: int = 1

    def __post_init__(self) -> None:
        known = CLASS_METRICS if self.classes else NUMBER_METRICS
        if self.metric not in known:
            raise SettingError(f"The metric {self.metric!r} is not one of {', '.join(known)}.")
        if not len(self.values):
            raise DataError("There is nothing to score: the set of examples is empty.")

    def sums(self, predicted: Int[np.ndarray, " example"] | Float[np.ndarray, " example"]) -> SentenceSums:
        """The sums of predicted classes or numbers."""
        if len(predicted) != len(self.values):
            raise DataError(f"{len(predicted)} predictions came with {len(self.values)} labels; expected one each.")
        if self.metric == "span_f1":
            names = np.array(self.classes, dtype=object)[predicted]
            predicted_spans = [set(spans(names[rows].tolist())) for rows in self._rows]
            counts = [(len(a & b), len(a), len(b)) for a, b in zip(predicted_spans, self._true_spans, strict=True)]
            return SentenceSums(self.metric, np.array(counts, np.float64))
        if self.metric == "accuracy":
            columns = [predicted == self.values, np.ones(len(predicted))]
        elif self.metric == "f1":
            positive, true = predicted == self.positive, self.values == self.positive
            columns = [positive & true, positive, true]
        elif self.metric == "matthews":
            # One column for each cell of the confusion matrix; the last class is "not seen in training".
            n = len(self.classes) + 1
            cells = (self.values % n) * n + predicted
            columns = [cells == cell for cell in range(n * n)]
        else:
            a, b = np.asarray(predicted, np.float64), np.asarray(self.values, np.float64)
            if self.metric == "spearman":
                from scipy.stats import rankdata  # slow to import, and seldom needed

                a, b = rankdata(a), rankdata(b)
            a, b = a - a.mean(), b - b.mean()
            columns = [np.ones(len(a)), a, b, a * a, b * b, a * b]
        by_sentence = [np.bincount(self._places, weights=column, minlength=self.n_sentences) for column in columns]
        return SentenceSums(self.metric, np.stack(by_sentence, axis=1))

    @property
    def n_sentences(self) -> int:
        """Sentences with at least one example."""
        return len(self._numbers)

    @cached_property
    def _unique(self) -> tuple[np.ndarray, np.ndarray]:
        return np.unique(self.sentences, return_inverse=True)

    @property
    def _numbers(self) -> Int[np.ndarray, " sentence"]:
        return self._unique[0]

    @property
    def _places(self) -> Int[np.ndarray, " example"]:
        return self._unique[1]

    @cached_property
    def _rows(self) -> list[Int[np.ndarray, " word"]]:
        order = np.argsort(self._places, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self._places))[:-1])

    @cached_property
    def _true_spans(self) -> list[set[tuple[int, int, str]]]:
        labels = np.array(self.labels, dtype=object)
        return [set(spans(labels[rows].tolist())) for rows in self._rows]


def metric_value(metric: str, totals: Float[np.ndarray, "*many sum"]) -> Float[np.ndarray, "*many"]:
    """The metric of summed columns; 0 where it is undefined, as a correlation with constant predictions is."""
    t = np.moveaxis(np.asarray(totals, np.float64), -1, 0)
    if metric == "accuracy":
        return _ratio(t[0], t[1])
    if metric in ("f1", "span_f1"):
        return _ratio(2 * t[0], t[1] + t[2])
    if metric == "matthews":
        n = round(np.sqrt(len(t)))
        confusion = t.reshape(n, n, *t.shape[1:])
        true, predicted, right = confusion.sum(axis=1), confusion.sum(axis=0), np.einsum("cc...->...", confusion)
        total = true.sum(axis=0)
        spread = (total**2 - (predicted**2).sum(axis=0)) * (total**2 - (true**2).sum(axis=0))
        return _ratio(right * total - (predicted * true).sum(axis=0), np.sqrt(np.maximum(spread, 0)))
    n, a, b, aa, bb, ab = t
    spread = (n * aa - a * a) * (n * bb - b * b)
    floor = 1e-20 * (n * aa) * (n * bb)  # what rounding leaves of a constant
    return np.where(spread > floor, _ratio(n * ab - a * b, np.sqrt(np.maximum(spread, 0))), 0.0)


def score_interval(
    runs: Sequence[SentenceSums], *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The mean metric of one or more runs (seeds) with its interval over sentences and, with several runs, seeds."""
    interval = combined_interval([[(1.0, run)] for run in runs], resamples=resamples, level=level, seed=seed)
    if len(runs) == 1:
        return interval
    least = 0.0 if runs[0].metric in ("accuracy", "f1", "span_f1") else -1.0
    low, high = np.asarray(np.maximum(interval.low, least)), np.asarray(np.minimum(interval.high, 1.0))
    return replace(interval, low=low, high=high)


def combined_interval(
    runs: Sequence[Sequence[tuple[float, SentenceSums]]],
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The interval of a linear combination of metrics over the same sentences, such as a difference: Σ w · metric.

    Each run is a list of (w, sums). Sentences are resampled with replacement, the same ones for every term and run.
    With S runs, Student's interval of their mean, t·sd/√S, is added in quadrature. One run says nothing of the variance
    between runs.
    """
    draws = np.zeros(resamples)
    for rows, counts in _resampled(len(runs[0][0][1].sums), resamples, seed):
        for run in runs:
            draws[rows] += sum(w * metric_value(sums.metric, counts @ sums.sums) for w, sums in run) / len(runs)
    values = np.array([sum(w * sums.value for w, sums in run) for run in runs])
    value, low, high = float(values.mean()), *np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    error = draws.std(ddof=1)
    if len(runs) > 1:
        between = values.std(ddof=1) / np.sqrt(len(runs))
        reach = float(stdtrit(len(runs) - 1, (1 + level) / 2)) * between
        low, high = value - np.hypot(max(value - low, 0), reach), value + np.hypot(max(high - value, 0), reach)
        error = np.hypot(error, between)
    return Interval(*(np.asarray(x) for x in (value, low, high, error, draws.mean() - value)))


def share_interval(
    candidate: SentenceSums, oracle: SentenceSums, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """metric(candidate) / metric(oracle) over the same sentences, resampled together: what a model keeps of another.

    NaN where the oracle scores 0.
    """
    draws = np.empty(resamples)
    for rows, counts in _resampled(len(oracle.sums), resamples, seed):
        both = [metric_value(sums.metric, counts @ sums.sums) for sums in (candidate, oracle)]
        draws[rows] = np.where(both[1] != 0, both[0] / np.where(both[1] != 0, both[1], 1.0), np.nan)
    value = candidate.value / oracle.value if oracle.value else np.nan
    low, high = np.nanquantile(draws, [(1 - level) / 2, (1 + level) / 2]) if np.isfinite(draws).any() else (np.nan,) * 2
    error = np.nanstd(draws, ddof=1) if np.isfinite(draws).sum() > 1 else np.nan
    return Interval(*(np.asarray(x) for x in (value, low, high, error, np.nan)))


def _resampled(n: int, resamples: int, seed: int) -> Iterator[tuple[slice, Float[np.ndarray, "draw sentence"]]]:
    """How often each sentence is in each resample, many resamples at a time."""
    generator, at_once = np.random.default_rng(seed), max(1, DRAWN // n)
    for start in range(0, resamples, at_once):
        rows = slice(start, min(start + at_once, resamples))
        chosen = generator.integers(n, size=(rows.stop - start, n))
        yield rows, np.stack([np.bincount(row, minlength=n) for row in chosen]).astype(np.float64)


def paired_loss(candidate: SentenceSums, oracle: SentenceSums, keep: float) -> SetScore:
    """keep · oracle − candidate over the same sentences; the standard error is the jackknife over sentences.

    Both predictions are of the same words, so most of the variance between sentences cancels.
    """
    if candidate.sums.shape != oracle.sums.shape:
        raise DataError("The candidate and the oracle were scored on different sentences; score both on the same.")
    loss = keep * oracle.value - candidate.value
    left_out = keep * oracle.leave_one_out - candidate.leave_one_out
    n = len(left_out)
    error = np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2)) if n > 1 else 0.0
    return SetScore(candidate.value, loss, float(error))


def _ratio(part: ArrayLike, whole: ArrayLike) -> np.ndarray:
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.zeros(np.broadcast_shapes(part.shape, whole.shape)), where=whole > 0)
