"""Batches are functions of their position."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from residuum.errors import SettingError
from residuum.training.batches import ShuffledBatches, StreamBatches, shuffled_stream
from residuum.training.optimisation import schedule_factor
from residuum.training.settings import TrainingSettings


@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 3))
def test_an_epoch_holds_every_item_once(count, size, seed):
    batches = ShuffledBatches(range(count), size, seed=seed)
    seen = [item for position in range(count) for item in batches(position)]  # `size` epochs
    for epoch in range(size):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_a_batch_does_not_depend_on_the_ones_read_before():
    batches, again = (ShuffledBatches(range(20), 3, seed=5) for _ in range(2))
    in_order = [batches(position) for position in range(30)]
    assert [again(position) for position in reversed(range(30))] == in_order[::-1]
    assert ShuffledBatches(range(20), 3, seed=6)(0) != in_order[0]


def test_two_small_batches_hold_what_a_large_one_holds():
    small, large = ShuffledBatches(range(21), 3), ShuffledBatches(range(21), 6)
    for position in range(20):
        assert small(2 * position) + small(2 * position + 1) == large(position)


def test_epochs_are_shuffled_differently():
    batches = ShuffledBatches(range(50), 50)
    assert batches(0) != batches(1)


@given(st.integers(1, 25), st.integers(1, 6), st.integers(1, 30), st.lists(st.integers(0, 20), max_size=8))
def test_a_stream_gives_the_same_batch_at_a_position_in_any_order(count, size, buffer, positions):
    def stream(epoch):
        return shuffled_stream(range(count), buffer, 3, epoch)

    straight = StreamBatches(stream, size)
    expected = [straight(position) for position in range(21)]
    jumping = StreamBatches(stream, size)
    assert [jumping(position) for position in positions] == [expected[position] for position in positions]


@given(st.integers(0, 40), st.integers(1, 50))
def test_a_shuffled_stream_loses_nothing(count, buffer):
    assert Counter(shuffled_stream(range(count), buffer, 0)) == Counter(range(count))


def test_a_shuffled_stream_is_shuffled_by_seed_and_epoch():
    orders = [list(shuffled_stream(range(100), 30, seed, epoch)) for seed in (0, 1) for epoch in (0, 1)]
    assert all(orders[i] != orders[j] for i in range(4) for j in range(i))
    assert orders[0] == list(shuffled_stream(range(100), 30, 0, 0))


def test_an_empty_stream_is_an_error():
    with pytest.raises(SettingError, match="stream of text is empty"):
        StreamBatches(lambda epoch: [], 2)(0)


def test_a_stream_cannot_be_trained_for_epochs():
    with pytest.raises(SettingError, match="unknown length; pass steps"):
        TrainingSettings(epochs=2).total_steps(StreamBatches(lambda epoch: [1], 1).per_epoch, 1)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
@pytest.mark.parametrize("warmup", [0, 7])
def test_schedules_equal_those_of_transformers(schedule, warmup):
    import torch
    from transformers import get_scheduler

    total = 40
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    name = "constant_with_warmup" if schedule == "constant" else schedule
    scheduler = get_scheduler(name, optimiser, num_warmup_steps=warmup, num_training_steps=total)
    settings = TrainingSettings(steps=total, schedule=schedule, warmup=warmup)
    for step in range(total):
        assert schedule_factor(settings, step, total) == pytest.approx(scheduler.get_last_lr()[0], abs=1e-12)
        optimiser.step()
        scheduler.step()


def test_a_warmup_below_one_is_a_share_of_all_steps():
    settings = TrainingSettings(steps=100, warmup=0.1)
    assert [schedule_factor(settings, step, 100) for step in (0, 5, 10, 100)] == [0, 0.5, 1, 0]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 7), st.integers(0, 4))
def test_sorting_by_length_loses_nothing(lengths, size, epoch):
    batches = ShuffledBatches(range(len(lengths)), size, lengths=lengths)
    first = epoch * len(lengths)
    positions = range(first // size, (first + len(lengths)) // size + 1)
    seen = [item for position in positions for item in batches(position)]
    start = first - positions[0] * size
    assert sorted(seen[start : start + len(lengths)]) == list(range(len(lengths)))


def test_batches_by_length_hold_like_lengths_in_every_epoch_and_come_in_random_order():
    lengths = [1 + (7 * item) % 97 for item in range(1603)]
    batches = ShuffledBatches(range(1603), 8, lengths=lengths, seed=1)
    spans = [
        max(map(lengths.__getitem__, batch)) - min(map(lengths.__getitem__, batch))
        for batch in map(batches, range(600))
    ]
    assert sorted(spans)[len(spans) * 8 // 10] <= 8, "four of five batches are of nearly one length"
    means = [sum(map(lengths.__getitem__, batches(position))) for position in range(50)]
    assert means != sorted(means)


def test_a_small_set_sorted_by_length_still_has_other_batches_in_every_epoch():
    batches = ShuffledBatches(range(64), 8, lengths=list(range(64)), seed=0)
    epochs = [{frozenset(batches(8 * epoch + place)) for place in range(8)} for epoch in range(2)]
    assert epochs[0] != epochs[1]
    free = ShuffledBatches(range(64), 8, seed=0)
    spreads = [sum(max(batch) - min(batch) for batch in own) for own in (epochs[0], map(free, range(8)))]
    assert spreads[0] < 0.8 * spreads[1], "batches by length are no more alike than others"
