"""Every example runs from beginning to end on very little text, and ends in a page."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
SIZE = "30"


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_runs_and_ends_in_a_page(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, SIZE])
    runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    page = Path(capsys.readouterr().out.strip().splitlines()[-1])
    assert page.suffix == ".html"
    assert "residuum report" in (tmp_path / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("listing", ["examples/README.md", "docs/examples.md"])
def test_every_example_is_listed(listing):
    text = (ROOT / listing).read_text(encoding="utf-8")
    assert [script for script in SCRIPTS if script not in text] == []
