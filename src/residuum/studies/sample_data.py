"""The data of a study at the scale `sample`: the sample grammar's treebanks, tasks, translations and texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from residuum.corpus.tasks import Task, TaskCorpora, named_task
from residuum.samples import LANGUAGES, sample
from residuum.storage.files import lone_file
from residuum.studies.scales import Scale

if TYPE_CHECKING:
    from residuum.adaptation.corpora import TransferCorpora
    from residuum.corpus import Corpus
    from residuum.evaluation.pairs import SentencePairs

WORD_TASKS = ("upos", "deprel_main")
SENTENCE_TASKS = ("polarity", "nli")
TRANSFER = "nli"
HELD_OUT = 4  # the training part is so many times larger than the others


@dataclass(frozen=True, eq=False)
class SampleData:
    """What ships, drawn anew from its seed each time it is asked for."""

    scale: Scale
    seed: int = 0
    tasks: tuple[str, ...] = ()  # those of the scale; other data may be asked for others

    @property
    def identity(self) -> str:
        """What a run says of the data."""
        return f"sample grammar, seed {self.seed}"

    @cached_property
    def text(self) -> Corpus:
        """The sentences over which layers are compared."""
        return sample("treebank", size=self._limit, seed=self.seed)

    @cached_property
    def word_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """Tasks about words, all over the same treebank."""
        treebank = self._parts("treebank", self._limit)
        return {name: (named_task(name), treebank) for name in WORD_TASKS[: self.scale.tasks]}

    @property
    def treebank_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """Parts of speech and dependency relations."""
        return self.word_tasks

    @property
    def word_texts(self) -> dict[str, Corpus | Path]:
        """The text of each word task in one piece, or where its parts are."""
        return dict.fromkeys(WORD_TASKS[: self.scale.tasks], self.text)

    @cached_property
    def sentence_tasks(self) -> dict[str, tuple[Task, TaskCorpora]]:
        """Tasks about single sentences and pairs of them."""
        size = self.scale.examples or self._limit
        names = SENTENCE_TASKS[: self.scale.tasks]
        return {name: (Task(name, unit="sentence"), self._parts(name, size)) for name in names}

    @cached_property
    def treebanks(self) -> dict[str, Corpus]:
        """The same sentences in every language."""
        return {code: sample("treebank", language=code, size=self._limit, seed=self.seed) for code in LANGUAGES}

    def targets(self) -> tuple[str, ...]:
        """The languages that a task is carried to, English being the source."""
        return ("tr", "sw")

    def pairs(self) -> list[SentencePairs]:
        """Sentences and their English translations."""
        from residuum.evaluation import corpus_pairs

        draw = {"size": self._limit, "seed": self.seed, "split": "test"}
        return [
            corpus_pairs(sample("translation", language=f"{code}-en", **draw), (code, "en")) for code in self.targets()
        ]

    def lines(self, folder: Path) -> dict[str, str]:
        """A file of plain text for each language, written into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        return {code: self._lines(code, folder / f"{code}.txt") for code in ("en", *self.targets())}

    @cached_property
    def transfers(self) -> dict[str, tuple[Task, TransferCorpora]]:
        """Tasks in English, asked in the target languages."""
        return {TRANSFER: (Task(TRANSFER, unit="sentence"), self._transfer(TRANSFER))}

    @property
    def _limit(self) -> int:
        return self.scale.limit or self.scale.sentences

    def _parts(self, task: str, size: int) -> TaskCorpora:
        small = max(size // HELD_OUT, 20)
        drawn = {"train": size, "dev": small, "test": small}
        parts = [sample(task, size=n, seed=self.seed, split=split) for split, n in drawn.items()]
        return TaskCorpora(*parts, notes=(f"{task} of the sample grammar, seed {self.seed}",))

    def _lines(self, language: str, path: Path) -> str:
        size = self.scale.distil_steps * self.scale.distil_batch + 2 * self._limit
        corpus = sample("text", language=language, size=size, seed=self.seed)
        with lone_file(path) as temporary:
            temporary.write_text("".join(f"{corpus.text(i)}\n" for i in range(len(corpus))), encoding="utf-8")
        return str(path)

    def _transfer(self, task: str) -> TransferCorpora:
        from residuum.adaptation.corpora import TargetParts, TransferCorpora

        size = self.scale.examples or self._limit
        small = max(size // HELD_OUT, 20)

        def part(language: str, split: str, n: int) -> Corpus:
            return sample(task, language=language, size=n, seed=self.seed, split=split)

        targets = {
            code: TargetParts(part(code, "dev", small), part(code, "test", small), part(code, "train", small))
            for code in self.targets()
        }
        return TransferCorpora(part("en", "train", size), part("en", "dev", small), targets).without_leaks()
