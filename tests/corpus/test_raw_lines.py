"""Raw text, a sentence a line."""

import pytest

from residuum.corpus import read_corpus
from residuum.errors import CorpusError, SettingError


def test_words_are_split_at_white_space_of_any_kind(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("a  b\tc\n25\u00a0000 Menschen\n私\u3000は\n", encoding="utf-8")
    assert read_corpus(path).sentences == [["a", "b", "c"], ["25", "000", "Menschen"], ["私", "は"]]


def test_blank_lines_are_left_out_and_counted_and_ids_are_line_numbers(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("one\n\n  \ntwo\n\n")
    corpus = read_corpus(path)
    assert corpus.ids == ["1", "4"]
    assert corpus.numbered
    assert corpus.skipped == {"blank lines": 3}


def test_text_as_written_keeps_its_spaces(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("  He said ,  yes \n")
    corpus = read_corpus(path, spacing="text")
    assert corpus.text(0) == "  He said ,  yes "
    assert [corpus.text(0)[start:end] for start, end in corpus.spans(0)] == ["He", "said", ",", "yes"]
    assert read_corpus(path).text(0) == "He said , yes"


def test_limit_does_not_read_what_follows(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"one\n\ntwo\n\xff\n")
    assert read_corpus(path, format="lines", limit=2).sentences == [["one"], ["two"]]
    with pytest.raises(CorpusError, match="is not UTF-8"):
        read_corpus(path, format="lines", limit=3)


def test_a_text_of_blank_lines_holds_no_sentence(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("\n\n")
    with pytest.raises(CorpusError, match=r"t\.txt holds no sentence \(left out: 2 blank lines\)"):
        read_corpus(path)


def test_columns_mean_nothing_for_raw_text(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("one\n")
    with pytest.raises(SettingError, match="label is 'upos', but means nothing for the format 'lines'"):
        read_corpus(path, label="upos")
