"""What the page says of probes: the numbers of the run's tables, in words and figures."""

import numpy as np
import pandas as pd
import pytest

from residuum.errors import StoreError
from residuum.reporting.charts import Series, line_chart, value_map
from residuum.reporting.probing import class_text
from residuum.reporting.report import report, section
from residuum.storage.results import Run, write_run

NASTY = "<b onclick=alert(1)>%{z}"


def probing_run(model: str = "encoder", *, regression: bool = False) -> Run:
    """Three layers of which the last two are enough, all of them, and a subset."""
    rows = [
        ("layer", "layer 0", 0, 8, 0.70, 0.60, False),
        ("layer", "layer 1", 1, 8, 0.90, 0.55, True),
        ("layer", "layer 2", 2, 8, 0.89, 0.50, True),
        ("all", "all layers", None, 24, 0.905, 0.65, True),
        ("subset", "top half", None, 16, 0.904, 0.60, True),
    ]
    columns = ["kind", "features", "layer", "neurons", "score", "control", "sufficient"]
    scores = pd.DataFrame(rows, columns=columns).astype({"layer": "Int64"})
    scores["control"] = np.nan if regression else scores["control"]
    scores = scores.assign(
        sd=0.001,
        low=scores["score"] - 0.01,
        high=scores["score"] + 0.01,
        selectivity=scores["score"] - scores["control"],
        random_twin=[0.4, 0.4, 0.4, 0.45, np.nan],
        dev=scores["score"],
        layers="",
        share_of_oracle=1.0,
    )
    tables = {"scores": scores}
    if not regression:
        tables |= _class_tables()
    return Run(
        command="probe",
        config={"model": model, "task": "upos", "examples": {"train": 1234}, "notes": ["x was cut by seed 0"]},
        summary={
            "metric": "pearson" if regression else "accuracy",
            "unseen labels": 0 if regression else 2,
            **({} if regression else {"majority baseline": 0.2, "word majority baseline": 0.8}),
        },
        tables=tables,
        environment={"residuum": "0.1.0"},
    )


def _class_tables() -> dict[str, pd.DataFrame]:
    features = ["layer 0", "layer 1", "layer 2", "all layers"]
    classes = pd.DataFrame(
        {
            "features": np.repeat(features, 2),
            "class": ["RARE", "OFTEN"] * 4,
            "support": [3, 300] * 4,
            "recall": [0.1, 0.7, 0.2, 0.9, 0.3, 0.9, 0.5, 0.91],
        }
    )
    layers = pd.DataFrame(
        {"class": ["RARE", "OFTEN"], "lowest_layer": pd.array([None, 1], "Int64"), "sufficient_layers": ["", "1,2"]}
    )
    return {"classes": classes, "class_layers": layers}


def languages_run(model: str = "encoder") -> Run:
    """Two languages besides the first, three thresholds; the second threshold costs less than a hundredth."""
    losses = {0.0: 0.0, 0.3: 0.005, 0.6: 0.2}
    home = {"en": 0.95, "de": 0.80, "ja": 0.40}
    families = {"en": "Germanic", "de": "Germanic", "ja": "Japonic"}
    languages = pd.DataFrame(
        [
            {
                "model": model,
                "language": language,
                "family": families[language],
                "kind": "threshold",
                "features": f"threshold {threshold:g}",
                "threshold": threshold,
                "neurons": int(100 - 100 * threshold),
                "score": score - loss,
                "low": score - loss - 0.01,
                "high": score - loss + 0.01,
                "held_out": score - loss,
            }
            for language, score in home.items()
            for threshold, loss in losses.items()
        ]
    )
    abroad = languages[languages["language"] != "en"]
    return Run(
        command="probe-languages",
        config={"task": "upos", "source": "en"},
        summary={
            "languages": 3,
            "models": 1,
            "mean accuracy at home": 0.95,
            "mean accuracy abroad": 0.6,
            "words with unseen labels": 7,
        },
        tables={"languages": languages, "families": abroad.drop(columns=["low", "high"])},
        environment={"residuum": "0.1.0"},
    )


def test_the_front_says_what_all_layers_and_which_layers_know():
    shown = section(probing_run(), "runs/upos")
    texts = {finding.topic: finding.text for finding in shown.findings}
    assert shown.title == "What do the layers of encoder know about upos?"
    assert "reaches accuracy 0.905" in texts["All layers together"]
    assert "0.895–0.915" in texts["All layers together"]
    assert "reaches 0.650, a selectivity of 0.255" in texts["All layers together"]
    assert "majority 0.200, word majority 0.800" in texts["All layers together"]
    assert texts["Layers"].startswith(
        "2 of 3 layers are sufficient alone (layers 1–2). The best single layer, layer 1,"
    )
    assert texts["Classes"] == (
        "Recognised as well as by all layers together: OFTEN by layers 1–2. By no single layer: RARE."
    )
    assert "The random twin (same model, random weights) reaches 0.450." in texts["All layers together"]
    assert texts["Data"] == "x was cut by seed 0."
    assert shown.facts["training examples"] == "1,234"


def test_the_layer_figure_has_every_line_that_was_measured():
    figure = section(probing_run()).panels[0].views[0].figure
    lines = {trace.name: list(trace.y) for trace in figure.data if trace.name}
    assert list(lines) == [
        *("each layer", "all layers", "control task", "random twin", "majority baseline", "word majority baseline")
    ]
    assert lines["each layer"] == [0.7, 0.9, 0.89]
    assert lines["word majority baseline"] == [0.8] * 2


