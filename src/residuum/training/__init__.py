"""The one training loop: seeded, checkpointed, resumed to the last bit, on one process or several."""

from residuum.training.batches import Batches, ShuffledBatches, StreamBatches, shuffled_stream
from residuum.training.checkpoints import discard_checkpoints, load_checkpoint
from residuum.training.loop import Training, train
from residuum.training.optimisation import ParameterGroup, trainable_groups
from residuum.training.processes import (
    StepLosses,
    TrainingSettings,
    check_abilities,
    is_main_process,
    process_count,
    wait_for_others,
)

__all__ = [
    "Batches",
    "ParameterGroup",
    "ShuffledBatches",
    "StepLosses",
    "StreamBatches",
    "Training",
    "TrainingSettings",
    "check_abilities",
    "discard_checkpoints",
    "is_main_process",
    "load_checkpoint",
    "process_count",
    "shuffled_stream",
    "train",
    "trainable_groups",
    "wait_for_others",
]
