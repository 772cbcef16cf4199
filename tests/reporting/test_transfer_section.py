"""The section of a `transfer` run, from made-up numbers."""

import dataclasses

import pandas as pd
import pytest

from residuum.errors import StoreError
from residuum.reporting.report import section
from residuum.storage.results import Run

SCORES = {"dev": 0.9, "test": 0.9, "low": 0.88, "high": 0.92}


def transfer_run(**summary) -> Run:
    steps = [
        {"step": "oracle", "layer": 12, "neurons": 100, "share": 1.0, "parameters": 900, "bytes": 4e6, "ms": 9.0},
        {"step": "as saved", "layer": 2, "neurons": 10, "share": 0.1, "parameters": 300, "bytes": 1e6, "ms": 3.0},
        {"step": "narrowed", "layer": 2, "neurons": 10, "share": 0.1, "parameters": 200, "bytes": 9e5, "ms": 2.0},
    ]
    curve = [
        {"step": "neurons", "layer": 2, "neurons": 10, "bytes": 1e6, "ms": 3.0, "front": True},
        {"step": "layers", "layer": 2, "neurons": 30, "bytes": 2e6, "ms": 3.0, "front": True},
        {"step": "layers", "layer": 12, "neurons": 100, "bytes": 4e6, "ms": 9.0, "front": False},
    ]
    fronts = [{**row, **{f"front {cost}": row["front"] for cost in ("neurons", "bytes", "ms")}} for row in curve]
    tables = {"steps": pd.DataFrame(steps).assign(**SCORES), "curve": pd.DataFrame(fronts).assign(**SCORES)}
    known = {
        "task": "upos",
        "metric": "accuracy",
        "oracle": 0.95,
        "score": 0.9,
        "interval": [0.88, 0.92],
        "share of oracle": 0.947,
        "interval of the share": [0.92, 0.97],
        "layers": 2,
        "layers before": 12,
        "neurons": 10,
        "share of neurons": 0.1,
        "speed-up": [3.2, 3.0, 3.4],
        "classifier speed-up": [8.0, 7.0, 9.0],
        "bytes": 1e6,
        "sufficient": True,
        "baselines": {"majority": 0.3, "word majority": 0.6},
        "narrowing": "9 of 16 hidden dimensions",
    }
    return Run("transfer", {"model": "encoder"}, {**known, **summary}, tables)


def test_the_findings_have_the_numbers():
    found = {finding.topic: finding.text for finding in section(transfer_run()).findings}
    kept = "2 of 12 layers and 10 neurons (10.0%) of encoder keep 94.7% (95\u00a0% CI 92.0–97.0%)"
    assert found["Answer"].startswith(kept)
    assert found["Answer"].endswith("of its accuracy for upos, 3.2 times as fast.")
    assert "accuracy 0.900 (95\u00a0% CI 0.880–0.920)" in found["Score"]
    assert "3.2 (95\u00a0% CI 3.0–3.4) times as fast as the whole model" in found["Speed"]
    assert "Not sufficient" not in found


def test_baselines_and_the_random_twin_stand_beside_the_score():
    run = transfer_run(**{"baselines": {"majority": 0.2, "word majority": 0.85}, "random twin": 0.8})
    found = {finding.topic: finding.text for finding in section(run).findings}
    assert found["Baselines"] == "To be compared with: majority 0.200, word majority 0.850, random twin 0.800."
    assert "Baselines" not in {finding.topic for finding in section(transfer_run(baselines={})).findings}


def narrowing_text(**narrowed) -> str:
    run = transfer_run()
    run.tables["steps"].loc[2, list(narrowed)] = list(narrowed.values())
    return {finding.topic: finding.text for finding in section(run).findings}["Narrowing"]


def test_narrowing_that_costs_accuracy_or_saves_no_time_is_said_not_to_pay():
    worse = narrowing_text(test=0.85, low=0.83, high=0.87)
    assert "0.850 instead of 0.900, 2.00 ms per text instead of 3.00: it does not pay" in worse
    assert "0.900 instead of 0.900, 3.50 ms per text instead of 3.00: it does not pay" in narrowing_text(ms=3.5)


def test_narrowing_that_is_quicker_and_not_clearly_worse_is_said_to_pay():
    assert narrowing_text().endswith("0.900 instead of 0.900, 2.00 ms per text instead of 3.00: it pays.")
    assert narrowing_text(test=0.89, low=0.87, high=0.91).endswith("it pays.")


def test_narrowing_that_was_not_measured_says_why():
    run = transfer_run(narrowing="nothing to drop")
    steps = run.tables["steps"].iloc[:2]
    shown = section(dataclasses.replace(run, tables={**run.tables, "steps": steps}))
    assert shown.findings[-1].text == "Dropping hidden dimensions was not measured: nothing to drop."


def test_a_set_that_is_not_good_enough_is_said_to_be():
    assert "Not sufficient" in [finding.topic for finding in section(transfer_run(sufficient=False)).findings]


def test_the_curve_can_be_read_by_each_cost_and_has_the_front():
    views = section(transfer_run()).panels[1].views
    assert [view.key for view in views] == ["neurons", "bytes", "ms"]
    front = [trace for trace in views[1].figure.data if trace.name == "Pareto front (on dev)"]
    assert list(front[0].x) == [1.0, 2.0]


def test_the_first_figure_shows_score_against_speed_with_the_layers_on_the_dots():
    panel = section(transfer_run()).panels[0]
    view = next(view for view in panel.views if view.key == panel.first_key)
    dots = [trace for trace in view.figure.data if trace.mode != "lines"]
    assert [(list(dot.x), list(dot.y)) for dot in dots] == [([3.0, 9.0], [0.9, 0.9]), ([3.0], [0.9])]
    assert (list(dots[0].text), view.label) == (["2", "12"], "milliseconds per text")
    assert "word majority baseline 0.600" in str(view.figure), "the best baseline, which does not flatten the curve"


def test_a_run_without_its_tables_is_refused():
    run = transfer_run()
    broken = dataclasses.replace(run, tables={"steps": run.tables["steps"]})
    with pytest.raises(StoreError, match="not a complete run of `transfer`: its table curve"):
        section(broken, "runs/x")
