"""Layer maps against the thesis' figures and against brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from residuum.errors import SettingError
from residuum.maths.losses import MAPS, drawn, layer_map, measured_map, published_uniform


def test_six_of_twelve_layers_as_in_the_thesis():
    assert list(layer_map("uniform", 6, 12).values()) == [2, 4, 6, 8, 10, 12]
    assert list(published_uniform(6, 12).values()) == [1, 3, 5, 7, 9, 12]
    assert list(layer_map("top", 6, 12).values()) == [7, 8, 9, 10, 11, 12]
    assert list(layer_map("bottom", 6, 12).values()) == [1, 2, 3, 4, 5, 6]
    assert layer_map("last", 6, 12) == {6: 12}
    assert layer_map([1, 1, 5, 7, 9, 11], 6, 12) == {1: 1, 2: 1, 3: 5, 4: 7, 5: 9, 6: 11}


@given(st.integers(1, 30), st.integers(0, 30), st.sampled_from(MAPS))
def test_every_map_stays_inside_the_teacher_and_keeps_the_order(student, more, choice):
    teacher = student + more
    mapping = layer_map(choice, student, teacher)
    layers = list(mapping.values())
    assert all(1 <= n <= teacher for n in layers)
    assert layers == sorted(set(layers))
    if choice in ("uniform", "top", "last"):
        assert mapping[student] == teacher
    assert list(published_uniform(student, teacher).values()) == sorted(
        set(published_uniform(student, teacher).values())
    )


@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 10**6))
def test_the_measured_map_is_the_best_of_all_order_preserving_maps(students, more, seed):
    similarity = np.random.default_rng(seed).random((students, students + more))
    every = combinations(range(students + more), students)
    best = max(every, key=lambda choice: sum(similarity[m, n] for m, n in enumerate(choice)))
    assert measured_map(similarity) == {m + 1: n + 1 for m, n in enumerate(best)}


def test_the_picture_shows_who_learns_from_whom():
    assert drawn(layer_map("uniform", 2, 4), 2, 4) == "teacher  1 2 3 4\nstudent  · 1 · 2"
    assert "student layers 1 learn from no layer" in drawn(layer_map("last", 2, 4), 2, 4)
    assert "1+2" in drawn({1: 3, 2: 3}, 2, 4)


@pytest.mark.parametrize(
    ("choice", "student", "message"),
    [
        ("middle", 2, "'middle' is not known"),
        ([1, 9], 2, "names teacher layer 9; the teacher has layers 1–4"),
        ([1], 2, "has 1 entries; the student has 2 layers"),
        ("uniform", 5, "student of 5 layers cannot learn from a teacher of 4"),
    ],
)
def test_a_map_out_of_range_says_what_is_possible(choice, student, message):
    with pytest.raises(SettingError, match=message):
        layer_map(choice, student, 4)


def test_more_students_than_teacher_layers_cannot_be_measured():
    with pytest.raises(SettingError, match="cannot be mapped in order"):
        measured_map(np.ones((3, 2)))
