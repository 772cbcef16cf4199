"""Lines in, labelled lines out: what `residuum predict` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from residuum.corpus.text_files import MAX_LINE_BYTES
from residuum.errors import CorpusError
from residuum.shrinking.predicting import BATCH, Predictor
from residuum.shrinking.product import load_product

NO_LABEL = "_"


def label_lines(
    folder: str | Path, lines: Iterable[str], *, batch_size: int = BATCH, device: str = "auto"
) -> Iterator[str]:
    """One answer for each line, `batch_size` lines at a time.

    Words: a line `word<tab>tag` for each, and an empty line after the sentence, as column files have it. Sentences:
    the label or number. An empty line is answered by an empty one.
    """
    predictor = load_product(folder, device=device)
    numbered = enumerate((line.rstrip("\r\n") for line in lines), 1)
    while batch := list(islice(numbered, batch_size)):
        texts = [_text(line, number, predictor) for number, line in batch if line.strip()]
        answers = iter(predictor.predict(texts, batch_size=batch_size))
        for _, line in batch:
            yield _shown(line, next(answers), predictor) if line.strip() else ""


def text_lines(stream: BinaryIO) -> Iterator[str]:
    """The lines of a stream of bytes as they come, without line ends and byte order mark: UTF-8, and none too long."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise CorpusError(f"Line {number} is longer than {MAX_LINE_BYTES:,} bytes; expected one text a line.")
        text = _decoded(line, number)
        yield (text.removeprefix("\ufeff") if number == 1 else text).removesuffix("\n").removesuffix("\r")


def _decoded(line: bytes, number: int) -> str:
    if b"\0" in line:
        raise CorpusError(f"Line {number} is not text: byte {line.index(0) + 1} of it is zero; expected UTF-8 text.")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"Line {number} is not UTF-8: byte 0x{line[error.start]:02x} at position {error.start + 1} of it "
            f"({error.reason}); convert the text to UTF-8 first, for instance with iconv."
        ) from error


def _text(line: str, number: int, predictor: Predictor) -> str | tuple[str, ...]:
    if not predictor.unit.pairs:
        return line
    segments = tuple(line.split("\t"))
    if len(segments) != 2 or not all(segment.strip() for segment in segments):
        raise CorpusError(
            f"Line {number} has {len(segments)} segments; expected two with a tab between: the task is about pairs."
        )
    return segments


def _shown(line: str, answer: Any, predictor: Predictor) -> str:
    if predictor.unit.unit == "sentence":
        return answer if isinstance(answer, str) else f"{answer:.4f}"
    rows = [f"{word}\t{NO_LABEL if tag is None else tag}" for word, tag in zip(line.split(), answer, strict=True)]
    return "\n".join([*rows, ""])
