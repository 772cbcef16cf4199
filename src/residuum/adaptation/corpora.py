"""Cross-lingual tasks on local files: training data in a source language, evaluation data in target languages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from residuum.corpus import Corpus, read_corpus
from residuum.corpus.reading import bare_name, is_of_split, may_be_text
from residuum.corpus.records import known_text_columns
from residuum.corpus.tasks import Task, check_labels, named_task
from residuum.corpus.text_files import first_lines, whole_text
from residuum.errors import CorpusError, SettingError
from residuum.settings import plain_path

_NAMED = (Task("xnli", unit="sentence"), Task("wikiann", "ner", metric="span_f1"), Task("xcopa", unit="sentence"))
CROSS_LINGUAL = {task.name: task for task in _NAMED}
"""The tasks of the thesis; every other named task can be transferred too."""

_ALIASES = {"panx": "wikiann", "siqa": "xcopa"}
_OTHER_NAMES = {"contradictory": "contradiction"}  # as the machine-translated XNLI spells it
_LABELS = "test_labels"  # XNLI's, in a separate file, the same for every language

Place = str | Path | None


@dataclass(frozen=True, eq=False)
class TargetParts:
    """The evaluation data of a target language, and the pool of few-shot examples."""

    dev: Corpus
    test: Corpus
    pool: Corpus
    pool_is_dev: bool = False

    @property
    def scored(self) -> dict[str, Corpus]:
        """The parts that are scored, by name."""
        return {"dev": self.dev, "test": self.test}


@dataclass(frozen=True, eq=False)
class TransferCorpora:
    """A task in a source language and in target languages, and notes on what was split or left out."""

    train: Corpus
    dev: Corpus
    targets: Mapping[str, TargetParts]
    notes: tuple[str, ...] = ()

    def without_leaks(self) -> TransferCorpora:
        """The same without training sentences and few-shot candidates that recur in scored parts.

        A sentence may recur in another language: names in WikiANN do.
        """
        scored = [self.dev, *(corpus for parts in self.targets.values() for corpus in parts.scored.values())]
        train, removed = without_recurring(self.train, scored)
        notes = [f"{removed:,} of {len(self.train):,} training sentences recur in scored parts and were removed"]
        targets = {}
        for language, parts in self.targets.items():
            pool, removed = without_recurring(parts.pool, [parts.test] if parts.pool_is_dev else parts.scored.values())
            targets[language] = replace(parts, pool=pool)
            if removed:
                notes.append(f"{removed:,} few-shot candidates in {language} recur in scored parts and were removed")
        return TransferCorpora(train, self.dev, targets, (*self.notes, *notes))

    def fingerprints(self) -> dict[str, Any]:
        """What the data is, for a run's config."""

        def identity(corpus: Corpus) -> str:
            return f"{corpus.name} {corpus.fingerprint}"

        targets = {
            language: {name: identity(corpus) for name, corpus in {**parts.scored, "pool": parts.pool}.items()}
            for language, parts in self.targets.items()
        }
        return {"train": identity(self.train), "dev": identity(self.dev), "targets": targets}


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
    """Read a task for a source language and target languages from a folder, or from separate files.

    A part is the file in `data` whose name has its split and its language (`dev-tr.tsv`, `test.sw.jsonl`), there or in
    a folder of the language. `train` and `dev` are files of the source language, or `train` a folder of both; another
    corpus may serve (SIQA for XCOPA). The `target_` files belong to the only target language. Missing parts are split
    off by the seed, recurring sentences are removed. `limit` applies to each part.
    """
    if (target_train or target_dev or target_test) and len(languages) != 1:
        raise SettingError(f"Files of a target language are given for {', '.join(languages)}; expected one language.")
    if data is not None and not plain_path("data", data).is_dir():
        raise CorpusError(f"{data} is no folder; expected one with files such as dev-tr.tsv, or name the files.")

    def read(file: Place, split: str, language: str) -> Corpus | None:
        place = data if file is None else file
        path = None if place is None else Path(place)
        if path is not None and path.is_dir():
            path = _file_of(path, split, language)
        return None if path is None else read_part(task, path, limit=limit)

    targets, notes = {}, []
    for language in languages:
        files = {"dev": target_dev, "test": target_test, "train": target_train}
        parts = [read(path, split, language) for split, path in files.items()]
        targets[language], cut = _complete_target(*parts, language=language, seed=seed)
        notes += cut
    folder = train if train is not None and Path(train).is_dir() else None
    source_train, source_dev = read(train, "train", source_language), read(dev or folder, "dev", source_language)
    if source_train is None:
        raise CorpusError(
            f"There is no training part in {source_language}; expected a file such as train-{source_language}.tsv in "
            "the folder, or name one (train)."
        )
    if source_dev is None:
        source_train, source_dev = source_train.split((0.9, 0.1), seed)
        notes.append(f"dev is a tenth of {source_train.name}, cut by seed {seed}")
    return TransferCorpora(source_train, source_dev, targets, tuple(notes)).without_leaks()


