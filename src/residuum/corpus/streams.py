"""Raw text, line by line, however long it is: files, folders of files and hub datasets, never whole in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from residuum.corpus.hub import is_hub_name
from residuum.corpus.text_files import numbered_lines
from residuum.errors import CorpusError
from residuum.storage.files import checksum

TEXT_SUFFIXES = (".txt", ".gz", ".xz")
TEXT_COLUMNS = ("text", "sentence", "content")


def text_lines(source: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a text with their numbers from 0; blank lines are dropped, the others keep no outer white space.

    A folder gives the lines of its .txt, .gz and .xz files in the order of their names; a name such as
    `owner/name:config` streams the training split of a hub dataset.
    """
    for number, line in enumerate(_raw_lines(source)):
        if text := line.strip():
            yield number, text


def text_fingerprint(source: str | Path) -> str | None:
    """A hash of the files of a text; None for a hub dataset, which is streamed and may change."""
    path = Path(source)
    if path.is_dir():
        return " ".join(checksum(file) for file in sorted(path.iterdir()) if file.suffix in TEXT_SUFFIXES)
    return checksum(path) if path.is_file() else None


def check_text(source: str | Path) -> None:
    """Say at once if a text cannot be read or has no line; a hub dataset is asked only when it is read."""
    if not Path(source).exists() and is_hub_name(str(source)):
        return
    if next(text_lines(source), None) is None:
        raise CorpusError(f"{source} holds no line of text; expected at least one.")


def _raw_lines(source: str | Path) -> Iterator[str]:
    path = Path(source)
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix in TEXT_SUFFIXES)
        if not files:
            raise CorpusError(f"{path} holds no file that ends in {', '.join(TEXT_SUFFIXES)}.")
        for file in files:
            yield from (line for _, line in numbered_lines(file))
    elif path.exists():
        yield from (line for _, line in numbered_lines(path))
    elif is_hub_name(str(source)):
        yield from _hub_lines(str(source))
    else:
        raise CorpusError(f"{source} does not exist; expected a text file, a folder of them or a hub dataset's name.")


def _hub_lines(name: str) -> Iterator[str]:
    import datasets

    place, _, config = name.partition(":")
    try:
        stream: Any = datasets.load_dataset(place, config or None, split="train", streaming=True)
        column = next((c for c in TEXT_COLUMNS if c in (stream.column_names or TEXT_COLUMNS)), None)
    except Exception as error:  # the library raises many kinds, most of them undocumented
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CorpusError(f"{name} is no file here, and cannot be streamed from the hub: {reason}") from error
    if column is None:
        raise CorpusError(f"{name} has columns {', '.join(stream.column_names)}; expected {' or '.join(TEXT_COLUMNS)}.")
    for row in stream:
        yield from row[column].splitlines()
