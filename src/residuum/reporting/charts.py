"""Drawings from tidy tables: lines with bands, dots with intervals, bars, boxes and maps. Each works without a page.

Colours are safe for colour-blind readers: the palette of Okabe and Ito (2008) for lines, which differ in dash and
marker too, viridis for maps. Names from data are escaped, since plotly reads some HTML in its labels.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.wording import CONFIDENCE

# Okabe and Ito's colours, the fainter ones on white last; grey replaces their black, which is lost on a dark page, and
# their yellow is left out, since it is lost on a white one.
LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7F7F7F", "#56B4E9", "#E69F00")
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x")
PATTERNS = ("", "/", "x", ".")
ROUNDING = 4  # decimals that are drawn
LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "tracegroupgap": 0}
MARGIN = {"l": 56, "r": 14, "t": 30, "b": 44}
MAP_AXIS = {"showgrid": False, "zeroline": False, "ticks": "", "automargin": True}
ROW_LABELS, COLUMN_LABELS = 110, 60  # rows and columns of a map up to which each has its label
LABEL_LENGTH, COLUMN_LENGTH = 40, 24  # characters of a label on an axis, and of one below a map
LETTER, HALF_PAGE = 7, 400  # pixels: labels that do not fit beside each other on half a page stand upright
CELLS_WITH_NUMBERS = 400  # cells of a map up to which the numbers are written in them


@dataclass(frozen=True, eq=False)
class Series:
    """One line: a value for each x, and its interval where it has one (NaN where it has none)."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    second_axis: bool = False  # read on the right
    reference: bool = False  # a level to compare with, which does not stretch the axis

    @property
    def bounds(self) -> np.ndarray:
        """Points × (low, high)."""
        unknown = [np.nan] * len(self.y)
        return np.array([self.low or unknown, self.high or unknown], float).T.round(ROUNDING)


def lines(
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str = "",
    *,
    name: str = "",
    bounds: tuple[str, str] | None = ("low", "high"),
) -> list[Series]:
    """One line per value of the column `by`, or one line called `name`; `bounds` are the columns of its interval."""
    groups = frame.groupby(by, sort=False) if by else [(name or y, frame)]
    known = bounds is not None and set(bounds) <= set(frame.columns)
    series = []
    for label, group in groups:
        rows = group.sort_values(x, kind="stable")
        low, high = (rows[column].tolist() for column in bounds) if known and bounds else (None, None)
        places = rows[x].astype(int) if pd.api.types.is_integer_dtype(rows[x]) else rows[x]
        series.append(Series(str(label), places.tolist(), rows[y].tolist(), low, high))
    return series


def level(name: str, x: Iterable[Any], value: float) -> Series:
    """A horizontal line to compare with."""
    places = list(x)
    return Series(name, [min(places), max(places)], [value] * 2, reference=True)


def line_chart(
    series: Sequence[Series],
    *,
    x: str,
    y: str,
    second_y: str = "",
    step: float | None = None,
    log: bool = False,
    from_zero: bool = False,
    x_from_zero: bool = False,
) -> go.Figure:
    """Lines over a common axis, with their intervals as bands; `step` is the distance between ticks of the x axis."""
    span, drawn = _span(series), []
    for place, one in enumerate(series):
        name = one.name
        if span and one.reference and not span[0] <= one.y[0] <= span[1]:  # its value stands in the legend
            name += f" {one.y[0]:.3f} ({'below' if one.y[0] < span[0] else 'above'} the axis)"
        drawn += _traces(replace(one, name=name), place, x)
    drawn.sort(key=lambda trace: trace.fill is None)  # bands below lines
    right = {
        "title": {"text": plain(second_y)},
        "overlaying": "y",
        "side": "right",
        "showgrid": False,
        "tickmode": "auto",
    }
    layout = {
        "template": "none",
        "height": 420,
        "margin": {**MARGIN, "r": 56 if second_y else 14},
        "xaxis": {
            "title": {"text": plain(x), "standoff": 6},
            "zeroline": False,
            "showgrid": False,
            "automargin": True,
            **({} if step is None else {"tick0": 0, "dtick": step}),
            **(_log_axis(series) if log else {}),
            **({"rangemode": "tozero"} if x_from_zero else {}),
        },
        "yaxis": {
            "title": {"text": plain(y), "standoff": 10},
            "automargin": True,
            "zeroline": False,
            **({"rangemode": "tozero"} if from_zero else {}),
            **({} if span is None else {"range": list(span)}),
        },
        **({"yaxis2": {**right, "automargin": True, "zeroline": False}} if second_y else {}),
        "legend": LEGEND,
        "showlegend": len(series) != 1 or series[0].name != y,  # the axis says as much
        "hovermode": "closest",
    }
    return go.Figure(drawn, layout)


