"""The section of a `redundancy` run says and draws what its tables hold."""

import numpy as np
import pandas as pd
import pytest

from residuum.errors import StoreError
from residuum.reporting.charts import word_picture
from residuum.reporting.redundancy import survivor_map, threshold_chart, window_bars
from residuum.reporting.report import report, section
from residuum.storage.results import Run

SCORES = {"dev": 0.9, "score": 0.88, "low": 0.87, "high": 0.89, "sd": 0.01, "control": 0.5, "selectivity": 0.38}
NASTY = "<img src=x onerror=alert(1)>"


def redundancy_run(task=True, word="fox"):
    thresholds = pd.DataFrame(
        {
            "threshold": [0.0, 0.3, 0.6],
            "neurons": [20, 12, 5],
            "share": [1.0, 0.6, 0.25],
            "grouped": [0, 9, 19],
            "largest cluster": [1, 4, 9],
        }
    )
    layers = pd.DataFrame({"layer": [0, 1], "neurons": [10, 10], "constant": [0, 2]})
    kept = [(0.0, 10, 10), (0.3, 8, 4), (0.6, 5, 0)]
    survivors = pd.DataFrame(
        [(t, layer, 10, n, n, n) for t, *counts in kept for layer, n in enumerate(counts)],
        columns=["threshold", "layer", "neurons", "random", "medoid", "first"],
    )
    shares = {"1": 0.5, "2": 0.3, "3": 0.0, "further": 0.2}
    windows = pd.DataFrame(
        [(t, window, 3, share, share) for t in (0.3, 0.6) for window, share in shares.items()],
        columns=["threshold", "window", "clusters", "share", "share of groups"],
    )
    pictures = pd.DataFrame(
        [
            (3, 4, neuron, 0.9, sentence, position, word, 1.0, float(position - sentence))
            for neuron in ("0:1", "1:4")
            for sentence in (0, 2)
            for position in range(3)
        ],
        columns=[
            "cluster", "size", "neuron", "correlation", "sentence", "position", "word", "activation", "deviations",
        ],
    )  # fmt: skip
    pairs = [(a, b) for a in (0, 1) for b in (0, 1)]
    similarity = pd.DataFrame(
        {
            "measure": "cka", "model_a": "m", "layer_a": [a for a, _ in pairs], "model_b": "m",
            "layer_b": [b for _, b in pairs], "value": [1, 0.8, 0.8, 1], "low": np.nan, "high": np.nan, "null": np.nan,
        }
    )  # fmt: skip
    tables = {
        "thresholds": thresholds, "layers": layers, "windows": windows, "survivors": survivors,
        "similarity": similarity, "pictures": pictures, "neurons": pd.DataFrame({"neuron": ["0:0"]}),
    }  # fmt: skip
    summary = {"words": 1234, "neurons": 20, "constant neurons": 2}
    if task:
        tables["thresholds"] = thresholds.assign(**SCORES, sufficient=[True, True, False])
        tables["layers"] = layers.assign(**SCORES, sufficient=[False, True])
        rows = [("oracle", 20, 1.0, 0.88, True), ("minimal set", 3, 0.15, 0.87, False)]
        tables["reduction"] = pd.DataFrame(
            [{**SCORES, "set": s, "neurons": n, "share": x, "score": t, "sufficient": e} for s, n, x, t, e in rows]
        )
        summary |= {
            "task": "upos",
            "required on dev": 0.85,
            "required of layers on dev": 0.87,
            "baselines": {"majority": 0.2},
            "minimal set": 3,
        }
    return Run(
        "redundancy",
        {"model": "m", "focus": 0.3, "keep": 0.97, "keep_layers": 0.99},
        summary,
        tables,
        environment={"python": "3"},
    )


def test_the_curve_has_neurons_on_the_left_and_accuracy_on_the_right():
    figure = threshold_chart(redundancy_run().tables["thresholds"])
    lines = {trace.name: trace for trace in figure.data if trace.name}
    assert list(lines["neurons left"].y) == [20, 12, 5]
    assert lines["neurons left"].yaxis is None
    assert list(lines["accuracy on test"].y) == [0.88] * 3
    assert lines["accuracy on test"].yaxis == "y2"
    numbers = threshold_chart(redundancy_run().tables["thresholds"], "pearson")
    assert "pearson on test" in {trace.name for trace in numbers.data}
    assert numbers.layout.yaxis2.title.text == "pearson"
    alone = threshold_chart(redundancy_run(task=False).tables["thresholds"])
    assert [trace.name for trace in alone.data] == ["neurons left"]


