"""Maps and curves show what the tables say."""

import re

import numpy as np
import pandas as pd
import pytest
from report_runs import comparison_run

from residuum.errors import DataError, SettingError
from residuum.reporting.charts import LINE_COLOURS, shortened
from residuum.reporting.similarity import curve_panel, heatmap, name_in_lines

TWO = comparison_run({"deep": 4, "small": 2})
NASTY = '<b onclick="x">%{z}</b>&amp;'


def curves(table, curve, measure="cka"):
    """The drawing of one curve by one measure, or by the first that the panel shows."""
    panel = curve_panel(table, curve)
    views = {view.key: view.figure for view in panel.views}
    return views.get(measure) or views[panel.first_key]


def test_a_map_shows_every_value_interval_and_null_of_the_table():
    frame = TWO.tables["similarity"]
    frame = frame.assign(value=np.linspace(0, 1, len(frame)).round(4), low=0.25, high=0.75, null=0.125)
    figure = heatmap(frame, "svcca")
    shown = {}
    for trace in figure.data:
        models = re.findall(r"<b>(deep|small)</b>", trace.hovertemplate)
        for line, values in zip(trace.customdata, trace.z, strict=True):
            for (a, b, *beside), value in zip(line, values, strict=True):
                shown[models[0], a, models[1], b] = value
                assert beside == [0.25, 0.75, 0.125]
    rows = frame[frame["measure"] == "svcca"]
    expected = {(row.model_a, row.layer_a, row.model_b, row.layer_b): row.value for row in rows.itertuples()}
    assert shown == expected


def test_the_rows_of_a_map_are_the_first_layer_of_a_pair():
    frame = TWO.tables["similarity"]
    frame = frame.assign(value=frame["layer_a"] / 10)
    for trace in heatmap(frame, "cka").data:
        assert all(len(set(row)) == 1 for row in trace.z)
        assert [row[0] for row in trace.z] == [layer / 10 for layer in range(len(trace.z))]


def test_blocks_of_different_models_stand_apart_and_are_named_on_both_sides():
    figure = heatmap(TWO.tables["similarity"], "cka")
    centres = sorted({x for trace in figure.data for x in trace.x})
    assert np.diff(centres).tolist() == [1, 1, 1, pytest.approx(1.25), 1]
    assert [label.text for label in figure.layout.annotations] == ["deep", "deep", "small", "small"]
    assert list(figure.layout.xaxis.ticktext) == ["0", "1", "2", "3", "0", "1"]


def test_a_map_without_intervals_and_null_does_not_speak_of_them():
    frame = comparison_run({"a": 2}, intervals=False, null=False).tables["similarity"]
    (trace,) = heatmap(frame, "cka").data
    assert "interval" not in trace.hovertemplate
    assert "permuted" not in trace.hovertemplate
    (trace,) = heatmap(comparison_run({"a": 2}).tables["similarity"], "cka").data
    assert "interval" in trace.hovertemplate
    assert "permuted" in trace.hovertemplate


def test_colours_of_a_map_span_the_values_found():
    frame = comparison_run({"a": 3}).tables["similarity"]
    colours = heatmap(frame, "cka").layout.coloraxis
    assert (colours.cmin, colours.cmax) == pytest.approx((0.7, 1.0))
    colours = heatmap(frame.assign(value=-0.25), "cka").layout.coloraxis
    assert (colours.cmin, colours.cmax) == pytest.approx((-0.3, -0.2))


def test_many_layers_are_not_all_labelled_and_small_maps_have_numbers():
    many = heatmap(comparison_run({"a": 25, "b": 25}, ["cka"]).tables["similarity"], "cka")
    few = heatmap(TWO.tables["similarity"], "cka")
    assert [text for text in many.layout.xaxis.ticktext if text][:4] == ["0", "2", "4", "6"]
    assert len(many.layout.xaxis.tickvals) == 50
    assert few.data[0].texttemplate
    assert not many.data[0].texttemplate


def test_numbers_of_two_digits_have_more_room():
    figure = heatmap(comparison_run({"a": 17, "b": 18}, ["cka"]).tables["similarity"], "cka")
    assert [text for text in figure.layout.xaxis.ticktext if text][:4] == ["0", "2", "4", "6"]


