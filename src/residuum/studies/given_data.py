"""The data of a study at the scales `small` and `paper`: folders that the user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from residuum.corpus import read_corpus
from residuum.corpus.reading import files_of_split
from residuum.corpus.tasks import Task, TaskCorpora, named_task, read_task
from residuum.errors import CorpusError, SettingError
from residuum.storage.files import checksum
from residuum.studies.scales import Scale

if TYPE_CHECKING:
    from residuum.adaptation.corpora import TransferCorpora
    from residuum.corpus import Corpus
    from residuum.evaluation.pairs import SentencePairs

TREEBANK = "treebanks/UD_English-EWT"
WORD_TASKS = {"upos": TREEBANK, "chunk": "token/conll2000", "sem": "token/pmb-4.0.0/en"}
TREEBANK_TASKS = ("upos", "deprel_main")
SENTENCE_TASKS = {"sst2": "SST-2", "mrpc": "MRPC", "rte": "RTE", "stsb": "STS-B", "qnli": "QNLI", "mnli": "MNLI"}
PARALLEL = "treebanks/UD_*-PUD"
PAIRS, TEXTS = "crosslingual/tatoeba", "text/common_voice"
TRANSFERS = {"xnli": "crosslingual/xnli", "wikiann": "crosslingual/panx", "xcopa": "crosslingual/xcopa"}
# XNLI's own English training part is MNLI's; the thesis trains for XCOPA, which has none, on SIQA.
STAND_INS = {"xnli": "glue/MNLI/sample_train.json", "xcopa": "crosslingual/siqa"}
LAYOUT = f"{TREEBANK}, token/conll2000, glue/SST-2, {PARALLEL}, {PAIRS}, crosslingual/panx, {TEXTS}/LANGUAGE"
_CODES = {"tr": "tur", "sw": "swh"}
FOLDERS = (
    PARALLEL,
    *WORD_TASKS.values(),
    *(f"glue/{folder}" for folder in SENTENCE_TASKS.values()),
    *(f"{TEXTS}/{code}" for code in ("en", *_CODES)),
    PAIRS,
    *TRANSFERS.values(),
    STAND_INS["xcopa"],
)
"""All that a study may read."""


@dataclass(frozen=True, eq=False)
class GivenData:
    """Treebanks, GLUE-shaped folders and cross-lingual sets under one folder; what a study needs must be there."""

    root: Path
    scale: Scale
    seed: int = 0
    tasks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = (*WORD_TASKS, *SENTENCE_TASKS)
        if unknown := [name for name in self.tasks if name not in known]:
            raise SettingError(f"A study knows no task {', '.join(unknown)}; choose of {', '.join(known)}.")
        if not self.root.is_dir():
            raise CorpusError(f"{self.root} is no folder; expected one with folders such as {LAYOUT}.")

    @cached_property
    def identity(self) -> dict[str, str]:
        """What a run says of the data: where it lies, and a fingerprint of all that a study may read of it."""
        folders = (folder for pattern in FOLDERS for folder in self.root.glob(pattern))
        files = sorted({file for folder in folders for file in folder.rglob("*") if file.is_file()})
        told = "\n".join(f"{file.relative_to(self.root).as_posix()} {checksum(file)}" for file in files)
        return {"folder": str(self.root), "files": xxhash.xxh3_64_hexdigest(told.encode()) if files else ""}

    @cached_property
    def text(self) -> Corpus:
        """The sentences over which layers are compared: the development part of the English treebank."""
        return read_corpus(self._folder(TREEBANK), split="dev", limit=self.scale.limit)

    @cached_property
    def word_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """Parts of speech, and chunks and semantic tags where they are given."""
        limit = self.scale.limit
        return {name: (named_task(name), self._task(name, WORD_TASKS[name], limit)) for name in self.word_texts}

    @cached_property
    def treebank_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """Parts of speech and dependency relations."""
        treebank = self._task("upos", TREEBANK, self.scale.limit)
        return {name: (named_task(name), treebank) for name in TREEBANK_TASKS}

    @property
    def word_texts(self) -> dict[str, Corpus | Path]:
        """The text of each word task in one piece, or where its parts are."""
        self._folder(TREEBANK)
        there = [name for name, folder in WORD_TASKS.items() if (self.root / folder).is_dir()]
        return {name: self.root / WORD_TASKS[name] for name in self._chosen(WORD_TASKS, there)}

    @cached_property
    def sentence_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """The tasks of GLUE that are given with a training part."""
        folders = {name: f"glue/{folder}" for name, folder in SENTENCE_TASKS.items()}
        there = [name for name, folder in folders.items() if self._has_training(self.root / folder)]
        if not there:
            raise CorpusError(f"{self.root} has no GLUE task with a training part; expected folders such as glue/RTE.")
        return {
            name: (named_task(name), self._task(name, folders[name], self.scale.examples))
            for name in self._chosen(folders, there)
        }

    @cached_property
    def treebanks(self) -> dict[str, Corpus]:
        """Parallel treebanks, English first."""
        found = {}
        for folder in sorted(self.root.glob(PARALLEL)):
            if files := sorted(folder.glob("*.conllu")):
                found[files[0].name.partition("_")[0]] = read_corpus(files[0], limit=self.scale.limit)
        if "en" not in found or len(found) < 2:
            raise CorpusError(f"{self.root} has no parallel treebanks with English; expected folders {PARALLEL}.")
        return {"en": found.pop("en"), **found}

    def targets(self) -> tuple[str, ...]:
        """The languages that a task is carried to, English being the source."""
        return ("tr", "sw")

    def pairs(self) -> list[SentencePairs]:
        """Sentences and their English translations."""
        from residuum.evaluation import read_pairs

        wanted = [f"{_CODES[code]}-eng" for code in self.targets()]
        return read_pairs(self._folder(PAIRS), only=wanted, limit=self.scale.limit)

    def lines(self, folder: Path) -> dict[str, str]:
        """The folder of plain text of each language; nothing is written."""
        return {code: str(self._folder(f"{TEXTS}/{code}")) for code in ("en", *self.targets())}

    @cached_property
    def transfers(self) -> dict[str, tuple[Task, TransferCorpora]]:
        """Tasks in English, asked in the target languages: all that are given, since each is of a kind of its own."""
        from residuum.adaptation.files import transfer_task

        there = [name for name, folder in TRANSFERS.items() if (self.root / folder).is_dir()]
        if not there:
            raise CorpusError(f"{self.root} has no cross-lingual task; expected folders such as crosslingual/panx.")
        return {name: (transfer_task(name), self._transfer(name)) for name in there}

    def _transfer(self, name: str) -> TransferCorpora:
        """A task with its own English training part, or with another corpus in its place, which its notes name."""
        from residuum.adaptation.files import read_transfer

        folder, other = self.root / TRANSFERS[name], STAND_INS.get(name)
        train = None if other is None or any(folder.glob("train-en.*")) else self.root / other
        if train is not None and not train.exists():
            raise CorpusError(f"{folder} has no train-en, and {train} is not there either; give one of them.")
        corpora = read_transfer(name, folder, self.targets(), train=train, limit=self.scale.examples, seed=self.seed)
        said = () if train is None else (f"the English training part of {name} is {other}",)
        return replace(corpora, notes=(*said, *corpora.notes))

    def _task(self, name: str, folder: str, limit: int | None) -> TaskCorpora:
        return read_task(name, self.root / folder, limit=limit, seed=self.seed)

    def _chosen(self, kind: Mapping[str, str], there: Sequence[str]) -> Sequence[str]:
        """The tasks of a kind that were asked for, or else as many of those that are there as the scale takes."""
        asked = [name for name in self.tasks if name in kind]
        if missing := [name for name in asked if name not in there]:
            wanted = ", ".join(f"{kind[name]} for {name}" for name in missing)
            raise CorpusError(f"{self.root} lacks {wanted}, or more than one file there is the training part.")
        return asked or there[: self.scale.tasks]

    def _has_training(self, folder: Path) -> bool:
        """Whether exactly one file is the training part, so that it is known which one is meant."""
        return folder.is_dir() and len(files_of_split(folder, "train")) == 1

    def _folder(self, name: str) -> Path:
        if not (self.root / name).is_dir():
            raise CorpusError(f"{self.root} has no folder {name}; expected some of {LAYOUT}.")
        return self.root / name
