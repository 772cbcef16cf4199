"""How often something is timed, and what is made of the times."""

import numpy as np
import pytest
from tagged_words import tagged_corpus

from residuum.models.loading import load_model
from residuum.shrinking import measuring
from residuum.shrinking.classifier import Unit
from residuum.shrinking.measuring import (
    FEWEST_REPEATS,
    REPEATS,
    in_turns,
    layer_costs,
    sentence_milliseconds,
    speed_up,
)


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


def test_layers_are_timed_in_turns_and_fewer_of_them_take_no_longer(tiny_folder, monkeypatch):
    times = iter([5.0, 9.0, 3.0, 8.0, 2.0, 4.0, 6.0, 7.0])
    monkeypatch.setattr(measuring, "_milliseconds", lambda *_: next(times))
    costs = layer_costs(load_model(tiny_folder()), 3, None, tagged_corpus(5), Unit())
    assert [cost["ms"] for cost in costs.values()] == [2.0, 3.0, 3.0, 7.0]
