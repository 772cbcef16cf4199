"""Measures at the edges of what numbers can say: tiny and huge scales, huge means, half precision, few words."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from residuum.errors import DataError
from residuum.maths.clustering import cluster_neurons, neuron_correlation
from residuum.maths.moments import MomentsAccumulator, merge
from residuum.maths.probe_scores import pearson_score, selectivity
from residuum.maths.similarity import MEASURES, similarity
from residuum.maths.statistics import pearson

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


@pytest.mark.parametrize("measure", FROM_ROWS)
def test_more_noise_never_makes_layers_more_alike(measure):
    x, _ = layers(3, words=200)
    noise = np.random.default_rng(4).standard_normal(x.shape)
    values = [measured(x, x + amount * noise, measure) for amount in (0, 0.1, 0.5, 2, 50)]
    assert values == sorted(values, reverse=True)


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
@given(seed=seeds, powers=st.lists(st.integers(-15, 20), min_size=4, max_size=4), threshold=st.floats(0.01, 0.9))
def test_clusters_do_not_depend_on_the_scale_or_the_sign_of_neurons(seed, powers, threshold):
    x, _ = layers(seed)
    scaled = x * 10.0 ** np.array(powers, float) * np.array([1, -1, 1, -1])
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


@few
@given(st.floats(0, 1), st.floats(0, 1))
def test_selectivity_is_what_the_task_has_over_its_control(task, control):
    assert -1 <= selectivity(task, control) <= 1
    assume(task != control)
    assert (selectivity(task, control) > 0) == (task > control)
