"""What a ranking of neurons does: its methods, how much is kept, how much may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from residuum.errors import SettingError
from residuum.probing.orders import METHODS
from residuum.probing.sampling import SAMPLE

SHARES = (0.01, 0.05, 0.1, 0.2)
"""Shares of neurons in the top and bottom sets; Durrani et al. (2021) take 5 % and 10 %."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides the numbers, beside the data and the recipe of the probes.

    `methods` are the rankings, and `by` the one that the minimal set and the cards follow. `delta` is how far the
    minimal set may fall below the oracle. `sample` is the number of words from which the Gaussian and IoU rankings
    are taken. `neurons` get cards, or else the first `cards` of the ranking.
    """

    methods: tuple[str, ...] = METHODS
    by: str = "lca"
    shares: tuple[float, ...] = SHARES
    delta: float = 0.01
    penalty: str = "1e-5"
    seeds: int = 3
    sample: int = SAMPLE
    neurons: tuple[str, ...] = ()
    cards: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [name for name in (*self.methods, self.by) if name not in METHODS]
        if unknown or not self.methods:
            raise SettingError(
                f"Ranking {', '.join(unknown) or 'none'} is not known; choose from {', '.join(METHODS)}."
            )
        check_shares(self.shares)
        if not 0 <= self.delta < 1:
            raise SettingError(
                f"delta is {self.delta}; it must lie between 0 and 1 (0.01 loses one point of accuracy)."
            )
        if self.seeds < 1 or self.cards < 0 or self.sample < 2:
            raise SettingError(
                f"Found {self.seeds} seeds, {self.cards} cards and {self.sample} sampled words; expected at least "
                "1, 0 and 2."
            )

    @property
    def facts(self) -> dict[str, Any]:
        """The settings as a run keeps them."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def check_shares(shares: Sequence[float]) -> None:
    """Raise an error unless there are shares, and none leaves top and bottom overlapping or empty."""
    if not shares or not all(0 < share <= 0.5 for share in shares):
        raise SettingError(f"The shares of neurons are {list(shares)}; expected numbers above 0 and at most 0.5.")
