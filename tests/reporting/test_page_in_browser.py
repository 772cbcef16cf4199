"""The page in a real browser: it draws, it answers, and nothing is complained about."""

import time

import pandas as pd
import pytest
from report_runs import MEASURES, comparison_run

from residuum.reporting.report import report
from residuum.storage.results import Run

NASTY = "<img src=x onerror='document.title=`broken`'></script><script>document.title='broken'</script>"
ENTER, TAB = ("Enter", 13), ("Tab", 9)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    comparison = comparison_run({"deep": 5, "50%{z}": 3}, MEASURES)
    words = pd.DataFrame({"word": ["b", None, "a,\"'", NASTY] * 30, "count": [10, 9, 100, None] * 30})
    counting = Run("count", {NASTY: NASTY}, {"best": NASTY}, {NASTY[:4]: words})
    return report([comparison, counting], tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def page(browser, path):
    """The open page; whatever a test does to it, the browser must have nothing to complain about."""
    browser.errors.clear()
    browser.requests.clear()
    browser.open(path)
    yield browser
    browser.run("localStorage.clear()")
    assert browser.errors == []
    assert {request.split(":")[0] for request in browser.requests} <= {"file", "data", "blob"}
    assert {request for request in browser.requests if request.startswith("file")} == {path.as_uri()}


def go(page, section):
    """Open a section as a reader does who clicks its name."""
    page.run(f"document.querySelector('.bar nav a[href=\"#{section}\"]').click()")
    page.wait_for(f"!document.getElementById('{section}').hidden")


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_every_figure_is_drawn_in_light_and_dark_on_a_phone_and_a_desk(page, path, width, dark):
    page.open(path, width=width, dark=dark, touch=width < 600)
    assert page.run("document.querySelectorAll('.plot .heatmaplayer image').length") == 4
    assert page.run("document.querySelectorAll('.plot .scatterlayer .js-line').length") >= 4
    assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
    ground = page.run("document.querySelector('.plot .main-svg').style.background")
    assert ground == ("rgb(22, 27, 34)" if dark else "rgb(255, 255, 255)")
    assert page.run("document.querySelector('.plot .main-svg').getBoundingClientRect().width") <= width


def test_a_cell_tells_both_layers_value_interval_and_null(page):
    go(page, "run-1")
    page.run("document.querySelector('.square .plot').scrollIntoView({block: 'center'})")
    page.run("drawAll()")  # else the figure, once seen, is fitted to its room while the mouse is over it
    cell = page.run(
        "(() => { const box = document.querySelector('.square .nsewdrag').getBoundingClientRect();"
        "return [box.x + box.width * 0.06, box.y + box.height * 0.94] })()"
    )
    page.point_at(*cell)
    page.wait_for("document.querySelector('.square .hoverlayer').textContent")
    said = page.run("document.querySelector('.square .hoverlayer').textContent").replace("\u00a0", " ")
    assert said == "50%{z}, layer 2deep, layer 0value 0.73095 % interval 0.720 to 0.740with permuted words 0.050"


def test_the_choice_of_a_measure_moves_all_figures_of_the_run(page):
    page.run(
        "(() => { const select = document.querySelector('#run-1 select'); select.value = 'attention_js';"
        "select.dispatchEvent(new Event('change')) })()"
    )
    page.wait_for("document.querySelector('.square .gtitle').textContent === 'Heads: Jensen–Shannon'")
    values = page.run("Array.from(document.querySelectorAll('#run-1 select'), (select) => select.value)")
    assert values == ["attention_js"] * 3
    assert "Jensen–Shannon" in page.run("document.querySelector('#run-1 .note').textContent")
    assert page.run("document.querySelectorAll('#run-1 .plot')[1].querySelector('.ytitle').textContent").startswith(
        "Heads"
    )


def test_the_theme_is_switched_by_keyboard_and_kept(page, path):
    page.run("document.getElementById('theme').focus()")
    page.press(*ENTER)
    page.wait_for("document.querySelector('.plot .main-svg').style.background === 'rgb(22, 27, 34)'")
    page.open(path)
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 22)"


def column(page, place):
    cells = f"document.querySelectorAll('#run-2-table-1 tbody td:nth-child({place})')"
    return page.run(f"Array.from({cells}, (cell) => cell.textContent)")