def test_classes_are_told_with_all_layers_that_are_enough_and_no_others():
    table = pd.DataFrame({"class": list("ABCD"), "sufficient_layers": ["1,4", "0", "1,4", ""]})
    assert class_text(table) == (
        "Recognised as well as by all layers together: B by layer 0; A, C by layers 1, 4. By no single layer: D."
    )
    many = pd.DataFrame({"class": list("ABCDEFGH"), "sufficient_layers": list("01234567")})
    assert "F by layer 5; 2 more classes by other layers (see the table)." in class_text(many)


def test_nothing_is_told_of_classes_with_few_test_examples():
    table = pd.DataFrame({"class": list("ABC"), "supported": [True, False, False], "sufficient_layers": ["1", "", "2"]})
    assert class_text(table) == (
        "Recognised as well as by all layers together: A by layer 1. Too few test examples to judge 2 of 3 classes."
    )


def test_classes_are_drawn_from_frequent_to_rare():
    (panel,) = [panel for panel in section(probing_run()).panels if panel.title == "Recall of each class"]
    (block,) = panel.views[0].figure.data
    assert [row[0][0] for row in block.customdata] == ["OFTEN", "RARE"]
    assert list(block.z[0]) == [0.7, 0.9, 0.9, 0.91]


def test_numbers_have_no_control_and_no_classes():
    shown = section(probing_run(regression=True))
    assert [finding.topic for finding in shown.findings] == ["All layers together", "Layers", "Data"]
    assert "control task" not in shown.findings[0].text
    assert "selectivity" not in shown.facts
    assert shown.facts["pearson"] == "0.905"


def test_no_layer_may_be_enough():
    run = probing_run()
    run.tables["scores"].loc[:, "sufficient"] = False
    texts = {finding.topic: finding.text for finding in section(run).findings}
    assert texts["Layers"] == "No single layer is sufficient. The best single layer, layer 1, scores 0.900."


def test_languages_are_told_from_best_to_worst_and_what_clustering_costs():
    shown = section(languages_run())
    text = shown.findings[0].text
    assert (
        "0.950 on held-out sentences of en and 0.600 on average in other languages, from ja (0.400) to de (0.800)"
        in text
    )
    assert "Clustering at 0.3 leaves 70 of 100 neurons and costs at most 0.01." in text
    assert shown.findings[1].text.startswith("7 words of the other languages")
    assert [panel.title for panel in shown.panels] == [
        *("Accuracy with fewer neurons", "Language families", "Accuracy of each set of neurons in each language")
    ]
    lines = {trace.name: list(trace.y) for trace in shown.panels[0].views[0].figure.data if trace.name}
    assert lines["de"] == [0.8, 0.795, 0.6]


def test_where_every_clustering_costs_it_is_said():
    run = languages_run()
    table = run.tables["languages"]
    table.loc[table["threshold"] == 0.3, "score"] -= 0.1
    assert "Every clustering costs more than 0.01." in section(run).findings[0].text


@pytest.mark.parametrize("run", [probing_run(NASTY), languages_run(NASTY)], ids=["probe", "probe-languages"])
def test_a_page_is_written_and_names_are_not_obeyed(run, tmp_path):
    page = report([write_run(tmp_path / "run", run)], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<b onclick" not in page
    assert "%{z}" in page or "&lt;b onclick" in page


@pytest.mark.parametrize(("run", "table"), [(probing_run(), "scores"), (languages_run(), "languages")])
def test_a_run_without_its_columns_is_refused(run, table):
    run.tables[table] = run.tables[table].drop(columns=["low"])
    with pytest.raises(StoreError, match=f"its table {table} has no low"):
        section(run, "runs/x")


def test_a_second_axis_and_missing_intervals_are_drawn():
    figure = line_chart(
        [Series("a", [0, 1], [1.0, 2.0], [0.5, np.nan], [1.5, np.nan]), Series("b", [0, 1], [5, 6], second_axis=True)],
        x="threshold",
        y="accuracy",
        second_y="neurons",
    )
    band, a, b = figure.data
    assert list(band.x) == [0, 0]
    assert (a.yaxis, b.yaxis) == (None, "y2")
    assert figure.layout.yaxis2.title.text == "neurons"


def test_a_map_shows_names_and_leaves_gaps_blank():
    figure = value_map(pd.DataFrame([[1, np.nan]], [NASTY], ["x", "y"]), x="column", y="row", colours="value")
    (block,) = figure.data
    assert np.isnan(block.z[0][1])
    assert "<b" not in block.customdata[0][0][0]
    many = [str(i) for i in range(100)]
    wide = value_map(pd.DataFrame([[0.0] * 100], ["r"], many), x="c", y="r", colours="v")
    tall = value_map(pd.DataFrame({"c": [0.0] * 100}, many), x="c", y="r", colours="v")
    assert len(wide.layout.xaxis.ticktext) <= 60
    assert len(tall.layout.yaxis.ticktext) == 100
    assert tall.layout.height >= 13 * 100


def test_a_map_has_room_for_long_names_below_it():
    names = [f"a ranking of neurons by method {n} of many" for n in range(8)]
    figure = value_map(pd.DataFrame(np.eye(8), names, names), x="ranking", y="ranking", colours="overlap")
    assert max(map(len, figure.layout.xaxis.ticktext)) <= 24
    short = value_map(pd.DataFrame(np.eye(8)), x="layer", y="layer", colours="overlap")
    assert figure.layout.height >= short.layout.height + 7 * 24, "they stand upright and leave the cells their height"
