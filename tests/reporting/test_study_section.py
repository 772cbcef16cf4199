"""The section of a study: verdicts with numbers, cases against their bound, and steps under their study."""

import math

import numpy as np
import pytest
from report_runs import comparison_run
from study_runs import sentence, study_run, write_study

from residuum.errors import StoreError
from residuum.reporting.page import _chapters
from residuum.reporting.report import report, section
from residuum.reporting.studies import study_overview
from residuum.reporting.wording import claim_text
from residuum.storage.results import write_run


def test_every_finding_says_its_verdict_and_its_numbers():
    overview, holds, fails, unclear, unmeasured = section(study_run()).findings
    assert overview.text == (
        "Nobody (2000). Of 4 claims, 1 holds, 1 does not hold, 1 is inconclusive and 1 was not measured, with teacher "
        "(--scale sample)."
    )
    assert holds.text == (
        f"{sentence('holds')} Difference in CKA: 0.425 (0.2 to 0.65 over all cases and their 95\u00a0% "
        "intervals; claim: above 0); true in 2 of 2 cases."
    )
    assert [one.verdict for one in (holds, fails, unclear, unmeasured)] == [
        "holds", "does not hold", "inconclusive", "not measured",
    ]  # fmt: skip
    assert unmeasured.text == f"{sentence('not measured')} Note: there is one model."


def test_what_the_numbers_leave_open_is_folded_away():
    assert [one.minor for one in section(study_run()).findings] == [False, False, False, True, True]


def test_the_cases_of_a_finding_are_drawn_against_its_bound():
    panel, *_ = section(study_run()).panels
    drawn = ["holds", "does not hold", "inconclusive"]
    assert [view.where["finding"] for view in panel.views] == [sentence(verdict) for verdict in drawn]
    figure = panel.views[1].figure
    (trace,) = figure.data
    assert list(trace.x) == pytest.approx([-0.4, -0.35])
    assert list(trace.error_x.array) == pytest.approx([0.2, 0.2])
    assert figure.layout.shapes[0].x0 == 0.0
    assert list(figure.layout.yaxis.ticktext) == ["teacher, upos", "teacher, &lt;deprel&gt;"]
    assert not any(math.isnan(value) for value in trace.x)


def test_what_was_trained_is_drawn_task_by_task_against_the_majority():
    _, panel, _ = section(study_run()).panels
    sst2, stsb = panel.views
    assert list(sst2.figure.layout.yaxis.ticktext) == ["teacher", "teacher, without top:2"]
    assert list(sst2.figure.data[0].x) == pytest.approx([0.9, 0.7])
    assert sst2.figure.layout.shapes[0].x0 == 0.5
    assert not stsb.figure.layout.shapes, "a correlation is not read against the most frequent label"


def test_a_study_that_trained_nothing_has_no_such_panel():
    run = study_run()
    del run.tables["trained"]
    assert [panel.title for panel in section(run).panels] == ["Every claim, case by case", "Figure 1: Layers"]


def test_every_exhibit_is_a_figure_and_a_table_under_its_own_number():
    content = section(study_run())
    *_, panel = content.panels
    assert panel.title == "Figure 1: Layers"
    assert list(panel.views[0].figure.data[-1].y) == pytest.approx([0.1, 0.2, 0.4])
    (table,) = [one for one in content.tables if one.name == "figure-1"]
    assert (table.caption, len(table.frame)) == ("Figure 1: Layers.", 3)


def test_several_studies_are_counted_together():
    studies = [section(study_run(name)) for name in ("similarity", "redundancy")]
    assert study_overview(studies) == (
        "2 studies tested 8 claims from the papers: 2 hold, 2 do not hold, 2 are inconclusive and 2 were not measured."
    )
    assert study_overview(studies[:1]).startswith("Nobody (2000). Of 4 claims, 1 holds, ")
    assert study_overview([]) == ""


def test_steps_stand_under_the_study_whose_folder_holds_them(tmp_path):
    folders = [*write_study(tmp_path / "a", "similarity"), *write_study(tmp_path / "b", "redundancy")]
    other = write_run(tmp_path / "alone", comparison_run({"deep": 3}))
    text = report([other, *folders], tmp_path / "report.html").read_text(encoding="utf-8")
    navigation = text.split('<nav aria-label="Contents">')[1].split("</nav>")[0]
    assert [link.split("<")[0] for link in navigation.split('">')[1:]] == [
        "Overview", "alone", "a", "compare", "b", "compare", "Settings",
    ]  # fmt: skip
    assert text.count('class="run"') == 5


def test_the_page_of_a_study_opens_with_its_verdicts_and_not_with_the_answer_of_a_step(tmp_path):
    text = report(write_study(tmp_path / "a", "similarity"), tmp_path / "report.html").read_text(encoding="utf-8")
    answer = text.split('<p class="answer">')[1]
    assert answer.startswith("Nobody (2000). Of 4 claims, 1 holds, 1 does not hold")
    tiles = answer.split('<dl class="tiles">')[1].split("</dl>")[0]
    assert "<dt>claims do not hold</dt><dd>1</dd>" in tiles


def test_a_run_beside_a_study_is_none_of_its_steps():
    sections = [{"content": section(study_run(), "out/study")}, {"content": section(study_run("redundancy"), "out")}]
    assert [len(chapter["steps"]) for chapter in _chapters(sections)] == [1]
    assert [len(chapter["steps"]) for chapter in _chapters(sections[:1])] == [0]


def test_a_study_that_is_not_whole_is_refused():
    run = study_run()
    del run.tables["cases"]
    with pytest.raises(StoreError, match="table cases has no where, finding, case"):
        section(run)


def test_a_number_without_an_interval_says_so():
    row = study_run().tables["findings"].iloc[0].to_dict()
    assert "Difference in CKA: 0.425 (no interval; claim: above 0)" in claim_text(
        {**row, "low": np.nan, "high": np.nan}
    )
    assert "Difference in CKA: 0.425 (claim: above 0)" in claim_text({**row, "low": 0.425, "high": 0.425})
