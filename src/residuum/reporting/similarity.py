"""The section of `compare`: a map of all layers of all models, curves over layers, and what they show in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.errors import DataError, SettingError, StoreError
from residuum.reporting.charts import (
    ROUNDING,
    Series,
    interval_text,
    layer_chart,
    line_chart,
    lines,
    plain,
    shortened,
)
from residuum.reporting.content import SAID, Finding, Panel, Row, Section, TableSpec, View, records, views_by
from residuum.reporting.wording import (
    CONFIDENCE,
    count,
    curve_term,
    known_curves_first,
    layer_range,
    listed,
    main_measure,
    measure_group,
    measure_term,
    shown,
    with_interval,
)
from residuum.storage.results import Run

PAIR_COLUMNS = ("measure", "model_a", "layer_a", "model_b", "layer_b", "value", "low", "high", "null")
CURVE_COLUMNS = ("model", "layer", "curve", "measure", "value", "low", "high")
COMPARE_TABLES = {
    "layers": TableSpec(
        "Neurons of each layer, how many are constant, the share of its variance that one neuron has, the directions "
        "that SVCCA keeps, and the share of the variance that the first words of sentences carry.",
        "model, layer, neurons, constant, top_neuron, top_share, effective_rank",
    ),
    "models": TableSpec(
        "Model × model: the mean over layers of the highest similarity to a layer of the other model, and of all.",
    ),
    "outputs": TableSpec("How alike two models with heads over the same classes predict."),
    "similarity": TableSpec("Every pair of layers by every measure.", PAIR_COLUMNS),
    "beside": TableSpec("The same pairs over this text (value) and another (beside), and their difference."),
    "curves": TableSpec("Every curve, one value per layer.", CURVE_COLUMNS),
}
SAMPLED_MEASURES = (
    *("cka_rbf", "rsa", "distance_correlation", "knn", "knn_jaccard", "cknna"),
    *("second_order_cosine", "rank_similarity", "imd"),
)
OUTLIER_SHARE = 0.5
"""Share of a layer's variance from which one neuron decides SVCCA, CKA and Procrustes."""
REPORTED = (
    "words",
    "layers",
    "groups",
    "dead neurons",
    "outlier neurons",
    "few words",
    "words sampled",
    "beside",
    *SAID,
)  # in other sentences
BELOW = {"yref": "container", "y": 0, "yanchor": "bottom"}  # where the bar of colours and its title stand
COLOUR_BAR = {"orientation": "h", "thickness": 12, "len": 0.7, "outlinewidth": 0, "ypad": 4, "nticks": 6, **BELOW}
COLOUR_BAR |= {"tickangle": 0}  # labels at an angle would push the bar into its title
LAYERS_WITH_NUMBERS = 16  # layers in a map up to which the numbers are written in the cells
LAYER_LABELS = 36  # layers on an axis up to which each has its number
DIFFERENCE_MAPS = 6  # pairs of models whose maps are subtracted
NAME_WIDTH = 80  # characters of model names that a map has room for
TWIN = " (random)"  # after the name of a random twin: the same architecture with random weights


def comparison_section(run: Run) -> Section:
    """Which layers of these models are alike."""
    similarity, layers = run.tables["similarity"], run.tables["layers"]
    if similarity.empty:
        raise StoreError(
            f"{run.folder or 'This run'} is empty: its table similarity has no rows. Run `compare` again with --fresh."
        )
    models = layers["model"].unique().tolist()
    trained = _trained(models)
    subjects = listed(trained) if len(trained) <= 3 else f"these {len(trained)} models"
    main = main_measure(similarity["measure"])
    if main in str(run.summary.get("few words")) and "cka_debiased" in set(similarity["measure"]):
        main = "cka_debiased"  # the only one that few words do not raise
    curve = records(run.tables["curves"], curve="to_next_layer", measure=main, model=models[0])
    steps, of = [row["value"] for row in curve], f", {models[0]}" if len(models) > 1 else ""
    return Section(
        title=f"Which layers of {subjects} are alike?",
        facts={
            f"mean {measure_term(main).title} to the next layer{of}": f"{np.nanmean(steps):.3f}" if steps else None,
            "models": len(models),
            "layers": len(layers),
            "neurons": sum(layers["neurons"].tolist()),
            "words": run.summary.get("words"),
            "measures": similarity["measure"].nunique(),
        },
        findings=_findings(run, main),
        panels=[
            Panel(
                "Similarity of all layers of all models",
                "A cell compares the layer of its row with the layer of its column. Point at it for both layers, the "
                "value, its interval, and the value with permuted words.",
                similarity_views(similarity),
                first=main,
                shape="square",
            ),
            *_beside_panels(run, main),
            *_model_panels(run, main),
            *_output_panels(run),
            *_curve_panels(run, main),
        ],
    )


