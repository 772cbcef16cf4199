"""Cross-lingual tasks by name on local files: which file is which part in which language, and how it is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from residuum.adaptation.corpora import TransferCorpora, complete_target
from residuum.corpus import Corpus, read_corpus
from residuum.corpus.reading import bare_name, is_of_split, may_be_text
from residuum.corpus.records import known_text_columns
from residuum.corpus.tasks import Task, check_labels, named_task
from residuum.corpus.text_files import first_lines, whole_text
from residuum.errors import CorpusError, SettingError

_NAMED = (Task("xnli", unit="sentence"), Task("wikiann", "ner", metric="span_f1"), Task("xcopa", unit="sentence"))
CROSS_LINGUAL = {task.name: task for task in _NAMED}
"""The tasks of the thesis; every other task that is known by name can be carried over too."""

_ALIASES = {"panx": "wikiann", "siqa": "xcopa"}
_OTHER_NAMES = {"contradictory": "contradiction"}  # as the machine-translated XNLI spells it
_LABELS = "test_labels"  # XNLI's, in a file of their own, the same for every language

Place = str | Path | None


def transfer_task(name: str | Task) -> Task:
    """The task of that name: xnli, wikiann (or panx), xcopa (or siqa), or any other that `named_task` knows."""
    if isinstance(name, Task):
        return name
    return CROSS_LINGUAL.get(_ALIASES.get(name.lower(), name.lower())) or named_task(name)


def read_transfer(
    task: str | Task,
    data: Place,
    languages: Sequence[str],
    *,
    source_language: str = "en",
    train: Place = None,
    dev: Place = None,
    target_train: Place = None,
    target_dev: Place = None,
    target_test: Place = None,
    limit: int | None = None,
    seed: int = 0,
) -> TransferCorpora:
    """Read a task for a source language and target languages from a folder, or from files of their own.

    In `data` a part is the file whose name tells its split and its language (`dev-tr.tsv`, `test.sw.jsonl`), there or
    in a folder of the language. `train` and `dev` are files, or `train` a folder of both, of the source language, for
    which another corpus may serve (SIQA for XCOPA); the `target_` files are those of the only target language. What is
    absent is cut by the seed, what recurs is removed. `limit` applies to each part.
    """
    if (target_train or target_dev or target_test) and len(languages) != 1:
        raise SettingError(f"Files of a target language are given for {', '.join(languages)}; expected one language.")
    if data is not None and not Path(data).is_dir():
        raise CorpusError(f"{data} is no folder; expected one with files such as dev-tr.tsv, or name the files.")

    def read(given: Place, split: str, language: str) -> Corpus | None:
        place = data if given is None else given
        return _optional(transfer_task(task), None if place is None else Path(place), split, language, limit)

    targets, notes = {}, []
    for language in languages:
        given = {"dev": target_dev, "test": target_test, "train": target_train}
        parts = [read(path, split, language) for split, path in given.items()]
        targets[language], cut = complete_target(*parts, language=language, seed=seed)
        notes += cut
    folder = train if train is not None and Path(train).is_dir() else None
    source = read(train, "train", source_language), read(dev or folder, "dev", source_language)
    own_train, own_dev, cut = _complete_source(*source, language=source_language, seed=seed)
    return TransferCorpora(own_train, own_dev, targets, (*notes, *cut)).without_leaks()


def read_part(task: str | Task, path: str | Path, *, limit: int | None = None) -> Corpus:
    """Read one part of a task from its file."""
    task, path = transfer_task(task), Path(path)
    corpus = _read_pairs(path) if task.name == "xnli" else read_corpus(path, regression=task.regression or None)
    check_labels(task, corpus)
    return corpus if limit is None else corpus.limit(limit)


def _optional(task: Task, place: Path | None, split: str, language: str, limit: int | None) -> Corpus | None:
    """A part from a file, or from a folder that has one of it; None if it is not there."""
    path = _file_of(place, split, language) if place is not None and place.is_dir() else place
    return None if path is None else read_part(task, path, limit=limit)


def _read_pairs(path: Path) -> Corpus:
    """XNLI: premise, hypothesis and label, often without a header; labels of the test part stand beside it."""
    text, pair, label = (*_columns_without_header(path), None, None, None)[:3]
    corpus = read_corpus(path, text=text, pair=pair, label=label)
    beside = next(path.parent.glob(f"{_LABELS}.*"), None)
    if not corpus.sentence_labels and beside is not None:
        corpus = replace(corpus, sentence_labels={"label": [*whole_text(beside).split()]})
    labels = {
        name: [_OTHER_NAMES.get(str(label), label) for label in values]
        for name, values in corpus.sentence_labels.items()
    }
    return replace(corpus, sentence_labels=labels)


def _columns_without_header(path: Path) -> Sequence[int]:
    cells = next(iter(first_lines(path)), "").split("\t") if path.suffix == ".tsv" else []
    if not cells or known_text_columns(cells) is not None:
        return ()
    return range(min(len(cells), 3))


def _file_of(folder: Path, split: str, language: str) -> Path | None:
    """The file of a split and a language: both in its name, or the split alone in a folder of the language."""
    named = [file for file in _texts(folder) if is_of_split(file, split)]
    found = [file for file in named if language in _words(file)]
    found += [
        file
        for place in (folder / language, folder / "data" / language)
        for file in _texts(place)
        if is_of_split(file, split)
    ]
    # A folder of one language, such as SIQA's, does not name it.
    found = found or [file for file in named if not any(_is_code(word, split) for word in _words(file))]
    found.sort(key=lambda file: (len(_words(file)), file.name))
    if len(found) > 1 and len(_words(found[0])) == len(_words(found[1])):
        names = ", ".join(file.name for file in found[:4])
        raise CorpusError(f"{folder} has several files of the {language} {split} part: {names}; name one of them.")
    return found[0] if found else None


def _texts(folder: Path) -> list[Path]:
    files = folder.iterdir() if folder.is_dir() else ()
    return [file for file in files if may_be_text(file) and not file.name.startswith(_LABELS)]


def _words(file: Path) -> list[str]:
    return re.split(r"[-_.]", bare_name(file))


def _is_code(word: str, split: str) -> bool:
    """Whether a word of a file's name may be that of a language."""
    return re.fullmatch("[a-z]{2,3}", word) is not None and not is_of_split(Path(word), split)


def _complete_source(
    train: Corpus | None, dev: Corpus | None, *, language: str, seed: int
) -> tuple[Corpus, Corpus, list[str]]:
    if train is None:
        raise CorpusError(
            f"There is no training part in {language}; expected a file such as train-{language}.tsv in the folder, or "
            "name one (train)."
        )
    if dev is not None:
        return train, dev, []
    train, dev = train.split((0.9, 0.1), seed)
    return train, dev, [f"dev is a tenth of {train.name}, cut by seed {seed}"]
