"""From a path to a format: what is recognised, and what is refused before anything is read."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import residuum.corpus
from residuum.corpus import FORMATS, read_corpus
from residuum.errors import CorpusError, SettingError

WORD = "1\tw\t_\tX\t_\t_\t0\troot\t_\t_\n\n"


def file(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def test_importing_the_corpus_room_loads_nothing_heavy():
    heavy = {"torch", "transformers", "datasets", "pandas", "pyarrow", "numpy"}
    program = f"import sys, residuum.corpus; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_public_names_are_these():
    types = ["FORMATS", "Corpus", "WrittenText"]
    functions = ["candidate_pairs", "join_corpora", "read_corpus", "read_parallel", "split_indices"]
    assert residuum.corpus.__all__ == types + functions


def test_a_format_can_be_given_against_the_name(tmp_path):
    path = file(tmp_path, "t.conllu", "two words\n")
    assert read_corpus(path, format="lines").sentences == [["two", "words"]]


def test_an_unknown_format_is_answered_with_the_known_ones(tmp_path):
    path = file(tmp_path, "t.txt", "a\n")
    with pytest.raises(SettingError, match="format is 'xml'; expected one of conllu, columns, tsv, csv, json, jsonl"):
        read_corpus(path, format="xml")
    assert len(FORMATS) == 8


def test_text_in_tab_separated_columns_is_not_taken_for_raw_lines(tmp_path):
    path = file(tmp_path, "test.txt", "eng\ttur\tA b\tC d\neng\ttur\tE\tF\n")
    with pytest.raises(CorpusError, match="first line is not a header"):
        read_corpus(path)
    assert read_corpus(path, text=2, pair=3).pairs == [["C", "d"], ["F"]]
    assert len(read_corpus(path, format="lines").sentences[0]) == 6


def test_a_table_with_a_known_header_is_not_taken_for_raw_lines_for_a_stray_field(tmp_path):
    path = file(tmp_path, "msr.txt", "text\tlabel\na\tx\nb\ty\tz\n")
    with pytest.raises(CorpusError, match="line 3: found 3 fields; expected 2"):
        read_corpus(path)


def test_a_line_with_a_tab_does_not_make_a_table_of_raw_text(tmp_path):
    path = file(tmp_path, "t.txt", "a plain line\none\ttab\n")
    assert len(read_corpus(path)) == 2


@pytest.mark.parametrize("source", ["missing.conllu", "./missing", "a/b/c", "/no/such/file"])
def test_a_missing_file_is_reported(source):
    with pytest.raises(CorpusError, match="does not exist; expected a file or folder of text, or a hub"):
        read_corpus(source)
    with pytest.raises(CorpusError, match="does not exist"):
        read_corpus(Path(source))


def test_a_text_in_place_of_a_path_is_reported():
    with pytest.raises(CorpusError, match="cannot be opened: File name too long"):
        read_corpus("This is a sentence. " * 500)


def test_what_is_not_a_source_is_reported():
    for source in (3, b"a b", {"a": "b"}):
        with pytest.raises(SettingError, match=f"source is {type(source).__name__}; expected a path, a hub name"):
            read_corpus(source)  # type: ignore[arg-type]


def test_sentences_in_memory_are_read_as_a_file_of_them_is(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("the old  woman\n\na dog\n")
    texts = ["the old  woman", "", "a dog"]
    expected = read_corpus(file)
    for source in (texts, iter(texts), np.array(texts), [text.split() for text in texts if text]):
        corpus = read_corpus(source)
        assert corpus.sentences == expected.sentences
        assert corpus.text_fingerprint == expected.text_fingerprint
    assert read_corpus(texts).ids == expected.ids
    assert read_corpus(texts).skipped == {"empty texts": 1}
    assert read_corpus(texts, limit=1).sentences == [["the", "old", "woman"]]
    assert read_corpus(texts, spacing="text").text_fingerprint == read_corpus(file, spacing="text").text_fingerprint


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ([], "holds no sentence"),
        ([["a"], None], "number 2: found None; expected a list of words"),
        (["a", float("nan")], "number 2: found nan"),
        ([b"a b"], "number 1: found b'a b'"),
        (["a", "\ud800"], "number 2: found half a surrogate pair"),
    ],
)
def test_what_is_no_sentence_is_named_by_its_place(source, error):
    with pytest.raises(CorpusError, match=error):
        read_corpus(source)


def test_a_list_of_sentences_has_no_split_and_no_columns():
    with pytest.raises(SettingError, match="split is 'test', but a list of sentences has none"):
        read_corpus(["a"], split="test")
    with pytest.raises(SettingError, match="label"):
        read_corpus(["a"], label=1)


def test_a_device_is_not_read():
    with pytest.raises(CorpusError, match="/dev/null is neither a file nor a folder"):
        read_corpus("/dev/null")


def test_an_empty_file_is_reported(tmp_path):
    with pytest.raises(CorpusError, match=r"t\.conllu is empty; expected at least one sentence"):
        read_corpus(file(tmp_path, "t.conllu", ""))


def test_a_treebank_of_comments_holds_no_sentence(tmp_path):
    with pytest.raises(CorpusError, match=r"t\.conllu holds no sentence \(left out: nothing\)"):
        read_corpus(file(tmp_path, "t.conllu", "# only\n\n# comments\n"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"limit": 0}, "limit is 0; expected a whole number of at least 1"),
        ({"limit": 2.5}, r"limit is 2\.5"),
        ({"spacing": "none"}, "spacing is 'none'; expected 'words' or 'text'"),
        ({"on_error": "warn"}, "on_error is 'warn'; expected 'raise' or 'skip'"),
        ({"split": "train"}, r"split is 'train', but .*t\.conllu is one file"),
        ({"regression": True}, "regression is True, but means nothing for the format 'conllu'"),
        ({"on_error": "skip"}, "on_error is 'skip', but means nothing"),
        ({"columns": ["word"]}, "columns is .*, but means nothing"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(tmp_path, setting, message):
    with pytest.raises(SettingError, match=message):
        read_corpus(file(tmp_path, "t.conllu", WORD), **setting)


def test_a_folder_is_read_by_its_split(tmp_path):
    folder = tmp_path / "UD_Tiny-X"
    for split, count in {"train": 3, "dev": 2, "test": 1}.items():
        file(folder, f"xx_tiny-ud-{split}.conllu", WORD * count)
    file(folder, "LICENSE.txt", "Free.\n")
    file(folder, "README.md", "Tiny.\n")
    assert len(read_corpus(folder, split="train")) == 3
    assert len(read_corpus(folder, split="validation")) == 2
    assert read_corpus(folder, split="test").language == "xx"
    with pytest.raises(CorpusError, match=r"has 3 files; expected one\. Name one of: xx_tiny-ud-dev\.conllu, xx"):
        read_corpus(folder)
    with pytest.raises(CorpusError, match=r"has no file of the split 'extra'; expected one\. Name one of: xx_tiny"):
        read_corpus(folder, split="extra")


def test_a_folder_with_one_text_needs_no_split(tmp_path):
    folder = tmp_path / "UD_Tiny-PUD"
    file(folder, "xx_pud-ud-test.conllu", WORD)
    file(folder, "LICENSE.txt", "Free.\n")
    assert len(read_corpus(folder)) == 1


def test_a_folder_with_two_files_of_a_split_is_not_guessed(tmp_path):
    file(tmp_path, "sample_train.tsv", "text\na\n")
    file(tmp_path, "msr_paraphrase_train.txt", "a\n")
    with pytest.raises(
        CorpusError, match=r"has 2 files of the split 'train'; .* msr_paraphrase_train\.txt, sample_train\.tsv"
    ):
        read_corpus(tmp_path, split="train")
    file(tmp_path, "train.tsv", "text\nb\n")
    file(tmp_path, "train.txt", "c\n")
    with pytest.raises(CorpusError, match=r"has 2 files of the split 'train'; .* train\.tsv, train\.txt"):
        read_corpus(tmp_path, split="train")


def test_the_file_that_is_called_by_the_split_alone_is_the_split(tmp_path):
    file(tmp_path, "dev.tsv", "text\na\n")
    file(tmp_path, "sample_dev.tsv", "text\nb\n")
    assert read_corpus(tmp_path, split="validation").sentences == [["a"]]
    assert read_corpus(tmp_path, split="sample_dev").sentences == [["b"]]


def test_a_folder_without_text_is_reported(tmp_path):
    with pytest.raises(CorpusError, match=r"holds no file of text; name a folder or file that does\."):
        read_corpus(tmp_path)


def test_a_long_list_of_files_is_cut_short(tmp_path):
    for number in range(25):
        file(tmp_path, f"{number:02}.txt", "a\n")
    with pytest.raises(CorpusError, match=r"19\.txt and 5 more\.$"):
        read_corpus(tmp_path)


def test_a_corpus_is_named_after_its_file_and_if_need_be_its_folder(tmp_path):
    assert read_corpus(file(tmp_path / "SST-2", "train.tsv", "text\na\n")).name == "SST-2-train"
    assert read_corpus(file(tmp_path / "SST-2", "extra.tsv", "text\na\n")).name == "extra"
    path = file(tmp_path / "SST-2", "dev.tsv", "text\na\n")
    assert read_corpus(path, name="mine", language="en").name == "mine"
    assert read_corpus(path, language="en").language == "en"
    assert read_corpus(str(path)).fingerprint == read_corpus(path).fingerprint
