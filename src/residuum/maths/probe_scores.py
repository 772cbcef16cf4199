"""How good a probe is, and what must stand beside its accuracy: baselines and the description length of labels."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from residuum.errors import DataError, SettingError
from residuum.maths.features import BLOCK, Features, select_words, windows
from residuum.maths.probing import PaperRecipe, Probe, ProbeRecipe, check_battery, fit
from residuum.maths.targets import UNSEEN, Target


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Scores of a classification on held-out words, overall and per class.

    Recall is what Dalvi et al. (2020, figures 7–9) call the accuracy of a class. A class that was never
    predicted has precision 0, one without test words recall 0: `support` tells which. Words whose label
    training never saw count as errors and are counted in `n_unseen`.
    """

    accuracy: float
    correct: Bool[np.ndarray, " word"]
    n_unseen: int
    precision: Float[np.ndarray, " class"]
    recall: Float[np.ndarray, " class"]
    f1: Float[np.ndarray, " class"]
    support: Int[np.ndarray, " class"]


@dataclass(frozen=True)
class NumberScores:
    """Scores of a regression on held-out examples; correlations are 0 when the predictions are constant."""

    pearson: float
    spearman: float
    mean_squared_error: float


def class_scores(predicted: Int[np.ndarray, " word"], truth: Int[np.ndarray, " label"], n_classes: int) -> ClassScores:
    """Compare predicted class numbers with the true ones (`UNSEEN` where training had no such label)."""
    _check_pairs(len(predicted), len(truth))
    correct = predicted == truth
    hits = np.bincount(truth[correct], minlength=n_classes)
    support = np.bincount(truth[truth != UNSEEN], minlength=n_classes)
    precision = _ratio(hits, np.bincount(predicted, minlength=n_classes))
    recall = _ratio(hits, support)
    return ClassScores(
        accuracy=float(correct.mean()),
        correct=correct,
        n_unseen=int((truth == UNSEEN).sum()),
        precision=precision,
        recall=recall,
        f1=_ratio(2 * precision * recall, precision + recall),
        support=support,
    )


def number_scores(predicted: Float[np.ndarray, " word"], truth: Float[np.ndarray, " value"]) -> NumberScores:
    """Compare predicted numbers with the true ones."""
    from scipy.stats import rankdata  # slow to import, and seldom needed

    _check_pairs(len(predicted), len(truth))
    predicted, truth = predicted.astype(np.float64), truth.astype(np.float64)
    return NumberScores(
        pearson=pearson_score(predicted, truth),
        spearman=pearson_score(rankdata(predicted), rankdata(truth)),
        mean_squared_error=float(np.mean((predicted - truth) ** 2)),
    )


def pearson_score(a: Float[np.ndarray, " word"], b: Float[np.ndarray, " value"]) -> float:
    """Pearson's correlation in float64; 0 when either is constant."""
    a, b = a - a.mean(dtype=np.float64), b - b.mean(dtype=np.float64)
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else 0.0


def majority_answers(train_labels: Sequence[str], n_words: int) -> list[str]:
    """The most frequent training label for every word (ties: the first in the alphabet)."""
    return [_most_frequent(Counter(train_labels))] * n_words


def word_majority_answers(
    train_words: Sequence[str], train_labels: Sequence[str], test_words: Sequence[str]
) -> list[str]:
    """Each word's most frequent training label; for unknown words, the most frequent of all."""
    _check_pairs(len(train_words), len(train_labels))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for word, label in zip(train_words, train_labels, strict=True):
        counts[word][label] += 1
    answers = {word: _most_frequent(labels) for word, labels in counts.items()}
    fallback = _most_frequent(Counter(train_labels))
    return [answers.get(word, fallback) for word in test_words]


def bag_of_words_answers(
    train_bags: Sequence[Sequence[Hashable]], train_labels: Sequence[str], test_bags: Sequence[Sequence[Hashable]]
) -> list[str]:
    """Labels by a softmax regression (‖θ‖²/2 beside the summed loss) on which words a text has, not their order.

    A bag holds the words of one text; words that training never saw are left out.
    """
    from sklearn.linear_model import LogisticRegression

    _check_pairs(len(train_bags), len(train_labels))
    train, test = _word_counts(train_bags, test_bags)
    return LogisticRegression(max_iter=1000).fit(train, train_labels).predict(test).tolist()


def bag_of_words_numbers(
    train_bags: Sequence[Sequence[Hashable]],
    train_values: Float[np.ndarray, " text"],
    test_bags: Sequence[Sequence[Hashable]],
) -> Float[np.ndarray, " _"]:
    """Numbers by a ridge regression (λ = 1) on which words a text has."""
    from sklearn.linear_model import Ridge

    train, test = _word_counts(train_bags, test_bags)
    return np.asarray(Ridge().fit(train, train_values).predict(test))


def _word_counts(train_bags: Sequence[Sequence[Hashable]], test_bags: Sequence[Sequence[Hashable]]) -> tuple[Any, Any]:
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(analyzer=tuple, binary=True)  # pyright: ignore[reportArgumentType]
    return counter.fit_transform(train_bags), counter.transform(test_bags)


