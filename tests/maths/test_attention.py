"""Head-to-head attention measures against loops over sentences, heads and words."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import pearsonr

from residuum.errors import DataError, SettingError
from residuum.maths import attention
from residuum.maths.attention import HEAD_MEASURES, AttentionAccumulator, AttentionSums, as_heads, word_pairs
from residuum.maths.moments import MomentsAccumulator
from residuum.maths.similarity import similarity, similarity_matrix

HEADS = [3, 2, 4]


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def sentence(words: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [softmax(2 * rng.standard_normal((heads, words, words))) for heads in HEADS]


SENTENCES = [sentence(words, seed) for seed, words in enumerate([7, 2, 12, 5])]


def accumulate(sentences: list[list[np.ndarray]], **options) -> AttentionSums:
    accumulator = AttentionAccumulator([len(as_heads(layer)) for layer in sentences[0]], **options)
    for layers in sentences:
        accumulator.update(layers)
    return accumulator.result()


def norm_by_loop(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    return float(np.mean([np.linalg.norm(p - q) for p, q in zip(a, b, strict=True)]))


def pearson_by_loop(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    rows = [(p, q) for s, t in zip(a, b, strict=True) for p, q in zip(s, t, strict=True)]
    return float(np.mean([pearsonr(p, q).statistic for p, q in rows]))


def js_by_loop(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    rows = [(p, q) for s, t in zip(a, b, strict=True) for p, q in zip(s, t, strict=True)]
    return float(np.mean([jensenshannon(p, q) ** 2 for p, q in rows]))


LOOPS = {"attention_norm": norm_by_loop, "attention_pearson": pearson_by_loop, "attention_js": js_by_loop}


def mean_by_loop(measure: str, sentences: list[list[np.ndarray]]) -> np.ndarray:
    heads = [[np.concatenate(layers)[h] for layers in sentences] for h in range(sum(len(x) for x in sentences[0]))]
    return np.array([[LOOPS[measure](a, b) for b in heads] for a in heads])


class TestHeads:
    @pytest.mark.parametrize("measure", HEAD_MEASURES)
    def test_the_papers_quantity_against_a_loop(self, measure):
        found = accumulate(SENTENCES).head_mean(measure)
        np.testing.assert_allclose(found, mean_by_loop(measure, SENTENCES), atol=1e-8)

    @pytest.mark.parametrize("measure", HEAD_MEASURES)
    def test_layers_take_the_best_head_and_the_mean_over_heads_of_the_row(self, measure):
        sums = accumulate(SENTENCES)
        heads = sums.head_similarity(measure)
        parts = np.split(np.arange(9), np.cumsum(HEADS)[:-1])
        expected = [[np.mean([max(heads[h, g] for g in b) for h in a]) for b in parts] for a in parts]
        found = sums.layer_similarity(measure)
        np.testing.assert_allclose(found, expected)
        np.testing.assert_array_equal(np.diag(found), 1)
        assert found[0, 1] != pytest.approx(found[1, 0], abs=1e-6)

    def test_the_best_head_by_norm_is_the_nearest_by_the_papers_mean_norm(self):
        sums = accumulate(SENTENCES)
        np.testing.assert_array_equal(
            np.argsort(-sums.head_similarity("attention_norm")[0]), np.argsort(sums.head_mean("attention_norm")[0])
        )

    @pytest.mark.parametrize("measure", ["attention_norm", "attention_js"])
    def test_heads_that_never_look_at_the_same_word_have_similarity_zero(self, measure):
        shifted = [[np.eye(w)[None], np.roll(np.eye(w), 1, axis=1)[None]] for w in (3, 6)]
        np.testing.assert_allclose(accumulate(shifted).head_similarity(measure), np.eye(2), atol=1e-15)

    @pytest.mark.parametrize("measure", HEAD_MEASURES)
    def test_values_stay_in_range_and_fall_with_noise(self, measure):
        rng = np.random.default_rng(0)
        scores = rng.standard_normal((1, 8, 8))
        noisy = [softmax(scores + size * rng.standard_normal((1, 8, 8))) for size in (0.1, 1, 5)]
        values = accumulate([[softmax(scores), *noisy]]).layer_similarity(measure)[0]
        assert list(values) == sorted(values, reverse=True)
        assert -1 <= values.min() <= values.max() <= 1

    def test_nearly_equal_heads_keep_their_distance(self):
        base = sentence(9, 1)[0][:1]
        change = 1e-9 * (base[:, :, ::-1] - base)
        found = accumulate([[base, base + change, base.copy()]]).head_mean("attention_norm")
        assert found[0, 1] == pytest.approx(np.linalg.norm((base + change) - base), rel=1e-6)
        assert found[0, 2] == 0

    def test_zero_weights_have_no_entropy(self):
        causal = [np.tril(np.ones((1, 5, 5))) / np.arange(1, 6)[:, None], np.eye(5)[None]]
        found = accumulate([causal]).head_mean("attention_js")
        np.testing.assert_allclose(found, mean_by_loop("attention_js", [causal]), atol=1e-12)

    def test_the_order_of_heads_and_of_words_does_not_matter(self):
        order = [2, 0, 1]
        for measure in HEAD_MEASURES:
            expected = accumulate(SENTENCES).layer_similarity(measure)
            shuffled = [[layers[0][order], *layers[1:]] for layers in SENTENCES]
            turned = [[layer[:, ::-1, ::-1] for layer in layers] for layers in SENTENCES]
            np.testing.assert_allclose(accumulate(shuffled).layer_similarity(measure), expected, atol=1e-12)
            np.testing.assert_allclose(accumulate(turned).layer_similarity(measure), expected, atol=1e-12)


class TestConstantRows:
    def test_uniform_rows_correlate_one_with_each_other_and_zero_with_others_and_are_counted(self):
        uniform, other = np.full((1, 6, 6), 1 / 6), sentence(6, 0)[0][:1]
        sums = accumulate([[uniform, other, uniform.astype(np.float32)]])
        expected = [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
        np.testing.assert_allclose(sums.head_similarity("attention_pearson"), expected, atol=1e-12)
        assert sums.constant_rows.tolist() == [6, 0, 6]

    def test_a_sentence_of_one_word_says_that_all_heads_are_equal(self):
        sums = accumulate([[np.ones((2, 1, 1)), np.ones((1, 1, 1))]])
        for measure in HEAD_MEASURES:
            np.testing.assert_array_equal(sums.head_similarity(measure), 1)
        assert sums.constant_rows.tolist() == [1, 1, 1]


class TestSums:
    @pytest.mark.parametrize("measure", HEAD_MEASURES)
    def test_merged_and_reduced_sums(self, measure):
        whole, first, rest = accumulate(SENTENCES), accumulate(SENTENCES[:1]), accumulate(SENTENCES[1:])
        for found, expected in [(attention.merge(first, rest), whole), (attention.subtract(whole, first), rest)]:
            np.testing.assert_allclose(found.layer_similarity(measure), expected.layer_similarity(measure), rtol=1e-10)
            assert (found.sentences, found.words) == (expected.sentences, expected.words)

    def test_one_measure_alone_equals_all_together(self):
        for measure in HEAD_MEASURES:
            alone = accumulate(SENTENCES, measures=[measure])
            np.testing.assert_array_equal(alone.sums[measure], accumulate(SENTENCES).sums[measure])

    def test_flat_and_torch_layers(self):
        flat = [[layer.reshape(len(layer), -1).T for layer in layers] for layers in SENTENCES]
        tensors = [[torch.from_numpy(layer) for layer in layers] for layers in SENTENCES]
        for other in (flat, tensors):
            np.testing.assert_array_equal(
                accumulate(other).sums["attention_js"], accumulate(SENTENCES).sums["attention_js"]
            )

    def test_sentences_longer_than_a_chunk(self, monkeypatch):
        expected = accumulate(SENTENCES).sums["attention_js"]
        monkeypatch.setattr(attention, "CACHED_NUMBERS", 40)
        np.testing.assert_allclose(accumulate(SENTENCES).sums["attention_js"], expected, atol=1e-12)

    def test_half_precision_rows_are_accepted(self):
        half = [[torch.from_numpy(layer).to(torch.bfloat16) for layer in layers] for layers in SENTENCES]
        for measure in HEAD_MEASURES:
            expected = accumulate(SENTENCES).layer_similarity(measure)
            np.testing.assert_allclose(accumulate(half).layer_similarity(measure), expected, atol=0.01)


class TestDistributed:
    def test_moments_over_word_pairs_serve_the_distributed_measures(self):
        layers = [np.concatenate([s[i].reshape(len(s[i]), -1).T for s in SENTENCES]) for i in range(3)]
        accumulator = MomentsAccumulator(HEADS)
        for layers_of_sentence in SENTENCES:
            accumulator.update([word_pairs(layer) for layer in layers_of_sentence])
        for measure in ("svcca", "pwcca", "cka"):
            matrix = similarity_matrix(accumulator.result(), f"attention_{measure}")
            assert matrix[0, 2] == pytest.approx(similarity(layers[0], layers[2], measure), abs=1e-10)

    @pytest.mark.parametrize("measure", [*HEAD_MEASURES, "attention_svcca", "attention_pwcca", "attention_cka"])
    def test_two_layers_given_as_lists_of_sentences(self, measure):
        x, y = [s[0] for s in SENTENCES], [s[2] for s in SENTENCES]
        assert similarity(x, x, measure) == pytest.approx(1)
        assert -1 <= similarity(x, y, measure) < 1
        if measure in HEAD_MEASURES:
            assert similarity(x, y, measure) == pytest.approx(accumulate(SENTENCES).layer_similarity(measure)[0, 2])


class TestMessages:
    def test_rows_that_do_not_sum_to_one(self):
        layers = sentence(4, 0)
        layers[1][1, 2] *= 0.5
        with pytest.raises(DataError, match=r"word 2, head 1, layer 1, sentence 0, .* sums to 0.5; expected"):
            accumulate([layers])

    @pytest.mark.parametrize("value", [np.nan, -0.5])
    def test_weights_that_are_none(self, value):
        layers = sentence(4, 0)
        layers[2][0, 3, 0] = value
        with pytest.raises(DataError, match="word 3, head 0, layer 2"):
            accumulate([layers])

    def test_other_heads_or_words_than_expected(self):
        accumulator = AttentionAccumulator(HEADS)
        with pytest.raises(DataError, match=r"layers of \[3, 2\] heads"):
            accumulator.update(sentence(4, 0)[:2])
        with pytest.raises(DataError, match=r"over \[4, 5\] words"):
            accumulator.update([*sentence(4, 0)[:2], sentence(5, 0)[2]])

    def test_shapes_that_are_not_attention(self):
        with pytest.raises(DataError, match=r"shape \(3, 4, 5\); expected heads × words × words"):
            similarity(np.ones((3, 4, 5)), np.ones((3, 4, 5)), "attention_js")

    def test_unknown_measures_and_empty_sums(self):
        with pytest.raises(SettingError, match="Unknown measure attention_cka"):
            AttentionAccumulator(HEADS, measures=["attention_cka"])
        with pytest.raises(SettingError, match="attention_js was not accumulated"):
            accumulate(SENTENCES, measures=["attention_norm"]).head_mean("attention_js")
        with pytest.raises(DataError, match="No sentences"):
            AttentionAccumulator(HEADS).result().head_mean("attention_js")
        with pytest.raises(DataError, match="different layers"):
            attention.merge(accumulate(SENTENCES), accumulate(SENTENCES, measures=["attention_js"]))
        with pytest.raises(DataError, match="1 and 2 sentences"):
            similarity([SENTENCES[0][0]], [SENTENCES[0][0]] * 2, "attention_js")