def _complete_target(
    dev: Corpus | None, test: Corpus | None, pool: Corpus | None, language: str, seed: int
) -> tuple[TargetParts, list[str]]:
    """The parts of a target language, with missing ones split off from others, and notes on that."""
    notes = []
    whole = dev or test
    if whole is None:
        raise CorpusError(
            f"There is neither a development nor a test part in {language}; expected files such as dev-{language}.tsv "
            f"or test-{language}.tsv in the folder."
        )
    if dev is None or test is None:
        dev, test = whole.split((0.5, 0.5), seed)
        notes.append(f"{whole.name} was cut into halves for development and test by seed {seed}")
    if pool is None:
        notes.append(f"few-shot examples in {language} come from the development part")
    return TargetParts(dev, test, pool or dev, pool_is_dev=pool is None), notes


def without_recurring(corpus: Corpus, others: Iterable[Corpus]) -> tuple[Corpus, int]:
    """The examples of a corpus whose text is in none of the others, and how many were removed."""

    def text(corpus: Corpus, index: int) -> tuple[Any, ...]:
        second = () if corpus.pairs is None else tuple(corpus.pairs[index])
        return tuple(corpus.sentences[index]), second, () if corpus.choices is None else tuple(corpus.choices[index])

    known = {text(other, i) for other in others for i in range(len(other))}
    kept = [i for i in range(len(corpus)) if text(corpus, i) not in known]
    if not kept:
        raise CorpusError(f"All {len(corpus):,} sentences of {corpus.name} recur in the scored parts; give other ones.")
    return corpus.select(kept), len(corpus) - len(kept)


def read_part(task: str | Task, path: str | Path, *, limit: int | None = None) -> Corpus:
    """Read one part of a task from its file."""
    task, path = transfer_task(task), Path(path)
    if task.name != "xnli":
        corpus = read_corpus(path, regression=task.regression or None)
    else:  # premise, hypothesis and label, often without a header; labels of the test part are in a separate file
        cells = next(iter(first_lines(path)), "").split("\t") if path.suffix == ".tsv" else []
        columns = range(min(len(cells), 3)) if cells and known_text_columns(cells) is None else ()
        text, pair, label = (*columns, None, None, None)[:3]
        corpus = read_corpus(path, text=text, pair=pair, label=label)
        beside = next(path.parent.glob(f"{_LABELS}.*"), None)
        if not corpus.sentence_labels and beside is not None:
            corpus = replace(corpus, sentence_labels={"label": [*whole_text(beside).split()]})
        labels = {
            name: [_OTHER_NAMES.get(str(label), label) for label in values]
            for name, values in corpus.sentence_labels.items()
        }
        corpus = replace(corpus, sentence_labels=labels)
    check_labels(task, corpus)
    return corpus if limit is None else corpus.limit(limit)


def _file_of(folder: Path, split: str, language: str) -> Path | None:
    """The file of a split and a language: both in its name, or the split alone in a folder of the language."""

    def files_of_split(place: Path) -> list[Path]:
        files = place.iterdir() if place.is_dir() else ()
        texts = [file for file in files if may_be_text(file) and not file.name.startswith(_LABELS)]
        return [file for file in texts if is_of_split(file, split)]

    def words(file: Path) -> list[str]:
        return re.split(r"[-_.]", bare_name(file))

    def may_be_language(word: str) -> bool:
        return re.fullmatch("[a-z]{2,3}", word) is not None and not is_of_split(Path(word), split)

    named = files_of_split(folder)
    matching = [file for file in named if language in words(file)]
    for place in (folder / language, folder / "data" / language):
        matching += files_of_split(place)
    if not matching:  # a folder of one language, such as SIQA's, does not name it
        matching = [file for file in named if not any(map(may_be_language, words(file)))]
    matching.sort(key=lambda file: (len(words(file)), file.name))
    if len(matching) > 1 and len(words(matching[0])) == len(words(matching[1])):
        names = ", ".join(file.name for file in matching[:4])
        raise CorpusError(f"{folder} has several files of the {language} {split} part: {names}; name one of them.")
    return matching[0] if matching else None
