"""The one training loop: seeded, checkpointed, resumed to the last bit, on one process or several."""

from residuum.training.batches import Batches, ShuffledBatches, StreamBatches, shuffled_stream
from residuum.training.checkpoints import discard_checkpoints, load_checkpoint
from residuum.training.loop import Training, train
from residuum.training.optimisation import ParameterGroup, trainable_groups
from residuum.training.records import StepLosses
from residuum.training.settings import TrainingSettings

__all__ = [
    "Batches",
    "ParameterGroup",
    "ShuffledBatches",
    "StepLosses",
    "StreamBatches",
    "Training",
    "TrainingSettings",
    "discard_checkpoints",
    "load_checkpoint",
    "shuffled_stream",
    "train",
    "trainable_groups",
]
