"""Losses against loops that follow the formulas word by word, and unchanged by any amount of padding."""

import math

import pytest
import torch

from residuum.errors import DataError
from residuum.maths import losses

LENGTHS = (5, 3, 1)
HEADS, HIDDEN = 2, 4


@pytest.fixture
def states():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(len(LENGTHS), max(LENGTHS), HIDDEN, generator=generator) for _ in range(2)]


@pytest.fixture
def scores():
    generator = torch.Generator().manual_seed(2)
    shape = (len(LENGTHS), HEADS, max(LENGTHS), max(LENGTHS))
    return [torch.randn(shape, generator=generator) * 2 for _ in range(2)]


@pytest.fixture
def values():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(len(LENGTHS), HEADS, max(LENGTHS), size, generator=generator) for size in (3, 5)]


def mask_of(padding=0):
    tokens = max(LENGTHS) + padding
    return torch.tensor([[t < length for t in range(tokens)] for length in LENGTHS])


def tokens():
    return [(b, t) for b, length in enumerate(LENGTHS) for t in range(length)]


def slow_softmax(row):
    highest = max(row)
    total = sum(math.exp(x - highest) for x in row)
    return [math.exp(x - highest) / total for x in row]


def slow_kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def slow_mean(of_token):
    found = [of_token(b, t) for b, t in tokens()]
    return sum(found) / len(found)


def slow_mse(student, teacher, b, t):
    pairs = zip(student[b, t].tolist(), teacher[b, t].tolist(), strict=True)
    return sum((x - y) ** 2 for x, y in pairs) / HIDDEN


def slow_cos(student, teacher, b, t):
    x, y = student[b, t].tolist(), teacher[b, t].tolist()
    dot = sum(i * j for i, j in zip(x, y, strict=True))
    return 1 - dot / math.sqrt(sum(i * i for i in x)) / math.sqrt(sum(j * j for j in y))


def slow_pkd(student, teacher, b, t):
    x, y = student[b, t].tolist(), teacher[b, t].tolist()
    x = [i / math.sqrt(sum(j * j for j in x)) for i in x]
    y = [i / math.sqrt(sum(j * j for j in y)) for i in y]
    return sum((i - j) ** 2 for i, j in zip(x, y, strict=True)) / HIDDEN


def slow_hidden_kl(student, teacher, b, t):
    return slow_kl(slow_softmax(student[b, t].tolist()), slow_softmax(teacher[b, t].tolist()))


@pytest.mark.parametrize(
    ("loss", "slow"),
    [
        (losses.hidden_mse, slow_mse),
        (losses.hidden_cos, slow_cos),
        (losses.normalized_mse, slow_pkd),
        (losses.hidden_kl, slow_hidden_kl),
    ],
)
def test_state_losses_equal_loops_over_tokens(states, loss, slow):
    fast = losses.token_mean(loss(*states), mask_of())
    assert float(fast) == pytest.approx(slow_mean(lambda b, t: slow(*states, b, t)), rel=1e-5)


def slow_score_mse(student, teacher, b, t):
    found = [
        sum((float(student[b, h, t, k]) - float(teacher[b, h, t, k])) ** 2 for k in range(LENGTHS[b])) / LENGTHS[b]
        for h in range(HEADS)
    ]
    return sum(found) / HEADS


def slow_score_kl(student, teacher, b, t):
    found = []
    for h in range(HEADS):
        s, k = (slow_softmax(scores[b, h, t, : LENGTHS[b]].tolist()) for scores in (student, teacher))
        found.append(slow_kl(k, s))
    return sum(found) / HEADS


@pytest.mark.parametrize(
    ("loss", "slow"), [(losses.attention_mse, slow_score_mse), (losses.attention_kl, slow_score_kl)]
)
def test_attention_losses_equal_loops_over_heads_and_keys(scores, loss, slow):
    visible = losses.visible_keys(mask_of(), HEADS, causal=False)
    fast = losses.token_mean(loss(*scores, visible), mask_of())
    assert float(fast) == pytest.approx(slow_mean(lambda b, t: slow(*scores, b, t)), rel=1e-5)


def test_the_published_attention_loss_zeroes_small_probabilities_and_counts_padding(scores):
    scores = [s * 3 for s in scores]  # peaked, so that many probabilities are below 0.01
    visible = losses.visible_keys(mask_of(), HEADS, causal=False)
    everything = torch.ones_like(mask_of())
    fast = losses.token_mean(losses.published_attention_mse(*scores, visible), everything)
    total, cells, zeroed = 0.0, 0, 0
    for b, h, t in torch.cartesian_prod(*map(torch.arange, scores[0].shape[:3])).tolist():
        rows = []
        for s in scores:
            row = slow_softmax(s[b, h, t, : LENGTHS[b]].tolist()) + [0.0] * (max(LENGTHS) - LENGTHS[b])
            zeroed += sum(0 < p <= 0.01 for p in row)
            rows.append([0.0 if p <= 0.01 else p for p in row])
        total += sum((x - y) ** 2 for x, y in zip(*rows, strict=True))
        cells += len(rows[0])
    assert zeroed > 5
    assert float(fast) == pytest.approx(total / cells, rel=1e-5)


