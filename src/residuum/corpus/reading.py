"""`read_corpus`: from a path, a hub name or a dataset object to a corpus."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from residuum.corpus.columns import read_columns
from residuum.corpus.conllu import read_conllu
from residuum.corpus.corpus import Corpus
from residuum.corpus.detection import bare_name, chosen_file, detect_format, has_known_suffix
from residuum.corpus.hub import is_dataset, is_hub_name, read_dataset, read_hub
from residuum.corpus.lines import read_lines
from residuum.corpus.options import Column, Options
from residuum.corpus.tables import read_csv, read_json, read_jsonl, read_parquet, read_tsv
from residuum.errors import CorpusError, SettingError

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

_READERS: dict[str, Callable[[Path, Options], Corpus]] = {
    "conllu": read_conllu,
    "columns": read_columns,
    "tsv": read_tsv,
    "csv": read_csv,
    "json": read_json,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "lines": read_lines,
}
FORMATS = tuple(_READERS)

_UD_NAME = re.compile(r"([a-z]{2,3})_\w+-ud-")
_SPLIT_NAME = re.compile(r"(sample_)?(train|dev|test|eval|valid|validation)")


def read_corpus(
    source: "str | os.PathLike[str] | Dataset | DatasetDict",
    *,
    format: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    name: str | None = None,
    language: str | None = None,
    spacing: str = "words",
    text: Column | None = None,
    pair: Column | None = None,
    label: Column | None = None,
    columns: Sequence[str | None] | None = None,
    regression: bool | None = None,
    on_error: str = "raise",
) -> Corpus:
    """Read a file, a folder's file of `split`, a hub dataset (`owner/name:config`) or a dataset object.

    The format is one of FORMATS, found from the name and the first lines unless given. `limit` stops reading
    after so many sentences. `spacing="text"` keeps the text as written, where the source has it. Of tables,
    `text`, `pair` and `label` name (or number, from 0) the columns; `columns` names all those of a column
    file, or of a table without header; `regression` makes the labels numbers (it is on for a column of
    floats, or one called `score`); `on_error="skip"` leaves malformed rows out and counts them.
    """
    options = Options(limit, spacing, text, pair, label, columns, regression, on_error)
    if format is not None and format not in FORMATS:
        raise SettingError(f"format is {format!r}; expected one of {', '.join(FORMATS)}.")
    if is_dataset(source):
        _check_dataset_settings(format, options)
        corpus = read_dataset(source, split, options)
    elif isinstance(source, str) and _can_be_on_hub(source) and not _exists(Path(source)):
        _check_dataset_settings(format, options)
        corpus = read_hub(source, split, options)
    elif isinstance(source, str | os.PathLike):
        corpus = _read_file(chosen_file(_existing(Path(source)), split), format, options)
    else:
        raise SettingError(f"source is {type(source).__name__}; expected a path, a hub name or a dataset object.")
    if not len(corpus):
        left_out = ", ".join(f"{count} {what}" for what, count in corpus.skipped.items()) or "nothing"
        shown = corpus.name if is_dataset(source) else source
        raise CorpusError(f"{shown} holds no sentence (left out: {left_out}); expected at least one.")
    return replace(corpus, name=name or corpus.name, language=language or corpus.language)


def _check_dataset_settings(format: str | None, options: Options) -> None:
    if format is not None:
        raise SettingError(f"format is {format!r}, but a dataset has none; leave it out.")
    options.check_for("dataset")


def _can_be_on_hub(source: str) -> bool:
    return is_hub_name(source) and not source.startswith(".") and not has_known_suffix(Path(source))


def _existing(path: Path) -> Path:
    if not _exists(path):
        raise CorpusError(f"{path} does not exist; expected a file or folder of text, or a hub dataset's name.")
    if not path.is_dir() and not path.is_file():
        raise CorpusError(f"{path} is neither a file nor a folder; expected a file or folder of text.")
    return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise CorpusError(f"{str(path)[:200]!r} cannot be opened: {error.strerror}.") from error


def _read_file(path: Path, format: str | None, options: Options) -> Corpus:
    if path.stat().st_size == 0:
        raise CorpusError(f"{path} is empty; expected at least one sentence.")
    format = format or detect_format(path)
    options.check_for(format)
    corpus = _READERS[format](path, options)
    ud_name = _UD_NAME.match(path.name)
    return replace(corpus, name=_file_name(path), language=ud_name[1] if ud_name else corpus.language)


def _file_name(path: Path) -> str:
    """The name of a file without suffixes, after that of its folder where it only tells a split."""
    bare = bare_name(path)
    folder = path.absolute().parent.name
    return f"{folder}-{bare}" if folder and _SPLIT_NAME.fullmatch(bare) else bare
