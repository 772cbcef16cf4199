"""Exhibits in the shape of their document, from made-up steps whose tables are known."""

import pandas as pd
import pytest
from test_paper_claims import reduced, results, run, step

from residuum.reporting.charts import chart_grid, has_marks
from residuum.reporting.studies import exhibit_panels
from residuum.storage.results import Run
from residuum.studies import distilled, monolingual, redundancy, similarity, transfer_learning
from residuum.studies.claims import Measurement
from residuum.studies.documents import exhibit_tables
from residuum.studies.exhibits import wide, with_average_row
from residuum.studies.running import DOCUMENTS


def test_a_wide_table_keeps_the_order_of_its_rows_and_averages_them():
    frame = pd.DataFrame({"task": ["sem", "upos"] * 2, "model": ["b", "b", "a", "a"], "score": [0.5, 0.7, 0.9, 0.1]})
    table = wide(frame, "task", "model", "score", average="mean")
    assert table.columns.tolist() == ["task", "b", "a", "mean"]
    assert table["task"].tolist() == ["sem", "upos"]
    assert table["b"].tolist() == [0.5, 0.7]
    assert table["mean"].tolist() == pytest.approx([0.7, 0.4])
    assert with_average_row(table).iloc[-1].tolist() == ["Average", *map(pytest.approx, (0.6, 0.5, 0.55))]


def test_minimal_sets_are_tables_1_2_and_8_of_their_paper():
    def found(unit, neurons):
        own = reduced(unit, (0.9, 0.8, 0.7), (1.0, 0.3, 0.1))
        rows = [
            {"set": "oracle", "neurons": 500, "score": 0.9},
            {"set": "minimal set", "neurons": neurons, "score": 0.8},
        ]
        return run(**{**own.tables, "reduction": rows})

    steps = results(
        (step("redundancy", model="bert", task="upos", unit="word"), found("word", 20)),
        (step("redundancy", model="bert", task="chunk", unit="word"), found("word", 40)),
        (step("redundancy", model="bert", task="sst2", unit="sentence"), found("sentence", 10)),
    )
    first = redundancy.minimal_set_table(steps, "word")
    assert first.to_numpy().tolist() == [["upos", 20], ["chunk", 40], ["Average", 30]]
    last = redundancy.both_minimal_set_tables(steps)
    assert last["task"].tolist() == ["upos", "chunk", "Word average", "sst2", "Sentence average"]
    assert last["bert neurons"].tolist() == [20, 40, 30, 10, 10]
    assert last["bert oracle"].tolist() == pytest.approx([0.9] * 5)


def test_layers_and_neurons_of_a_transfer_are_tables_3_9_and_10():
    steps = [
        {"step": "oracle", "neurons": 100, "test": 0.9},
        {"step": "LayerSelector", "neurons": 60, "test": 0.89},
        {"step": "clustering", "neurons": 30, "test": 0.885},
        {"step": "feature selection", "neurons": 10, "test": 0.88},
        {"step": "as saved", "neurons": 10, "test": 0.87},
    ]
    summary = {"layers": 3, "neurons": 10, "share of neurons": 0.1}
    found = results(
        (step("transfer", model="bert", task="upos", unit="word"), run(summary, steps=steps)),
        (step("transfer", model="bert", task="sst2", unit="sentence"), run({**summary, "layers": 5}, steps=steps)),
    )
    table = redundancy.transfer_table(found, "word").set_index("quantity")["upos"]
    assert table.to_dict() == {
        "oracle score": 0.9, "oracle neurons": 100, "LS score": 0.89, "LS layers": 3, "CCFS score": 0.88,
        "CCFS neurons": 10, "reduction": 0.9,
    }  # fmt: skip
    averages = redundancy.transfer_table(found, average=True).set_index("quantity")
    assert averages.loc["LS layers"].tolist() == [3, 5]
    assert averages.columns.tolist() == ["word bert", "sentence bert"]


def test_freezing_is_one_row_per_choice_and_one_column_per_task():
    def tuned(value):
        return run(scores=[{"seed": s, "part": "test", "metric": "accuracy", "value": value + s / 10} for s in (0, 1)])

    steps = results(
        (step("finetune", model="bert", task="sst2"), tuned(0.8)),
        (step("frozen", model="bert", task="sst2", variant="top:4"), tuned(0.6)),
        (step("finetune", model="bert", task="qnli"), tuned(0.4)),
    )
    table = similarity.frozen_grid(steps)
    assert table["frozen"].tolist() == ["none", "top:4"]
    assert table["sst2"].tolist() == pytest.approx([0.85, 0.65])  # means over seeds
    assert table["qnli"].iloc[0] == pytest.approx(0.45)


