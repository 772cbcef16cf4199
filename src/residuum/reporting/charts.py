"""Plain charts for any command: lines with bands, dots with intervals, and maps of values.

Colours are safe for colour-blind readers: the palette of Okabe and Ito (2008) for lines, which differ in dash and
marker too, viridis for maps. Names from data are escaped, since plotly reads some HTML in its labels.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from residuum.reporting.wording import CONFIDENCE

# Okabe and Ito's colours, the fainter ones on white last; grey stands for their black, which is lost on a dark page,
# and their yellow is left out, since it is lost on a white one.
LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7F7F7F", "#56B4E9", "#E69F00")
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x")
ROUNDING = 4  # decimals that are drawn
LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "tracegroupgap": 0}
LABELS = 36  # rows or columns of a map up to which each has its label
CELLS_WITH_NUMBERS = 400  # cells of a map up to which the numbers stand in them


@dataclass(frozen=True, eq=False)
class Series:
    """One line: a value for each x, and its interval where it has one (NaN where it has none)."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    second_axis: bool = False  # read on the right

    @property
    def bounds(self) -> np.ndarray:
        """Points × (low, high)."""
        unknown = [np.nan] * len(self.y)
        return np.array([self.low or unknown, self.high or unknown], float).T.round(ROUNDING)


def line_chart(series: Sequence[Series], *, x: str, y: str, second_y: str = "", step: float | None = None) -> go.Figure:
    """Lines over a common axis, with their intervals as bands; `step` is the distance of the marks on the x axis."""
    bands = [_band(one, place) for place, one in enumerate(series) if not np.isnan(one.bounds).all()]
    lines = [_line(one, place, x) for place, one in enumerate(series)]
    return go.Figure([*bands, *lines], _line_layout(x, y, second_y, step))


def value_map(
    values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], *, x: str, y: str, colours: str
) -> go.Figure:
    """A map of values, rows from the top; missing ones stay blank. `colours` says what the colours mean."""
    z = np.array(values, dtype=float).round(ROUNDING)
    trace = go.Heatmap(
        z=z.tolist(),
        x=list(range(len(columns))),
        y=list(range(len(rows))),
        customdata=[[[plain(row), plain(column)] for column in columns] for row in rows],
        coloraxis="coloraxis",
        hovertemplate=f"{plain(y)} <b>%{{customdata[0]}}</b><br>{plain(x)} <b>%{{customdata[1]}}</b>"
        f"<br>{plain(colours)} <b>%{{z:.3f}}</b><extra></extra>",
        hoverongaps=False,
        texttemplate="%{z:.2f}" if z.size <= CELLS_WITH_NUMBERS else None,
        xgap=1,
        ygap=1,
    )
    return go.Figure([trace], _map_layout(rows, columns, x, y, colours))


def interval_chart(
    names: Sequence[str],
    values: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    *,
    x: str,
    bound: float | None = None,
) -> go.Figure:
    """A dot with its interval for each name, from the top; `bound` is drawn as a line that they are read against."""
    value, bounds = np.array(values, float).round(ROUNDING), np.array([low, high], float).T.round(ROUNDING)
    trace = go.Scatter(
        x=value.tolist(),
        y=list(range(len(names))),
        error_x={
            "type": "data",
            "symmetric": False,
            "array": (bounds[:, 1] - value).clip(min=0).tolist(),
            "arrayminus": (value - bounds[:, 0]).clip(min=0).tolist(),
            "color": colour(0),
            "thickness": 2,
        },
        customdata=[[plain(name), *both] for name, both in zip(names, bounds.tolist(), strict=True)],
        mode="markers",
        marker={"color": colour(0), "size": 10, "symbol": MARKERS[0]},
        showlegend=False,
        hovertemplate=f"<b>%{{customdata[0]}}</b><br>{plain(x)} <b>%{{x:.4g}}</b>{interval_text(bounds[:, 0], 1)}"
        "<extra></extra>",
    )
    return go.Figure([trace], _interval_layout(names, x, bound))


def line_look(place: int) -> dict[str, Any]:
    """Colour, dash and marker of the line at a place: no two of the first 28 look alike."""
    return {
        "line": {"color": colour(place), "width": 2.5, "dash": DASHES[place % len(DASHES)]},
        "marker": {"symbol": MARKERS[place % len(MARKERS)], "size": 8},
    }


def colour(place: int) -> str:
    """The colour of the line at a place."""
    return LINE_COLOURS[place % len(LINE_COLOURS)]


