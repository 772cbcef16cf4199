"""The ways to carry a task from a source student to a target student, by name (thesis, section 3.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from residuum.errors import SettingError

STRATEGIES = (
    "adapter-source",
    "adapter-target",
    "adapter-joint",
    "bitfit-source",
    "bitfit-target",
    "bitfit-joint",
    "sparse-delta",
    "freeze+0",
    "freeze+2",
    "freeze+4",
    "full-source",
    "full-target",
)
"""All strategies in the order of the thesis' table 4.6; `freeze+k` is known for any k."""

# Where source and target are one model, the others are the same training under another name; sparse-delta is not, for
# it leaves the embeddings as they are and learns by another rate.
STRATEGIES_OF_ONE = (
    "adapter-target",
    "bitfit-target",
    "sparse-delta",
    "freeze+0",
    "freeze+2",
    "freeze+4",
    "full-target",
)

_NAME = re.compile(r"(full)-(source|target)|(adapter|bitfit)-(source|target|joint)|(sparse-delta)|(freeze)\+(\d+)")


@dataclass(frozen=True)
class Strategy:
    """What is trained, and by which students it is read while it is.

    `reads` is source, target or joint (both). What a source student learnt is moved into the target student; only
    `full-source` is evaluated itself.
    """

    name: str
    family: str  # full, freeze, adapter, bitfit or sparse-delta
    reads: str
    new_layers: int = 0

    @property
    def for_any_target(self) -> bool:
        """Whether one training serves all target languages, since no target student takes part in it."""
        return self.reads == "source"

    @property
    def evaluates_source(self) -> bool:
        """Whether the source student answers for the target language."""
        return self.name == "full-source"


def named_strategies(names: str | Sequence[str], *, one_model: bool = False) -> list[Strategy]:
    """The strategies of these names (a list, or separated by commas); `all` are those of the thesis.

    For one model that is source and target at once `all` leaves out those that would be the same training again.
    """
    given = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    if given == ["all"]:
        given = list(STRATEGIES_OF_ONE if one_model else STRATEGIES)
    if not given or len(set(given)) < len(given):
        raise SettingError(f"The strategies are {', '.join(given) or 'none'}; expected different ones, at least one.")
    return [_named(name) for name in given]


def _named(name: str) -> Strategy:
    found = _NAME.fullmatch(name)
    if found is None:
        raise SettingError(f"There is no strategy {name!r}; choose 'all' or some of {', '.join(STRATEGIES)}.")
    full, side, efficient, reads, delta, freeze, layers = found.groups()
    if freeze:
        return Strategy(name, "freeze", "source", int(layers))
    return Strategy(name, full or efficient or delta, side or reads or "source")
