"""Files of records: TSV, CSV, JSON, JSON lines and parquet."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from residuum.corpus.corpus import Options
from residuum.corpus.records import Row, Table, known_text_columns
from residuum.corpus.text_files import malformed, numbered_lines, too_large, whole_text
from residuum.errors import CorpusError, ResiduumError
from residuum.storage.compression import batch_bytes, open_parquet, stated_bytes, unpacked_limit

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

Cells = tuple[int, list[str] | str]


def tsv_table(path: Path, options: Options) -> Table:
    """Tab-separated values without quoting, as GLUE ships them."""
    delimiter = options.delimiter or "\t"
    cells = ((number, line.split(delimiter)) for number, line in numbered_lines(path))
    return _delimited(path, cells, options)


def csv_table(path: Path, options: Options) -> Table:
    """Comma-separated values, quoted where needed."""
    return _delimited(path, _csv_cells(path, options.delimiter or ","), options)


def json_table(path: Path, options: Options) -> Table:
    """A list of records, or an object whose values are records."""
    try:
        content = json.loads(whole_text(path))
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise CorpusError(f"{path} is not JSON: {error}.") from error
    records = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(records, list):
        raise CorpusError(f"{path} holds {_kind(records)}; expected a list of records, or an object of records.")
    rows = (_record_row(f"record {number}", record) for number, record in enumerate(records, 1))
    return _table_of_rows(path, rows)


def jsonl_table(path: Path, options: Options) -> Table:
    """A JSON record a line; its label may stand in a line of `NAME-labels.lst` beside `NAME.jsonl`, as SIQA has it."""
    rows = (line_row(number, line) for number, line in numbered_lines(path) if line.strip())
    beside = path.with_name(f"{path.name.partition('.')[0]}-labels.lst")
    if beside.is_file():
        rows = _with_labels(path, beside, rows)
    return _table_of_rows(path, rows)


def parquet_table(path: Path, options: Options) -> Table:
    """A parquet file; only the columns that are needed are read."""
    from pyarrow import types

    with _opened_parquet(path) as file:
        schema = file.metadata.schema.to_arrow_schema()
        flat = {f.name for f in schema if types.is_list(f.type) or types.is_large_list(f.type)}
        return Table(
            source=str(path),
            columns=schema.names,
            rows=lambda columns: parquet_rows(path, columns),
            lists=frozenset(f.name for f in schema if f.name in flat and not types.is_nested(f.type.value_type)),
            floats=frozenset(f.name for f in schema if types.is_floating(f.type)),
        )


def parquet_rows(path: Path, columns: list[str], start: int = 0) -> Iterator[Row]:
    """Some columns of the rows from `start` on; row groups before it are not read."""
    import pyarrow as arrow

    with _opened_parquet(path) as file:
        schema = file.metadata.schema.to_arrow_schema()
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        group, first = 0, 0
        while group < len(sizes) and first + sizes[group] <= start:
            first, group = first + sizes[group], group + 1
        unpacked, number = 0, first
        for batch in file.iter_batches(batch_size=1000, columns=columns, row_groups=range(group, len(sizes))):
            unpacked += batch_bytes(batch)
            if unpacked > unpacked_limit(path):
                raise too_large(path)
            # Texts of its own in every row: `open_parquet` reads a repeated one once.
            plain = batch.cast(arrow.schema([schema.field(name) for name in batch.schema.names]))
            for record in plain.to_pylist():
                number += 1
                if number > start:
                    yield Row(f"row {number}", record)


TABLES = {"tsv": tsv_table, "csv": csv_table, "json": json_table, "jsonl": jsonl_table, "parquet": parquet_table}
"""The formats that hold records, and what opens a file of each."""


def _delimited(path: Path, cells: Iterator[Cells], options: Options) -> Table:
    """The table of a delimited file, whose columns `columns` names, or its first line if that is a header."""
    first = next(cells, (1, "nothing"))
    if isinstance(first[1], str):
        raise malformed(path, 1, first[1], "a line of cells")
    named = options.columns is not None
    asked = {options.text, options.pair, options.label}
    # A header names the columns: one is known, or one is asked for.
    looks_so = not named and (known_text_columns(first[1]) is not None or any(cell in asked for cell in first[1]))
    has_header = looks_so if options.header is None else options.header
    columns = [str(number) for number in range(len(first[1]))]
    if options.columns is not None:
        columns = [name or str(number) for number, name in enumerate(options.columns)]
    elif has_header:
        columns = first[1]
    elif len(first[1]) == len(SENTEVAL) and first[1][0] in (
        "tr",
        "va",
        "te",
    ):  # as SentEval
        columns, named = list(SENTEVAL), True
    if len(set(columns)) < len(columns):
        raise malformed(path, 1, f"the same name twice in {columns}", "different names (or columns=)")
    data = cells if has_header else chain([first], cells)
    return Table(str(path), columns, lambda _: _rows(data, columns), named=named or has_header)


SENTEVAL: tuple[str, ...] = ("part", "label", "sentence")


def _rows(cells: Iterator[Cells], columns: list[str]) -> Iterator[Row]:
    for number, found in cells:
        place = f"line {number}"
        if isinstance(found, str):
            yield Row(place, {}, fault=f"found {found}; expected comma-separated values")
        elif not any(map(str.strip, found)):
            yield Row(place, dict.fromkeys(columns))
        elif len(found) != len(columns):
            expected = f"{len(columns)}: {', '.join(columns)}"
            yield Row(place, {}, fault=f"found {len(found)} fields; expected {expected}")
        else:
            yield Row(place, dict(zip(columns, found, strict=True)))


def _csv_cells(path: Path, delimiter: str) -> Iterator[Cells]:
    reader = csv.reader((line + "\n" for _, line in numbered_lines(path)), strict=True, delimiter=delimiter)
    while True:
        start = reader.line_num + 1
        try:
            yield start, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield start, f"bad quoting ({error})"


def _table_of_rows(path: Path, rows: Iterator[Row]) -> Table:
    """The table of JSON records, whose columns are those of the first."""
    first = next(rows, None)
    if first is None:
        raise CorpusError(f"{path} holds no record; expected one or more.")
    if first.fault:
        raise CorpusError(f"{path}, {first.place}: {first.fault}.")
    values = first.values
    return Table(
        source=str(path),
        columns=list(values),
        rows=lambda _: chain([first], rows),
        lists=frozenset(
            name
            for name, value in values.items()
            if isinstance(value, list) and not any(isinstance(element, list | dict) for element in value)
        ),
        floats=frozenset(name for name, value in values.items() if isinstance(value, float)),
    )


def line_row(number: int, line: str) -> Row:
    """The record in a line of JSON."""
    place = f"line {number}"
    try:
        return _record_row(place, json.loads(line))
    except (ValueError, RecursionError) as error:
        return Row(place, {}, fault=f"found {line[:60]!r}, which is not JSON ({error})")


def _with_labels(path: Path, beside: Path, rows: Iterator[Row]) -> Iterator[Row]:
    labels = (line.strip() for _, line in numbered_lines(beside) if line.strip())
    for row, label in zip_longest(rows, labels):
        if row is None or label is None:
            short, long = (beside, path) if label is None else (path, beside)
            raise CorpusError(f"{short} ends before {long} does; expected one label for each record.")
        yield Row(row.place, {**row.values, "label": label}, row.fault)


def _record_row(place: str, record: object) -> Row:
    if isinstance(record, dict):
        return Row(place, record)
    return Row(place, {}, fault=f"found {_kind(record)}; expected an object with named values")


@contextmanager
def _opened_parquet(path: Path) -> Iterator["ParquetFile"]:
    """A parquet file of a credible size; what the library finds wrong with it is said in one line."""
    import pyarrow as arrow

    try:
        file = open_parquet(path)
        if stated_bytes(file) > unpacked_limit(path):
            raise too_large(path)
        yield file
    except ResiduumError:
        raise
    except (arrow.ArrowException, OSError, ValueError, TypeError, LookupError) as error:
        # Names that are no text are plain ValueErrors to the library.
        reason = " ".join(str(error).split())[:300]
        raise CorpusError(f"{path} is not a whole parquet file: {reason}") from error


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
