"""Results → figures → one self-contained HTML page."""

from residuum.report.figures import curves, heatmap
from residuum.report.reporting import report

__all__ = ["curves", "heatmap", "report"]