def _beside_panels(run: Run, main: str) -> Iterator[Panel]:
    """Where the similarities differ between two texts."""
    if "beside" not in run.tables:
        return
    other = run.summary["beside"]

    def draw(rows: pd.DataFrame) -> go.Figure:
        measure = str(rows["measure"].iloc[0])
        figure = heatmap(rows.assign(value=rows["difference"], null=np.nan), measure)
        reach = max(float(np.abs(rows["difference"].to_numpy(float)).max()), 0.01)
        title = plain(f"{measure_term(measure).title}, minus that over {shortened(other, 40)}")
        return figure.update_layout(
            coloraxis={"colorscale": "RdBu_r", "cmin": -reach, "cmax": reach}, title={"text": title}
        )

    yield Panel(
        "Does another text give the same similarities?",
        f"The similarity of two layers over this text minus that over {other}. White: equal.",
        measure_views(run.tables["beside"], "beside", draw),
        first=main,
        shape="square",
    )


def _model_panels(run: Run, main: str) -> Iterator[Panel]:
    """Model × model, and where two models have the same layers, how their maps differ."""
    if "models" not in run.tables or len(set(run.tables["models"]["model_a"])) < 2:
        return
    yield Panel(
        "Which models are alike?",
        "For each layer of the row's model the most similar layer of the column's, and the mean over layers. A model "
        "beside itself is compared with its other layers.",
        measure_views(run.tables["models"], "models", model_map),
        first=main,
        shape="square",
    )
    rows = run.tables["similarity"].query("measure == @main and model_a == model_b")
    squares = {
        str(model): model_rows.pivot_table(index="layer_a", columns="layer_b", values="value")
        for model, model_rows in rows.groupby("model_a", sort=False)
    }
    same = [(a, b) for a, b in combinations(squares, 2) if squares[a].index.equals(squares[b].index)]
    same = sorted(same, key=lambda pair: pair[1] != pair[0] + TWIN)[:DIFFERENCE_MAPS]  # models and their twins first
    views = [
        View(
            key=f"{a} − {b}",
            label=f"{a} − {b}",
            figure=_square_map(
                squares[a] - squares[b], "RdBu_r", f"{measure_term(main).title}, {a} − {b}", around_zero=True
            ),
            table="similarity",
            where={"measure": main, "model_a": (a, b), "model_b": (a, b)},
        )
        for a, b in same
    ]
    if views:
        note = (
            "The similarity of two layers in the first model minus that of the same layers in the second. White: equal."
        )
        yield Panel("How do the maps of two models differ?", note, tuple(views), choice="Models", shape="square")


def _output_panels(run: Run) -> Iterator[Panel]:
    """What models predict, for those that have heads over the same classes."""
    if "outputs" in run.tables:
        note = "The mean over words (over sentences where a head classifies them), for models with the same classes."
        views = measure_views(run.tables["outputs"], "outputs", lambda rows: model_map(rows, "value"))
        yield Panel("Do the models predict the same?", note, views, shape="square")


