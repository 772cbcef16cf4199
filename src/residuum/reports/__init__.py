"""Results → figures → one self-contained HTML page, in three steps.

Summarise: a command's module (`comparison`) turns its run into a `content.Section` of findings, figures and tables.
Draw: `figures` makes plotly figures of tidy tables. Page: `page` puts sections into the template in `assets`.
A command without a module of its own is shown by its summary and its tables (`sections`).
"""

from residuum.reports.figures import curves, heatmap
from residuum.reports.reporting import report

__all__ = ["curves", "heatmap", "report"]
