"""Forward selection and closed-form probes against brute force and scikit-learn."""

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from residuum.errors import DataError, SettingError
from residuum.maths.clustering import neuron_correlation
from residuum.maths.features import ShardedFeatures
from residuum.maths.probing import Probe
from residuum.maths.targets import class_target, number_target
from residuum.maths.task_moments import class_forward_selection, forward_selection, quick_probes, task_moments

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(500, 12)) @ RNG.normal(size=(12, 12)) + 5).astype(np.float32)
CLASSES = class_target([str(c) for c in (X @ RNG.normal(size=(12, 3)) + 3 * RNG.normal(size=(500, 3))).argmax(axis=1)])
NUMBERS = number_target(X[:, 3] - 2 * X[:, 7] + RNG.normal(size=500))


def indicators(target):
    values = np.eye(target.n_classes)[target.values] if target.n_classes else target.values[:, None].astype(float)
    return values - values.mean(axis=0)


def greedy_least_squares(x, b, steps, ridge):
    """Fit every candidate set anew, and keep the neuron that reduces the penalised squared error most."""
    z = (x - x.mean(axis=0, dtype=np.float64)) / x.std(axis=0, dtype=np.float64)
    chosen = []
    for _ in range(steps):
        explained = {}
        for j in set(range(x.shape[1])) - set(chosen):
            own = z[:, [*chosen, j]]
            inner = own.T @ own / len(x) + ridge * np.eye(own.shape[1])
            cross = own.T @ b / len(x)
            explained[j] = np.sum(cross * np.linalg.solve(inner, cross))
        chosen.append(max(explained, key=explained.__getitem__))
    return chosen


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("target", [CLASSES, NUMBERS])
def test_against_brute_force_greedy_least_squares(target, ridge):
    found = forward_selection(task_moments(X, target), ridge=ridge)
    assert found.order.tolist() == greedy_least_squares(X, indicators(target), 12, ridge)
    assert sorted(found.order) == list(range(12))


def test_discriminant_scaling_against_brute_force():
    b = indicators(CLASSES) / np.sqrt(np.bincount(CLASSES.values) / 500)
    found = forward_selection(task_moments(X, CLASSES), discriminant=True, ridge=0.0)
    assert found.order.tolist() == greedy_least_squares(X, b, 12, 0.0)


def test_each_class_against_brute_force():
    orders = class_forward_selection(task_moments(X, CLASSES), limit=5)
    ridge = task_moments(X, CLASSES).ridge
    for c, found in enumerate(orders):
        assert found.order[:5].tolist() == greedy_least_squares(X, indicators(CLASSES)[:, [c]], 5, ridge)


def test_scores_add_up_to_the_variance_that_all_neurons_explain():
    found = forward_selection(task_moments(X, NUMBERS), ridge=0.0)
    z, y = X - X.mean(axis=0), NUMBERS.values - NUMBERS.values.mean()
    left = y - z @ np.linalg.lstsq(z, y, rcond=None)[0]
    assert found.scores.sum() == pytest.approx(1 - left.var() / y.var(), abs=1e-4)


def test_copies_add_nothing_and_constant_neurons_come_last():
    wide = np.concatenate([np.full((500, 1), 0.1, np.float32), X, X[:, [7]] * 2 + 1], axis=1)
    found = forward_selection(task_moments(wide, NUMBERS), ridge=0.0)
    order = found.order.tolist()
    assert order[0] == 8, "equal gains: the lower column first"
    assert order[-1] == 0
    assert found.scores[0] == 0
    assert order.index(13) == 12
    assert found.scores[13] < 1e-6


def test_the_rest_follows_by_what_each_would_add():
    moments = task_moments(X, CLASSES)
    assert forward_selection(moments, limit=3).order[:4].tolist() == forward_selection(moments).order[:4].tolist()
    assert sorted(forward_selection(moments, limit=3).order) == list(range(12))


def test_the_order_of_examples_and_neurons_does_not_matter():
    words, neurons = RNG.permutation(500), RNG.permutation(12)
    target = class_target([CLASSES.classes[v] for v in CLASSES.values[words]])
    found = forward_selection(task_moments(X[words][:, neurons], target))
    assert neurons[found.order].tolist() == forward_selection(task_moments(X, CLASSES)).order.tolist()


def test_streaming_and_a_known_correlation_give_the_same_moments():
    lengths, starts = (200, 50, 250), (0, 200, 250)
    loaders = tuple(lambda i=i: X[starts[i] : starts[i] + lengths[i]] for i in range(3))
    whole = task_moments(X, CLASSES)
    for other in (
        task_moments(ShardedFeatures(loaders, lengths, 12, 260), CLASSES),
        task_moments(X, CLASSES, neuron_correlation(X)),
    ):
        np.testing.assert_allclose(other.correlation, whole.correlation, atol=1e-5)
        np.testing.assert_allclose(other.cross, whole.cross, atol=1e-6)


@pytest.mark.parametrize("n", [20, 60, 2000])
def test_shrinkage_is_close_to_that_of_sklearn_on_normal_data(n):
    x = np.random.default_rng(1).normal(size=(n, 40)) @ np.linalg.cholesky(0.3 + 0.7 * np.eye(40)).T
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    target = number_target(x[:, 0])
    assert task_moments(x.astype(np.float32), target).shrinkage == pytest.approx(ledoit_wolf(z)[1], rel=0.35)


def test_few_examples_need_the_shrinkage():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 200)).astype(np.float32)
    target = number_target(x[:, :5].sum(axis=1) + rng.normal(size=60) * 0.3)
    found = forward_selection(task_moments(x, target))
    assert len(set(found.order[:8]) & set(range(5))) >= 4
    assert np.isfinite(found.scores).all()
    assert sorted(found.order) == list(range(200))


@pytest.mark.parametrize("neurons", [None, np.array([7, 2, 9])])
def test_quick_probe_against_sklearn_lda(neurons):
    (quick,) = quick_probes(task_moments(X, CLASSES), [Probe("t", neurons)], ridge=0.0)
    own = X if neurons is None else X[:, neurons]
    oracle = LinearDiscriminantAnalysis(solver="lsqr").fit(own.astype(np.float64), CLASSES.values)
    np.testing.assert_allclose(quick.log_probabilities(X), oracle.predict_log_proba(own), atol=0.02)


def test_quick_probe_against_sklearn_ridge():
    (quick,) = quick_probes(task_moments(X, NUMBERS), [Probe("t", l2=0.1)])
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    oracle = Ridge(alpha=0.1 * 500).fit(z, NUMBERS.values)
    np.testing.assert_allclose(quick.predict(X), oracle.predict(z), atol=1e-3)


def test_quick_probes_survive_constant_neurons_and_few_words():
    x = np.concatenate([X[:8], np.ones((8, 3), np.float32)], axis=1)
    (quick,) = quick_probes(task_moments(x, class_target(list("aabbaabb"))), [Probe("t")])
    assert np.isfinite(quick.weight).all()
    assert (quick.weight[:, 12:] == 0).all()


def test_impossible_requests_are_explained():
    with pytest.raises(DataError, match="500 words came with 3 labels"):
        task_moments(X, class_target(list("aab")))
    with pytest.raises(SettingError, match="Discriminant"):
        forward_selection(task_moments(X, NUMBERS), discriminant=True)
