"""`report`: what any runs measured, as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from residuum.errors import SettingError
from residuum.files import whole_file
from residuum.reports.content import Section
from residuum.reports.page import render
from residuum.reports.sections import section
from residuum.results import Run, read_run


def report(runs: Sequence[str | Path | Run] | str | Path | Run, out: str | Path, *, title: str | None = None) -> Path:
    """Write one self-contained HTML file about some runs (or their folders), and return its path.

    The file holds its figures, data and styles, and loads nothing from anywhere.
    """
    out = _checked_file(out)
    sections = [_read(run) for run in _checked_runs(runs)]
    page = render(sections, title or _title(sections))
    with whole_file(out) as path:
        path.write_bytes(page.encode("utf-8", errors="replace"))  # a file name may hold bytes that are no text
    return out


def _checked_file(out: str | Path) -> Path:
    out = Path(out)
    if out.is_dir():
        raise SettingError(f"{out} is a folder; expected a file to write, such as {out / 'report.html'}.")
    return out


def _checked_runs(runs: Sequence[str | Path | Run] | str | Path | Run) -> list[str | Path | Run]:
    several = [runs] if isinstance(runs, str | Path | Run) else list(runs)
    if not several:
        raise SettingError("Found no run to report; give at least one folder that a command wrote.")
    return several


def _read(run: str | Path | Run) -> Section:
    if isinstance(run, Run):
        return section(run)
    return section(read_run(run), source=str(run))


def _title(sections: list[Section]) -> str:
    return sections[0].title if len(sections) == 1 else "Residuum report"
