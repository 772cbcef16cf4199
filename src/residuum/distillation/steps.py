"""One step: the teacher once per language, each student of that language, all losses, one sum to differentiate.

A parameter that several students share gets the sum of their gradients and is moved once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor, nn

from residuum.distillation.networks import LanguageModel, States
from residuum.distillation.objective import Counts, DistillationObjective, Projections, TeacherOutput, token_terms
from residuum.distillation.settings import ContrastSettings
from residuum.distillation.teaching import Teacher, TeacherGroup
from residuum.distillation.texts import IGNORED, PROGRESS
from residuum.maths.losses import info_nce, mean_pool, mixup_contrast, reverse_gradient
from residuum.maths.vocabulary_losses import Learner, Projection, SoftTargets, vocabulary_losses
from residuum.training.loop import StepLosses

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
    language_projections: Mapping[str, Projection] = field(default_factory=dict)  # of languages with other teachers

    def taught_by(self, language: str) -> Projection | None:
        """The decoder of a language's teacher, of the student's pieces only."""
        return self.language_projections.get(language, self.teacher_projection)

    def ids(self, old: Tensor) -> Tensor:
        """The student's ids of pieces; labels that are ignored stay so."""
        if self.new_ids is None:
            return old
        return torch.where(old == IGNORED, IGNORED, self.new_ids.to(old.device)[old.clamp(min=0)])

    def run(self, batch: Batch, *, attention: bool) -> States:
        """The student's states on a batch of the teacher's ids."""
        return self.model.run(self.ids(batch["input_ids"]), batch["attention_mask"], attention=attention)


@dataclass(frozen=True, eq=False)
class StudentPass:
    """A student's forward pass on a batch of a language, beside the teacher's output."""

    student: Student
    language: str
    states: States
    output: TeacherOutput
    batch: Batch
    positions: Tensor
    counts: Counts
    share: float  # of its losses in the sum

    @property
    def label(self) -> str:
        """How its losses are named: student/language."""
        return f"{self.student.name}/{self.language}"

    def rows(self, name: str) -> Tensor:
        """Labels or soft marks at the positions whose logits are asked for."""
        return self.batch[name].flatten()[self.positions]


