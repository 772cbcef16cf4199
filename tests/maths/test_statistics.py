"""Intervals: exact cases, agreement with scipy, and how often they cover the truth."""

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from residuum.errors import DataError, SettingError
from residuum.maths.moments import Moments, MomentsAccumulator, merge, subtract
from residuum.maths.similarity import jackknife_matrices, similarity_matrices
from residuum.maths.statistics import (
    bootstrap,
    bootstrap_mean,
    bootstrap_ratio,
    jackknife,
    paired_bootstrap,
    paired_permutation_test,
    pearson,
)

MEASURES = ["neuron", "mixed", "svcca", "pwcca", "cka", "cka_debiased", "procrustes"]


class TestJackknife:
    def test_of_a_mean_it_is_students_interval(self):
        values = np.random.default_rng(0).exponential(size=12)
        left_out = np.array([np.delete(values, i).mean() for i in range(12)])
        found = jackknife(values.mean(), left_out)
        expected = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
        np.testing.assert_allclose([found.low, found.high], expected)
        assert found.standard_error == pytest.approx(stats.sem(values))
        assert found.bias == pytest.approx(0, abs=1e-12)

    def test_it_finds_the_bias_of_the_plug_in_variance_exactly(self):
        values = np.random.default_rng(0).standard_normal(15)
        left_out = np.array([np.delete(values, i).var() for i in range(15)])
        found = jackknife(values.var(), left_out)
        assert values.var() - found.bias == pytest.approx(values.var(ddof=1))
        assert found.low < values.var() < values.var(ddof=1) < found.high

    def test_unequal_groups_of_a_ratio_against_the_published_formula(self):
        rng = np.random.default_rng(1)
        sizes = np.array([3, 10, 6, 21])
        groups = [rng.standard_normal(size) for size in sizes]
        n, g, theta = sizes.sum(), 4, np.concatenate(groups).mean()
        left_out = np.array([np.concatenate(groups[:j] + groups[j + 1 :]).mean() for j in range(g)])
        h = n / sizes
        centre = g * theta - sum((1 - sizes[j] / n) * left_out[j] for j in range(g))
        terms = [(h[j] * theta - (h[j] - 1) * left_out[j] - centre) ** 2 / (h[j] - 1) for j in range(g)]
        found = jackknife(theta, left_out, sizes)
        assert found.standard_error == pytest.approx(np.sqrt(np.mean(terms)))
        assert found.standard_error != pytest.approx(jackknife(theta, left_out).standard_error, rel=1e-3)

    def test_whole_tables_at_once(self):
        rng = np.random.default_rng(0)
        value, left_out = rng.uniform(size=(3, 4)), rng.uniform(size=(8, 3, 4))
        found = jackknife(value, left_out, np.arange(1, 9))
        single = jackknife(value[2, 1], left_out[:, 2, 1], np.arange(1, 9))
        assert (found.low[2, 1], found.high[2, 1]) == (single.low, single.high)

    def test_values_that_do_not_change_have_no_width(self):
        found = jackknife(0.3, np.full(10, 0.3))
        assert found.low == found.high == 0.3

    def test_one_group_has_no_interval(self):
        found = jackknife(np.array([0.3, 0.4]), np.array([[0.3, 0.4]]))
        assert np.isnan(found.low).all()
        assert np.isnan(found.high).all()
        assert found.value.tolist() == [0.3, 0.4]

    def test_bounds_cut_the_interval(self):
        found = jackknife(0.98, np.array([0.9, 0.99, 1.0]), bounds=(0.0, 1.0))
        assert found.high == 1
        assert 0 <= found.low < 0.98

    def test_a_higher_level_is_wider(self):
        left_out = np.random.default_rng(0).uniform(size=10)
        assert jackknife(0.5, left_out, level=0.99).high > jackknife(0.5, left_out, level=0.9).high

    def test_messages(self):
        with pytest.raises(DataError, match=r"shape \(2,\)"):
            jackknife(np.ones(2), np.ones((5, 3)))
        with pytest.raises(DataError, match="Found sizes"):
            jackknife(1.0, np.ones(3), [1, 2])
        with pytest.raises(SettingError, match="level is 95"):
            jackknife(1.0, np.ones(3), level=95.0)


