"""Chunked vocabulary losses equal the plain ones, in value and in every gradient."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from residuum.maths import losses, vocabulary_losses
from residuum.maths.vocabulary_losses import Learner, Projection, SoftTargets

ROWS, PIECES, HIDDEN, TEACHER_HIDDEN, TEMPERATURE = 11, 23, 5, 7, 4.0
STRETCHES = ((0, 6), (6, 11), (2, 9))  # the rows of three students; the first two share a weight but no bias


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator)


@pytest.fixture
def tensors(draw):
    features = [draw(last - first, HIDDEN) for first, last in STRETCHES]
    return [*features, draw(PIECES, HIDDEN), draw(PIECES), draw(PIECES), draw(PIECES, HIDDEN)]


@pytest.fixture
def labels():
    labels = torch.arange(ROWS) * 5 % PIECES
    labels[::3] = -100
    return labels


@pytest.fixture
def targets(draw):
    return SoftTargets(draw(ROWS, TEACHER_HIDDEN), Projection(draw(PIECES, TEACHER_HIDDEN), draw(PIECES)), TEMPERATURE)


def row_weights(first, last, size):
    return torch.linspace(0.1, 1.0, last - first) * size


def learners_of(tensors, sizes):
    *features, weight, first_bias, second_bias, alone = tensors
    projections = (Projection(weight, first_bias), Projection(weight, second_bias), Projection(alone, None))
    return [
        Learner(x, projection, first, *(row_weights(first, last, size) for size in sizes))
        for x, projection, (first, last) in zip(features, projections, STRETCHES, strict=True)
    ]


def plain_total(learners, labels, targets):
    total, parts = torch.zeros(()), []
    for learner in learners:
        rows = slice(learner.first, learner.first + len(learner.features))
        logits = learner.projection(learner.features)
        hard = F.cross_entropy(logits, labels[rows], ignore_index=-100, reduction="none")
        teacher = targets.projection(targets.features[rows])
        soft = losses.soft_divergence(logits, teacher, targets.temperature)
        total = total + (hard * learner.hard_weights).sum() + (soft * learner.soft_weights).sum()
        parts.append((hard.detach(), soft.detach()))
    return total, parts


@pytest.mark.parametrize("sizes", [(0.3, 0.7), (1.0, 0.0), (0.0, 2.0)])
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_values_and_gradients_equal_the_plain_losses(tensors, labels, targets, sizes, rows, monkeypatch):
    monkeypatch.setattr(vocabulary_losses, "CHUNK_BYTES", rows * PIECES * 4)
    mine, theirs = ([t.clone().requires_grad_() for t in tensors] for _ in range(2))
    found = vocabulary_losses.vocabulary_losses(learners_of(mine, sizes), labels, targets)
    expected, parts = plain_total(learners_of(theirs, sizes), labels, targets)
    torch.testing.assert_close(found.total, expected)
    for (hard, soft), found_hard, found_soft in zip(parts, found.hard, found.soft, strict=True):
        torch.testing.assert_close(found_hard, hard if sizes[0] else torch.zeros_like(hard))
        torch.testing.assert_close(found_soft, soft if sizes[1] else torch.zeros_like(soft), rtol=1e-4, atol=1e-5)
    (found.total * 3).backward()
    (expected * 3).backward()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_the_teachers_logits_are_computed_once_however_many_students_learn(tensors, labels, targets, monkeypatch):
    rows = []
    monkeypatch.setattr(
        Projection, "__call__", lambda self, x: rows.append((id(self), len(x))) or F.linear(x, self.weight, self.bias)
    )
    vocabulary_losses.vocabulary_losses(learners_of(tensors, (1.0, 1.0)), labels, targets)
    assert sum(count for who, count in rows if who == id(targets.projection)) == ROWS


def test_cross_entropy_differs_from_the_divergence_by_the_teachers_entropy(tensors, labels, targets):
    crossed = SoftTargets(targets.features, targets.projection, 1.0, cross_entropy=True)
    plain = SoftTargets(targets.features, targets.projection, 1.0)
    probabilities = targets.projection(targets.features).softmax(dim=-1)
    entropy = -(probabilities * probabilities.log()).sum(dim=-1)
    a, b = (
        vocabulary_losses.vocabulary_losses(learners_of(tensors, (0.0, 1.0)), labels, t).soft[1]
        for t in (crossed, plain)
    )
    torch.testing.assert_close(a - b, entropy[6:11])


@pytest.mark.parametrize("divergence", ["reverse", "js"])
def test_other_divergences_equal_their_definition_and_its_gradients(tensors, labels, targets, divergence, monkeypatch):
    monkeypatch.setattr(vocabulary_losses, "CHUNK_BYTES", 4 * PIECES * 4)
    mine, theirs = ([t.clone().requires_grad_() for t in tensors] for _ in range(2))
    targets = replace(targets, divergence=divergence)
    found = vocabulary_losses.vocabulary_losses(learners_of(mine, (0.3, 0.7)), labels, targets)
    total = torch.zeros(())
    for number, learner in enumerate(learners_of(theirs, (0.3, 0.7))):
        rows = slice(learner.first, learner.first + len(learner.features))
        logits = learner.projection(learner.features)
        hard = F.cross_entropy(logits, labels[rows], ignore_index=-100, reduction="none")
        q, p = (
            torch.distributions.Categorical(logits=z / TEMPERATURE)
            for z in (logits, targets.projection(targets.features[rows]))
        )
        middle = torch.distributions.Categorical(probs=(p.probs + q.probs) / 2)
        kl = torch.distributions.kl_divergence
        value = kl(q, p) if divergence == "reverse" else (kl(p, middle) + kl(q, middle)) / 2
        soft = TEMPERATURE**2 * value
        torch.testing.assert_close(found.soft[number], soft.detach(), rtol=1e-4, atol=1e-5)
        total = total + (hard * learner.hard_weights).sum() + (soft * learner.soft_weights).sum()
    torch.testing.assert_close(found.total, total, rtol=1e-4, atol=1e-5)
    found.total.backward()
    total.backward()
    for own, expected in zip(mine, theirs, strict=True):
        torch.testing.assert_close(own.grad, expected.grad, rtol=1e-4, atol=1e-5)


def test_a_frozen_projection_gets_no_gradient(tensors, labels, targets):
    features = [t.clone().requires_grad_() for t in tensors[:3]]
    found = vocabulary_losses.vocabulary_losses(learners_of([*features, *tensors[3:]], (1.0, 1.0)), labels, targets)
    found.total.backward()
    assert all(x.grad is not None for x in features)
    assert all(t.grad is None for t in tensors[3:])


def test_pieces_of_a_projection_are_their_logits(tensors):
    kept = torch.tensor([3, 0, 20])
    whole = Projection(tensors[3], tensors[4])
    torch.testing.assert_close(whole.pieces(kept)(tensors[0]), whole(tensors[0])[:, kept])


def test_without_any_row_the_loss_is_zero(tensors, targets):
    nothing = SoftTargets(targets.features[:0], targets.projection, TEMPERATURE)
    learner = Learner(tensors[0][:0], Projection(tensors[3], None), 0, torch.zeros(0), torch.zeros(0))
    assert float(vocabulary_losses.vocabulary_losses([learner], torch.zeros(0, dtype=torch.long), nothing).total) == 0
