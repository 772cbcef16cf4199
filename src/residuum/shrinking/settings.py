"""What a transfer may lose, or spend, and which of its steps are taken."""

from __future__ import annotations

import re
from dataclasses import dataclass

from residuum.errors import SettingError

STEPS = ("layers", "clusters", "neurons")
"""LayerSelector, correlation clustering and feature selection (Dalvi et al. 2020, §7)."""
THRESHOLDS = (0.3, 0.5, 0.7)
KINDS = {"layers": "layers", "neurons": "neurons", "bytes": "layers", "ms": "layers"}
"""What a budget can limit, and the step that keeps to it."""
RULES = ("random", "medoid", "first")
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}


@dataclass(frozen=True)
class Budget:
    """The most that may be spent: layers above the embeddings, neurons, bytes of weights, or ms per sentence."""

    kind: str
    amount: float

    @staticmethod
    def parse(text: str) -> Budget:
        """`layers=3`, `neurons=300`, `bytes=60MB` or `ms=2.5`."""
        kind, _, amount = text.strip().partition("=")
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMG]?)B?", amount.strip(), re.IGNORECASE)
        if kind not in KINDS or found is None or (found[2] and kind != "bytes"):
            raise SettingError(
                f"The budget is {text!r}; expected layers=3, neurons=300, bytes=60MB or ms=2.5 (per sentence)."
            )
        return Budget(kind, float(found[1]) * _UNITS[found[2].lower()])

    @property
    def step(self) -> str:
        """The step that keeps to it."""
        return KINDS[self.kind]

    def __str__(self) -> str:
        return f"{self.kind}={self.amount:.12g}"


@dataclass(frozen=True)
class Settings:
    """Everything that decides which layers and neurons are kept, beside the data and the recipe of the probes.

    `layer_loss` is the share of the oracle's score that LayerSelector may lose, `neuron_loss` the share of the score
    of the kept layers that clustering and feature selection may lose together; clustering alone takes at most half
    of it, so that selection has room. `thresholds` are the c_t that clustering tries. Everything is chosen with the
    first of `seeds`; what was chosen is trained again with the others, to report a mean and deviation.
    """

    steps: tuple[str, ...] = STEPS
    layer_loss: float = 0.01
    neuron_loss: float = 0.01
    thresholds: tuple[float, ...] = THRESHOLDS
    representatives: str = "medoid"
    budget: Budget | None = None
    l1: float = 1e-5
    l2: float = 1e-5
    seed: int = 0
    seeds: int = 1

    def __post_init__(self) -> None:
        self._check_steps()
        if self.seeds < 1:
            raise SettingError(f"seeds is {self.seeds}; expected at least 1.")
        for name in ("layer_loss", "neuron_loss"):
            if not 0 <= getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}; expected a share of at least 0 and below 1.")
        if not self.thresholds or not all(0 < threshold < 1 for threshold in self.thresholds):
            raise SettingError(f"The thresholds are {list(self.thresholds)}; expected some between 0 and 1.")
        if self.representatives not in RULES:
            raise SettingError(f"There is no rule {self.representatives!r}; choose random, medoid or first.")
        if self.budget is not None and self.budget.step not in self.steps:
            raise SettingError(
                f"The budget {self.budget} is kept by the step {self.budget.step!r}, which is left out; take that step "
                "too, or give no budget."
            )
        if self.budget is not None and self.budget.kind == "neurons" and self.budget.amount < 1:
            raise SettingError(f"The budget {self.budget} cannot be reached: the nearest is neurons=1.")

    def _check_steps(self) -> None:
        unknown = [step for step in self.steps if step not in STEPS]
        if unknown or not self.steps:
            raise SettingError(f"The steps are {list(self.steps)}; choose some of {', '.join(STEPS)}.")

    def limit(self, kind: str) -> float | None:
        """The budget's amount if it is of this kind."""
        return self.budget.amount if self.budget is not None and self.budget.kind == kind else None
