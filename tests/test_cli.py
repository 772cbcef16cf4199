"""The command line: the same numbers as Python, clear errors, quick help."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from residuum.activations.extraction import extract
from residuum.activations.store import open_store
from residuum.comparison.compare import compare
from residuum.corpus import Corpus, read_corpus
from residuum.models.loading import load_model
from residuum.storage.results import read_run

CONLLU = """# sent_id = a
1	The	the	DET	DT	_	2	det	_	_
2	fox	fox	NOUN	NN	Number=Sing	3	nsubj	_	_
3	reads	read	VERB	VBZ	_	0	root	_	_

# sent_id = b
1	Dogs	dog	NOUN	NNS	Number=Plur	0	root	_	_

"""


@pytest.fixture
def treebank(tmp_path):
    path = tmp_path / "test.conllu"
    path.write_text(CONLLU)
    return path


@pytest.mark.parametrize("words", [["--version"], ["verify", "no-such-store"]])
def test_an_interrupt_while_the_program_exits_is_ignored(words, monkeypatch):
    from residuum.cli import main

    monkeypatch.setattr(sys, "argv", ["residuum", *words])
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            main()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_extract_gives_the_numbers_of_python(run, tiny_folder, treebank, tmp_path):
    status, out, _ = run("extract", tiny_folder("bert"), treebank, "--out", tmp_path / "cli", "--layers", "1-2")
    assert status == 0
    assert "4 words in 2 sentences" in out
    assert "0 words dropped" in out
    corpus = Corpus(name="x", sentences=[["The", "fox", "reads"], ["Dogs"]])
    python = extract(load_model(tiny_folder("bert")), corpus, tmp_path / "python", layers="1-2")
    np.testing.assert_array_equal(open_store(tmp_path / "cli").array(), python.array())


def test_verify_import_and_export_work_together(run, tiny_folder, treebank, tmp_path):
    run("extract", tiny_folder("bert"), treebank, "--out", tmp_path / "acts")
    assert run("verify", tmp_path / "acts")[:2] == (0, f"{tmp_path}/acts is whole: 1 shards, 4 words.\n")
    assert run("export", tmp_path / "acts", tmp_path / "x.npz")[0] == 0
    assert run("import", tmp_path / "x.npz", "--out", tmp_path / "again", "--corpus", treebank)[0] == 0
    np.testing.assert_array_equal(open_store(tmp_path / "again").array(), open_store(tmp_path / "acts").array())
    (tmp_path / "acts" / "shard-00000.safetensors").write_bytes(b"")
    status, _, err = run("verify", tmp_path / "acts")
    assert status == 1
    assert "has 0 bytes instead of" in err


def test_compare_and_report_follow_from_stores_or_models(run, tiny_folder, treebank, tmp_path):
    for family in ("bert", "gpt2"):
        run("extract", tiny_folder(family), treebank, "--out", tmp_path / family)
    stores = [tmp_path / "bert", tmp_path / "gpt2"]
    status, out, _ = run("compare", *stores, "--out", tmp_path / "a", "--measures", "cka,neuron", "--workers", 1)
    assert (tmp_path / "a" / "report.html").read_text(encoding="utf-8").count("<h1") == 1
    assert status == 0
    assert "128 values of 2 measures" in out
    models = [tiny_folder("bert"), "--corpus", treebank, "--random-twins"]
    status, out, _ = run(
        "compare", *models, "--out", tmp_path / "b", "--measures", "cka", "--workers", 1, "--groups", 2
    )
    assert status == 0
    frame = read_run(tmp_path / "b").tables["similarity"]
    assert set(frame["model_a"]) == {"bert", "bert (random)"}
    python = compare([open_store(s) for s in stores], measures="cka,neuron", workers=1, progress=False).frame
    pd.testing.assert_frame_equal(read_run(tmp_path / "a").tables["similarity"], python)
    status, out, _ = run("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "report.html")
    assert status == 0
    assert (tmp_path / "report.html").stat().st_size < 6_500_000


def test_sample_writes_what_the_readers_read(run, tmp_path):
    status, _, _ = run("sample", "treebank", "--language", "tr", "--size", 20, "--out", tmp_path / "tr.conllu")
    assert status == 0
    assert len(read_corpus(tmp_path / "tr.conllu")) == 20
    assert run("sample", "text", "--size", 3)[1].count("\n") == 3
    status, _, err = run("sample", "poem")
    assert status == 2
    assert "poem" in err


def test_sample_says_where_the_teacher_is_and_copies_it(run, tmp_path):
    folder = Path(run("sample", "teacher")[1].strip())
    assert (folder / "model.safetensors").exists()
    assert run("sample", "teacher", "--out", tmp_path / "teacher")[0] == 0
    copied = tmp_path / "teacher" / "model.safetensors"
    assert copied.read_bytes() == (folder / "model.safetensors").read_bytes()
    assert run("sample", "teacher", "--out", tmp_path / "teacher")[0] == 0, (
        "killed after its last word, it is done again"
    )
    (tmp_path / "teacher" / "mine.txt").write_text("a note")
    status, _, err = run("sample", "teacher", "--out", tmp_path / "teacher")
    assert status == 1
    assert "exists; choose another folder" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere", "{treebank}"], "/nowhere does not exist"),
        (["{model}", "/nowhere.conllu"], "/nowhere.conllu"),
        (["{model}", "{treebank}", "--layers", "9"], "Layer 9 does not exist"),
        (["{model}", "{treebank}", "--text", "sentence"], "sentence"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_1(arguments, message, run, tiny_folder, treebank, tmp_path):
    filled = [a.format(model=tiny_folder("bert"), treebank=treebank) for a in arguments]
    status, _, err = run("extract", *filled, "--out", tmp_path / "acts")
    assert status == 1
    assert message in err
    assert err.count("\n") == 1
    assert err.startswith("residuum: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prune", "nobody/nothing", "--drop", "top:1", "--out", "x"], "nobody/nothing does not exist here"),
        (["compare", "mistyped", "--out", "x"], "mistyped does not exist here; expected a store"),
        (["predict", "mistyped"], "mistyped does not exist; expected a folder that `transfer` wrote"),
        (["report", "mistyped"], "mistyped does not exist; expected a folder that a command wrote"),
        (["trim", "{model}", "mistyped.txt", "--out", "x"], "mistyped.txt does not exist; expected a text file"),
    ],
)
def test_a_mistyped_path_is_called_a_missing_path(words, message, run, tiny_folder):
    status, _, err = run(*(word.format(model=tiny_folder("bert")) for word in words))
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith(f"residuum: {message}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "klingon"], "TASK is 'klingon'; expected one of treebank, ner, nli, copa, translation, polarity, "),
        (["prune", "m", "--out", "x"], "prune needs --drop or --keep, and with --by the number of layers; or --ffn or"),
        (["distill", "m", "a.txt", "--preset", "hinton", "--out", "x"], "LANGUAGE=TEXT is 'a.txt'; expected at least"),
        (["distill", "m", "en=a.txt", "--out", "x"], "Pass either --preset or --losses."),
        (["shrink", "m", "--text", "a", "--out", "x"], "shrink needs a target; pass exactly one of --speedup, --param"),
        (["verify", "acts", "--config", "mistyped.yaml"], "mistyped.yaml does not exist. Give a YAML file of settings"),
    ],
)
def test_a_usage_error_is_in_words_of_the_command_line(words, message, run):
    status, _, err = run(*words)
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith(f"residuum: {message}")


def test_json_is_for_every_kind_of_result(run, tiny_folder, treebank, tmp_path):
    extracted = json.loads(run("extract", tiny_folder("bert"), treebank, "--out", tmp_path / "acts", "--json")[1])
    assert (extracted["path"], extracted["rows"], extracted["dropped"]) == (str(tmp_path / "acts"), 4, 0)
    assert "is whole" in json.loads(run("verify", tmp_path / "acts", "--json")[1])["text"]
    written = tmp_path / "x.npz"
    assert json.loads(run("export", tmp_path / "acts", written, "--json")[1]) == {"path": str(written)}
    lines = run("sample", "text", "--size", 2, "--json")[1].splitlines()
    assert [type(json.loads(line)) for line in lines] == [str, str]


def test_the_first_help_lists_whole_summaries_under_their_questions(run):
    shown = run("--help")[1]
    assert "What is the smallest model that does my job?\n" in shown
    assert "residuum demo" in shown, "what to type first"
    assert run("evaluate", "--help")[1].count("...") == 1, "in the usage line alone"


LONG = "n" * 300
ODD = "e\udcffn"  # as Python has a name that is not UTF-8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["extract", "{model}", "{treebank}", "--out", "{here}/{long}"], "File name too long"),
        (["extract", "{here}/{long}", "{treebank}", "--out", "{here}/x"], "File name too long"),
        (["verify", "{here}/{long}"], "File name too long"),
        (["report", "{here}/{long}", "--out", "{here}/x.html"], "File name too long"),
        (["sample", "text", "--size", "3", "--out", "{here}/{long}"], "File name too long"),
        (["extract", "{model}", "{treebank}", "--out", "{here}/loop"], "loop"),
        (["sample", "text", "--size", "3", "--out", "/proc/x"], "/proc/x"),
        (["extract", "{model}", "{treebank}", "--out", "{here}/{odd}"], "is not UTF-8"),
        (["extract", "{here}/{odd}", "{treebank}", "--out", "{here}/x"], "is not UTF-8"),
    ],
)
def test_names_that_no_file_can_have_are_one_line(arguments, message, run, tiny_folder, treebank, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    names = {"model": tiny_folder("bert"), "treebank": treebank, "here": tmp_path, "long": LONG, "odd": ODD}
    status, _, err = run(*(argument.format(**names) for argument in arguments))
    assert status == 1
    assert message in err
    assert err.count("\n") == 1


def test_output_that_nobody_can_hold_is_one_line():
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "residuum", "sample", "text", "--size", "3"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "residuum: No space left on device."


@pytest.mark.parametrize("amount", ["nan", "inf", "-1", "1e300"])
def test_memory_that_no_machine_has_is_wrong_usage(amount, run, tiny_folder, treebank, tmp_path):
    for command in (("extract",), ("probe", "--task", "upos")):
        words = [command[0], tiny_folder("bert"), treebank, *command[1:], "--out", tmp_path / "out"]
        status, _, err = run(*words, "--max-memory", amount)
        assert status == 2
        assert "gigabytes" in err


def test_seeds_are_not_negative(run, tmp_path):
    assert run("evaluate", "retrieval", "a", "b", "--out", tmp_path / "out", "--seed", "-1")[0] == 2


def test_wrong_usage_is_exit_status_2(run):
    assert run("extract")[0] == 2
    assert run("extract", "a", "b", "--out", "c", "--pooling", "median")[0] == 2
    assert run("no-such-command")[0] == 2


def test_help_and_version_answer_without_loading_torch():
    code = (
        "import sys; sys.argv = ['residuum', {!r}]\n"
        "try:\n from residuum.cli import main; main()\nexcept SystemExit: pass\n"
    )
    check = "heavy = {'torch', 'transformers', 'numpy', 'pandas', 'rich'} & set(sys.modules); assert not heavy, heavy"
    for flag in ("--help", "--version"):
        subprocess.run([sys.executable, "-c", code.format(flag) + check], check=True, capture_output=True)


def test_ctrl_c_is_one_line_and_the_run_can_go_on(tiny_folder, tmp_path):
    lines = tmp_path / "long.txt"
    lines.write_text("the quick brown fox jumps over the lazy dog\n" * 4_000)
    command = [sys.executable, "-m", "residuum", "extract", str(tiny_folder("bert")), str(lines), "--out"]
    command += [str(tmp_path / "acts"), "--batch-tokens", "64", "--shard-words", "500"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    manifest = tmp_path / "acts" / "manifest.json"
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and not _any_written(manifest):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 1
    assert err.strip().splitlines()[-1] == (
        "residuum: Interrupted. What was finished is kept; the same command goes on from there."
    )
    assert _any_written(manifest)


def _any_written(manifest) -> bool:
    return manifest.exists() and any(s["checksum"] for s in json.loads(manifest.read_text())["shards"])
