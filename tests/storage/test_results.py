"""Results ↔ folders."""

import numpy as np
import pandas as pd
import pytest

from residuum.errors import OtherRunError, StoreError
from residuum.storage.files import read_json, write_json
from residuum.storage.results import Run, finished_run, read_config, read_run, without_places, write_config, write_run

RUN = Run(
    command="compare",
    config={"measures": ["cka"], "seed": 0, "models": {"a": "1f"}},
    summary={"cka": 0.5},
    tables={"similarity": pd.DataFrame({"measure": ["cka", "größe"], "value": [0.5, 0.25]})},
    tensors={"map": np.arange(6, dtype=np.float32).reshape(2, 3)},
)


def test_a_run_comes_back_as_it_was(tmp_path):
    again = read_run(write_run(tmp_path / "run", RUN))
    assert (again.command, again.config, again.summary) == (RUN.command, RUN.config, RUN.summary)
    pd.testing.assert_frame_equal(again.tables["similarity"], RUN.tables["similarity"])
    np.testing.assert_array_equal(again.tensors["map"], RUN.tensors["map"])
    assert again.environment["torch"]
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names >= {"config.yaml", "result.json", "similarity.parquet", "similarity.csv", "environment.json"}


def test_the_same_run_is_found_and_another_is_refused(tmp_path):
    assert finished_run(tmp_path, "compare", RUN.config) is None
    write_run(tmp_path, RUN)
    assert finished_run(tmp_path, "compare", RUN.config).summary == {"cka": 0.5}
    with pytest.raises(StoreError, match="seed 0 → 1"):
        finished_run(tmp_path, "compare", {**RUN.config, "seed": 1})
    with pytest.raises(StoreError, match="holds a run of `compare`"):
        finished_run(tmp_path, "probe", RUN.config)
    assert finished_run(tmp_path, "compare", RUN.config, fresh=True) is None


def test_a_run_is_the_same_wherever_what_it_read_lies(tmp_path):
    def config(place, files="f1", pair="p1"):
        student = {"model": f"{place}/student", "files": "f2"}
        pairs = {"pairs": {"tr-en": [f"{place}/a", f"{place}/b"]}, "pair_fingerprints": {"tr-en": [pair, "p2"]}}
        return {"model": f"{place}/bert", "files": files, "students": [student], "evaluation": pairs, "seed": 0}

    write_run(tmp_path, Run("finetune", config("/here")))
    assert finished_run(tmp_path, "finetune", config("/there")) is not None
    with pytest.raises(OtherRunError, match=r"holds another run \(files f1 → f3\)"):
        finished_run(tmp_path, "finetune", config("/here", files="f3"))
    with pytest.raises(OtherRunError, match=r"holds another run \(evaluation .*p1.* → .*p3.*\)"):
        finished_run(tmp_path, "finetune", config("/here", pair="p3"))


@pytest.mark.parametrize("fingerprint", ["", None, {"en": None}, {}, {"en": "f", "tr": ""}])
def test_what_has_no_fingerprint_is_told_by_its_place(fingerprint):
    config = {"texts": "owner/name", "fingerprints": fingerprint}
    assert without_places(config) == config
    assert without_places({**config, "fingerprints": {"en": "f"}}) == {"fingerprints": {"en": "f"}}


def test_what_a_folder_is_of_can_be_known_before_it_is_whole(tmp_path):
    assert read_config(tmp_path) == {}
    write_config(tmp_path, "study", {"seed": 1})
    assert read_config(tmp_path) == {"command": "study", "seed": 1}
    assert finished_run(tmp_path, "study", {"seed": 1}) is None


def test_an_unfinished_run_is_not_there(tmp_path):
    write_run(tmp_path, RUN)
    (tmp_path / "result.json").unlink()
    assert finished_run(tmp_path, "compare", RUN.config) is None
    with pytest.raises(StoreError, match="not a finished run"):
        read_run(tmp_path)


@pytest.mark.parametrize("file", ["config.yaml", "similarity.parquet", "tensors.safetensors", "environment.json"])
def test_a_damaged_file_is_named(file, tmp_path):
    write_run(tmp_path, RUN)
    (tmp_path / file).write_bytes(b"\x01[")
    with pytest.raises(StoreError):
        read_run(tmp_path)


def test_a_table_cannot_point_outside_its_folder(tmp_path):
    write_run(tmp_path, RUN)
    record = tmp_path / "result.json"
    write_json(record, {**read_json(record), "tables": {"../secret": "0"}})
    with pytest.raises(StoreError, match="not the name of a table"):
        read_run(tmp_path)
