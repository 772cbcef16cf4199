"""What a redundancy analysis does: its thresholds, its rules, and how much may be lost."""

from __future__ import annotations

from dataclasses import dataclass

from residuum.errors import SettingError

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The clustering thresholds c_t of Dalvi et al. (2020)."""
RULES = ("random", "medoid", "first")


@dataclass(frozen=True)
class Settings:
    """Everything that decides the numbers, beside the data and the recipe of the probes.

    `focus` is the threshold at which clusters are looked at and `pictures` how many of them are drawn; `agreement` are
    the thresholds at which k-means and DBSCAN cluster too. `keep` is the share of the oracle's score that counts as
    enough.
    """

    thresholds: tuple[float, ...] = THRESHOLDS
    representatives: str = "random"
    focus: float = 0.3
    pictures: int = 3
    agreement: tuple[float, ...] = ()
    keep: float = 0.99
    seeds: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for threshold in (*self.thresholds, *self.agreement, self.focus):
            if not 0 < threshold < 1:
                raise SettingError(f"The threshold {threshold} is not between 0 and 1; 0 keeps all neurons, 1 one.")
        if not self.thresholds or list(self.thresholds) != sorted(set(self.thresholds)):
            raise SettingError(f"The thresholds are {list(self.thresholds)}; give each once, in ascending order.")
        if self.representatives not in RULES:
            raise SettingError(f"There is no rule {self.representatives!r}; choose {', '.join(RULES[:-1])} or first.")
        if not 0 < self.keep <= 1:
            raise SettingError(f"keep is {self.keep}; it must lie above 0 and at most at 1 (0.99 loses one percent).")
        if self.seeds < 1 or self.pictures < 0:
            raise SettingError(f"Found {self.seeds} seeds and {self.pictures} pictures; expected at least 1 and 0.")
