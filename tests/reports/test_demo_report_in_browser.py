"""A report as the demo ends in, in a real browser: read from the first section to the last, on a desk and a phone."""

import time

import pytest
from report_runs import MEASURES, comparison_run
from study_runs import write_study

from residuum.reports import report
from residuum.results import write_run

STUDIES = ("similarity", "redundancy", "transfer-learning", "distilled", "monolingual")
# The controls, texts and figures that reach beyond the card they stand in.
TOO_WIDE = """((section) => Array.from(section.querySelectorAll('.card'), (card) =>
  Array.from(card.querySelectorAll('select, h3, p, dd, figcaption, .plot, .scroll'))
    .filter((one) => one.getBoundingClientRect().right > card.getBoundingClientRect().right + 1)
    .map((one) => one.outerHTML.slice(0, 80))).flat())"""
READERS = [(1280, False), (1280, True), (390, False), (390, True)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    runs = [write_run(folder / "twin", comparison_run({"minilm": 7, "minilm (random)": 7}, MEASURES))]
    for name in STUDIES:
        runs += write_study(folder / name, name)
    return report(runs, folder / "report.html", title="A demo")


@pytest.fixture(params=READERS, ids=lambda reader: f"{reader[0]} {'dark' if reader[1] else 'light'}")
def page(request, browser, path):
    """The page as one reader opens it; nothing that is done to it may be complained about."""
    width, dark = request.param
    browser.errors.clear()
    browser.open(path, width=width, dark=dark, touch=width < 600, draw_all=False)
    yield browser
    assert browser.errors == []


def test_a_reader_goes_through_every_section_and_uses_what_is_there(page, path, tmp_path):
    links = page.run("Array.from(document.querySelectorAll('.bar nav a'), (link) => link.getAttribute('href'))")
    assert len(links) == 1 + 1 + len(STUDIES) + 1
    for link in links:
        click_through(page, link)
    hover_a_map(page)
    sort_a_table(page)
    download_a_figure(page, tmp_path)


def click_through(page, link):
    """The section comes under the bar, its figures are drawn, and nothing is wider than the window."""
    page.run(f"document.querySelector('.bar nav a[href=\"{link}\"]').click()")
    section = f"document.querySelector('{link}')"
    page.wait_for(f"{section}.getBoundingClientRect().top < window.innerHeight")
    page.wait_for(f"Array.from({section}.querySelectorAll('.plot')).every((plot) => plot.querySelector('.main-svg'))")
    assert page.run(f"{section}.getBoundingClientRect().top") >= 0
    assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.run(f"{TOO_WIDE}({section})") == []


def hover_a_map(page):
    page.run("document.querySelector('#run-1 .square .plot').scrollIntoView({block: 'center', behavior: 'instant'})")
    page.wait_for("document.querySelector('#run-1 .square .nsewdrag')")
    place = page.run(
        "(() => { const box = document.querySelector('#run-1 .square .nsewdrag').getBoundingClientRect();"
        "return [box.x + box.width * 0.1, box.y + box.height * 0.1] })()"
    )
    page.point_at(*place)
    page.wait_for("document.querySelector('#run-1 .square .hoverlayer').textContent.includes('minilm, layer')")


def sort_a_table(page):
    cells = "Array.from(document.querySelectorAll('#run-2-table-1 tbody td:nth-child(4)'), (cell) => cell.textContent)"
    page.run("document.querySelectorAll('#run-2-table-1 thead button')[3].click()")
    assert page.run(cells) == ["-0.375", "0.125", "0.425", "–"]


def download_a_figure(page, folder):
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    page.run("document.querySelector('#run-1 .panel [data-format=svg]').click()")
    deadline = time.monotonic() + 20
    while not (folder / "similarity-cka.svg").exists():
        assert time.monotonic() < deadline, list(folder.iterdir())
        time.sleep(0.05)


def test_figures_wait_until_the_reader_comes_near(page):
    far = "Array.from(document.querySelectorAll('.run .plot')).at(-1)"
    assert page.run(f"{far}.querySelector('.main-svg') === null")
    page.run(f"{far}.scrollIntoView({{behavior: 'instant'}})")
    page.wait_for(f"{far}.querySelector('.main-svg')")


def test_verdicts_are_told_by_sign_and_colour(page):
    signs = page.run(
        "Array.from(document.querySelectorAll('#findings .verdict'), (one) => [one.dataset.verdict,"
        "getComputedStyle(one, '::before').content.trim(), getComputedStyle(one).color])"
    )
    assert {sign for _, sign, _ in signs} == {'"✓ "', '"✗ "', '"? "', '"– "'}
    assert len({colour for _, _, colour in signs}) == 3
