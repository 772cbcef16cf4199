"""Whatever the data hold, the page stays a page."""

import base64
import gzip
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from residuum.reporting import page as embedding
from residuum.reporting.charts import value_map
from residuum.reporting.content import View
from residuum.reporting.page import figure_data, json_block, packed, rows_shown, script_block, table_data


def shown(where, having=()):
    """A view of such rows."""
    return View("", "", go.Figure(), "table", where, having)


def cells(data):
    """The table back from its columns."""
    columns = {}
    for column in data["columns"]:
        values = column["values"]
        columns[column["name"]] = (
            values if column["numeric"] else [None if code < 0 else column["levels"][code] for code in values]
        )
    return columns


@given(st.text())
def test_no_text_can_end_the_element_it_stands_in(text):
    block = str(json_block({"name": text, text: 1}))
    assert "<" not in block
    assert json.loads(block) == {"name": text, text: 1}


def test_an_end_tag_inside_a_script_is_broken_up():
    block = script_block('const a = "</Script></script><!-- ";\r\nb();')
    assert "</script" not in block.lower()
    assert "<!--" not in block
    assert "\r" not in block


@given(st.text())
def test_a_packed_script_comes_back_and_cannot_end_its_element(source):
    block = str(packed(source.encode(errors="replace").decode()))
    assert gzip.decompress(base64.b64decode(block)) == source.encode(errors="replace")
    assert "<" not in block


@given(st.lists(st.tuples(st.text(), st.integers(-(2**40), 2**40), st.floats()), min_size=1, max_size=8))
def test_a_table_comes_back_to_seven_digits(rows):
    frame = pd.DataFrame(rows, columns=["text", "whole", "real"])
    back = cells(json.loads(str(json_block(table_data(frame)))))
    assert back["text"] == [text for text, _, _ in rows]
    assert back["whole"] == [whole for _, whole, _ in rows]
    for found, (_, _, real) in zip(back["real"], rows, strict=True):
        assert found is None if not np.isfinite(real) else found == pytest.approx(real, rel=1e-6, abs=0)


def test_missing_values_lists_and_truths_are_shown_as_such():
    frame = pd.DataFrame(
        {
            "count": pd.array([1, None], dtype="Int64"),
            "flag": [True, False],
            "words": [["a", "b"], None],
            "name": [None, "x"],
        }
    )
    assert cells(table_data(frame)) == {
        "count": [1, None],
        "flag": ["True", "False"],
        "words": ["['a', 'b']", None],
        "name": [None, "x"],
    }


def test_a_very_long_table_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr(embedding, "EMBEDDED_ROWS", 3)
    data = table_data(pd.DataFrame({"a": range(5)}))
    assert (data["rows"], data["total"], data["columns"][0]["values"]) == (3, 5, [0, 1, 2])


def test_columns_of_the_same_name_are_both_kept():
    data = table_data(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    assert [column["values"] for column in data["columns"]] == [[1], [2]]


def test_a_figure_of_a_cut_table_keeps_its_own_rows(monkeypatch):
    frame = pd.DataFrame({"name": list("aabab"), "k": [0, 1, 0, 0, 0], "value": [1.0, 2.0, 3.0, None, 5.0]})
    assert rows_shown(shown({"name": "a"}), frame) == {}
    monkeypatch.setattr(embedding, "EMBEDDED_ROWS", 3)
    kept = rows_shown(shown({"name": "a", "k": "0"}), frame)
    assert (kept["rows"], cells(kept["points"])["value"]) == (2, [1.0, None])
    assert cells(rows_shown(shown({"k": "0"}, ("value",)), frame)["points"])["value"] == [1.0, 3.0, 5.0]
    assert rows_shown(shown({}), frame) == {"rows": 5}


def test_a_figure_with_a_table_of_its_own_keeps_that_whatever_the_other_has():
    own = rows_shown(replace(shown({}), points=pd.DataFrame({"mean": [0.5]})), pd.DataFrame({"value": [0.4, 0.6]}))
    assert (own["rows"], cells(own["points"])) == (1, {"mean": [0.5]})


@pytest.mark.parametrize(("rows", "height"), [(3, None), (20, 160 + 26 * 20), (500, 1600)])
def test_a_map_of_many_rows_keeps_the_height_that_they_need(rows, height):
    names = [f"row {row}" for row in range(rows)]
    figure = value_map(pd.DataFrame({"a": [0.5] * rows}, names), x="x", y="y", colours="c")
    assert figure_data(figure)["height"] == height
