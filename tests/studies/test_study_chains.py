"""The studies themselves, on the sample teacher and very little text."""

import shutil

import pytest
from safetensors.numpy import load_file, save_file

from residuum.samples import teacher_folder
from residuum.studies import scales
from residuum.studies.documents import DOCUMENTS
from residuum.studies.running import study
from residuum.studies.scales import Scale

TINY = Scale("sample", 40, 48, 40, 2, 1.0, 16, 5e-4, 1, 2, 2, 3, 4)


@pytest.fixture
def teacher(tmp_path):
    return shutil.copytree(teacher_folder(), tmp_path / "here" / "teacher")


def written(out):
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/result.json")}


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.filterwarnings("ignore")
def test_a_study_measures_every_exhibit_and_is_not_done_again_where_its_model_has_moved(
    name, teacher, tmp_path, monkeypatch
):
    monkeypatch.setitem(scales.SCALES, "sample", TINY)
    found = study(name, tmp_path / "out", models=teacher)
    assert (found.exhibits["rows"] > 0).all(), found.exhibits.loc[found.exhibits["rows"] == 0]
    assert set(found.exhibits["document"]) == {one.label for one in DOCUMENTS[name].exhibits}
    assert len(found.frame) == len(DOCUMENTS[name].claims)
    before = written(tmp_path / "out")
    (tmp_path / "there").mkdir()
    said, moved = [], teacher.rename(tmp_path / "there" / "master")
    again = study(name, tmp_path / "out", models=moved, say=said.append)
    assert written(tmp_path / "out") == before
    assert all("finished before" in line for line in said)
    assert again.frame.equals(found.frame)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_that_depends_on_a_model_is_done_again_where_the_model_has_changed(teacher, tmp_path, monkeypatch):
    monkeypatch.setitem(scales.SCALES, "sample", TINY)
    study("monolingual", tmp_path / "out", models=teacher)
    before = written(tmp_path / "out")
    weights = load_file(teacher / "model.safetensors")
    save_file({name: 0.9 * weight for name, weight in weights.items()}, teacher / "model.safetensors", {"format": "pt"})
    said = []
    study("monolingual", tmp_path / "out", models=teacher, say=said.append)
    after = written(tmp_path / "out")
    assert all(after[step] > before[step] for step in before)
    assert sum("is done again" in line for line in said) == len(before)
