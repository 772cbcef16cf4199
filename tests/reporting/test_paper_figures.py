"""Figures for papers: matplotlib draws what the report draws, into files that are the same each time."""

import sys

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from report_runs import comparison_run
from typer.testing import CliRunner

from residuum.cli import app
from residuum.errors import SettingError
from residuum.reporting.charts import Series, interval_chart, line_chart, value_map
from residuum.reporting.redundancy import window_bars
from residuum.reporting.report import report
from residuum.reporting.similarity import heatmap
from residuum.storage.results import write_run

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from residuum.reporting.paper_figures import paper_figure

RUN = comparison_run({"deep": 3, "wide": 2}, ("svcca", "cka"))
ONE_MEASURE = comparison_run({"deep": 3, "wide": 2}, ("cka",))


def test_a_map_has_its_values_names_and_colours():
    axes, bar = paper_figure(heatmap(RUN.tables["similarity"], "cka")).axes
    blocks = [mesh.get_array().reshape(-1).tolist() for mesh in axes.collections]
    assert [len(block) for block in blocks] == [9, 6, 6, 4]
    assert blocks[0][:3] == pytest.approx([1.0, 0.83, 0.76])
    assert {"deep", "wide", "1.00", "0.83"} <= {text.get_text() for text in axes.texts}
    assert [text.get_rotation() for text in axes.texts if text.get_text() == "deep"] == [0, 90]  # columns and rows
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2", "0", "1"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first layer stands at the top
    assert bar.get_ylabel() == "CKA"


def test_lines_have_bands_a_second_axis_and_a_legend():
    lines = [
        Series("neurons $n$ & more", [0, 1, 2], [5, 4, 3]),
        Series("accuracy", [0, 1, 2], [0.9, 0.8, 0.7], [0.8, 0.7, 0.6], [1.0, 0.9, 0.8], second_axis=True),
    ]
    drawn = paper_figure(line_chart(lines, x="threshold", y="neurons", second_y="score"))
    left, right = drawn.axes
    assert left.lines[0].get_ydata().tolist() == [5, 4, 3]
    assert right.lines[0].get_ydata() == pytest.approx([0.9, 0.8, 0.7])
    assert right.patches[0].get_xy()[:3, 1] == pytest.approx([1.0, 0.9, 0.8])
    assert (left.get_xlabel(), left.get_ylabel(), right.get_ylabel()) == ("threshold", "neurons", "score")
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [r"neurons \$n\$ & more", "accuracy"]
    assert left.lines[0].get_linestyle() != right.lines[0].get_linestyle()


def test_dots_have_their_intervals_and_the_bound():
    (axes,) = paper_figure(interval_chart(["a", "b"], [1, 2], [0.5, 2], [1.5, 2], x="size", bound=1.2)).axes
    (bars,) = [one for one in axes.collections if len(one.get_segments()) == 2]
    assert bars.get_segments()[0][:, 0] == pytest.approx([0.5, 1.5])
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"] == [1.2]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_missing_cells_stay_blank_and_names_are_labels():
    (axes, _) = paper_figure(
        value_map(pd.DataFrame([[0.5, np.nan], [0.25, 1.0]], ["top", "low"], ["x", "y"]), x="c", y="r", colours="v")
    ).axes
    assert np.isnan(np.ma.filled(axes.collections[0].get_array(), np.nan)).sum() == 1
    assert [text.get_text() for text in axes.texts] == ["0.50", "0.25", "1.00"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["top", "low"]


def test_bars_stand_on_each_other():
    table = pd.DataFrame({"threshold": [0.1, 0.2] * 2, "window": ["1", "1", "2", "2"], "share": [0.75, 0.5, 0.25, 0.5]})
    (axes,) = paper_figure(window_bars(table, "share")).axes
    assert [bar.get_y() + bar.get_height() for bar in axes.containers[1]] == pytest.approx([1.0, 1.0])


def test_boxes_have_their_quartiles():
    box = go.Box(x=["NOUN"], lowerfence=[0], q1=[1], median=[2], q3=[3], upperfence=[4])
    (axes,) = paper_figure(go.Figure([box])).axes
    heights = {float(value) for line in axes.lines for value in line.get_ydata()}
    assert heights == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("kind", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_every_figure_of_a_report_becomes_a_file(kind, start, tmp_path):
    report(ONE_MEASURE, tmp_path / "alike.html", figures=kind)
    files = sorted((tmp_path / "alike-figures").iterdir())
    assert [file.name for file in files] == [
        f"01-compare-01-similarity-of-all-layers-of-all-models.{kind}",
        f"01-compare-02-similarity-to-all-other-layers.{kind}",
        f"01-compare-03-similarity-to-the-next-layer.{kind}",
    ]
    assert all(file.read_bytes().startswith(start) for file in files)
    before = [file.read_bytes() for file in files]
    report(ONE_MEASURE, tmp_path / "alike.html", figures=kind)
    assert [file.read_bytes() for file in files] == before


def test_the_command_line_writes_them_too(tmp_path):
    write_run(tmp_path / "run", RUN)  # with two measures, which become part of the names
    out = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "-o", str(out), "--figures", "svg"])
    assert result.exit_code == 0, result.output
    assert "report.html is written" in result.output.replace("\n", "")
    names = {file.name for file in (tmp_path / "report-figures").iterdir()}
    assert len(names) == 6
    assert "01-compare-01-similarity-of-all-layers-of-all-models-svcca.svg" in names


@pytest.mark.filterwarnings("ignore:Glyph")  # which fonts there are is not asked here
def test_names_that_are_cut_do_not_take_one_another_s_place(tmp_path):
    measures = [f"{'長' * 150} {end}" for end in "ab"]
    report(comparison_run({"m": 3}, measures), tmp_path / "r.html", figures="svg")
    files = list((tmp_path / "r-figures").iterdir())
    assert len(files) == 6
    assert all(len(file.name.encode()) < 200 for file in files)


def test_an_unknown_format_and_a_missing_matplotlib_are_named(tmp_path, monkeypatch):
    with pytest.raises(SettingError, match="figures is 'gif'; expected one of pdf, svg, png"):
        report(RUN, tmp_path / "report.html", figures="gif")
    assert not (tmp_path / "report.html").exists()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SettingError, match=r"need matplotlib: pip install 'residuum\[figures\]'"):
        report(RUN, tmp_path / "report.html", figures="pdf")