@dataclass(frozen=True, eq=False)
class DistillationStep:
    """`losses` of the training loop: from the batches of all languages to one sum and every term of it."""

    teacher: Teacher
    students: Sequence[Student]
    objective: DistillationObjective
    contrast: ContrastSettings = field(default_factory=ContrastSettings)
    discriminator: nn.Module | None = None
    translated: bool = False  # whether batches of translations come with those of texts
    first_token: bool = False  # whether the teacher's sentence vector is its first token's state and not their mean
    shares: Mapping[str, float] = field(default_factory=dict)  # of a language's losses in the sum; 1 where not named
    groups: Mapping[str, TeacherGroup] = field(default_factory=dict)  # of languages with other teachers

    def __call__(self, batches: Mapping[str, Any]) -> StepLosses:
        """Batches by language, by language/student where only one student shall learn, and by `pairs a-b`.

        `progress`, where it is given, is the share of the training that is done, by which schedules go.
        """
        if PROGRESS in batches:
            now = replace(self, objective=self.objective.at(batches[PROGRESS]))
            return now({name: batch for name, batch in batches.items() if name != PROGRESS})
        pairs = {key.removeprefix(PAIRS): batch for key, batch in batches.items() if key.startswith(PAIRS)}
        batches = {key: batch for key, batch in batches.items() if not key.startswith(PAIRS)}
        passes = list(self._passes(batches)) if self.objective.reads_text else []
        shared = [(run.share, found) for run in passes for found in self._state_terms(run)]
        shared += [(1.0, term) for pair, batch in pairs.items() for term in self._translation_terms(pair, batch)]
        total, logit_terms = self._logit_terms(passes)
        for share, (name, value) in shared:
            total = total + share * self.objective.weights[name.partition(" ")[0]] * value
        terms = [term for _, term in shared]
        recorded = {name: value.detach() for name, value in [*terms, *logit_terms]}
        tokens = sum(int(batch["attention_mask"].sum()) for batch in batches.values())
        return StepLosses(total, recorded, tokens=tokens)

    def _passes(self, batches: Mapping[str, Batch]) -> Iterator[StudentPass]:
        counts = self._counts(batches)
        for key, batch in batches.items():
            language, _, only = key.partition("/")
            if self.objective.recipe == "published":
                batch = {**batch, "soft": torch.ones_like(batch["soft"])}
            wanted = torch.zeros_like(batch["soft"])  # only these positions are multiplied with the vocabulary
            if self.objective.uses("mlm"):
                wanted |= batch["labels"] != IGNORED
            if self.objective.uses("soft", "softmax_regression"):
                wanted |= batch["soft"]
            positions = wanted.flatten().nonzero().squeeze(1)
            output = self.groups.get(language, self.teacher).teach(batch, positions)
            for student in self.students:
                if language in student.languages and only in ("", student.name):
                    states = student.run(batch, attention=self.objective.needs_attention)
                    share = self.shares.get(language, 1.0)
                    yield StudentPass(student, language, states, output, batch, positions, counts[key], share)

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

    def _state_terms(self, run: StudentPass) -> Iterator[tuple[str, Tensor]]:
        mask = run.batch["attention_mask"].bool()
        student = run.student
        found = token_terms(self.objective, run.states, run.output, mask, student.projections, run.counts)
        for term, value in found:
            yield f"{term} {run.label}", value
        if not self.objective.uses("adversarial", "contrastive"):
            return
        vectors = mean_pool(run.states.hidden[-1], mask)
        if self.objective.uses("adversarial"):
            assert self.discriminator is not None
            languages = sorted({language for student in self.students for language in student.languages})
            truth = torch.full((len(vectors),), languages.index(run.language), device=vectors.device)
            yield f"adversarial {run.label}", F.cross_entropy(self.discriminator(reverse_gradient(vectors)), truth)
        if self.objective.uses("contrastive") and not self.translated:
            mapped = run.student.projections(run.student.model.n_layers, vectors)
            temperature, hardness = self.contrast.temperature, self.contrast.hardness
            yield f"contrastive {run.label}", mixup_contrast(mapped, run.output.vectors, temperature, hardness)

    def _translation_terms(self, pair: str, batch: Batch) -> Iterator[tuple[str, Tensor]]:
        """Between the students of two languages on translations a-b: InfoNCE, and MSE to the teacher's vector of a.

        translation_mse = mean over pairs and neurons of (t(a) − s_a(a))² + (t(a) − s_b(b))² (Reimers and Gurevych 2020)
        """
        sides = [
            {"input_ids": batch[f"input_ids_{side}"], "attention_mask": batch[f"attention_mask_{side}"]}
            for side in (0, 1)
        ]

        def vector(run: States, side: int, first: bool) -> Tensor:
            return run.hidden[-1][:, 0] if first else mean_pool(run.hidden[-1], sides[side]["attention_mask"].bool())

        readers = [next(s for s in self.students if language in s.languages) for language in pair.split("-")]
        runs = [student.run(own, attention=False) for student, own in zip(readers, sides, strict=True)]
        if self.objective.uses("contrastive"):
            vectors = [vector(run, side, False) for side, run in enumerate(runs)]
            yield f"contrastive {pair}", info_nce(vectors[0], vectors[1], self.contrast.temperature)
        if self.objective.uses("translation_mse"):
            with torch.inference_mode():
                group = self.groups.get(pair.split("-")[0], TeacherGroup([self.teacher]))
                runs_of_teachers = [member.model.run(*sides[0].values()) for member in group.members]
                taught = torch.stack([vector(run, 0, self.first_token) for run in runs_of_teachers]).mean(dim=0)
            target = taught.clone()  # what backward passes keep must not be an inference tensor
            mapped = [
                student.projections(student.model.n_layers, vector(run, side, self.first_token))
                for side, (student, run) in enumerate(zip(readers, runs, strict=True))
            ]
            yield f"translation_mse {pair}", torch.stack([(own - target).square().mean() for own in mapped]).sum()

    def _logit_terms(self, passes: Sequence[StudentPass]) -> tuple[Tensor, list[tuple[str, Tensor]]]:
        """All terms over the vocabulary, weighted and summed; students with the same pieces go together."""
        device = next(self.students[0].model.module.parameters()).device
        total, found = torch.zeros((), device=device), []
        if self.objective.uses("mlm", "soft"):
            groups: dict[Any, list[StudentPass]] = {}  # one vocabulary is compared with one set of teacher logits
            for run in passes:
                key = id(run.student.new_ids), id(run.student.taught_by(run.language))
                groups.setdefault(key, []).append(run)
            for group in groups.values():
                part, terms = self._vocabulary_terms(group)
                total, found = total + part, found + terms
        if self.objective.uses("softmax_regression"):
            for run in passes:
                part, term = self._softmax_regression(run)
                total, found = total + part, [*found, term]
        return total, found

    def _vocabulary_terms(self, group: Sequence[StudentPass]) -> tuple[Tensor, list[tuple[str, Tensor]]]:
        firsts: dict[str, int] = {}  # where the rows of each language begin when all are put after each other
        languages: list[StudentPass] = []  # one run of each language
        place = 0
        for run in group:
            if run.language not in firsts:
                firsts[run.language] = place
                place += len(run.positions)
                languages.append(run)
        targets = None
        if self.objective.uses("soft"):
            features = torch.cat([run.output.features for run in languages])
            projection = group[0].student.taught_by(group[0].language)
            assert projection is not None
            targets = SoftTargets(
                features, projection, self.objective.temperature, divergence=self.objective.divergence
            )
        labels = torch.cat([group[0].student.ids(run.rows("labels")) for run in languages])
        learners = [self._learner(run, firsts[run.language]) for run in group]
        losses = vocabulary_losses(learners, labels, targets)
        terms = []
        for run, hard, soft in zip(group, losses.hard, losses.soft, strict=True):
            if self.objective.uses("mlm"):
                terms.append((f"mlm {run.label}", hard.sum() / run.counts.predicted))
            if self.objective.uses("soft"):
                terms.append((f"soft {run.label}", soft.sum() / self._soft_count(run)))
        return losses.total, terms

    def _learner(self, run: StudentPass, first: int) -> Learner:
        head = run.student.model.head
        assert head is not None
        features = head.transform(run.states.hidden[-1].flatten(0, 1)[run.positions])
        predicted = (run.rows("labels") != IGNORED).float()
        soft = run.rows("soft").float()
        weights = self.objective.weights
        return Learner(
            features,
            head.projection,
            first,
            predicted * (run.share * weights.get("mlm", 0.0) / run.counts.predicted),
            soft * (run.share * weights.get("soft", 0.0) / self._soft_count(run)),
        )

    def _soft_count(self, run: StudentPass) -> float:
        return run.counts.sentences if self.objective.recipe == "published" else run.counts.soft

    def _softmax_regression(self, run: StudentPass) -> tuple[Tensor, tuple[str, Tensor]]:
        """−Σ σ(z_t) log σ(z_s) where both go through the teacher's head, which stays as it is."""
        teacher, student = self.teacher.model, run.student
        assert teacher.head is not None
        rows = run.states.hidden[-1].flatten(0, 1)[run.positions]
        features = teacher.head.transform(student.projections(student.model.n_layers, rows))
        projection = student.teacher_projection or teacher.head.projection
        weight = run.share * self.objective.weights["softmax_regression"] / run.counts.soft
        soft = run.rows("soft").float()
        learner = Learner(features, projection, 0, torch.zeros_like(soft), soft * weight)
        targets = SoftTargets(run.output.features, projection, 1.0, cross_entropy=True)
        labels = torch.full_like(run.positions, IGNORED)
        losses = vocabulary_losses([learner], labels, targets)
        value = losses.soft[0].sum() / run.counts.soft
        return losses.total, (f"softmax_regression {run.label}", value)
