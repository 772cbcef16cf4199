"""The study: a run for each row, scores side by side, rows that are done are kept."""

import shutil
from pathlib import Path

import pytest

from residuum.distillation.distilling import with_fingerprints
from residuum.errors import SettingError, StoreError
from residuum.storage.results import Run, write_run
from residuum.studies.monolingual import DISTILLATIONS, common_settings, distillation_tables
from teachers import write_texts


def test_ten_losses_and_three_ablations_are_rows():
    assert len(DISTILLATIONS["4.7"]) == 10
    assert len(DISTILLATIONS["4.8"]) == 4


def test_every_row_of_a_table_is_distilled_and_compared(values, tmp_path):
    config = values(optimiser={"steps": 1})
    scores = distillation_tables(config, tmp_path, tables=["4.8"], device="cpu", progress=False).frame
    assert set(scores["row"]) == set(DISTILLATIONS["4.8"])
    parameters = scores.groupby("row")["parameters"].first()
    assert parameters["monoshot"] < parameters["monoshot-without-sharing"]
    assert parameters["monoshot"] < parameters["monoshot-without-tying"]
    before = (tmp_path / "monoshot" / "result.json").stat().st_mtime_ns
    distillation_tables(config, tmp_path, tables=["4.8"], device="cpu", progress=False)
    assert (tmp_path / "monoshot" / "result.json").stat().st_mtime_ns == before


def test_other_texts_in_the_same_files_are_another_study(values, tmp_path):
    config = values(texts=write_texts(tmp_path, "en", "tr"))
    out = tmp_path / "study"
    identity = {"config": with_fingerprints(common_settings(config)), "tables": ["4.8"]}
    write_run(out, Run("study distillation", identity, {}, {}))
    assert distillation_tables(config, out, tables=["4.8"], device="cpu").run.summary == {}  # the finished one
    text = Path(next(iter(config["texts"].values())))
    text.write_text(text.read_text(encoding="utf-8") + "One more line .\n", encoding="utf-8")
    with pytest.raises(StoreError, match="holds another run"):
        distillation_tables(config, out, tables=["4.8"], device="cpu")


def test_another_teacher_in_the_same_folder_is_another_study(values, tmp_path):
    config = values()
    config["teacher"] = str(shutil.copytree(config["teacher"], tmp_path / "teacher"))
    before = with_fingerprints(common_settings(config))
    assert before == with_fingerprints(common_settings(config))
    (tmp_path / "teacher/config.json").write_text("{}")
    assert before["teacher_files"] != with_fingerprints(common_settings(config))["teacher_files"]


def test_a_table_of_another_study_is_named(values, tmp_path):
    with pytest.raises(SettingError, match="There is no table 9.9; choose from 4.7, 4.8"):
        distillation_tables(values(), tmp_path, tables=["9.9"])
