"""How results show themselves in a notebook. The report stands above; `residuum/__init__.py` sets these functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from residuum.storage.results import Run

figure: Callable[[Run, str, str], go.Figure]
"""A figure of the run's report, by a part of its title and by the key or label of a view."""

html: Callable[[Run, pd.DataFrame], str]
"""Title, facts and findings of the run's report, and the first rows of a table."""
