"""Text as a stream of lines: files, folders, one column of a table, or a hub dataset, read from any place on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from residuum.corpus.corpus import Column, Corpus, Options, WrittenText
from residuum.corpus.reading import files_of_split, may_be_on_hub, read_corpus
from residuum.corpus.records import Fault, Row, row_text
from residuum.corpus.tables import TABLES, line_row, parquet_rows
from residuum.corpus.text_files import first_lines, placed_lines, shortened, spaced_spans
from residuum.errors import CorpusError, SettingError
from residuum.storage.files import checksum

TEXT_SUFFIXES = (".txt", ".gz", ".xz", ".jsonl", ".ndjson", ".parquet")
"""The files of a folder that are read as text."""
TEXT_COLUMNS = ("text", "sentence", "content")
"""The column that is read where none is named."""
FORMATS = ("lines", *TABLES)
MARK_EVERY = 1000
_FORMAT_OF = {f".{name}": name for name in TABLES} | {".ndjson": "jsonl"}


@dataclass(frozen=True)
class TextOptions:
    """Which part of a source is its text: the column of a table, its format, and a dataset's split and revision."""

    text: Column | None = None
    format: str | None = None
    split: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise SettingError(f"format is {self.format!r}; expected one of {', '.join(FORMATS)}.")


WHOLE = TextOptions()


class Mark(NamedTuple):
    """A place where reading can start: `line` lines that are not blank and `number` lines at all come before it.

    `at` is the place in file number `file`, as its format counts: bytes, rows, or the state of a hub stream.
    """

    line: int = 0
    number: int = 0
    file: int = 0
    at: Any = None


@dataclass(eq=False)
class TextStream:
    """The lines of a text, from the first or a later one on; blank lines are left out.

    It remembers where every thousandth line begins (`marks`, plain values that JSON can hold), so a run that is
    resumed with the marks of an earlier one goes there at once: to a byte of plain text and JSON lines, to a row group
    of parquet, to the state of a hub stream. Other tables and compressed files are read over.
    """

    source: str
    options: TextOptions = WHOLE
    marks: list[Mark] = field(default_factory=lambda: [Mark()])
    length: int | None = None  # known once the last line was read

    def __post_init__(self) -> None:
        self.marks = [Mark(*mark) for mark in self.marks]

    def lines(self, first: int = 0) -> Iterator[tuple[int, str]]:
        """The lines from the `first` on (counted from 0, without blank ones), each with its number among all lines."""
        line, number, *place = max(mark for mark in self.marks if mark.line <= first)
        for record, after in _records(self.source, self.options, *place):
            for piece in record.split("\n"):
                if text := piece.strip():
                    if line >= first:
                        yield number, text
                    line += 1
                number += 1
            if line >= self.marks[-1].line + MARK_EVERY:
                self.marks.append(Mark(line, number, *after()))
        self.length = line


def text_lines(source: str | Path, options: TextOptions = WHOLE) -> Iterator[tuple[int, str]]:
    """The lines of a text with their numbers from 0; blank lines are dropped, the others keep no outer white space.

    A folder gives the lines of its files in the order of their names (those of a `split`, where one is named); JSON
    lines, parquet and other tables give one column; a name such as `owner/name:config` streams a split of a hub
    dataset, by default `train`.
    """
    return TextStream(str(source), options).lines()


def text_corpus(source: str | Path, options: TextOptions = WHOLE, limit: int | None = None) -> Corpus:
    """A text as a corpus, as it is written: one sentence per line, or per record of a table.

    Treebanks and column files are read by `read_corpus`.
    """
    path = Path(source)
    is_hub = not path.exists() and may_be_on_hub(str(source))
    is_table = options.text is not None or not path.exists()
    is_table = is_table or any(_format(file, options) != "lines" for file in _files(path, options))
    if not is_hub and not is_table:
        return read_corpus(source, format=options.format, split=options.split, spacing="text", limit=limit)
    records = enumerate((record for record, _ in _records(str(source), options)), 1)
    filled = ((number, record) for number, record in records if record.strip())
    chosen = list(islice(filled, limit))
    if not chosen:
        raise CorpusError(f"{source} holds no text; expected at least one record.")
    texts = [text for _, text in chosen]
    sentences = [text.split() for text in texts]
    return Corpus(
        name=str(source).replace("/", "-") if is_hub else path.name.partition(".")[0],
        sentences=sentences,
        ids=[str(number) for number, _ in chosen],
        written=WrittenText(texts, spaced_spans(sentences, texts)),
    )


def text_fingerprint(source: str | Path, options: TextOptions = WHOLE) -> str | None:
    """A hash of the files of a text; of a hub dataset, which is streamed and may change, its revision or None."""
    path = Path(source)
    if path.is_dir():
        return " ".join(map(checksum, _files(path, options)))
    return checksum(path) if path.is_file() else options.revision


def check_text(source: str | Path, options: TextOptions = WHOLE) -> None:
    """Say at once if a text cannot be read or has no line; a hub dataset is asked only when it is read."""
    if not Path(source).exists() and may_be_on_hub(str(source)):
        return
    if next(text_lines(source, options), None) is None:
        raise CorpusError(f"{source} holds no line of text; expected at least one.")


