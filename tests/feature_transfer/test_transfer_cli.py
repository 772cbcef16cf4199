"""`residuum transfer` and `residuum predict`: the same numbers as Python, words and tags in a stream."""

import io
import signal
import sys

import pytest
from tagged_words import RECIPE, numbered_corpus, tagged_corpus

from made_stores import conllu
from residuum.cli import main
from residuum.feature_transfer import predict, transfer
from residuum.results import read_run

FLAGS = ("--epochs", RECIPE.epochs, "--batch-size", RECIPE.batch_size, "--learning-rate", RECIPE.learning_rate)


@pytest.fixture
def run(monkeypatch, capfd):
    """Run a command in this process; give its exit status and what it printed."""

    def command(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["residuum", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        handler = signal.getsignal(signal.SIGINT)
        capfd.readouterr()
        try:
            main()
            status = 0
        except SystemExit as exit:
            status = exit.code or 0
        finally:
            signal.signal(signal.SIGINT, handler)
        out, err = capfd.readouterr()
        return status, out, err

    return command


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    corpus = tagged_corpus()
    path = tmp_path_factory.mktemp("text") / "words.conllu"
    path.write_text(conllu(corpus.sentences, corpus.labels["upos"]))
    return path


def test_the_command_gives_the_numbers_of_the_function(run, tiny_folder, treebank, tmp_path):
    status, out, err = run("transfer", tiny_folder(), treebank, "--task", "upos", "--out", tmp_path / "a", *FLAGS)
    assert status == 0, err
    result = transfer(tiny_folder(), treebank, "upos", tmp_path / "b", recipe=RECIPE, progress=False)
    assert read_run(tmp_path / "a").tables["neurons"].equals(result.neurons)
    assert f"{result.run.summary['neurons']} neurons" in out
    assert "residuum predict" in out

    texts = ["the quick fox", "", "a dog reads"]
    status, out, _ = run("predict", tmp_path / "a", "--batch-size", 2, stdin="\n".join(texts) + "\n")
    tags = list(predict(tmp_path / "b", texts))
    expected = [f"{word}\t{tag}" for word, tag in zip(texts[0].split(), tags[0], strict=True)]
    assert status == 0
    assert out.splitlines() == [
        *expected,
        "",
        "",
        *(f"{word}\t{tag}" for word, tag in zip(texts[2].split(), tags[2], strict=True)),
        "",
    ]


def test_pairs_stand_with_a_tab_between(run, tiny_folder, tmp_path):
    settings = {"recipe": RECIPE, "progress": False, "steps": ["layers"], "position": "mean"}
    transfer(tiny_folder(), numbered_corpus(160), "regression", tmp_path, **settings)
    status, out, _ = run("predict", tmp_path, stdin="the fox\ta dog\n")
    assert status == 0
    assert float(out) == pytest.approx(next(predict(tmp_path, [("the fox", "a dog")])), abs=1e-4)
    status, _, err = run("predict", tmp_path, stdin="the fox\n")
    assert status == 1
    assert "Line 1 has 1 segments; expected two with a tab between" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--task", "chunk"), "has no word labels 'chunk'"),
        (("--task", "upos", "--budget", "bytes=10"), "the nearest is bytes="),
        (("--task", "upos", "--budget", "cheap"), "expected layers=3, neurons=300"),
    ],
)
def test_mistakes_are_one_line_and_status_one(options, message, run, tiny_folder, treebank, tmp_path):
    status, _, err = run("transfer", tiny_folder(), treebank, "--out", tmp_path, *options)
    assert status == 1
    lines = [line for line in err.splitlines() if line.startswith("residuum:")]
    assert len(lines) == 1
    assert message in lines[0]
