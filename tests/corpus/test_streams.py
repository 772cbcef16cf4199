"""Text by line or column, from the first line or any later one on."""

import gzip
import json
from itertools import islice

import pyarrow as arrow
import pytest
from pyarrow import parquet

from residuum.corpus import text_files
from residuum.corpus.streams import Mark, TextOptions, TextStream, check_text, text_corpus, text_fingerprint, text_lines
from residuum.errors import CorpusError, SettingError

datasets = pytest.importorskip("datasets")

RECORDS = [{"id": i, "text": f"line {i}" if i % 7 else "", "body": f"first {i}\nsecond {i}"} for i in range(5000)]
LINES = [(i, f"line {i}") for i in range(5000) if i % 7]


@pytest.fixture
def sources(tmp_path):
    """The same text in every format that can be read."""
    plain, packed, lines = tmp_path / "t.txt", tmp_path / "p.txt.gz", tmp_path / "t.jsonl"
    plain.write_text("".join(f"{r['text']}\n" for r in RECORDS))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    lines.write_text("".join(json.dumps(r) + "\n" for r in RECORDS))
    (tmp_path / "t.json").write_text(json.dumps(RECORDS))
    (tmp_path / "t.csv").write_text("id,text\n" + "".join(f'{r["id"]},"{r["text"]}"\n' for r in RECORDS))
    (tmp_path / "t.tsv").write_text("id\ttext\n" + "".join(f"{r['id']}\t{r['text'] or ' '}\n" for r in RECORDS))
    parquet.write_table(arrow.Table.from_pylist(RECORDS), tmp_path / "t.parquet", row_group_size=700)
    return tmp_path


FORMATS = ("t.txt", "p.txt.gz", "t.jsonl", "t.json", "t.csv", "t.tsv", "t.parquet")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_lines(sources, name):
    assert list(text_lines(sources / name)) == LINES


@pytest.mark.parametrize("name", FORMATS)
def test_a_later_line_is_what_reading_from_the_start_gives(sources, name):
    stream = TextStream(str(sources / name))
    assert list(stream.lines()) == LINES
    assert stream.length == len(LINES)
    again = TextStream(str(sources / name), marks=json.loads(json.dumps(stream.marks)))  # as a checkpoint keeps them
    for first in (0, 1, 999, 1000, 1001, 3456, len(LINES) - 1, len(LINES)):
        assert list(islice(again.lines(first), 5)) == LINES[first : first + 5]


def test_a_resumed_stream_reads_nothing_before_its_mark(sources, monkeypatch):
    for name in ("t.txt", "t.jsonl"):
        stream = TextStream(str(sources / name))
        list(stream.lines())
        assert len(stream.marks) == 5
        read = []
        real = text_files._decoded
        monkeypatch.setattr(text_files, "_decoded", lambda *given, real=real, read=read: read.append(1) or real(*given))
        assert list(TextStream(str(sources / name), marks=stream.marks).lines(4200)) == LINES[4200:]
        monkeypatch.undo()
        assert len(read) <= 200 + 5000 - stream.marks[4].number  # the first lines of JSON name the columns


def test_a_resumed_parquet_stream_skips_row_groups(sources, monkeypatch):
    path = sources / "t.parquet"
    stream = TextStream(str(path))
    list(stream.lines())
    asked = []
    real = parquet.ParquetFile.iter_batches
    monkeypatch.setattr(
        parquet.ParquetFile, "iter_batches", lambda *a, **k: asked.append(list(k["row_groups"])) or real(*a, **k)
    )
    assert list(TextStream(str(path), marks=stream.marks).lines(4200)) == LINES[4200:]
    assert asked == [list(range(stream.marks[4].at // 700, 8))]


def test_a_resumed_hub_stream_starts_where_it_was(sources, monkeypatch):
    load = datasets.load_dataset

    def local(name, config, *, split, revision, streaming):
        assert (name, config, split, revision, streaming) == ("owner/name", "tr", "train", "v2", True)
        return load("parquet", data_files=str(sources / "t.parquet"), split="train", streaming=True)

    monkeypatch.setattr(datasets, "load_dataset", local)
    options = TextOptions(revision="v2")
    stream = TextStream("owner/name:tr", options)
    assert list(stream.lines()) == LINES
    marks = json.loads(json.dumps(stream.marks))
    assert list(TextStream("owner/name:tr", options, marks=marks).lines(4200)) == LINES[4200:]
    late = [*marks[:4], [*marks[4][:3], marks[3][3]]]  # proves that the state decides: another one, other lines
    assert list(TextStream("owner/name:tr", options, marks=late).lines(4200)) != LINES[4200:]
    assert text_fingerprint("owner/name:tr", options) == "v2"


def test_a_record_of_several_lines_gives_them_one_by_one(sources):
    options = TextOptions(text="body")
    assert list(islice(text_lines(sources / "t.jsonl", options), 3)) == [
        (0, "first 0"),
        (1, "second 0"),
        (2, "first 1"),
    ]
    assert text_corpus(sources / "t.jsonl", options, limit=2).text(1) == "first 1\nsecond 1"


def test_columns_are_named_or_numbered(sources):
    assert next(text_lines(sources / "t.parquet", TextOptions(text=2))) == (0, "first 0")
    with pytest.raises(CorpusError, match=r"has no column 'words'; its columns are 'id', 'text', 'body'"):
        next(text_lines(sources / "t.parquet", TextOptions(text="words")))
    (sources / "u.jsonl").write_text('{"de": "Haus"}\n')
    with pytest.raises(CorpusError, match=r"has none that is known to hold text; its columns are 'de'. Name one"):
        check_text(sources / "u.jsonl")
    check_text(sources / "u.jsonl", TextOptions(text="de"))


def test_json_lines_are_never_read_as_plain_text(sources):
    (sources / "bad.jsonl").write_text('{"text": "a"}\nnot json\n')
    with pytest.raises(CorpusError, match=r"bad.jsonl, line 2: found 'not json', which is not JSON"):
        list(text_lines(sources / "bad.jsonl"))
    (sources / "bad.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
    with pytest.raises(CorpusError, match=r"bad.jsonl, line 2: found 3 for 'text'; expected text"):
        list(text_lines(sources / "bad.jsonl"))


def test_options_that_mean_nothing_are_refused(sources):
    for options, problem in (
        (TextOptions(revision="main"), "only hub datasets have revisions"),
        (TextOptions(split="train"), "is one file"),
        (TextOptions(text="body"), "is read as plain lines"),
    ):
        with pytest.raises(SettingError, match=problem):
            next(text_lines(sources / "t.txt", options))
    with pytest.raises(SettingError, match="format is 'xml'; expected one of lines, tsv"):
        TextOptions(format="xml")


def test_a_folder_gives_its_files_in_order_and_those_of_a_split(tmp_path):
    for name in ("train-1", "train-0", "test-0"):
        parquet.write_table(arrow.table({"text": [name]}), tmp_path / f"{name}.parquet")
    assert [text for _, text in text_lines(tmp_path)] == ["test-0", "train-0", "train-1"]
    assert [text for _, text in text_lines(tmp_path, TextOptions(split="train"))] == ["train-0", "train-1"]
    stream = TextStream(str(tmp_path), marks=[Mark(), Mark(1, 1, 1, 0)])
    assert list(stream.lines(1)) == [(1, "train-0"), (2, "train-1")]