def _curve_panels(run: Run, main: str) -> Iterator[Panel]:
    """Curves over layers; over relative depth where models differ in the number of layers."""
    curves = run.tables["curves"]
    layers = run.tables["layers"]
    lengths = {max(model_layers["layer"]) for _, model_layers in layers.groupby("model")}
    depths = len(lengths) > 1 and "depth" in layers
    if depths:
        places = layers[["model", "layer", "depth"]]
        curves = curves.merge(places, on=["model", "layer"], how="left")
    for curve in known_curves_first(curves["curve"]):
        chart, x = (depth_chart, "depth") if depths else (layer_chart, "layer")
        yield curve_panel(curves, curve, chart, x, main)


def depth_chart(series: list[Series], y: str) -> go.Figure:
    """Lines of one value per layer over relative depth, from the embeddings (0) to the last layer (1)."""
    return line_chart(series, x="relative depth (0 embeddings, 1 last layer)", y=y)


def model_map(rows: pd.DataFrame, column: str = "best_layers") -> go.Figure:
    """One measure between whole models."""
    square = rows.pivot_table(index="model_a", columns="model_b", values=column, sort=False)
    square = square.reindex(columns=square.index)
    return _square_map(square, "Viridis", measure_term(str(rows["measure"].iloc[0])).title)


def _square_map(square: pd.DataFrame, colours: str, title: str, *, around_zero: bool = False) -> go.Figure:
    """A square of values with its labels, white at zero where it shows differences."""
    values = square.to_numpy(dtype=float).round(ROUNDING)
    reach = float(np.nanmax(np.abs(values))) or 1.0
    low, high = (-reach, reach) if around_zero else _colour_range(values)
    labels = [name_in_lines(str(label), 12) for label in square.index]
    below = [plain(shortened(str(label), 18)) for label in square.index]  # at an angle two lines would meet others
    places = list(range(len(labels)))
    trace = go.Heatmap(
        x=places,
        y=places,
        z=values.tolist(),
        colorscale=colours,
        zmin=low,
        zmax=high,
        texttemplate="%{z:.2f}" if len(labels) <= LAYERS_WITH_NUMBERS else None,
        hovertemplate="%{z:.3f}<extra></extra>",
        colorbar=COLOUR_BAR,
    )
    named = max(map(len, labels), default=0) > 3  # names of models, not numbers of layers
    axis = {"tickvals": places, "ticktext": labels, "ticks": "", "showgrid": False, "zeroline": False}
    layout = {
        "template": "none",
        "width": 720,
        "height": 720,
        "margin": {"l": 100 if named else 40, "r": 14, "t": 30, "b": 160 if named else 92},
        "xaxis": {**axis, "ticktext": below, "constrain": "domain", "tickangle": -35 if named else 0},
        "yaxis": {**axis, "constrain": "domain", "autorange": "reversed", "scaleanchor": "x"},
        "title": {
            "text": plain(title),
            "font": {"size": 13},
            "xref": "paper" if named else "container",
            "x": 0.5,
            **BELOW,
            "pad": {"b": 40},
        },
    }
    return go.Figure(trace, layout)


def similarity_views(table: pd.DataFrame) -> tuple[View, ...]:
    """A map of the table `similarity` for each of its measures."""

    def draw(rows: pd.DataFrame) -> go.Figure:
        return heatmap(rows, str(rows["measure"].iloc[0]))

    return measure_views(table, "similarity", draw, note=lambda measure: measure_term(measure).note)


def measure_views(
    frame: pd.DataFrame, table: str, draw: Callable[[pd.DataFrame], go.Figure], **rest: Any
) -> tuple[View, ...]:
    """One view per measure of a table, under its name for people."""
    label, group = (lambda measure: measure_term(measure).title), measure_group
    return views_by("measure", frame, table, draw, label=label, group=group, **rest)


