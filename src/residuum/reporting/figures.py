"""Drawings of similarities and curves, each from a tidy table. They can be used without a page.

Colours are safe for colour-blind readers: viridis for maps, the palette of Okabe and Ito (2008) for lines, which
differ in dash and marker too. Names from data are escaped, since plotly reads some HTML in its labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.errors import DataError, SettingError
from residuum.reporting.charts import ROUNDING, Series, interval_text, line_chart, plain
from residuum.reporting.measures import curve_term, main_measure, measure_term

CELLS_WITH_NUMBERS = 16  # layers in a map up to which the numbers stand in the cells
AXIS_LABELS = 36  # layers on an axis up to which each has its number
NAME_WIDTH = 78  # characters of model names that a map has room for
NULL_TEXT = "<br>with permuted words %{customdata[4]:.3f}"

PAIR_COLUMNS = ("measure", "model_a", "layer_a", "model_b", "layer_b", "value", "low", "high", "null")
CURVE_COLUMNS = ("model", "layer", "curve", "measure", "value", "low", "high")


def heatmap(frame: pd.DataFrame, measure: str) -> go.Figure:
    """One measure over all layers of all models, a block for each pair of models, set apart and labelled.

    `frame` is that of `compare`. A cell compares its row's layer with its column's.
    """
    _require_columns(frame, PAIR_COLUMNS)
    rows = _rows(frame, "measure", measure)
    if rows.duplicated(list(PAIR_COLUMNS[1:5])).any():
        raise DataError(f"The table has pairs of layers twice for {measure}; give the frame of one comparison.")
    blocks = _blocks(rows)
    pairs = dict(list(rows.groupby(["model_a", "model_b"], sort=False)))
    traces = [
        _map_block(pairs[a.model, b.model], a, b, n_layers=_length(blocks))
        for a, b in product(blocks, blocks)
        if (a.model, b.model) in pairs
    ]
    return go.Figure(traces, _map_layout(blocks, measure, _colour_range(rows["value"].to_numpy(dtype=float))))


def curves(frame: pd.DataFrame, curve: str, measure: str | None = None) -> go.Figure:
    """One curve over the layers of each model, with its intervals as bands.

    `frame` is the table `curves` of `compare`. Without a measure, CKA is drawn, or the first that is there.
    """
    _require_columns(frame, CURVE_COLUMNS)
    rows = _rows(frame, "curve", curve)
    rows = _rows(rows, "measure", measure or main_measure(rows["measure"]))
    depth = max(rows["layer"].tolist()) - min(rows["layer"].tolist())
    axis = curve_term(curve).axis or measure_term(rows["measure"].iloc[0]).title
    lines = [_series(str(model), own.sort_values("layer")) for model, own in rows.groupby("model", sort=False)]
    return line_chart(lines, x="layer", y=axis, step=max(1, -(-depth // 12)))


@dataclass(frozen=True)
class Block:
    """One model's stretch of an axis: its layers, one unit each, from `start`."""

    model: str
    layers: tuple[int, ...]
    start: float

    @property
    def centres(self) -> list[float]:
        """Where each layer is."""
        return [round(self.start + 0.5 + i, 3) for i in range(len(self.layers))]

    @property
    def end(self) -> float:
        """Where the stretch ends."""
        return self.start + len(self.layers)


