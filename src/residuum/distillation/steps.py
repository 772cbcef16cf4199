"""One step: the teacher once per language, each student of that language, all losses, one sum to differentiate.

A parameter that several students share gets the sum of their gradients and is moved once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.distillation.networks import LanguageModel, States
from residuum.distillation.objective import Counts, Objective, Projections, token_terms
from residuum.distillation.settings import ContrastSettings
from residuum.distillation.teaching import Lesson, Teacher
from residuum.distillation.texts import IGNORED
from residuum.maths.losses import info_nce, mean_pool, mixup_contrast, reverse_gradient
from residuum.maths.vocabulary_losses import Learner, Projection, SoftTargets, vocabulary_losses
from residuum.training import StepLosses

Batch = Mapping[str, Tensor]
PAIRS = "pairs "  # before the name of a pair of languages, among the batches of a step


@dataclass(frozen=True, eq=False)
class Student:
    """A student with what it learns by: languages, projections into the teacher's space, its pieces."""

    name: str
    model: LanguageModel
    languages: tuple[str, ...]
    projections: Projections
    new_ids: Tensor | None = None  # old id → own id, where the vocabulary is trimmed
    teacher_projection: Projection | None = None  # the teacher's decoder, of the student's pieces only

    def ids(self, old: Tensor) -> Tensor:
        """The student's ids of pieces; labels that are ignored stay so."""
        if self.new_ids is None:
            return old
        return torch.where(old == IGNORED, IGNORED, self.new_ids.to(old.device)[old.clamp(min=0)])

    def run(self, batch: Batch, *, attention: bool) -> States:
        """The student's states on a batch of the teacher's ids."""
        return self.model.run(self.ids(batch["input_ids"]), batch["attention_mask"], attention=attention)


@dataclass(frozen=True, eq=False)
class Attempt:
    """A student's run on a batch of a language, beside the teacher's."""

    student: Student
    language: str
    states: States
    lesson: Lesson
    batch: Batch
    positions: Tensor
    counts: Counts

    @property
    def label(self) -> str:
        """How its losses are named: student/language."""
        return f"{self.student.name}/{self.language}"

    def rows(self, name: str) -> Tensor:
        """Labels or soft marks at the positions whose logits are asked for."""
        return self.batch[name].flatten()[self.positions]


