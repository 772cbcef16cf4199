"""Self-similarity, anisotropy and context-specificity against loops over all pairs of words."""

import numpy as np
import pytest
from scipy.spatial.distance import cosine

from residuum.errors import DataError
from residuum.maths import profiles as contexts
from residuum.maths.profiles import ContextAccumulator, ContextSums

WIDTHS = [4, 6]


def corpus(n: int = 60, seed: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    types = rng.integers(0, 8, n)
    types[0] = 9
    centres = [rng.standard_normal((10, width)) for width in WIDTHS]
    return types, [centre[types] + 0.7 * rng.standard_normal((n, centre.shape[1])) + 1 for centre in centres]


def accumulate(types: np.ndarray, layers: list[np.ndarray], cuts: list[int] | None = None) -> ContextSums:
    accumulator = ContextAccumulator(10, WIDTHS)
    for part in np.split(np.arange(len(types)), cuts or []):
        accumulator.update(types[part], [layer[part] for layer in layers])
    return accumulator.result()


def mean_cosine(layer: np.ndarray, pairs: list[tuple[int, int]]) -> float:
    return float(np.mean([1 - cosine(layer[i], layer[j]) for i, j in pairs]))


def pairs_of(chosen: np.ndarray) -> list[tuple[int, int]]:
    return [(i, j) for i in chosen for j in chosen if i < j]


def test_self_similarity_against_all_pairs_of_occurrences():
    types, layers = corpus()
    found = accumulate(types, layers)
    for i, layer in enumerate(layers):
        by_type = [mean_cosine(layer, pairs_of(np.flatnonzero(types == t))) for t in range(8)]
        np.testing.assert_allclose(found.self_similarity_of_types()[:8, i], by_type)
        assert found.self_similarity()[i] == pytest.approx(np.mean(by_type))
    assert np.isnan(found.self_similarity_of_types()[[8, 9]]).all()


def test_anisotropy_against_all_pairs_of_different_words():
    types, layers = corpus()
    different = [(i, j) for i, j in pairs_of(np.arange(len(types))) if types[i] != types[j]]
    expected = [mean_cosine(layer, different) for layer in layers]
    found = accumulate(types, layers)
    np.testing.assert_allclose(found.anisotropy(), expected)
    np.testing.assert_allclose(found.context_specificity(), 1 - (found.self_similarity() - expected))


def test_streamed_merged_and_reduced_sums_are_the_same():
    types, layers = corpus()
    whole = accumulate(types, layers)
    a, b = accumulate(types[:25], [z[:25] for z in layers]), accumulate(types[25:], [z[25:] for z in layers])
    for sums in (accumulate(types, layers, cuts=[7, 30]), contexts.merge(a, b)):
        np.testing.assert_allclose(sums.self_similarity_of_types(), whole.self_similarity_of_types())
    np.testing.assert_allclose(contexts.subtract(whole, a).anisotropy(), b.anisotropy())


def test_static_words_are_wholly_self_similar_and_scale_does_not_matter():
    types, layers = corpus()
    static = [np.random.default_rng(1).standard_normal((10, width))[types] for width in WIDTHS]
    lengths = np.random.default_rng(2).uniform(0.1, 10, (len(types), 1))
    np.testing.assert_allclose(accumulate(types, [z * lengths for z in static]).self_similarity(), 1)
    assert (accumulate(types, layers).self_similarity() < 0.95).all()


def test_rare_types_may_be_left_out():
    types, layers = corpus()
    found = accumulate(types, layers)
    least = int(np.sort(found.counts)[-2])
    enough = found.counts >= least
    assert 0 < enough.sum() < 8
    np.testing.assert_allclose(found.self_similarity(least), found.self_similarity_of_types()[enough].mean(axis=0))


def test_a_zero_vector_has_cosine_zero():
    found = accumulate(np.zeros(2, dtype=int), [np.array([[0.0] * width, [1.0] * width]) for width in WIDTHS])
    np.testing.assert_array_equal(found.self_similarity(), 0)


def test_messages():
    types, layers = corpus()
    with pytest.raises(DataError, match="Found word types 0–9; expected 0–3"):
        ContextAccumulator(4, WIDTHS).update(types, layers)
    with pytest.raises(DataError, match=r"Layer 0 has shape \(60, 4\); expected \(5, 4\)"):
        ContextAccumulator(10, WIDTHS).update(types[:5], layers)
    with pytest.raises(DataError, match="No word type occurs 50 times"):
        accumulate(types, layers).self_similarity(50)
    with pytest.raises(DataError, match="Found one word type"):
        accumulate(np.zeros(60, dtype=int), layers).anisotropy()
