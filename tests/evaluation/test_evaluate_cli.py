"""`residuum evaluate`: the same numbers as Python, and clear mistakes."""

import pandas as pd
import pytest
from bilingual import save_language_model, sentence_pairs
from typer.testing import CliRunner

from residuum.cli import app
from residuum.errors import ResiduumError
from residuum.evaluation import evaluate_perplexity, evaluate_retrieval
from residuum.results import read_run
from tiny import TEXT


@pytest.fixture
def files(tmp_path):
    pairs = sentence_pairs()
    for language, lines in zip(pairs.languages, (pairs.source, pairs.target), strict=True):
        (tmp_path / f"lines.{language}").write_text("\n".join(lines) + "\n")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)], catch_exceptions=False)


def test_retrieval_with_one_model_or_two_gives_the_numbers_of_python(files, tiny_folder):
    bert, pairs = tiny_folder("bert"), files / "lines.low"
    options = ("--translations", files / "lines.up", "--layers", "all;2")
    result = run("retrieval", bert, pairs, "--out", files / "one", *options)
    assert result.exit_code == 0
    assert "low → up  cosine     layers all    accuracy 1.000 (1.000 to 1.000)  MRR 1.000" in result.output
    python = evaluate_retrieval(bert, sentence_pairs(), layers="all;2", progress=False).frame
    pd.testing.assert_frame_equal(read_run(files / "one").tables["retrieval"], python)
    assert run("retrieval", bert, bert, pairs, "--out", files / "two", *options).exit_code == 0
    pd.testing.assert_frame_equal(read_run(files / "two").tables["retrieval"], python)


def test_perplexity_gives_the_numbers_of_python(files):
    model = save_language_model(files / "model", "bert", "masked")
    (files / "text.txt").write_text("\n".join(TEXT[:4]) + "\n", encoding="utf-8")
    result = run("perplexity", model, f"en={files / 'text.txt'}", "--out", files / "run")
    assert result.exit_code == 0
    assert result.output.startswith("en: perplexity ")
    python = evaluate_perplexity(model, {"en": files / "text.txt"}, progress=False).frame
    pd.testing.assert_frame_equal(read_run(files / "run").tables["perplexity"], python)


def test_wrong_usage_is_exit_status_2_and_a_mistake_is_an_error(files, tiny_folder):
    assert run("retrieval", "only-pairs", "--out", files / "x").exit_code == 2
    assert run("retrieval", "a", "b", "c", "d", "--out", files / "x").exit_code == 2
    with pytest.raises(ResiduumError, match="nowhere does not exist"):
        run("retrieval", tiny_folder("bert"), files / "nowhere", "--out", files / "x")
