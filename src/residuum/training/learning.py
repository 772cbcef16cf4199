"""`learn`: train any modules on a task's examples through the one training loop, choosing by the development score."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from residuum.errors import SettingError
from residuum.training import (
    ParameterGroup,
    ShuffledBatches,
    StepLosses,
    Training,
    TrainingSettings,
    is_main_process,
    process_count,
    train,
)
from residuum.training.encoding import IGNORED, Batch, Collator, Example, Part, length_sorted
from residuum.training.problems import Problem

Extra = Callable[[Batch, list[Tensor]], Mapping[str, Tensor]]  # further losses by name

ESTIMATE_AFTER = 10  # steps after which the time of all others is told


@dataclass(frozen=True)
class LearningSettings:
    """How a task is learnt; the defaults are those of Wu et al. (2020, appendix D) and of transformers.

    `evaluate_every` counts steps; None is once an epoch. `by_length` makes batches of sequences of like length, drawn
    from shuffled stretches, so that little is padding; without it they are drawn from all, as there.
    """

    epochs: float = 3.0
    batch_size: int = 8
    learning_rate: float = 5e-5
    schedule: str = "linear"
    warmup: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = 1.0
    accumulation: int = 1
    precision: str = "float32"
    evaluate_every: int | None = None
    checkpoint_every: int = 500
    by_length: bool = True
    report_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise SettingError(f"batch_size is {self.batch_size}; expected at least 1.")
        self.for_training(1.0, "accuracy", 0)

    def for_training(self, per_epoch: float, best_score: str, seed: int, processes: int = 1) -> TrainingSettings:
        """The settings of the training loop for a set of so many batches, which so many processes share."""
        return TrainingSettings(
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            clip=self.clip,
            accumulation=self.accumulation,
            precision=self.precision,
            seed=seed,
            checkpoint_every=self.checkpoint_every,
            evaluate_every=self.evaluate_every or max(1, math.ceil(per_epoch / (self.accumulation * processes))),
            best_score=best_score,
            lower_is_better=best_score == "mean_squared_error",
            report_to=self.report_to,
        )


@dataclass(frozen=True, eq=False)
class Lesson:
    """What is learnt from and chosen by: a problem, its training and development parts, and how each is batched."""

    problem: Problem
    train: Part
    dev: Part
    collate_train: Collator
    collate_dev: Collator


def learn(
    modules: Mapping[str, nn.Module],
    readers: Sequence[Logits],
    lesson: Lesson,
    settings: LearningSettings,
    out: str | Path,
    *,
    scored: Logits | None = None,
    parameters: Sequence[ParameterGroup] | None = None,
    extra: Extra | None = None,
    task_weight: float = 1.0,
    after_step: Callable[[int], None] | None = None,
    config: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    fresh: bool = False,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
) -> Training:
    """Train modules on a lesson; they end with their last weights, the best are in the checkpoint of the best score.

    Each of `readers` gives the logits of a batch, and the loss is the mean of theirs (one network: itself; two that
    share adapters: both). `parameters` are what learns (default: all that takes gradients); `extra` adds named losses
    made from the batch and the logits to `task_weight` times that of the task. `scored`, by default the first reader,
    answers the development part. `say` is told how long all will take once a few steps are done.
    """
    batches = training_batches(lesson, settings, seed)
    plan = settings.for_training(batches.per_epoch, lesson.problem.metrics[0], seed, process_count())
    first = next(next(iter(modules.values())).parameters())

    def evaluate(_: int) -> dict[str, float]:
        return score_part(scored or readers[0], lesson.problem, lesson.dev, lesson.collate_dev, first.device)

    return train(
        modules,
        batches,
        learning_losses(readers, lesson.problem.kind, extra, task_weight),
        plan,
        out,
        parameters=parameters,
        evaluate=evaluate,
        after_step=_after_step(after_step, _Clock(plan, batches.per_epoch, say) if say and is_main_process() else None),
        config={**(config or {}), "by_length": settings.by_length},
        device=device,
        fresh=fresh,
        progress=progress,
    )


def training_batches(lesson: Lesson, settings: LearningSettings, seed: int) -> ShuffledBatches[Example]:
    """The batches of a lesson, shuffled by the seed."""
    examples = lesson.train.examples
    longest = [max(len(sequence.ids) for sequence in example.sequences) for example in examples]
    lengths = longest if settings.by_length else None
    return ShuffledBatches(examples, settings.batch_size, seed=seed, lengths=lengths, collate=lesson.collate_train)


def task_loss(kind: str, logits: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error of numbers; else the mean cross-entropy of examples, or of the tokens that are asked for."""
    if kind == "regression":
        return functional.mse_loss(logits[:, 0].float(), labels)
    flat = logits.reshape(-1, logits.shape[-1]).float()
    return functional.cross_entropy(flat, labels.reshape(-1), ignore_index=IGNORED)


