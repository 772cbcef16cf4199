"""Distillation losses, one value per token; `token_mean` averages them over the tokens that are not padding.

Axes: sentence × token × neuron for states, sentence × head × token × token for attention. Teacher tensors carry no
gradient. Every function ignores what stands at padded positions once `token_mean` has left them out, so any amount of
padding gives the same loss. Numbered equations are those of the thesis that introduced MonoShot and MonoAlignment.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from residuum.errors import DataError

States = Float[Tensor, "sentence token neuron"]
Scores = Float[Tensor, "sentence head token key"]
Mask = Bool[Tensor, "sentence token"]
PerToken = Float[Tensor, "sentence token"]

SMALL_PROBABILITY = 0.01  # the published attention loss sets probabilities up to this one to zero


def token_mean(
    values: Float[Tensor, "..."], mask: Bool[Tensor, "..."], count: float | None = None
) -> Float[Tensor, ""]:
    """Σ over the marked tokens of `values`, divided by their number.

    `count` is the divisor where the tokens are only part of a batch (several processes, accumulated steps).
    """
    divisor = float(mask.sum()) if count is None else count
    if divisor == 0:
        raise DataError("A loss has no token to average over; expected at least one that is not padding.")
    return torch.where(mask, values, 0).sum() / divisor


def hidden_mse(student: States, teacher: States) -> PerToken:
    """Mean over neurons of (s − t)² per token (eq. 2.12, after any projection of the student)."""
    return (student - teacher).square().mean(dim=-1)


def hidden_cos(student: States, teacher: States) -> PerToken:
    """1 − cos(s, t) per token (eq. 2.13); in [0, 2], unchanged by the length of either vector."""
    return 1 - (unit_vectors(student) * unit_vectors(teacher)).sum(dim=-1)


def normalized_mse(student: States, teacher: States) -> PerToken:
    """Mean over neurons of (s/‖s‖ − t/‖t‖)² per token: PKD's loss on [CLS] (Sun et al. 2019)."""
    return hidden_mse(unit_vectors(student), unit_vectors(teacher))


def unit_vectors(x: Float[Tensor, "*batch neuron"]) -> Float[Tensor, "*batch neuron"]:
    """x/‖x‖ along the last axis at any length of x; zeros stay zeros.

    By the largest entry first, since the squares of small and large numbers are no float32 numbers; as a constant, it
    changes no gradient.
    """
    largest = x.detach().abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    return F.normalize(x / largest, dim=-1)


def hidden_kl(student: States, teacher: States) -> PerToken:
    """KL(σ(s) ‖ σ(t)) over neurons per token, s after its GELU projection (XtremeDistil, in the thesis' direction)."""
    log_student, log_teacher = student.log_softmax(dim=-1), teacher.log_softmax(dim=-1)
    return (log_student.exp() * (log_student - log_teacher)).sum(dim=-1)


def attention_scores(query: Tensor, key: Tensor, scaling: float) -> Scores:
    """A = Q Kᵀ · scaling (eq. 2.14), from sentence × head × token × dimension."""
    return query @ key.transpose(-1, -2) * scaling


def attention_mse(student: Scores, teacher: Scores, visible: Bool[Tensor, "sentence head token key"]) -> PerToken:
    """Mean over heads and visible keys of (A_s − A_t)² per query token (eq. 2.15); A is before the softmax."""
    squares = torch.where(visible, student - teacher, 0).square()
    keys = visible.sum(dim=-1).clamp(min=1)
    return (squares.sum(dim=-1) / keys).mean(dim=1)


def attention_kl(student: Scores, teacher: Scores, visible: Bool[Tensor, "sentence head token key"]) -> PerToken:
    """Mean over heads of KL(σ(A_t) ‖ σ(A_s)) over visible keys, per query token (SID; MiniLM on the last layer)."""
    log_student, log_teacher = (_log_attention(scores, visible) for scores in (student, teacher))
    divergence = log_teacher.exp() * (log_teacher - log_student)
    return torch.where(visible, divergence, 0).sum(dim=-1).mean(dim=1)


def relation_kl(student: Tensor, teacher: Tensor, visible: Bool[Tensor, "sentence head token key"]) -> PerToken:
    """MiniLM's value relation: KL between σ(V Vᵀ/√d) of teacher and student, mean over heads, per token.

    The dimension of a head may differ, the number of heads may not.
    """
    of_student, of_teacher = (
        attention_scores(values, values, values.shape[-1] ** -0.5) for values in (student, teacher)
    )
    return attention_kl(of_student, of_teacher, visible)


def published_attention_mse(
    student: Scores, teacher: Scores, visible: Bool[Tensor, "sentence head token key"]
) -> PerToken:
    """The published loss: squared differences after the softmax, probabilities ≤ 0.01 set to zero, all keys counted."""
    kept = [_large_probabilities(scores, visible) for scores in (student, teacher)]
    return (kept[0] - kept[1]).square().mean(dim=(1, 3))


def soft_divergence(
    student: Float[Tensor, "token piece"], teacher: Float[Tensor, "token piece"], temperature: float
) -> Float[Tensor, " token"]:
    """T² · KL(σ(z_t/T) ‖ σ(z_s/T)) per token (eq. 2.9)."""
    log_student, log_teacher = ((z / temperature).log_softmax(dim=-1) for z in (student, teacher))
    return temperature**2 * (log_teacher.exp() * (log_teacher - log_student)).sum(dim=-1)


def visible_keys(mask: Mask, n_heads: int, causal: bool) -> Bool[Tensor, "sentence head token key"]:
    """Which keys a query may look at: not padding and, for decoders, not later than itself."""
    tokens = mask.shape[1]
    visible = mask[:, None, None, :].expand(-1, n_heads, tokens, -1)
    return visible & torch.ones(tokens, tokens, dtype=torch.bool, device=mask.device).tril() if causal else visible


def _log_attention(scores: Scores, visible: Bool[Tensor, "sentence head token key"]) -> Scores:
    # A finite floor instead of −∞: a row without any visible key (padding on the left of a decoder) stays a number.
    return scores.masked_fill(~visible, torch.finfo(scores.dtype).min).log_softmax(dim=-1)


def _large_probabilities(scores: Scores, visible: Bool[Tensor, "sentence head token key"]) -> Scores:
    probabilities = _log_attention(scores, visible).exp()
    return torch.where(probabilities <= SMALL_PROBABILITY, 0, probabilities)