def test_table_1_shows_accuracy_where_the_metric_of_a_task_is_another():
    rows = [{"seed": 0, "part": "test", "metric": m, "value": v} for m, v in (("f1", 0.8), ("accuracy", 0.9))]
    tuned = run({"metric": "f1"}, scores=rows)
    assert similarity.frozen_grid(results((step("finetune", model="bert", task="qqp"), tuned)))["qqp"].tolist() == [0.9]
    assert Measurement.test_accuracy(tuned) == 0.9


def survivors(score):
    found = reduced("word", score, (1, 0.3, 0.1))
    thresholds = found.tables["thresholds"].assign(train=[0.99, 0.98, 0.7], neurons=[1000, 300, 90])
    return run({"metric": "accuracy"}, thresholds=thresholds, survivors=found.tables["survivors"])


def test_the_first_model_and_its_students_are_table_5_1_and_the_others_stand_in_the_appendix():
    pairs = [(step("redundancy", model=m, task="upos"), survivors((0.9, 0.8, 0.6))) for m in ("b", "r", "s")]
    found = results(*pairs, teachers={"s": "b"})
    assert set(distilled.survivor_grid(found, first=True)["model"]) == {"b", "s"}
    assert set(distilled.survivor_grid(found, first=False)["model"]) == {"r"}


def test_training_accuracy_has_a_column_for_every_model():
    pairs = [(step("redundancy", model=m, task=t), survivors((0.9, 0.8, 0.6))) for m in ("b", "s")
             for t in ("upos", "deprel")]  # fmt: skip
    table = distilled.training_accuracy(results(*pairs))
    assert table.columns.tolist() == ["task", "threshold", "b", "s"]
    assert table["task"].tolist() == ["upos"] * 3 + ["deprel"] * 3
    assert table["s"].tolist() == pytest.approx([0.99, 0.98, 0.7] * 2)


def test_families_of_languages_are_drawn_by_task_and_only_once_for_the_first_model():
    facts = {"kind": "threshold", "threshold": 0.0, "score": 0.5}
    rows = [
        {"model": m, "language": c, "family": f, **facts}
        for m in ("mBERT", "XLM-R")
        for c, f in (("de", "Germanic"), ("fi", "Uralic"))
    ]
    found = results(*((step("languages", task=task), run(languages=rows)) for task in ("upos", "deprel")))
    assert set(distilled.family_curves(found, ("upos",), only_first=True)["model"]) == {"mBERT"}
    both = distilled.family_curves(found, ("deprel",))
    assert (set(both["task"]), set(both["model"])) == ({"deprel"}, {"mBERT", "XLM-R"})


def test_data_tables_count_labels():
    classes = [{"features": "layer 0", "class": c} for c in "abc"]
    found = results((step("redundancy", model="m", task="upos", unit="word"),
                     run({"examples": {"train": 9, "dev": 2, "test": 3}}, classes=classes)))  # fmt: skip
    assert redundancy.data_table(found, ["redundancy"]).to_dict("records") == [
        {"task": "upos", "train": 9, "dev": 2, "test": 3, "labels": 3}
    ]


def test_an_interval_of_a_score_contains_the_variance_of_seeds():
    values = (0.5, 0.7, 0.9)
    scores = [{"seed": s, "part": "test", "metric": "accuracy", "value": v} for s, v in enumerate(values)]
    summary = {"metric": "accuracy", "test accuracy": 0.7, "examples": {"test": 10**9}}
    score = Measurement.test_score(run(summary, scores=scores))
    reach = 4.302652729911275 * 0.2 / 3**0.5  # Student's quantile with two degrees of freedom
    assert (score.low, score.high) == pytest.approx((0.7 - reach, 0.7 + reach), abs=1e-4)
    alone = Measurement.test_score(run(summary, scores=scores[:1]))
    assert alone.high - alone.low < 1e-3


def test_effects_compare_models_that_differ_in_one_way_only():
    models = {"BERT": 0.9, "RoBERTa": 0.8, "mBERT": 0.85, "distilBERT": 0.7}
    pairs = [
        (step("redundancy", model=model, task="upos"), reduced("word", (score, score, 0.5), (1.0, 0.3, 0.1)))
        for model, score in models.items()
    ]
    families = {"BERT": "bert", "mBERT": "bert", "RoBERTa": "roberta", "distilBERT": "distilbert"}
    found = results(*pairs, families=families, teachers={"distilBERT": "BERT"})
    found = type(found)(found.steps, found.runs, found.families, found.teachers,
                        {"BERT": False, "RoBERTa": False, "mBERT": True, "distilBERT": False})  # fmt: skip
    table = distilled.effect_table(found).set_index("effect")
    assert set(table.index) == {"distillation", "multilingualism", "architecture"}
    assert table.loc["distillation", "change of score"] == pytest.approx(-0.2)
    assert table.loc["multilingualism", ["model", "compared with"]].tolist() == ["mBERT", "BERT"]
    assert table.loc["architecture", ["model", "compared with"]].tolist() == ["BERT", "RoBERTa"]