def test_value_relations_equal_their_formula_for_heads_of_different_size(values):
    visible = losses.visible_keys(mask_of(), HEADS, causal=False)
    fast = losses.token_mean(losses.relation_kl(*values, visible), mask_of())

    def relation(v, b, h, t):
        rows = [
            sum(x * y for x, y in zip(v[b, h, t].tolist(), v[b, h, k].tolist(), strict=True)) for k in range(LENGTHS[b])
        ]
        return slow_softmax([r / math.sqrt(v.shape[-1]) for r in rows])

    def slow(b, t):
        return sum(slow_kl(relation(values[1], b, h, t), relation(values[0], b, h, t)) for h in range(HEADS)) / HEADS

    assert float(fast) == pytest.approx(slow_mean(slow), rel=1e-4)


def test_soft_targets_equal_hintons_formula():
    student, teacher = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(4))
    fast = losses.soft_divergence(student, teacher, temperature=4.0)
    for row in range(6):
        p, q = (slow_softmax([z / 4 for z in logits[row].tolist()]) for logits in (teacher, student))
        assert float(fast[row]) == pytest.approx(16 * slow_kl(p, q), rel=1e-4)


def test_the_soft_loss_hardly_depends_on_a_high_temperature():
    """T² keeps the size of the gradient: Hinton et al. (2015)."""
    student, teacher = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(4))
    cool, hot = (float(losses.soft_divergence(student, teacher, t).sum()) for t in (50.0, 500.0))
    assert cool == pytest.approx(hot, rel=0.02)


@pytest.mark.parametrize("padding", [1, 4, 11])
def test_no_loss_depends_on_the_amount_or_content_of_padding(states, scores, values, padding):
    def every_loss(states, scores, values, mask):
        visible = losses.visible_keys(mask, HEADS, causal=False)
        per_token = [
            *(
                loss(*states)
                for loss in (losses.hidden_mse, losses.hidden_cos, losses.normalized_mse, losses.hidden_kl)
            ),
            *(loss(*scores, visible) for loss in (losses.attention_mse, losses.attention_kl)),
            losses.relation_kl(*values, visible),
        ]
        return torch.stack([losses.token_mean(loss, mask) for loss in per_token])

    def padded(x, dims, fill):
        return torch.nn.functional.pad(x, (0, 0, 0, padding) if dims == 1 else (0, padding, 0, padding), value=fill)

    plain = every_loss(states, scores, values, mask_of())
    wide = every_loss(
        [padded(x, 1, 1e3) for x in states],
        [padded(x, 2, -50.0) for x in scores],
        [padded(x, 1, 9.0) for x in values],
        mask_of(padding),
    )
    torch.testing.assert_close(plain, wide, rtol=1e-5, atol=1e-6)


def test_a_decoder_sees_no_later_key_and_left_padding_gives_no_nan(scores):
    mask = mask_of().flip(1)
    visible = losses.visible_keys(mask, HEADS, causal=True)
    assert not visible[0, 0].triu(1).any()
    scores = [s.requires_grad_() for s in scores]
    loss = losses.token_mean(losses.attention_kl(*scores, visible), mask)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(scores[0].grad).all()


def test_equal_inputs_have_no_loss_and_different_ones_have_some(states, scores, values):
    visible = losses.visible_keys(mask_of(), HEADS, causal=False)
    same = [(states[0], states[0]), (states[0], states[1])]
    for loss in (losses.hidden_mse, losses.hidden_cos, losses.normalized_mse, losses.hidden_kl):
        zero, some = (float(losses.token_mean(loss(*pair), mask_of())) for pair in same)
        assert abs(zero) < 1e-6 < 1e-3 < some
    for loss in (losses.attention_mse, losses.attention_kl, losses.published_attention_mse):
        zero, some = (
            float(losses.token_mean(loss(scores[0], other, visible), mask_of())) for other in (scores[0], scores[1])
        )
        assert abs(zero) < 1e-6 < 1e-3 < some


def test_a_mean_over_parts_with_the_whole_count_is_the_mean_of_the_whole(states):
    per_token, mask = losses.hidden_mse(*states), mask_of()
    parts = sum(losses.token_mean(per_token[i : i + 1], mask[i : i + 1], count=float(mask.sum())) for i in range(3))
    torch.testing.assert_close(parts, losses.token_mean(per_token, mask))


def test_a_batch_of_padding_only_is_an_error():
    with pytest.raises(DataError, match="no token to average over"):
        losses.token_mean(torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.bool))
