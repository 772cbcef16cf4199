"""Hugging Face datasets: objects in memory, and names on the hub."""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from residuum.corpus.corpus import Corpus, Options
from residuum.corpus.records import Row, Table, corpus_of_table
from residuum.errors import CorpusError, MissingSplitError

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


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
