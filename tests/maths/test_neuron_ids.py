import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from residuum.errors import SettingError
from residuum.maths.layouts import NeuronLayout

LAYOUT = NeuronLayout(widths=(3, 2, 4), layers=(0, 5, 6))


def test_ids_name_the_models_own_layer_not_the_place_in_the_array():
    assert LAYOUT.format([0, 2, 3, 4, 5, 8]) == ["0:0", "0:2", "5:0", "5:1", "6:0", "6:3"]


@given(st.lists(st.integers(0, 8)))
def test_parsing_undoes_formatting(columns):
    assert LAYOUT.parse(LAYOUT.format(columns)).tolist() == columns


def test_layers_are_numbered_from_zero_when_none_are_given():
    assert NeuronLayout((2, 2)).format([3]) == ["1:1"]


def test_columns_of_layers_come_in_the_order_asked_for():
    assert LAYOUT.columns([6, 0]).tolist() == [5, 6, 7, 8, 0, 1, 2]
    assert LAYOUT.columns([]).tolist() == []
    assert LAYOUT.layer_slice(5) == slice(3, 5)


def test_spread_counts_neurons_per_layer_and_keeps_empty_layers():
    assert LAYOUT.spread(np.array([0, 1, 8])).tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("neuron_id", "message"),
    [
        ("5:2", "layer 5 has the neurons 0–1"),
        ("1:0", r"Layer 1 is not here \(the layers are \[0, 5, 6\]\)"),
        ("five", "write layer:index"),
        ("0:-1", "write layer:index"),
    ],
)
def test_bad_ids_are_named_with_what_was_expected(neuron_id, message):
    with pytest.raises(SettingError, match=message):
        LAYOUT.parse([neuron_id])


def test_a_column_out_of_range_is_refused():
    with pytest.raises(SettingError, match="Neuron 9 is out of range: there are 9 neurons, 0–8"):
        LAYOUT.format([9])
    with pytest.raises(SettingError, match="Neuron -1"):
        LAYOUT.spread(np.array([-1]))


@pytest.mark.parametrize(("widths", "layers"), [((3,), (0, 1)), ((3, 3), (1, 1)), ((), ()), ((0, 3), ())])
def test_impossible_layouts_are_refused(widths, layers):
    with pytest.raises(SettingError, match="width"):
        NeuronLayout(widths, layers)
