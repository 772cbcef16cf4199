"""Files of text (plain, gzip or xz), read line by line and always as UTF-8."""

import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from residuum.corpus.corpus import Corpus, Options, Span, WrittenText, located_spans
from residuum.errors import CorpusError
from residuum.storage.compression import MOST_GROWTH, unpacked_limit

MAX_LINE_BYTES = 10_000_000
MAX_BLOCK_LINES = 250_000
"""Lines of one sentence beyond which a file is not believed: room for 100,000 words and what stands between them."""
SAMPLE_LINES = 200
LONGEST_SHOWN = 300

Line = tuple[int, str]


def numbered_lines(path: Path) -> Iterator[Line]:
    """The lines of a file with their numbers from 1, without line ends and byte order mark."""
    return ((number, text) for number, text, _ in placed_lines(path))


def placed_lines(path: Path, number: int = 0, position: int = 0) -> Iterator[tuple[int, str, int]]:
    """The lines after the first `number`, which end at the byte `position`, each with the byte where it ends."""
    with open_bytes(path) as stream:
        limit = unpacked_limit(path)
        stream.seek(position)
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise CorpusError(
                    f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; expected lines of text."
                )
            text = _decoded(line, path, position)
            position += len(line)
            if position > limit:
                raise too_large(path)
            yield number, text.removesuffix("\n").removesuffix("\r"), position


def first_lines(path: Path) -> list[str]:
    """The first lines of a file, enough to tell what it is."""
    return [line for _, line in islice(numbered_lines(path), SAMPLE_LINES)]


def blocks(path: Path) -> Iterator[list[Line]]:
    """The runs of lines between blank lines."""
    block: list[Line] = []
    for line in numbered_lines(path):
        if line[1] and not line[1].isspace():
            block.append(line)
        elif block:
            yield block
            block = []
        if len(block) > MAX_BLOCK_LINES:
            raise CorpusError(
                f"{path}, line {block[0][0]}: {MAX_BLOCK_LINES:,} lines without a blank one; "
                "expected a blank line after each sentence."
            )
    if block:
        yield block


def comment_values(comments: Iterable[str]) -> dict[str, str]:
    """The values of comments such as `# sent_id = 7`."""
    pairs = (comment.lstrip("#").partition("=") for comment in comments)
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def whole_text(path: Path) -> str:
    """The whole text of a file."""
    with open_bytes(path) as stream:
        limit = unpacked_limit(path)
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise too_large(path)
    return _decoded(data, path, 0)


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked as they are read if they begin as gzip or xz do."""
    try:
        with path.open("rb") as raw:
            magic, stream = raw.peek(6), raw
            if magic.startswith(b"\x1f\x8b"):
                stream = io.BufferedReader(gzip.GzipFile(fileobj=raw))  # type: ignore[arg-type]
            elif magic.startswith(b"\xfd7zXZ\x00"):
                stream = io.BufferedReader(lzma.LZMAFile(raw))  # type: ignore[arg-type]  # noqa: SIM115
            yield stream
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise CorpusError(f"{path} is a damaged or cut-off compressed file ({error}); fetch it again.") from error
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}.") from error


def too_large(path: Path) -> CorpusError:
    """The error for a file that unpacks beyond that."""
    return CorpusError(
        f"{path} unpacks to more than {MOST_GROWTH} times its size; expected compressed text, which never does. "
        "Unpack it yourself if it is meant so."
    )


def malformed(path: object, line: int, found: str, expected: str) -> CorpusError:
    """The error for a line that its format does not allow."""
    return CorpusError(f"{path}, line {line}: found {shortened(found)}; expected {expected}.")


def shortened(text: str) -> str:
    """The beginning and the end of what is too long to be read."""
    half = LONGEST_SHOWN // 2
    return text if len(text) <= LONGEST_SHOWN else f"{text[:half]} … {text[-half:]}"


def _decoded(data: bytes, path: Path, position: int) -> str:
    if b"\0" in data:
        where = position + data.index(b"\0")
        raise CorpusError(f"{path} is not a text file: byte {where} is zero; expected UTF-8 text.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at position {position + error.start} "
            f"({error.reason}); convert it to UTF-8 first, for instance with iconv."
        ) from error
    return text.removeprefix("\ufeff") if position == 0 else text


def read_lines(path: Path, options: Options) -> Corpus:
    """One sentence per line, words by white space; blank lines are left out, and ids are line numbers."""
    sentences: list[list[str]] = []
    ids: list[str] = []
    texts: list[str] = []
    blank = 0
    for number, line in numbered_lines(path):
        if words := line.split():
            sentences.append(words)
            ids.append(str(number))
            if options.as_written:
                texts.append(line)
        else:
            blank += 1
        if len(sentences) == options.limit:
            break
    return Corpus(
        name=path.name,
        sentences=sentences,
        ids=ids,
        skipped={"blank lines": blank} if blank else {},
        written=WrittenText(texts, spaced_spans(sentences, texts)) if options.as_written else None,
    )


def spaced_spans(sentences: list[list[str]], texts: list[str]) -> list[list[Span]]:
    """The spans of words that were split off their text by white space."""
    located = [located_spans(words, text) for words, text in zip(sentences, texts, strict=True)]
    assert None not in located
    return [spans for spans in located if spans is not None]


_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")


def is_hub_name(source: str) -> bool:
    """Whether a text can be the name of a hub dataset: `name` or `owner/name`, with or without `:config`."""
    return _HUB_NAME.fullmatch(source) is not None
