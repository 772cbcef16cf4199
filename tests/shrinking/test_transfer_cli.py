"""`residuum transfer` and `residuum predict`: the same numbers as Python, words and tags in a stream."""

import pytest
from tagged_words import numbered_corpus, tagged_corpus

from made_stores import conllu
from residuum.shrinking import predicting
from residuum.shrinking.predicting import predict
from residuum.shrinking.transferring import transfer
from residuum.storage.results import read_run


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    corpus = tagged_corpus()
    path = tmp_path_factory.mktemp("text") / "words.conllu"
    path.write_text(conllu(corpus.sentences, corpus.labels["upos"]))
    return path


def test_the_command_gives_the_numbers_of_the_function(run, tiny_folder, treebank, tmp_path):
    status, out, err = run("transfer", tiny_folder(), treebank, "--task", "upos", "--out", tmp_path / "a")
    assert status == 0, err
    result = transfer(tiny_folder(), treebank, "upos", tmp_path / "b", progress=False)
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
    settings = {"progress": False, "steps": ["layers"], "position": "mean"}
    transfer(tiny_folder(), numbered_corpus(160), "regression", tmp_path, **settings)
    status, out, _ = run("predict", tmp_path, stdin="the fox\ta dog\n")
    assert status == 0
    assert float(out) == pytest.approx(next(predict(tmp_path, [("the fox", "a dog")])), abs=1e-4)
    status, _, err = run("predict", tmp_path, stdin="the fox\n")
    assert status == 1
    assert "Line 1 has 1 segments; expected two with a tab between" in err


@pytest.fixture(scope="module")
def tagger(tiny_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "tagger"
    transfer(tiny_folder(), tagged_corpus(40), "upos", out, progress=False, steps=["layers"])
    return out


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        ("the fox\na café\n".encode("latin-1"), "Line 2 is not UTF-8: byte 0xe9 at position 6 of it"),
        (b"the fox\nthe \0 dog\n", "Line 2 is not text: byte 5 is zero"),
        (b"the fox\n" + b"x" * 60 + b"\n", "Line 2 is longer than 50 bytes; expected one text per line"),
    ],
)
def test_bytes_that_are_no_lines_of_text_are_named(stdin, message, run, tagger, monkeypatch):
    monkeypatch.setattr(predicting, "MAX_LINE_BYTES", 50)
    status, out, err = run("predict", tagger, "--batch-size", 1, stdin=stdin)
    assert status == 1
    assert message in err
    assert "Traceback" not in err
    assert out.startswith("the\t"), "what came before is answered"


def test_text_of_any_script_is_read_whatever_the_locale(run, tagger):
    status, out, _ = run("predict", tagger, stdin="\ufeffthe Größe\r\n東京 は".encode())
    assert status == 0
    assert [line.partition("\t")[0] for line in out.splitlines()] == ["the", "Größe", "", "東京", "は", ""]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--task", "chunk"), "has no word labels 'chunk'"),
        (("--task", "upos", "--budget", "bytes=10"), "the nearest is bytes="),
    ],
)
def test_mistakes_are_one_line_and_status_one(options, message, run, tiny_folder, treebank, tmp_path):
    status, _, err = run("transfer", tiny_folder(), treebank, "--out", tmp_path, *options)
    assert status == 1
    lines = [line for line in err.splitlines() if line.startswith("residuum:")]
    assert len(lines) == 1
    assert message in lines[0]


def test_a_budget_that_cannot_be_read_is_a_usage_error(run, tiny_folder, treebank, tmp_path):
    status, _, err = run("transfer", tiny_folder(), treebank, "--task", "upos", "--out", tmp_path, "--budget", "cheap")
    assert status == 2
    assert "expected layers=3, neurons=300" in err


@pytest.mark.parametrize("command", ["transfer", "prune", "trim"])
def test_no_option_is_offered_that_does_nothing(command, run):
    status, out, _ = run(command, "--help")
    assert status == 0
    assert "--max-memory" in out
    assert "--workers" not in out
