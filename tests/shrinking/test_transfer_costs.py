"""How often something is timed, and what is made of the times."""

import numpy as np
import pytest

from residuum.shrinking import measuring
from residuum.shrinking.measuring import FEWEST_REPEATS, REPEATS, in_turns, sentence_milliseconds, speed_up


def test_quick_work_is_timed_often_and_slow_work_a_few_times(monkeypatch):
    calls: list[str] = []
    times = in_turns(lambda: calls.append("slow"), lambda: calls.append("fast"))
    assert times.shape == (REPEATS, 2)
    assert calls == ["slow", "fast"] * (REPEATS + 1), "they take turns, after one call of each that is not counted"
    monkeypatch.setattr(measuring, "_seconds", lambda work: measuring.ENOUGH)
    assert len(in_turns(lambda: None, lambda: None)) == FEWEST_REPEATS


def test_a_long_sentence_is_timed_once(monkeypatch):
    seconds = iter([measuring.ENOUGH])
    monkeypatch.setattr(measuring, "_seconds", lambda work: next(seconds))
    assert sentence_milliseconds(None, [0] * 10) == pytest.approx(1e2 * measuring.ENOUGH)  # pyright: ignore[reportArgumentType]


def test_a_speed_up_is_the_ratio_of_total_times_with_its_interval():
    found = speed_up(np.array([[2.0, 1.0], [4.0, 1.0], [3.0, 1.0]]))
    assert found.value == pytest.approx(3.0)
    assert 2 <= found.low <= found.value <= found.high <= 4
