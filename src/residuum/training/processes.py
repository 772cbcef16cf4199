"""The processes that train together: device and precision, sums over all of them, seeds, and Ctrl-C between steps."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from residuum.errors import SettingError
from residuum.models.loading import resolve_device
from residuum.training.settings import TrainingSettings

if TYPE_CHECKING:
    from accelerate import Accelerator

PRECISIONS = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}  # our names → Accelerate's


def is_main_process() -> bool:
    """Whether this process writes: it is the only one, or the first one that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """The number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def wait_for_others(device: str) -> None:
    """Wait until all processes that train together have reached this point; a single one continues at once."""
    if process_count() > 1:
        from accelerate.state import PartialState

        PartialState(cpu=resolve_device(device).type == "cpu").wait_for_everyone()


def start_accelerator(settings: TrainingSettings, device: str, out: Path) -> Accelerator:
    """Accelerate for one run: its device, precision and trackers."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    place = resolve_device(device)
    check_abilities(settings.precision, settings.report_to, place)
    # Both states outlive a run and would refuse another precision or device of a later run in the same process.
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
    """Raise an error if the device lacks the precision or a tracker is not installed."""
    if precision == "float16" and place.type == "cpu":
        raise SettingError("precision is 'float16', which a CPU cannot train in; choose bfloat16 or float32.")
    if not report_to:
        return
    from accelerate.tracking import get_available_trackers

    available = [str(tracker) for tracker in get_available_trackers()]
    missing = [name for name in report_to if name not in available]
    if missing:
        installed = ", ".join(available) or "none is installed"
        raise SettingError(f"report_to names {missing[0]!r}; installed trackers: {installed}.")


def summed(accelerator: Accelerator, values: Sequence[float]) -> list[float]:
    """Each value summed over all processes."""
    if accelerator.num_processes == 1:
        return list(values)
    exact = torch.float32 if accelerator.device.type == "mps" else torch.float64
    total = accelerator.reduce(torch.tensor(values, dtype=exact, device=accelerator.device), "sum")
    assert isinstance(total, Tensor)
    return total.tolist()


def seed_torch(seed: int, position: int) -> None:
    """Seed torch's generators by (seed, position), so that random numbers do not depend on those drawn before."""
    torch.manual_seed(int(np.random.SeedSequence((seed, position)).generate_state(1, np.uint64)[0] >> 1))


class StopRequest:
    """Ctrl-C between two steps: the first one is remembered, a second one acts at once.

    Active only in the main thread of a single process; several processes would stop at different steps.
    """

    def __init__(self, active: bool) -> None:
        self.active = active and threading.current_thread() is threading.main_thread()
        self.requested = False

    def __enter__(self) -> StopRequest:

        def remember(number: int, frame: FrameType | None) -> None:
            self.requested = True
            signal.signal(signal.SIGINT, self.before)

        if self.active:
            self.before: Any = signal.signal(signal.SIGINT, remember)
        return self

    def __exit__(self, *_: object) -> None:
        if self.active:
            signal.signal(signal.SIGINT, self.before)

    def obey(self) -> None:
        """Interrupt now, as the previous handler would have."""
        self.__exit__()
        signal.raise_signal(signal.SIGINT)
        raise KeyboardInterrupt