def _files(path: Path, options: TextOptions) -> list[Path]:
    """The files of a text, in the order in which they are read."""
    if options.revision is not None:
        raise SettingError(f"revision is {options.revision!r}, but {path} is here; only hub datasets have revisions.")
    if not path.is_dir():
        if options.split is not None:
            raise SettingError(f"split is {options.split!r}, but {path} is one file; leave it out.")
        return [path]
    files = sorted(path.iterdir()) if options.split is None else files_of_split(path, options.split)
    if found := [file for file in files if file.suffix in TEXT_SUFFIXES]:
        return found
    of_split = "" if options.split is None else f" of the split {options.split!r}"
    raise CorpusError(f"{path} holds no file{of_split} that ends in {', '.join(TEXT_SUFFIXES)}.")


def _format(path: Path, options: TextOptions) -> str:
    """The format of a file: as it is told, or by its suffix under that of its compression."""
    suffix = Path(path.stem).suffix if path.suffix in (".gz", ".xz") else path.suffix
    return options.format or _FORMAT_OF.get(suffix, "lines")


def _records(source: str, options: TextOptions, start: int = 0, at: Any = None) -> Iterator[tuple[str, Any]]:
    """The records from a place on; after each one, a function gives the file and place of the next."""
    path = Path(source)
    if not path.exists():
        if not may_be_on_hub(source):
            raise CorpusError(
                f"{source} does not exist; expected a text file, a folder of them or a hub dataset's name."
            )
        yield from _hub_records(source, options, at)
        return
    for number, file in enumerate(_files(path, options)):
        if number >= start:
            for text, after in _file_records(file, options, at if number == start else None):
                yield text, lambda number=number, after=after: (number, after)


def _file_records(path: Path, options: TextOptions, at: Any) -> Iterator[tuple[str, Any]]:
    """The texts of a file from a place on, each with the place of the next."""
    kind = _format(path, options)
    if kind == "lines":
        if options.text is not None and options.format is None:
            raise SettingError(
                f"text is {options.text!r}, but {path} is read as plain lines; name its format: {', '.join(TABLES)}."
            )
        for number, text, position in placed_lines(path, *(at or (0, 0))):
            yield text, (number, position)
    elif kind == "jsonl":
        first = next((line for line in first_lines(path) if line.strip()), "{}")
        column = chosen_column(list(line_row(1, first).values), options.text, str(path))
        for number, line, position in placed_lines(path, *(at or (0, 0))):
            yield _text_of(path, line_row(number, line), column) if line.strip() else "", (number, position)
    else:
        table = TABLES[kind](path, Options(text=options.text))
        column = chosen_column(table.columns, options.text, str(path))
        start = at or 0
        rows = parquet_rows(path, [column], start) if kind == "parquet" else islice(table.rows([column]), start, None)
        for number, row in enumerate(rows, start + 1):
            yield _text_of(path, row, column), number


def chosen_column(columns: Sequence[str], text: Column | None, where: str) -> str:
    """The column that a name or number asks for; without one, a column whose name says that it holds the text."""
    if isinstance(text, int) and 0 <= text < len(columns):
        return columns[text]
    if text in columns:
        return str(text)
    lower = {column.strip().lower(): column for column in columns}
    if text is None and (known := [lower[name] for name in TEXT_COLUMNS if name in lower]):
        return known[0]
    asked = "none that is known to hold text" if text is None else f"no column {text!r}"
    listed = ", ".join(map(repr, columns)) or "none"
    raise CorpusError(f"{where} has {asked}; its columns are {shortened(listed)}. Name one, such as text='sentence'.")


def _text_of(path: Path, row: Row, column: str) -> str:
    try:
        return row_text(row, column)
    except Fault as fault:
        raise CorpusError(f"{path}, {row.place}: {shortened(str(fault))}.") from None


def _hub_records(name: str, options: TextOptions, at: Any) -> Iterator[tuple[str, Any]]:
    """The rows of a split of a hub dataset, which is not downloaded as a whole."""
    import datasets

    place, _, config = name.partition(":")
    if options.format is not None:
        raise SettingError(f"format is {options.format!r}, but {name} is a dataset, which has none; leave it out.")
    try:
        stream: Any = datasets.load_dataset(
            place, config or None, split=options.split or "train", revision=options.revision, streaming=True
        )
        columns = list(stream.column_names or next(iter(stream), {}))
    except Exception as error:  # the library raises many kinds, most of them undocumented
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CorpusError(f"{name} is no file here, and cannot be streamed from the hub: {reason}") from error
    column = chosen_column(columns, options.text, name)
    if at is not None:
        stream.load_state_dict(at)
    for number, row in enumerate(stream, 1):
        try:
            text = row_text(Row(f"row {number}", row), column)
        except Fault as fault:
            raise CorpusError(f"{name}: {shortened(str(fault))}.") from None
        yield text, lambda: (0, stream.state_dict())
