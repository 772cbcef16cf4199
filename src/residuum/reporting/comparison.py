"""The section of a `compare` run: maps of all layers, curves over layers, and its tables."""

from __future__ import annotations

import pandas as pd

from residuum.errors import StoreError
from residuum.reporting.comparison_findings import ComparisonSummary, comparison_findings, summarise_comparison
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Panel, Section, Table, View
from residuum.reporting.figures import CURVE_COLUMNS, PAIR_COLUMNS, curves
from residuum.reporting.measures import curve_term, known_curves_first, measure_group, measure_term
from residuum.reporting.similarity_views import similarity_views
from residuum.reporting.wording import listed
from residuum.storage.results import Run

COLUMNS = {
    "similarity": PAIR_COLUMNS,
    "curves": CURVE_COLUMNS,
    "layers": ("model", "layer", "neurons", "constant"),
}


def comparison_section(run: Run, source: str = "") -> Section:
    """Which layers of these models are alike."""
    _check_tables(run, source or "This run")
    summary = summarise_comparison(run)
    return Section(
        command=run.command,
        title=f"Which layers of {_subjects(summary)} are alike?",
        source=source,
        facts=_facts(summary),
        findings=tuple(comparison_findings(summary)),
        panels=(_map_panel(run.tables["similarity"], summary.main), *_curve_panels(run.tables["curves"], summary.main)),
        tables=_tables(run),
        config=run.config,
        environment=run.environment,
    )


def _check_tables(run: Run, source: str) -> None:
    check_tables(run, source, "comparison", "compare", COLUMNS)
    if run.tables["similarity"].empty:
        raise StoreError(f"{source} compares nothing: its table similarity is empty. Run `compare` again with --fresh.")


def _subjects(summary: ComparisonSummary) -> str:
    names = [model.name for model in summary.models]
    return listed(names) if len(names) <= 3 else f"these {len(names)} models"


def _facts(summary: ComparisonSummary) -> dict[str, str]:
    counts = {
        "models": len(summary.models),
        "layers": sum(len(model.layers) for model in summary.models),
        "neurons": sum(model.neurons for model in summary.models),
        "words": summary.words,
        "measures": len(summary.measures),
    }
    return {name: f"{n:,}" for name, n in counts.items() if n is not None}


def _map_panel(similarity: pd.DataFrame, main: str) -> Panel:
    return Panel(
        title="Similarity of all layers of all models",
        caption="A cell compares the layer of its row with the layer of its column. Point at it for both layers, the "
        "value, its interval, and what permuted words give.",
        views=similarity_views(similarity),
        first=main,
        shape="square",
    )


def _curve_panels(table: pd.DataFrame, main: str) -> list[Panel]:
    return [
        _curve_panel(table.loc[table["curve"] == curve], curve, main) for curve in known_curves_first(table["curve"])
    ]


def _curve_panel(table: pd.DataFrame, curve: str, main: str) -> Panel:
    rows = table.loc[table["curve"] == curve]
    views = tuple(
        View(
            key=measure,
            label=measure_term(measure).title,
            figure=curves(rows, curve, measure),
            table="curves",
            where={"curve": curve, "measure": measure},
            group=measure_group(measure),
        )
        for measure in rows["measure"].unique()
    )
    term = curve_term(curve)
    return Panel(title=term.title, caption=term.note, views=views, first=main)


def _tables(run: Run) -> tuple[Table, ...]:
    known = (
        Table("layers", run.tables["layers"], "Neurons of each layer, and how many of them never vary."),
        Table("similarity", run.tables["similarity"], "Every pair of layers by every measure.", folded=True),
        Table("curves", run.tables["curves"], "Every curve, one value a layer.", folded=True),
    )
    others = (Table(name, frame, folded=True) for name, frame in run.tables.items() if name not in COLUMNS)
    return (*known, *others)
