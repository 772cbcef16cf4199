"""The studies themselves, on the sample teacher and very little text."""

import pytest

from residuum.studies import scales
from residuum.studies.documents import DOCUMENTS
from residuum.studies.running import study
from residuum.studies.scales import Scale

TINY = Scale("sample", 40, 48, 40, 2, 1.0, 16, 5e-4, 1, 2, 2, 3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.filterwarnings("ignore")
def test_a_study_measures_every_exhibit_and_is_not_done_again(name, tmp_path, monkeypatch):
    monkeypatch.setitem(scales.SCALES, "sample", TINY)
    found = study(name, tmp_path / "out")
    assert (found.exhibits["rows"] > 0).all(), found.exhibits.loc[found.exhibits["rows"] == 0]
    assert set(found.exhibits["document"]) == {one.label for one in DOCUMENTS[name].exhibits}
    assert len(found.frame) == len(DOCUMENTS[name].claims)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/result.json")}
    said = []
    again = study(name, tmp_path / "out", say=said.append)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert all("finished before" in line for line in said)
    assert again.frame.equals(found.frame)
