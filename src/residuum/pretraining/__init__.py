"""Pretraining: a tokenizer and an encoder or decoder from scratch, also on translations."""

from residuum.pretraining.config import PretrainConfig, read_config
from residuum.pretraining.running import Pretraining, pretrain

__all__ = ["PretrainConfig", "Pretraining", "pretrain", "read_config"]