def curve_panel(
    table: pd.DataFrame,
    curve: str,
    chart: Callable[..., go.Figure] = layer_chart,
    x: str = "layer",
    first: str = "",
) -> Panel:
    """One curve of the table `curves` per measure (`first` is shown first), with one line per model over column `x`."""
    term, rows = curve_term(curve), table.loc[table["curve"] == curve]

    def draw(measure_rows: pd.DataFrame) -> go.Figure:
        return chart(
            lines(measure_rows, x, "value", "model"), y=term.axis or measure_term(measure_rows["measure"].iloc[0]).title
        )

    views = measure_views(rows, "curves", draw, where={"curve": curve})
    first = first if first in set(rows["measure"]) else main_measure(rows["measure"])
    return Panel(term.title, term.note, views, first=first)


def _findings(run: Run, main: str) -> Iterator[Finding]:
    """What is worth saying first, all of it by one measure."""
    similarity, layers = run.tables["similarity"], run.tables["layers"]
    name = measure_term(main).title
    models = {str(model): model_layers["layer"].tolist() for model, model_layers in layers.groupby("model", sort=False)}
    if outliers := [row for row in records(layers) if (row["top_share"] or 0.0) > OUTLIER_SHARE]:
        yield Finding("Outlier neurons", _outlier_text(outliers, bool(run.config.get("standardize"))))
    if early := [row for row in records(layers) if row.get("first_word_share", 0.0) > OUTLIER_SHARE]:
        top = max(early, key=lambda row: row["first_word_share"])
        yield Finding(
            "First words",
            f"In {count(len(early), 'layer')} the first words of sentences carry more than half of the variance (layer "
            f"{top['layer']} of {top['model']}: {top['first_word_share']:.0%}), so similarities there are about these "
            "words; repeat with --skip-first 1.",
        )
    trained = _trained(models)
    curve = run.tables["curves"].query("measure == @main and value == value")
    if averages := records(curve, curve="layer_average"):
        yield Finding("Repetition", _repetition_text(averages, name, trained))
    if few := run.summary.get("few words"):
        per_neuron, _, names = few.partition(" per neuron, so high by chance: ")
        titles = listed([measure_term(measure).title for measure in names.split(", ")])
        yield Finding("Few words", f"There are {per_neuron} words per neuron, so these are high by chance: {titles}.")
    if steps := records(curve.query("model in @trained"), curve="to_next_layer"):
        step = min(steps, key=lambda row: row["value"])
        after = min(layer for layer in models[step["model"]] if layer > step["layer"])
        yield Finding(
            "Largest change",
            f"The largest change between neighbouring layers is from layer {step['layer']} to layer {after} of "
            f"{step['model']}: {name} {_estimate(step)}.",
        )
    pairs = [row for row in records(similarity, measure=main) if not np.isnan(row["value"])]
    pairs = [row for row in pairs if {row["model_a"], row["model_b"]} <= {*trained}]
    across = [row for row in pairs if row["model_a"] != row["model_b"]]
    pairs = across or [row for row in pairs if row["layer_a"] != row["layer_b"]]
    if pairs:
        topic = "Most alike across models" if across else "Most alike"
        yield Finding(topic, _pair_text(max(pairs, key=lambda row: row["value"]), name))
    if rows := records(run.tables["outputs"], measure="output_agreement") if "outputs" in run.tables else []:
        top = max(rows, key=lambda row: row["value"])
        text = f"{top['model_a']} and {top['model_b']} predict the same most often, at a rate of {_estimate(top)}."
        yield Finding("Outputs", text)
    if "beside" in run.tables:
        yield Finding("Another text", _beside_text(run, main))
    if not layers["constant"].isna().to_numpy().any():
        yield Finding("Constant neurons", _constant_text(records(layers)))
    over = f" over {count(run.summary['words'], 'word')}" if run.summary.get("words") is not None else ""
    yield Finding(
        "Compared",
        f"{count(len(layers), 'layer')} of {count(len(models), 'model')} were compared{over} with "
        f"{count(len(set(similarity['measure'])), 'measure')} of similarity: "
        f"{listed([f'{model} ({layer_range(numbers)})' for model, numbers in models.items()])}.",
    )
    yield Finding("Certainty", _certainty_text(run))
    if counted := {key: value for key, value in run.summary.items() if key not in REPORTED and value}:
        yield Finding("Also counted", "; ".join(f"{key}: {shown(value)}" for key, value in counted.items()))


