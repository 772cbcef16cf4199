"""Results ↔ folders."""

import numpy as np
import pandas as pd
import pytest

from residuum.errors import StoreError
from residuum.results import Run, finished_run, read_run, write_run

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
    record.write_text(record.read_text().replace('"similarity"', '"../secret"'))
    with pytest.raises(StoreError, match="not the name of a table"):
        read_run(tmp_path)