def test_a_name_without_room_has_two_lines():
    assert [name_in_lines("MiniLM (random)", room) for room in (15, 8, 5)] == [
        "MiniLM (random)",
        "MiniLM<br>random",
        "MiniL<br>rando",
    ]
    assert name_in_lines("run checkpoint-100", 14) == "run<br>checkpoint-100"
    assert name_in_lines("gte-small", 6) == "gte…ll"
    assert name_in_lines("<b> (random)", 8) == "&lt;b&gt;<br>random"


def test_a_pair_that_is_not_in_the_table_stays_empty():
    frame = TWO.tables["similarity"]
    gone = (frame["model_a"] == "deep") & (frame["layer_a"] == 1) & (frame["model_b"] == "small")
    block = heatmap(frame[~gone], "cka").data[1]
    assert np.isnan(np.array(block.z, dtype=float)).tolist() == [[False] * 2, [True] * 2, [False] * 2, [False] * 2]


def test_a_curve_goes_through_the_values_within_its_band():
    table = TWO.tables["curves"]
    figure = curves(table, "layer_average", "svcca")
    bands, lines = figure.data[:2], figure.data[2:]
    rows = table[(table["curve"] == "layer_average") & (table["measure"] == "svcca")]
    for band, line, model in zip(bands, lines, ("deep", "small"), strict=True):
        own = rows[rows["model"] == model]
        assert line.name == model
        assert list(line.x) == own["layer"].tolist()
        np.testing.assert_allclose(line.y, own["value"], atol=1e-4)
        np.testing.assert_allclose(band.y, [*own["high"], *own["low"][::-1]], atol=1e-4)
        assert band.x == (*own["layer"], *own["layer"][::-1])


def test_curves_without_intervals_have_no_band():
    table = comparison_run({"a": 3}, intervals=False).tables["curves"]
    assert len(curves(table, "to_next_layer").data) == 1


def test_without_a_measure_cka_is_drawn_else_the_first():
    table = TWO.tables["curves"].copy()
    table.loc[table["measure"] == "cka", ["value", "low", "high"]] = 0.5
    assert set(curves(table, "layer_average").data[-1].y) == {0.5}
    without = table[table["measure"] != "cka"]
    assert curves(without, "layer_average").layout.yaxis.title.text == "Single neurons"


def test_lines_of_ten_models_differ_in_colour_or_dash():
    table = comparison_run({f"model {i}": 2 for i in range(10)}, ["cka"], intervals=False).tables["curves"]
    looks = {(line.line.color, line.line.dash) for line in curves(table, "layer_average").data}
    assert len(looks) == 10
    assert {colour for colour, _ in looks} == set(LINE_COLOURS)


def test_markup_in_a_name_is_shown_and_not_obeyed():
    run = comparison_run({NASTY: 2, "b": 2}, ["cka"])
    for figure in (heatmap(run.tables["similarity"], "cka"), curves(run.tables["curves"], "layer_average")):
        for trace in figure.data:
            assert "<b onclick" not in f"{trace.hovertemplate} {trace.name}"
            assert "%{z}&lt;" not in f"{trace.hovertemplate}"
        assert "&lt;b onclick" in figure.data[-1].hovertemplate + figure.data[-2].hovertemplate
        assert not any("<" in label.text + label.hovertext for label in figure.layout.annotations)


@pytest.mark.parametrize(
    ("room", "expected"), [(30, "paraphrase-MiniLM"), (17, "paraphrase-MiniLM"), (8, "para…iLM"), (1, "p…"), (0, "p…")]
)
def test_a_long_name_loses_its_middle(room, expected):
    assert shortened("paraphrase-MiniLM", room) == expected


def test_what_cannot_be_drawn_is_said():
    frame = TWO.tables["similarity"]
    with pytest.raises(SettingError, match="measure rsa is not in the table; it has neuron, svcca, cka"):
        heatmap(frame, "rsa")
    with pytest.raises(DataError, match="no column low, high, null; expected measure, model_a"):
        heatmap(frame.drop(columns=["low", "high", "null"]), "cka")
    with pytest.raises(DataError, match="twice for cka"):
        heatmap(pd.concat([frame, frame]), "cka")
