"""`residuum redundancy`: the numbers of Python, the estimates before long work, and clear errors."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from made_stores import conllu, known_data
from residuum.cli import app
from residuum.probing.redundancy import redundancy
from residuum.storage.results import read_run

KNOWN = known_data(60)


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    path = tmp_path_factory.mktemp("treebank") / "all.conllu"
    path.write_text(conllu(KNOWN.sentences, KNOWN.tags), encoding="utf-8")
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, ["redundancy", *map(str, arguments)])


def test_the_command_gives_the_numbers_of_python(tiny_folder, treebank, tmp_path):
    options = (
        "--task",
        "upos",
        "--thresholds",
        "0.2,0.5",
        "--recipe",
        "paper",
        "--epochs",
        2,
        "--representatives",
        "medoid",
    )
    options += ("--keep", 0.9, "--keep-layers", 0.95, "--clusters", "dbscan", "--random-twin")
    done = invoke(tiny_folder("bert"), treebank, "--out", tmp_path / "cli", *options)
    assert done.exit_code == 0, done.output
    assert "minimal set" in done.output
    assert "Next: residuum transfer" in done.output
    python = redundancy(
        tiny_folder("bert"),
        treebank,
        "upos",
        thresholds=(0.2, 0.5),
        recipe="paper",
        epochs=2,
        representatives="medoid",
        keep=0.9,
        keep_layers=0.95,
        clusters="dbscan",
        random_twin=True,
        progress=False,
    )
    written = read_run(tmp_path / "cli")
    for name in ("thresholds", "layers", "reduction", "selected", "neurons", "class_layers"):
        pd.testing.assert_frame_equal(written.tables[name], python.run.tables[name])
    assert invoke(tiny_folder("bert"), treebank, "--out", tmp_path / "cli", *options).exit_code == 0


def test_a_store_needs_neither_corpus_nor_task(tmp_path):
    KNOWN.store(tmp_path / "acts")
    done = invoke(tmp_path / "acts", "--out", tmp_path / "run", "--layers", "0,2")
    assert done.exit_code == 0, done.output
    run = read_run(tmp_path / "run")
    assert run.tables["layers"]["layer"].tolist() == [0, 2]
    assert "score" not in run.tables["thresholds"]


def test_mistakes_are_one_line(treebank, tmp_path):
    done = invoke(treebank, "--out", tmp_path / "run", "--thresholds", "0.3,many")
    assert done.exit_code == 2
    done = invoke("no-such-model", treebank, "--out", tmp_path / "run", "--focus", 2)
    assert done.exit_code == 2
    assert "--focus is 2.0; expected a number at least 0 and at most 1" in " ".join(done.output.split())
