"""The data of a study: the sample grammar at the scale `sample`, otherwise a folder with the documents' data sets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import xxhash

from residuum.adaptation.corpora import TargetParts, TransferCorpora, read_transfer, transfer_task
from residuum.corpus import Corpus, read_corpus
from residuum.corpus.reading import files_of_split
from residuum.corpus.tasks import Task, TaskCorpora, named_task, read_task
from residuum.errors import CorpusError, SettingError
from residuum.evaluation.pairs import SentencePairs, corpus_pairs, read_pairs
from residuum.samples import LANGUAGES, sample
from residuum.samples.settings import SampleTask, SplitName
from residuum.storage.files import checksum, lone_file
from residuum.studies.steps import Scale

TARGETS = ("tr", "sw")  # languages that tasks are transferred to from English, unless others are chosen
TATOEBA = {  # the languages of XTREME's Tatoeba by their codes there
    "af": "afr", "ar": "ara", "bg": "bul", "bn": "ben", "de": "deu", "el": "ell", "es": "spa", "et": "est", "eu": "eus",
    "fa": "pes", "fi": "fin", "fr": "fra", "he": "heb", "hi": "hin", "hu": "hun", "id": "ind", "it": "ita", "ja": "jpn",
    "jv": "jav", "ka": "kat", "kk": "kaz", "ko": "kor", "ml": "mal", "mr": "mar", "nl": "nld", "pt": "por", "ru": "rus",
    "sw": "swh", "ta": "tam", "te": "tel", "th": "tha", "tl": "tgl", "tr": "tur", "ur": "urd", "vi": "vie", "zh": "cmn",
}  # fmt: skip

SAMPLE_WORD_TASKS = ("upos", "deprel_main")
SAMPLE_SENTENCE_TASKS: tuple[SampleTask, ...] = ("polarity", "nli")
SAMPLE_TRANSFER: SampleTask = "polarity"  # learnt from few examples, which leaves room to compare students
PAIR_FACTOR = 2  # translations per sentence of a treebank: among few, every student finds all
TRAINING_SHARE = 4  # the sample training part is so many times larger than the development part
NO_LOOKUP = "no content word of the test part occurs in training"

TREEBANK = "UD_English-EWT"
TREEBANK_TASKS = ("upos", "deprel_main")
TREEBANK_LABELS = ("upos", "xpos", "deprel", "deprel_main")  # that can be chosen where all tasks are over one treebank
WORD_TASKS = {
    "upos": f"treebanks/{TREEBANK}",
    "chunk": "token/conll2000",
    "sem": "token/pmb-4.0.0/en",
    "ccg": "token/ccg",
    "xpos": "token/ptb",  # tags of the Penn Treebank, where they are given
}
SENTENCE_TASKS = {
    name: f"glue/{folder}"
    for name, folder in {
        "sst2": "SST-2", "mrpc": "MRPC", "rte": "RTE", "stsb": "STS-B", "qnli": "QNLI", "mnli": "MNLI",
        "qqp": "QQP",
    }.items()
}  # fmt: skip
PARALLEL = "treebanks/UD_*-PUD"
SECOND = "treebanks/UD_English-PUD/*.conllu"
PAIRS, TEXTS = "crosslingual/tatoeba", "text/common_voice"
TRANSFERS = {"xnli": "crosslingual/xnli", "wikiann": "crosslingual/panx", "xcopa": "crosslingual/xcopa"}
# XNLI's English training part is MNLI's; XCOPA has none, and the thesis trains on SIQA instead.
STAND_INS = {"xnli": "glue/MNLI/sample_train.json", "xcopa": "crosslingual/siqa"}
LAYOUT = f"treebanks/{TREEBANK}, token/conll2000, glue/SST-2, {PARALLEL}, {PAIRS}, crosslingual/panx, {TEXTS}/LANGUAGE"
FOLDERS = (
    PARALLEL,
    *WORD_TASKS.values(),
    *SENTENCE_TASKS.values(),
    f"{TEXTS}/*",
    PAIRS,
    *TRANSFERS.values(),
    STAND_INS["xcopa"],
)
"""All that a study may read."""


@dataclass(frozen=True, eq=False)
class SampleData:
    """The sample grammar, generated again from its seed each time."""

    scale: Scale
    seed: int = 0
    tasks: tuple[str, ...] = ()  # always those of the scale
    languages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := [code for code in self.languages if code not in LANGUAGES[1:]]:
            raise SettingError(f"The sample grammar has no target language {unknown[0]}; it has de, tr and sw.")

    @property
    def identity(self) -> str:
        """How a run's config describes the data."""
        return f"sample grammar, seed {self.seed}"

    @cached_property
    def text(self) -> Corpus:
        """The sentences over which layers are compared."""
        return sample("treebank", size=self._sentences, seed=self.seed)

    @cached_property
    def second_text(self) -> Corpus | None:
        """Other sentences, over which layers are compared again: the plain texts of the grammar."""
        return sample("text", size=self._sentences, seed=self.seed, split="test")

    @cached_property
    def word_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """Tasks about words, all over the same treebank."""
        treebank = self._splits("treebank", self._sentences)
        return {name: (named_task(name), treebank) for name in SAMPLE_WORD_TASKS[: self.scale.tasks]}

    @property
    def treebank_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """Parts of speech and dependency relations."""
        return self.word_tasks

    @property
    def word_texts(self) -> dict[str, Corpus | Path]:
        """The text of each word task, before it is split."""
        return dict.fromkeys(SAMPLE_WORD_TASKS[: self.scale.tasks], self.text)

    @cached_property
    def sentence_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """Tasks about single sentences and sentence pairs."""
        names = SAMPLE_SENTENCE_TASKS[: self.scale.tasks]
        return {name: (Task(name, unit="sentence"), self._splits(name, self._examples)) for name in names}

    @cached_property
    def treebanks(self) -> dict[str, Corpus]:
        """The same sentences in every language."""
        codes = ("en", *self.languages) if self.languages else LANGUAGES
        return {code: sample("treebank", language=code, size=self._sentences, seed=self.seed) for code in codes}

    def targets(self) -> tuple[str, ...]:
        """The languages that tasks are transferred to from English."""
        return self.languages or TARGETS

    def pairs(self) -> list[SentencePairs]:
        """Sentences and their English translations."""
        options = {"size": PAIR_FACTOR * self._sentences, "seed": self.seed, "split": "test"}
        return [
            corpus_pairs(sample("translation", language=f"{code}-en", **options), (code, "en"))
            for code in self.targets()
        ]

    def lines(self, folder: Path) -> dict[str, str]:
        """One file of plain text per language, written into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        size = self.scale.distillation_steps * self.scale.distillation_batch + 2 * self._sentences
        files = {code: folder / f"{code}.txt" for code in ("en", *self.targets())}
        for code, path in files.items():
            corpus = sample("text", language=code, size=size, seed=self.seed)
            with lone_file(path) as temporary:
                temporary.write_text("".join(f"{corpus.text(i)}\n" for i in range(len(corpus))), encoding="utf-8")
        return {code: str(path) for code, path in files.items()}

    @cached_property
    def transfers(self) -> dict[str, tuple[Task, TransferCorpora]]:
        """Tasks learnt in English and tested in the target languages."""
        name, small = SAMPLE_TRANSFER, max(self._examples // TRAINING_SHARE, 20)

        def part(language: str, split: SplitName, size: int = small) -> Corpus:
            return sample(name, language=language, size=size, seed=self.seed, split=split, disjoint_lexemes=True)

        targets = {
            code: TargetParts(part(code, "dev"), part(code, "test", self._examples), part(code, "train"))
            for code in self.targets()
        }
        corpora = TransferCorpora(part("en", "train", self._examples), part("en", "dev"), targets).without_leaks()
        return {name: (Task(name, unit="sentence"), corpora)}

    @property
    def _sentences(self) -> int:
        assert self.scale.sentences is not None, "a sample has a size"
        return self.scale.sentences

    @property
    def _examples(self) -> int:
        return self.scale.examples or self._sentences

    def _splits(self, task: SampleTask, size: int) -> TaskCorpora:
        sizes: dict[SplitName, int] = {"train": size, "dev": max(size // TRAINING_SHARE, 20), "test": size}
        options = {"seed": self.seed, "disjoint_lexemes": True}
        parts = [sample(task, size=n, split=split, **options) for split, n in sizes.items()]
        return TaskCorpora(*parts, notes=(f"{task} of the sample grammar, seed {self.seed}: {NO_LOOKUP}",))


@dataclass(frozen=True, eq=False)
class GivenData:
    """Treebanks, GLUE-shaped folders and cross-lingual sets in one folder; whatever a study needs must be in it."""

    root: Path
    scale: Scale
    seed: int = 0
    tasks: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    treebank: str = TREEBANK
    part: str = "dev"
    test_treebank: str = ""  # that the labels of the treebank are tested on; its own test part where there is none

    def __post_init__(self) -> None:
        known = dict.fromkeys((*WORD_TASKS, *SENTENCE_TASKS, *TREEBANK_LABELS))
        if unknown := [name for name in self.tasks if name not in known]:
            raise SettingError(f"A study knows no task {', '.join(unknown)}; choose from {', '.join(known)}.")
        if not self.root.is_dir():
            raise CorpusError(f"{self.root} is not a folder; expected one with folders such as {LAYOUT}.")

    @cached_property
    def identity(self) -> dict[str, str]:
        """How a run's config describes the data: its folder, and a fingerprint of all that a study may read of it."""
        treebanks = (f"treebanks/{name}" for name in (self.treebank, self.test_treebank) if name)
        patterns = dict.fromkeys((*treebanks, *FOLDERS))
        folders = (folder for pattern in patterns for folder in self.root.glob(pattern))
        files = sorted({file for folder in folders for file in folder.rglob("*") if file.is_file()})
        lines = "\n".join(f"{file.relative_to(self.root).as_posix()} {checksum(file)}" for file in files)
        return {"folder": str(self.root), "files": xxhash.xxh3_64_hexdigest(lines.encode()) if files else ""}

    @cached_property
    def text(self) -> Corpus:
        """The sentences over which layers are compared: the development part of the English treebank, or another."""
        return read_corpus(self._folder(f"treebanks/{self.treebank}"), split=self.part, limit=self.scale.sentences)

    @cached_property
    def second_text(self) -> Corpus | None:
        """A second corpus, over which layers are compared again: the English part of the parallel treebanks."""
        files = sorted(self.root.glob(SECOND))
        return read_corpus(files[0], limit=self.scale.sentences) if files else None

    @cached_property
    def word_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """Parts of speech, and chunks and semantic tags where the folder has them."""
        texts = self.word_texts
        return {name: (named_task(name), self._splits(name, texts[name])) for name in texts}

    @cached_property
    def treebank_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """Parts of speech and dependency relations, or other labels of the treebank that were chosen."""
        test = None
        if self.test_treebank:
            test = next(iter(sorted(self._folder(f"treebanks/{self.test_treebank}").glob("*.conllu"))), None)
            if test is None:
                raise CorpusError(f"{self.root}/treebanks/{self.test_treebank} holds no .conllu file; add one.")
        folder = self._folder(f"treebanks/{self.treebank}")
        treebank = read_task("upos", folder, test=test, limit=self.scale.sentences, seed=self.seed)
        return {name: (named_task(name), treebank) for name in self.tasks or TREEBANK_TASKS}

    @property
    def word_texts(self) -> dict[str, Path]:
        """The folder of each word task."""
        folders = {**WORD_TASKS, "upos": f"treebanks/{self.treebank}"}
        self._folder(folders["upos"])
        available = [name for name, folder in folders.items() if (self.root / folder).is_dir()]
        return {name: self.root / folders[name] for name in self._chosen(folders, available)}

    @cached_property
    def sentence_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """The GLUE tasks of which exactly one file is the training part."""
        folders = {name: self.root / folder for name, folder in SENTENCE_TASKS.items()}
        available = [
            name for name, folder in folders.items() if folder.is_dir() and len(files_of_split(folder, "train")) == 1
        ]
        if not available:
            raise CorpusError(f"{self.root} has no GLUE task with a training part; expected folders such as glue/RTE.")
        return {
            name: (named_task(name), read_task(name, folders[name], limit=self.scale.examples, seed=self.seed))
            for name in self._chosen(SENTENCE_TASKS, available)
        }

    @cached_property
    def treebanks(self) -> dict[str, Corpus]:
        """Parallel treebanks, English first."""
        by_language = {}
        for folder in sorted(self.root.glob(PARALLEL)):
            if files := sorted(folder.glob("*.conllu")):
                by_language[files[0].name.partition("_")[0]] = read_corpus(files[0], limit=self.scale.sentences)
        if "en" not in by_language or len(by_language) < 2:
            raise CorpusError(f"{self.root} has no parallel treebanks with English; expected folders {PARALLEL}.")
        if missing := [code for code in self.languages if code not in by_language]:
            raise CorpusError(f"{self.root} has no parallel treebank of {missing[0]}; it has {', '.join(by_language)}.")
        chosen = self.languages or [code for code in by_language if code != "en"]
        return {"en": by_language["en"], **{code: by_language[code] for code in chosen}}

    def targets(self) -> tuple[str, ...]:
        """The languages that tasks are transferred to from English."""
        return self.languages or TARGETS

    def pairs(self) -> list[SentencePairs]:
        """Sentences and their English translations."""
        if unknown := [code for code in self.targets() if code not in TATOEBA]:
            raise SettingError(f"Tatoeba has no language {unknown[0]}; choose from {', '.join(TATOEBA)}.")
        wanted = [f"{TATOEBA[code]}-eng" for code in self.targets()]
        return read_pairs(self._folder(PAIRS), only=wanted, limit=self.scale.sentences)

    def lines(self, folder: Path) -> dict[str, str]:
        """The folder of plain text of each language; nothing is written."""
        return {code: str(self._folder(f"{TEXTS}/{code}")) for code in ("en", *self.targets())}

    @cached_property
    def transfers(self) -> dict[str, tuple[Task, TransferCorpora]]:
        """All tasks in the folder that are learnt in English and tested in the target languages."""
        available = [name for name, folder in TRANSFERS.items() if (self.root / folder).is_dir()]
        if not available:
            raise CorpusError(f"{self.root} has no cross-lingual task; expected folders such as crosslingual/panx.")
        return {name: (transfer_task(name), self._transfer(name)) for name in available}

    def _transfer(self, name: str) -> TransferCorpora:
        """A task with its own English training part, or with another corpus in its place, which its notes name."""
        folder, stand_in = self.root / TRANSFERS[name], STAND_INS.get(name)
        train = None if stand_in is None or any(folder.glob("train-en.*")) else self.root / stand_in
        if train is not None and not train.exists():
            raise CorpusError(f"{folder} has no train-en, and {train} does not exist either; add one of them.")
        present = {part for file in folder.rglob("*.*") for part in re.split(r"[-.]", file.name)}
        languages = [code for code in self.targets() if code in present]
        if not languages:
            raise CorpusError(f"{folder} has none of the languages {', '.join(self.targets())}; choose others.")
        corpora = read_transfer(name, folder, languages, train=train, limit=self.scale.transferred, seed=self.seed)
        notes = () if train is None else (f"the English training part of {name} is {stand_in}",)
        left_out = [code for code in self.targets() if code not in languages]
        notes += tuple(f"{name} has no {code}, which is left out" for code in left_out)
        return replace(corpora, notes=(*notes, *corpora.notes))

    def _splits(self, name: str, folder: Path) -> TaskCorpora:
        return read_task(name, folder, limit=self.scale.sentences, seed=self.seed)

    def _chosen(self, folders: Mapping[str, str], available: Sequence[str]) -> Sequence[str]:
        """The tasks of a kind that were asked for, or else as many of the available ones as the scale takes."""
        asked = [name for name in self.tasks if name in folders]
        if missing := [name for name in asked if name not in available]:
            wanted = ", ".join(f"{folders[name]} for {name}" for name in missing)
            raise CorpusError(f"{self.root} lacks {wanted}, or more than one file there is the training part.")
        return asked or available[: self.scale.tasks]

    def _folder(self, name: str) -> Path:
        if not (self.root / name).is_dir():
            raise CorpusError(f"{self.root} has no folder {name}; expected some of {LAYOUT}.")
        return self.root / name
