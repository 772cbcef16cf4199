"""`report`: what any runs measured, as one HTML file that needs nothing else, as figures for papers, or in a notebook.

Three steps: summarise (a run becomes a `Section`) → draw (its figures, in `charts`) → page (a template, in `page`).
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from markupsafe import escape

from residuum.errors import SettingError
from residuum.reporting import (
    ReportSettings,
    differences,
    evaluation,
    neurons,
    probing,
    redundancy,
    shrinking,
    similarity,
    studies,
    training,
)
from residuum.reporting.content import SAID, Finding, Panel, Section, TableSpec, build_section
from residuum.reporting.page import render
from residuum.reporting.wording import count, shown
from residuum.settings import command
from residuum.storage.files import clear_disk_errors, lone_file
from residuum.storage.results import Run, clear_content_errors, read_run

NAME_BYTES = 160
NOTEBOOK_ROWS = 8
IMAGE_WIDTH = 640  # pixels on the screen; the image itself is sharper
SECTIONS: dict[str, tuple[Callable[[Run], Section], Mapping[str, TableSpec]]] = {
    "ablate": (neurons.ablation_section, neurons.ABLATE_TABLES),
    "adapt": (training.adaptation_section, training.ADAPT_TABLES),
    "compare": (similarity.comparison_section, similarity.COMPARE_TABLES),
    "describe": (neurons.description_section, neurons.CARD_TABLES),
    "diff": (differences.difference_section, differences.DIFF_TABLES),
    "distill": (training.distillation_section, training.DISTILL_TABLES),
    "evaluate adapted": (evaluation.adapted_section, evaluation.ADAPTED_TABLES),
    "evaluate correlate": (evaluation.correlation_section, evaluation.CORRELATE_TABLES),
    "evaluate perplexity": (evaluation.perplexity_section, evaluation.PERPLEXITY_TABLES),
    "evaluate retrieval": (evaluation.retrieval_section, evaluation.RETRIEVAL_TABLES),
    "finetune": (training.finetuning_section, training.FINETUNE_TABLES),
    "pretrain": (training.pretraining_section, training.PRETRAIN_TABLES),
    "probe": (probing.probing_section, probing.PROBE_TABLES),
    "probe-languages": (probing.languages_section, probing.LANGUAGE_TABLES),
    "prune": (shrinking.pruning_section, shrinking.PRUNE_TABLES),
    "rank": (neurons.ranking_section, neurons.RANK_TABLES),
    "redundancy": (redundancy.redundancy_section, redundancy.REDUNDANCY_TABLES),
    "shrink": (shrinking.shrink_section, shrinking.SHRINK_TABLES),
    "study": (studies.study_section, studies.STUDY_TABLES),
    "study distillation": (studies.distillation_rows_section, studies.ROW_TABLES),
    "transfer": (shrinking.transfer_section, shrinking.TRANSFER_TABLES),
    "trim": (shrinking.trimming_section, shrinking.TRIM_TABLES),
}
"""For each command the function that describes its runs, and the tables that it needs."""


@command(ReportSettings)
def report(settings: ReportSettings) -> Path:
    """Write one self-contained HTML file about some runs (or their folders), and return its path.

    The file holds its figures, data and styles, and loads nothing from elsewhere. `figures` (pdf, svg or png) also
    writes every figure with matplotlib, into a folder beside the file: `report.html` has `report-figures`.
    """
    runs = [section(run) if isinstance(run, Run) else section(read_run(run), source=str(run)) for run in settings.runs]
    page = render(runs, settings.title or (runs[0].title if len(runs) == 1 else "Residuum report"))
    with lone_file(settings.out) as path:
        path.write_bytes(page.encode("utf-8", errors="replace"))  # a file name may hold bytes that are no text
    if settings.figures is not None:
        write_figures(runs, settings.out.with_name(f"{settings.out.stem}-figures"), settings.figures)
    return settings.out


def section(run: Run, source: str = "") -> Section:
    """What the page shows of a run; `source` says where it was read, if not as the run itself does."""
    source = source or str(run.folder or "")
    describe, tables = SECTIONS.get(run.command, (_summary_section, {}))
    with clear_content_errors(run.command, run.folder):
        return build_section(run, source, describe, tables)


def write_figures(sections: Sequence[Section], folder: Path, format: str) -> list[Path]:
    """Write every figure of some sections as a file for a paper, named after its run, title and view."""
    from residuum.reporting.paper_figures import save_paper_figure

    with clear_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, one in enumerate(sections, start=1):
        with clear_content_errors(one.command, one.source):
            drawn = [(panel, view) for panel in one.panels for view in panel.views]
            for place, (panel, view) in enumerate(
                drawn, start=1
            ):  # titles may be cut or equal: numbers tell them apart
                parts = [f"{number:02d}", one.command, f"{place:02d}", panel.title]
                parts += [view.key] if len(panel.views) > 1 else []
                name = "-".join(re.sub(r"[^\w.]+", "-", part.lower()).strip("-") for part in parts)
                name = name.encode()[:NAME_BYTES].decode(errors="ignore")  # leaves room for the ending
                with lone_file(folder / f"{name}.{format}") as path:
                    save_paper_figure(view.figure, path, format)
                written.append(folder / f"{name}.{format}")
    return written


def run_html(run: Run, frame: pd.DataFrame) -> str:
    """A run in a notebook: title, facts and findings of its section, and the first rows of `frame`."""
    content = section(run)
    facts = " · ".join(f"{escape(name)} <b>{escape(value)}</b>" for name, value in content.facts.items())
    findings = "".join(f"<li><b>{escape(one.topic)}</b>: {escape(one.text)}</li>" for one in content.findings)
    rest = ""
    if len(frame) > NOTEBOOK_ROWS:
        rest = f"<p>{NOTEBOOK_ROWS} of {len(frame):,} rows; <code>.frame</code> has all.</p>"
    figures = f"<p><code>.plot()</code> draws {escape(_titles(content.panels))}.</p>" if content.panels else ""
    return (
        f"<div><h4>{escape(content.title)}</h4><p>{facts}</p><ul>{findings}</ul>"
        f"{frame.head(NOTEBOOK_ROWS).to_html(index=False)}{rest}{figures}</div>"
    )


def run_figure(run: Run, title: str = "", view: str = "") -> go.Figure:
    """The first figure of a run whose title contains `title`, in the view of that key or label."""
    panels = list(section(run).panels)
    if not panels:
        raise SettingError(f"This run of {run.command} has nothing to draw; .frame has its numbers.")
    panel = next((panel for panel in panels if title.lower() in panel.title.lower()), None)
    if panel is None:
        raise SettingError(f"{run.command} has no figure {title!r}; choose one of {_titles(panels)}.")
    views = {key: one for one in reversed(panel.views) for key in (one.label, one.key)}
    if (key := view or panel.first_key) not in views:
        keys = ", ".join(one.key for one in panel.views)
        raise SettingError(f"The figure {panel.title!r} has no view {key!r}; choose one of {keys}.")
    return ShownFigure(views[key].figure)


class ShownFigure(go.Figure):
    """A figure that also shows where no script runs: in exported notebooks and on GitHub, as an image.

    A notebook that knows plotly draws it as ever. The image needs matplotlib (the extra `figures`); without it the
    figure is HTML that loads plotly from its network.
    """

    # They show nothing where no script runs, and would be preferred.
    _ipython_display_: Any = None  # pyright: ignore[reportIncompatibleMethodOverride]
    _repr_html_: Any = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def _repr_mimebundle_(self, *_: object, **__: object) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        bundle: dict[str, Any] = {"application/vnd.plotly.v1+json": json.loads(str(self.to_json()))}
        if find_spec("matplotlib") is None:
            return bundle | {"text/html": self.to_html(full_html=False, include_plotlyjs="cdn")}, {}
        from residuum.reporting.paper_figures import save_paper_figure

        with tempfile.TemporaryDirectory(prefix="residuum-") as folder:
            save_paper_figure(self, Path(folder) / "figure.png", "png")
            image = base64.b64encode((Path(folder) / "figure.png").read_bytes()).decode()
        return bundle | {"image/png": image}, {"image/png": {"width": IMAGE_WIDTH}}


def _summary_section(run: Run) -> Section:
    """Any command without a section of its own: its summary and its tables."""
    numbers = {key: shown(value) for key, value in run.summary.items() if isinstance(value, int | float | np.number)}
    words = {key: shown(value) for key, value in run.summary.items() if key not in (*numbers, *SAID)}
    tables = ", ".join(f"{name} ({count(len(frame), 'row')})" for name, frame in run.tables.items())
    contents = Finding("Measured", f"The command {run.command} wrote {tables or 'no tables'}.")
    return Section(
        title=f"Results of {run.command}",
        facts=numbers,
        findings=[contents, *(Finding(key, text) for key, text in words.items())],
        panels=(),
    )


def _titles(panels: Iterable[Panel]) -> str:
    return ", ".join(repr(panel.title) for panel in panels)