def test_layers_are_drawn_beside_their_own_bar_and_the_twin():
    run = redundancy_run()
    run.tables["layers"]["random_twin"] = [0.4, 0.3]
    (panel,) = [panel for panel in section(run).panels if panel.title.startswith("Score of each layer")]
    lines = {trace.name: list(trace.y) for trace in panel.views[0].figure.data if trace.name}
    assert lines["required on dev"] == [0.87, 0.87]
    assert lines["random twin"] == [0.4, 0.3]
    run.summary["metric"] = "pearson"
    (panel,) = [panel for panel in section(run).panels if panel.title.startswith("Score of each layer")]
    assert panel.views[0].figure.layout.yaxis.title.text == "pearson"


def test_classes_of_a_task_are_told_and_drawn():
    run = redundancy_run()
    run.tables["classes"] = pd.DataFrame(
        {
            "features": ["layer 0", "layer 0", "oracle", "oracle"],
            "class": ["A", "B"] * 2,
            "support": [5, 9] * 2,
            "recall": [0.5, 0.6, 0.7, 0.8],
        }
    )
    run.tables["class_layers"] = pd.DataFrame({"class": ["A", "B"], "sufficient_layers": ["", "0"]})
    content = section(run)
    said = {finding.topic: finding.text for finding in content.findings}
    assert said["Classes"] == "Recognised as well as by all layers together: B by layer 0. By no single layer: A."
    (panel,) = [panel for panel in content.panels if panel.title == "Recall of each class"]
    assert [list(row) for row in panel.views[0].figure.data[0].z] == [[0.6, 0.8], [0.5, 0.7]]


def test_the_map_of_survivors_holds_shares_of_layers():
    (trace,) = survivor_map(redundancy_run().tables["survivors"], "medoid").data
    assert [list(row) for row in trace.z] == [[1.0, 0.8, 0.5], [1.0, 0.4, 0.0]]


def test_the_bars_of_windows_add_up_to_one():
    figure = window_bars(redundancy_run().tables["windows"], "share of groups")
    assert [trace.name for trace in figure.data][-1] == "further apart"
    np.testing.assert_allclose(np.sum([trace.y for trace in figure.data], axis=0), 1)


def test_a_picture_has_a_row_for_each_neuron_and_a_column_for_each_word():
    figure = word_picture(redundancy_run(word=NASTY).tables["pictures"])
    (trace,) = figure.data
    assert list(trace.y) == ["0:1", "1:4"]
    assert [list(row) for row in trace.z] == [[0, 1, 2, -2, -1, 0]] * 2
    assert trace.zmin == -trace.zmax
    assert "<img" not in str(figure.to_dict())
    assert [shape.x0 for shape in figure.layout.shapes] == [2.5]  # between the sentences


def test_the_front_page_speaks_of_neurons_layers_and_the_minimal_set():
    content = section(redundancy_run())
    assert content.title == "How much of m is redundant for upos?"
    said = {finding.topic: finding.text for finding in content.findings}
    assert said["Neurons that repeat others"].startswith(
        "Of 20 neurons, 12 (60%) are left at the clustering threshold 0.3"
    )
    assert "80% of the clusters" in said["Reach of clusters"]
    assert said["Layers"].startswith("1 of 2 layers keep 99% of the score of all layers alone: layer 1")
    assert said["Minimal set"].startswith("3 neurons (15.0%) score 0.870 on the test part, -0.010 against all")
    assert "majority 0.2" in said["All neurons"]
    assert content.facts["sufficient neurons"] == "3"


def test_without_a_task_only_the_general_part_is_shown():
    content = section(redundancy_run(task=False))
    assert content.title == "How much does m repeat itself?"
    assert "Layers" not in {finding.topic for finding in content.findings}
    titles = [panel.title for panel in content.panels]
    assert "Score of each layer alone" not in titles
    assert len(titles) == 5


def test_a_report_is_written_and_a_run_that_is_not_whole_is_refused(tmp_path):
    page = report(redundancy_run(word=NASTY), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<img src=x" not in page
    run = redundancy_run()
    del run.tables["windows"]
    with pytest.raises(StoreError, match="its table windows has no threshold, window"):
        report(run, tmp_path / "x.html")