def _check_pairs(n_predicted: int, n_true: int) -> None:
    if n_predicted != n_true:
        raise DataError(f"{n_predicted} values came with {n_true} labels; they must describe the same words.")
    if n_true == 0:
        raise DataError("There is nothing to score: the set of words is empty.")


def _most_frequent(counts: Counter[str]) -> str:
    if not counts:
        raise DataError("There are no training labels; a majority baseline needs at least one.")
    return min(counts, key=lambda label: (-counts[label], label))


def _ratio(part: np.ndarray, whole: np.ndarray) -> Float[np.ndarray, " class"]:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


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
    by_name = {"accuracy": scores.accuracy, "macro_f1": float(scores.f1.mean())}
    if n_classes == 2:
        by_name["f1"] = float(scores.f1[positive])
    return {**by_name, "matthews": matthews(predicted, truth)}


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
    answered, wanted = ([set(spans(tags)) for tags in side] for side in (predicted, truth))
    right = sum(len(a & b) for a, b in zip(answered, wanted, strict=True))
    n_answered, n_wanted = sum(map(len, answered)), sum(map(len, wanted))
    precision, recall = right / max(n_answered, 1), right / max(n_wanted, 1)
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"span_f1": f1, "span_precision": precision, "span_recall": recall}


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans of a tagged sentence as (first word, one past the last, kind), from IOB1, IOB2, IOBES or BILOU tags.

    A span goes on as long as its kind is the same and no tag begins or ends one; a stray `I-` begins one.
    """
    spans_of_sentence: list[Span] = []
    first, kind, open_ = 0, "", False
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, label = tag.partition("-")
        goes_on = open_ and tag != "O" and label == kind and prefix not in _OPENING
        if kind and not goes_on:
            spans_of_sentence.append((first, place, kind))
            kind = ""
        if tag != "O" and not goes_on:
            first, kind = place, label or prefix
        open_ = tag != "O" and prefix not in _CLOSING
    return spans_of_sentence


FRACTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""The growing shares of the data of Voita & Titov (2020)."""


@dataclass(frozen=True)
class DescriptionLength:
    """Bits to send all labels: by the online code, and by one that knows only the number of classes."""

    online_bits: float
    uniform_bits: float

    @property
    def compression(self) -> float:
        """uniform / online: 1 when the representation says nothing of the labels, larger the more it says."""
        return self.uniform_bits / self.online_bits


def description_lengths(
    features: Features,
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    generator: np.random.Generator,
    *,
    fractions: Sequence[float] = FRACTIONS,
    recipe: ProbeRecipe | None = None,
) -> list[DescriptionLength]:
    """Online code length of each probe's labels, all probes together.

    L = t₁ log₂ C − Σᵢ log₂ p_θᵢ(y of words tᵢ+1 … tᵢ₊₁), where θᵢ is trained on the first tᵢ words. The words
    are shuffled by the generator first; steps that hold no new word are left out. At most
    half of an array is copied, and at most a window of shards is held.
    """
    _check(features, targets, probes, fractions)
    n_words = features.shape[0]
    order = generator.permutation(n_words)
    stops = np.unique(np.maximum(np.round(np.asarray(fractions) * n_words).astype(int), 1))
    classes = np.array([targets[probe.target].n_classes for probe in probes])
    bits = stops[0] * np.log2(classes)
    for known, until in pairwise(stops.tolist()):
        words = np.sort(order[:known])
        learnt = {name: Target(target.values[words], target.classes) for name, target in targets.items()}
        trained = fit(select_words(features, words), learnt, probes, recipe or PaperRecipe())
        for rows, x in _blocks(features, np.sort(order[known:until])):
            for place, probe in enumerate(trained):
                values = targets[probe.probe.target].values[rows]
                bits[place] -= probe.log_probabilities(x)[np.arange(len(x)), values].sum() / np.log(2)
    uniform = n_words * np.log2(classes)
    return [DescriptionLength(*pair) for pair in zip(bits.tolist(), uniform.tolist(), strict=True)]


def _check(
    features: Features,
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    fractions: Sequence[float],
) -> None:
    if not fractions or fractions[-1] != 1 or min(fractions) <= 0 or list(fractions) != sorted(set(fractions)):
        raise SettingError(f"The fractions are {list(fractions)}; they must grow from above 0 to exactly 1.")
    check_battery(features, targets, probes)
    for probe in probes:
        target = targets[probe.target]
        if target.n_classes < 2:
            raise DataError(f"The target {probe.target!r} has no classes; a description length is of class labels.")
        if len(target.values) != features.shape[0]:
            raise DataError(f"{features.shape[0]} words came with {len(target.values)} labels of {probe.target!r}.")


def _blocks(
    features: Features, words: Int[np.ndarray, " new"]
) -> Iterator[tuple[Int[np.ndarray, " word"], Float[np.ndarray, "word neuron"]]]:
    """Some words, some at a time, without a copy of all of them."""
    if isinstance(features, np.ndarray):
        for start in range(0, len(words), BLOCK):
            rows = words[start : start + BLOCK]
            yield rows, features[rows]
        return
    for window in windows(select_words(features, words)):
        for start in range(0, len(window.x), BLOCK):
            yield words[window.words[start : start + BLOCK]], window.x[start : start + BLOCK]
