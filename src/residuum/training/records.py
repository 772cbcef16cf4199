"""What a step gives and what is written down of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from accelerate import Accelerator


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
