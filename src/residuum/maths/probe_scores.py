"""How good a probe is, and what must stand beside its accuracy: baselines and selectivity."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from residuum.errors import DataError
from residuum.maths.targets import UNSEEN


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


def majority_baseline(train_labels: Sequence[str], test_labels: Sequence[str]) -> float:
    """Accuracy of always answering the most frequent training label (ties: the first in the alphabet)."""
    _check_pairs(len(test_labels), len(test_labels))
    answer = _most_frequent(Counter(train_labels))
    return sum(label == answer for label in test_labels) / len(test_labels)


def word_majority_baseline(
    train_words: Sequence[str],
    train_labels: Sequence[str],
    test_words: Sequence[str],
    test_labels: Sequence[str],
) -> float:
    """Accuracy of answering each word's most frequent training label; unknown words: the most frequent."""
    _check_pairs(len(train_words), len(train_labels))
    _check_pairs(len(test_words), len(test_labels))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for word, label in zip(train_words, train_labels, strict=True):
        counts[word][label] += 1
    answers = {word: _most_frequent(labels) for word, labels in counts.items()}
    fallback = _most_frequent(Counter(train_labels))
    hits = [answers.get(word, fallback) == label for word, label in zip(test_words, test_labels, strict=True)]
    return sum(hits) / len(hits)


def bag_of_words_baseline(
    train_bags: Sequence[Sequence[Hashable]],
    train_labels: Sequence[str],
    test_bags: Sequence[Sequence[Hashable]],
    test_labels: Sequence[str],
) -> float:
    """Accuracy of a softmax regression (‖θ‖²/2 beside the summed loss) on which words a text has, not their order.

    A bag holds the words of one text; words that training never saw are left out.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    _check_pairs(len(train_bags), len(train_labels))
    _check_pairs(len(test_bags), len(test_labels))
    counter = CountVectorizer(analyzer=tuple, binary=True)  # pyright: ignore[reportArgumentType]
    model = LogisticRegression(max_iter=1000).fit(counter.fit_transform(train_bags), train_labels)
    return float(np.mean(model.predict(counter.transform(test_bags)) == np.asarray(test_labels)))


def selectivity(task_accuracy: float, control_accuracy: float) -> float:
    """Task − control accuracy (Hewitt & Liang 2019): what the probe did not get by remembering words."""
    return task_accuracy - control_accuracy


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