def learning_losses(
    readers: Sequence[Logits], kind: str, extra: Extra | None, task_weight: float
) -> Callable[[Batch], StepLosses]:
    """What the training loop asks of each batch."""

    def losses(batch: Batch) -> StepLosses:
        logits = [reader(batch) for reader in readers]
        task = torch.stack([task_loss(kind, one, batch["labels"]) for one in logits]).mean()
        terms = {} if extra is None else {"task": task_weight * task, **extra(batch, logits)}
        total = torch.stack(list(terms.values())).sum() if terms else task
        tokens = int(batch["inputs"]["attention_mask"].sum())
        shown = {name: term.detach() for name, term in terms.items()}
        return StepLosses(total, shown, tokens, weight=_weight(kind, batch["labels"]))

    return losses


def _weight(kind: str, labels: Tensor) -> float:
    """Batches of tagged sentences count by their words, where several make up a step."""
    return float((labels != IGNORED).sum()) if kind == "tagging" else 1.0


def _after_step(first: Callable[[int], None] | None, clock: _Clock | None) -> Callable[[int], None]:
    def stepped(step: int) -> None:
        if first is not None:
            first(step)
        if clock is not None:
            clock.tick(step)

    return stepped


class _Clock:
    """Tells after some steps how long all of them will take."""

    def __init__(self, plan: TrainingSettings, per_epoch: float, say: Callable[[str], None]) -> None:
        self.plan, self.per_epoch, self.say = plan, per_epoch, say
        self.first: tuple[int, float] | None = None

    def tick(self, step: int) -> None:
        """A step is done."""
        now = time.perf_counter()
        if self.first is None:  # the first step warms up, and is not counted
            self.first = (step, now)
            return
        if step - self.first[0] != ESTIMATE_AFTER:
            return
        total = self.plan.total_steps(self.per_epoch, process_count())
        left = (now - self.first[1]) / ESTIMATE_AFTER * (total - step)
        self.say(f"About {_duration(left)} for the {total - step:,} steps left, besides evaluations.")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


Logits = Callable[[Batch], Tensor]

BATCH = 32  # examples that are read at once


def score_part(
    logits: Logits, problem: Problem, part: Part, collate: Collator, device: torch.device
) -> dict[str, float]:
    """All scores of a network on a part; the caller sets eval mode."""
    if problem.kind == "tagging":
        return problem.scores(*_tags(logits, problem, part, collate, device))
    answers: dict[int, Any] = {}
    for examples, found in read_part(logits, part, collate, device):
        values = found[:, 0].tolist() if problem.kind == "regression" else found.argmax(-1).tolist()
        answers |= dict(zip((example.first for example in examples), values, strict=True))
    ordered = [answers[example.first] for example in part.examples]
    if problem.kind != "regression":
        ordered = [problem.classes[place] for place in ordered]
    return problem.scores(ordered, part.truth)


def _tags(
    logits: Logits, problem: Problem, part: Part, collate: Collator, device: torch.device
) -> tuple[list[list[str]], list[list[str]]]:
    """The predicted and the true tags of each sentence, of the words that have a true one.

    A word that no sub-word stands for is answered with `O`, or with no tag at all where there is none.
    """
    missing = "O" if "O" in problem.classes else ""
    answers: dict[tuple[int, int], str] = {}
    for examples, found in read_part(logits, part, collate, device):
        places = found.argmax(-1).tolist()
        answers |= {
            (sentence, word): problem.classes[places[row][token]]
            for row, example in enumerate(examples)
            for sentence, word, token in example.words
        }
    labelled = [[w for w, label in enumerate(row) if label is not None] for row in part.truth]
    predicted = [[answers.get((s, w), missing) for w in words] for s, words in enumerate(labelled)]
    return predicted, [[part.truth[s][w] for w in words] for s, words in enumerate(labelled)]


def read_part(
    logits: Logits, part: Part, collate: Collator, device: torch.device
) -> list[tuple[list[Example], Tensor]]:
    """The answers to all examples of a part, batch by batch."""
    from accelerate.utils import send_to_device

    with torch.inference_mode():
        return [
            (examples, logits(cast(Batch, send_to_device(collate(examples), device))).float().cpu())
            for examples in length_sorted(part.examples, BATCH)
        ]
