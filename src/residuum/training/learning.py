"""`learn`: train any modules on a task's examples through the training loop, selecting by the development score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from residuum.training.batches import ShuffledBatches
from residuum.training.encoding import IGNORED, Batch, Collator, EncodedSplit, Example, Problem, length_sorted
from residuum.training.loop import StepLosses, TrainingResult, train
from residuum.training.optimisation import ParameterGroup
from residuum.training.processes import process_count
from residuum.training.settings import LearningSettings

Logits = Callable[[Batch], Tensor]
ExtraLosses = Callable[[Batch, list[Tensor]], Mapping[str, Tensor]]  # further losses by name

READ_TOGETHER = 32  # examples per batch outside of training


@dataclass(frozen=True, eq=False)
class TrainingData:
    """A problem, the training and development splits, and how each of them is batched."""

    problem: Problem
    train: EncodedSplit
    dev: EncodedSplit
    collate_train: Collator
    collate_dev: Collator


def learn(
    modules: Mapping[str, nn.Module],
    readers: Sequence[Logits],
    data: TrainingData,
    settings: LearningSettings,
    out: str | Path,
    *,
    scored: Logits | None = None,
    parameters: Sequence[ParameterGroup] | None = None,
    extra: ExtraLosses | None = None,
    task_weight: float = 1.0,
    after_step: Callable[[int], None] | None = None,
    config: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    fresh: bool = False,
    progress: bool = True,
) -> TrainingResult:
    """Train modules on a task; they end with their last weights, and the best weights are in the best checkpoint.

    Each of `readers` gives the logits of a batch, and the loss is the mean over them (one network: itself; two that
    share adapters: both). `parameters` are updated (default: all that take gradients); `extra` adds named losses,
    computed from the batch and the logits, to `task_weight` times the task's loss. `scored`, by default the first
    reader, answers the development split.
    """
    batches = training_batches(data, settings, seed)
    loop_settings = settings.for_training(batches.per_epoch, data.problem.metrics[0], seed, process_count())
    first = next(next(iter(modules.values())).parameters())

    def evaluate(_: int) -> dict[str, float]:
        return score_split(scored or readers[0], data.problem, data.dev, data.collate_dev, first.device)

    return train(
        modules,
        batches,
        learning_losses(readers, data.problem.kind, extra, task_weight),
        loop_settings,
        out,
        parameters=parameters,
        evaluate=evaluate,
        after_step=after_step,
        config={**(config or {}), "by_length": settings.by_length},
        device=device,
        fresh=fresh,
        progress=progress,
    )


def training_batches(data: TrainingData, settings: LearningSettings, seed: int) -> ShuffledBatches[Example]:
    """The batches of the training split, shuffled by the seed."""
    examples = data.train.examples
    lengths = [example.length for example in examples] if settings.by_length else None
    return ShuffledBatches(examples, settings.batch_size, seed=seed, lengths=lengths, collate=data.collate_train)


def learning_losses(
    readers: Sequence[Logits], kind: str, extra: ExtraLosses | None, task_weight: float
) -> Callable[[Batch], StepLosses]:
    """The losses of a batch, as the training loop takes them; a batch of tagged sentences is weighted by its words."""

    def losses(batch: Batch) -> StepLosses:
        logits = [reader(batch) for reader in readers]
        task = torch.stack([task_loss(kind, output, batch["labels"]) for output in logits]).mean()
        terms = {} if extra is None else {"task": task_weight * task, **extra(batch, logits)}
        total = torch.stack(list(terms.values())).sum() if terms else task
        tokens = int(batch["inputs"]["attention_mask"].sum())
        shown = {name: term.detach() for name, term in terms.items()}
        weight = float((batch["labels"] != IGNORED).sum()) if kind == "tagging" else 1.0
        return StepLosses(total, shown, tokens, weight)

    return losses


def task_loss(kind: str, logits: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error for regression, else the mean cross-entropy of examples or of labelled tokens."""
    if kind == "regression":
        return functional.mse_loss(logits[:, 0].float(), labels)
    flat = logits.reshape(-1, logits.shape[-1]).float()
    return functional.cross_entropy(flat, labels.reshape(-1), ignore_index=IGNORED)


def score_split(
    logits: Logits, problem: Problem, split: EncodedSplit, collate: Collator, device: torch.device
) -> dict[str, float]:
    """All scores of a network on a split, in tagging of its labelled words; the caller sets eval mode.

    A word without any sub-word is answered with `O`, or with no tag at all if `O` is not a class.
    """
    from accelerate.utils import send_to_device

    with torch.inference_mode():
        read = [
            (examples, logits(cast(Batch, send_to_device(collate(examples), device))).float().cpu())
            for examples in length_sorted(split.examples, READ_TOGETHER)
        ]
    answers: dict[Any, Any] = {}
    if problem.kind == "tagging":
        for examples, output in read:
            places = output.argmax(-1).tolist()
            for row, example in enumerate(examples):
                answers |= {(s, word): problem.classes[places[row][token]] for s, word, token in example.words}
        missing = "O" if "O" in problem.classes else ""
        labelled = [[w for w, label in enumerate(row) if label is not None] for row in split.truth]
        predicted = [[answers.get((s, w), missing) for w in words] for s, words in enumerate(labelled)]
        return problem.scores(predicted, [[split.truth[s][w] for w in words] for s, words in enumerate(labelled)])
    for examples, output in read:
        values = output[:, 0].tolist() if problem.kind == "regression" else output.argmax(-1).tolist()
        answers |= dict(zip((example.first for example in examples), values, strict=True))
    ordered = [answers[example.first] for example in split.examples]
    if problem.kind != "regression":
        ordered = [problem.classes[place] for place in ordered]
    return problem.scores(ordered, split.truth)
