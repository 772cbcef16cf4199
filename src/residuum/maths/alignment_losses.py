"""Losses that pull students of different languages into one space: contrastive and adversarial.

Both were options of the thesis' code that its results do not use. Vectors are sentence × neuron, one per sentence.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from residuum.errors import DataError
from residuum.maths.losses import Mask, States, unit_vectors

Vectors = Float[Tensor, "sentence neuron"]


def mean_pool(states: States, mask: Mask) -> Vectors:
    """The mean state of each sentence's tokens, padding left out."""
    weights = mask.to(states.dtype)[..., None]
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def info_nce(a: Vectors, b: Vectors, temperature: float) -> Float[Tensor, ""]:
    """Mean over both directions of −log σ(cos(a_i, b_·)/τ)[i]: row i of `a` and of `b` are translations."""
    if len(a) != len(b) or len(a) < 2:
        raise DataError(f"Contrast needs as many vectors on both sides and at least 2; found {len(a)} and {len(b)}.")
    cosines = unit_vectors(a) @ unit_vectors(b).T / temperature
    truth = torch.arange(len(a), device=a.device)
    return (F.cross_entropy(cosines, truth) + F.cross_entropy(cosines.T, truth)) / 2


def mixup_contrast(anchors: Vectors, positives: Vectors, temperature: float, hardness: float) -> Float[Tensor, ""]:
    """InfoNCE with negatives drawn towards their anchor (after Wei et al. 2021, where no translations are given).

    Anchor i is a student's sentence, positive i the teacher's vector of it. The teacher's vector k of another sentence
    becomes q + λ(k − q) with λ = (d⁺/d⁻)^hardness where it is farther away (d⁻) than the positive (d⁺), else stays.
    """
    if len(anchors) < 2:
        raise DataError(f"Contrast needs at least 2 sentences in a batch; found {len(anchors)}.")
    q, k = unit_vectors(anchors), unit_vectors(positives)
    own = ~torch.eye(len(q), dtype=torch.bool, device=q.device)
    towards = k[None, :] - q[:, None]
    distance = towards.detach().norm(dim=-1)
    nearest = distance.diagonal()[:, None]
    pull = torch.where(own & (distance > nearest), (nearest / distance.clamp(min=1e-12)) ** hardness, 1)
    mixed = F.normalize(q[:, None] + pull[..., None] * towards, dim=-1)
    cosines = torch.einsum("an,abn->ab", q, mixed) / temperature
    return F.cross_entropy(cosines, torch.arange(len(q), device=q.device))


def reverse_gradient(x: Tensor) -> Tensor:
    """The identity, whose gradient has the opposite sign: what helps the discriminator hurts what feeds it."""
    reversed_: Any = _Reversed.apply(x)
    return reversed_


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return -gradient
