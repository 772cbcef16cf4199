"""Scores during training: perplexity on held-out lines, retrieval of translations; the teacher's for comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from residuum.distillation.networks import LanguageModel
from residuum.distillation.steps import Student
from residuum.distillation.teaching import TeacherGroup
from residuum.distillation.texts import IGNORED, LineEncoder, NumberedLine
from residuum.maths.losses import mean_pool
from residuum.maths.retrieval import cosine_ranks
from residuum.maths.vocabulary_losses import Learner, vocabulary_losses

LINES_AT_ONCE = 16
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Monitor:
    """Scores of all students; the masks of held-out lines are always the same."""

    students: Sequence[Student]
    encoders: Mapping[str, LineEncoder]
    held_out: Mapping[str, Sequence[str]]
    pairs: Mapping[str, Sequence[tuple[str, str]]]
    device: torch.device
    groups: Mapping[str, TeacherGroup] = field(default_factory=dict)  # of languages with other teachers

    def scores(self, teacher: LanguageModel | None = None) -> dict[str, float]:
        """perplexity student/language, and retrieval a-b and b-a: the fraction of translations that are nearest.

        With a teacher the teachers' scores on the same data, of this one where a language has no other; beside a
        trimmed student they too choose among the student's tokens.
        """
        scores: dict[str, float] = {}
        for student in self.students:
            for language in student.languages:
                if student.model.head is not None and self.held_out.get(language):
                    scores[f"perplexity {student.name}/{language}"] = self._perplexity(student, language, teacher)
        for pair, translations in self.pairs.items():
            a, b = pair.split("-")
            sides = []
            for side, language in enumerate((a, b)):
                readers = [next(s for s in self.students if language in s.languages)]
                if teacher is not None:
                    readers = self._teachers(language, teacher)
                texts = [translation[side] for translation in translations]
                vectors = [torch.cat([self._vectors(r, language, block) for block in _blocks(texts)]) for r in readers]
                sides.append(torch.stack(vectors).mean(dim=0))
            forward, backward = (float(ranks.hits.mean()) for ranks in cosine_ranks(sides[0], sides[1]))
            scores |= {f"retrieval {a}-{b}": forward, f"retrieval {b}-{a}": backward}
        return scores

    def __call__(self, step: int = 0) -> dict[str, float]:
        """The scores of the students, and their mean retrieval, by which a run may stop early."""
        scores = self.scores()
        retrieval = [value for name, value in scores.items() if name.startswith("retrieval")]
        return {**scores, "retrieval mean": sum(retrieval) / len(retrieval)} if retrieval else scores

    def _perplexity(self, student: Student, language: str, teacher: LanguageModel | None) -> float:
        """exp of the mean cross-entropy of masked tokens (of next tokens, for a decoder) on held-out lines.

        A teacher is scored over the student's tokens.
        """
        readers: Sequence[LanguageModel] = [student.model] if teacher is None else self._teachers(language, teacher)
        projection = student.taught_by(language) if teacher is not None else None
        if projection is None and (head := readers[0].head) is not None:
            projection = head.projection
        assert projection is not None
        total, count = 0.0, 0
        encode = self.encoders[language]
        whole = [NumberedLine(number, 0, text) for number, text in enumerate(self.held_out[language])]
        for block in _blocks(encode.windows(whole)):
            batch = self._moved(encode(block))
            places = (batch["labels"] != IGNORED).flatten().nonzero().squeeze(1)
            features = []
            for reader in readers:
                assert reader.head is not None
                states = _states(student if teacher is None else reader, batch)[-1].flatten(0, 1)[places]
                features.append(reader.head.transform(states))
            labels = student.ids(batch["labels"].flatten()[places])
            ones = torch.ones(len(places), device=labels.device)
            learner = Learner(torch.cat(features, dim=-1), projection, 0, ones, torch.zeros_like(ones))
            losses = vocabulary_losses([learner], labels, None).hard[0]
            total, count = total + float(losses.cpu().double().sum()), count + len(losses)
        return math.exp(min(total / max(count, 1), 700.0))

    def _teachers(self, language: str, teacher: LanguageModel) -> list[LanguageModel]:
        """The teachers of a language: its own, or the one for all."""
        group = self.groups.get(language)
        return [teacher] if group is None else [member.model for member in group.members]

    def _vectors(self, model: Student | LanguageModel, language: str, texts: Sequence[str]) -> Tensor:
        """The mean state of each sentence, averaged over the blocks as `evaluate retrieval --layers all` does."""
        batch = self._moved(self.encoders[language].plain(texts))
        states = _states(model, batch)
        mask = batch["attention_mask"].bool()
        return torch.stack([mean_pool(layer, mask) for layer in states[1:]]).mean(dim=0).float().cpu()

    def _moved(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self.device) for name, tensor in batch.items()}


def _states(model: Student | LanguageModel, batch: Mapping[str, Tensor]) -> Sequence[Tensor]:
    if isinstance(model, LanguageModel):
        return model.run(batch["input_ids"], batch["attention_mask"]).hidden
    return model.run(batch, attention=False).hidden


def _blocks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + LINES_AT_ONCE] for start in range(0, len(items), LINES_AT_ONCE))
