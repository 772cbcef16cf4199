"""One record of a table, and what can be wrong with it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One record: where it stands, its values, and what is wrong with it if it could not be read."""

    place: str
    values: Mapping[str, object]
    fault: str | None = None


class Fault(Exception):
    """What is wrong with one record."""
