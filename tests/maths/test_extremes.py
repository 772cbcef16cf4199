"""Measures at the edges of what numbers can say: tiny and huge scales, huge means, half precision, few words."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from residuum.errors import DataError
from residuum.maths.clustering import cluster_neurons, neuron_correlation
from residuum.maths.losses import hidden_cos, hidden_kl, hidden_mse, info_nce, normalized_mse
from residuum.maths.moments import MomentsAccumulator, merge
from residuum.maths.probe_scores import pearson_score
from residuum.maths.probing import PaperRecipe, Probe, train_probes
from residuum.maths.rankings import (
    Ranking,
    class_sums,
    gaussian_ranking,
    iou_ranking,
    joint_scatter,
    lca_ranking,
    mean_difference_ranking,
    probeless_ranking,
)
from residuum.maths.retrieval import cosine_ranks
from residuum.maths.similarity import MEASURES, similarity
from residuum.maths.statistics import pearson
from residuum.maths.targets import class_target

FROM_ROWS = [name for name, measure in MEASURES.items() if measure.source in ("moments", "arrays")]
FROM_MOMENTS = [name for name, measure in MEASURES.items() if measure.source == "moments"]
# The weights of PWCCA are sums over neurons: they change when a layer is turned.
ROTATION_INVARIANT = ("svcca", "cka", "cka_debiased", "procrustes", "cka_rbf", "knn")

few = settings(max_examples=25)
scales = st.integers(-20, 20).map(lambda exponent: 10.0**exponent)
seeds = st.integers(0, 10**6)


def layers(seed: int, words: int = 24, width: int = 4, other: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Two layers that have something in common."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((words, width))
    return x, x[:, :1] @ rng.standard_normal((1, other)) + 0.5 * rng.standard_normal((words, other))


def measured(x: np.ndarray, y: np.ndarray, measure: str) -> float:
    chosen = {"rng": np.random.default_rng(0), "neighbours": 2}
    return similarity(x, y, measure, **{k: v for k, v in chosen.items() if k in MEASURES[measure].options})


@pytest.mark.parametrize("measure", FROM_ROWS)
@few
@given(seed=seeds, a=scales, b=scales)
def test_the_scale_of_a_layer_means_nothing(measure, seed, a, b):
    x, y = layers(seed)
    assert measured(a * x, -b * y, measure) == pytest.approx(measured(x, -y, measure), abs=1e-7)


@pytest.mark.parametrize("measure", FROM_ROWS)
@few
@given(seed=seeds, a=scales, words=st.integers(4, 30), width=st.integers(1, 6), other=st.integers(1, 6))
def test_every_value_lies_within_its_bounds(measure, seed, a, words, width, other):
    x, y = layers(seed, words, width, other)
    value = measured(a * x, y, measure)
    assert MEASURES[measure].lowest - 1e-9 <= value <= 1 + 1e-9


@pytest.mark.parametrize("measure", FROM_ROWS)
@few
@given(seed=seeds, a=scales)
def test_a_layer_is_wholly_like_its_multiple(measure, seed, a):
    x, _ = layers(seed)
    assert measured(x, a * x, measure) == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("measure", ROTATION_INVARIANT)
@few
@given(seed=seeds, a=scales)
def test_a_turned_layer_stays_what_it_is(measure, seed, a):
    x, y = layers(seed)
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((4, 4)))[0]
    assert measured(a * x @ turn, y, measure) == pytest.approx(measured(x, y, measure), abs=1e-6)


@pytest.mark.parametrize("measure", FROM_MOMENTS)
@few
@given(seed=seeds, exponent=st.integers(0, 8))
def test_a_huge_mean_changes_no_more_than_its_rounding(measure, seed, exponent):
    """Float64 keeps 16 digits, so a mean of 10^e leaves 16 − e of a deviation of 1."""
    x, y = layers(seed)
    shift = 10.0**exponent * np.array([1, -1, 2, 3])
    assert measured(x + shift, y, measure) == pytest.approx(measured(x, y, measure), abs=10.0 ** (exponent - 13) + 1e-9)


@pytest.mark.parametrize("measure", FROM_MOMENTS)
@few
@given(seed=seeds)
def test_half_precision_costs_no_more_than_its_digits(measure, seed):
    x, y = layers(seed)
    halves = [layer.astype(np.float16) for layer in (x, y)]
    assert measured(*halves, measure) == pytest.approx(measured(x, y, measure), abs=0.02)


@pytest.mark.parametrize("measure", [name for name in FROM_ROWS if name != "imd"])  # which knows no pairs of words
def test_more_noise_never_makes_layers_more_alike(measure):
    x, _ = layers(3, words=200)
    noise = np.random.default_rng(4).standard_normal(x.shape)
    values = [measured(x, x + amount * noise, measure) for amount in (0, 0.1, 0.5, 2, 50)]
    chance = 0.02 if measure in ("cknna", "rank_similarity") else 0.0  # neighbours in noise alone agree by chance
    assert values[:-1] == sorted(values[:-1], reverse=True)
    assert values[-1] <= values[-2] + chance


@pytest.mark.parametrize("measure", FROM_ROWS)
@pytest.mark.parametrize("words", [1, 2, 3])
def test_a_few_words_give_a_value_or_a_clear_error(measure, words):
    x, y = layers(0, words=words)
    try:
        value = measured(x, y, measure)
    except DataError as error:
        value, said = 0.0, str(error)
    else:
        said = ""
    assert MEASURES[measure].lowest - 1e-9 <= value <= 1 + 1e-9
    assert not said or "expected" in said or "at least" in said


@pytest.mark.parametrize("measure", FROM_MOMENTS)
def test_a_layer_without_variance_is_like_nothing(measure):
    x, y = layers(0)
    assert measured(np.full_like(x, 1e20), y, measure) == 0
    assert measured(y, np.full_like(x, -1e-20), measure) == 0


@few
@given(seed=seeds, a=scales, cut=st.integers(1, 23))
def test_merged_moments_are_those_of_the_whole_at_every_scale(seed, a, cut):
    x, y = layers(seed)
    parts = []
    for rows in (slice(None), slice(cut), slice(cut, None)):
        accumulator = MomentsAccumulator([4, 3])
        accumulator.update([a * x[rows], y[rows]])
        parts.append(accumulator.result())
    whole, merged = parts[0], merge(parts[1], parts[2])
    for i in range(2):
        scale = np.abs(whole.layer(i).scatter).max()
        np.testing.assert_allclose(merged.layer(i).scatter, whole.layer(i).scatter, rtol=1e-9, atol=1e-9 * scale)


@few
@given(
    seed=seeds,
    a=scales,
    powers=st.lists(st.integers(-6, 6), min_size=4, max_size=4),
    threshold=st.floats(0.01, 0.9),
)
def test_clusters_do_not_depend_on_the_scale_or_the_sign_of_neurons(seed, a, powers, threshold):
    """A layer may be as small or large as it likes; inside it, what float64 loses beside the others is constant."""
    x, _ = layers(seed)
    scaled = a * x * 10.0 ** np.array(powers, float) * np.array([1, -1, 1, -1])
    np.testing.assert_array_equal(cluster_neurons(scaled, threshold), cluster_neurons(x, threshold))


@few
@given(seed=seeds, first=st.floats(0.05, 0.4), second=st.floats(0.5, 0.95))
def test_a_higher_threshold_never_gives_more_clusters(seed, first, second):
    x, _ = layers(seed, width=6)
    counts = [len(set(cluster_neurons(x, threshold).tolist())) for threshold in (first, second)]
    assert counts[0] >= counts[1]


@few
@given(seed=seeds, a=scales)
def test_correlations_of_neurons_stay_within_one(seed, a):
    x, _ = layers(seed, words=5)
    found, _ = neuron_correlation(a * np.concatenate([x, 2 * x], axis=1))
    assert np.abs(found).max() <= 1 + 1e-6


@few
@given(seed=seeds, a=scales, b=scales)
def test_pearson_is_the_same_at_every_scale(seed, a, b):
    x, y = (layer[:, 0] for layer in layers(seed))
    expected = np.corrcoef(x, y)[0, 1]
    assert pearson_score(a * x, b * y) == pytest.approx(expected, abs=1e-9)
    assert pearson(a * x, b * y).r == pytest.approx(expected, abs=1e-9)


CLASSES = np.arange(90) % 3


def knowing(seed: int) -> np.ndarray:
    """Six neurons over 90 words of three classes: neurons 0, 2 and 4 each know a class of their own."""
    x = np.random.default_rng(seed).standard_normal((90, 6))
    x[:, [0, 2, 4]] += 6.0 * np.eye(3)[CLASSES]
    return x


def gaussian(x: np.ndarray) -> Ranking:
    return gaussian_ranking(class_sums(x, CLASSES, 3), joint_scatter(x, [x.shape[1]]))


RANKINGS = {
    "mean_difference": lambda x: mean_difference_ranking(class_sums(x, CLASSES, 3)),
    "probeless": lambda x: probeless_ranking(class_sums(x, CLASSES, 3)),
    "iou": lambda x: iou_ranking(x, CLASSES, share=1 / 3),
    "gaussian": gaussian,
}


@pytest.mark.parametrize("method", RANKINGS)
@few
@given(seed=seeds, a=scales, powers=st.lists(st.integers(-2, 2), min_size=6, max_size=6))
def test_rankings_do_not_depend_on_the_scale_of_a_layer_or_of_a_neuron(method, seed, a, powers):
    x = knowing(seed)
    own = np.zeros(6) if method == "probeless" else np.array(powers, float)  # means are in the units of a neuron
    found, expected = RANKINGS[method](a * x * 10.0**own), RANKINGS[method](x)
    unit = a if method == "probeless" else 1.0
    np.testing.assert_allclose(found.scores / unit, expected.scores, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(found.order, expected.order)


@pytest.mark.parametrize("method", RANKINGS)
@few
@given(seed=seeds, shift=st.lists(st.integers(-1000, 1000), min_size=6, max_size=6))
def test_rankings_find_the_same_neurons_around_any_mean_and_in_half_precision(method, seed, shift):
    x = knowing(seed)
    expected = set(RANKINGS[method](x).order[:2].tolist())
    assert expected <= {0, 2, 4}
    for other in (x + np.array(shift, float), x.astype(np.float16)):
        assert set(RANKINGS[method](other).order[:2].tolist()) <= {0, 2, 4}


@pytest.mark.parametrize("method", RANKINGS)
@pytest.mark.parametrize("words", [1, 2])
def test_a_word_or_a_neuron_alone_is_ranked_without_a_fault(method, words, monkeypatch):
    known = knowing(0)
    monkeypatch.setitem(globals(), "CLASSES", np.arange(words))
    for x in (known[:words], known[:words, :1]):
        found = RANKINGS[method](x)
        assert sorted(found.order.tolist()) == list(range(x.shape[1]))
        assert np.isfinite(found.scores).all()


@few
@given(seed=seeds, a=scales)
def test_the_scale_of_weights_means_nothing_to_lca(seed, a):
    weight = np.random.default_rng(seed).standard_normal((3, 8))
    np.testing.assert_array_equal(lca_ranking(a * weight).order, lca_ranking(weight).order)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 50), exponent=st.integers(-20, 20))
def test_a_standardised_probe_learns_the_same_at_every_scale(seed, exponent):
    x, target = knowing(seed).astype(np.float32), class_target([str(c) for c in CLASSES])
    scaled = (x * np.float32(10.0**exponent)).astype(np.float32)
    recipe = PaperRecipe(epochs=3, batch_size=16, learning_rate=0.05, standardize=True)
    first, second = (train_probes(own, {"task": target}, [Probe("task")], recipe)[0] for own in (x, scaled))
    np.testing.assert_allclose(second.weight, first.weight, atol=1e-3)
    np.testing.assert_array_equal(second.predict(scaled), first.predict(x))


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 50), exponent=st.integers(-20, 20))
def test_a_plain_probe_stays_finite_at_every_scale(seed, exponent):
    x = (knowing(seed) * 10.0**exponent).astype(np.float32)
    target = class_target([str(c) for c in CLASSES])
    (probe,) = train_probes(
        x, {"task": target}, [Probe("task", l1=1e-5, l2=1e-5)], PaperRecipe(epochs=2, batch_size=16)
    )
    assert np.isfinite(probe.weight).all()
    assert np.isfinite(probe.log_probabilities(x)).all()
    assert set(probe.predict(x).tolist()) <= {0, 1, 2}


@few
@given(seed=seeds, a=scales, b=scales)
def test_retrieval_by_cosine_does_not_depend_on_the_length_of_vectors(seed, a, b):
    generator = torch.Generator().manual_seed(seed)
    source, noise = (torch.randn(12, 5, generator=generator) for _ in range(2))
    target = source + 0.5 * noise
    for found, expected in zip(cosine_ranks(a * source, b * target), cosine_ranks(source, target), strict=True):
        np.testing.assert_array_equal(found.better, expected.better)
        np.testing.assert_array_equal(found.equal, expected.equal)


def test_vectors_of_zeros_are_found_by_chance_only():
    forward, backward = cosine_ranks(torch.zeros(4, 3), torch.zeros(4, 3))
    assert forward.hits.tolist() == backward.hits.tolist() == [0.25] * 4


@pytest.mark.parametrize("loss", [hidden_cos, normalized_mse])
@few
@given(seed=seeds, a=scales, b=scales)
def test_losses_of_directions_do_not_depend_on_lengths_and_neither_do_their_gradients(loss, seed, a, b):
    generator = torch.Generator().manual_seed(seed)
    student, teacher = (torch.randn(2, 3, 6, generator=generator) for _ in range(2))
    plain, scaled = student.clone().requires_grad_(), (a * student).requires_grad_()
    before, after = loss(plain, teacher), loss(scaled, b * teacher)
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-6)
    assert (after >= -1e-6).all()
    before.sum().backward()
    after.sum().backward()
    torch.testing.assert_close(scaled.grad.double() * a, plain.grad.double(), rtol=1e-4, atol=1e-6)


@few
@given(seed=seeds, a=scales, b=scales)
def test_contrast_does_not_depend_on_the_length_of_vectors(seed, a, b):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(4, 6, generator=generator) for _ in range(2))
    torch.testing.assert_close(info_nce(a * x, b * y, 0.1), info_nce(x, y, 0.1), rtol=1e-4, atol=1e-5)


@few
@given(seed=seeds, a=scales)
def test_squared_errors_grow_with_the_square_and_divergences_stay_finite_and_positive(seed, a):
    generator = torch.Generator().manual_seed(seed)
    student, teacher = (torch.randn(2, 3, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    expected = a**2 * hidden_mse(student, teacher)
    torch.testing.assert_close(hidden_mse(a * student, a * teacher), expected, rtol=1e-9, atol=0)
    assert (hidden_mse(a * student, a * student) == 0).all()
    divergence = hidden_kl((a * student).float(), (a * teacher).float())
    assert torch.isfinite(divergence).all()
    assert (divergence >= -1e-6).all()
