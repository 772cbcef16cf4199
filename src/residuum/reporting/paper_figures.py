"""The figures of the report for papers, drawn by matplotlib: the same data, labels and colours, on white.

It knows what the report draws: maps, lines with bands, dots with intervals, stacked bars and boxes.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from residuum.errors import SettingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.5  # inches: the text of a page with one column
RATIO = 0.62  # of height to width, for what is no map
CELL, MARGIN = 0.24, 1.5  # inches of a map's row, and of what stands around the rows
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "x": "X"}
HATCHES = {"": "", "/": "//", "x": "xx", ".": "..", "\\": "\\\\", "-": "--", "|": "||", "+": "++"}
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text, as publishers ask
    "svg.fonttype": "none",
    "svg.hashsalt": "residuum",  # the same figure is the same file
}

DATELESS = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}  # of the metadata
RESOLUTION = 300  # dots an inch, of png

Part = Mapping[str, Any]


def paper_figure(figure: go.Figure) -> Figure:
    """A matplotlib figure that shows what a plotly figure of the report shows."""
    matplotlib = _matplotlib()
    parts = figure.to_plotly_json()
    traces, layout = parts["data"], parts["layout"]
    if "xaxis2" in layout:
        with matplotlib.rc_context(STYLE):
            return _chart_grid(traces, layout)
    maps = [trace for trace in traces if trace["type"] == "heatmap"]
    height = WIDTH * RATIO
    if maps:
        is_square = layout.get("yaxis", {}).get("scaleanchor")
        height = WIDTH * 0.95 if is_square else MARGIN + CELL * max(len(trace["y"]) for trace in maps)
    with matplotlib.rc_context(STYLE):
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = drawn.add_subplot()
        right = axes.twinx() if "yaxis2" in layout else axes
        for trace in traces:
            DRAW[trace["type"]](right if trace.get("yaxis") == "y2" else axes, trace, layout)
        _dress(drawn, axes, right, layout)
        if maps:
            bar = maps[0].get("colorbar") or layout.get("coloraxis", {}).get("colorbar", {})
            drawn.colorbar(axes.collections[0], ax=axes, label=_title(bar) or _title(layout), shrink=0.8, pad=0.02)
    return drawn


def _chart_grid(traces: list[Part], layout: Part) -> Figure:
    """Charts side by side, as `chart_grid` arranges them: two in a row, their names above, one legend below."""
    from matplotlib.figure import Figure

    numbers = [key.removeprefix("xaxis") for key in layout if key.startswith("xaxis")]
    n_rows = -(-len(numbers) // 2)
    drawn = Figure(figsize=(WIDTH, 1.9 * n_rows + 0.4), layout="constrained")
    places = drawn.subplots(n_rows, 2, squeeze=False).ravel().tolist()
    handles: dict[str, Any] = {}
    for axes, number, name in zip(places, numbers, layout["annotations"], strict=False):
        own = {
            "xaxis": layout[f"xaxis{number}"],
            "yaxis": layout[f"yaxis{number}"],
            "coloraxis": layout.get("coloraxis", {}),
        }
        for trace in traces:
            if trace["xaxis"] == f"x{number}":
                DRAW[trace["type"]](axes, trace, own)
        _dress(drawn, axes, axes, own)
        axes.set_title(_text(name["text"]))
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True) if label}
    for axes in places[len(numbers) :]:
        axes.set_axis_off()
    if len(handles) > 1:
        drawn.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3)
    if maps := [axes for axes in places if axes.collections and "coloraxis" in layout]:
        bar = layout["coloraxis"].get("colorbar", {})
        drawn.colorbar(maps[0].collections[0], ax=maps, label=_title(bar), shrink=0.8, pad=0.02)
    return drawn


def save_paper_figure(figure: go.Figure, path: Path, format: str) -> None:
    """Write that figure as pdf, svg or png; the same figure is the same bytes."""
    drawn = paper_figure(figure)
    with _matplotlib().rc_context(STYLE):
        drawn.savefig(path, format=format, dpi=RESOLUTION, metadata=DATELESS.get(format, {}))


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise SettingError("Figures for papers need matplotlib: pip install 'residuum[figures]'.") from None
    return matplotlib


def _draw_map(axes: Axes, trace: Part, layout: Part) -> None:
    """Coloured cells; where the page writes numbers in them, dark ones on the light half of the colours."""
    z = np.array(trace["z"], dtype=float)
    x, y = _places(trace["x"]), _places(trace["y"])
    edges = [[places[0] - 0.5, *(place + 0.5 for place in places)] for places in (x, y)]
    low, high = _colour_range(z, trace, layout)
    colours = "RdBu_r" if trace.get("reversescale") else "viridis"
    axes.pcolormesh(*edges, z, cmap=colours, vmin=low, vmax=high, edgecolors="white", linewidth=0.4)
    if isinstance(trace["y"][0], str):
        axes.set_yticks(y, [_text(name) for name in trace["y"]])
    for row, column in np.argwhere(~np.isnan(z)) if trace.get("texttemplate") else ():
        ink, size = "black" if z[row, column] > (low + high) / 2 else "white", min(7.0, 110 / max(z.shape))
        number = f"{z[row, column]:.2f}"
        axes.text(x[column], y[row], number, ha="center", va="center", fontsize=size, color=ink)


def _draw_points(axes: Axes, trace: Part, layout: Part) -> None:
    if trace.get("fill") == "toself":  # a band, whose colour is rgba(…) with red, green and blue up to 255
        *rgb, alpha = (float(part) for part in trace["fillcolor"].removeprefix("rgba(").rstrip(")").split(","))
        axes.fill(trace["x"], trace["y"], color=(*(part / 255 for part in rgb), alpha), linewidth=0)
        return
    line, marker = trace.get("line", {}), trace.get("marker", {})
    shared = {
        "color": line.get("color") or marker.get("color"),
        "marker": MARKERS.get(marker.get("symbol", ""), "o") if "markers" in trace.get("mode", "") else "",
        "markersize": 4,
        "label": _text(trace.get("name") or ""),
    }
    if error := trace.get("error_x"):
        reach = [error["arrayminus"], error["array"]]
        axes.errorbar(trace["x"], trace["y"], xerr=reach, linestyle="none", capsize=2, **shared)
        return
    axes.plot(trace["x"], trace["y"], linestyle=DASHES.get(line.get("dash", "solid"), "-"), linewidth=1.3, **shared)


def _draw_bars(axes: Axes, trace: Part, layout: Part) -> None:
    """Bars on top of those drawn before."""
    below = [0.0] * len(trace["x"])
    for container in axes.containers:
        below = [old + bar.get_height() for old, bar in zip(below, container, strict=True)]
    marker, label = trace["marker"], _text(trace.get("name") or "")
    hatch = HATCHES.get(marker.get("pattern", {}).get("shape", ""), "")
    axes.bar(trace["x"], trace["y"], bottom=below, color=marker["color"], hatch=hatch, label=label)


def _draw_boxes(axes: Axes, trace: Part, layout: Part) -> None:
    keys = {"q1": "q1", "med": "median", "q3": "q3", "whislo": "lowerfence", "whishi": "upperfence"}
    names = [_text(name) for name in trace["x"]]
    boxes = [{"label": name, **{key: trace[own][i] for key, own in keys.items()}} for i, name in enumerate(names)]
    axes.bxp(boxes, showfliers=False)


DRAW: dict[str, Callable[[Axes, Part, Part], None]] = {
    "heatmap": _draw_map,
    "scatter": _draw_points,
    "bar": _draw_bars,
    "box": _draw_boxes,
}


def _dress(drawn: Figure, axes: Axes, right: Axes, layout: Part) -> None:
    """Titles, ticks, ranges and scales of the axes, lines across them, names above columns, and the legend."""
    for letter in ("x", "y"):
        axis = layout.get(f"{letter}axis", {})
        axes.set(**{f"{letter}label": _title(axis)})
        if "tickvals" in axis:
            labels = [_text(label) for label in axis.get("ticktext", axis["tickvals"])]
            axes.set(**{f"{letter}ticks": axis["tickvals"]})
            axes.set(**{f"{letter}ticklabels": labels})
            axes.tick_params(axis=letter, length=0, labelrotation=-(axis.get("tickangle") or 0))
        if axis.get("range"):
            axes.set(**{f"{letter}lim": axis["range"]})
        if axis.get("autorange") == "reversed":
            getattr(axes, f"invert_{letter}axis")()
        if axis.get("type") == "log":
            axes.set(**{f"{letter}scale": "log"})
        if axis.get("scaleanchor"):
            axes.set_aspect("equal")
    if right is not axes:
        right.set_ylabel(_title(layout["yaxis2"]))
    for shape in layout.get("shapes", ()):
        line = shape["line"]
        style = DASHES.get(line.get("dash", "solid"), "-")
        axes.axvline(shape["x0"], color=line["color"], linewidth=1, linestyle=style)
    size = "small" if len(layout.get("annotations", ())) <= 8 else "x-small"  # of names of models, two for each
    for label in layout.get("annotations", ()):
        if not label.get("textangle"):  # the name above the columns of a model
            axes.text(label["x"], axes.get_ylim()[1], _text(label["text"]), ha="center", va="bottom", fontsize=size)
        else:  # and beside its rows, outside of the numbers of its layers
            place: dict[str, Any] = {"xy": (0, label["y"]), "xycoords": ("axes fraction", "data")}
            place |= {"xytext": (-18, 0), "textcoords": "offset points", "rotation": 90}
            axes.annotate(_text(label["text"]), **place, ha="right", va="center", fontsize=size)
    both = [one.get_legend_handles_labels() for one in dict.fromkeys((axes, right))]
    handles = [handle for own, _ in both for handle in own]
    labels = [label for _, own in both for label in own]
    if layout.get("showlegend") and any(labels):
        drawn.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)))


def _colour_range(z: np.ndarray, trace: Part, layout: Part) -> tuple[float, float]:
    """The bounds of the colours: set, or the smallest and largest value."""
    axis = layout.get("coloraxis", {})
    low, high = trace.get("zmin", axis.get("cmin")), trace.get("zmax", axis.get("cmax"))
    if low is not None and high is not None:
        return float(low), float(high)
    known = z[~np.isnan(z)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)


def _places(values: list[Any]) -> list[float]:
    """Where the cells of an axis are: names stand at 0, 1, 2 …"""
    return [float(i) if isinstance(value, str) else float(value) for i, value in enumerate(values)]


def _title(part: Part) -> str:
    title = part.get("title") or {}
    return _text(title if isinstance(title, str) else title.get("text") or "")


def _text(label: object) -> str:
    """What a label of plotly says: its escapes and line breaks undone, and nothing in it read as a formula."""
    return html.unescape(str(label).replace("<br>", "\n")).replace("$", r"\$")