def test_a_table_is_sorted_by_keyboard_with_what_is_missing_last(page):
    go(page, "run-2")
    assert column(page, 2)[:4] == ["10", "9", "100", "–"]
    page.run("document.querySelectorAll('#run-2-table-1 thead button')[1].focus()")
    page.press(*ENTER)
    assert column(page, 2) == ["9"] * 20
    page.press(*ENTER)
    assert column(page, 2) == ["100"] * 20
    sorted_by = "Array.from(document.querySelectorAll('#run-2-table-1 th'), (head) => head.getAttribute('aria-sort'))"
    assert page.run(sorted_by) == ["none", "descending"]
    page.run("document.querySelector('#run-2-table-1 .more').click()")
    assert column(page, 2) == ["100"] * 30 + ["10"] * 30 + ["9"] * 30 + ["–"] * 30
    assert page.run("document.querySelector('#run-2-table-1 .extent').textContent") == "120 rows"


def test_everything_is_reached_by_the_tab_key(page):
    page.run("for (const details of document.querySelectorAll('details')) details.open = true")
    kinds = "'button:not([hidden]), select, summary, a[href]'"
    for section in ("overview", "run-1", "run-2", "settings"):
        go(page, section)
        controls = f"Array.from(document.getElementById('{section}').querySelectorAll({kinds}))"
        page.run("document.querySelector('.mark').focus()")
        for _ in range(page.run(f"{controls}.length") + 30):
            page.press(*TAB)
            page.run("document.activeElement.reached = true")
        assert page.run(f"{controls}.filter((one) => !one.reached).map((one) => one.outerHTML)") == []


def test_figures_and_tables_are_downloaded(page, tmp_path):
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for kind in ("svg", "png", "csv"):
        page.run(f"document.querySelector('#run-1 .panel [data-format={kind}]').click()")
        wait_for_file(tmp_path / f"similarity-cka.{kind}")
    assert (tmp_path / "similarity-cka.svg").read_text().startswith("<svg")
    assert (tmp_path / "similarity-cka.png").read_bytes().startswith(b"\x89PNG")
    pairs = pd.read_csv(tmp_path / "similarity-cka.csv")
    expected = comparison_run({"deep": 5, "50%{z}": 3}, ["cka"]).tables["similarity"]
    pd.testing.assert_frame_equal(pairs, expected, rtol=1e-6)
    page.run("document.querySelector('#run-2-table-1 [data-format=csv]').click()")
    words = pd.read_csv(wait_for_file(tmp_path / "-img.csv"))
    assert words["word"].tolist()[2:4] == ["a,\"'", NASTY]


def wait_for_file(path):
    deadline = time.monotonic() + 300
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline, f"{path.name} did not come; there is {list(path.parent.iterdir())}"
        time.sleep(0.05)
    return path


def test_markup_from_data_is_shown_as_text(page):
    assert page.run("document.title") == "Residuum report"
    assert page.run("document.querySelectorAll('main img').length") == 0
    assert NASTY in page.run("document.querySelector('#run-2-table-1 tbody').textContent")
    assert NASTY in page.run("document.querySelector('#settings').textContent")


def test_no_script_runs_but_the_page_s_own_and_the_browser_says_so(page):
    page.run(
        "(() => { const script = document.createElement('script'); script.textContent = 'window.ran = true';"
        "document.body.append(script) })()"
    )
    assert page.run("window.ran === undefined")
    assert any("Content Security Policy" in error for error in page.errors)
    page.errors.clear()


def test_on_paper_everything_is_open_and_light(page, path):
    page.open(path, dark=True)
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    page.wait_for("document.querySelector('.plot .main-svg').style.background === 'rgb(255, 255, 255)'")
    assert page.run("document.querySelectorAll('details:not([open])').length") == 0
    assert page.run("document.querySelector('.plot .main-svg').getBoundingClientRect().width") == 650
    page.run("window.dispatchEvent(new Event('afterprint'))")
    page.wait_for("document.querySelector('.plot .main-svg').style.background === 'rgb(22, 27, 34)'")
    assert page.run("document.querySelector('.plot .main-svg').getBoundingClientRect().width") == 935
