"""What it takes to learn a task, by a few real steps and a few answers on a sample of its examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from residuum.corpus import Corpus
from residuum.costs import Step, spread, timed
from residuum.training import process_count
from residuum.training.costs import rehearse, training_step
from residuum.training.encoding import Collator, Part
from residuum.training.learning import (
    BATCH,
    LearningSettings,
    Lesson,
    Logits,
    learning_losses,
    read_part,
    training_batches,
)
from residuum.training.processes import evaluating

LEARNT = 512
"""Examples from which the batches of timed steps are drawn, unless a few batches need more."""
SCORED = 4 * BATCH
"""Examples that are answered to time the answers."""


@dataclass(frozen=True)
class Sizes:
    """How many examples the whole training and development parts have, of which a lesson has a sample."""

    train: int
    dev: int


def sampled_training(corpus: Corpus, batch_size: int) -> Corpus:
    """Sentences from all over a training part, enough to draw batches from."""
    return corpus.select(spread(len(corpus), max(LEARNT, 4 * batch_size)))


def sampled_answers(corpus: Corpus) -> Corpus:
    """Sentences from all over a part, enough to time answers."""
    return corpus.select(spread(len(corpus), SCORED))


def learning_step(
    name: str,
    modules: Mapping[str, nn.Module],
    readers: Sequence[Logits],
    lesson: Lesson,
    settings: LearningSettings,
    sizes: Sizes,
    *,
    scored: Logits | None = None,
    seed: int = 0,
    device: str = "auto",
    **teaching: Any,
) -> Step:
    """What `learn` would take with the whole parts, by a lesson of samples of them; the modules move.

    `teaching` are `extra` and `task_weight`, as `learn` takes them.
    """
    batches = training_batches(lesson, settings, seed)
    per_epoch = sizes.train / settings.batch_size
    plan = settings.for_training(per_epoch, lesson.problem.metrics[0], seed, process_count())
    losses = learning_losses(
        readers, lesson.problem.kind, teaching.get("extra"), float(teaching.get("task_weight", 1.0))
    )
    rehearsal = rehearse(modules, batches, losses, plan, device=device)
    place = next(next(iter(modules.values())).parameters()).device
    with evaluating(modules.values()):
        per_example = answering_seconds(scored or readers[0], lesson.dev, lesson.collate_dev, place)
    return training_step(name, rehearsal, plan, per_epoch, evaluation=per_example * sizes.dev)


def answering_seconds(reader: Logits, part: Part, collate: Collator, device: torch.device) -> float:
    """Seconds of one answer, by all of a (small) part; the caller sets eval mode."""
    return timed(lambda: read_part(reader, part, collate, device)) / max(1, len(part))
