"""Whether a run has the tables that its section draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from residuum.errors import StoreError
from residuum.storage.results import Run


def check_tables(run: Run, source: str, what: str, command: str, columns: Mapping[str, Sequence[str]]) -> None:
    """Raise an error that names the first table that lacks columns, what the run should be and how to make it again."""
    for name, expected in columns.items():
        found = list(run.tables[name].columns) if name in run.tables else []
        if missing := [column for column in expected if column not in found]:
            raise StoreError(
                f"{source} is no whole {what}: its table {name} has no {', '.join(missing)}. "
                f"Run `{command}` again with --fresh."
            )
