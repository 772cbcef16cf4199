"""What a comparison of models measures: similarities, probes, minimal sets and clusters."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from residuum.errors import SettingError
from residuum.maths.probing import Recipe
from residuum.probing.batteries import parse_penalty
from residuum.probing.rank_sets import Penalty
from residuum.probing.rank_settings import check_shares
from residuum.probing.redundancy_settings import THRESHOLDS

MEASURES = ("neuron", "svcca", "cka", "attention_pearson", "attention_cka")
"""Single neurons and directions (whose difference is the localization), layers, heads, and attention as a whole.

`attention_js` (figure 6 of Wu et al. 2020) can be asked for: it takes fifty times as long as `attention_pearson`.
"""
SHARES = (0.05, 0.1)
"""Top and bottom shares of neurons: those of Durrani et al. (2021)."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides the numbers, beside the models and the texts.

    `groups` are those of the jackknife of similarities; `shares` the top and bottom neurons that are probed alone;
    `delta` how far the minimal set may fall below all neurons; `properties` how many neurons of each class are kept.
    """

    measures: tuple[str, ...] = MEASURES
    groups: int = 5
    thresholds: tuple[float, ...] = THRESHOLDS
    shares: tuple[float, ...] = SHARES
    delta: float = 0.01
    penalty: str = "1e-5"
    properties: int = 20
    seeds: int = 3
    seed: int = 0
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        check_shares(self.shares)
        if not 0 <= self.delta < 1:
            raise SettingError(f"delta is {self.delta}; it must lie from 0 to below 1 (0.01 loses one point).")
        if self.seeds < 1 or self.seed < 0 or self.properties < 1:
            raise SettingError(
                f"Found {self.seeds} seeds from {self.seed} on and {self.properties} neurons of each class; expected "
                "at least 1, from 0 or more, and at least 1."
            )
        if parse_penalty(self.penalty) is None:
            raise SettingError("`diff` does not search penalties; find them with `probe --penalty search`.")

    @property
    def penalties(self) -> Penalty:
        """λ1 and λ2 of all probes."""
        given = parse_penalty(self.penalty)
        assert given is not None, "checked when the settings were made"
        return Penalty(*given)

    @property
    def products(self) -> str:
        """How the words are multiplied for similarities: in float32 unless a measure needs the smallest directions."""
        return "float64" if "mixed" in self.measures else "float32"

    @property
    def facts(self) -> dict[str, Any]:
        """As a run keeps them."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
