"""`residuum evaluate`: the same numbers as Python, and clear mistakes."""

import pandas as pd
import pytest
from bilingual import save_language_model, sentence_pairs, shifted_pairs
from typer.testing import CliRunner

from residuum.cli import app
from residuum.errors import ResiduumError, StoreError
from residuum.evaluation.pairs import SentencePairs
from residuum.evaluation.perplexity import evaluate_perplexity
from residuum.evaluation.retrieval import correlate_alignment, evaluate_retrieval
from residuum.reporting.report import section
from residuum.storage.results import Run, read_run, write_run
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
    assert run("retrieval", bert, pairs, "--target-model", bert, "--out", files / "two", *options).exit_code == 0
    pd.testing.assert_frame_equal(read_run(files / "two").tables["retrieval"], python)


def test_perplexity_gives_the_numbers_of_python(files):
    model = save_language_model(files / "model", "bert", "masked")
    (files / "text.txt").write_text("\n".join(TEXT[:4]) + "\n", encoding="utf-8")
    result = run("perplexity", model, f"en={files / 'text.txt'}", "--out", files / "run")
    assert result.exit_code == 0
    assert result.output.startswith("en: perplexity ")
    python = evaluate_perplexity(model, {"en": files / "text.txt"}, progress=False).frame
    pd.testing.assert_frame_equal(read_run(files / "run").tables["perplexity"], python)


@pytest.fixture
def aligned(tmp_path, tiny_folder):
    """Four retrieval runs, each with more right translations than the one before."""
    pairs, wrong = sentence_pairs(), shifted_pairs()
    for i in range(4):
        right = i * len(pairs) // 3
        mixed = SentencePairs(pairs.languages, pairs.source, pairs.target[:right] + wrong.target[right:])
        evaluate_retrieval(tiny_folder("bert"), mixed, score="cosine", out=tmp_path / f"m{i}", progress=False)
    return {f"m{i}": str(tmp_path / f"m{i}") for i in range(4)}


def _adapt_run(folder, scores):
    write_run(folder, Run("adapt", {}, {"metric": "accuracy", "test accuracy": scores}))
    return folder


def test_correlation_gives_the_numbers_of_python_from_numbers_and_from_runs_of_adapt(aligned, tmp_path):
    last = _adapt_run(tmp_path / "adapted", {"full-target": 0.9})
    scores = {"m0": 0.3, "m1": 0.5, "m2": 0.6, "m3": str(last)}
    options = [part for name, value in scores.items() for part in ("--downstream", f"{name}={value}")]
    runs = [f"{name}={folder}" for name, folder in aligned.items()]
    result = run("correlate", *runs, *options, "--out", tmp_path / "found")
    assert result.output.count(", 4 models\n") == 4
    python = correlate_alignment(aligned, {**scores, "m3": 0.9})
    pd.testing.assert_frame_equal(read_run(tmp_path / "found").tables["correlations"], python.frame)
    assert (python.frame["value"] > 0.9).all()
    assert len(python.plot().data[0].x) == 2  # both directions, by Pearson's
    assert "correlations have an interval that excludes 0" in section(python.run).findings[0].text


def test_a_downstream_run_that_has_not_one_score_is_refused(aligned, tmp_path):
    several = _adapt_run(tmp_path / "adapted", {"full-target": 0.9, "freeze+0": 0.4})
    with pytest.raises(ResiduumError, match=r"with the strategies full-target, freeze\+0; expected one"):
        correlate_alignment(aligned, {**dict.fromkeys(aligned, 0.5), "m0": several})
    with pytest.raises(ResiduumError, match="run of `evaluate retrieval`; expected one of `adapt`"):
        correlate_alignment(aligned, {**dict.fromkeys(aligned, 0.5), "m0": aligned["m1"]})
    with pytest.raises(ResiduumError, match="matched by name"):
        run("correlate", aligned["m0"], "--downstream", "m0=1", "--out", tmp_path / "x")


def test_runs_that_do_not_hold_what_they_should_are_named(aligned, tmp_path):
    scores = dict.fromkeys(aligned, 0.5)
    bare = write_run(tmp_path / "bare", Run("evaluate retrieval", {}))
    with pytest.raises(StoreError, match=r"bare is not a complete run of `evaluate retrieval`: .*KeyError: 'averages'"):
        correlate_alignment({**aligned, "m0": bare}, scores)
    bare = write_run(tmp_path / "bare", Run("evaluate adapted", {}))
    with pytest.raises(StoreError, match=r"bare is not a complete run of `evaluate adapted`: .*KeyError: 'scores'"):
        correlate_alignment(aligned, {**scores, "m0": bare})
    with pytest.raises(StoreError, match=r"bare is not a complete run of `adapt`: .*could not convert string to float"):
        correlate_alignment(aligned, {**scores, "m0": _adapt_run(tmp_path / "bare", {"full-target": "good"})})


def test_wrong_usage_is_exit_status_2_and_a_mistake_is_an_error(files, tiny_folder):
    assert run("retrieval", "only-pairs", "--out", files / "x").exit_code == 2
    assert run("retrieval", "a", "b", "c", "d", "--out", files / "x").exit_code == 2
    with pytest.raises(ResiduumError, match="nowhere does not exist"):
        run("retrieval", tiny_folder("bert"), files / "nowhere", "--out", files / "x")
