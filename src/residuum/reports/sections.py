"""From a run to what is shown of it. A command with figures of its own has a module beside this one."""

from __future__ import annotations

import numpy as np

from residuum.reports.comparison import comparison_section
from residuum.reports.content import Finding, Section, Table
from residuum.reports.wording import count, shown
from residuum.results import Run


def section(run: Run, source: str = "") -> Section:
    """What the page shows of a run; `source` says where it was read."""
    if run.command == "compare":
        return comparison_section(run, source)
    return _plain_section(run, source)


def _plain_section(run: Run, source: str) -> Section:
    """Any command: its summary and its tables."""
    numbers = {key: shown(value) for key, value in run.summary.items() if isinstance(value, int | float | np.number)}
    words = {key: shown(value) for key, value in run.summary.items() if key not in numbers}
    return Section(
        command=run.command,
        title=f"Results of {run.command}",
        source=source,
        facts=numbers,
        findings=(Finding("Measured", _contents(run)), *(Finding(key, text) for key, text in words.items())),
        panels=(),
        tables=tuple(Table(name, frame) for name, frame in run.tables.items()),
        config=run.config,
        environment=run.environment,
    )


def _contents(run: Run) -> str:
    tables = ", ".join(f"{name} ({count(len(frame), 'row')})" for name, frame in run.tables.items())
    return f"The command {run.command} wrote {tables or 'no tables'}."
