import numpy as np
import pytest

from residuum.errors import DataError, SettingError
from residuum.maths.features import ShardedFeatures
from residuum.maths.probe_scores import description_lengths
from residuum.maths.probing import PaperRecipe, Probe, train_probes
from residuum.maths.targets import class_target, number_target

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3000, 12)).astype(np.float32)
LEARNABLE = class_target([str(v) for v in (3 * X[:, :4]).argmax(axis=1)])
RANDOM = class_target([str(v) for v in RNG.integers(0, 4, len(X))])
TARGETS = {"learnable": LEARNABLE, "random": RANDOM}
RECIPE = PaperRecipe(epochs=30, learning_rate=1e-2)


def test_learnable_labels_are_compressed_and_random_labels_are_not():
    probes = [Probe("learnable"), Probe("random")]
    learnable, random = description_lengths(X, TARGETS, probes, np.random.default_rng(0), recipe=RECIPE)
    assert learnable.uniform_bits == random.uniform_bits == 3000 * 2
    assert learnable.compression > 2
    assert random.compression == pytest.approx(1, abs=0.1)
    assert random.compression < 1.02


def test_neurons_that_know_less_compress_less():
    probes = [Probe("learnable"), Probe("learnable", slice(0, 3)), Probe("learnable", slice(4, 12))]
    lengths = description_lengths(X, TARGETS, probes, np.random.default_rng(0), recipe=RECIPE)
    bits = [length.online_bits for length in lengths]
    assert bits == sorted(bits)


def test_two_steps_by_hand():
    (found,) = description_lengths(
        X, TARGETS, [Probe("learnable")], np.random.default_rng(7), fractions=(0.5, 1.0), recipe=RECIPE
    )
    order = np.random.default_rng(7).permutation(3000)
    first, second = np.sort(order[:1500]), np.sort(order[1500:])
    half = {"learnable": class_target([str(v) for v in LEARNABLE.values[first]])}
    (probe,) = train_probes(X[first], half, [Probe("learnable")], RECIPE)
    log_p = probe.log_probabilities(X[second])
    sent = -log_p[np.arange(1500), LEARNABLE.values[second]].sum() / np.log(2)
    assert found.online_bits == pytest.approx(1500 * 2 + sent, rel=1e-5)


def sharded(window):
    pieces = np.split(X, range(700, 3000, 700))
    return ShardedFeatures(tuple((lambda p=p: p) for p in pieces), tuple(map(len, pieces)), X.shape[1], window)


def test_shards_that_fit_a_window_are_coded_as_one_array_is():
    probes = [Probe("learnable"), Probe("random", slice(2, 7))]
    array, shards = (
        description_lengths(x, TARGETS, probes, np.random.default_rng(0), recipe=RECIPE) for x in (X, sharded(3000))
    )
    assert [length.online_bits for length in shards] == pytest.approx([length.online_bits for length in array])


def test_windows_smaller_than_the_words_cost_few_bits_more():
    (array,), (shards,) = (
        description_lengths(x, TARGETS, [Probe("learnable")], np.random.default_rng(0), recipe=RECIPE)
        for x in (X, sharded(800))
    )
    assert shards.online_bits == pytest.approx(array.online_bits, rel=0.05)


def test_bad_input_is_explained():
    probes, rng = [Probe("learnable")], np.random.default_rng(0)
    with pytest.raises(SettingError, match="exactly 1"):
        description_lengths(X, TARGETS, probes, rng, fractions=(0.1, 0.5))
    with pytest.raises(DataError, match="2999 words came with 3000 labels"):
        description_lengths(X[1:], TARGETS, probes, rng)
    with pytest.raises(SettingError, match="asks for 'pos'"):
        description_lengths(X, TARGETS, [Probe("pos")], rng)
    with pytest.raises(DataError, match="no classes"):
        description_lengths(X, {"learnable": number_target(X[:, 0])}, probes, rng)
