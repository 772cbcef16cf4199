"""Losses over a large vocabulary without its logits in memory: rows are projected in chunks, gradients formed at once.

For N rows (positions of a text) and V pieces the plain way keeps several N × V matrices until the backward pass. Here
each chunk of rows is projected, turned into its loss and its gradient, and forgotten: memory is chunk × V, the
teacher's distribution of a row is computed once however many students learn from it, and students that share a
projection share one gradient of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK_BYTES = 1 << 25  # of one chunk of logits; of larger ones the system takes the memory back after each use

Rows = Float[Tensor, "row neuron"]
PerRow = Float[Tensor, " row"]
Divergence = Literal["forward", "reverse", "js"]


@dataclass(frozen=True, eq=False)
class Projection:
    """From features to logits: z = x Wᵀ + b."""

    weight: Float[Tensor, "piece neuron"]
    bias: Float[Tensor, " piece"] | None

    def __call__(self, features: Rows) -> Float[Tensor, "row piece"]:
        """The logits of some rows."""
        return torch.nn.functional.linear(features, self.weight, self.bias)

    def pieces(self, kept: Int[Tensor, " kept"]) -> "Projection":
        """Only the logits of some pieces."""
        return Projection(self.weight[kept], None if self.bias is None else self.bias[kept])


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """What the teacher says about each row, σ(z/T), and the temperature T at which the student shall say it.

    The loss is T² times a divergence of teacher p and student q at T: KL(p ‖ q) (forward, eq. 2.9 of the thesis),
    KL(q ‖ p) (reverse), or ½ KL(p ‖ m) + ½ KL(q ‖ m) with m = (p + q)/2 (Jensen-Shannon). With `cross_entropy` it is
    −Σ p log q instead of KL(p ‖ q).
    """

    features: Rows
    projection: Projection
    temperature: float
    cross_entropy: bool = False
    divergence: Divergence = "forward"


@dataclass(frozen=True, eq=False)
class Learner:
    """A student's features of the rows first … first + len(features) − 1, and what each row's losses count."""

    features: Rows
    projection: Projection
    first: int
    hard_weights: PerRow
    soft_weights: PerRow


@dataclass(frozen=True, eq=False)
class VocabularyLosses:
    """`total` = Σ hard_weight · hard + Σ soft_weight · soft, with its gradient; the parts per learner and row."""

    total: Float[Tensor, ""]
    hard: list[Tensor]
    soft: list[Tensor]


def vocabulary_losses(
    learners: Sequence[Learner], labels: Int[Tensor, " row"], targets: SoftTargets | None
) -> VocabularyLosses:
    """hard = −log σ(z)[label] (0 where the label is negative); soft = T² · divergence of σ(z_t/T), σ(z/T), by row."""
    job = _Job(learners, labels, targets)
    used = (t for one in learners for t in (one.features, one.projection.weight, one.projection.bias) if t is not None)
    total: Any = _Fused.apply(job, *{id(tensor): tensor for tensor in used}.values())
    return VocabularyLosses(total, job.hard, job.soft)


def chunk_rows(pieces: int) -> int:
    """How many rows of float32 logits fit into a chunk."""
    return max(1, CHUNK_BYTES // (4 * pieces))


class _Job:
    """The rows to go through, and the losses of each learner's rows as they are found."""

    def __init__(self, learners: Sequence[Learner], labels: Tensor, targets: SoftTargets | None) -> None:
        self.learners, self.labels, self.targets = learners, labels, targets
        self.hard = [torch.zeros(len(learner.features), device=learner.features.device) for learner in learners]
        self.soft = [torch.zeros_like(losses) for losses in self.hard]

    def chunks(self) -> list[slice]:
        """Stretches of rows whose logits fit into a chunk."""
        size = chunk_rows(max(len(learner.projection.weight) for learner in self.learners))
        return [slice(start, start + size) for start in range(0, len(self.labels), size)]

    def teacher(self, rows: slice) -> "_TeacherRows | None":
        """What the teacher says about some rows."""
        targets = self.targets
        if targets is None:
            return None
        logits = targets.projection(targets.features[rows]).float().div_(targets.temperature)
        log_shares = logits.log_softmax(dim=-1)
        return _TeacherRows(torch.exp(log_shares, out=logits), log_shares)

    def slope(self, number: int, rows: slice, labels: Tensor, teacher: "_TeacherRows | None") -> Tensor:
        """∂total/∂logits of a learner's rows; their losses are written down on the way."""
        learner = self.learners[number]
        logits = learner.projection(learner.features[rows]).float()
        hard_weights, soft_weights = learner.hard_weights[rows], learner.soft_weights[rows]
        slope = None
        if bool(hard_weights.any()):
            self.hard[number][rows], slope = _hard(logits, labels, hard_weights)
        if teacher is not None and self.targets is not None and bool(soft_weights.any()):
            self.soft[number][rows], soft_slope = _soft(logits, teacher, soft_weights, self.targets)
            slope = soft_slope if slope is None else slope.add_(soft_slope)
        return torch.zeros_like(logits) if slope is None else slope