class TestCoverage:
    """Sentences whose words are correlated, cut into groups of sentences; the truth is that of the covariance."""

    CORPORA, SENTENCES, WORDS, GROUPS = 200, 200, 10, 10

    def test_intervals_cover_the_truth_as_often_as_they_say(self):
        covariance = population(strength=1.0)
        truth = similarity_matrices(population_moments(covariance), MEASURES)
        covered = dict.fromkeys(MEASURES, 0)
        for seed in range(self.CORPORA):
            intervals = self.intervals(np.random.default_rng(seed), covariance)
            for measure in MEASURES:
                interval, true = intervals[measure], truth[measure][0, 1]
                covered[measure] += int(interval.low[0, 1] <= true <= interval.high[0, 1])
        for measure, times in covered.items():
            assert 0.90 <= times / self.CORPORA <= 0.99, (measure, times)

    def test_intervals_that_take_words_for_independent_cover_too_rarely(self):
        """The negative control: groups of single words, dealt out, miss the correlation inside sentences."""
        covariance = population(strength=1.0)
        true = similarity_matrices(population_moments(covariance), ["cka"])["cka"][0, 1]
        covered = 0
        for seed in range(60):
            interval = self.intervals(np.random.default_rng(seed), covariance, by_sentence=False)["cka"]
            covered += int(interval.low[0, 1] <= true <= interval.high[0, 1])
        assert covered / 60 < 0.9

    def intervals(self, rng: np.random.Generator, covariance: np.ndarray, *, by_sentence: bool = True):
        words = self.corpus(rng, covariance)
        if not by_sentence:
            words = rng.permutation(words.reshape(-1, 7)).reshape(words.shape)
        parts = [moments_of(group.reshape(-1, 7)) for group in np.array_split(words, self.GROUPS)]
        total = parts[0]
        for part in parts[1:]:
            total = merge(total, part)
        measures = MEASURES if by_sentence else ["cka"]
        values = similarity_matrices(total, measures)
        left_out = [similarity_matrices(subtract(total, part), measures) for part in parts]
        sizes = [part.n for part in parts]
        return {m: jackknife(values[m], np.stack([v[m] for v in left_out]), sizes) for m in measures}

    def corpus(self, rng: np.random.Generator, covariance: np.ndarray) -> np.ndarray:
        sentence = rng.standard_normal((self.SENTENCES, 1, 7))
        word = rng.standard_normal((self.SENTENCES, self.WORDS, 7))
        return (np.sqrt(0.5) * sentence + np.sqrt(0.5) * word) @ np.linalg.cholesky(covariance).T


def population(strength: float) -> np.ndarray:
    """The covariance of 4 and 3 neurons that share three latent variables."""
    loadings = np.random.default_rng(3).standard_normal((3, 7)) * np.array([[1.5], [1.0], [0.7]]) * strength
    return loadings.T @ loadings + np.eye(7)


def population_moments(covariance: np.ndarray) -> Moments:
    n = 10**9
    blocks = {(0, 0): covariance[:4, :4], (0, 1): covariance[:4, 4:], (1, 1): covariance[4:, 4:]}
    return Moments(
        widths=(4, 3),
        n=n,
        mean=np.zeros(7),
        blocks={pair: n * block for pair, block in blocks.items()},
        third=np.zeros((2, 7)),
        fourth=np.zeros((2, 2)),
        floor=np.zeros(7),
        precision=np.zeros(2),
    )


def moments_of(x: np.ndarray) -> Moments:
    accumulator = MomentsAccumulator([4, 3])
    accumulator.update(x)
    return accumulator.result()


