"""CKA with RBF kernels: the definition, minibatches, and the unbiased estimate."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from residuum.errors import DataError, SettingError
from residuum.maths import kernels
from residuum.maths.kernels import KernelAccumulator, bandwidth, cka_rbf, squared_distances, u_centred
from residuum.maths.similarity import array_similarity_matrix, similarity


def layers(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((n, 4))
    x = latent @ rng.standard_normal((4, 7)) + 0.3 * rng.standard_normal((n, 7))
    return x, np.sin(latent) @ rng.standard_normal((4, 5)) + 0.3 * rng.standard_normal((n, 5))


def cka_by_definition(x: np.ndarray, y: np.ndarray, fraction: float) -> float:
    h = np.eye(len(x)) - 1 / len(x)
    k, m = (np.exp(-cdist(z, z, "sqeuclidean") / (2 * (fraction * np.median(pdist(z))) ** 2)) for z in (x, y))

    def hsic(a, b):
        return np.trace(a @ h @ b @ h)

    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


@pytest.mark.parametrize("fraction", [0.2, 0.8, 2.0])
def test_against_the_definition(fraction):
    x, y = layers()
    assert similarity(x, y, "cka_rbf", fraction=fraction) == pytest.approx(cka_by_definition(x, y, fraction), abs=1e-10)


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_the_bandwidth_follows_the_scale_and_a_huge_mean_does_no_harm(scale):
    x, y = layers()
    assert similarity(x * scale, y + 1e4, "cka_rbf") == pytest.approx(similarity(x, y, "cka_rbf"), abs=1e-8)


def test_a_wide_kernel_becomes_linear_cka():
    x, y = layers()
    assert similarity(x, y, "cka_rbf", fraction=1e3) == pytest.approx(similarity(x, y, "cka"), abs=1e-4)
    assert similarity(x, y, "cka_rbf") != pytest.approx(similarity(x, y, "cka"), abs=1e-2)


def test_u_centred_products_are_the_unbiased_hsic():
    x, y = layers(40)
    n, one = 40, np.ones(40)
    k, m = x @ x.T, y @ y.T
    a, b = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
    expected = np.trace(a @ b) + a.sum() * b.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (one @ a @ b @ one)
    assert np.sum(u_centred(k) * u_centred(m)) == pytest.approx(expected)


def test_debiased_minibatches_agree_with_the_whole_and_biased_ones_lie_above():
    x, y = layers(1200)
    whole, dealt = (similarity(x, y, "cka_rbf", debiased=True, batch=batch) for batch in (1200, 100))
    assert dealt == pytest.approx(whole, abs=0.02)
    assert similarity(x, y, "cka_rbf", batch=30) > similarity(x, y, "cka_rbf", batch=1200) + 0.03


def test_debiased_is_zero_for_unrelated_words():
    x, _ = layers(200)
    other = np.random.default_rng(9).standard_normal((200, 5))
    assert similarity(x, other, "cka_rbf", debiased=True, fraction=0.4) == pytest.approx(0, abs=0.03)
    assert similarity(x, other, "cka_rbf", fraction=0.4) > 0.1


def test_sums_of_minibatches_merge_and_subtract():
    x, y = layers(90)
    sigmas = [bandwidth(x), bandwidth(y)]
    sums = []
    for part in np.split(np.arange(90), 3):
        accumulator = KernelAccumulator(sigmas)
        accumulator.update([x[part], y[part]])
        sums.append(accumulator.result())
    together = kernels.merge(kernels.merge(sums[0], sums[1]), sums[2])
    np.testing.assert_allclose(kernels.subtract(together, sums[2]).cka(), kernels.merge(sums[0], sums[1]).cka())
    assert together.batches == 3


def test_all_layers_at_once_equal_the_pairs():
    x, y = layers()
    matrix = array_similarity_matrix([x, y, x[:, :2]], "cka_rbf")
    assert matrix[1, 2] == pytest.approx(similarity(y, x[:, :2], "cka_rbf"))
    np.testing.assert_array_equal(np.diag(matrix), 1)


def test_equal_words_have_distance_zero_exactly():
    x = np.repeat(layers(10)[0], 2, axis=0) + 1e6
    squared = squared_distances(x)
    assert squared[0, 1] == 0
    np.testing.assert_allclose(squared, cdist(x, x, "sqeuclidean"), atol=1e-7)


def test_mostly_equal_words_still_have_a_bandwidth():
    x = np.zeros((50, 3))
    x[:5] = np.random.default_rng(0).standard_normal((5, 3))
    assert bandwidth(x) > 0
    assert 0 < similarity(x, np.random.default_rng(1).standard_normal((50, 2)), "cka_rbf") < 1


def test_messages():
    x, y = layers(3)
    with pytest.raises(DataError, match="Found a minibatch of 3 words; expected at least 4"):
        cka_rbf([x, y], debiased=True)
    with pytest.raises(DataError, match="Found 1 words; expected at least 2"):
        similarity(x[:1], y[:1], "cka_rbf")
    with pytest.raises(SettingError, match="fraction is 0.0"):
        cka_rbf([x, y], fraction=0.0)
    with pytest.raises(SettingError, match="batch is 2"):
        cka_rbf([x, y], batch=2)
    with pytest.raises(SettingError, match="cka is computed from moments"):
        array_similarity_matrix([x, y], "cka")
