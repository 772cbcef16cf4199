"""BERTScore of all pairs at once: against the definition written as loops over tokens."""

import numpy as np
import pytest
import torch

from residuum.errors import DataError
from residuum.maths import retrieval as module
from residuum.maths.retrieval import TokenStates, bertscore, bertscore_ranks, f_score, own_bertscores


def sentences(lengths: list[int], layers: int = 2, width: int = 6, seed: int = 0) -> TokenStates:
    """Random states near one direction, as those of real models are; the first and last token are special."""
    rng = np.random.default_rng(seed)
    first = np.concatenate([[0], np.cumsum(lengths)])
    counted = np.ones(first[-1], dtype=bool)
    counted[first[:-1]] = False
    counted[first[1:] - 1] = False
    raw = rng.normal(size=(layers, first[-1], width)) + 1
    unit = torch.from_numpy(raw / np.linalg.norm(raw, axis=2, keepdims=True)).float()
    return TokenStates(dict(enumerate(unit)), first, counted)


def by_definition(source: TokenStates, target: TokenStates, layers: tuple[int, int]) -> np.ndarray:
    """Zhang et al. (2020), equation by equation, one pair and one token at a time, in float64."""
    x, y = source.states[layers[0]].double().numpy(), target.states[layers[1]].double().numpy()
    scores = np.empty((len(source), len(target)))
    for i in range(len(source)):
        for j in range(len(target)):
            xs = range(source.first[i], source.first[i + 1])
            ys = range(target.first[j], target.first[j + 1])
            recall = np.mean([max(x[a] @ y[b] for b in ys) for a in xs if source.counted[a]])
            precision = np.mean([max(x[a] @ y[b] for a in xs) for b in ys if target.counted[b]])
            scores[i, j] = 2 * precision * recall / (precision + recall)
    return scores


LENGTHS = [3, 9, 4, 4, 12, 3, 7], [5, 3, 8, 3, 6, 10, 4]


@pytest.mark.parametrize("block_tokens", [1, 16, 40, 1024])
def test_against_the_definition_for_any_size_of_block(block_tokens, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_TOKENS", block_tokens)
    source, target = sentences(LENGTHS[0]), sentences(LENGTHS[1], seed=1)
    for layers in ((0, 0), (1, 1), (0, 1)):
        np.testing.assert_allclose(
            bertscore(source, target, layers).numpy(), by_definition(source, target, layers), atol=1e-6
        )


@pytest.mark.parametrize("stripe", [1, 8, 30, 64])
def test_a_long_sentence_is_scored_in_stripes_with_the_same_result(stripe, monkeypatch):
    source, target = sentences([*LENGTHS[0], 60, 5]), sentences([*LENGTHS[1], 45, 70], seed=1)
    expected, own = bertscore(source, target, (0, 0)), own_bertscores(source, target, [(0, 0)])
    products, matmul = [], torch.Tensor.__matmul__

    def product(a, b):
        found = matmul(a, b)
        products.append(found.numel())
        return found

    monkeypatch.setattr(module, "BLOCK_TOKENS", 8)
    monkeypatch.setattr(module, "STRIPE", stripe)
    monkeypatch.setattr(torch.Tensor, "__matmul__", product)
    np.testing.assert_allclose(bertscore(source, target, (0, 0)), expected, atol=1e-6)
    np.testing.assert_allclose(own_bertscores(source, target, [(0, 0)]), own, atol=1e-6)
    assert max(products) <= max(stripe, 8 * 8, 70), "a row with the longest sentence is the least there is"


def test_the_scores_of_pairs_are_the_diagonal_of_all():
    source, target = sentences(LENGTHS[0]), sentences(LENGTHS[1], seed=1)
    own = own_bertscores(source, target, [(0, 0), (1, 1)])
    for index in (0, 1):
        np.testing.assert_allclose(own[index], bertscore(source, target, (index, index)).diagonal(), atol=1e-6)


def test_a_sentence_has_score_1_with_itself_and_exchange_of_sides_transposes():
    source, target = sentences(LENGTHS[0]), sentences(LENGTHS[1], seed=1)
    np.testing.assert_allclose(bertscore(source, source, (0, 0)).diagonal(), 1, atol=1e-6)
    np.testing.assert_allclose(bertscore(source, target, (0, 0)), bertscore(target, source, (0, 0)).T, atol=1e-6)


def test_special_tokens_are_partners_but_do_not_count():
    source, target = sentences([4, 4]), sentences([5, 5], seed=1)
    plain = bertscore(source, target, (0, 0))
    first = target.states[0].clone()
    first[0] = source.states[0][1]  # the special token of target 0 becomes a word of source 0
    changed = bertscore(source, TokenStates({0: first}, target.first, target.counted), (0, 0))
    assert changed[0, 0] > plain[0, 0]
    assert torch.equal(changed[:, 1], plain[:, 1])
    everything = TokenStates(target.states, target.first, np.ones_like(target.counted))
    assert not torch.allclose(bertscore(source, everything, (0, 0)), plain)


def test_ranks_over_several_layers_are_those_of_the_mean_score():
    source, target = sentences([6] * 30, layers=3), sentences([6] * 30, layers=3, seed=1)
    choices = [[(0, 0)], [(0, 0), (2, 2)], [(1, 2)]]
    for choice, (forward, backward) in zip(choices, bertscore_ranks(source, target, choices), strict=True):
        mean = np.mean([by_definition(source, target, pair) for pair in choice], axis=0)
        np.testing.assert_array_equal(forward.better, (mean > np.diag(mean)[:, None]).sum(axis=1))
        np.testing.assert_array_equal(backward.better, (mean > np.diag(mean)).sum(axis=0))


def test_copies_are_found_and_strangers_are_not():
    source = sentences([5] * 200, width=16)
    strangers = sentences([5] * 200, width=16, seed=1)
    assert bertscore_ranks(source, source, [[(0, 0)]])[0][0].hits.mean() == 1
    assert bertscore_ranks(source, strangers, [[(0, 0)]])[0][0].hits.mean() < 0.05


def test_f_is_the_harmonic_mean_and_0_where_nothing_matches():
    found = f_score(torch.tensor([0.5, 0.2, -0.1, 0.1]), torch.tensor([0.5, 0.8, 0.1, -0.1]))
    np.testing.assert_allclose(found, [0.5, 0.32, 0, 0], rtol=1e-6)


def test_a_sentence_without_a_token_that_counts_is_named():
    with pytest.raises(DataError, match="Sentence 1 has no token that counts"):
        TokenStates({}, np.array([0, 3, 5]), np.array([False, True, False, False, False]))
    with pytest.raises(DataError, match="Sentence 0 has no token"):
        TokenStates({}, np.array([0, 0, 2]), np.array([True, True]))