class TestBootstrap:
    def test_mean_against_scipy(self):
        values = np.random.default_rng(0).exponential(size=200)
        found = bootstrap_mean(values, resamples=4000, rng=1)
        expected = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=4000, rng=2)
        assert found.low == pytest.approx(expected.confidence_interval.low, rel=0.02)
        assert found.high == pytest.approx(expected.confidence_interval.high, rel=0.02)
        assert found.standard_error == pytest.approx(stats.sem(values), rel=0.05)

    def test_the_generator_alone_decides(self):
        values = np.random.default_rng(0).standard_normal((30, 2))
        a, b, c = (bootstrap_mean(values, resamples=50, rng=seed).low for seed in (1, 1, 2))
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()

    def test_any_statistic_of_sentences(self):
        lengths = np.random.default_rng(0).integers(1, 30, 50)
        right = np.random.default_rng(1).binomial(lengths, 0.7)
        found = bootstrap(lambda chosen: right[chosen].sum() / lengths[chosen].sum(), 50, resamples=500)
        assert found.low < found.value < found.high
        assert found.value == right.sum() / lengths.sum()

    def test_the_ratio_of_resampled_sums_is_what_the_plain_bootstrap_gives(self):
        rng = np.random.default_rng(3)
        sizes = rng.integers(1, 40, 300).astype(float)
        right = np.floor(sizes * rng.random(300))
        found = bootstrap_ratio(right, sizes, resamples=4000, rng=5)
        plain = bootstrap(lambda chosen: right[chosen].sum() / sizes[chosen].sum(), 300, resamples=4000, rng=6)
        error = float(plain.standard_error)
        assert found.value == pytest.approx(right.sum() / sizes.sum(), rel=1e-14)
        np.testing.assert_allclose([found.low, found.high], [plain.low, plain.high], atol=0.1 * error)
        assert found.standard_error == pytest.approx(error, rel=0.05)

    def test_a_ratio_without_sentences_or_of_unequal_ones_is_refused(self):
        for part, whole in ((np.ones(0), np.ones(0)), (np.ones(3), np.ones(4))):
            with pytest.raises(SettingError, match="expected as many of both"):
                bootstrap_ratio(part, whole)

    def test_paired_difference(self):
        rng = np.random.default_rng(0)
        difficulty = rng.standard_normal(100)
        a, b = difficulty + 0.2 + 0.1 * rng.standard_normal(100), difficulty
        found = paired_bootstrap(a, b)
        assert found.value == pytest.approx((a - b).mean())
        assert 0 < found.low < found.high < 0.3
        assert paired_bootstrap(a, rng.permutation(b)).low < 0

    def test_messages(self):
        with pytest.raises(DataError, match="Found 2 values, 1 not finite"):
            bootstrap_mean(np.array([1.0, np.nan]))
        with pytest.raises(DataError, match=r"Found \(2,\) and \(3,\) values"):
            paired_bootstrap(np.ones(2), np.ones(3))
        with pytest.raises(SettingError, match="0 sentences"):
            bootstrap(lambda chosen: 0.0, 0)


class TestPermutation:
    def test_few_sentences_are_exact_as_in_scipy(self):
        rng = np.random.default_rng(0)
        a, b = rng.standard_normal(9) + 0.5, rng.standard_normal(9)
        expected = stats.permutation_test((a, b), lambda x, y: np.mean(x - y), permutation_type="samples")
        assert paired_permutation_test(a, b) == pytest.approx(expected.pvalue)

    def test_many_sentences_are_sampled(self):
        rng = np.random.default_rng(0)
        a, b = rng.standard_normal(80) + 0.3, rng.standard_normal(80)
        expected = stats.ttest_rel(a, b).pvalue
        assert paired_permutation_test(a, b, rng=1) == pytest.approx(expected, abs=0.02)
        assert paired_permutation_test(a, b, rng=1) == paired_permutation_test(a, b, rng=1)

    def test_equal_systems_do_not_differ_and_the_p_value_is_never_zero(self):
        values = np.random.default_rng(0).standard_normal(70)
        assert paired_permutation_test(values, values) == 1
        assert paired_permutation_test(values + 100, values, resamples=99) == 1 / 100


