"""Tables, figures and scripts as text that is safe inside HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup

from residuum.reporting.content import View

EMBEDDED_ROWS = 50_000  # of one table; a page with more opens slowly
USUAL_HEIGHT, MOST_HEIGHT = 420, 1600  # of a figure, in pixels: beyond the one it is kept, up to the other
DIGITS = 7  # significant; the run's own files have all


def json_block(value: Any) -> Markup:
    """JSON for a `<script type="application/json">`: no `<` in it, so that nothing in the data can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def script_block(source: str) -> Markup:
    """JavaScript for a `<script>`: an end tag or comment inside a string of it is broken up, with the same meaning."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")  # as a browser reads them, or the hash would differ
    return Markup(re.sub("<(?=/script|!--)", r"<\\", source, flags=re.IGNORECASE))


def script_hash(script: str) -> str:
    """A script's name in a content security policy, which then lets no other script run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def table_data(frame: pd.DataFrame) -> dict[str, Any]:
    """A table by columns: numbers as such, other values as text, and how many rows it has in all."""
    shown = frame.head(EMBEDDED_ROWS)
    columns = [_column(str(name), shown.iloc[:, place]) for place, name in enumerate(frame.columns)]
    return {"columns": columns, "rows": len(shown), "total": len(frame)}


def rows_shown(view: View, frame: pd.DataFrame) -> dict[str, Any]:
    """A view's own table; or of a table that is cut how many rows it shows, and these unless they are too many again.

    Of a table that the page holds whole, the page finds them by itself.
    """
    if view.own is not None:
        return {"rows": len(view.own), "own": table_data(view.own)}
    if len(frame) <= EMBEDDED_ROWS:
        return {}
    shown = frame.loc[fitting_rows(view, frame)]
    return {"rows": len(shown), **({"own": table_data(shown)} if len(shown) <= EMBEDDED_ROWS else {})}


def fitting_rows(view: View, frame: pd.DataFrame) -> np.ndarray:
    """Which rows of its table a view shows; `rowsWhere` of the page finds the same ones."""
    fits = np.asarray(frame[list(view.having)].notna().to_numpy().all(axis=1))
    for name, values in view.where.items():
        fits &= _has_value(pd.Series(frame[name]), values)
    return fits


def figure_data(figure: go.Figure) -> dict[str, Any]:
    """A figure's traces and layout. Its size is the page's to decide, but for the height that many rows need."""
    parts = figure.to_plotly_json()
    layout = {key: value for key, value in parts["layout"].items() if key not in ("width", "height", "template")}
    height = parts["layout"].get("height") or 0
    tall = min(height, MOST_HEIGHT) if height > USUAL_HEIGHT else None
    return {"data": _finite(parts["data"]), "layout": _finite(layout), "height": tall}


def _has_value(column: pd.Series, values: str | tuple[str, ...]) -> np.ndarray:
    several = (values,) if isinstance(values, str) else values
    if _is_numeric(column):
        numbers = column.to_numpy(dtype=float, na_value=math.nan)
        return np.any(
            [np.isclose(numbers, float(value), rtol=10.0 ** (1 - DIGITS), atol=0) for value in several], axis=0
        )
    return column.map(_text).isin(several).to_numpy(dtype=bool)


def _is_numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _column(name: str, values: pd.Series) -> dict[str, Any]:
    if _is_numeric(values):
        return {"name": name, "numeric": True, "values": [_number(value) for value in values]}
    levels: dict[str, int] = {}  # not by pandas, of which old versions take texts that end in NUL for others
    texts = values.map(_text, na_action="ignore")
    codes = [levels.setdefault(text, len(levels)) if isinstance(text, str) else -1 for text in texts]
    return {"name": name, "numeric": False, "values": codes, "levels": list(levels)}


def _number(value: Any) -> int | float | None:
    if pd.isna(value):
        return None
    return int(value) if isinstance(value, int | np.integer) else _brief(float(f"{value:.{DIGITS}g}"))


def _brief(value: float) -> int | float | None:
    """A number without a needless `.0`; nothing where it is not finite."""
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _text(value: Any) -> str:
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


def _finite(value: Any) -> Any:
    """Plain JSON values: arrays as lists, and nothing where a number is not finite."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return _finite(value.tolist())
    return _brief(value) if isinstance(value, float) else value
