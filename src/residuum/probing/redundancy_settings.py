"""What a redundancy analysis does: its thresholds, its rules, and how much may be lost."""

from __future__ import annotations

from dataclasses import dataclass

from residuum.errors import SettingError

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The clustering thresholds c_t of Dalvi et al. (2020)."""
RULES = ("random", "medoid", "first")
METHODS = {"average": "average linkage", "kmeans": "k-means", "dbscan": "DBSCAN"}
"""How neurons are clustered, and what each way is called in tables."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides the numbers, beside the data and the recipe of the probes.

    `focus` is the threshold at which clusters are looked at and `pictures` how many of them are drawn; `agreement` are
    the thresholds at which k-means and DBSCAN cluster too, and `clusters` the method whose clusters are used. `keep` is
    the share of the oracle's score that counts as enough for clustered neurons and minimal sets, `keep_layers` that for
    a layer alone.
    """

    thresholds: tuple[float, ...] = THRESHOLDS
    representatives: str = "random"
    focus: float = 0.3
    pictures: int = 3
    agreement: tuple[float, ...] = ()
    keep: float = 0.99
    keep_layers: float = 0.99
    clusters: str = "average"
    seeds: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for threshold in (*self.thresholds, *self.agreement, self.focus):
            if not 0 <= threshold <= 1:
                raise SettingError(f"The threshold {threshold} is not between 0 and 1; 0 keeps all neurons, 1 one.")
        if not self.thresholds or list(self.thresholds) != sorted(set(self.thresholds)):
            raise SettingError(f"The thresholds are {list(self.thresholds)}; give each once, in ascending order.")
        if self.representatives not in RULES:
            raise SettingError(f"There is no rule {self.representatives!r}; choose {', '.join(RULES[:-1])} or first.")
        if self.clusters not in METHODS:
            raise SettingError(f"There are no clusters {self.clusters!r}; choose average, kmeans or dbscan.")
        for name, share in {"keep": self.keep, "keep_layers": self.keep_layers}.items():
            if not 0 < share <= 1:
                raise SettingError(f"{name} is {share}; it must lie above 0 and at most at 1 (0.99 loses one percent).")
        if self.seeds < 1 or self.pictures < 0:
            raise SettingError(f"Found {self.seeds} seeds and {self.pictures} pictures; expected at least 1 and 0.")

    @property
    def cuts(self) -> tuple[float, ...]:
        """The thresholds above 0: what is left at 0, all neurons, stands first in every table anyway."""
        return tuple(threshold for threshold in self.thresholds if threshold > 0)
