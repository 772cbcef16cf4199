"""The study: a run for each row, scores side by side, rows that are done are kept."""

import pytest

from residuum.errors import SettingError
from residuum.studies.monolingual_students import TABLES, study_distillation


def test_ten_losses_and_three_ablations_are_rows():
    assert len(TABLES["4.7"]) == 10
    assert len(TABLES["4.8"]) == 4


def test_every_row_of_a_table_is_distilled_and_compared(values, tmp_path):
    config = values(optimiser={"steps": 1})
    run = study_distillation(config, tmp_path, tables=["4.8"], device="cpu", progress=False)
    scores = run.tables["scores"]
    assert set(scores["row"]) == set(TABLES["4.8"])
    parameters = scores.groupby("row")["parameters"].first()
    assert parameters["monoshot"] < parameters["monoshot-without-sharing"]
    assert parameters["monoshot"] < parameters["monoshot-without-tying"]
    before = (tmp_path / "monoshot" / "result.json").stat().st_mtime_ns
    study_distillation(config, tmp_path, tables=["4.8"], device="cpu", progress=False)
    assert (tmp_path / "monoshot" / "result.json").stat().st_mtime_ns == before


def test_a_table_of_another_study_is_named(values, tmp_path):
    with pytest.raises(SettingError, match="Table 9.9 is not of this study; choose from 4.7, 4.8"):
        study_distillation(values(), tmp_path, tables=["9.9"])
