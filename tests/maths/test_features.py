import numpy as np
import pytest

from residuum.errors import DataError
from residuum.maths.features import (
    ShardedFeatures,
    check_finite,
    column_moments,
    select_columns,
    select_words,
    window_words,
    windows,
)

X = np.random.default_rng(0).normal(3, 2, (50, 6)).astype(np.float32)
LENGTHS = (12, 8, 20, 10)
STARTS = np.cumsum((0, *LENGTHS))


def sharded(window=25, x=X, dtype=np.float32):
    loaders = [lambda i=i: x[STARTS[i] : STARTS[i + 1]].astype(dtype) for i in range(4)]
    return ShardedFeatures(tuple(loaders), LENGTHS, x.shape[1], window)


def test_windows_of_shards_hold_every_word_once_and_no_more_than_asked():
    seen = [(window.words, window.x.copy()) for window in windows(sharded())]
    assert [len(words) for words, _ in seen] == [20, 20, 10]
    assert np.array_equal(np.concatenate([x for _, x in seen]), X)
    assert np.concatenate([words for words, _ in seen]).tolist() == list(range(50))


def test_shuffled_windows_still_pair_words_with_their_own_features():
    orders = set()
    for seed in range(4):
        order = []
        for window in windows(sharded(), np.random.default_rng(seed)):
            assert np.array_equal(window.x, X[window.words])
            order += window.words.tolist()
        assert sorted(order) == list(range(50))
        orders.add(tuple(order))
    assert len(orders) > 1


def test_a_shard_larger_than_the_window_stands_alone():
    assert [len(window.x) for window in windows(sharded(window=5))] == list(LENGTHS)
    assert window_words(sharded(window=5)) == 20
    assert window_words(sharded(window=500)) == 50


def test_an_array_is_one_window_without_a_copy():
    (window,) = windows(X)
    assert np.shares_memory(window.x, X)


def test_half_precision_shards_become_float32():
    window = next(windows(sharded(dtype=np.float16)))
    assert window.x.dtype == np.float32


def test_words_are_selected_alike_from_arrays_and_shards():
    words = np.array([0, 3, 12, 13, 41, 49])
    assert np.array_equal(select_words(X, words), X[words])
    few = select_words(sharded(window=6), words)
    assert isinstance(few, np.ndarray), "they fit a window"
    assert np.array_equal(few, X[words])
    many = select_words(sharded(window=25), np.arange(1, 49))
    assert isinstance(many, ShardedFeatures)
    assert many.lengths == (11, 8, 20, 9)
    assert np.array_equal(np.concatenate([window.x.copy() for window in windows(many)]), X[1:49])


def test_columns_are_selected_alike_from_arrays_and_shards():
    columns = np.array([4, 1])
    assert np.array_equal(select_columns(X, columns), X[:, [4, 1]])
    cut = select_columns(sharded(window=50), columns)
    assert cut.shape == (50, 2)
    assert np.array_equal(next(windows(cut)).x, X[:, [4, 1]])


def test_selected_columns_keep_each_word_in_one_piece_of_memory():
    """Batches are gathered word by word: with scattered words a battery spends most of its time there."""
    assert select_columns(X, np.array([4, 1])).flags.c_contiguous


@pytest.mark.parametrize("make", [lambda x: x, lambda x: sharded(x=x)])
def test_column_moments_against_numpy_with_a_constant_neuron(make):
    x = X.copy()
    x[:, 2] = 0.1
    mean, deviation = column_moments(make(x))
    np.testing.assert_allclose(mean, x.mean(axis=0, dtype=np.float64))
    expected = x.std(axis=0, dtype=np.float64)
    expected[2] = 0
    np.testing.assert_allclose(deviation, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_bad_value_is_traced_to_its_word(value):
    x = X.copy()
    x[31, 4] = value
    with pytest.raises(DataError, match="Word 31 has a NaN or infinite activation"):
        for window in windows(sharded(x=x)):
            check_finite(window)


def test_shards_that_do_not_keep_their_word_are_refused():
    with pytest.raises(DataError, match="one length per shard"):
        ShardedFeatures((lambda: X,), (50, 50), 6)
    with pytest.raises(DataError, match=r"Shard 0 has the shape \(50, 6\); \(49, 6\) was announced"):
        next(windows(ShardedFeatures((lambda: X,), (49,), 6)))


def test_few_columns_of_shards_are_read_once_where_all_words_then_fit():
    reads = []

    def load(i):
        reads.append(i)
        return X[STARTS[i] : STARTS[i + 1]]

    features = ShardedFeatures(tuple(lambda i=i: load(i) for i in range(4)), LENGTHS, 6, window=25)
    cut = select_columns(features, np.array([4, 1, 0]))
    assert isinstance(cut, np.ndarray)
    assert np.array_equal(cut, X[:, [4, 1, 0]])
    assert reads == [0, 1, 2, 3]
    wide = select_columns(features, np.array([0, 1, 2, 3]))
    assert not isinstance(wide, np.ndarray)
    assert [len(window.x) for window in windows(wide)] == [20, 30]