def test_only_declared_students_have_a_panel_with_their_own_teacher():
    curves = [
        {"model": m, "layer": i, "curve": "layer_average", "measure": "cka", "value": 0.5}
        for m in ("a", "b", "s")
        for i in range(3)
    ]
    found = results((step("compare"), run(curves=curves)), teachers={"s": "b"})
    table = distilled.layer_curves(found)
    panels = {name: set(rows["model"]) for name, rows in table.groupby("panel")}
    assert panels == {"(a) original models": {"a", "b"}, "(b) b and s": {"b", "s"}}


def test_ablation_rows_show_downstream_scores_and_not_losses():
    def means(value):
        rows = [{"strategy": "full-target", "language": code, "k": 0, "part": part, "metric": metric, "value": score}
                for code in ("tr", "sw") for part in ("dev", "test")
                for metric, score in (("accuracy", value), ("macro_f1", 0.0))]  # fmt: skip
        return run({"metric": "accuracy"}, means=rows)

    found = results(
        (step("row-adapt", task="nli", variant="monoshot"), means(0.6)),
        (step("row-adapt", task="nli", variant="monoshot-without-tying"), means(0.5)),
    )
    table = monolingual.zero_shot_grid(found, kind="row-adapt", rows=tuple(monolingual.DISTILLATIONS["4.8"]))
    assert table.columns.tolist() == ["variant", "nli tr", "nli sw", "Average"]
    assert table["Average"].tolist() == pytest.approx([0.6, 0.5])


def test_tables_of_top_and_bottom_neurons_have_a_row_per_fine_tuning():
    selection = [
        {"task": "upos", "model": m, "set": s, "share": 0.05, "retrained": v}
        for m, values in {"base": (0.9, 0.8), "sst2": (0.85, 0.4)}.items()
        for s, v in zip(("top", "bottom"), values, strict=True)
    ]
    table = transfer_learning.top_and_bottom(
        results((step("diff", model="base"), run(selection=selection))), ("upos",), 0.05
    )
    assert table["tasks"].tolist() == ["Base", "sst2"]
    assert table["base bottom"].tolist() == pytest.approx([0.8, 0.4])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_exhibit_without_its_steps_is_listed_without_rows(name):
    tables = exhibit_tables(DOCUMENTS[name], results())
    assert set(tables) == {"exhibits"}
    assert tables["exhibits"]["document"].tolist() == [exhibit.label for exhibit in DOCUMENTS[name].exhibits]
    assert not tables["exhibits"]["rows"].any()


def test_figures_of_a_document_are_drawn_from_the_folder_alone():
    curves = [{"model": m, "layer": i, "curve": "layer_average", "measure": "cka", "value": i / 3}
              for m in ("a", "s") for i in range(3)]  # fmt: skip
    pairs = [{"measure": "cka", "model_a": m, "model_b": m, "layer_a": i, "layer_b": j, "value": 1.0}
             for m in ("a", "s") for i in range(3) for j in range(3)]  # fmt: skip
    found = results((step("compare"), run(curves=curves, similarity=pairs)), teachers={"s": "a"})
    made = Run("study", {}, {}, exhibit_tables(DOCUMENTS["distilled"], found))
    panels = {panel.title.split(":")[0]: panel for panel in exhibit_panels(made)}
    assert set(panels) == {"Figure 5.1", "Figure 5.2"}
    (grid,) = panels["Figure 5.1"].views
    layout = grid.figure.to_plotly_json()["layout"]
    assert {"xaxis", "xaxis2"} <= set(layout)
    assert [note["text"] for note in layout["annotations"]] == ["a", "s"]
    assert all(has_marks(view.figure) for panel in panels.values() for view in panel.views)


def test_a_grid_is_drawn_for_papers_with_its_names_and_one_legend():
    pytest.importorskip("matplotlib")
    from residuum.reporting.charts import Series, line_chart
    from residuum.reporting.paper_figures import paper_figure

    series = [Series("en", [0, 1], [0.1, 0.2]), Series("de", [0, 1], [0.3, 0.4])]
    charts = {name: line_chart(series, x="layer", y="score") for name in ("first", "second", "third")}
    drawn = paper_figure(chart_grid(charts))
    panels = [axes for axes in drawn.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["first", "second", "third"]
    assert all(len(axes.lines) == 2 for axes in panels)
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["en", "de"]
    assert [axes.get_ylabel() for axes in panels] == ["score", "", "score"]


def test_one_chart_is_no_grid():
    import plotly.graph_objects as go

    figure = go.Figure()
    assert chart_grid({"only": figure}) is figure
