"""Whatever a setting of any command is given, by Python, YAML or the command line: a record, or one clear line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from residuum.cli.commands import COMMANDS
from residuum.cli.generated import loaded
from residuum.errors import SettingError
from residuum.settings import from_mapping, setting_fields

RECORDS = {entry.name: loaded(entry.record) for entry in COMMANDS}
TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", "all", "0,4-6", "a=1,b=2", "nan", "inf", "1e400", "\0", "~x/y", "s3://a/b", "../..", "\ud800", "9" * 5000]
)
NUMBERS = st.integers() | st.floats() | st.booleans() | st.complex_numbers() | st.sampled_from([10**40, -(2**63) - 1])
ARRAYS = st.lists(st.floats(width=32), max_size=3).map(np.array) | st.integers(0, 9).map(np.int64)
ODD = st.none() | st.binary(max_size=4) | st.sampled_from([object(), int, len, Path("x"), np.bool_(True), ...])
PLAIN = TEXTS | NUMBERS | ARRAYS | ODD
VALUES = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(TEXTS, PLAIN, max_size=2) | st.sets(st.integers())


def necessary(record):
    """Something for every setting that has no default."""
    return {s.name: "x" for s in setting_fields(record) if not s.has_default}


@pytest.mark.parametrize("name", RECORDS)
@settings(max_examples=25)
@given(data=st.data())
def test_any_value_of_any_setting_is_taken_or_refused_by_name(name, data):
    record = RECORDS[name]
    field = data.draw(st.sampled_from([s.name for s in setting_fields(record)]))
    value = data.draw(VALUES)
    try:
        made = from_mapping(record, {**necessary(record), field: value})
    except SettingError as error:
        assert "\n" not in str(error)  # noqa: PT017 - a value may be right
        return
    identity = made.identity()
    assert identity == made.identity()
    again = from_mapping(record, {s.name: getattr(made, s.name) for s in setting_fields(record)})
    assert repr(again.identity()) == repr(identity), "a record of a record's values is the same record"
