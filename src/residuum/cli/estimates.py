"""What a command would take, said before it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from residuum.costs import Cost


def only_estimated(estimate: bool, max_memory: float | None, cost: Callable[[], Cost]) -> bool:
    """Say what a command would take, if that is all that was asked for; refuse it beyond `max_memory` gigabytes.

    The cost is measured only where one of both was asked for, since that takes a few seconds.
    """
    if not estimate and max_memory is None:
        return False
    from residuum.costs import within

    found = cost()
    if estimate:
        typer.echo(str(found))
    within(found, None if max_memory is None else int(max_memory * 1e9))
    return estimate
