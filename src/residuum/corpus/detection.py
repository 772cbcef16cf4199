"""Which file of a folder is meant, and which format a file has."""

import re
from pathlib import Path

from residuum.corpus.files import first_lines
from residuum.corpus.layouts import detect_layout
from residuum.corpus.records import known_text_columns
from residuum.errors import CorpusError, SettingError

_BY_SUFFIX = {
    ".conllu": "conllu",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
_COLUMN_SUFFIXES = (".conll", ".bio", ".iob")
_OPEN_SUFFIXES = (".tsv", ".txt", *_COLUMN_SUFFIXES)
_COMPRESSED = (".gz", ".xz")
_NOT_TEXT = {"readme", "license", "licence", "changelog", "contributing"}
_SPLITS = ({"train", "training"}, {"dev", "development", "valid", "validation", "val"}, {"test"})


def bare_name(path: Path) -> str:
    """The name of a file without the suffixes that tell its format and compression."""
    name = path.name
    for suffix in (*_COMPRESSED, *_BY_SUFFIX, *_OPEN_SUFFIXES):
        name = name.removesuffix(suffix)
    return name


def has_known_suffix(path: Path) -> bool:
    """Whether the name of a file ends like that of a text that can be read."""
    return path.suffix in _COMPRESSED or path.suffix in _BY_SUFFIX or path.suffix in _OPEN_SUFFIXES


def chosen_file(path: Path, split: str | None) -> Path:
    """The file itself, or the one file of a folder that is of the split."""
    if not path.is_dir():
        if split is not None:
            raise SettingError(
                f"split is {split!r}, but {path} is one file; a split is chosen from a folder or dataset."
            )
        return path
    matching = files_of_split(path, split)
    if len(matching) == 1:
        return matching[0]
    of_split = "" if split is None else f" of the split {split!r}"
    found = "no file" if not matching else f"{len(matching)} files"
    names = [file.name for file in matching or files_of_split(path, None)]
    listed = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    raise CorpusError(f"The folder {path} has {found}{of_split}; expected one. Name one of: {listed or 'no text'}.")


def files_of_split(folder: Path, split: str | None) -> list[Path]:
    """The texts of a folder that are of the split; where `dev.tsv` and `sample_dev.tsv` are, `dev.tsv` alone."""
    files = sorted(file for file in folder.iterdir() if may_be_text(file))
    if split is None:
        return files
    matching = [file for file in files if is_of_split(file, split)]
    return [file for file in matching if len(_words(bare_name(file))) == len(_words(split))] or matching


def has_split(path: Path, split: str) -> bool:
    """Whether a folder has a file of the split."""
    return path.is_dir() and bool(files_of_split(path, split))


def detect_format(path: Path) -> str:
    """The format of a file, by its suffix, or by its first lines where the suffix leaves it open."""
    suffix = _suffix(path)
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    lines = [line for line in first_lines(path) if line.strip()]
    rows = [line.split("\t") for line in lines]
    if _is_conllu(rows):
        return "conllu"
    if rows and len(rows[0]) > 1 and known_text_columns(rows[0]) is not None:
        return "tsv"
    if suffix in _COLUMN_SUFFIXES or detect_layout(lines) is not None:
        return "columns"
    if suffix == ".tsv" or (rows and len(rows[0]) > 1 and len(set(map(len, rows))) == 1):
        return "tsv"
    return "lines"


def may_be_text(file: Path) -> bool:
    """Whether a file of a folder is a text rather than a note about it."""
    bare = bare_name(file).lower()
    return file.is_file() and has_known_suffix(file) and not file.name.startswith(".") and bare not in _NOT_TEXT


def is_of_split(file: Path, split: str) -> bool:
    """Whether the name of a file tells that it is of the split; of `dev_matched` it must tell both."""
    told = _words(bare_name(file))
    asked = _words(split)
    return all(not next((names for names in _SPLITS if part in names), {part}).isdisjoint(told) for part in asked)


def _words(name: str) -> list[str]:
    return re.split(r"[-_.]", name)


def _is_conllu(rows: list[list[str]]) -> bool:
    first = next((row for row in rows if not row[0].startswith("#")), [])
    return len(first) == 10 and re.match(r"1\b", first[0]) is not None


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
