"""How large packed files become, known before they are unpacked: bombs are given up."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch
    from pyarrow.parquet import ParquetFile

MOST_UNPACKED = 100_000_000
MOST_GROWTH = 500  # text that says anything shrinks 3 to 20 times
LEAST_BUFFER = 64
"""Bytes that a buffer counts for at least: a small file can say thousands of times that it has an empty one."""


def unpacked_limit(path: Path) -> int:
    """The bytes beyond which what a packed file unpacks to is not believed."""
    return max(MOST_UNPACKED, MOST_GROWTH * path.stat().st_size)


def open_parquet(path: Path) -> ParquetFile:
    """A parquet file whose texts are not repeated: one, said once, may stand in thousands of rows."""
    from pyarrow import parquet

    facts = parquet.read_metadata(path)
    texts = [i for i in range(facts.num_columns) if facts.schema.column(i).physical_type == "BYTE_ARRAY"]
    return parquet.ParquetFile(path, metadata=facts, read_dictionary=texts)


def stated_bytes(file: ParquetFile) -> int:
    """What the pages of a parquet file unpack to, as its footer says: a page is unpacked at once, however large.

    Columns are not asked: where a footer is damaged, pyarrow ends the process instead of raising an error.
    """
    facts = file.metadata
    return sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))


def batch_bytes(batch: RecordBatch) -> int:
    """The bytes of a batch once every text that its rows share is repeated where it stands."""
    batch.validate(full=True)
    return sum(map(_filled_bytes, batch.columns))


def _filled_bytes(values: Array) -> int:
    from pyarrow import compute, types

    if types.is_dictionary(values.type):
        lengths = compute.call_function("binary_length", [values.dictionary]).take(values.indices)
        return compute.call_function("sum", [lengths]).as_py() or 0
    if types.is_struct(values.type):
        return sum(map(_filled_bytes, values.flatten()))
    return values.nbytes if not types.is_nested(values.type) else _filled_bytes(values.flatten())


def arrow_bytes(path: Path) -> Iterator[int]:
    """What the buffers of an Arrow file take, one by one, as the heads of its batches tell; nothing is unpacked.

    pyarrow does not show these heads, and unpacks a batch at once. They are flatbuffers, of the tables `Footer`,
    `Message`, `DictionaryBatch` and `RecordBatch` of https://github.com/apache/arrow/tree/main/format.
    """
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END) - 10  # of the footer: its length and a magic word follow
        length = _number(_read(file, end, 4), 0)
        footer = _read(file, end - length, length)
        for vector in (2, 3):  # dictionaries and record batches
            for offset, head, _ in _structs(footer, _target(footer, 0), vector, "<qi4xq"):
                yield max(LEAST_BUFFER, head)
                yield from _buffer_bytes(file, offset, head)


def _buffer_bytes(file: BinaryIO, offset: int, head: int) -> Iterator[int]:
    """The unpacked bytes of the buffers of one batch; before each that is packed their number is written."""
    data = _read(file, offset, head)
    data = data[8 if data.startswith(b"\xff\xff\xff\xff") else 4 :]
    message = _target(data, 0)
    batch = _target(data, _field(data, message, 2))
    if data[_field(data, message, 1)] == 2:  # a dictionary's batch lies in it
        batch = _target(data, _field(data, batch, 1))
    packed = _field(data, batch, 3) or b"ARROW:experimental_compression" in data
    for place, length in _structs(data, batch, 2, "<qq"):
        unpacked = _number(_read(file, offset + head + place, 8), 0, "<q") if packed and length >= 8 else 0
        yield max(LEAST_BUFFER, length, unpacked)


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(max(0, size))


def _number(data: bytes, place: int, kind: str = "<i") -> int:
    return struct.unpack_from(kind, data, place)[0]


def _target(data: bytes, place: int) -> int:
    """Where something lies that a flatbuffer refers to."""
    return place + _number(data, place, "<I")


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table lies; 0 if it has none."""
    fields, entry = table - _number(data, table), 4 + 2 * number
    offset = _number(data, fields + entry, "<H") if entry < _number(data, fields, "<H") else 0
    return table + offset if offset else 0


def _structs(data: bytes, table: int, number: int, kind: str) -> Iterator[tuple[Any, ...]]:
    """The structs of a vector that is a field of a table."""
    if place := _field(data, table, number):
        start = _target(data, place)
        for i in range(_number(data, start, "<I")):
            yield struct.unpack_from(kind, data, start + 4 + i * struct.calcsize(kind))
