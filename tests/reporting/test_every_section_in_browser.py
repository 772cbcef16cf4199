"""Every section that a page can have, in a real browser, with names from the data that are markup and code."""

import base64

import pytest
import reading
from every_run import every_run
from reading import open_as, read_through, reader_name

from residuum.reporting.report import SECTIONS, report

NASTY = "<img src=x onerror='window.ran=1'><b>%{z}</b></script><script>window.ran=1</script>"
SLOW = pytest.mark.slow
# One reader here, the others with the slow tests: all of them read a smaller page in the tests of the demo's.
READERS = [*(pytest.param(reader, marks=SLOW) for reader in reading.READERS[:-1]), reading.READERS[-1]]


@pytest.fixture(scope="module")
def runs():
    return every_run(NASTY)


@pytest.fixture(scope="module")
def path(runs, tmp_path_factory):
    return report(runs, tmp_path_factory.mktemp("every") / "report.html", title="Every section")


@pytest.fixture(scope="module")
def page(browser):
    return browser


def test_no_command_is_left_out(runs):
    assert {run.command for run in runs} == set(SECTIONS)


@pytest.mark.parametrize("reader", READERS, ids=reader_name)
def test_a_reader_uses_every_section_and_no_name_is_obeyed(page, path, runs, reader, tmp_path):
    open_as(page, path, reader)
    assert read_through(page, tmp_path) == 1 + len(runs) + 1
    page.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.run("window.ran === undefined")
    foreign = "main img, main b:not(.plot b), main script:not(.data)"
    assert page.run(f"Array.from(document.querySelectorAll('{foreign}'), (one) => one.outerHTML)") == []
    assert page.run("document.querySelector('.neuron-card').parentElement.textContent").count("<img") > 0
    assert page.errors == []


@SLOW
def test_a_map_of_many_rows_is_as_high_as_they_need(page, path):
    page.open(path)
    heights = page.run(
        "Array.from(document.querySelectorAll('.plot'), (plot) => [plot.clientHeight, plot._fullLayout.height])"
    )
    assert max(height for height, _ in heights) > 1000
    assert all(abs(room - drawn) < 2 for room, drawn in heights)


def test_the_rows_of_a_figure_are_those_that_it_shows(page, path, runs):
    page.open(path)
    places = {run.command: number for number, run in enumerate(runs, start=1)}
    rows = "((figure) => rowsOf(viewOf(figure)).rows.length)"
    first = f"{rows}(figures.find((one) => one.panel.id === 'run-{{}}-figure-1'))"
    means = runs[places["adapt"] - 1].tables["means"]
    assert page.run(first.format(places["adapt"])) == len(means[(means["k"] == 0) & (means["part"] == "test")])
    assert page.run(first.format(places["evaluate retrieval"])) == 2
    assert page.run(first.format(places["probe"])) == 4  # layers and all of them together, but no subset
    assert page.run(first.format(places["ablate"])) == 2
    assert page.run(first.format(places["trim"])) == 2


def test_a_csv_that_cannot_have_all_rows_says_so(page, runs, tmp_path, monkeypatch):
    monkeypatch.setattr("residuum.reporting.page.EMBEDDED_ROWS", 12)
    compared = next(run for run in runs if run.command == "compare")
    page.open(report(compared, tmp_path / "cut.html"))
    said = page.run("Array.from(document.querySelectorAll('.held'), (one) => one.textContent)")
    assert said[0] == "The CSV has 12 of 49 rows; the folder of the run has all."
    # A curve has fewer rows than the page holds of a table, and so has them all, although its table is cut.
    assert said[1:] == ["", ""]
    curve = "figures.find((one) => one.panel.id === 'run-1-figure-2')"
    assert page.run(f"rowsOf(viewOf({curve})).rows.length") == 7


def test_paper_has_the_rows_of_tables_and_nothing_runs_off_it(page, runs, tmp_path):
    printed = [run for run in runs if run.command in ("adapt", "finetune")]
    page.open(report(printed, tmp_path / "printed.html"))
    assert base64.b64decode(page.call("Page.printToPDF")["data"]).startswith(b"%PDF")
    page.call("Emulation.setEmulatedMedia", media="print")
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    adapted = "document.querySelector('details.table[data-name=means]')"
    assert page.run(f"{adapted}.querySelectorAll('tbody tr').length") == 336
    wide = "(table) => table.getBoundingClientRect().right > table.closest('.card').getBoundingClientRect().right + 1"
    assert page.run(f"Array.from(document.querySelectorAll('table')).filter({wide}).length") == 0
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run(f"{adapted}.querySelectorAll('tbody tr').length") == 20
    page.call("Emulation.setEmulatedMedia", media="")