@dataclass(frozen=True, eq=False)
class _TeacherRows:
    """σ(z_t/T) and its logarithm, of some rows."""

    shares: Float[Tensor, "row piece"]
    log_shares: Float[Tensor, "row piece"]

    def part(self, inside: slice) -> "_TeacherRows":
        return _TeacherRows(self.shares[inside], self.log_shares[inside])


class _Fused(torch.autograd.Function):
    """The weighted sum of all losses; its gradient is formed on the way, since the sum is all that is asked for."""

    @staticmethod
    def forward(ctx: Any, job: _Job, *tensors: Tensor) -> Tensor:
        gradients = [
            torch.zeros_like(t) if needed else None for t, needed in zip(tensors, ctx.needs_input_grad[1:], strict=True)
        ]
        of_tensor = {id(t): g for t, g in zip(tensors, gradients, strict=True)}
        for rows in job.chunks():
            teacher = job.teacher(rows)
            for number, learner in enumerate(job.learners):
                start, stop = max(rows.start, learner.first), min(rows.stop, learner.first + len(learner.features))
                if stop <= start:
                    continue
                in_learner = slice(start - learner.first, stop - learner.first)
                in_chunk = slice(start - rows.start, stop - rows.start)
                part = None if teacher is None else teacher.part(in_chunk)
                slope = job.slope(number, in_learner, job.labels[rows][in_chunk], part)
                _add_gradients(learner, in_learner, slope, of_tensor)
        ctx.gradients = gradients
        exact = torch.float32 if job.labels.device.type == "mps" else torch.float64  # which has no float64
        total = torch.zeros((), dtype=exact, device=job.labels.device)
        for learner, hard, soft in zip(job.learners, job.hard, job.soft, strict=True):
            total += (hard.to(exact) * learner.hard_weights).sum() + (soft.to(exact) * learner.soft_weights).sum()
        return total.float()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        scale = float(upstream[0])
        return (None, *(g if g is None or scale == 1 else g * scale for g in ctx.gradients))


def _hard(logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """−log σ(z)[label], and its slope σ(z) − 1[label] times the weights."""
    losses = logits.new_zeros(len(weights))
    labelled = ((labels >= 0) & (weights != 0)).nonzero().squeeze(1)
    whole = len(labelled) == len(labels)
    log_student = (logits if whole else logits[labelled]).log_softmax(dim=-1)
    place = labels[labelled, None]
    losses[labelled] = -log_student.gather(1, place).squeeze(1)
    slope = log_student.exp_()
    slope.scatter_add_(1, place, slope.new_full(place.shape, -1)).mul_(weights[labelled, None])
    return losses, slope if whole else torch.zeros_like(logits).index_copy_(0, labelled, slope)


def _soft(logits: Tensor, teacher: _TeacherRows, weights: Tensor, targets: SoftTargets) -> tuple[Tensor, Tensor]:
    """T² times the divergence, and its slope times the weights; p, q are σ(z/T) of teacher and student.

        forward  Σ p (log p − log q)                    T · (q − p)
        reverse  K = Σ q (log q − log p)                T · q (log q − log p − K)
        js       ½ Σ p (log p − log m) + ½ K, with K = Σ q (log q − log m)    T/2 · q (log q − log m − K)

    The logits are overwritten.
    """
    temperature = targets.temperature
    log_student = logits.div_(temperature).log_softmax(dim=-1)
    if targets.divergence != "forward":
        student, reference, factor = log_student.exp(), teacher.log_shares, 1.0
        if targets.divergence == "js":
            reference, factor = torch.logaddexp(log_student, teacher.log_shares) - math.log(2), 0.5
        against = log_student - reference
        of_student = torch.linalg.vecdot(student, against)
        losses = temperature**2 * factor * of_student
        if targets.divergence == "js":
            of_teacher = torch.linalg.vecdot(teacher.shares, teacher.log_shares - reference)
            losses += temperature**2 * factor * of_teacher
        slope = student.mul_(against - of_student[:, None]).mul_((weights * temperature * factor)[:, None])
        return torch.where(weights != 0, losses, 0), slope
    against = torch.neg(log_student, out=logits)
    if not targets.cross_entropy:
        against.add_(teacher.log_shares)
    losses = temperature**2 * torch.linalg.vecdot(teacher.shares, against)
    slope = log_student.exp_().sub_(teacher.shares).mul_((weights * temperature)[:, None])
    return torch.where(weights != 0, losses, 0), slope


def _add_gradients(learner: Learner, rows: slice, slope: Tensor, gradients: dict[int, Tensor | None]) -> None:
    weight, bias = learner.projection.weight, learner.projection.bias
    if (of_features := gradients[id(learner.features)]) is not None:
        of_features[rows] = (slope @ weight).to(of_features.dtype)
    if (of_weight := gradients[id(weight)]) is not None:
        of_weight.addmm_(slope.T.to(of_weight.dtype), learner.features[rows].to(of_weight.dtype))
    if bias is not None and (of_bias := gradients[id(bias)]) is not None:
        of_bias += slope.sum(dim=0)
