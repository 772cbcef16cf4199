"""Results in a notebook: every class shows its findings and a table, and draws what the report draws."""

import inspect
import sys
from dataclasses import dataclass, replace

import pandas as pd
import plotly.graph_objects as go
import pytest
from every_run import evaluation_run, every_run, pruning_run
from report_runs import comparison_run
from study_runs import study_run

import residuum
from residuum.errors import SettingError
from residuum.reporting.charts import has_marks
from residuum.reporting.report import report, section
from residuum.storage.results import Result, Run

RUN = comparison_run({"deep": 4, "<b>wide</b>": 3}, ("svcca", "cka"))


@dataclass(frozen=True, eq=False)
class Shown(Result):
    run: Run

    @property
    def frame(self):
        return next(iter(self.run.tables.values()))


def test_a_notebook_shows_findings_and_the_first_rows_with_markup_as_text():
    page = Shown(RUN)._repr_html_()
    assert "Which layers of deep and &lt;b&gt;wide&lt;/b&gt; are alike?" in page
    assert "<b>wide</b>" not in page
    assert "8 of 98 rows" in page
    assert page.count("<tr") == 1 + 8
    assert "Similarity of all layers of all models" in page


def test_the_figure_is_that_of_the_report_and_another_can_be_chosen():
    first = Shown(RUN).plot()
    assert isinstance(first, go.Figure)
    assert {trace.type for trace in first.data} == {"heatmap"}
    assert first.layout.title.text == "CKA"
    assert Shown(RUN).plot(view="svcca").layout.title.text == "SVCCA"
    assert {trace.type for trace in Shown(RUN).plot("to the next").data} == {"scatter"}


def test_a_figure_that_is_not_there_is_an_error_that_lists_those_that_are():
    with pytest.raises(SettingError, match="compare has no figure 'pie'; choose one of 'Similarity of all layers"):
        Shown(RUN).plot("pie")
    with pytest.raises(SettingError, match=r"has no view 'rsa'; choose one of svcca, cka\."):
        Shown(RUN).plot(view="rsa")


def retrieved(rows):
    run = evaluation_run("retrieval", "tr")
    return replace(run, tables={"retrieval": run.tables["retrieval"].iloc[rows]})


def test_retrieval_with_all_layers_only_or_with_one_draws_its_scores():
    together, one = Shown(retrieved([2])).plot(), Shown(retrieved([1])).plot()
    assert (list(together.data[0].x), together.layout.yaxis.ticktext) == ([0.4], ("en → tr, layers 0-1",))
    assert (list(one.data[0].x), one.layout.yaxis.ticktext) == ([0.5], ("en → tr, layer 1",))
    several = Shown(retrieved([0, 1, 2]))
    assert list(several.plot().data[-1].y) == [0.3, 0.5]
    assert list(several.plot("choice of layers").data[0].x) == [0.4]


def test_layers_that_were_dropped_by_position_are_drawn_by_their_numbers():
    run = pruning_run()
    by_position = Shown(replace(run, tables={"layers": run.tables["layers"].drop(columns="value")}))
    kept, dropped = by_position.plot().data
    assert (list(kept.x), list(kept.y)) == ([1, 3], [1, 2])
    assert (list(dropped.x), list(dropped.y)) == ([2], [0])
    assert Shown(run).plot().layout.yaxis.title.text == "CKA of a layer's input and output"
    assert list(Shown(run).plot("kept").data[0].y) == [1, 2]


def nothing_of(run):
    """The run without any row in the tables that its figures draw."""
    emptied = {view.table for panel in section(run).panels for view in panel.views}
    tables = {name: table.iloc[:0] if name in emptied else table for name, table in run.tables.items()}
    return Shown(replace(run, tables=tables))


@pytest.mark.parametrize("run", every_run("word"), ids=lambda run: run.command)
def test_every_result_draws_something_or_says_in_one_line_that_it_cannot(run):
    figure = Shown(run).plot()
    assert isinstance(figure, go.Figure)
    assert has_marks(figure)
    assert Shown(run)._repr_html_()


@pytest.mark.parametrize(
    "bare",
    [
        Shown(Run("count", {}, {}, {"words": pd.DataFrame({"n": [1]})})),
        nothing_of(evaluation_run("correlate", "tr")),
        nothing_of(study_run()),
    ],
    ids=lambda bare: bare.run.command,
)
def test_what_has_nothing_to_draw_says_so_and_still_has_a_page(bare, tmp_path):
    with pytest.raises(SettingError, match=r"^This run of .* has nothing to draw; \.frame has its numbers\.$"):
        bare.plot()
    assert "plot" not in bare._repr_html_()
    assert report(bare.run, tmp_path / "report.html").exists()


def test_a_figure_without_a_number_is_left_out():
    run = comparison_run({"deep": 4}, ("svcca", "cka"))
    table = run.tables["similarity"]
    run.tables["similarity"] = table.assign(value=table["value"].where(table["measure"] != "svcca"))
    assert [view.key for view in section(run).panels[0].views] == ["cka"]


def test_every_class_that_holds_a_run_is_such_a_result():
    assert all(hasattr(residuum, name) for name in residuum.__all__)  # which loads every command
    loaded = [module for name, module in sys.modules.items() if name.startswith("residuum.")]
    classes = {one for module in loaded for one in vars(module).values() if inspect.isclass(one)}
    fields = {one: getattr(one, "__dataclass_fields__", {}) for one in classes}
    with_run = [one for one, own in fields.items() if "run" in own and own["run"].type in ("Run", Run)]
    assert len(with_run) >= 15
    assert [one.__name__ for one in with_run if not issubclass(one, Result)] == []
