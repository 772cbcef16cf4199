"""`report`: what any runs measured, as one HTML file that needs nothing else, and as figures for papers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import plotly.graph_objects as go

from residuum.errors import SettingError
from residuum.reporting.content import Section
from residuum.reporting.page import render
from residuum.reporting.sections import section
from residuum.storage.files import clear_disk_errors, lone_file
from residuum.storage.results import Run, clear_content_errors, read_run

FORMATS = ("pdf", "svg", "png")
NAME_BYTES = 160


def report(
    runs: Sequence[str | Path | Run] | str | Path | Run,
    out: str | Path,
    *,
    title: str | None = None,
    figures: str | None = None,
) -> Path:
    """Write one self-contained HTML file about some runs (or their folders), and return its path.

    The file holds its figures, data and styles, and loads nothing from anywhere. `figures` (pdf, svg or png) also
    writes every figure as matplotlib draws it, into a folder beside the file: `report.html` has `report-figures`.
    """
    out = _checked_file(out)
    _check_format(figures)
    sections = [_read(run) for run in _checked_runs(runs)]
    page = render(sections, title or _title(sections))
    with lone_file(out) as path:
        path.write_bytes(page.encode("utf-8", errors="replace"))  # a file name may hold bytes that are no text
    if figures is not None:
        write_figures(sections, figures_folder(out), figures)
    return out


def figures_folder(out: str | Path) -> Path:
    """Where the figures of a report are written."""
    return Path(out).with_name(f"{Path(out).stem}-figures")


def write_figures(sections: Sequence[Section], folder: Path, format: str) -> list[Path]:
    """Write every figure of some sections as a file for a paper, named after its run, title and view."""
    from residuum.reporting.paper_figures import save_paper_figure

    with clear_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, one in enumerate(sections, start=1):
        with clear_content_errors(one.command, one.source):
            for name, figure in _named_figures(one, number):
                with lone_file(folder / f"{name}.{format}") as path:
                    save_paper_figure(figure, path, format)
                written.append(folder / f"{name}.{format}")
    return written


def _named_figures(section: Section, number: int) -> Iterator[tuple[str, go.Figure]]:
    """Figures with names that differ: titles may be cut or alike, so the run and the figure in it are numbered."""
    drawn = [(panel, view) for panel in section.panels for view in panel.views]
    for place, (panel, view) in enumerate(drawn, start=1):
        own = (view.key,) if len(panel.views) > 1 else ()
        yield _slug(f"{number:02d}", section.command, f"{place:02d}", panel.title, *own), view.figure


def _slug(*parts: str) -> str:
    """A file name of at most `NAME_BYTES`, which leaves room for the ending where 255 are allowed."""
    name = "-".join(re.sub(r"[^\w.]+", "-", part.lower()).strip("-") for part in parts)
    return name.encode()[:NAME_BYTES].decode(errors="ignore")


def _check_format(figures: str | None) -> None:
    if figures is not None and figures not in FORMATS:
        raise SettingError(f"figures is {figures!r}; choose one of {', '.join(FORMATS)}.")


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
