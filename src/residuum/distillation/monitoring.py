"""What is measured while students learn: perplexity on held-out lines, retrieval of translations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from residuum.distillation.steps import Student
from residuum.distillation.texts import IGNORED, Encoder, Line
from residuum.maths.losses import mean_pool
from residuum.maths.retrieval import Ranks, cosine_ranks
from residuum.maths.vocabulary_losses import Learner, vocabulary_losses

LINES_AT_ONCE = 16
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Monitor:
    """Scores of all students; the masks of held-out lines are always the same."""

    students: Sequence[Student]
    encoders: Mapping[str, Encoder]
    held_out: Mapping[str, Sequence[str]]
    pairs: Mapping[str, Sequence[tuple[str, str]]]
    device: torch.device

    def __call__(self, step: int = 0) -> dict[str, float]:
        """perplexity student/language, and retrieval a-b and b-a: how many translations are nearest."""
        scores: dict[str, float] = {}
        for student in self.students:
            for language in student.languages:
                if student.model.head is not None and self.held_out.get(language):
                    scores[f"perplexity {student.name}/{language}"] = self.perplexity(student, language)
        for pair, translations in self.pairs.items():
            there, back = (float(ranks.hits.mean()) for ranks in self._ranks(pair, translations))
            a, b = pair.split("-")
            scores |= {f"retrieval {a}-{b}": there, f"retrieval {b}-{a}": back}
        return scores

    def perplexity(self, student: Student, language: str) -> float:
        """exp of the mean cross-entropy of masked pieces (of next pieces, for a decoder) on held-out lines."""
        total, count = 0.0, 0
        lines = [Line(number, 0, text) for number, text in enumerate(self.held_out[language])]
        for block in _blocks(lines):
            batch = self._moved(self.encoders[language](block))
            losses = _predicted_losses(student, batch)
            total, count = total + float(losses.cpu().double().sum()), count + len(losses)
        return math.exp(min(total / max(count, 1), 700.0))

    def _ranks(self, pair: str, translations: Sequence[tuple[str, str]]) -> tuple[Ranks, Ranks]:
        sides = []
        for side, language in enumerate(pair.split("-")):
            student = next(s for s in self.students if language in s.languages)
            texts = [translation[side] for translation in translations]
            sides.append(torch.cat([self._vectors(student, language, block) for block in _blocks(texts)]))
        return cosine_ranks(sides[0], sides[1])

    def _vectors(self, student: Student, language: str, texts: Sequence[str]) -> Tensor:
        """The mean state of each sentence, averaged over the blocks as `evaluate retrieval --layers all` does."""
        batch = self._moved(self.encoders[language].plain(texts))
        states = student.run(batch, attention=False).hidden
        mask = batch["attention_mask"].bool()
        return torch.stack([mean_pool(layer, mask) for layer in states[1:]]).mean(dim=0).float().cpu()

    def _moved(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self.device) for name, tensor in batch.items()}


def _predicted_losses(student: Student, batch: Mapping[str, Tensor]) -> Tensor:
    """Cross-entropy at every position that is predicted."""
    head = student.model.head
    assert head is not None
    places = (batch["labels"] != IGNORED).flatten().nonzero().squeeze(1)
    states = student.run(batch, attention=False).hidden[-1].flatten(0, 1)[places]
    labels = student.ids(batch["labels"].flatten()[places])
    ones = torch.ones(len(places), device=states.device)
    learner = Learner(head.transform(states), head.projection, 0, ones, torch.zeros_like(ones))
    return vocabulary_losses([learner], labels, None).hard[0]


def _blocks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + LINES_AT_ONCE] for start in range(0, len(items), LINES_AT_ONCE))
