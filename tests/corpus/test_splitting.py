"""Seeded parts that are the same for every parallel corpus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from residuum.corpus import Corpus, split_indices
from residuum.errors import CorpusError, SettingError


@given(st.integers(2, 300), st.data())
def test_whole_sizes_are_a_partition(n, data):
    first = data.draw(st.integers(1, n - 1))
    parts = split_indices(n, [first, n - first], data.draw(st.integers(0, 2**32)))
    assert [len(part) for part in parts] == [first, n - first]
    assert sorted(parts[0] + parts[1]) == list(range(n))


@given(st.integers(10, 500), st.floats(0.2, 0.8))
def test_shares_that_add_up_to_one_are_a_partition(n, share):
    parts = split_indices(n, [share, 1 - share], seed=3)
    assert sorted(parts[0] + parts[1]) == list(range(n))
    assert abs(len(parts[0]) - share * n) <= 0.5 + 1e-6


def test_parts_are_in_corpus_order_and_need_not_take_all():
    parts = split_indices(1000, [500, 100], seed=1)
    assert all(part == sorted(part) for part in parts)
    assert set(parts[0]).isdisjoint(parts[1])
    assert len(parts[1]) == 100


def test_the_split_depends_on_the_seed_alone():
    assert split_indices(1000, [900, 100], seed=7) == split_indices(1000, [900, 100], seed=7)
    assert split_indices(1000, [900, 100], seed=7) != split_indices(1000, [900, 100], seed=8)


def test_the_split_never_changes_between_versions():
    assert split_indices(10, [7, 3], seed=0) == SPLIT_OF_TEN


def test_every_sentence_is_drawn_equally_often():
    counts = [0] * 10
    for seed in range(2000):
        for index in split_indices(10, [3], seed)[0]:
            counts[index] += 1
    assert all(abs(count - 600) < 100 for count in counts)  # about five standard deviations


@pytest.mark.parametrize("sizes", [[], [0, 5], [-1, 3], [0.5, float("nan")], [True]])
def test_sizes_must_be_positive(sizes):
    with pytest.raises(SettingError, match="expected positive numbers"):
        split_indices(10, sizes)


def test_sizes_must_be_of_one_kind_and_fit():
    with pytest.raises(SettingError, match="all whole numbers or all shares"):
        split_indices(10, [5, 0.5])
    with pytest.raises(SettingError, match=r"together 1\.1"):
        split_indices(10, [0.9, 0.2])
    with pytest.raises(CorpusError, match=r"10 sentences cannot be split into parts of \[9, 2\]"):
        split_indices(10, [9, 2])
    with pytest.raises(CorpusError, match="3 sentences cannot be split"):
        split_indices(3, [0.95, 0.05])


def test_parallel_corpora_are_split_alike():
    english = Corpus("en", [[f"e{i}"] for i in range(100)])
    turkish = Corpus("tr", [[f"t{i}"] for i in range(100)])
    for one, other in zip(english.split([90, 10], seed=5), turkish.split([90, 10], seed=5), strict=True):
        assert [words[0][1:] for words in one.sentences] == [words[0][1:] for words in other.sentences]
        assert one.ids == other.ids


SPLIT_OF_TEN = [[2, 3, 4, 5, 7, 8, 9], [0, 1, 6]]
