"""A report as the demo ends in, in a real browser: read from the first section to the last, on a desk and a phone."""

import pytest
from reading import READERS, open_as, read_through, reader_name
from report_runs import MEASURES, comparison_run
from study_runs import write_study

from residuum.reporting.report import report
from residuum.storage.results import write_run

STUDIES = ("similarity", "redundancy", "transfer-learning", "distilled", "monolingual")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    runs = [write_run(folder / "twin", comparison_run({"minilm": 7, "minilm (random)": 7}, MEASURES))]
    for name in STUDIES:
        runs += write_study(folder / name, name)
    return report(runs, folder / "report.html", title="A demo")


@pytest.fixture(params=READERS, ids=reader_name)
def page(request, browser, path):
    """The page as one reader opens it; nothing that is done to it may be complained about."""
    open_as(browser, path, request.param)
    yield browser
    assert browser.errors == []


def test_a_reader_goes_through_every_section_and_uses_what_is_there(page, tmp_path):
    assert read_through(page, tmp_path) == 1 + 1 + 2 * len(STUDIES) + 1, "each study has one step"


def test_a_table_of_findings_is_sorted_with_what_is_missing_last(page):
    cells = "Array.from(document.querySelectorAll('#run-2-table-1 tbody td:nth-child(4)'), (cell) => cell.textContent)"
    page.run("document.querySelectorAll('#run-2-table-1 thead button')[3].click()")
    assert page.run(cells) == ["-0.375", "0.125", "0.425", "–"]


def test_figures_wait_until_the_reader_comes_near(page):
    far = "Array.from(document.querySelectorAll('.run .plot')).at(-1)"
    assert page.run(f"{far}.querySelector('.main-svg') === null")
    page.run(f"location.hash = {far}.closest('.panel').id")
    page.wait_for(f"{far}.querySelector('.main-svg')")


def test_verdicts_are_told_by_sign_and_colour(page):
    signs = page.run(
        "Array.from(document.querySelectorAll('.run .verdict'), (one) => [one.dataset.verdict,"
        "getComputedStyle(one, '::before').content.trim(), getComputedStyle(one).color])"
    )
    assert {sign for _, sign, _ in signs} == {'"✓ "', '"✗ "', '"? "', '"– "'}
    assert len({colour for _, _, colour in signs}) == 3


def test_the_search_leaves_the_sections_that_hold_every_word_and_enter_opens_the_first(page):
    shown = "Array.from(document.querySelectorAll('.bar nav a:not(.missed)'), (link) => link.hash)"
    search = "((text) => { const field = document.getElementById('search'); field.value = text;"
    search += "field.dispatchEvent(new Event('input')) })"
    everything = page.run(shown)
    page.run(f"{search}('Permuted  WORDS')")
    found = page.run(shown)
    assert "#run-1" in found
    assert len(found) < len(everything)
    page.run("document.getElementById('search').focus()")
    page.press("Enter", 13)
    page.wait_for(f"location.hash === '{found[0]}'")
    page.run(f"{search}('no such words')")
    assert page.run(shown) == []
    page.run(f"{search}('')")
    assert page.run(shown) == everything
