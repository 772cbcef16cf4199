"""The heatmaps of all pairs of layers, one for each measure, for every section that compares models."""

from __future__ import annotations

import pandas as pd

from residuum.reporting.content import View
from residuum.reporting.figures import heatmap
from residuum.reporting.measures import measure_group, measure_term


def similarity_views(table: pd.DataFrame) -> tuple[View, ...]:
    """A view of the table `similarity` for each of its measures."""
    return tuple(
        View(
            key=measure,
            label=measure_term(measure).title,
            figure=heatmap(table, measure),
            table="similarity",
            where={"measure": measure},
            group=measure_group(measure),
            note=measure_term(measure).note,
        )
        for measure in table["measure"].unique()
    )
