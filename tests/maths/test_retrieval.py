"""Ranks of partners: against brute force, with ties, in any blocks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from sklearn.metrics.pairwise import cosine_similarity

from residuum.errors import DataError
from residuum.maths.retrieval import RankCounter, Ranks, cosine_ranks


def vectors(n: int, width: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, width))).float()


def test_against_sklearn_the_nearest_neighbour_is_the_same_in_both_directions():
    source, target = vectors(60), vectors(60, seed=1) + 0.7 * vectors(60)
    table = cosine_similarity(source.numpy(), target.numpy())
    forward, backward = cosine_ranks(source, target)
    own = np.diag(table)
    np.testing.assert_array_equal(forward.better, (table > own[:, None]).sum(axis=1))
    np.testing.assert_array_equal(backward.better, (table > own).sum(axis=0))
    assert forward.hits.mean() == (table.argmax(axis=1) == np.arange(60)).mean()
    assert 0.05 < forward.hits.mean() < 0.95
    np.testing.assert_allclose(backward.reciprocals, 1 / (1 + backward.better))


@given(rows=st.integers(1, 25), columns=st.integers(1, 25))
@settings(max_examples=20)
def test_the_size_of_blocks_changes_nothing(rows, columns):
    source, target = vectors(23), vectors(23, seed=1)
    for whole, blocked in zip(
        cosine_ranks(source, target), cosine_ranks(source, target, block=(rows, columns)), strict=True
    ):
        np.testing.assert_array_equal(whole.better, blocked.better)
        np.testing.assert_array_equal(whole.equal, blocked.equal)


def test_cosine_retrieval_is_invariant_to_rotation_and_to_the_length_of_vectors():
    source, target = vectors(40), vectors(40, seed=1)
    turn = torch.linalg.qr(vectors(8, seed=2))[0]
    lengths = torch.linspace(0.1, 9, 40)[:, None]
    for a, b in zip(cosine_ranks(source, target), cosine_ranks(source @ turn * lengths, target @ turn), strict=True):
        np.testing.assert_array_equal(a.better, b.better)


def test_exchanging_both_sides_exchanges_the_directions():
    source, target = vectors(30), vectors(30, seed=1)
    forward, backward = cosine_ranks(source, target)
    again_backward, again_forward = cosine_ranks(target, source)
    np.testing.assert_array_equal(forward.better, again_forward.better)
    np.testing.assert_array_equal(backward.better, again_backward.better)


def test_translations_that_are_equal_are_all_found_and_unrelated_ones_are_found_by_chance():
    source = vectors(500)
    assert cosine_ranks(source, source)[0].hits.mean() == 1
    found = cosine_ranks(source, vectors(500, seed=1))[0].hits.mean()
    assert found < 0.02


def test_a_model_that_maps_all_sentences_to_one_point_earns_chance():
    same = torch.ones(50, 8) * torch.linspace(1, 2, 50)[:, None]
    for ranks in cosine_ranks(same, same):
        assert ranks.hits.mean() == pytest.approx(1 / 50)
        assert ranks.reciprocals.mean() == pytest.approx(sum(1 / k for k in range(1, 51)) / 50)


def test_a_repeated_sentence_shares_its_place_with_its_copy():
    source = vectors(10)
    target = source.clone()
    target[4] = target[3]
    forward, _ = cosine_ranks(target, target)
    np.testing.assert_array_equal(forward.hits, [1, 1, 1, 0.5, 0.5, 1, 1, 1, 1, 1])


def test_reciprocal_ranks_are_the_mean_over_the_places_that_ties_allow():
    ranks = Ranks(np.array([0, 0, 2, 3]), np.array([0, 1, 0, 2]))
    expected = [1, (1 + 1 / 2) / 2, 1 / 3, (1 / 4 + 1 / 5 + 1 / 6) / 3]
    np.testing.assert_allclose(ranks.reciprocals, expected)
    np.testing.assert_allclose(ranks.hits, [1, 0.5, 0, 0])


def test_a_vector_of_zeros_is_no_neighbour_of_any():
    source, target = vectors(10), vectors(10)
    target[0] = 0
    forward, _ = cosine_ranks(source, target)
    assert forward.hits[0] == 0
    assert forward.hits[1:].all()


def test_a_score_that_is_not_finite_is_named():
    with pytest.raises(DataError, match="Pair 1 has the score nan"):
        RankCounter(torch.tensor([0.5, float("nan")]))


@pytest.mark.parametrize(("rows", "columns"), [(1000, 1000), (7, 11)])
def test_margin_subtracts_the_mean_cosine_of_the_nearest_neighbours(rows, columns):
    source, target = vectors(60, seed=1) + 1, vectors(60, seed=2) + 1
    unit = [x / x.norm(dim=1, keepdim=True) for x in (source, target)]
    cosine = (unit[0] @ unit[1].T).double().numpy()
    of_source, of_target = (np.sort(table, axis=1)[:, -4:].mean(axis=1) for table in (cosine, cosine.T))
    margin = 2 * cosine - of_source[:, None] - of_target
    found = cosine_ranks(source, target, block=(rows, columns), neighbours=4)
    for ranks, table in zip(found, (margin, margin.T), strict=True):
        assert ranks.better.tolist() == (table > np.diagonal(table)[:, None] + 1e-9).sum(axis=1).tolist()
        assert ranks.nearest.tolist() == table.argmax(axis=1).tolist()


def test_margin_finds_partners_that_a_hub_hides():
    target = vectors(40, seed=3)
    source = target + 0.9 * vectors(40, seed=4)
    target[0] = source.mean(dim=0) * 50 + target[0]  # near to all
    plain, margin = (cosine_ranks(source, target, neighbours=k)[0].hits.mean() for k in (None, 5))
    assert margin >= plain


def test_f1_is_the_weighted_f1_of_scikit_learn():
    source, target = vectors(50, seed=5), vectors(50, seed=6)
    for ranks in cosine_ranks(source, source + 1.5 * target, block=(9, 13)):
        expected = f1_score(np.arange(50), ranks.nearest, average="weighted", zero_division=0)
        assert 0 < ranks.hits.mean() < 1
        assert ranks.f1.mean() == pytest.approx(expected)
