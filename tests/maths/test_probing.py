import numpy as np
import pytest
import sklearn
import torch
from packaging.version import parse
from sklearn.linear_model import LogisticRegression, Ridge

from residuum.errors import DataError, SettingError
from residuum.maths.features import ShardedFeatures
from residuum.maths.probing import (
    PaperRecipe,
    Probe,
    initial_parameters,
    predict_probes,
    train_probes,
    word_order,
)
from residuum.maths.targets import Target, class_target, control_task, number_target

ELASTIC = {} if parse(sklearn.__version__) >= parse("1.8") else {"penalty": "elasticnet"}  # told by l1_ratio since
FULL_BATCH = PaperRecipe(epochs=5000, batch_size=10_000, learning_rate=1e-3)


def tagged_words(n_words=600, n_neurons=20, n_classes=4, seed=0, noise=0.5):
    """Neurons of which only the first eight know the tag."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_words, n_neurons)).astype(np.float32)
    directions = rng.standard_normal((8, n_classes))
    tags = (x[:, :8] @ directions + noise * rng.standard_normal((n_words, n_classes))).argmax(axis=1)
    return x, class_target([f"T{tag}" for tag in tags])


def objective(weight, bias, x, values, l1, l2):
    logits = x.astype(np.float64) @ weight.T + bias
    logits -= logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    mean_loss = -log_p[np.arange(len(x)), values].mean()
    return mean_loss + l1 * np.abs(weight).sum() + l2 * (weight**2).sum()


def test_against_sklearn_saga_elastic_net_at_convergence():
    x, target = tagged_words(n_words=300, n_neurons=10, n_classes=3)
    grid = [Probe("tag", l1=l1, l2=l2) for l1, l2 in [(1e-2, 1e-2), (2e-2, 5e-3), (1e-3, 2e-2)]]
    for probe in train_probes(x, {"tag": target}, grid, FULL_BATCH):
        l1, l2 = probe.penalty
        # sklearn minimises C Σ loss + (1 − ρ)/2 ‖w‖² + ρ ‖w‖₁; divided by n C that is our objective with
        # λ1 = ρ / (n C) and λ2 = (1 − ρ) / (2 n C).
        strength = l1 + 2 * l2
        saga = LogisticRegression(
            C=1 / (len(x) * strength), l1_ratio=l1 / strength, solver="saga", tol=1e-8, max_iter=20_000, **ELASTIC
        ).fit(x.astype(np.float64), target.values)
        theirs = objective(saga.coef_, saga.intercept_, x, target.values, l1, l2)
        assert objective(probe.weight, probe.bias, x, target.values, l1, l2) == pytest.approx(theirs, abs=1e-4)
        np.testing.assert_allclose(probe.weight, saga.coef_, atol=5e-3)
        # The loss does not see a number added to all biases.
        theirs = saga.intercept_ - saga.intercept_.mean()
        np.testing.assert_allclose(probe.bias - probe.bias.mean(), theirs, atol=5e-3)


def test_regression_against_sklearn_ridge_at_convergence():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 6)).astype(np.float32)
    y = x @ rng.standard_normal(6) + 2 + 0.3 * rng.standard_normal(200)
    (probe,) = train_probes(x, {"y": number_target(y)}, [Probe("y", l1=0.0, l2=0.1)], FULL_BATCH)
    ridge = Ridge(alpha=0.1 * len(x)).fit(x, y)
    np.testing.assert_allclose(probe.weight[0], ridge.coef_, atol=2e-3)
    assert probe.bias[0] == pytest.approx(ridge.intercept_, abs=2e-3)


def straightforward_loop(x, values, n_classes, probe, recipe):
    """What everybody writes: a linear layer, cross-entropy, the penalty, autograd, Adam; one probe."""
    columns = slice(None) if probe.neurons is None else probe.neurons
    l1, l2 = (1e-5 if penalty is None else penalty for penalty in (probe.l1, probe.l2))
    features, truth = torch.from_numpy(x[:, columns]), torch.from_numpy(values)
    start = initial_parameters(probe.seed, n_classes, features.shape[1])
    weight, bias = (torch.tensor(part, requires_grad=True) for part in start)
    optimiser = torch.optim.Adam([weight, bias], lr=recipe.learning_rate)
    for epoch in range(recipe.epochs):
        for rows in torch.from_numpy(word_order(probe.seed, epoch, len(x))).split(recipe.batch_size):
            loss = torch.nn.functional.cross_entropy(features[rows] @ weight.T + bias, truth[rows])
            optimiser.zero_grad()
            (loss + l1 * weight.abs().sum() + l2 * weight.pow(2).sum()).backward()
            optimiser.step()
    return weight.detach().numpy(), bias.detach().numpy()


def test_against_the_straightforward_loop_over_whole_epochs():
    x, target = tagged_words()
    probes = [Probe("tag"), Probe("tag", slice(5, 15), 1e-3, 1e-2, seed=2), Probe("tag", np.array([7, 0, 3]))]
    recipe = PaperRecipe(epochs=4)
    for probe, trained in zip(probes, train_probes(x, {"tag": target}, probes, recipe), strict=True):
        weight, bias = straightforward_loop(x, target.values, 4, probe, recipe)
        np.testing.assert_allclose(trained.weight, weight, atol=1e-5)
        np.testing.assert_allclose(trained.bias, bias, atol=1e-5)


def mixed_battery():
    neurons = [None, slice(0, 10), slice(10, 20), np.array([19, 3, 4])]
    probes = [Probe(t, n, seed=s) for n in neurons for t in ("tag", "control", "number") for s in (0, 1)]
    return [*probes, Probe("tag", None, 1e-2, 0.0), Probe("tag", None, 0.0, 1e-2)]


def mixed_targets(x, target):
    words = [f"w{i % 50}" for i in range(len(x))]
    control = control_task(["A", "B", "C"] * 9, seed=0).target(words)
    return {"tag": target, "control": control, "number": number_target(x[:, 0] + x[:, 12])}


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("penalty", ["squared", "published"])
def test_a_battery_learns_what_each_probe_learns_alone(penalty, standardize):
    x, target = tagged_words()
    targets = mixed_targets(x, target)
    recipe = PaperRecipe(epochs=3, penalty=penalty, standardize=standardize)
    battery = mixed_battery()
    together = train_probes(x, targets, battery, recipe)
    for probe, trained in zip(battery, together, strict=True):
        (alone,) = train_probes(x, targets, [probe], recipe)
        np.testing.assert_allclose(trained.weight, alone.weight, atol=1e-5)
        np.testing.assert_allclose(trained.bias, alone.bias, atol=1e-5)
        assert np.array_equal(trained.neurons, alone.neurons)
        assert trained.probe is probe


def test_weights_stand_beside_the_global_numbers_of_their_neurons():
    x, target = tagged_words(n_words=2000)
    chosen = np.array([15, 2, 18, 5])
    trained = train_probes(
        x, {"tag": target}, [Probe("tag", chosen), Probe("tag", slice(2, 6))], PaperRecipe(epochs=30)
    )
    assert trained[0].neurons.tolist() == [15, 2, 18, 5]
    assert trained[1].neurons.tolist() == [2, 3, 4, 5]
    mass = np.abs(trained[0].weight).sum(axis=0)
    assert set(chosen[np.argsort(-mass)[:2]]) == {2, 5}  # the neurons below 8 know the tag


def test_probes_learn_the_tag_and_not_from_neurons_that_do_not_know_it():
    x, target = tagged_words(n_words=4000)
    train, test = slice(0, 3000), slice(3000, None)
    labels = {"tag": Target(target.values[train], target.classes)}
    trained = train_probes(x[train], labels, [Probe("tag"), Probe("tag", slice(8, 20))], PaperRecipe(epochs=30))
    knowing, ignorant = [np.mean(p == target.values[test]) for p in predict_probes(trained, x[test])]
    majority = np.bincount(target.values[test]).max() / 1000
    assert knowing > 0.8
    assert ignorant < majority + 0.03


def test_the_same_seed_repeats_and_another_seed_differs():
    x, target = tagged_words()
    runs = train_probes(x, {"tag": target}, [Probe("tag", seed=s) for s in (3, 3, 4)], PaperRecipe(epochs=2))
    assert np.array_equal(runs[0].weight, runs[1].weight)
    assert not np.allclose(runs[0].weight, runs[2].weight, atol=1e-3)


def test_a_strong_l1_penalty_silences_neurons():
    x, target = tagged_words()
    grid = [Probe("tag", l1=l1) for l1 in (0.0, 1e-1)]
    free, sparse = train_probes(x, {"tag": target}, grid, PaperRecipe(epochs=300))
    assert np.mean(np.abs(sparse.weight) < 5e-3) > 0.5 > np.mean(np.abs(free.weight) < 5e-3)


def test_standardising_makes_probes_blind_to_scale_and_shift():
    x, target = tagged_words()
    rng = np.random.default_rng(1)
    moved = x * rng.uniform(0.1, 50, 20).astype(np.float32) + rng.normal(size=20).astype(np.float32)
    recipe = PaperRecipe(epochs=5, standardize=True)
    predictions = [
        predict_probes(train_probes(data, {"tag": target}, [Probe("tag")], recipe), data)[0] for data in (x, moved)
    ]
    assert np.mean(predictions[0] == predictions[1]) > 0.995


def shards_of(x, lengths, window):
    starts = np.cumsum((0, *lengths))
    loaders = tuple(lambda i=i: x[starts[i] : starts[i + 1]] for i in range(len(lengths)))
    return ShardedFeatures(loaders, tuple(lengths), x.shape[1], window)


@pytest.mark.parametrize("probes", [[Probe("tag")], [Probe("tag", np.array([1, 4, 6]))]])
def test_one_shard_in_one_window_is_the_same_as_an_array(probes):
    x, target = tagged_words()
    expected = train_probes(x, {"tag": target}, probes, PaperRecipe())[0]
    found = train_probes(shards_of(x, [600], 600), {"tag": target}, probes, PaperRecipe())[0]
    np.testing.assert_allclose(found.weight, expected.weight, atol=1e-6)


def test_streaming_small_windows_reaches_the_accuracy_of_one_array():
    x, target = tagged_words(n_words=4000)
    probes = [Probe("tag"), Probe("tag", slice(0, 8), seed=1)]
    streamed = shards_of(x, [700, 300, 1000, 1500, 500], 1200)
    for whole, parts in zip(
        predict_probes(train_probes(x, {"tag": target}, probes, PaperRecipe()), x),
        predict_probes(train_probes(streamed, {"tag": target}, probes, PaperRecipe()), streamed),
        strict=True,
    ):
        assert np.mean(parts == target.values) == pytest.approx(np.mean(whole == target.values), abs=0.01)


def test_read_only_features_are_enough():
    x, target = tagged_words()
    x.flags.writeable = False
    assert len(train_probes(x, {"tag": target}, [Probe("tag")], PaperRecipe(epochs=1))) == 1


def test_probabilities_add_up_and_agree_with_predictions():
    x, target = tagged_words()
    (probe,) = train_probes(x, {"tag": target}, [Probe("tag")])
    log_p = probe.log_probabilities(x * 100)
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1)
    assert np.array_equal(log_p.argmax(axis=1), probe.predict(x * 100))


def test_ablation_keeps_only_the_named_neurons():
    x, target = tagged_words()
    (probe,) = train_probes(x, {"tag": target}, [Probe("tag", slice(4, 12))], PaperRecipe())
    ablated = probe.keeping(np.array([5, 11, 0]))
    expected = x[:, [5, 11]] @ probe.weight[:, [1, 7]].T + probe.bias
    np.testing.assert_allclose(ablated.logits(x), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        (Probe("pos"), r"asks for 'pos'; the targets are \['tag'\]"),
        (Probe("tag", np.array([0, 20])), "Neuron 20 is out of range"),
        (Probe("tag", slice(10, 30)), "there are 20"),
        (Probe("tag", np.array([1, 1])), "a neuron twice"),
        (Probe("tag", np.array([], int)), "no neurons"),
        (Probe("tag", l1=-1.0), "must be finite and not negative"),
        (Probe("tag", l2=np.nan), "must be finite and not negative"),
        (Probe("tag", seed=-1), "must be finite and not negative"),
    ],
)
def test_impossible_probes_are_explained(probe, message):
    x, target = tagged_words()
    with pytest.raises(SettingError, match=message):
        train_probes(x, {"tag": target}, [probe])


@pytest.mark.parametrize("rate", [0.0, -1.0, np.nan, np.inf])
def test_impossible_learning_rates_are_explained(rate):
    with pytest.raises(SettingError, match="must be positive and finite"):
        PaperRecipe(learning_rate=rate)


def test_weights_that_run_away_are_an_error_and_no_result():
    x, target = tagged_words()
    with pytest.raises(DataError, match="not finite after training with the learning rate 1e\\+39; lower it"):
        train_probes(x, {"tag": target}, [Probe("tag")], PaperRecipe(epochs=1, learning_rate=1e39))


def test_bad_data_is_explained():
    x, target = tagged_words()
    probes = [Probe("tag")]
    with pytest.raises(DataError, match="600 words and the target 'tag' has 599 values"):
        train_probes(x, {"tag": Target(target.values[1:], target.classes)}, probes)
    with pytest.raises(DataError, match="one class in the training words"):
        train_probes(x, {"tag": Target(np.zeros(600, int), target.classes)}, probes)
    with pytest.raises(DataError, match="4 classes and only 3 training words"):
        train_probes(x[:3], {"tag": Target(np.array([0, 1, 2]), target.classes)}, probes)
    with pytest.raises(DataError, match="outside its 4 classes"):
        train_probes(x, {"tag": Target(target.values - 1, target.classes)}, probes)
    with pytest.raises(DataError, match="contains NaN"):
        train_probes(x, {"tag": Target(np.full(600, np.nan))}, probes)
    with pytest.raises(DataError, match="at least one of each"):
        train_probes(x[:0], {"tag": target}, probes)
    with pytest.raises(DataError, match="at least one of each"):
        train_probes(x, {"tag": target}, [])
    holed = x.copy()
    holed[7, 7] = np.nan
    with pytest.raises(DataError, match="Word 7 has a NaN"):
        train_probes(holed, {"tag": target}, probes)
    trained = train_probes(x, {"tag": target}, probes, PaperRecipe(epochs=1))
    with pytest.raises(DataError, match="test set is empty"):
        predict_probes(trained, x[:0])
    with pytest.raises(DataError, match="have 19 neurons, the probe learnt from 20"):
        predict_probes(trained, x[:, 1:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "must be positive"),
        ({"batch_size": 0}, "positive"),
        ({"penalty": "l3"}, "choose squared"),
    ],
)
def test_impossible_recipes_are_explained(settings, message):
    with pytest.raises(SettingError, match=message):
        PaperRecipe(**settings)
