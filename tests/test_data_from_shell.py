"""Labelled files as their makers ship them, read by `probe`, `transfer` and `finetune` from the shell."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from residuum.corpus import read_corpus
from residuum.corpus.tasks import labels_of, named_task, read_task
from residuum.errors import CorpusError
from residuum.probing.settings import ProbeSettings

WORDS = ("mbwa", "paka", "mtoto", "nyumba")
ACTIONS = ("analala", "anakula", "anacheza")


def sentences(n: int) -> list[tuple[str, str]]:
    """Sentences with a class that their verb decides."""
    return [(f"{WORDS[i % 4]} {ACTIONS[i % 3]} {WORDS[(i // 3) % 4]} .", "1" if i % 3 == 0 else "0") for i in range(n)]


def cola(folder: Path, n: int = 240) -> Path:
    """GLUE's own folder: training and development parts without a header, a test part without labels."""
    folder.mkdir(parents=True)
    for part, size in (("train", n), ("dev", 24)):
        rows = [f"gj04\t{label}\t{'' if label == '1' else '*'}\t{text}" for text, label in sentences(size)]
        (folder / f"{part}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "test.tsv").write_text("index\tsentence\n0\tmbwa analala .\n", encoding="utf-8")
    return folder


def masakha(folder: Path, tags: tuple[str, ...] = ("NOUN", "VERB", "NOUN", "PUNCT")) -> Path:
    """Two columns divided by a space, a blank line after each sentence."""
    folder.mkdir(parents=True)
    for part, size in (("train", 40), ("dev", 16), ("test", 16)):
        blocks = [
            "\n".join(f"{word} {tag}" for word, tag in zip(text.split(), tags, strict=True))
            for text, _ in sentences(size)
        ]
        (folder / f"{part}.txt").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return folder


def senteval(path: Path) -> Path:
    """One file whose first column says tr, va or te."""
    parts = ["tr"] * 60 + ["va"] * 20 + ["te"] * 20
    rows = [f"{part}\t{label}\t{text}" for part, (text, label) in zip(parts, sentences(100), strict=True)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


SHAPES = {
    "cola": (lambda folder: cola(folder / "CoLA"), ["--task", "cola"]),
    "cola file": (
        lambda folder: cola(folder / "CoLA") / "train.tsv",
        ["--task", "sentence", "--text", "3", "--label", "1", "--no-header"],
    ),
    "masakhaPOS": (lambda folder: masakha(folder / "swa"), ["--task", "upos"]),
    "word TAG": (
        lambda folder: masakha(folder / "swa", ("N", "V", "N", "P")),
        ["--task", "pos", "--columns", "word,pos"],
    ),
    "SentEval": (lambda folder: senteval(folder.parent / "sentence_length.txt"), ["--task", "sentence"]),
}
QUICK = {
    "probe": ["--quick", "--no-subsets", "--no-random-twin"],
    "transfer": ["--steps", "layers"],
    "finetune": ["--epochs", "1"],
}


@pytest.mark.parametrize("command", QUICK)
@pytest.mark.parametrize("shape", SHAPES)
def test_files_as_they_are_shipped_run_from_the_shell(shape, command, run, tiny_folder, tmp_path):
    make, options = SHAPES[shape]
    out = tmp_path / "out"
    arguments = [command, tiny_folder(), make(tmp_path / "data"), *options, *QUICK[command], "--no-progress"]
    status, _, err = run(*arguments, "--out", out)
    assert status == 0, err
    assert (out / "result.json").exists()


def test_senteval_parts_are_those_of_the_file(tmp_path):
    corpora = read_task("sentence", senteval(tmp_path / "bigram_shift.txt"))
    assert [len(corpus) for _, corpus in corpora.items()] == [60, 20, 20]
    assert corpora.dev.sentences[0] == sentences(61)[60][0].split()
    assert corpora.notes == ()


def test_named_columns_with_a_part_are_split_too(tmp_path):
    path = tmp_path / "own.csv"
    rows = [f"{text};{label};{part}" for part in ("train", "valid", "test") for text, label in sentences(9)]
    path.write_text("\n".join(["x;y;z", *rows]) + "\n", encoding="utf-8")
    table = {"columns": ["sentence", "label", "part"], "delimiter": ";", "header": True}
    corpora = read_task("sentence", path, **table)
    assert [len(corpus) for _, corpus in corpora.items()] == [9, 9, 9]


def test_a_table_with_a_column_called_part_that_names_no_split_is_one_piece(tmp_path):
    path = tmp_path / "book.tsv"
    rows = [f"{i}\t{label}\t{text}" for i, (text, label) in enumerate(sentences(20))]
    path.write_text("\n".join(["part\tlabel\tsentence", *rows]) + "\n", encoding="utf-8")
    assert [len(corpus) for _, corpus in read_task("sentence", path).items()] == [16, 2, 2]


def test_another_column_is_learnt_under_the_name_of_the_task(tmp_path):
    folder = masakha(tmp_path / "swa", ("N", "V", "N", "P"))
    corpora = read_task("upos", folder, columns=["word", "tag"], label="tag")
    assert labels_of(corpora.train, named_task("upos"))[0] == ["N", "V", "N", "P"]


def test_turkish_and_telugu_files_are_not_taken_for_train_and_test_parts(tmp_path):
    for language in ("tr", "te"):
        (tmp_path / f"{language}.txt").write_text("a b\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="no file of the split 'train'"):
        read_corpus(tmp_path, split="train")


def test_a_folder_without_a_train_part_says_so(run, tiny_folder, tmp_path):
    folder = masakha(tmp_path / "swa")
    (folder / "train.txt").unlink()
    status, _, err = run("probe", tiny_folder(), folder, "--task", "upos", "--out", tmp_path / "out")
    assert status == 1
    assert "has no train part, only dev and test" in err


def test_the_next_command_reads_the_same_data(run, tiny_folder, tmp_path):
    path = cola(tmp_path / "CoLA") / "train.tsv"
    data = ["--text", "3", "--label", "1", "--delimiter", "tab", "--dev", path.with_name("dev.tsv"), "--no-header"]
    options = ["--task", "sentence", *data, "--limit", "60"]
    status, out, err = run("probe", tiny_folder(), path, *options, *QUICK["probe"], "--out", tmp_path / "out")
    assert status == 0, err
    following = next(line for line in out.splitlines() if line.startswith("Next: residuum rank "))
    arguments = shlex.split(following.partition("residuum ")[2])
    assert run(*arguments[:-1], tmp_path / "rank", "--no-progress")[0] == 0
    assert {"--text", "--label", "--delimiter", "--dev", "--no-header", "--limit"} <= set(arguments)


def test_names_of_columns_and_odd_paths_survive_the_shell():
    settings = ProbeSettings("m", "d", "pos", columns=("word", None, "my tag"), delimiter=" ", dev="a dir/dev.txt")
    assert settings.as_options == " --columns 'word,_,my tag' --delimiter space --dev 'a dir/dev.txt'"
    assert ProbeSettings("m", "d", "pos").as_options == ""


def test_the_folder_of_the_official_cola_asks_which_development_part(run, tiny_folder, tmp_path):
    folder = cola(tmp_path / "raw")
    for old, new in (("train", "in_domain_train"), ("dev", "in_domain_dev"), ("test", "out_of_domain_dev")):
        (folder / f"{old}.tsv").rename(folder / f"{new}.tsv")
    command = ["probe", tiny_folder(), folder, "--task", "cola", *QUICK["probe"], "--out", tmp_path / "out"]
    status, _, err = run(*command)
    assert status == 1
    assert "several dev parts: in_domain_dev.tsv, out_of_domain_dev.tsv. Name one with --dev FILE" in err
    assert run(*command, "--dev", folder / "in_domain_dev.tsv")[0] == 0


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--task", "sentence"], "for instance --text sentence, or --text 0 for the first column"),
        (["--task", "sentence", "--text", "0", "--columns", "a,b"], "no column"),
        (["--task", "upos", "--format", "columns"], "for instance --columns word,pos"),
    ],
)
def test_hints_name_options_of_the_command_line(options, hint, run, tiny_folder, tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text("good\tyes\nbad\tno\n", encoding="utf-8")
    status, _, err = run("probe", tiny_folder(), path, *options, "--out", tmp_path / "out")
    assert status == 1
    if hint != "no column":
        assert hint in err
    assert "='" not in err
