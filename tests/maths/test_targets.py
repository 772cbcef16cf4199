from collections import Counter

import numpy as np
import pytest

from residuum.errors import DataError
from residuum.maths.targets import UNSEEN, class_target, control_task, number_target, varied_control_task

LABELS = ["NOUN", "VERB", "ADJ", "NOUN", "NOUN"]


def test_class_numbers_do_not_depend_on_the_order_of_words():
    target = class_target(LABELS)
    assert target.classes == ("ADJ", "NOUN", "VERB")
    assert target.values.tolist() == [1, 2, 0, 1, 1]
    assert class_target(LABELS[::-1]).classes == target.classes


def test_labels_that_training_never_saw_are_marked():
    assert class_target(LABELS).encode(["VERB", "SYM", "ADJ"]).tolist() == [2, UNSEEN, 0]


def test_control_labels_belong_to_word_types():
    words = np.random.default_rng(0).choice([f"w{i}" for i in range(300)], 5000).tolist()
    values = control_task(["A", "B", "C"] * 10, seed=0).values(words)
    per_type = {word: set() for word in words}
    for word, value in zip(words, values.tolist(), strict=True):
        per_type[word].add(value)
    assert all(len(found) == 1 for found in per_type.values())
    assert set().union(*per_type.values()) == {0, 1, 2}


def test_control_labels_agree_between_splits_and_orders():
    task = control_task(LABELS, seed=4)
    train, test = ["the", "cat", "sat"], ["sat", "дом", "the"]
    assert task.values(train)[[2, 0]].tolist() == task.values(test)[[0, 2]].tolist()


def test_control_labels_have_the_frequencies_of_the_real_labels():
    labels = ["NOUN"] * 50 + ["VERB"] * 30 + ["ADJ"] * 15 + ["X"] * 5
    task = control_task(labels, seed=1)
    drawn = Counter(task.values([f"type{i}" for i in range(20_000)]).tolist())
    shares = [drawn[i] / 20_000 for i in range(4)]
    np.testing.assert_allclose(shares, [0.15, 0.50, 0.30, 0.05], atol=0.015)
    assert task.frequencies == (0.15, 0.50, 0.30, 0.05)


def test_control_labels_change_with_the_seed():
    words = [f"type{i}" for i in range(200)]
    assert not np.array_equal(control_task(LABELS, 0).values(words), control_task(LABELS, 1).values(words))


def test_control_labels_stay_the_same_between_versions():
    values = control_task(["A", "B", "C", "D"], seed=0).values(["the", "cat", "ist", "дом", "猫"])
    assert values.tolist() == [0, 1, 3, 2, 2]


def test_a_control_target_keeps_classes_that_no_type_drew():
    task = control_task(["A"] * 999 + ["B"], seed=0)
    assert task.target(["a", "b"]).classes == ("A", "B")


def test_a_control_task_is_drawn_again_until_the_words_have_two_labels():
    labels = ["A"] * 97 + ["B"] * 3
    words = [f"type{i}" for i in range(10)]
    drawn = [varied_control_task(labels, words, seed) for seed in range(20)]
    assert all(len(set(task.values(words).tolist())) == 2 for task in drawn)
    assert any(task.draw > 0 for task in drawn)
    assert drawn == [varied_control_task(labels, words[::-1] * 2, seed) for seed in range(20)]
    plain = varied_control_task(LABELS, [f"type{i}" for i in range(200)])
    assert plain == control_task(LABELS)


def test_one_word_type_has_no_control_task():
    assert varied_control_task(LABELS, ["same"] * 5) is None


def test_bad_targets_are_explained():
    with pytest.raises(DataError, match="All 3 labels are 'NOUN'"):
        class_target(["NOUN"] * 3)
    with pytest.raises(DataError, match="no labels"):
        class_target([])
    with pytest.raises(DataError, match="at least two"):
        control_task(["A", "A"])
    with pytest.raises(DataError, match="NaN"):
        number_target([1.0, float("nan")])
    with pytest.raises(DataError, match="All 2 target values are 3"):
        number_target([3.0, 3.0])
