"""A task's metric from sums over sentences: against scikit-learn, and what intervals and paired losses must hold."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from residuum.errors import DataError, SettingError
from residuum.maths.metrics import SentenceSums, Truth, are_span_tags, paired_loss, score_interval, share_interval
from residuum.maths.probe_scores import span_scores

RNG = np.random.default_rng(0)
SENTENCES = np.repeat(np.arange(60), 5)
TRUE = RNG.integers(0, 3, 300)
PREDICTED = np.where(RNG.random(300) < 0.7, TRUE, RNG.integers(0, 3, 300))


def test_class_metrics_against_scikit_learn():
    classes = ("a", "b", "c")
    assert Truth("accuracy", TRUE, SENTENCES, classes).sums(PREDICTED).value == accuracy_score(TRUE, PREDICTED)
    found = Truth("matthews", TRUE, SENTENCES, classes).sums(PREDICTED).value
    assert found == pytest.approx(matthews_corrcoef(TRUE, PREDICTED))
    binary, answers = TRUE == 1, PREDICTED == 1
    truth = Truth("f1", binary.astype(int), SENTENCES, ("no", "yes"))
    assert truth.sums(answers.astype(int)).value == pytest.approx(f1_score(binary, answers))


def test_number_metrics_against_scipy():
    x, y = RNG.standard_normal((2, 300)) + RNG.standard_normal(300)
    assert Truth("pearson", x, SENTENCES).sums(y).value == pytest.approx(pearsonr(x, y).statistic)
    assert Truth("spearman", x, SENTENCES).sums(y).value == pytest.approx(spearmanr(x, y).statistic)
    assert Truth("pearson", x, SENTENCES).sums(np.full(300, 0.1)).value == 0


def test_span_f1_is_that_of_whole_sentences_whatever_their_order():
    classes = ("B-NP", "I-NP", "O")
    labels = tuple(classes[i] for i in TRUE)
    found = Truth("span_f1", TRUE, SENTENCES, classes, labels).sums(PREDICTED)
    by_sentence = [[classes[i] for i in part] for part in PREDICTED.reshape(60, 5)], np.array(labels).reshape(60, 5)
    assert found.value == pytest.approx(span_scores(by_sentence[0], by_sentence[1].tolist())["span_f1"])
    assert are_span_tags(classes)
    assert not are_span_tags(("NOUN", "VERB"))


def test_a_label_unseen_in_training_is_an_error_in_every_metric():
    truth = np.where(np.arange(300) < 10, -1, TRUE)
    for metric in ("accuracy", "matthews"):
        whole, known = (Truth(metric, values, SENTENCES, ("a", "b", "c")) for values in (truth, TRUE))
        assert whole.sums(TRUE).value < known.sums(TRUE).value == 1


def test_several_runs_widen_the_interval_and_it_stays_in_the_metric_s_range():
    truth = Truth("accuracy", TRUE, SENTENCES, ("a", "b", "c"))
    runs = [truth.sums(np.where(RNG.random(300) < share, TRUE, 0)) for share in (0.5, 0.7, 0.9)]
    one, three = score_interval(runs[:1]), score_interval(runs)
    assert three.high - three.low > one.high - one.low
    assert 0 <= three.low <= three.value <= three.high <= 1
    assert float(three.value) == pytest.approx(np.mean([run.value for run in runs]))


def test_a_paired_loss_has_a_smaller_error_than_the_scores_and_rules_by_one_of_them():
    truth = Truth("accuracy", TRUE, SENTENCES, ("a", "b", "c"))
    oracle, same = truth.sums(PREDICTED), truth.sums(PREDICTED)
    equal = paired_loss(same, oracle, 1.0)
    assert (equal.excess, equal.standard_error) == (0, 0)
    assert equal.sufficient
    one_wrong = PREDICTED.copy()
    right = np.flatnonzero(PREDICTED == TRUE)
    one_wrong[right[0]] = (TRUE[right[0]] + 1) % 3
    assert paired_loss(truth.sums(one_wrong), oracle, 1.0).sufficient  # one of 300 is within its own standard error
    many_wrong = PREDICTED.copy()
    many_wrong[right[:40]] = (TRUE[right[:40]] + 1) % 3
    worse = paired_loss(truth.sums(many_wrong), oracle, 0.99)
    assert not worse.sufficient
    assert worse.standard_error < 40 / 300


def test_the_error_of_a_paired_loss_against_resampled_sentences():
    rng = np.random.default_rng(1)
    sizes = rng.integers(5, 30, 300)
    oracle, candidate = rng.binomial(sizes, 0.9), rng.binomial(sizes, 0.88)
    sums = [SentenceSums("accuracy", np.stack([right, sizes], axis=1).astype(float)) for right in (candidate, oracle)]
    loss = paired_loss(*sums, 0.98)
    draws = [rng.integers(300, size=300) for _ in range(3000)]
    values = [(0.98 * oracle[i].sum() - candidate[i].sum()) / sizes[i].sum() for i in draws]
    assert loss.standard_error == pytest.approx(np.std(values), rel=0.08)
    assert loss.excess == pytest.approx(np.mean(values), abs=1e-3)


def test_what_cannot_be_scored_is_explained():
    with pytest.raises(SettingError, match="metric 'bleu' is not one of accuracy"):
        Truth("bleu", TRUE, SENTENCES, ("a", "b", "c"))
    with pytest.raises(DataError, match="set of examples is empty"):
        Truth("accuracy", TRUE[:0], SENTENCES[:0], ("a", "b"))
    with pytest.raises(DataError, match="2 predictions came with 300 labels"):
        Truth("accuracy", TRUE, SENTENCES, ("a", "b", "c")).sums(TRUE[:2])


def test_the_share_of_an_oracle_is_paired_over_sentences():
    """Against resamples drawn one by one; two models that err on the same sentences differ less than their scores."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 9, 300)
    oracle = rng.binomial(sizes, rng.choice([0.3, 0.95], 300))
    candidate = np.maximum(oracle - rng.binomial(1, 0.1, 300), 0)
    first, second = (SentenceSums("accuracy", np.stack([x, sizes], 1).astype(float)) for x in (candidate, oracle))
    share = share_interval(first, second, seed=5)
    draws = [candidate[i].sum() / oracle[i].sum() for i in rng.integers(300, size=(2000, 300))]
    assert share.value == pytest.approx(candidate.sum() / oracle.sum())
    assert [float(share.low), float(share.high)] == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.004)
    alone = score_interval([first])
    assert share.high - share.low < (alone.high - alone.low) / alone.value / 2
    nothing = SentenceSums("accuracy", np.stack([0 * sizes, sizes], 1).astype(float))
    assert np.isnan(share_interval(first, nothing).value)
