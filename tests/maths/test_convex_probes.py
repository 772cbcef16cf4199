"""Converged probes against scikit-learn, and what must not change their predictions."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge

from residuum.errors import DataError, SettingError
from residuum.maths.features import ShardedFeatures
from residuum.maths.metrics import Truth
from residuum.maths.probing import ConvergedRecipe, HeldOut, Probe, fit, train_probes
from residuum.maths.targets import Target, class_target, number_target

TIGHT = ConvergedRecipe(tolerance=1e-10)
RNG = np.random.default_rng(0)
X = (RNG.normal(size=(900, 16)) @ RNG.normal(size=(16, 16)) + RNG.normal(size=16) * 3).astype(np.float32)
SCORES = X @ RNG.normal(size=(16, 4)) / 3 + RNG.gumbel(size=(900, 4))
CLASSES = class_target([f"c{c}" for c in SCORES.argmax(axis=1)])
NUMBERS = number_target(X @ RNG.normal(size=16) * 50 + RNG.normal(size=900) * 100 + 1e4)
Z = ((X - X.mean(axis=0, dtype=np.float64)) / X.std(axis=0, dtype=np.float64)).astype(np.float64)


def solved(x=X, target=CLASSES, recipe=TIGHT, held_out=None, **probe):
    return train_probes(x, {"t": target}, [Probe("t", **probe)], recipe, held_out)[0]


def sharded(x, lengths=(250, 150, 400, 100), window=420):
    starts = np.cumsum((0, *lengths))
    loaders = tuple(lambda i=i: x[starts[i] : starts[i + 1]] for i in range(len(lengths)))
    return ShardedFeatures(loaders, tuple(lengths), x.shape[1], window)


@pytest.mark.parametrize("l2", [1e-1, 1e-2, 1e-4])
def test_against_sklearn_logistic_regression(l2):
    probe = solved(l2=l2)
    oracle = LogisticRegression(C=1 / (2 * l2 * len(X)), tol=1e-10, max_iter=10_000).fit(Z, CLASSES.values)
    np.testing.assert_allclose(probe.weight, oracle.coef_, atol=2e-4)
    np.testing.assert_allclose(probe.log_probabilities(X), oracle.predict_log_proba(Z), atol=2e-3)
    assert probe.converged
    assert probe.penalty == (0.0, l2)


def test_against_sklearn_with_two_classes():
    target = class_target(["yes" if c < 2 else "no" for c in CLASSES.values])
    probe = solved(target=target, l2=1e-2)
    # Two rows w/2 and −w/2 cost λ2‖w‖²/2 where scikit-learn's one row w costs ‖w‖²/(2 n C).
    oracle = LogisticRegression(C=1 / (1e-2 * len(X)), tol=1e-10).fit(Z, target.values)
    np.testing.assert_allclose(probe.weight[1] - probe.weight[0], oracle.coef_[0], atol=2e-4)


@pytest.mark.parametrize(("l1", "l2"), [(3e-2, 1e-2), (1e-2, 1e-3), (1e-3, 1e-1)])
def test_against_sklearn_saga_with_the_same_sparsity(l1, l2):
    probe = solved(l1=l1, l2=l2)
    strength = (l1 + 2 * l2) * len(X)
    oracle = LogisticRegression(
        C=1 / strength, l1_ratio=l1 / (l1 + 2 * l2), solver="saga", tol=1e-9, max_iter=50_000
    ).fit(Z, CLASSES.values)
    np.testing.assert_allclose(probe.weight, oracle.coef_, atol=5e-4)
    clear = np.abs(oracle.coef_) > 1e-3
    assert (probe.weight[clear] != 0).all()
    assert ((probe.weight == 0) | (np.abs(probe.weight) < 1e-3))[oracle.coef_ == 0].all()
    assert probe.converged


@pytest.mark.parametrize("l2", [1e-1, 1e-3])
def test_numbers_against_sklearn_ridge(l2):
    probe = solved(target=NUMBERS, l2=l2)
    oracle = Ridge(alpha=l2 * len(X)).fit(Z, NUMBERS.values.astype(np.float64))
    np.testing.assert_allclose(probe.weight[0], oracle.coef_, rtol=1e-3, atol=0.02)
    np.testing.assert_allclose(probe.predict(X), oracle.predict(Z), rtol=1e-5)


def test_numbers_against_sklearn_elastic_net():
    l1, l2 = 40.0, 1e-2
    probe = solved(target=NUMBERS, l1=l1, l2=l2)
    oracle = ElasticNet(alpha=l1 / 2 + l2, l1_ratio=(l1 / 2) / (l1 / 2 + l2), tol=1e-10, max_iter=100_000)
    oracle.fit(Z, NUMBERS.values.astype(np.float64))
    assert 0 < (oracle.coef_ == 0).sum() < 16
    np.testing.assert_allclose(probe.weight[0], oracle.coef_, atol=0.05)
    assert np.array_equal(probe.weight[0] == 0, oracle.coef_ == 0)


@pytest.mark.parametrize("l1", [0.0, 1e-2])
def test_the_order_of_examples_and_neurons_does_not_matter(l1):
    words, neurons = np.random.default_rng(1).permutation(900), np.random.default_rng(2).permutation(16)
    shuffled = Target(CLASSES.values[words], CLASSES.classes)
    a = solved(recipe=ConvergedRecipe(), l1=l1)
    b = solved(X[words][:, neurons], shuffled, ConvergedRecipe(), l1=l1)
    assert np.mean(a.predict(X) == b.predict(X[:, neurons])) >= 0.999
    np.testing.assert_allclose(a.weight[:, neurons], b.weight, atol=2e-3)


@pytest.mark.parametrize("target", [CLASSES, NUMBERS])
@pytest.mark.parametrize("neurons", [None, slice(3, 9), np.array([11, 2, 7])])
def test_streaming_equals_one_array(target, neurons):
    whole = solved(target=target, neurons=neurons, l2=1e-2)
    parts = solved(sharded(X), target, neurons=neurons, l2=1e-2)
    np.testing.assert_allclose(parts.weight, whole.weight, rtol=1e-4, atol=1e-4 * np.abs(whole.weight).max())


def test_a_battery_finds_what_each_probe_finds_alone_and_nested_sets_share_columns():
    order = np.random.default_rng(3).permutation(16)
    probes = [Probe("t", order[:k], l2=1e-2) for k in (2, 5, 8)] + [Probe("n", order[:5]), Probe("t", slice(0, 3))]
    together = train_probes(X, {"t": CLASSES, "n": NUMBERS}, probes, TIGHT)
    for probe, found in zip(probes, together, strict=True):
        (alone,) = train_probes(X, {"t": CLASSES, "n": NUMBERS}, [probe], TIGHT)
        np.testing.assert_allclose(found.weight, alone.weight, rtol=1e-3, atol=1e-3 * np.abs(alone.weight).max())


def test_a_warm_start_along_the_path_gives_the_solution_of_a_cold_one():
    held_out = HeldOut(X[:300], {"t": CLASSES.values[:300]})
    path = replace(TIGHT, path=(1.0, 1e-1, 1e-2, 1e-3))
    chosen = solved(recipe=path, held_out=held_out)
    cold = solved(l2=chosen.penalty[1])
    np.testing.assert_allclose(chosen.weight, cold.weight, atol=1e-4)


def test_lambda_is_chosen_on_held_out_examples_and_ties_take_the_larger():
    noise = np.random.default_rng(4)
    x = noise.normal(size=(1200, 190)).astype(np.float32)
    target = class_target(["a" if v > 0 else "b" for v in x[:, 0] + noise.normal(size=1200)])
    held_out = HeldOut(x[200:], {"t": target.values[200:]})
    chosen = solved(x[:200], Target(target.values[:200], target.classes), ConvergedRecipe(), held_out)
    free = solved(x[:200], Target(target.values[:200], target.classes), l2=1e-5)
    assert chosen.penalty[1] > 1e-3
    assert np.mean(chosen.predict(x[200:]) == target.values[200:]) > np.mean(
        free.predict(x[200:]) == target.values[200:]
    )
    easy = HeldOut(x[:50] * 0, {"t": np.zeros(50, int)})  # every λ2 gives the same answers
    assert solved(x, target, ConvergedRecipe(), easy).penalty[1] == ConvergedRecipe().path[0]


def test_a_constant_answer_with_the_fewest_errors_is_not_chosen_by_matthews_correlation():
    noise = np.random.default_rng(0)
    values = (noise.random(1500) < 0.3).astype(int)
    x = (0.2 * values[:, None] + noise.normal(size=(1500, 6))).astype(np.float32)
    truth = Truth("matthews", values[500:], np.arange(1000), ("a", "b"))
    learnt = Target(values[:500], ("a", "b"))
    by_errors = HeldOut(x[500:], {"t": values[500:]})
    by_score = HeldOut(x[500:], {"t": values[500:]}, {"t": lambda predicted: truth.sums(predicted).value})
    first, second = (solved(x[:500], learnt, ConvergedRecipe(), held_out) for held_out in (by_errors, by_score))
    assert second.penalty[1] < first.penalty[1]
    assert truth.sums(second.predict(x[500:])).value > truth.sums(first.predict(x[500:])).value


def test_labels_without_signal_give_no_held_out_accuracy():
    noise = np.random.default_rng(5)
    target = Target(noise.integers(0, 4, 900), CLASSES.classes)
    probe = solved(X[:600], Target(target.values[:600], target.classes), ConvergedRecipe())
    assert abs(np.mean(probe.predict(X[600:]) == target.values[600:]) - 0.25) < 0.08
    assert np.mean(solved(recipe=ConvergedRecipe()).predict(X) == CLASSES.values) > 0.6  # with signal there is one


def test_constant_neurons_have_no_weight_and_change_nothing():
    wide = np.concatenate([X, np.full((900, 2), 0.1, np.float32)], axis=1)
    probe = solved(wide, l2=1e-2)
    assert (probe.weight[:, 16:] == 0).all()
    np.testing.assert_allclose(probe.weight[:, :16], solved(l2=1e-2).weight, atol=1e-4)


@pytest.mark.parametrize("streamed", [False, True])
def test_neurons_far_from_zero_lose_no_digits(streamed):
    centred = np.round(X * 8) / 8  # exact in float32 with the shift
    moved = centred + np.where(np.arange(16) % 3 == 0, 2.0**15, 0).astype(np.float32)
    found = solved(sharded(moved) if streamed else moved, l2=1e-2)
    np.testing.assert_allclose(found.weight, solved(centred, l2=1e-2).weight, atol=1e-4)


def test_separable_classes_and_a_class_with_one_example_converge():
    x = np.concatenate([X - 40, X + 40, X[:1] * 9])
    target = class_target(["low"] * 900 + ["high"] * 900 + ["rare"])
    for l2 in (1e-2, 1e-5):
        probe = solved(x, target, ConvergedRecipe(), l2=l2)
        assert probe.converged
        assert np.isfinite(probe.weight).all()
        assert np.mean(probe.predict(x) == target.values) > 0.999


def test_a_class_without_examples_is_hardly_predicted():
    target = Target(CLASSES.values, (*CLASSES.classes, "never"))
    (probe,) = fit(X, {"t": target}, [Probe("t", l2=1e-2)], ConvergedRecipe())
    assert probe.converged
    assert not (probe.predict(X) == 4).any()


def test_probes_that_differ_in_their_seed_alone_are_solved_once_and_equal():
    first, second = train_probes(X, {"t": CLASSES}, [Probe("t", seed=s) for s in (0, 1)])
    assert np.array_equal(first.weight, second.weight)
    assert (first.probe.seed, second.probe.seed) == (0, 1)


def test_too_few_iterations_are_reported_as_not_converged():
    assert not solved(recipe=ConvergedRecipe(iterations=2)).converged
    assert solved(recipe=ConvergedRecipe()).iterations > 2


def test_bad_settings_and_features_are_explained():
    with pytest.raises(SettingError, match="from large to small"):
        ConvergedRecipe(path=(1e-3, 1e-2))
    with pytest.raises(SettingError, match="tolerance"):
        ConvergedRecipe(tolerance=0.0)
    with pytest.raises(SettingError, match="λ2"):
        solved(l2=0.0)
    bad = X.copy()
    bad[7, 3] = np.nan
    with pytest.raises(DataError, match="Word 7"):
        solved(bad)
