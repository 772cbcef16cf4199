"""The demo itself, in a real browser. `RESIDUUM_DEMO` names the folder of one that is done; else it is run first."""

import os
from pathlib import Path

import pytest
from reading import READERS, open_as, read_through, reader_name

from residuum.studies.demo import STORY, demo

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
    assert sections >= len(STORY)
    assert read_through(browser, tmp_path) == 1 + sections + 1


@pytest.mark.filterwarnings("ignore")
def test_the_first_screen_has_the_answer_six_tiles_at_most_and_the_figure_of_the_small_model(browser, folder):
    open_as(browser, folder / "report.html", READERS[0], draw_all=True)
    assert "layers and" in browser.run("document.querySelector('.answer').textContent")
    assert 3 <= browser.run("document.querySelectorAll('#overview .tiles > div').length") <= 6
    assert "Score against speed" in browser.run("document.querySelector('#hero-title').textContent")
    assert browser.run("document.querySelector('#hero .plot').getBoundingClientRect().top") < 900


def test_the_page_is_one_file_of_less_than_4_mb(folder):
    assert (folder / "report.html").stat().st_size < 4_000_000
