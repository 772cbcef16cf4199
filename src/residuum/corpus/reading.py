"""`read_corpus`: from a path, a hub name or a dataset object to a corpus."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from residuum.corpus.columns import detect_layout, read_columns
from residuum.corpus.conllu import read_conllu
from residuum.corpus.corpus import Column, Corpus, Options, WrittenText
from residuum.corpus.records import Row, Table, corpus_of_table, has_parts, known_text_columns
from residuum.corpus.tables import TABLES
from residuum.corpus.text_files import first_lines, is_hub_name, read_lines, spaced_spans
from residuum.errors import CorpusError, MissingSplitError, SettingError
from residuum.settings import whole_number

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

_READERS: dict[str, Callable[[Path, Options], Corpus]] = {
    "conllu": read_conllu,
    "columns": read_columns,
    "lines": read_lines,
}
FORMATS = ("conllu", "columns", *TABLES, "lines")

_UD_NAME = re.compile(r"([a-z]{2,3})_\w+-ud-")
_SPLIT_NAME = re.compile(r"(sample_)?(train|dev|test|eval|valid|validation)")


def read_corpus(
    source: "str | os.PathLike[str] | Dataset | DatasetDict | Iterable[str | Sequence[str]]",
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
    delimiter: str | None = None,
    header: bool | None = None,
) -> Corpus:
    """Read a file, a folder's file of `split`, a hub dataset (`owner/name:config`), a dataset object or sentences.

    Sentences are texts, whose words are divided by white space, or lists of words.

    The format is one of FORMATS, found from the name and the first lines unless given. `limit` stops reading
    after so many sentences. `spacing="text"` keeps the text as written, where the source has it. Of tables,
    `text`, `pair` and `label` name (or number, from 0) the columns; `columns` names all those of a column
    file, or of a table without header; `regression` makes the labels numbers (it is on for a column of
    floats, or one called `score`); `on_error="skip"` leaves malformed rows out and counts them. `delimiter` divides
    columns, and `header` says whether the first line names them, where the file does not tell. A column `part`
    (train, dev, test; SentEval's tr, va, te) makes one file a corpus of splits.
    """
    limit = None if limit is None else whole_number("limit", limit, at_least=1)
    options = Options(limit, spacing, text, pair, label, columns, regression, on_error, delimiter, header)
    if format is not None and format not in FORMATS:
        raise SettingError(f"format is {format!r}; expected one of {', '.join(FORMATS)}.")
    if is_dataset(source):
        _check_dataset_settings(format, options)
        corpus = read_dataset(source, split, options)
    elif may_be_on_hub(source) and not _exists(Path(source)):
        _check_dataset_settings(format, options)
        corpus = read_hub(source, split, options)
    elif isinstance(source, str | os.PathLike):
        path = _existing(Path(source))
        if split is not None and has_part_column(path, format, options):
            corpus = _read_file(path, format, replace(options, part=split))
        else:
            corpus = _read_file(chosen_file(path, split), format, options)
    elif isinstance(source, Iterable) and not isinstance(source, bytes | Mapping):
        corpus = _read_sentences(source, split, options)
    else:
        raise SettingError(
            f"source is {type(source).__name__}; expected a path, a hub name, a dataset object or a list of sentences."
        )
    if not len(corpus):
        left_out = ", ".join(f"{count} {what}" for what, count in corpus.skipped.items()) or "nothing"
        shown = source if isinstance(source, str | os.PathLike) else corpus.name
        raise CorpusError(f"{shown} holds no sentence (left out: {left_out}); expected at least one.")
    return replace(corpus, name=name or corpus.name, language=language or corpus.language)


def _read_sentences(source: Iterable, split: str | None, options: Options) -> Corpus:
    """Texts, whose words are divided by white space, or lists of words; ids are their numbers from 1."""
    if split is not None:
        raise SettingError(f"split is {split!r}, but a list of sentences has none; leave it out.")
    options.check_for("sentences")
    rows = [(str(number), row) for number, row in enumerate(source, 1)]
    full = [(number, row) for number, row in rows if not (isinstance(row, str) and not row.split())]
    texts = [row for _, row in full[: options.limit] if isinstance(row, str)]
    words = [row.split() if isinstance(row, str) else row for _, row in full[: options.limit]]
    as_written = options.as_written and len(texts) == len(words)
    return Corpus(
        name="sentences",
        sentences=words,
        ids=[number for number, _ in full[: options.limit]],
        skipped={"empty texts": len(rows) - len(full)} if len(full) < len(rows) else {},
        written=WrittenText(texts, spaced_spans(words, texts)) if as_written else None,
    )


def may_be_on_hub(source: object) -> TypeGuard[str]:
    """Whether this can be the name of a hub dataset: no path, and no name of a text file."""
    return (
        isinstance(source, str)
        and is_hub_name(source)
        and not source.startswith(".")
        and not has_known_suffix(Path(source))
    )


def is_dataset(source: object) -> "TypeGuard[Dataset | DatasetDict]":
    """Whether an object is a Hugging Face dataset; if `datasets` was never imported, it cannot be."""
    datasets = sys.modules.get("datasets")
    return datasets is not None and isinstance(source, (datasets.Dataset, datasets.DatasetDict))


def read_hub(name: str, split: str | None, options: Options) -> Corpus:
    """A dataset of the hub, by `owner/name` or `owner/name:config`."""
    import datasets

    path, _, config = name.partition(":")
    try:
        dataset: Any = datasets.load_dataset(path, config or None)
    except Exception as error:  # the library raises many kinds, most of them undocumented
        raise CorpusError(
            f"{name} is not a file or folder here, and no dataset of that name can be loaded from the hub: "
            + f"{type(error).__name__}: {error}".splitlines()[0]
        ) from error
    return read_dataset(dataset, split, options, name)


def read_dataset(source: "Dataset | DatasetDict", split: str | None, options: Options, name: str = "dataset") -> Corpus:
    """A dataset object: columns of text and classes, or lists of words with lists of labels."""
    dataset = cast(Any, source)
    if not isinstance(source, Mapping):
        if split is not None:
            raise CorpusError(f"{name} is a single Dataset, so it has no split {split!r}; leave split out.")
    elif split in source:
        dataset = source[split]
    elif split is None and len(source) == 1:
        dataset = next(iter(source.values()))
    else:
        asked = "several splits" if split is None else f"no split {split!r}"
        raise MissingSplitError(f"{name} has {asked}; choose split= from {', '.join(map(str, source))}.")
    elements = {column: _element(feature) or feature for column, feature in dataset.features.items()}
    classes = {column: getattr(element, "names", None) for column, element in elements.items()}

    def rows(columns: list[str]) -> Iterator[Row]:
        for number, values in enumerate(dataset.select_columns(columns).with_format(None), 1):
            yield Row(f"row {number}", cast(dict[str, object], values))

    table = Table(
        source=name if split is None else f"{name}-{split}",
        columns=dataset.column_names,
        rows=rows,
        lists=frozenset(column for column, feature in dataset.features.items() if _element(feature) is not None),
        floats=frozenset(c for c, f in dataset.features.items() if str(getattr(f, "dtype", "")).startswith("float")),
        class_names={column: names for column, names in classes.items() if names is not None},
    )
    return corpus_of_table(table, options)


def _element(feature: Any) -> Any:
    """The feature of the elements of a list of plain values, or None if it is not one."""
    element = getattr(feature, "feature", None)
    return element if hasattr(element, "dtype") else None


def _check_dataset_settings(format: str | None, options: Options) -> None:
    if format is not None:
        raise SettingError(f"format is {format!r}, but a dataset has none; leave it out.")
    options.check_for("dataset")


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
    format = format or detect_format(path, options)
    options.check_for(format)
    table = TABLES[format](path, options) if format in TABLES else None
    corpus = _READERS[format](path, options) if table is None else corpus_of_table(table, options)
    ud_name, bare, folder = _UD_NAME.match(path.name), bare_name(path), path.absolute().parent.name
    # A name that only tells a split goes after that of its folder.
    name = f"{folder}-{bare}" if folder and _SPLIT_NAME.fullmatch(bare) else bare
    return replace(corpus, name=name, language=ud_name[1] if ud_name else corpus.language)


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
_SPLITS = ({"train", "training"}, {"dev", "development", "valid", "validation", "val"}, {"test"})
_NOT_TEXT = {"readme", "license", "licence", "changelog", "contributing"}


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
    names = [file.name for file in matching or files_of_split(path, None)]
    if not names:
        raise CorpusError(f"The folder {path} holds no file of text; name a folder or file that does.")
    of_split = "" if split is None else f" of the split {split!r}"
    found = "no file" if not matching else f"{len(matching)} files"
    listed = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    raise CorpusError(f"The folder {path} has {found}{of_split}; expected one. Name one of: {listed}.")


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


def has_part_column(path: Path, format: str | None, options: Options) -> bool:
    """Whether a file is a table with a column that says which part each row belongs to."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    format = format or detect_format(path, options)
    return format in TABLES and has_parts(TABLES[format](path, options))


def detect_format(path: Path, options: Options) -> str:
    """The format of a file, by its suffix, or by its first lines where the suffix leaves it open."""
    suffix = Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    if "word" in (options.columns or ()):
        return "columns"
    if options.delimiter not in (None, "\t"):
        return "columns" if options.delimiter == " " else "csv"
    lines = [line for line in first_lines(path) if line.strip()]
    rows = [line.split("\t") for line in lines]
    first = next((row for row in rows if not row[0].startswith("#")), [])
    if len(first) == 10 and re.match(r"1\b", first[0]):
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
