"""What a training will take, by a few of its steps: the real network on real batches, moved by the real optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from residuum.costs import Step
from residuum.training.batches import Batches
from residuum.training.loop import Losses, first_steps
from residuum.training.optimisation import ParameterGroup
from residuum.training.processes import TrainingSettings, process_count

SECONDS = 3.0
"""How long the steps that are timed may take together, unless there are too few of them then."""
FEWEST, MOST = 3, 40
"""Steps that are timed; one before them fills caches and is not."""
MOMENTS = 2
"""Numbers that AdamW keeps of each one that learns."""


@dataclass(frozen=True)
class Rehearsal:
    """The first steps of a training: the seconds of one, what they held, and what a checkpoint writes."""

    seconds: float
    memory: int
    checkpoint: int


def rehearse(
    modules: Mapping[str, nn.Module],
    batches: Batches,
    losses: Losses,
    settings: TrainingSettings,
    *,
    parameters: Sequence[ParameterGroup] | None = None,
    device: str = "auto",
    beside: int = 0,
) -> Rehearsal:
    """Take a few steps and keep nothing but their cost; the modules are no longer what they were.

    Memory is that of weights, gradients, optimiser and what the way back needs of a batch, and `beside` it the bytes
    of what is not trained and no part of the modules, such as a teacher.
    """
    weights = list({id(p): p for module in modules.values() for p in module.parameters()}.values())
    steps = first_steps(modules, batches, losses, settings, parameters=parameters, device=device)
    with closing(steps):
        with kept_for_the_way_back(weights) as kept:
            first = next(steps)
        times = _timed(steps) or [first]
    learning = sum(_bytes(p) for p in weights if p.requires_grad)
    held = sum(map(_bytes, weights)) + (1 + MOMENTS) * learning
    saved = sum(map(_bytes, weights)) + MOMENTS * learning
    return Rehearsal(math.fsum(times) / len(times), held + kept() + beside, saved)


def training_step(
    name: str, rehearsal: Rehearsal, settings: TrainingSettings, batches_per_epoch: float | None, evaluation: float = 0
) -> Step:
    """All steps of a training, and its evaluations of so many seconds each; its last and best checkpoints on disk."""
    total = settings.total_steps(batches_per_epoch, process_count())
    evaluations = 0 if settings.evaluate_every is None else math.ceil(total / settings.evaluate_every)
    checkpoints = 1 if settings.best_score is None else 2
    return Step(
        name,
        total * rehearsal.seconds + evaluations * evaluation,
        memory=rehearsal.memory,
        disk=checkpoints * rehearsal.checkpoint,
    )


@contextmanager
def kept_for_the_way_back(weights: Sequence[nn.Parameter]) -> Iterator[Callable[[], int]]:
    """Count the bytes that autograd keeps of a forward pass, each storage once and weights not among them."""
    known = {p.untyped_storage().data_ptr() for p in weights}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield lambda: sum(kept.values())


def _timed(steps: Iterator[float]) -> list[float]:
    """The seconds of steps until enough are known."""
    times: list[float] = []
    for seconds in islice(steps, MOST):
        times.append(seconds)
        if len(times) >= FEWEST and math.fsum(times) >= SECONDS:
            break
    return times


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
