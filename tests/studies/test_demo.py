"""The demo: every part in its order, with progress that people can follow."""

from types import SimpleNamespace

import pandas as pd
import pytest

from residuum.errors import SettingError
from residuum.storage.results import Run, write_run
from residuum.studies import demo as demonstration
from residuum.studies.demo import SECONDS, Clock, demo
from residuum.studies.running import DOCUMENTS


@pytest.fixture
def parts(monkeypatch):
    """Stand-ins for the twin and the studies that only write small runs; the names in the order of the calls."""
    called = []

    def write(folder, name):
        return write_run(folder, Run(f"count {name}", {}, {"words": 3}))

    def twin(out, settings):
        called.append("twin")
        return write(out, "twin")

    def study(name, out, *, max_memory, fresh, progress):
        called.append(name)
        for step in ("first", "second", "third"):
            write(out / step, step)
        write(out, name)
        exhibits = pd.DataFrame({"step": ["second", "first", "third"], "command": ["b", "a", "a"]})
        frame = pd.DataFrame({"verdict": ["holds", "inconclusive", "holds"]})
        return SimpleNamespace(folder=out, frame=frame, exhibits=exhibits, page=out / "report.html")

    monkeypatch.setattr(demonstration, "_twin", twin)
    monkeypatch.setattr(demonstration, "study", study)
    return called


def test_every_study_runs_and_one_page_shows_the_first_step_of_each_command(parts, tmp_path):
    page = demo(tmp_path / "demo")
    assert parts == ["twin", *DOCUMENTS]
    assert page == tmp_path / "demo" / "report.html"
    text = page.read_text(encoding="utf-8")
    for name in DOCUMENTS:
        for shown in ("", "/second", "/first"):
            assert f"<code>{tmp_path / 'demo' / name}{shown}</code>" in text
    assert "/third</code>" not in text


def test_progress_tells_step_purpose_verdicts_and_what_is_left(parts, tmp_path, capsys):
    demo(tmp_path / "demo")
    said = capsys.readouterr().err.splitlines()
    steps = [line for line in said if line.startswith("Step ")]
    assert [line.split(":")[0] for line in steps] == [f"Step {n} of 7" for n in range(1, 8)]
    assert all("left)" in line for line in steps)
    assert "about 7 min left" in steps[0]
    assert sum("Claims: 2 holds, 1 inconclusive" in line for line in said) == len(DOCUMENTS)


def test_the_time_that_is_left_follows_the_pace(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(demonstration.time, "monotonic", lambda: now[0])
    clock = Clock(list(SECONDS), start=now[0])
    total = sum(SECONDS.values())
    assert clock.left() == f"about {total / 60:.0f} min"
    now[0] += 2 * SECONDS["twin"]  # twice as slow as expected
    clock.finish("twin")
    assert clock.left() == f"about {2 * (total - SECONDS['twin']) / 60:.0f} min"
    for name in list(clock.waiting)[:-1]:
        now[0] += SECONDS[name]
        clock.finish(name)
    assert clock.left().endswith(" s")


def test_a_missing_model_is_said_before_anything_is_computed(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstration, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"pip install 'residuum\[demo\]'"):
        demo(tmp_path / "demo")
    assert parts == []
    assert not (tmp_path / "demo").exists()
