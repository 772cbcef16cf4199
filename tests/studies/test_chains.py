"""The studies themselves, on the sample teacher and very little text."""

import re
import shutil

import pytest
from safetensors.numpy import load_file, save_file

from residuum.samples import teacher_folder
from residuum.studies.running import DOCUMENTS, study

pytestmark = [pytest.mark.usefixtures("tiny_sample"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def teacher(tmp_path):
    return shutil.copytree(teacher_folder(), tmp_path / "here" / "teacher")


NEEDS_MORE = {  # an XLNet, chunks, or models besides a teacher and its student
    "redundancy": {"Figure 9", "Figure 11"},
    "transfer-learning": {"Table 4", "Table 6", "Figure 2"},
    "distilled": {"Tables A.1 to A.8"},
}


def written(out):
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/result.json")}


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_study_measures_every_exhibit_and_is_not_run_again_where_its_model_moved(name, teacher, tmp_path, capsys):
    found = study(name, tmp_path / "out", models=teacher)
    empty = set(found.exhibits.loc[found.exhibits["rows"] == 0, "document"])
    assert empty == NEEDS_MORE.get(name, set())
    assert set(found.exhibits["document"]) == {exhibit.label for exhibit in DOCUMENTS[name].exhibits}
    assert len(found.frame) == len(DOCUMENTS[name].claims)
    before = written(tmp_path / "out")
    (tmp_path / "there").mkdir()
    capsys.readouterr()
    again = study(name, tmp_path / "out", models=teacher.rename(tmp_path / "there" / "master"))
    said = [line for line in capsys.readouterr().err.splitlines() if re.match(r"\d+/\d+  ", line)]
    assert written(tmp_path / "out") == before
    assert said
    assert all("finished before" in line for line in said)
    assert again.frame.equals(found.frame)


@pytest.mark.slow
def test_all_that_depends_on_a_model_is_done_again_where_the_model_has_changed(teacher, tmp_path, capsys):
    study("monolingual", tmp_path / "out", models=teacher)
    before = written(tmp_path / "out")
    weights = load_file(teacher / "model.safetensors")
    save_file({name: 0.9 * weight for name, weight in weights.items()}, teacher / "model.safetensors", {"format": "pt"})
    capsys.readouterr()
    study("monolingual", tmp_path / "out", models=teacher)
    said = capsys.readouterr().err.splitlines()
    after = written(tmp_path / "out")
    assert all(after[step] > before[step] for step in before)
    assert sum("is run again" in line for line in said) == len(before)
