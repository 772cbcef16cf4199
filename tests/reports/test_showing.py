"""Results in a notebook: every class shows its findings and a table, and draws what the report draws."""

import inspect
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
import pytest
from report_runs import comparison_run

import residuum
from residuum.errors import SettingError
from residuum.results import Result, Run

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
    with pytest.raises(SettingError, match="compare has no figure 'pie'; there are 'Similarity of all layers"):
        Shown(RUN).plot("pie")
    with pytest.raises(SettingError, match=r"has no view 'rsa'; choose one of svcca, cka\."):
        Shown(RUN).plot(view="rsa")
    bare = Shown(Run("count", {}, {}, {"words": pd.DataFrame({"n": [1]})}))
    with pytest.raises(SettingError, match=r"nothing of it is drawn; \.frame has its numbers"):
        bare.plot()


def test_every_public_class_that_holds_a_run_is_such_a_result():
    classes = [one for name in residuum.__all__ if inspect.isclass(one := getattr(residuum, name))]
    with_run = [one for one in classes if "run" in getattr(one, "__dataclass_fields__", {})]
    assert len(with_run) >= 15
    assert [one.__name__ for one in with_run if not issubclass(one, Result)] == []