def faint(place: int) -> str:
    """The same colour, for the band behind a line."""
    red, green, blue = (int(colour(place)[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"


def interval_text(low: np.ndarray, place: int) -> str:
    """The line of the interval in a hover text, if there are intervals; `place` is that of `low` in the custom data."""
    if np.isnan(low).all():
        return ""
    return f"<br>{CONFIDENCE} interval %{{customdata[{place}]:.3f}} to %{{customdata[{place + 1}]:.3f}}"


def has_marks(figure: go.Figure) -> bool:
    """Whether anything is drawn: a cell with a number, or a point that has both of its places."""
    return any(_is_marked(trace) for trace in figure.to_plotly_json()["data"])


def plain(text: object) -> str:
    """Text that plotly shows as it is: markup and `%{…}` of its templates mean nothing in it."""
    return html.escape(str(text), quote=False).replace("%{", "&#37;{")


def _is_marked(trace: dict[str, Any]) -> bool:
    if trace["type"] == "heatmap":
        return not np.isnan(np.asarray(trace["z"], dtype=float)).all()
    across, up = trace.get("x"), trace.get("median", trace.get("y"))
    if across is None or up is None:
        return False
    return any(not (_is_unknown(x) or _is_unknown(y)) for x, y in zip(across, up, strict=False))


def _is_unknown(place: object) -> bool:
    return place is None or (isinstance(place, float) and np.isnan(place))


def _band(series: Series, place: int) -> go.Scatter:
    known = ~np.isnan(series.bounds).any(axis=1)
    x, (low, high) = np.asarray(series.x)[known].tolist(), series.bounds[known].T.tolist()
    return go.Scatter(
        x=x + x[::-1],
        y=high + low[::-1],
        yaxis=_axis(series),
        fill="toself",
        fillcolor=faint(place),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        legendgroup=str(place),
        showlegend=False,
    )


def _line(series: Series, place: int, x: str) -> go.Scatter:
    name, beside = plain(series.name), interval_text(series.bounds[:, 0], 0)
    return go.Scatter(
        x=list(series.x),
        y=np.asarray(series.y, float).round(ROUNDING).tolist(),
        yaxis=_axis(series),
        customdata=series.bounds.tolist(),
        name=name,
        mode="lines+markers",
        legendgroup=str(place),
        hovertemplate=f"<b>{name}</b>, {plain(x)} %{{x}}<br>value <b>%{{y:.4g}}</b>{beside}<extra></extra>",
        **line_look(place),
    )


def _axis(series: Series) -> str | None:
    return "y2" if series.second_axis else None


def _line_layout(x: str, y: str, second_y: str, step: float | None) -> dict[str, Any]:
    right = {"title": {"text": plain(second_y)}, "overlaying": "y", "side": "right", "showgrid": False}
    return {
        "template": "none",
        "height": 420,
        "margin": {"l": 56, "r": 56 if second_y else 14, "t": 30, "b": 44},
        "xaxis": {
            "title": {"text": plain(x), "standoff": 6},
            "zeroline": False,
            "showgrid": False,
            "automargin": True,
            **({} if step is None else {"tick0": 0, "dtick": step}),
        },
        "yaxis": {"title": {"text": plain(y), "standoff": 10}, "automargin": True, "zeroline": False},
        **({"yaxis2": {**right, "automargin": True, "zeroline": False}} if second_y else {}),
        "legend": LEGEND,
        "showlegend": True,
        "hovermode": "closest",
    }


def _map_layout(rows: Sequence[str], columns: Sequence[str], x: str, y: str, colours: str) -> dict[str, Any]:
    bar = {"thickness": 12, "outlinewidth": 0, "title": {"text": plain(colours), "side": "right"}}
    axis = {"showgrid": False, "zeroline": False, "ticks": "", "automargin": True, "tickangle": 0}
    return {
        "template": "none",
        "height": 160 + 26 * len(rows),
        "margin": {"l": 56, "r": 14, "t": 30, "b": 44},
        "xaxis": {**axis, **_ticks(columns), "title": {"text": plain(x), "standoff": 6}},
        "yaxis": {**axis, **_ticks(rows), "title": {"text": plain(y), "standoff": 10}, "autorange": "reversed"},
        "coloraxis": {"colorscale": "Viridis", "colorbar": bar},
    }


def _interval_layout(names: Sequence[str], x: str, bound: float | None) -> dict[str, Any]:
    axis = {"zeroline": False, "automargin": True}
    line = {"type": "line", "x0": bound, "x1": bound, "yref": "y domain", "y0": 0, "y1": 1}
    return {
        "template": "none",
        "height": 130 + 30 * len(names),
        "margin": {"l": 56, "r": 14, "t": 30, "b": 44},
        "xaxis": {**axis, "title": {"text": plain(x), "standoff": 6}},
        "yaxis": {**axis, **_ticks(names), "showgrid": False, "range": [len(names) - 0.5, -0.5]},
        "shapes": [] if bound is None else [{**line, "line": {"color": colour(1), "width": 2, "dash": "dash"}}],
        "hovermode": "closest",
    }


def _ticks(names: Sequence[str]) -> dict[str, Any]:
    step = -(-len(names) // LABELS)
    places = list(range(0, len(names), step))
    return {"tickvals": places, "ticktext": [plain(names[place]) for place in places]}
