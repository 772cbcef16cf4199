"""What the report says of the texts that a run read."""

import pandas as pd
import pytest
from report_runs import comparison_run

from residuum.errors import StoreError
from residuum.reporting.report import section
from residuum.storage.results import Run

WHOLE = {"model": "m", "text": "ewt", "sentences": 10, "words": 1000, "sub-words": 1300, "dropped": 0, "truncated": 0}
WHOLE |= {"unknown": 2, "in windows": 0, "not read": "", "examples": ""}


def with_audit(*rows) -> Run:
    run = comparison_run({"m": 3})
    run.tables["audit"] = pd.DataFrame(rows)
    return run


def audit_of(run: Run) -> str:
    (text,) = [one.text for one in section(run).findings if one.topic == "Audit"]
    return text


def test_a_text_that_was_read_whole_is_said_to_be():
    expected = "m on ewt: 1,000 words, 1,300 sub-words, 2 with unknown pieces, none lost."
    assert audit_of(with_audit(WHOLE)) == expected


def test_what_was_lost_is_counted_and_the_worst_reading_is_named():
    lossy = {**WHOLE, "model": "old", "dropped": 1, "truncated": 4, "not read": "3 empty nodes"}
    assert audit_of(with_audit(WHOLE, lossy)) == (
        "2 models on 1 text (sums): 2,000 words, 2,600 sub-words, 4 with unknown pieces, 5 lost (0.25%), most of them "
        "in ewt by old (1 without a sub-word, 4 beyond the window). Not read: 3 empty nodes in ewt."
    )


def test_activations_that_tell_nothing_are_not_called_whole():
    nothing = {**WHOLE, **dict.fromkeys(("words", "sub-words", "dropped", "truncated", "unknown"), None)}
    assert "without counts of lost words" in audit_of(with_audit(nothing))


def test_the_table_stands_last_and_a_run_without_it_is_shown_as_before():
    assert [table.name for table in section(with_audit(WHOLE)).tables][-1] == "audit"
    assert all(one.topic != "Audit" for one in section(comparison_run({"m": 3})).findings)


def test_an_audit_that_is_not_whole_is_refused():
    with pytest.raises(StoreError, match="its table audit has no text, words"):
        section(with_audit({"model": "m"}))
