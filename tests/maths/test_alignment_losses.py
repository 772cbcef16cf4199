"""Contrast and gradient reversal against loops and known limits."""

import math

import pytest
import torch
import torch.nn.functional as F

from residuum.errors import DataError
from residuum.maths.losses import info_nce, mean_pool, mixup_contrast, reverse_gradient


@pytest.fixture
def vectors():
    return torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))


def cosine(x, y):
    return float(F.cosine_similarity(x, y, dim=0))


def test_info_nce_equals_a_loop_over_both_directions(vectors):
    a, b = vectors
    total = 0.0
    for left, right in ((a, b), (b, a)):
        for i in range(5):
            scores = [math.exp(cosine(left[i], right[j]) / 0.1) for j in range(5)]
            total -= math.log(scores[i] / sum(scores))
    assert float(info_nce(a, b, 0.1)) == pytest.approx(total / 10, rel=1e-4)


def test_mixup_contrast_equals_a_loop(vectors):
    q, k = (F.normalize(v, dim=-1) for v in vectors)
    total = 0.0
    for i in range(5):
        near = float((k[i] - q[i]).norm())
        scores = []
        for j in range(5):
            far = float((k[j] - q[i]).norm())
            pull = (near / far) ** 0.9 if j != i and far > near else 1.0
            scores.append(math.exp(cosine(q[i], q[i] + pull * (k[j] - q[i])) / 0.1))
        total -= math.log(scores[i] / sum(scores))
    assert float(mixup_contrast(*vectors, temperature=0.1, hardness=0.9)) == pytest.approx(total / 5, rel=1e-4)


def test_harder_negatives_cost_more(vectors):
    anchors = vectors[0] + 3 * vectors[1]  # near their positives, so that every negative is farther away
    easy, hard = (float(mixup_contrast(anchors, vectors[1], 0.1, hardness)) for hardness in (0.0, 0.9))
    assert hard > easy


def test_aligned_pairs_cost_less_than_shuffled_ones(vectors):
    a = vectors[0]
    assert float(info_nce(a, a + 0.01, 0.1)) < float(info_nce(a, a.flip(0), 0.1))


def test_pooling_leaves_padding_out(vectors):
    states = vectors
    mask = torch.tensor([[True, True, False, False, False], [True] * 5])
    pooled = mean_pool(states, mask)
    torch.testing.assert_close(pooled[0], states[0, :2].mean(dim=0))
    torch.testing.assert_close(pooled[1], states[1].mean(dim=0))


def test_the_gradient_comes_back_with_the_other_sign():
    x = torch.tensor([2.0, -1.0], requires_grad=True)
    (reverse_gradient(x) * torch.tensor([3.0, 5.0])).sum().backward()
    assert x.grad.tolist() == [-3.0, -5.0]


def test_one_sentence_gives_no_contrast(vectors):
    with pytest.raises(DataError, match="at least 2"):
        info_nce(vectors[0][:1], vectors[1][:1], 0.1)
    with pytest.raises(DataError, match="at least 2"):
        mixup_contrast(vectors[0][:1], vectors[1][:1], 0.1, 0.9)