def _require_columns(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise DataError(
            f"The table has no column {', '.join(missing)}; expected {', '.join(columns)}, as `compare` writes them."
        )


def _rows(frame: pd.DataFrame, column: str, value: str) -> pd.DataFrame:
    rows = frame.loc[frame[column] == value]
    if rows.empty:
        there = ", ".join(frame[column].unique()) or "none"
        raise SettingError(f"The {column} {value} is not in the table; there are {there}.")
    return rows


def _blocks(rows: pd.DataFrame) -> list[Block]:
    layers = rows[["model_a", "layer_a"]].drop_duplicates()
    gap = max(0.25, len(layers) / 80)  # wide enough to see, whatever the number of layers
    blocks, start = [], 0.0
    for model, own in layers.groupby("model_a", sort=False):
        blocks.append(Block(str(model), tuple(sorted(own["layer_a"].tolist())), start))
        start = blocks[-1].end + gap
    return blocks


def _length(blocks: list[Block]) -> int:
    return sum(len(block.layers) for block in blocks)


def _colour_range(values: np.ndarray) -> tuple[float, float]:
    """From the tenth below the lowest value to the tenth above the highest, so that the colours tell most."""
    if np.isnan(values).all():
        return 0.0, 1.0
    low, high = np.floor(np.nanmin(values) * 10) / 10, np.ceil(np.nanmax(values) * 10 - 1e-6) / 10
    return (float(low), float(high)) if high > low else (float(low), float(low) + 0.1)


def _map_block(rows: pd.DataFrame, a: Block, b: Block, *, n_layers: int) -> go.Heatmap:
    """One pair of models."""
    value, low, high, null = _squares(rows, a, b)
    layers = np.meshgrid(a.layers, b.layers, indexing="ij")
    beside = interval_text(low, 2) + ("" if np.isnan(null).all() else NULL_TEXT)
    return go.Heatmap(
        x=b.centres,
        y=a.centres,
        z=value.tolist(),
        customdata=np.stack([*layers, low, high, null], axis=-1).tolist(),
        coloraxis="coloraxis",
        hovertemplate=(
            f"<b>{plain(a.model)}</b>, layer %{{customdata[0]}}<br><b>{plain(b.model)}</b>, layer %{{customdata[1]}}"
            f"<br>value <b>%{{z:.3f}}</b>{beside}<extra></extra>"
        ),
        hoverongaps=False,
        texttemplate="%{z:.2f}" if n_layers <= CELLS_WITH_NUMBERS else None,
        xgap=1 if n_layers <= AXIS_LABELS else 0,
        ygap=1 if n_layers <= AXIS_LABELS else 0,
    )


def _squares(rows: pd.DataFrame, a: Block, b: Block) -> list[np.ndarray]:
    """Value, low, high and null, each layers of a × layers of b; NaN where a pair is not in the table."""
    parts = ["value", "low", "high", "null"]
    pairs = pd.MultiIndex.from_product([a.layers, b.layers])
    found = rows.set_index(["layer_a", "layer_b"])[parts].reindex(pairs).to_numpy(dtype=float).round(ROUNDING)
    return list(found.T.reshape(len(parts), len(a.layers), len(b.layers)))


def _map_layout(blocks: list[Block], measure: str, colours: tuple[float, float]) -> dict[str, Any]:
    axis = {
        "tickvals": [centre for block in blocks for centre in block.centres],
        "ticktext": list(_layer_labels(blocks)),
        "tickangle": 0,
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
        "constrain": "domain",
    }
    return {
        "template": "none",
        "width": 720,
        "height": 800,
        "margin": {"l": 62, "r": 14, "t": 50, "b": 112},
        "xaxis": {**axis, "range": [0, blocks[-1].end], "title": {"text": "layer", "standoff": 4}},
        "yaxis": {**axis, "range": [blocks[-1].end, 0], "scaleanchor": "x"},
        "coloraxis": {
            "colorscale": "Viridis",
            "cmin": colours[0],
            "cmax": colours[1],
            "colorbar": {
                "orientation": "h",
                "thickness": 12,
                "len": 0.7,
                "outlinewidth": 0,
                "yref": "container",
                "y": 0,
                "yanchor": "bottom",
                "ypad": 4,
                "nticks": 6,
            },
        },
        # The name of the colours stands above them; plotly lets a title of the colour bar itself fall into the bar.
        "title": {
            "text": plain(measure_term(measure).title),
            "font": {"size": 13},
            "xref": "paper",
            "x": 0.5,
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "pad": {"b": 40},
        },
        "annotations": list(_model_names(blocks)),
        # With these the page fits the labels again when its width changes.
        "meta": {"models": [{"name": block.model, "layers": list(block.layers)} for block in blocks]},
    }


def _layer_labels(blocks: list[Block]) -> Iterator[str]:
    """The number of every layer, or of every second, third … where they are too many to label."""
    step = -(-_length(blocks) // AXIS_LABELS)
    for block in blocks:
        length = len(block.layers)
        for i, layer in enumerate(block.layers):
            free = i % step == 0 and (i == 0 or length - i >= step / 2)  # of the next model's first label
            yield str(layer) if free else ""


def _model_names(blocks: list[Block]) -> Iterator[dict[str, Any]]:
    """The models above their columns and, turned, beside their rows; cut to fit, whole on hover."""
    for block in blocks:
        room = int(NAME_WIDTH * len(block.layers) / _length(blocks))
        common = {
            "text": plain(shortened(block.model, room)),
            "hovertext": plain(block.model),
            "showarrow": False,
        }
        middle = (block.start + block.end) / 2
        yield {**common, "x": middle, "y": 1, "yref": "y domain", "yanchor": "bottom", "yshift": 4}
        yield {
            **common,
            "x": 0,
            "xref": "x domain",
            "y": middle,
            "textangle": -90,
            "xanchor": "right",
            "xshift": -26,
        }


def shortened(name: str, room: int) -> str:
    """A name with its middle left out where it is longer than there is room."""
    if len(name) <= room:
        return name
    kept = max(room - 1, 1)
    return f"{name[: -(-kept // 2)]}…{name[len(name) - kept // 2 :]}"


def _series(model: str, line: pd.DataFrame) -> Series:
    layers, value, low, high = (line[column].tolist() for column in ("layer", "value", "low", "high"))
    return Series(model, layers, value, low, high)