def _trained(models: Iterable[str]) -> list[str]:
    """The models without their random twins, which are what these are beside; all where all are random."""
    names = list(models)
    return [name for name in names if not name.endswith(TWIN)] or names


def _pair_text(pair: Row, name: str) -> str:
    if pair["model_a"] == pair["model_b"]:
        layers = f"Layers {pair['layer_a']} and {pair['layer_b']} of {pair['model_a']}"
    else:
        layers = f"Layer {pair['layer_a']} of {pair['model_a']} and layer {pair['layer_b']} of {pair['model_b']}"
    chance = "" if np.isnan(pair["null"]) else f" With permuted words the value would be {pair['null']:.3f}."
    return f"{layers} have the highest {name}: {_estimate(pair)}.{chance}"


def _beside_text(run: Run, main: str) -> str:
    """How well two texts agree over pairs of different layers."""
    pairs = records(run.tables["beside"], measure=main)
    pairs = [pair for pair in pairs if (pair["model_a"], pair["layer_a"]) != (pair["model_b"], pair["layer_b"])]
    if len(pairs) < 2:
        return f"There are too few pairs of layers to compare with {run.summary['beside']}."
    agreement = np.corrcoef([pair["value"] for pair in pairs], [pair["beside"] for pair in pairs])[0, 1]
    top = max(pairs, key=lambda pair: abs(pair["difference"]))
    text = (
        f"Over pairs of different layers the {measure_term(main).title} of this text correlates {agreement:.3f} with "
        f"that of {run.summary['beside']}; the mean absolute difference is "
        f"{np.mean([abs(pair['difference']) for pair in pairs]):.3f}. It is largest between layer {top['layer_a']} of "
        f"{top['model_a']} and layer {top['layer_b']} of {top['model_b']}: "
        f"{with_interval(top['difference'], top['low'], top['high'])}."
    )
    known = [pair for pair in pairs if not np.isnan(pair["low"])]
    apart = np.mean([pair["low"] > 0 or pair["high"] < 0 for pair in known]) if known else 0.0
    return f"{text} Of the intervals of differences {apart:.0%} leave out 0." if known else text


def _repetition_text(averages: list[Row], name: str, trained: list[str]) -> str:
    """The trained model whose layers are most alike, its layer that repeats the others most, and random twins."""
    means: dict[str, float] = {}
    for model in dict.fromkeys(row["model"] for row in averages):
        means[model] = float(np.mean([row["value"] for row in averages if row["model"] == model]))
    ordered = sorted(means, key=lambda model: -means[model])
    most, *others = [model for model in ordered if model in trained] or ordered
    twins = [f"{model.removesuffix(TWIN)} {means[model]:.3f}" for model in ordered if model not in (most, *others)]
    top = max((row for row in averages if row["model"] == most), key=lambda row: row["value"])
    beside = f" ({listed([f'{model} {means[model]:.3f}' for model in others])})" if others else ""
    start = f"{most} repeats itself most: its layers" if others else f"The layers of {most}"
    return (
        f"{start} have a mean {name} of {means[most]:.3f} with one another{beside}. "
        f"Layer {top['layer']} repeats the others most: {_estimate(top)}."
        + (f" With random weights: {listed(twins)}." if twins else "")
    )


def _constant_text(layers: list[Row]) -> str:
    total, constant = (sum(int(row[column]) for row in layers) for column in ("neurons", "constant"))
    if not constant:
        return f"All {total:,} neurons vary over these words."
    places = [f"{row['constant']:,} in layer {row['layer']} of {row['model']}" for row in layers if row["constant"]]
    named = listed(places if len(places) <= 4 else [*places[:3], f"more in {len(places) - 3} other layers"])
    return f"{constant:,} of {total:,} neurons are constant over these words: {named}."


