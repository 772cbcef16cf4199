"""The demo itself, in a real browser. `RESIDUUM_DEMO` names the folder of one that is done; else it is run first."""

import os
from pathlib import Path

import pytest
from reading import READERS, open_as, read_through, reader_name

from residuum.studies.demo import demo
from residuum.studies.running import DOCUMENTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if done := os.environ.get("RESIDUUM_DEMO"):
        return Path(done)
    out = tmp_path_factory.mktemp("demo")
    demo(out)
    return out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", READERS, ids=reader_name)
def test_a_reader_goes_through_every_section_of_the_demo(browser, folder, reader, tmp_path):
    open_as(browser, folder / "report.html", reader)
    sections = browser.run("document.querySelectorAll('section.run').length")
    assert read_through(browser, tmp_path) == 1 + sections + 1
    assert browser.run("document.querySelectorAll('.run .verdict').length") >= 30


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_reader_of_a_study_alone_sees_every_step_on_a_phone(browser, folder, name, tmp_path):
    open_as(browser, folder / name / "report.html", READERS[-1])
    steps = len(list((folder / name).glob("*/result.json")))
    assert read_through(browser, tmp_path, has_map=name != "monolingual") == 1 + 1 + steps + 1
    assert browser.run("document.querySelectorAll('section.run').length") == 1 + steps


def test_the_page_is_one_file_that_is_not_too_large(folder):
    page = folder / "report.html"
    data = sum(len(part) for part in page.read_text(encoding="utf-8").split('class="data">')[1:])
    assert page.stat().st_size - data < 6_000_000
