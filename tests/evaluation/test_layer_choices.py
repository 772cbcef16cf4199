"""Which layers are scored together."""

import pytest

from residuum.errors import SettingError
from residuum.evaluation.retrieval import layer_choices


def pairs(layers, source=6, target=6):
    return [(choice.name, list(choice.pairs)) for choice in layer_choices(layers, source, target)]


def test_all_is_every_block_without_the_embeddings():
    assert pairs("all", 3, 3) == [("all", [(1, 1), (2, 2), (3, 3)])]


def test_each_is_every_layer_alone_with_the_embeddings():
    choices = layer_choices("each", 2, 2)
    assert [(c.name, c.layer) for c in choices] == [("0", 0), ("1", 1), ("2", 2)]


def test_numbers_ranges_and_pairs_of_layers():
    assert pairs("1,3,5-6") == [("1,3,5-6", [(1, 1), (3, 3), (5, 5), (6, 6)])]
    assert pairs("2:4, 3:6", 3, 6) == [("2:4, 3:6", [(2, 4), (3, 6)])]
    assert pairs([1, 3]) == [("1,3", [(1, 1), (3, 3)])]


def test_several_choices_make_the_rows_of_the_thesis_table_4_3():
    names = [c.name for c in layer_choices("all;1,3,5,7,9,11;9-12;5-8;1-4", 12, 12)]
    assert names == ["all", "1,3,5,7,9,11", "9-12", "5-8", "1-4"]
    assert len(layer_choices(["all", "each", "3"], 4, 4)) == 6  # 3 is there already


def test_models_of_different_depth_meet_at_the_same_relative_depth():
    assert pairs("all", 3, 6)[0][1] == [(1, 2), (2, 4), (3, 6)]
    assert pairs("all", 6, 3)[0][1] == [(2, 1), (4, 2), (6, 3)]
    assert [name for name, _ in pairs("each", 3, 6)] == ["0", "1:2", "2:4", "3:6"]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("9", "Layer 9 does not exist: the model has layers 0–6"),
        ("one", "neither a number nor a range"),
        ("1-2:4", "2 layers beside 1"),
        ([], "expected numbers, or choices"),
        ([1, "all"], "expected numbers, or choices"),
    ],
)
def test_mistakes_are_named(layers, message):
    with pytest.raises(SettingError, match=message):
        layer_choices(layers, 6, 6)