def _outlier_text(layers: list[Row], standardized: bool) -> str:
    """Where one neuron decides the similarity of a layer, and what to do about it."""
    top = max(layers, key=lambda row: row["top_share"])
    where = (
        f"In {count(len(layers), 'layer')} one neuron has more than half of the variance, most of all "
        f"neuron {int(top['top_neuron'])} of layer {top['layer']} of {top['model']}: {top['top_share']:.0%} (effective "
        f"rank {top['effective_rank']:.1f} of {top['neurons']:,})."
    )
    if standardized:
        return f"{where} Neurons were standardised, so it counts as one among all."
    return (
        f"{where} SVCCA (so localization too), CKA and Procrustes compare little else there; repeat with "
        "--standardize, --skip-first 1, --clip or --drop-neurons."
    )


def _certainty_text(run: Run) -> str:
    similarity, groups, sampled = run.tables["similarity"], run.summary.get("groups"), run.summary.get("words sampled")
    text = "No intervals were computed."
    if groups is not None and similarity["low"].notna().to_numpy().any():
        text = f"Intervals are {CONFIDENCE} jackknife intervals over {count(groups, 'group')} of sentences."
        covered = set(similarity.loc[similarity["low"].notna(), "measure"])
        if without := [measure_term(m).title for m in dict.fromkeys(similarity["measure"]) if m not in covered]:
            text += f" {listed(without)} {'has' if len(without) == 1 else 'have'} no reliable interval."
    if sampled is None:
        return text
    names = [measure_term(measure).title for measure in SAMPLED_MEASURES if measure in set(similarity["measure"])]
    return f"{text} Measured on {count(sampled, 'sampled word')}: {', '.join(names)}."


def _estimate(row: Row) -> str:
    return with_interval(row["value"], row["low"], row["high"])


def heatmap(frame: pd.DataFrame, measure: str) -> go.Figure:
    """One measure over all layers of all models: one labelled block per pair of models.

    `frame` is the table `similarity` of `compare`. A cell compares its row's layer with its column's.
    """
    if missing := [column for column in PAIR_COLUMNS if column not in frame.columns]:
        raise DataError(
            f"The table has no column {', '.join(missing)}; expected {', '.join(PAIR_COLUMNS)}, as `compare` writes "
            "them."
        )
    rows = frame.loc[frame["measure"] == measure]
    if rows.empty:
        present = ", ".join(frame["measure"].unique()) or "none"
        raise SettingError(f"The measure {measure} is not in the table; it has {present}.")
    if rows.duplicated(list(PAIR_COLUMNS[1:5])).any():
        raise DataError(f"The table has pairs of layers twice for {measure}; pass the frame of one comparison.")
    layers = rows[["model_a", "layer_a"]].drop_duplicates()
    gap = max(0.25, len(layers) / 80)  # wide enough to see, whatever the number of layers
    spans, start = [], 0.0
    for model, group in layers.groupby("model_a", sort=False):
        spans.append(_ModelSpan(str(model), tuple(sorted(group["layer_a"].tolist())), start))
        start = spans[-1].end + gap
    pairs = dict(list(rows.groupby(["model_a", "model_b"], sort=False)))
    traces = [
        _map_block(pairs[a.model, b.model], a, b, n_layers=_length(spans))
        for a, b in product(spans, spans)
        if (a.model, b.model) in pairs
    ]
    return go.Figure(traces, _layer_map_layout(spans, measure, _colour_range(rows["value"].to_numpy(dtype=float))))


@dataclass(frozen=True)
class _ModelSpan:
    """One model's stretch of an axis of layers: its layers, one unit each, from `start`."""

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


def _length(spans: list[_ModelSpan]) -> int:
    return sum(len(span.layers) for span in spans)


