"""The one training loop: seeded, checkpointed, resumed to the last bit, in one process or several.

Names are loaded on first use: the settings records are read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from residuum.training.batches import Batches, ShuffledBatches, StreamBatches, shuffled_stream
    from residuum.training.checkpoints import discard_checkpoints, load_checkpoint
    from residuum.training.loop import StepLosses, TrainingResult, rehearse, train, training_step
    from residuum.training.optimisation import ParameterGroup, trainable_groups
    from residuum.training.processes import (
        check_abilities,
        is_main_process,
        process_count,
        wait_for_others,
    )
    from residuum.training.settings import TrainingSettings

_HOMES = {
    "batches": ("Batches", "ShuffledBatches", "StreamBatches", "shuffled_stream"),
    "checkpoints": ("discard_checkpoints", "load_checkpoint"),
    "loop": ("StepLosses", "TrainingResult", "rehearse", "train", "training_step"),
    "optimisation": ("ParameterGroup", "trainable_groups"),
    "processes": ("check_abilities", "is_main_process", "process_count", "wait_for_others"),
    "settings": ("TrainingSettings",),
}

__all__ = [
    "Batches",
    "ParameterGroup",
    "ShuffledBatches",
    "StepLosses",
    "StreamBatches",
    "TrainingResult",
    "TrainingSettings",
    "check_abilities",
    "discard_checkpoints",
    "is_main_process",
    "load_checkpoint",
    "process_count",
    "rehearse",
    "shuffled_stream",
    "train",
    "trainable_groups",
    "training_step",
    "wait_for_others",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