class TestPearson:
    def test_against_scipy(self):
        rng = np.random.default_rng(0)
        x = rng.standard_normal(20)
        y = x + rng.standard_normal(20)
        found, expected = pearson(x, y), stats.pearsonr(x, y)
        interval = expected.confidence_interval(0.95)
        assert (found.r, found.p_value, found.n) == pytest.approx((expected.statistic, expected.pvalue, 20))
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))

    def test_few_points_and_perfect_correlation(self):
        assert np.isnan(pearson(np.arange(3.0), np.array([1.0, 0.0, 2.0])).low)
        line = pearson(np.arange(6.0), 2 * np.arange(6.0))
        assert (line.low, line.r, line.high) == pytest.approx((1, 1, 1))

    def test_a_constant_has_no_correlation(self):
        found = pearson(np.ones(5), np.arange(5.0))
        assert np.isnan([found.r, found.low, found.high, found.p_value]).all()

    def test_messages(self):
        with pytest.raises(DataError, match="two of equal length"):
            pearson(np.arange(3.0), np.arange(4.0))


class TestCoverageOfFirstOrderIntervals:
    """How often 95 % intervals hold the true value, for correlated sentences and Gaussian layers with 24 neurons."""

    WIDTH, GROUPS = 24, 10

    def layers(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = np.arange(1, self.WIDTH + 1) ** -0.5
        a, b = (np.linalg.qr(rng.standard_normal((self.WIDTH,) * 2))[0] * size for _ in range(2))
        return a, b, np.linspace(0.98, 0.02, self.WIDTH) ** 1.4

    def coverage(self, sentences: int, corpora: int) -> dict[str, float]:
        rng = np.random.default_rng(0)
        a, b, rho = self.layers(rng)
        blocks = {(0, 0): a @ a.T, (0, 1): a * rho @ b.T, (1, 1): b @ b.T}
        n, measures = 10**12, ["neuron", "mixed", "cka", "procrustes", "shape"]
        zero = np.zeros(2 * self.WIDTH)
        truth = similarity_matrices(
            Moments(
                widths=(self.WIDTH,) * 2,
                n=n,
                mean=zero,
                blocks={pair: n * block for pair, block in blocks.items()},
                third=np.zeros((2, len(zero))),
                fourth=np.zeros((2, 2)),
                floor=zero.copy(),
                precision=np.zeros(2),
            ),
            measures,
        )
        hits = dict.fromkeys(measures, 0)
        for _ in range(corpora):
            lengths = rng.integers(5, 30, sentences)
            own = np.repeat(np.arange(sentences), lengths)

            def latent(own: np.ndarray = own) -> np.ndarray:
                shared = rng.standard_normal((sentences, self.WIDTH))[own]
                return np.sqrt(0.3) * shared + np.sqrt(0.7) * rng.standard_normal((len(own), self.WIDTH))

            z = latent()
            x, y = z @ a.T, (rho * z + np.sqrt(1 - rho**2) * latent()) @ b.T
            cuts = np.searchsorted(own, np.linspace(0, sentences, self.GROUPS + 1).astype(int))
            parts = []
            for first, stop in pairwise(cuts.tolist()):
                accumulator = MomentsAccumulator([self.WIDTH] * 2)
                accumulator.update([x[first:stop], y[first:stop]])
                parts.append(accumulator.result())
            halves = (reduce(merge, parts[::2]), reduce(merge, parts[1::2]))
            found = jackknife_matrices([lambda part=part: part for part in parts], halves, measures)
            for measure in measures:
                one = found[measure]
                interval = jackknife(one.value, one.left_out, [part.n for part in parts], bias=one.bias)
                hits[measure] += bool(interval.low[0, 1] <= truth[measure][0, 1] <= interval.high[0, 1])
        return {measure: count / corpora for measure, count in hits.items()}

    def test_a_few_corpora(self):
        found = self.coverage(sentences=100, corpora=10)
        assert min(found.values()) >= 0.7, found

    @pytest.mark.slow
    @pytest.mark.parametrize("sentences", [100, 400])
    def test_many_corpora(self, sentences):
        found = self.coverage(sentences, corpora=200)
        assert all(0.9 <= share <= 1.0 for share in found.values()), found