def _colour_range(values: np.ndarray) -> tuple[float, float]:
    """From the tenth below the lowest value to the tenth above the highest, so that the colours tell most."""
    if np.isnan(values).all():
        return 0.0, 1.0
    low, high = np.floor(np.nanmin(values) * 10) / 10, np.ceil(np.nanmax(values) * 10 - 1e-6) / 10
    return (float(low), float(high)) if high > low else (float(low), float(low) + 0.1)


def _map_block(rows: pd.DataFrame, a: _ModelSpan, b: _ModelSpan, *, n_layers: int) -> go.Heatmap:
    """One pair of models; NaN where a pair of layers is not in the table."""
    parts = ["value", "low", "high", "null"]
    pairs = pd.MultiIndex.from_product([a.layers, b.layers])
    numbers = rows.set_index(["layer_a", "layer_b"])[parts].reindex(pairs).to_numpy(dtype=float).round(ROUNDING)
    value, low, high, null = numbers.T.reshape(len(parts), len(a.layers), len(b.layers))
    layers = np.meshgrid(a.layers, b.layers, indexing="ij")
    beside = interval_text(low, 2)
    beside += "" if np.isnan(null).all() else "<br>with permuted words %{customdata[4]:.3f}"
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
        texttemplate="%{z:.2f}" if n_layers <= LAYERS_WITH_NUMBERS else None,
        xgap=1 if n_layers <= LAYER_LABELS else 0,
        ygap=1 if n_layers <= LAYER_LABELS else 0,
    )


def name_in_lines(name: str, room: int) -> str:
    """A name as markup of one line or, where it has more than `room` characters, of two without what does not fit."""
    first, _, last = name.rpartition(" ")
    parts = [first, last.strip("()")] if first and len(name) > room else [name]
    return "<br>".join(plain(shortened(part, room) if room > 5 else part[:room]) for part in parts)


def _layer_map_layout(spans: list[_ModelSpan], measure: str, colours: tuple[float, float]) -> dict[str, Any]:
    ticks, names = [], []
    total = _length(spans)
    for span in spans:
        n = len(span.layers)
        step = -(-total * (3 + len(str(span.layers[-1]))) // (4 * LAYER_LABELS))  # longer numbers need more room
        free = [i % step == 0 and (i == 0 or n - i >= step / 2) for i in range(n)]  # not beside the next model's first
        ticks += [str(layer) if is_free else "" for layer, is_free in zip(span.layers, free, strict=True)]
        text = name_in_lines(span.model, int(NAME_WIDTH * n / total))  # cut to fit, whole on hover
        label = {"text": text, "hovertext": plain(span.model), "showarrow": False}
        middle = (span.start + span.end) / 2
        above = {"x": middle, "y": 1, "yref": "y domain", "yanchor": "bottom", "yshift": 4}
        beside = {"x": 0, "xref": "x domain", "y": middle, "textangle": -90, "xanchor": "right", "xshift": -26}
        names += [{**label, **above}, {**label, **beside}]
    axis = {
        "tickvals": [centre for span in spans for centre in span.centres],
        "ticktext": ticks,
        "tickangle": 0,
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
        "constrain": "domain",
    }
    title = {"text": plain(measure_term(measure).title), "font": {"size": 13}, "xref": "paper", "x": 0.5}
    return {
        "template": "none",
        "width": 720,
        "height": 816,
        "margin": {"l": 62, "r": 14, "t": 66, "b": 112},
        "xaxis": {**axis, "range": [0, spans[-1].end], "title": {"text": "layer", "standoff": 4}},
        "yaxis": {**axis, "range": [spans[-1].end, 0], "scaleanchor": "x"},
        "coloraxis": {"colorscale": "Viridis", "cmin": colours[0], "cmax": colours[1], "colorbar": COLOUR_BAR},
        # The title of the colours is the figure's; plotly lets a title of the colour bar itself fall into the bar.
        "title": {**title, **BELOW, "pad": {"b": 40}},
        "annotations": names,
        # From these the page fits the labels again when its width changes.
        "meta": {"models": [{"name": span.model, "layers": list(span.layers)} for span in spans]},
    }
