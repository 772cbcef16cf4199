"""Files as bytes: compression, encoding, line ends, and what is not text at all."""

import gzip
import lzma
from pathlib import Path

import pytest

from residuum.corpus import read_corpus
from residuum.corpus import text_files as files
from residuum.errors import CorpusError

TEXT = "Her iki zanlı da soykırımla suçlandı.\n「米国」で\nنہیں ہے\n"


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz", "text.txt.xz"])
def test_packed_and_plain_text_read_alike_whatever_the_suffix(tmp_path, pack, name):
    corpus = read_corpus(written(tmp_path, name, pack(TEXT.encode())))
    assert corpus.sentences == [line.split() for line in TEXT.splitlines()]
    assert corpus.name == "text"


@pytest.mark.parametrize("content", [TEXT, "\ufeff" + TEXT, TEXT.replace("\n", "\r\n"), TEXT.rstrip("\n")])
def test_byte_order_mark_and_line_ends_do_not_reach_the_words(tmp_path, content):
    corpus = read_corpus(written(tmp_path, "t.txt", content.encode()))
    assert corpus.sentences == [line.split() for line in TEXT.splitlines()]


def test_only_line_feeds_end_a_line(tmp_path):
    content = "one\u2028two\x0bthree\x85four\n"
    corpus = read_corpus(written(tmp_path, "t.txt", content.encode()), spacing="text")
    assert len(corpus) == 1
    assert corpus.text(0) == content.rstrip("\n")


def test_another_encoding_is_reported_with_its_byte(tmp_path):
    path = written(tmp_path, "latin.txt", b"good\n" + "caf\u00e9".encode("latin-1") + b" noir\n")
    with pytest.raises(CorpusError, match=r"latin\.txt is not UTF-8: byte 0xe9 at position 8 .*iconv"):
        read_corpus(path)


def test_utf_16_is_reported(tmp_path):
    with pytest.raises(CorpusError, match=r"t\.txt is not a text file: byte 3 is zero"):
        read_corpus(written(tmp_path, "t.txt", "word".encode("utf-16")))


def test_a_binary_file_is_reported_with_its_byte(tmp_path):
    path = written(tmp_path, "weights.bin", b"ab\ncd\x00\x01")
    with pytest.raises(CorpusError, match=r"weights\.bin is not a text file: byte 5 is zero"):
        read_corpus(path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_cut_off_compressed_file_is_reported(tmp_path, pack):
    packed = pack(bytes(range(32, 127)) * 999)
    with pytest.raises(CorpusError, match=r"t\.gz is a damaged or cut-off compressed file"):
        read_corpus(written(tmp_path, "t.gz", packed[: len(packed) // 2]))


def test_a_damaged_compressed_file_is_reported(tmp_path):
    packed = bytearray(gzip.compress(TEXT.encode() * 99))
    packed[20:40] = bytes(20)
    with pytest.raises(CorpusError, match="damaged or cut-off"):
        read_corpus(written(tmp_path, "t.txt.gz", bytes(packed)))


def test_an_endless_line_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    path = written(tmp_path, "t.txt", b"fine\n" + b"x" * 1001 + b"\n")
    with pytest.raises(CorpusError, match=r"t\.txt, line 2: longer than 1,000 bytes"):
        read_corpus(path)
    assert len(read_corpus(written(tmp_path, "ok.txt", b"x" * 999 + b"\n"))) == 1


def test_a_file_without_blank_lines_is_not_taken_for_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_BLOCK_LINES", 10)
    path = written(tmp_path, "t.conll", b"word O\n" * 11)
    with pytest.raises(CorpusError, match=r"t\.conll, line 1: 10 lines without a blank one"):
        read_corpus(path)


def test_a_file_that_may_not_be_read_is_reported(tmp_path, monkeypatch):
    path = written(tmp_path, "t.txt", b"x\n")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CorpusError, match=r"t\.txt cannot be read: Permission denied"):
        read_corpus(path)