@dataclass(frozen=True, eq=False)
class Step:
    """`losses` of the training loop: from the batches of all languages to one sum and every term of it."""

    teacher: Teacher
    students: Sequence[Student]
    objective: Objective
    contrast: ContrastSettings = field(default_factory=ContrastSettings)
    discriminator: nn.Module | None = None

    def __call__(self, batches: Mapping[str, Batch]) -> StepLosses:
        """Batches by language, by language/student where only one student shall learn, and by `pairs a-b`."""
        pairs = {key.removeprefix(PAIRS): batch for key, batch in batches.items() if key.startswith(PAIRS)}
        batches = {key: batch for key, batch in batches.items() if not key.startswith(PAIRS)}
        attempts = list(self._attempts(batches))
        terms = [found for attempt in attempts for found in self._state_terms(attempt)]
        terms += [(f"contrastive {pair}", self._translation_contrast(pair, batch)) for pair, batch in pairs.items()]
        total, logit_terms = self._logit_terms(attempts)
        for name, value in terms:
            total = total + self.objective.weights[name.partition(" ")[0]] * value
        recorded = {name: value.detach() for name, value in [*terms, *logit_terms]}
        tokens = sum(int(batch["attention_mask"].sum()) for batch in batches.values())
        return StepLosses(total, recorded, tokens=tokens)

    def _attempts(self, batches: Mapping[str, Batch]) -> Iterator[Attempt]:
        counts = self._counts(batches)
        for key, batch in batches.items():
            language, _, only = key.partition("/")
            if self.objective.recipe == "published":
                batch = {**batch, "soft": torch.ones_like(batch["soft"])}
            positions = self._positions(batch)
            lesson = self.teacher.teach(batch, positions)
            for student in self.students:
                if language in student.languages and only in ("", student.name):
                    states = student.run(batch, attention=self.objective.needs_attention)
                    yield Attempt(student, language, states, lesson, batch, positions, counts[key])

    def _counts(self, batches: Mapping[str, Batch]) -> dict[str, Counts]:
        """Divisors for each batch: the mean over all processes, which the loop's mean over processes completes."""
        rows = [
            [b["attention_mask"].sum(), len(b["labels"]), (b["labels"] != IGNORED).sum(), b["soft"].sum()]
            for b in batches.values()
        ]
        table = torch.tensor(rows, dtype=torch.float64)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            table = table.to(next(iter(batches.values()))["labels"].device)
            torch.distributed.all_reduce(table)
            table /= torch.distributed.get_world_size()
        return {key: Counts(*row) for key, row in zip(batches, table.clamp(min=1).tolist(), strict=True)}

    def _positions(self, batch: Batch) -> Tensor:
        """Places in the flattened batch whose logits are needed; no other is multiplied with the vocabulary."""
        wanted = torch.zeros_like(batch["soft"])
        if self.objective.uses("mlm"):
            wanted |= batch["labels"] != IGNORED
        if self.objective.uses("soft", "softmax_regression"):
            wanted |= batch["soft"]
        return wanted.flatten().nonzero().squeeze(1)

    def _state_terms(self, attempt: Attempt) -> Iterator[tuple[str, Tensor]]:
        mask = attempt.batch["attention_mask"].bool()
        knowledge, student = attempt.lesson.knowledge, attempt.student
        found = token_terms(self.objective, attempt.states, knowledge, mask, student.projections, attempt.counts)
        for term, value in found:
            yield f"{term} {attempt.label}", value
        if self.objective.uses("adversarial", "contrastive"):
            yield from self._alignment_terms(attempt, mean_pool(attempt.states.hidden[-1], mask))

    def _alignment_terms(self, attempt: Attempt, vectors: Tensor) -> Iterator[tuple[str, Tensor]]:
        if self.objective.uses("adversarial"):
            assert self.discriminator is not None
            languages = sorted({language for student in self.students for language in student.languages})
            truth = torch.full((len(vectors),), languages.index(attempt.language), device=vectors.device)
            yield f"adversarial {attempt.label}", F.cross_entropy(self.discriminator(reverse_gradient(vectors)), truth)
        if self.objective.uses("contrastive") and not self.contrast.pairs:
            mapped = attempt.student.projections(attempt.student.model.n_layers, vectors)
            temperature, hardness = self.contrast.temperature, self.contrast.hardness
            yield f"contrastive {attempt.label}", mixup_contrast(mapped, attempt.lesson.vectors, temperature, hardness)

    def _translation_contrast(self, pair: str, batch: Batch) -> Tensor:
        """InfoNCE between the students of two languages on translations of each other."""
        vectors = []
        for side, language in enumerate(pair.split("-")):
            student = next(s for s in self.students if language in s.languages)
            own = {"input_ids": batch[f"input_ids_{side}"], "attention_mask": batch[f"attention_mask_{side}"]}
            vectors.append(mean_pool(student.run(own, attention=False).hidden[-1], own["attention_mask"].bool()))
        return info_nce(vectors[0], vectors[1], self.contrast.temperature)

    def _logit_terms(self, attempts: Sequence[Attempt]) -> tuple[Tensor, list[tuple[str, Tensor]]]:
        """All terms over the vocabulary, weighted and summed; students with the same pieces go together."""
        device = attempts[0].positions.device
        total, found = torch.zeros((), device=device), []
        if self.objective.uses("mlm", "soft"):
            for group in _by_pieces(attempts):
                part, terms = self._vocabulary_terms(group)
                total, found = total + part, found + terms
        if self.objective.uses("softmax_regression"):
            for attempt in attempts:
                part, term = self._softmax_regression(attempt)
                total, found = total + part, [*found, term]
        return total, found

    def _vocabulary_terms(self, group: Sequence[Attempt]) -> tuple[Tensor, list[tuple[str, Tensor]]]:
        firsts, languages = _stretches(group)
        targets = None
        if self.objective.uses("soft"):
            features = torch.cat([attempt.lesson.features for attempt in languages])
            projection = group[0].student.teacher_projection
            assert projection is not None
            targets = SoftTargets(features, projection, self.objective.temperature)
        labels = torch.cat([group[0].student.ids(attempt.rows("labels")) for attempt in languages])
        learners = [self._learner(attempt, firsts[attempt.language]) for attempt in group]
        losses = vocabulary_losses(learners, labels, targets)
        terms = []
        for attempt, hard, soft in zip(group, losses.hard, losses.soft, strict=True):
            if self.objective.uses("mlm"):
                terms.append((f"mlm {attempt.label}", hard.sum() / attempt.counts.predicted))
            if self.objective.uses("soft"):
                terms.append((f"soft {attempt.label}", soft.sum() / self._soft_count(attempt)))
        return losses.total, terms

    def _learner(self, attempt: Attempt, first: int) -> Learner:
        head = attempt.student.model.head
        assert head is not None
        features = head.transform(attempt.states.hidden[-1].flatten(0, 1)[attempt.positions])
        predicted = (attempt.rows("labels") != IGNORED).float()
        soft = attempt.rows("soft").float()
        weights = self.objective.weights
        return Learner(
            features,
            head.projection,
            first,
            predicted * (weights.get("mlm", 0.0) / attempt.counts.predicted),
            soft * (weights.get("soft", 0.0) / self._soft_count(attempt)),
        )

    def _soft_count(self, attempt: Attempt) -> float:
        return attempt.counts.sentences if self.objective.recipe == "published" else attempt.counts.soft

    def _softmax_regression(self, attempt: Attempt) -> tuple[Tensor, tuple[str, Tensor]]:
        """−Σ σ(z_t) log σ(z_s) where both go through the teacher's head, which stays as it is."""
        teacher, student = self.teacher.model, attempt.student
        assert teacher.head is not None
        rows = attempt.states.hidden[-1].flatten(0, 1)[attempt.positions]
        features = teacher.head.transform(student.projections(student.model.n_layers, rows))
        projection = student.teacher_projection or teacher.head.projection
        weight = self.objective.weights["softmax_regression"] / attempt.counts.soft
        soft = attempt.rows("soft").float()
        learner = Learner(features, projection, 0, torch.zeros_like(soft), soft * weight)
        targets = SoftTargets(attempt.lesson.features, projection, 1.0, cross_entropy=True)
        labels = torch.full_like(attempt.positions, IGNORED)
        losses = vocabulary_losses([learner], labels, targets)
        value = losses.soft[0].sum() / attempt.counts.soft
        return losses.total, (f"softmax_regression {attempt.label}", value)


def _by_pieces(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Attempts of students with the same pieces: they are compared with the same teacher logits."""
    groups: dict[int, list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault(id(attempt.student.new_ids), []).append(attempt)
    return list(groups.values())


def _stretches(group: Sequence[Attempt]) -> tuple[dict[str, int], list[Attempt]]:
    """Where the rows of each language begin when all are put after each other, and one attempt of each language."""
    firsts: dict[str, int] = {}
    languages: list[Attempt] = []
    place = 0
    for attempt in group:
        if attempt.language not in firsts:
            firsts[attempt.language] = place
            place += len(attempt.positions)
            languages.append(attempt)
    return firsts, languages
