"""Drawings of a `redundancy` run, each from one of its tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.charts import LEGEND, Series, colour, line_chart, plain, value_map

WINDOWS = {
    "1": "one layer",
    "2": "two neighbouring layers",
    "3": "three neighbouring layers",
    "further": "further apart",
}
PATTERNS = ("", "/", "x", ".")


def threshold_curve(table: pd.DataFrame, metric: str = "accuracy") -> go.Figure:
    """Neurons left (left axis) and the score of a probe on them (right axis) over the clustering threshold."""
    thresholds = table["threshold"].tolist()
    lines = [Series("neurons left", thresholds, table["neurons"].tolist())]
    if "test" in table:
        low, high = table["low"].tolist(), table["high"].tolist()
        lines.append(Series(f"{metric} on test", thresholds, table["test"].tolist(), low, high, second_axis=True))
        if table["control"].notna().to_numpy().any():
            lines.append(Series("control task", thresholds, table["control"].tolist(), second_axis=True))
    second = metric if "test" in table else ""
    return line_chart(lines, x="clustering threshold", y="neurons", second_y=second, step=0.1)


def layer_scores(table: pd.DataFrame, oracle: float, required: float, metric: str = "accuracy") -> go.Figure:
    """The score of each layer alone, beside that of all layers (`oracle`) and what counts as enough on dev."""
    layers = table["layer"].tolist()
    ends = [layers[0], layers[-1]]
    lines = [
        Series(f"{metric} on test", layers, table["test"].tolist(), table["low"].tolist(), table["high"].tolist()),
        Series(f"{metric} on dev", layers, table["dev"].tolist()),
        Series("all layers, on test", ends, [oracle] * 2),
        Series("enough on dev", ends, [required] * 2),
    ]
    for column, name in (("control", "control task"), ("random_twin", "random twin")):
        if column in table and table[column].notna().to_numpy().any():
            lines.append(Series(name, layers, table[column].tolist()))
    return line_chart(lines, x="layer", y=metric, step=1)


def survivor_map(table: pd.DataFrame, rule: str) -> go.Figure:
    """Share of each layer's neurons that a rule keeps at each threshold."""
    shares = table.assign(share=table[rule] / table["neurons"])
    square = shares.pivot_table(index="layer", columns="threshold", values="share")
    return value_map(
        square.to_numpy(dtype=float).tolist(),
        [str(layer) for layer in square.index],
        [f"{threshold:g}" for threshold in square.columns],
        x="threshold",
        y="layer",
        colours="share kept",
    )


def window_bars(table: pd.DataFrame, share: str) -> go.Figure:
    """Stacked bars: over how many layers clusters reach, at each threshold."""
    bars = [
        go.Bar(
            x=own["threshold"].map("{:g}".format).tolist(),
            y=own[share].round(4).tolist(),
            name=WINDOWS.get(str(window), str(window)),
            marker={"color": colour(place), "pattern": {"shape": PATTERNS[place % len(PATTERNS)]}},
            hovertemplate="threshold %{x}<br>%{fullData.name}: <b>%{y:.1%}</b><extra></extra>",
        )
        for place, (window, own) in enumerate(table.groupby("window", sort=False))
    ]
    return go.Figure(bars, _bar_layout())


def cluster_picture(table: pd.DataFrame) -> go.Figure:
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
    return go.Figure([trace], _picture_layout(words, len(neurons), places["sentence"].to_numpy()))


def _bar_layout() -> dict[str, Any]:
    return {
        "template": "none",
        "height": 420,
        "barmode": "stack",
        "margin": {"l": 56, "r": 14, "t": 30, "b": 44},
        "xaxis": {"title": {"text": "clustering threshold", "standoff": 6}, "type": "category", "automargin": True},
        "yaxis": {"title": {"text": "share of clusters", "standoff": 10}, "tickformat": ".0%", "automargin": True},
        "legend": LEGEND,
        "showlegend": True,
    }


def _picture_layout(words: list[str], n_neurons: int, sentences: np.ndarray) -> dict[str, Any]:
    breaks = np.flatnonzero(np.diff(sentences)) + 0.5
    lines = [
        {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": {"color": "#7F7F7F", "width": 2}}
        for x in breaks.tolist()
    ]
    axis = {"showgrid": False, "zeroline": False, "ticks": "", "automargin": True}
    return {
        "template": "none",
        "height": 190 + 26 * n_neurons,
        "margin": {"l": 56, "r": 14, "t": 30, "b": 44},
        "xaxis": {**axis, "tickvals": list(range(len(words))), "ticktext": words, "tickangle": -60},
        "yaxis": {**axis, "type": "category", "autorange": "reversed", "title": {"text": "neuron", "standoff": 10}},
        "shapes": lines,
    }
