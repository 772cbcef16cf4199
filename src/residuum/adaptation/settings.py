"""How a task is learnt from the source language, and from a few examples of the target language."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from residuum.adaptation.strategies import Strategy
from residuum.errors import SettingError
from residuum.training.learning import LearningSettings

EPOCHS = {"xnli": 10.0}  # of the thesis; 20 for NER and SIQA
OTHER_EPOCHS = 20.0
LARGE_RATE, SMALL_RATE = 1e-4, 2e-5
ONLY_AT_THE_END = 1 << 40  # a number of steps that no training has
CHECKPOINTS = ("best", "last")


@dataclass(frozen=True)
class AdaptationSettings:
    """The settings of both stages; the defaults are those of the thesis (table 4.2, sections 4.2.2 and 4.2.3).

    None is what the thesis takes: 10 epochs for XNLI, 20 for others; a learning rate of 2e-5 for full training, 1e-4
    for the parameter-efficient strategies, among which the thesis counts sparse-delta. `checkpoint` is the one with
    the `best` score on the source language's development part, or the `last`. An adapter is `reduction` times narrower
    than a layer. `by_length` makes batches of like length, which is quicker; the thesis draws them from all examples.
    """

    epochs: float | None = None
    batch_size: int = 64
    learning_rate: float | None = None
    warmup: float = 0.1
    weight_decay: float = 0.05
    clip: float | None = 1.0
    accumulation: int = 1
    by_length: bool = True
    precision: str = "float32"
    max_length: int | None = 128
    checkpoint: str = "best"
    reduction: int = 16
    few_shot_epochs: float = 50.0
    few_shot_batch_size: int = 32
    few_shot_learning_rate: float = 2e-5

    def __post_init__(self) -> None:
        if self.checkpoint not in CHECKPOINTS:
            raise SettingError(f"checkpoint is {self.checkpoint!r}; choose one of {', '.join(CHECKPOINTS)}.")
        if self.max_length is not None and self.max_length < 8:
            raise SettingError(f"max_length is {self.max_length}; expected at least 8 tokens.")
        self._learning(self.few_shot_epochs, self.few_shot_batch_size, self.few_shot_learning_rate)
        epochs, rate = self.epochs, self.learning_rate
        self._learning(
            OTHER_EPOCHS if epochs is None else epochs, self.batch_size, SMALL_RATE if rate is None else rate
        )

    def zero_shot(self, strategy: Strategy, task: str) -> LearningSettings:
        """How a strategy learns a task from the source language."""
        rate = SMALL_RATE if strategy.family == "full" else LARGE_RATE
        epochs = EPOCHS.get(task, OTHER_EPOCHS) if self.epochs is None else self.epochs
        return self._learning(epochs, self.batch_size, rate if self.learning_rate is None else self.learning_rate)

    def few_shot(self, k: int) -> LearningSettings:
        """How the target student learns from k examples, none of them twice in a batch; the last weights count."""
        return self._learning(
            self.few_shot_epochs,
            min(self.few_shot_batch_size, k),
            self.few_shot_learning_rate,
            evaluate_every=ONLY_AT_THE_END,
        )

    def as_config(self) -> dict[str, Any]:
        """All settings by name."""
        return asdict(self)

    def _learning(self, epochs: float, batch_size: int, rate: float, **others: Any) -> LearningSettings:
        return LearningSettings(
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=rate,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            clip=self.clip,
            accumulation=self.accumulation,
            by_length=self.by_length,
            precision=self.precision,
            **others,
        )
