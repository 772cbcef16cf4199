"""`residuum rank` and `residuum ablate`: the numbers of Python, and clear errors."""

import pandas as pd
import pytest

from residuum.maths.probing import PaperRecipe
from residuum.probing.ablate import ablate
from residuum.probing.neuron_cards import describe
from residuum.probing.rank import rank
from residuum.storage.results import read_run
from tiny import TEXT


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    """Sentences of several scripts as CoNLL-U; a word's tag is its length."""
    lines = []
    for sentence in TEXT * 2:
        for number, word in enumerate(sentence.split(), 1):
            tag = "NOUN" if len(word) > 4 else "VERB" if len(word) > 2 else "DET"
            lines.append(f"{number}\t{word}\t{word}\t{tag}\t_\t_\t{number - 1}\tdep\t_\t_")
        lines.append("")
    path = tmp_path_factory.mktemp("treebank") / "all.conllu"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


RECIPE = PaperRecipe(epochs=2, batch_size=32)
OPTIONS = ("--task", "upos", "--epochs", 2, "--batch-size", 32)
PAPER = (*OPTIONS, "--recipe", "paper", "--by", "lca")


def test_rank_gives_the_numbers_of_python(run, tiny_folder, treebank, tmp_path):
    options = (*PAPER, "--shares", "0.1,0.2", "--methods", "lca,random", "--neurons", "1:3, 0:2", "--seeds", 2)
    status, out, _ = run("rank", tiny_folder("bert"), treebank, "--out", tmp_path / "cli", *options)
    assert status == 0
    assert "Score of a probe on the first neurons" in out
    assert f"Next: residuum ablate {tiny_folder('bert')} {treebank} --task upos --neurons" in out
    python = rank(
        tiny_folder("bert"),
        treebank,
        "upos",
        methods=["lca", "random"],
        shares=(0.1, 0.2),
        neurons=["1:3", "0:2"],
        seeds=2,
        recipe="paper",
        by="lca",
        epochs=2,
        batch_size=32,
    )
    tables = read_run(tmp_path / "cli").tables
    assert list(dict.fromkeys(tables["card_words"]["neuron"])) == ["1:3", "0:2"]
    for name, table in python.run.tables.items():
        pd.testing.assert_frame_equal(tables[name], table, check_dtype=False)


def test_describe_gives_the_tables_of_python_for_a_model_and_for_a_store(run, tiny_folder, treebank, tmp_path):
    python = describe(tiny_folder("bert"), treebank, ["1:3", "0:2"], activations=tmp_path / "acts")
    common = ("--neurons", "1:3, 0:2")
    status, out, _ = run("describe", tiny_folder("bert"), treebank, *common, "--out", tmp_path / "model")
    assert status == 0
    assert "1:3  highest on" in out
    assert run("describe", tmp_path / "acts", *common, "--out", tmp_path / "store")[0] == 0
    for folder in ("model", "store"):
        for name, table in python.run.tables.items():
            pd.testing.assert_frame_equal(read_run(tmp_path / folder).tables[name], table, check_dtype=False)
    assert run("report", tmp_path / "model", "--out", tmp_path / "r.html")[0] == 0
    assert "Neuron 1:3" in (tmp_path / "r.html").read_text(encoding="utf-8")
    status, _, err = run("describe", tiny_folder("bert"), treebank, "--neurons", "9:1", "--out", tmp_path / "wrong")
    assert status == 1
    assert "Layer 9" in err


def test_rank_scores_a_random_twin_on_request(run, tiny_folder, treebank, tmp_path):
    options = (*PAPER, "--methods", "lca", "--cards", 0, "--seeds", 1, "--random-twin")
    status, out, _ = run("rank", tiny_folder("bert"), treebank, "--out", tmp_path / "run", *options)
    assert status == 0
    assert "random twin 0." in out
    assert read_run(tmp_path / "run").tables["minimal"]["random_twin"].between(0, 1).all()


def test_ablate_gives_the_numbers_of_python_and_reuses_activations(run, tiny_folder, treebank, tmp_path):
    common = (tiny_folder("gpt2"), treebank, "--activations", tmp_path / "acts", *OPTIONS)
    status, _, _ = run(
        "rank", *common, "--recipe", "paper", "--out", tmp_path / "rank", "--methods", "lca", "--cards", 0, "--seeds", 1
    )
    assert status == 0
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "acts").rglob("*.safetensors")}
    status, out, _ = run("ablate", *common, "--out", tmp_path / "ablate", "--how", "mean", "--draws", 1)
    assert status == 0
    assert "random 1" in out
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "acts").rglob("*.safetensors")}
    python = ablate(tiny_folder("gpt2"), treebank, "upos", how="mean", draws=1)
    pd.testing.assert_frame_equal(read_run(tmp_path / "ablate").tables["ablation"], python.frame)
    assert run("report", tmp_path / "rank", tmp_path / "ablate", "--out", tmp_path / "r.html")[0] == 0


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("rank", ["--neurons", "1:16"], "Neuron 1:16 does not exist: layer 1 has the neurons 0–15."),
        ("ablate", ["--neurons", "9:1"], "Layer 9 is not here"),
        ("ablate", ["--within", "7"], "Layer 7 does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_1(command, arguments, message, run, tiny_folder, treebank, tmp_path):
    status, _, err = run(
        command,
        tiny_folder("bert"),
        treebank,
        *OPTIONS,
        "--out",
        tmp_path,
        "--activations",
        tmp_path / "acts",
        *arguments,
    )
    assert status == 1
    assert message in err
    assert [line for line in err.splitlines() if line.startswith("residuum: ")] == [err.splitlines()[-1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "magic"], "There is no order of neurons magic"),
        (["--shares", "0.9"], "at most 0.5"),
        (["--penalty", "lots"], "expected 2 numbers separated by commas"),
    ],
)
def test_a_setting_that_cannot_be_is_a_usage_error(arguments, message, run, tiny_folder, treebank, tmp_path):
    status, _, err = run("rank", tiny_folder("bert"), treebank, "--task", "upos", "--out", tmp_path, *arguments)
    assert status == 2
    assert message in " ".join(err.replace("│", " ").split())
