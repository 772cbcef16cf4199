"""RSA and mutual nearest neighbours against scipy, scikit-learn and plain loops."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import pearsonr, spearmanr
from sklearn.neighbors import NearestNeighbors

from residuum.errors import DataError, SettingError
from residuum.maths.kernels import knn, rsa, sample_words
from residuum.maths.similarity import similarity


def layers(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((n, 4))
    x = latent @ rng.standard_normal((4, 7)) + 0.3 * rng.standard_normal((n, 7)) + 5
    return x, np.sin(latent) @ rng.standard_normal((4, 5)) + 0.3 * rng.standard_normal((n, 5))


@pytest.mark.parametrize("distance", ["cosine", "correlation", "euclidean"])
@pytest.mark.parametrize(("correlation", "oracle"), [("spearman", spearmanr), ("pearson", pearsonr)])
def test_rsa_against_scipy(distance, correlation, oracle):
    x, y = layers()
    expected = oracle(*(pdist(z - z.mean(axis=0), distance) for z in (x, y))).statistic
    assert similarity(x, y, "rsa", distance=distance, correlation=correlation) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("neighbours", [1, 10])
def test_knn_against_scikit_learn(neighbours):
    x, y = layers()
    found = [NearestNeighbors(n_neighbors=neighbours).fit(z).kneighbors(return_distance=False) for z in (x, y)]
    shared = [len(set(a) & set(b)) / neighbours for a, b in zip(*found, strict=True)]
    assert similarity(x, y, "knn", neighbours=neighbours) == pytest.approx(np.mean(shared))


def test_unrelated_layers_share_the_neighbours_that_chance_gives():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((500, 8)), rng.standard_normal((500, 8))
    assert similarity(x, y, "knn") == pytest.approx(10 / 499, abs=0.01)
    assert similarity(x, y, "rsa") == pytest.approx(0, abs=0.05)


def test_layers_that_tie_alike_agree():
    x = np.repeat(np.random.default_rng(0).standard_normal((12, 3)), 5, axis=0)
    assert similarity(x, 2 * x + 1, "knn", neighbours=3) == pytest.approx(1)


@pytest.mark.parametrize("measure", ["rsa", "knn"])
def test_a_sample_is_drawn_by_the_generator_alone_and_said(measure):
    x, y = layers(300)
    first, again, other = (similarity(x, y, measure, sample=100, rng=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert similarity(x, y, measure, sample=300) == similarity(x, y, measure, sample=10_000)
    relations = (rsa if measure == "rsa" else knn)([x, y], sample=100, rng=np.random.default_rng(1))
    assert relations.similarity()[0, 1] == first
    np.testing.assert_array_equal(relations.chosen, sample_words(300, 100, 1, least=3))
    assert len(set(relations.chosen)) == 100


@pytest.mark.parametrize("measure", [rsa, knn])
def test_leaving_words_out_equals_computing_without_them(measure):
    x, y = layers()
    keep = np.arange(15, 80)
    reduced = measure([x, y], **({"distance": "euclidean"} if measure is rsa else {})).similarity(keep)
    alone = measure([x[keep], y[keep]], **({"distance": "euclidean"} if measure is rsa else {})).similarity()
    np.testing.assert_allclose(reduced, alone, atol=1e-10)


def test_messages():
    x, y = layers(8)
    with pytest.raises(DataError, match="Found 8 words and a sample of 1000; expected at least 12 of both"):
        similarity(x, y, "knn")
    with pytest.raises(SettingError, match="neighbours is 0"):
        similarity(x, y, "knn", neighbours=0)
    with pytest.raises(SettingError, match="'manhattan'"):
        similarity(x, y, "rsa", distance="manhattan")
    with pytest.raises(DataError, match="Found 3 words; expected more than the 5 neighbours"):
        knn([x, y], neighbours=5).similarity(np.arange(3))
