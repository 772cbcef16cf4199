"""The settings of a training run, checked when they are made."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from residuum.errors import SettingError

SCHEDULES = ("linear", "cosine", "constant")
PRECISIONS = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}  # our names → Accelerate's

# What may change between two starts of the same run, because no weight depends on it.
_WITHOUT_EFFECT = ("checkpoint_every", "report_to")


@dataclass(frozen=True)
class TrainingSettings:
    """How to train; give either `steps` or `epochs`.

    A step takes `accumulation` batches on every process and moves the weights once. The learning rate rises
    linearly over `warmup` (below 1: a share of all steps; from 1: a number of steps) and then follows `schedule`;
    the first step's rate is that of position 0. `clip` bounds the norm of the whole gradient (None: no bound).
    Checkpoints, evaluations and rows of the history come every so many steps, and at the end. With
    `best_score` the checkpoint with the best value of that score of the evaluation is kept beside the last one.
    `report_to` names trackers of Accelerate (tensorboard, trackio, wandb, …); none by default.
    """

    steps: int | None = None
    epochs: float | None = None
    learning_rate: float = 2e-4
    schedule: str = "linear"
    warmup: float = 0.1
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float | None = 1.0
    accumulation: int = 1
    precision: str = "float32"
    seed: int = 0
    checkpoint_every: int = 500
    evaluate_every: int | None = None
    log_every: int = 10
    best_score: str | None = None
    lower_is_better: bool = False
    report_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise SettingError(f"steps is {self.steps} and epochs is {self.epochs}; give exactly one of them.")
        self._check_choices()
        for name in ("steps", "epochs", "accumulation", "checkpoint_every", "evaluate_every", "log_every"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SettingError(f"{name} is {value}; expected a number above 0.")
        for name in ("learning_rate", "warmup", "weight_decay", "epsilon"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SettingError(f"{name} is {value}; expected a finite number from 0.")
        if self.clip is not None and not self.clip > 0:
            raise SettingError(f"clip is {self.clip}; expected a norm above 0, or None for no bound.")

    def total_steps(self, batches_per_epoch: float | None, processes: int) -> int:
        """The number of steps; epochs are counted in batches over all processes."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        if batches_per_epoch is None:
            raise SettingError(f"epochs is {self.epochs}, but the text is a stream of unknown length; give steps.")
        return max(1, math.ceil(self.epochs * batches_per_epoch / (self.accumulation * processes)))

    def identity(self) -> dict[str, Any]:
        """All settings that the weights depend on."""
        return {name: value for name, value in asdict(self).items() if name not in _WITHOUT_EFFECT}

    def _check_choices(self) -> None:
        for name, allowed in (("schedule", SCHEDULES), ("precision", tuple(PRECISIONS))):
            if getattr(self, name) not in allowed:
                raise SettingError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(allowed)}.")
        if self.best_score is not None and self.evaluate_every is None:
            raise SettingError(f"best_score is {self.best_score!r}, but evaluate_every is not given.")
