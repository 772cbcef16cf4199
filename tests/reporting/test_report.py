"""Runs → one HTML file."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pandas as pd
import pytest
from report_runs import MEASURES, comparison_run

from residuum.comparison.compare import Comparison
from residuum.errors import SettingError, StoreError
from residuum.reporting.page import _in_rows
from residuum.reporting.report import report
from residuum.storage.results import Run, read_run, write_run

NASTY = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> & \"quoted\" 'name'"


class Page(HTMLParser):
    """The elements of a page, with their attributes, and the texts within."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.texts, self._open = [], {}, []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:  # elements such as <meta> are never closed
            pass

    def handle_data(self, data):
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    def all(self, tag, **wanted):
        found = [attributes for name, attributes in self.elements if name == tag]
        return [a for a in found if all(a.get(key.rstrip("_")) == value for key, value in wanted.items())]

    def data(self):
        return [json.loads(text) for text in self.texts["script"] if text.startswith(("{", "["))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    run = comparison_run({"deep": 3, "small": 2}, MEASURES)
    return write_run(tmp_path_factory.mktemp("runs") / "cmp", run)


@pytest.fixture(scope="module")
def html(folder):
    return report([folder], folder.parent / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_a_report_is_one_file_below_three_megabytes_plus_data(folder, html, tmp_path):
    out = report([folder], tmp_path / "new" / "r.html")
    assert out == tmp_path / "new" / "r.html"
    assert [file.name for file in out.parent.iterdir()] == ["r.html"]
    data = sum(len(block) for block in re.findall(r'class="data">(.*?)</script>', html, re.DOTALL))
    assert len(html.encode()) - data < 3_000_000


def test_nothing_is_loaded_from_elsewhere(page, html):
    for _, attributes in page.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert attributes.get(name, "#").startswith(("#", "data:,")), attributes
    style = "".join(page.texts["style"])
    assert "@import" not in style
    assert "url(" not in style
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert "default-src 'none'" in policy["content"]
    assert "http" not in policy["content"]


def test_every_measure_can_be_chosen_and_has_its_map(page):
    chosen = [option["value"] for option in page.all("option")]
    assert chosen[: len(MEASURES)] == list(MEASURES)
    maps = next(views for views in page.data() if isinstance(views, list))
    assert [view["key"] for view in maps] == list(MEASURES)
    assert all(len(view["data"]) == 4 for view in maps)
    assert [option["value"] for option in page.all("option") if "selected" in option] == ["cka"] * 3


def test_every_figure_names_a_table_that_is_there(page):
    tables = {table["id"] for table in page.all("details", class_="card table")}
    views = [view for block in page.data() if isinstance(block, list) for view in block]
    assert len(views) == 3 * len(MEASURES)
    assert {view["table"] for view in views} <= tables


def test_landmarks_headings_and_labels(page):
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("header")) == len(page.all("footer")) == 1
    assert page.all("nav", **{"aria-label": "Contents"})
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        if "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in ids
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in ids
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("select") == tags.count("label")
    assert page.all("html", lang="en")


def test_the_front_page_has_the_findings_and_the_end_the_settings(page, folder):
    said = " ".join(page.texts["dd"])
    assert "5 layers of 2 models were compared over 1,234 words with 16 measures" in said
    assert "Layer 0 of deep and layer 0 of small have the highest CKA: 0.870" in said
    codes = page.texts["code"]
    assert {"deep 00ff", "small 00ff", "3", "0.1.0", str(folder)} <= set(codes)
    assert "options.top_k" in page.texts["dt"]


def test_markup_in_names_words_and_settings_is_inert(tmp_path):
    run = comparison_run({NASTY: 2, "b": 2}, ["cka", NASTY], summary={"left out": NASTY})
    run.config[NASTY] = {NASTY: NASTY}
    run.tables[NASTY.replace("/", "")] = pd.DataFrame({NASTY: [NASTY]})
    words = Run("count", {}, {NASTY: NASTY}, {"words": pd.DataFrame({"word": [NASTY]})})
    html = report([run, words], tmp_path / "r.html", title=NASTY).read_text(encoding="utf-8")
    assert "<script>alert" not in html
    page = Page(html)
    assert not page.all("img")
    assert len(page.all("script")) == 2 + len(page.data())
    assert page.texts["title"] == [NASTY]
    assert NASTY in {option["value"] for option in page.all("option")}


def test_a_command_without_figures_of_its_own_shows_its_summary_and_tables(tmp_path):
    scores = pd.DataFrame({"task": ["pos", "dep"], "accuracy": [0.9, 0.5]})
    run = Run("count", {"layers": []}, {"accuracy": 0.91234, "words": 12345, "best": "layer 3"}, {"scores": scores})
    page = Page(report(run, tmp_path / "r.html").read_text(encoding="utf-8"))
    assert page.texts["h1"][0] == "Results of count"
    assert {"0.9123", "12,345", "layer 3", "The command count wrote scores (2 rows)."} <= set(page.texts["dd"])
    assert [table["data-name"] for table in page.all("details", class_="card table")] == ["scores"]
    assert page.data()[0]["columns"][0]["levels"] == ["pos", "dep"]


def test_several_runs_stand_in_their_order_under_one_title(tmp_path):
    folder = write_run(tmp_path / "cmp", comparison_run({"deep": 3, "small": 2}))
    other = Run("count", {}, {"accuracy": 0.5})
    page = Page(report([other, folder, str(folder)], tmp_path / "r.html").read_text(encoding="utf-8"))
    assert page.texts["h1"][0] == "Residuum report"
    titles = [text for text in page.texts["h2"] if text.startswith(("Results", "Which"))]
    assert titles == ["Results of count", *["Which layers of deep and small are alike?"] * 2]


def test_a_folder_and_its_run_give_the_same_figures(tmp_path):
    run = comparison_run({"deep": 3, "small": 2})
    folder = write_run(tmp_path / "cmp", run)
    of_run = Page(report(run, tmp_path / "r.html").read_text(encoding="utf-8"))
    of_folder = Page(report(folder, tmp_path / "f.html").read_text(encoding="utf-8"))
    assert of_run.data() == of_folder.data()


def test_text_that_no_file_can_hold_does_not_stop_a_report(tmp_path):
    run = Run("count", {}, {"word": "half a pair \ud800"})
    assert "half a pair ?" in report(run, tmp_path / "r.html").read_text(encoding="utf-8")


def test_mistakes_are_named_before_anything_is_written(folder, tmp_path):
    out = tmp_path / "r.html"
    with pytest.raises(StoreError, match="is not a finished run: it has no result.json"):
        report([folder, tmp_path], out)
    with pytest.raises(StoreError, match="mistyped does not exist; expected a folder that a command wrote"):
        report([folder, tmp_path / "mistyped"], out)
    with pytest.raises(SettingError, match="no run to report"):
        report([], out)
    with pytest.raises(SettingError, match=r"is a folder; expected a file to write, such as .*report\.html"):
        report([folder], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_that_is_not_whole_is_refused(tmp_path):
    run = comparison_run({"a": 2})
    del run.tables["layers"]
    with pytest.raises(StoreError, match="table layers has no model, layer, neurons, constant"):
        report(run, tmp_path / "r.html")
    run = comparison_run({"a": 2})
    run.tables["similarity"] = run.tables["similarity"].iloc[:0]
    with pytest.raises(StoreError, match="its table similarity has no rows"):
        report(run, tmp_path / "r.html")


def damaged_folder(tmp_path):
    return write_run(tmp_path / "run", comparison_run({"a": 2}, summary={"words": "many"}))


def test_a_folder_with_a_value_of_another_kind_is_named_and_so_is_what_makes_it_again(tmp_path):
    folder = damaged_folder(tmp_path)
    again = r"Run `compare` again with --fresh\.$"
    said = rf"^{folder} is not a complete run of `compare`: .*\(ValueError: .*\)\. {again}"
    with pytest.raises(StoreError, match=said) as error:
        report(folder, tmp_path / "r.html")
    assert isinstance(error.value.__cause__, ValueError)
    with pytest.raises(StoreError, match=again):
        Comparison(read_run(folder)).plot()
    with pytest.raises(StoreError, match=again):
        Comparison(read_run(folder))._repr_html_()
    assert not (tmp_path / "r.html").exists()


def test_a_run_that_was_made_here_keeps_its_own_error(tmp_path):
    run = replace(read_run(damaged_folder(tmp_path)), folder=None)
    with pytest.raises(ValueError, match="Cannot specify ','"):
        report(run, tmp_path / "r.html")


def test_a_failed_report_leaves_the_old_one(folder, tmp_path, monkeypatch):
    out = report(Run("count", {}), tmp_path / "r.html")
    before = out.read_bytes()
    monkeypatch.setattr("residuum.storage.files.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(StoreError, match="disk is full"):
        report([folder], out)
    assert out.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]


def test_a_figure_of_half_the_width_stands_in_no_void():
    shapes = lambda *whole: [p["shape"] for p in _in_rows({"shape": "s", "whole_row": w} for w in whole)]  # noqa: E731
    assert shapes(False, False) == ["s", "s"]
    assert shapes(False) == ["s full"]
    assert shapes(False, True, False, False, False) == ["s full", "s", "s", "s", "s full"]
