"""The settings of a training run, checked when they are made."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.errors import SettingError
from residuum.models.loading import resolve_device

if TYPE_CHECKING:
    from accelerate import Accelerator

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


@dataclass(frozen=True, eq=False)
class StepLosses:
    """The losses of one batch.

    `total` is what is differentiated (a mean over the batch); `terms` are shown and recorded, and need no gradient.
    `weight` says how much the batch counts beside the others of the same step: 1 for plain averages, the number of
    averaged items (tokens, pairs) where batches of different size shall weigh by it.
    """

    total: Tensor
    terms: Mapping[str, Tensor | float] = field(default_factory=dict)
    tokens: int = 0
    weight: float = 1.0


@dataclass
class Averages:
    """Weighted means of named values since the last row of the history."""

    sums: dict[str, list[float]] = field(default_factory=dict)  # name → [Σ weight·value, Σ weight]

    def add(self, name: str, value: Tensor | float, weight: float = 1.0) -> None:
        """Take a value in."""
        value = float(value.detach()) if isinstance(value, Tensor) else value
        entry = self.sums.setdefault(name, [0.0, 0.0])
        entry[0] += weight * value
        entry[1] += weight

    def means(self) -> dict[str, float]:
        """The mean of each name."""
        return {name: total / weight for name, (total, weight) in self.sums.items() if weight}

    def merged(self, accelerator: Accelerator) -> Averages:
        """The averages over all processes."""
        if accelerator.num_processes == 1:
            return self
        from accelerate.utils import gather_object

        merged = Averages()
        for sums in gather_object([self.sums]):
            for name, (total, weight) in sums.items():
                entry = merged.sums.setdefault(name, [0.0, 0.0])
                entry[0] += total
                entry[1] += weight
        return merged


@dataclass
class Progress:
    """How far a run is: all of a checkpoint that is not a tensor."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[dict[str, int | float]] = field(default_factory=list)  # rows of the history
    scores: list[dict[str, int | float]] = field(default_factory=list)  # rows of the evaluations
    pending: dict[str, list[float]] = field(default_factory=dict)  # averages not yet in a row
    best_step: int | None = None
    best_value: float | None = None

    def is_best(self, value: float, lower_is_better: bool) -> bool:
        """Whether a score beats all before it."""
        if self.best_value is None:
            return value == value
        return value < self.best_value if lower_is_better else value > self.best_value

    def as_json(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(vars(self))


def is_main_process() -> bool:
    """Whether this process writes: the only one, or the first of those that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def wait_for_others(device: str) -> None:
    """Go on when all processes that train together have come here; one alone goes on at once."""
    if process_count() > 1:
        from accelerate.state import PartialState

        PartialState(cpu=resolve_device(device).type == "cpu").wait_for_everyone()


def start_accelerator(settings: TrainingSettings, device: str, out: Path) -> Accelerator:
    """Accelerate for this run: its device, precision and trackers."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    place = resolve_device(device)
    check_abilities(settings.precision, settings.report_to, place)
    # Both states outlive a run; another precision or device of a later one in the same process would be refused.
    AcceleratorState._reset_state(reset_partial_state=PartialState(cpu=place.type == "cpu").num_processes == 1)
    accelerator = Accelerator(
        mixed_precision=PRECISIONS[settings.precision],
        cpu=place.type == "cpu",
        log_with=list(settings.report_to) or None,  # pyright: ignore[reportArgumentType]
        project_dir=out,
        step_scheduler_with_optimizer=False,
    )
    if settings.report_to:
        accelerator.init_trackers("residuum")
    return accelerator


def check_abilities(precision: str, report_to: Sequence[str], place: torch.device) -> None:
    """Whether the device has the precision, and the trackers that are asked for are installed."""
    if precision == "float16" and place.type == "cpu":
        raise SettingError("precision is 'float16', which a CPU cannot train in; choose bfloat16 or float32.")
    if not report_to:
        return
    from accelerate.tracking import get_available_trackers

    available = [str(tracker) for tracker in get_available_trackers()]
    missing = [name for name in report_to if name not in available]
    if missing:
        there = ", ".join(available) or "none is installed"
        raise SettingError(f"report_to names {missing[0]!r}; installed trackers: {there}.")


def summed(accelerator: Accelerator, values: Sequence[float]) -> list[float]:
    """Each value summed over all processes."""
    if accelerator.num_processes == 1:
        return list(values)
    exact = torch.float32 if accelerator.device.type == "mps" else torch.float64
    total = accelerator.reduce(torch.tensor(values, dtype=exact, device=accelerator.device), "sum")
    assert isinstance(total, Tensor)
    return total.tolist()


def seed_torch(seed: int, position: int) -> None:
    """Seed torch's generators by (seed, position): what is drawn does not depend on what was drawn before."""
    torch.manual_seed(int(np.random.SeedSequence((seed, position)).generate_state(1, np.uint64)[0] >> 1))


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Eval mode without gradients; every submodule is back in its own mode after it."""
    modes = {part: part.training for module in modules for part in module.modules()}
    for part in modes:
        part.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes.items():
            part.training = mode


class StopRequest:
    """Ctrl-C between two steps: the first one is remembered, a second one acts at once.

    Only where one process runs, in its main thread; several would stop at different steps.
    """

    def __init__(self, active: bool) -> None:
        self.active = active and threading.current_thread() is threading.main_thread()
        self.requested = False

    def __enter__(self) -> StopRequest:
        if self.active:
            self.before: Any = signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def obey(self) -> None:
        """Interrupt now, as the handler that was there before would have."""
        self._restore()
        signal.raise_signal(signal.SIGINT)
        raise KeyboardInterrupt

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(signal.SIGINT, self.before)

    def _restore(self) -> None:
        if self.active:
            signal.signal(signal.SIGINT, self.before)
