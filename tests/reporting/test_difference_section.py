"""The section of a `diff` run, from made-up numbers."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from report_runs import comparison_run

from residuum.errors import StoreError
from residuum.reporting.report import section
from residuum.storage.results import Run

BLOCKS = {"base": 2, "tuned": 2, "half": 1}
LAYERS = [(model, layer, layer / n) for model, n in BLOCKS.items() for layer in range(n + 1)]
TASKS = ("upos", "chunk")
MEASURES = ("neuron", "svcca", "cka", "attention_cka")


def difference_run(lost: float = 0.2, **summary) -> Run:
    """The last layer of both other models lost `lost` of upos, and so did all layers together."""
    compared = comparison_run(
        {model: n + 1 for model, n in BLOCKS.items()}, ("neuron", "svcca", "cka", "attention_cka")
    )
    curves = compared.tables["curves"]
    change = [
        {
            "task": task,
            "model": m,
            "features": f"layer {layer}",
            "layer": layer,
            "base_layer": 2 * depth,
            "depth": depth,
        }
        | loss(lost if (task, depth) == ("upos", 1) else 0.0)
        for task in TASKS
        for m, layer, depth in LAYERS
        if m != "base"
    ]
    whole = [
        {"task": task, "model": m, "features": "all layers", "layer": None, "base_layer": np.nan, "depth": np.nan}
        | loss(lost if task == "upos" else 0.0)
        for task in TASKS
        for m in ("tuned", "half")
    ]
    tables = {
        "change": pd.DataFrame([*change, *whole]).astype({"layer": "Int64"}),
        "scores": per_layer(score=0.9, low=0.88, high=0.92, selectivity=0.3).assign(features="x"),
        "selection": per_model(share=0.1, neurons=3, kept=0.5).merge(
            pd.DataFrame({"share": 0.1, "set": ["top", "bottom"], "retrained": [0.9, 0.7]}), on="share"
        ),
        "minimal": per_model(set="minimal", neurons=12, share=0.1, accuracy=0.9, selectivity=0.4),
        "spread": pd.concat(
            [per_layer(set=name, share=s) for name, s in {"minimal": 0.5, "top 0.05": 0.3, "top 0.1": 0.2}.items()]
        ).assign(neurons=4),
        "properties": per_layer(label="NOUN", rank=1, neuron="1:2", share=0.2),
        "similarity": compared.tables["similarity"],
        "likeness": likeness(),
        "curves": curves.assign(depth=curves["layer"] / curves["model"].map(BLOCKS)),
        "survivors": pd.DataFrame(LAYERS, columns=["model", "layer", "depth"])
        .merge(pd.DataFrame({"threshold": [0.0, 0.3]}), how="cross")
        .assign(neurons=32, medoid=16),
        "thresholds": pd.DataFrame({"model": list(BLOCKS), "threshold": 0.3, "neurons": 48, "share": [0.5, 0.25, 0.5]}),
        "models": pd.DataFrame({"model": list(BLOCKS), "blocks": BLOCKS.values(), "layers": 3, "neurons": 96}),
    }
    return Run("diff", {"measures": ["cka"]}, {"models": 3, "tasks": 2, "words": 1234, **summary}, tables)


def loss(lost):
    return {"score": 0.9 - lost, "base": 0.9, "change": -lost, "low": -lost - 0.01 * (lost > 0), "high": -lost / 2}


def per_layer(**columns):
    layers = pd.DataFrame(LAYERS, columns=["model", "layer", "depth"])
    return pd.DataFrame({"task": TASKS}).merge(layers, how="cross").assign(**columns)


def per_model(**columns):
    return pd.DataFrame({"task": TASKS}).merge(pd.DataFrame({"model": list(BLOCKS)}), how="cross").assign(**columns)


def likeness():
    rows = [
        {"model": m, "layer": layer, "depth": depth, "value": 1 - depth / 2, "closest_layer": 1, "closest": 0.97}
        for m, layer, depth in LAYERS
        if m != "base"
    ]
    found = pd.DataFrame(rows).assign(low=np.nan, high=np.nan)
    return pd.concat([found.assign(measure=measure) for measure in ("neuron", "cka")], ignore_index=True)


def finding(run, topic):
    return next(one.text for one in section(run).findings if one.topic == topic)


def test_the_findings_have_the_numbers_of_each_model():
    said = finding(difference_run(), "tuned: knowledge")
    assert "upos -0.200 (95\u00a0% CI -0.210 to -0.100)" in said
    assert "layer 2 changed most (upos -0.200)" in said
    assert "+0.000 in the lower half and -0.100 in the upper half" in said
    assert "1 of 6 intervals exclude zero" in said
    neurons = finding(difference_run(), "tuned: neurons")
    assert "upos 12 → 12" in neurons
    assert "upos 0.75 → 0.75" in neurons
    assert "At the clustering threshold 0.3, 25% of neurons are left (base: 50%)" in neurons
    likeness = finding(difference_run(), "tuned: similarity")
    assert "lowest in layer 2: 0.500. This layer is most similar to layer 1 of base (0.970)" in likeness


def test_salient_neurons_are_shown_as_many_in_every_model():
    panels = {panel.title: panel for panel in section(difference_run()).panels}
    tenth = panels["Layers of the most salient 10%"].views[0]
    assert tenth.where == {"task": TASKS[0], "set": "top 0.1"}
    assert {share for line in tenth.figure.data for share in line.y} == {0.2}
    minimal = panels["Layers of the minimal set"].views[0]
    assert {share for line in minimal.figure.data for share in line.y} == {0.5}


def test_where_nothing_changed_that_is_said():
    assert "The accuracy of every layer equals that of the base." in finding(
        difference_run(lost=0.0), "tuned: knowledge"
    )


def test_what_was_left_out_and_how_the_data_was_cut_is_said():
    run = difference_run(**{"left out": "attention (base gives none)", "notes": ["text was cut"]})
    assert finding(run, "Left out") == "Attention (base gives none)."
    assert finding(run, "Data") == "text was cut."


def test_every_task_and_measure_has_its_figures_and_tasks_are_chosen_together():
    panels = {panel.title: panel for panel in section(difference_run()).panels}
    of_tasks = [panel for panel in panels.values() if panel.choice == "Task"]
    assert len(of_tasks) == 5
    assert {tuple(view.key for view in panel.views) for panel in of_tasks} == {("task upos", "task chunk")}
    heatmaps = panels["Similarity of all layers of all models"]
    assert [view.group for view in heatmaps.views] == ["Representations"] * 3 + ["Attention"]


def test_curves_of_models_of_different_depth_end_at_the_same_place():
    panel = next(p for p in section(difference_run()).panels if p.title == "Accuracy of each layer")
    lines = {trace.name: list(trace.x) for trace in panel.views[0].figure.data if trace.name}
    assert lines == {"base": [0, 0.5, 1], "tuned": [0, 0.5, 1], "half": [0, 1]}


def test_the_change_is_drawn_with_its_interval_around_zero():
    panel = next(p for p in section(difference_run()).panels if p.title.startswith("Change from the base"))
    lines = {trace.name: list(trace.y) for trace in panel.views[0].figure.data if trace.name}
    assert lines == {"base": [0, 0], "tuned": [0, 0, -0.2], "half": [0, -0.2]}


def test_a_model_has_the_same_colour_in_every_figure():
    panels = [p for p in section(difference_run()).panels if p.shape == "wide" and p.views[0].table != "selection"]
    looks = [{t.name: t.line.color for t in p.views[0].figure.data if t.name} for p in panels]
    assert len(looks) == 7
    assert all(look == looks[0] for look in looks)


def test_a_run_without_a_table_is_refused():
    run = difference_run()
    tables = {name: table for name, table in run.tables.items() if name != "spread"}
    with pytest.raises(StoreError, match="Run `diff` again with --fresh"):
        section(dataclasses.replace(run, tables=tables))
