"""Distillation losses, one value per token; `token_mean` averages them over the tokens that are not padding.

Axes: sentence × token × neuron for states, sentence × head × token × token for attention. Teacher tensors carry no
gradient. Every function ignores what stands at padded positions once `token_mean` has left them out, so any amount of
padding gives the same loss. Numbered equations are those of the thesis that introduced MonoShot and MonoAlignment.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from residuum.errors import DataError, SettingError

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
    probabilities = (_log_attention(scores, visible).exp() for scores in (student, teacher))
    kept = [torch.where(p <= SMALL_PROBABILITY, 0, p) for p in probabilities]
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


LayerMap = dict[int, int]
MAPS = ("uniform", "top", "bottom", "last")


def layer_map(choice: str | Sequence[int], student: int, teacher: int) -> LayerMap:
    """{m: g(m)} for a student of M = `student` and a teacher of N = `teacher` layers.

    uniform g(m) = m·N/M, rounded to the nearest where M does not divide N; top g(m) = m + N − M; bottom g(m) = m;
    last only g(M) = N; a sequence gives g(1), g(2), … itself.
    """
    if not 1 <= student <= teacher:
        raise SettingError(f"A student of {student} layers cannot learn from a teacher of {teacher}; give 1–{teacher}.")
    if not isinstance(choice, str):
        return _listed(choice, student, teacher)
    layers = range(1, student + 1)
    if choice == "uniform":
        return {m: (2 * m * teacher + student) // (2 * student) for m in layers}
    if choice == "top":
        return {m: m + teacher - student for m in layers}
    if choice == "bottom":
        return {m: m for m in layers}
    if choice == "last":
        return {student: teacher}
    raise SettingError(f"Layer map {choice!r} is not known; choose {', '.join(MAPS)}, measured or a list of layers.")


def published_uniform(student: int, teacher: int) -> LayerMap:
    """The published code's uniform map (1, 3, 5, 7, 9, 12 for 6 of 12): the lowest of each stretch, but the top one."""
    step = teacher / student
    return {m: teacher if m == student else int((m - 1) * step) + 1 for m in range(1, student + 1)}


def measured_map(similarity: Float[np.ndarray, "student teacher"]) -> LayerMap:
    """The order-preserving map of highest total similarity: Σ_m s[m, g(m)] is largest with g strictly increasing.

    Dynamic programming over pairs of layers; ties go to the lower teacher layer.
    """
    students, teachers = similarity.shape
    if students > teachers:
        raise SettingError(f"{students} student layers cannot be mapped in order to {teachers} teacher layers.")
    best = np.full((students + 1, teachers + 1), -np.inf)
    best[0] = 0
    for m in range(1, students + 1):
        for n in range(m, teachers + 1):
            best[m, n] = max(best[m, n - 1], best[m - 1, n - 1] + similarity[m - 1, n - 1])
    chosen, n = {}, teachers
    for m in range(students, 0, -1):
        while best[m, n] == best[m, n - 1]:
            n -= 1
        chosen[m] = n
        n -= 1
    return dict(sorted(chosen.items()))


def drawn(mapping: Mapping[int, int], student: int, teacher: int) -> str:
    """The map as a picture of text: teacher layers in a row, under each the student layer that learns from it."""
    learners = {n: "+".join(str(m) for m, of in mapping.items() if of == n) or "·" for n in range(1, teacher + 1)}
    width = max(len(str(teacher)), *map(len, learners.values())) + 1
    above = "".join(f"{n:>{width}}" for n in learners)
    below = "".join(f"{who:>{width}}" for who in learners.values())
    unmapped = [str(m) for m in range(1, student + 1) if m not in mapping]
    note = f"  (student layers {', '.join(unmapped)} learn from no layer)" if unmapped else ""
    return f"teacher {above}\nstudent {below}{note}"


def _listed(choice: Sequence[int], student: int, teacher: int) -> LayerMap:
    if len(choice) != student:
        raise SettingError(f"The layer map {list(choice)} has {len(choice)} entries; the student has {student} layers.")
    outside = [n for n in choice if not 1 <= n <= teacher]
    if outside:
        raise SettingError(f"The layer map names teacher layer {outside[0]}; the teacher has layers 1–{teacher}.")
    return dict(enumerate(choice, 1))
