"""Moments: streaming = merged = batch, exact deletion, and what happens to numbers that are hard to sum."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from residuum.errors import DataError, SettingError
from residuum.maths.layouts import plan_passes, scatter_bytes
from residuum.maths.moments import CHUNK, Moments, MomentsAccumulator, merge, subtract

WIDTHS = [3, 5, 2]


def words(n: int, seed: int = 0, mean: float = 3.0) -> np.ndarray:
    """Correlated, skewed words × neurons, so that third and fourth sums matter."""
    rng = np.random.default_rng(seed)
    return rng.gamma(2.0, size=(n, 4)) @ rng.standard_normal((4, sum(WIDTHS))) + mean


def accumulate(*blocks: np.ndarray, **options) -> Moments:
    accumulator = MomentsAccumulator(WIDTHS, **options)
    for block in blocks:
        accumulator.update(block)
    return accumulator.result()


def direct(x: np.ndarray) -> dict[str, np.ndarray]:
    """Every sum as its formula stands, from the centred array in extended precision."""
    z = x.astype(np.longdouble) - x.astype(np.longdouble).mean(axis=0)
    layers = np.split(z, np.cumsum(WIDTHS)[:-1], axis=1)
    squares = np.stack([(layer**2).sum(axis=1) for layer in layers])
    return {
        "mean": x.mean(axis=0),
        "scatter": (z.T @ z).astype(float),
        "third": (squares @ z).astype(float),
        "fourth": (squares @ squares.T).astype(float),
    }


def assert_same(found: Moments, expected: dict[str, np.ndarray] | Moments, relative: float = 1e-10) -> None:
    """Each sum within `relative` of the size that its terms have (off-diagonal sums may themselves be near 0)."""
    if isinstance(expected, Moments):
        assert found.n == expected.n
        expected = {
            "mean": expected.mean,
            "scatter": expected.scatter(),
            "third": expected.third,
            "fourth": expected.fourth,
        }
    norms = np.sqrt(np.diag(expected["scatter"]))
    squares = np.sqrt(np.diag(expected["fourth"]))
    np.testing.assert_allclose(found.mean, expected["mean"], rtol=relative)
    assert np.all(np.abs(found.scatter() - expected["scatter"]) <= relative * np.outer(norms, norms))
    assert np.all(np.abs(found.third - expected["third"]) <= relative * np.outer(squares, norms))
    assert np.all(np.abs(found.fourth - expected["fourth"]) <= relative * np.outer(squares, squares))


class TestStreaming:
    def test_one_batch_equals_the_formulas(self):
        assert_same(accumulate(words(300)), direct(words(300)))

    @settings(max_examples=30)
    @given(cuts=st.lists(st.integers(0, 500), max_size=6))
    def test_any_cut_of_the_stream_equals_the_batch(self, cuts):
        x = words(500)
        assert_same(accumulate(*np.split(x, sorted(cuts))), direct(x))

    @settings(max_examples=30)
    @given(cut=st.integers(1, 499))
    def test_merged_parts_equal_the_batch(self, cut):
        x = words(500)
        assert_same(merge(accumulate(x[:cut]), accumulate(x[cut:])), direct(x))

    def test_merging_is_associative_and_commutative(self):
        a, b, c = (accumulate(part) for part in np.split(words(90), [20, 50]))
        assert_same(merge(merge(a, b), c), merge(c, merge(b, a)))

    @settings(max_examples=30)
    @given(cut=st.integers(1, 450))
    def test_taking_a_part_away_leaves_the_rest(self, cut):
        x = words(500)
        assert_same(subtract(accumulate(x), accumulate(x[:cut])), direct(x[cut:]))

    def test_more_words_than_a_chunk(self):
        x = words(2 * CHUNK + 17)
        assert_same(accumulate(*np.array_split(x, 7)), direct(x))

    def test_layers_may_come_as_a_list(self):
        x = words(40)
        assert_same(accumulate(np.split(x, np.cumsum(WIDTHS)[:-1], axis=1)), accumulate(x))

    def test_the_caller_may_reuse_its_buffer(self):
        x, accumulator = words(60), MomentsAccumulator(WIDTHS)
        buffer = np.empty((20, sum(WIDTHS)))
        for part in np.split(x, 3):
            buffer[:] = part
            accumulator.update(buffer)
        assert_same(accumulator.result(), direct(x))

    def test_a_result_stays_as_it_was_when_more_words_are_added(self):
        x, accumulator = words(100), MomentsAccumulator(WIDTHS)
        accumulator.update(x[:40])
        first = accumulator.result()
        accumulator.update(x[40:])
        assert_same(first, direct(x[:40]))
        assert_same(accumulator.result(), direct(x))
        with pytest.raises(ValueError, match="read-only"):
            first.blocks[0, 0][0, 0] = 1.0

    def test_named_arrays_bring_the_moments_back(self):
        moments = accumulate(words(50), pairs=[(0, 2)])
        again = Moments.from_arrays({name: array.copy() for name, array in moments.to_arrays().items()})
        assert again.pairs == moments.pairs
        assert again.widths == moments.widths
        np.testing.assert_array_equal(again.scatter([0, 2]), moments.scatter([0, 2]))
        np.testing.assert_array_equal(again.fourth, moments.fourth)

    def test_memory_does_not_grow_with_the_words(self):
        def peak(blocks: int) -> int:
            x = np.ones((500, 256), dtype=np.float32) + np.arange(256)
            tracemalloc.start()
            accumulator = MomentsAccumulator([64] * 4)
            for _ in range(blocks):
                accumulator.update(x)
            accumulator.result()
            used = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return used

        assert peak(100) < 1.1 * peak(10)


class TestPrecision:
    @pytest.mark.parametrize(("mean", "relative"), [(1e4, 1e-10), (-1e7, 1e-8)])
    def test_a_huge_mean_costs_no_more_digits_than_the_mean_itself_loses(self, mean, relative):
        x = words(600, mean=mean)
        parts = [accumulate(part) for part in np.array_split(x, 3)]
        assert_same(accumulate(*np.array_split(x, 5)), direct(x), relative)
        assert_same(merge(merge(parts[0], parts[1]), parts[2]), direct(x), relative)
        rest = subtract(accumulate(x), parts[1])
        assert_same(rest, direct(np.delete(x, np.s_[200:400], axis=0)), relative)

    def test_a_first_word_far_from_all_others_does_no_harm(self):
        x = words(5000)
        x[0] = 1e3
        assert_same(accumulate(x[:1], x[1:]), direct(x))

    @pytest.mark.parametrize("scale", [1e-20, 1e20])
    def test_very_small_and_very_large_numbers(self, scale):
        assert_same(accumulate(words(100) * scale), direct(words(100) * scale))

    def test_float32_products_are_good_to_six_digits_even_with_a_large_mean(self):
        x = words(5000, mean=1e3)
        assert_same(accumulate(x, products="float32"), direct(x), relative=1e-6)

    def test_half_precision_is_upcast_before_anything_is_summed(self):
        x = (words(500) + 200).astype(np.float16)
        assert_same(accumulate(x), direct(x.astype(np.float64)))

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
    def test_torch_tensors_of_any_type(self, dtype):
        x = torch.from_numpy(words(50) * 10).to(dtype).requires_grad_(dtype.is_floating_point)
        assert_same(accumulate(x), direct(x.detach().double().numpy()))


class TestConstantNeurons:
    @pytest.mark.parametrize("value", [0.0, 0.1, -12345.678])
    def test_constant_neurons_are_found_in_every_way_of_adding_up(self, value):
        x = words(3000)
        x[:, [1, 4]] = value
        a, b = accumulate(x[:1000]), accumulate(*np.array_split(x[1000:], 9))
        for moments in (a, b, merge(a, b), subtract(merge(a, b), a), accumulate(x, products="float32")):
            assert [moments.dead(i).tolist() for i in range(3)] == [[1], [1], []]
            assert not moments.scatter()[[1, 4]].any()

    def test_a_neuron_that_lives_only_in_the_deleted_part_is_constant_in_the_rest(self):
        x = words(400)
        x[100:, 0] = 7.0
        rest = subtract(accumulate(x), accumulate(x[:100]))
        assert rest.dead(0).tolist() == [0]
        assert np.isfinite(rest.scatter()).all()

    def test_small_but_real_variation_is_not_taken_for_constant(self):
        x = words(400)
        x[:, 0] = 1e4 + 1e-6 * np.random.default_rng(1).standard_normal(400)
        x[:, 1] *= 1e-13
        assert accumulate(x).dead(0).tolist() == []
        assert accumulate(1e-25 * x).dead(0).tolist() == []

    def test_one_word_has_only_constant_neurons(self):
        assert accumulate(words(1)).dead(1).tolist() == [0, 1, 2, 3, 4]


class TestPairs:
    def test_a_pair_shows_its_blocks_in_the_order_asked(self):
        x = words(80)
        scatter = direct(x)["scatter"]
        pair = accumulate(x).pair(2, 1)
        np.testing.assert_allclose(pair.cross, scatter[8:, 3:8])
        np.testing.assert_allclose(pair.x.scatter, scatter[8:, 8:])
        np.testing.assert_allclose(pair.fourth, direct(x)["fourth"][2, 1])

    def test_only_asked_pairs_are_kept_and_they_equal_the_joint_ones(self):
        x = words(300)
        joint, some = accumulate(x), accumulate(*np.split(x, 3), pairs=[(2, 0)])
        assert some.pairs == [(0, 0), (0, 2), (2, 2)]
        np.testing.assert_allclose(some.scatter([0, 2]), joint.scatter([0, 2]))
        np.testing.assert_allclose(some.pair(0, 2).fourth, joint.pair(0, 2).fourth)
        assert np.isnan(some.fourth[0, 1])
        assert np.isnan(some.mean[3:8]).all()

    def test_layers_that_no_pair_needs_may_be_left_out_of_the_stream(self):
        first, middle, last = np.split(words(30), np.cumsum(WIDTHS)[:-1], axis=1)
        whole = accumulate([first, middle, last], pairs=[(0, 2)])
        np.testing.assert_array_equal(accumulate([first, None, last], pairs=[(0, 2)]).mean, whole.mean)

    def test_pairs_merge_and_subtract_like_the_whole(self):
        x = words(200)
        a, b = accumulate(x[:70], pairs=[(0, 1)]), accumulate(x[70:], pairs=[(0, 1)])
        expected = accumulate(x).pair(0, 1)
        assert merge(a, b).pair(0, 1).fourth == pytest.approx(expected.fourth, rel=1e-10)
        left = subtract(merge(a, b), b).pair(0, 1)
        np.testing.assert_allclose(left.cross, a.pair(0, 1).cross, rtol=1e-9)

    def test_a_layer_is_the_same_as_itself_and_as_its_copy_only(self):
        x = words(100)[:, :3]
        accumulator = MomentsAccumulator([3, 3, 3, 3])
        accumulator.update([x, x.copy(), x + 1, x * (1 + 1e-5)])
        moments = accumulator.result()
        assert [moments.pair(0, j).same for j in range(4)] == [True, True, False, False]

    def test_joint_memory_counts_each_unordered_pair_once(self):
        moments = accumulate(words(5))
        assert scatter_bytes(WIDTHS) == sum(block.nbytes for block in moments.blocks.values())
        assert scatter_bytes(WIDTHS, [(0, 1)]) == 8 * (9 + 15 + 25)

    @pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
    def test_passes_cover_every_pair_within_the_memory_allowed(self, share):
        widths = [4] * 9
        allowed = int(share * scatter_bytes(widths))
        passes = plan_passes(widths, allowed)
        assert {pair for pairs in passes for pair in pairs} == {(i, j) for i in range(9) for j in range(i, 9)}
        assert max(scatter_bytes(widths, pairs) for pairs in passes) <= allowed
        assert (len(passes) == 1) == (share == 1.0)


class TestMessages:
    @pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (-np.inf, "-inf"), (1e200, r"1e\+200")])
    def test_a_bad_number_is_named_by_word_layer_and_neuron(self, value, shown):
        x = words(30)
        x[17, 6] = value
        accumulator = MomentsAccumulator(WIDTHS)
        accumulator.update(x[:10])
        with pytest.raises(DataError, match=f"holds {shown} at word 17 .* layer 1, neuron 3"):
            accumulator.update(x[10:])

    def test_a_bad_float32_number_raises_no_other_warning(self):
        x = words(30).astype(np.float32)
        x[3, 9] = np.inf
        with pytest.raises(DataError, match="word 3 .* layer 2, neuron 1"):
            accumulate(x)

    @pytest.mark.parametrize(
        "block", [np.ones((4, 9)), np.ones(10), [np.ones((4, 3)), np.ones((5, 5)), np.ones((4, 2))]]
    )
    def test_a_block_of_another_shape(self, block):
        with pytest.raises(DataError, match="expected words × neurons"):
            accumulate(block)

    def test_words_that_are_not_numbers(self):
        with pytest.raises(DataError, match="expected real numbers"):
            accumulate(np.full((2, 10), "a"))

    def test_no_words(self):
        with pytest.raises(DataError, match="No words"):
            accumulate(words(0))

    def test_moments_of_other_layers_do_not_merge(self):
        with pytest.raises(DataError, match="different layers"):
            merge(accumulate(words(5)), accumulate(words(5), pairs=[(0, 1)]))

    def test_more_words_cannot_be_taken_than_there_are(self):
        with pytest.raises(DataError, match="Cannot take 5 words from 5"):
            subtract(accumulate(words(5)), accumulate(words(5)))

    def test_a_pair_or_layer_that_is_not_there(self):
        moments = accumulate(words(5), pairs=[(0, 1)])
        with pytest.raises(SettingError, match=r"pair of layers \(1, 2\) was not accumulated|\(2, 2\)"):
            moments.pair(1, 2)
        with pytest.raises(SettingError, match="Layer 7 is not in these moments"):
            moments.layer(7)

    def test_settings_that_cannot_be_used(self):
        with pytest.raises(SettingError, match="float16"):
            MomentsAccumulator(WIDTHS, products="float16")
        with pytest.raises(SettingError, match=r"Pairs of layers \[\(0, 9\)\]"):
            MomentsAccumulator(WIDTHS, pairs=[(0, 9)])
        with pytest.raises(SettingError, match="widths"):
            MomentsAccumulator([])
        with pytest.raises(SettingError, match="one pair of layers needs"):
            plan_passes([100, 100], 10)


def test_moments_similarity_and_intervals_load_neither_torch_nor_scipy_stats():
    code = "import sys, residuum.maths.moments, residuum.maths.similarity, residuum.maths.statistics; "
    code += "sys.exit(bool({'torch', 'scipy.stats'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