def layer_chart(series: Sequence[Series], *, y: str, from_zero: bool = False) -> go.Figure:
    """Lines over layers, with a tick at every layer, or at every second, third … of many."""
    places = [x for one in series for x in one.x]
    depth = max(places) - min(places) if places else 0
    return line_chart(series, x="layer", y=y, step=max(1, -(-int(depth) // 12)), from_zero=from_zero)


def interval_chart(
    names: Sequence[str],
    values: Sequence[float],
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    *,
    x: str,
    bound: float | None = None,
) -> go.Figure:
    """A dot with its interval per name, from the top; `bound` is drawn as a line to compare with."""
    value = np.array(values, float).round(ROUNDING)
    bounds = np.array([values if low is None else low, values if high is None else high], float).T.round(ROUNDING)
    trace = go.Scatter(
        x=value.tolist(),
        y=list(range(len(names))),
        error_x={
            "type": "data",
            "symmetric": False,
            "array": (bounds[:, 1] - value).clip(min=0).tolist(),
            "arrayminus": (value - bounds[:, 0]).clip(min=0).tolist(),
            "color": _colour(0),
            "thickness": 2,
        },
        customdata=[[plain(name), *both] for name, both in zip(names, bounds.tolist(), strict=True)],
        mode="markers",
        marker={"color": _colour(0), "size": 10, "symbol": MARKERS[0]},
        showlegend=False,
        hovertemplate=f"<b>%{{customdata[0]}}</b><br>{plain(x)} <b>%{{x:.4g}}</b>{interval_text(bounds[:, 0], 1)}"
        "<extra></extra>",
    )
    line = {"type": "line", "x0": bound, "x1": bound, "yref": "y domain", "y0": 0, "y1": 1}
    axis = {"zeroline": False, "automargin": True}
    layout = {
        "template": "none",
        "height": 130 + 30 * len(names),
        "margin": MARGIN,
        "xaxis": {**axis, "title": {"text": plain(x), "standoff": 6}},
        "yaxis": {**axis, **_ticks(names, ROW_LABELS), "showgrid": False, "range": [len(names) - 0.5, -0.5]},
        "shapes": [] if bound is None else [{**line, "line": {"color": _colour(1), "width": 2, "dash": "dash"}}],
        "hovermode": "closest",
    }
    return go.Figure([trace], layout)


def frame_dots(
    frame: pd.DataFrame, names: Sequence[str], value: str, *, x: str, bound: float | None = None
) -> go.Figure:
    """An interval chart of the rows of a table, with its columns low and high."""
    low, high = (frame[column].tolist() if column in frame else None for column in ("low", "high"))
    return interval_chart(names, frame[value].tolist(), low, high, x=x, bound=bound)


def square(frame: pd.DataFrame, rows: str, columns: str, values: str) -> pd.DataFrame:
    """One row per value of `rows` and one column per value of `columns`, in the order in which they occur."""
    last = frame.drop_duplicates([rows, columns], keep="last")
    wide = last.pivot(index=rows, columns=columns, values=values)
    return wide.reindex(index=frame[rows].unique(), columns=frame[columns].unique())


def value_map(table: pd.DataFrame, *, x: str, y: str, colours: str) -> go.Figure:
    """A map of the values of a table, rows from the top; missing ones stay blank. `colours` says what they mean."""
    rows, columns = ([str(name) for name in names] for names in (table.index, table.columns))
    z = table.to_numpy(dtype=float).round(ROUNDING)
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
    bar = {"thickness": 12, "outlinewidth": 0, "title": {"text": plain(colours), "side": "right"}}
    row_height = min(26, max(13, 1400 // max(len(rows), 1)))  # so that every label of up to a hundred rows fits
    below = _ticks(columns, COLUMN_LABELS, COLUMN_LENGTH)
    longest = LETTER * max(map(len, below["ticktext"]), default=0)
    upright = longest if longest * len(below["ticktext"]) > HALF_PAGE else 0
    layout = {
        "template": "none",
        "height": 160 + row_height * len(rows) + upright,
        "margin": MARGIN,
        "xaxis": {**MAP_AXIS, **below, "title": {"text": plain(x), "standoff": 6}},
        "yaxis": {
            **MAP_AXIS,
            **_ticks(rows, ROW_LABELS),
            "tickangle": 0,
            "title": {"text": plain(y), "standoff": 10},
            "autorange": "reversed",
        },
        "coloraxis": {"colorscale": "Viridis", "colorbar": bar},
    }
    return go.Figure([trace], layout)


def chart_grid(charts: Mapping[str, go.Figure], *, columns: int = 2) -> go.Figure:
    """Charts of the same kind side by side under their names, with one legend and one range of colours."""
    if len(charts) == 1:
        return next(iter(charts.values()))
    n_rows = -(-len(charts) // columns)
    layout: dict[str, Any] = {"template": "none", "hovermode": "closest", "annotations": []}
    traces, named, height = [], set(), 0.0
    for place, (name, chart) in enumerate(charts.items()):
        parts = chart.to_plotly_json()
        number = "" if place == 0 else str(place + 1)
        row, column = divmod(place, columns)
        left, right = column / columns + 0.03, (column + 1) / columns - 0.03
        bottom, top = 1 - (row + 1) / n_rows + 0.12 / n_rows, 1 - row / n_rows - 0.1 / n_rows
        for trace in parts["data"]:
            label = trace.get("name")
            traces.append({**trace, "xaxis": f"x{number}", "yaxis": f"y{number}"})
            if label is not None:
                traces[-1] |= {"legendgroup": label, "showlegend": trace.get("showlegend", label not in named)}
                named.add(label)
        for letter, other, domain in (("x", "y", (left, right)), ("y", "x", (bottom, top))):
            layout[f"{letter}axis{number}"] = {
                **parts["layout"].get(f"{letter}axis", {}), "domain": list(domain), "anchor": f"{other}{number}",
            }  # fmt: skip
        title = {
            "text": plain(shortened(name, 2 * LABEL_LENGTH)),
            "x": (left + right) / 2,
            "y": top,
            "yanchor": "bottom",
            "xanchor": "center",
        }
        if column:
            layout[f"yaxis{number}"].pop("title", None)  # the first chart of the row says it
        layout["annotations"].append({**title, "xref": "paper", "yref": "paper", "showarrow": False})
        layout |= {key: parts["layout"][key] for key in ("coloraxis", "barmode", "legend") if key in parts["layout"]}
        height = max(height, parts["layout"].get("height", 420) * 0.8)
    layout |= {"height": 80 + height * n_rows, "margin": {**MARGIN, "b": 80}, "showlegend": len(named) > 1}
    return go.Figure(traces, layout)


def stacked_bars(frame: pd.DataFrame, x: str, y: str, by: str, *, x_title: str, y_title: str) -> go.Figure:
    """Stacked bars of shares: one stack per value of `x`, one part per value of `by`."""
    bars = [
        go.Bar(
            x=[f"{place:g}" for place in rows[x]],
            y=rows[y].round(ROUNDING).tolist(),
            name=plain(name),
            marker={"color": _colour(place), "pattern": {"shape": PATTERNS[place % len(PATTERNS)]}},
            hovertemplate=f"{plain(x_title)} %{{x}}<br>%{{fullData.name}}: <b>%{{y:.1%}}</b><extra></extra>",
        )
        for place, (name, rows) in enumerate(frame.groupby(by, sort=False))
    ]
    layout = {
        "template": "none",
        "height": 420,
        "barmode": "stack",
        "margin": MARGIN,
        "xaxis": {"title": {"text": plain(x_title), "standoff": 6}, "type": "category", "automargin": True},
        "yaxis": {"title": {"text": plain(y_title), "standoff": 10}, "tickformat": ".0%", "automargin": True},
        "legend": LEGEND,
        "showlegend": True,
    }
    return go.Figure(bars, layout)


def layer_bars(frame: pd.DataFrame, y: str) -> go.Figure:
    """One bar per layer: a count, of which nothing lies between two layers."""
    rows = frame.sort_values("layer", kind="stable")
    figure = layer_chart(lines(rows, "layer", y, bounds=None), y=y, from_zero=True)
    figure.data = ()
    figure.add_bar(
        x=rows["layer"].tolist(),
        y=rows[y].tolist(),
        marker={"color": _colour(0)},
        hovertemplate=f"layer %{{x}}<br>{plain(y)} <b>%{{y:,}}</b><extra></extra>",
    )
    return figure.update_layout(showlegend=False)


def box_chart(frame: pd.DataFrame, names: str, *, x: str, y: str) -> go.Figure:
    """One box per row, from its columns q05, q25, median, q75 and q95."""
    figure = line_chart([], x=x, y=y)
    quantiles = {"lowerfence": "q05", "q1": "q25", "median": "median", "q3": "q75", "upperfence": "q95", "mean": "mean"}
    figure.add_box(
        x=[plain(name) for name in frame[names]],
        marker={"color": _colour(0)},
        **{key: frame[column].tolist() for key, column in quantiles.items()},
    )
    figure.update_layout(showlegend=False)
    return figure.update_xaxes(type="category")  # else labels such as 1 or 2020-01-01 would be numbers and dates


def word_picture(table: pd.DataFrame) -> go.Figure:
    """Words (columns) by neurons (rows): red above the neuron's mean, blue below, in standard deviations."""
    neurons = list(dict.fromkeys(table["neuron"]))
    places = table.drop_duplicates(["sentence", "position"])
    words = [plain(word) for word in places["word"]]
    deviations = table["deviations"].to_numpy(dtype=float).reshape(len(neurons), len(words)).round(3)
    reach = float(max(np.abs(deviations).max(), 1.0))
    trace = go.Heatmap(
        x=list(range(len(words))),
        y=neurons,
        z=deviations.tolist(),
        customdata=[words] * len(neurons),
        colorscale="RdBu",
        reversescale=True,
        zmin=-reach,
        zmax=reach,
        xgap=1,
        ygap=1,
        colorbar={"thickness": 12, "outlinewidth": 0, "title": {"text": "deviations", "side": "right"}},
        hovertemplate="neuron <b>%{y}</b><br>%{customdata}: <b>%{z:.2f}</b> deviations<extra></extra>",
    )
    breaks = (np.flatnonzero(np.diff(places["sentence"].to_numpy())) + 0.5).tolist()
    rule = {"type": "line", "y0": 0, "y1": 1, "yref": "paper", "line": {"color": "#7F7F7F", "width": 2}}
    layout = {
        "template": "none",
        "height": 190 + 26 * len(neurons),
        "margin": MARGIN,
        "xaxis": {**MAP_AXIS, "tickvals": list(range(len(words))), "ticktext": words, "tickangle": -60},
        "yaxis": {**MAP_AXIS, "type": "category", "autorange": "reversed", "title": {"text": "neuron", "standoff": 10}},
        "shapes": [{**rule, "x0": x, "x1": x} for x in breaks],
    }
    return go.Figure([trace], layout)


def has_marks(figure: go.Figure, least: int = 1) -> bool:
    """Whether so many cells, dots or bars with numbers are drawn; a box counts as two, a level to compare with not."""

    def count(trace: dict[str, Any]) -> int:
        if trace["type"] == "heatmap":
            return int((~np.isnan(np.asarray(trace["z"], dtype=float))).sum())
        if trace.get("mode") == "lines":  # bands, and levels to compare with
            return 0
        across, up = trace.get("x"), trace.get("median", trace.get("y"))
        places = [] if across is None or up is None else list(zip(across, up, strict=False))
        return sum(all(map(is_number, place)) for place in places) * (2 if trace["type"] == "box" else 1)

    def is_number(value: object) -> bool:
        return value is not None and not (isinstance(value, float) and np.isnan(value))

    return sum(map(count, figure.to_plotly_json()["data"])) >= least


def plain(text: object) -> str:
    """Text that plotly shows as it is: markup and `%{…}` of its templates mean nothing in it."""
    return html.escape(str(text), quote=False).replace("%{", "&#37;{")


def shortened(name: str, room: int) -> str:
    """A name without its middle where it is longer than `room`."""
    if len(name) <= room:
        return name
    kept = max(room - 1, 1)
    return f"{name[: -(-kept // 2)]}…{name[len(name) - kept // 2 :]}"


def _span(series: Sequence[Series]) -> tuple[float, float] | None:
    """The range of the y axis where reference lines would flatten the other lines; else plotly chooses."""
    curves = [one for one in series if not one.reference and not one.second_axis]
    levels = np.array([one.y[0] for one in series if one.reference], float)
    values = np.concatenate(
        [np.asarray(one.y, float) for one in curves] + [one.bounds.ravel() for one in curves] + [[]]
    )
    if np.isnan(values).all() or np.isnan(levels).all():
        return None
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    width = high - low
    far = max(low - np.nanmin(levels), np.nanmax(levels) - high)
    if width == 0 or far <= 0.75 * width:
        return None
    near = levels[(levels >= low - 0.75 * width) & (levels <= high + 0.75 * width)]
    low, high = min([low, *near]), max([high, *near])
    return round(low - 0.08 * width, ROUNDING), round(high + 0.08 * width, ROUNDING)


def _log_axis(series: Sequence[Series]) -> dict[str, Any]:
    """A logarithmic axis with ticks at 1, 2 and 5 of every power of ten."""
    places = [x for one in series for x in one.x if x > 0] or [1.0]
    powers = range(math.floor(math.log10(min(places))), math.ceil(math.log10(max(places))) + 1)
    values = [part * 10**power for power in powers for part in (1, 2, 5)]
    values = [value for value in values if 0.5 * min(places) <= value <= 2 * max(places)]
    return {"type": "log", "tickvals": values, "ticktext": [f"{value:,g}" for value in values]}


def _colour(place: int) -> str:
    return LINE_COLOURS[place % len(LINE_COLOURS)]


def interval_text(low: np.ndarray, place: int) -> str:
    """The line of the interval in a hover text, if there are intervals; `place` is that of `low` in the custom data."""
    if np.isnan(low).all():
        return ""
    return f"<br>{CONFIDENCE} interval %{{customdata[{place}]:.3f}} to %{{customdata[{place + 1}]:.3f}}"


def _traces(series: Series, place: int, x: str) -> list[go.Scatter]:
    """The band of a series, and its line, whose colour, dash and marker no other of the first 28 has."""
    name, beside = plain(series.name), interval_text(series.bounds[:, 0], 0)
    known = ~np.isnan(series.bounds).any(axis=1)
    places, (low, high) = np.asarray(series.x)[known].tolist(), series.bounds[known].T.tolist()
    red, green, blue = (int(_colour(place)[i : i + 2], 16) for i in (1, 3, 5))
    band = go.Scatter(
        x=places + places[::-1],
        y=high + low[::-1],
        yaxis="y2" if series.second_axis else None,
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.2)",
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        legendgroup=str(place),
        showlegend=False,
    )
    line = go.Scatter(
        x=list(series.x),
        y=np.asarray(series.y, float).round(ROUNDING).tolist(),
        yaxis="y2" if series.second_axis else None,
        customdata=series.bounds.tolist(),
        name=name,
        mode="lines" if series.reference else "lines+markers",
        legendgroup=str(place),
        line={"color": _colour(place), "width": 2.5, "dash": DASHES[place % len(DASHES)]},
        marker={"symbol": MARKERS[place % len(MARKERS)], "size": 8},
        hovertemplate=f"<b>{name}</b>, {plain(x)} %{{x}}<br>value <b>%{{y:.4g}}</b>{beside}<extra></extra>",
    )
    return [band, line] if places else [line]


def _ticks(names: Sequence[str], most: int, length: int = LABEL_LENGTH) -> dict[str, Any]:
    step = -(-len(names) // most) or 1
    places = list(range(0, len(names), step))
    return {"tickvals": places, "ticktext": [plain(shortened(names[place], length)) for place in places]}
