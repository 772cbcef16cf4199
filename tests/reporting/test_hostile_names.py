"""Names of models, measures, labels and files that are markup or code: the page shows them and runs none of them."""

import pandas as pd
import pytest
from report_runs import comparison_run

from residuum.reporting.report import report
from residuum.storage.results import Run, write_run

NASTY = "<img src=x onerror='window.ran=1'></script><script>window.ran=1</script>"
LINK = "javascript:window.ran=1"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    compared = comparison_run({NASTY: 3, "${window.ran=1}": 3}, ["cka", "neuron"])
    words = pd.DataFrame({"word": [NASTY, LINK, '"onmouseover="window.ran=1'], "label": [NASTY, "a", LINK]})
    odd = Run(f"count {NASTY}", {"file": f"/x/{NASTY}", LINK: [NASTY]}, {NASTY: NASTY}, {"words": words})
    folder = write_run(root / "<u>run<", odd)
    return report([compared, folder], root / "report.html")


def test_no_name_becomes_an_element_or_runs(page, browser):
    browser.open(page)
    browser.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert browser.run("window.ran === undefined")
    foreign = "main img[src=x], main script:not(.data), main u"
    assert browser.run(f"document.querySelectorAll('{foreign}').length") == 0
    assert browser.run("Array.from(document.links).filter((a) => a.href.startsWith('javascript')).length") == 0
    assert browser.run("document.body.textContent").count("window.ran=1") > 3
    assert [error for error in browser.errors if "Content Security Policy" not in error] == []


def test_the_page_itself_forbids_scripts_that_are_not_its_own(page):
    text = page.read_text(encoding="utf-8")
    assert "Content-Security-Policy" in text
    assert "unsafe-inline" not in text.split("script-src", 1)[1].split(";", 1)[0]
    assert "<script>window.ran" not in text
