"""What a command would take, said before it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from residuum.cli.arguments import gigabytes

if TYPE_CHECKING:
    from residuum.costs import Cost


def only_estimated(
    estimate: bool, max_memory: float | None, cost: Callable[[], Cost], models: Sequence[str | Path] = ()
) -> bool:
    """Say what a command would take, if that is all that was asked for; refuse it beyond `max_memory` gigabytes.

    The cost is measured only where one of both was asked for, since that takes a few seconds. To measure it the
    `models` are loaded, one at a time, so that weights which are too large are refused before.
    """
    if not estimate and max_memory is None:
        return False
    from residuum.costs import within

    if max_memory is not None and models:
        from residuum.models.loading import check_weights

        for model in models:
            check_weights([model], gigabytes(max_memory))
    found = cost()
    if estimate:
        typer.echo(str(found))
    within(found, gigabytes(max_memory))
    return estimate
