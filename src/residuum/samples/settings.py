"""The settings of sample: which task, language, split and how many."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from residuum.errors import SettingError
from residuum.settings import Argument, Option, Seed, Settings, local_folder

SampleTask = Literal["treebank", "ner", "nli", "copa", "translation", "polarity", "tense", "text"]
SplitName = Literal["train", "dev", "test"]
TASKS = get_args(SampleTask)
LANGUAGES = ("en", "de", "tr", "sw")


@dataclass(frozen=True)
class SampleSettings(Settings):
    """What `sample` takes."""

    task: Annotated[SampleTask, Argument("treebank, ner, nli, copa, translation, polarity, tense or text")]
    _: KW_ONLY
    language: Annotated[str, Option("en, de, tr or sw; a pair such as tr-en for translation", "data")] = "en"
    size: Annotated[int, Option("Number of sentences or examples", "data", at_least=1)] = 1000
    split: Annotated[Literal["train", "dev", "test"], Option("No sentence meaning occurs in two splits", "data")] = (
        "train"
    )
    disjoint_lexemes: Annotated[bool, Option("No content word occurs in two splits", "data")] = False
    seed: Seed = 0

    def check(self) -> None:
        """The language fits the task; `copa` has one table of events for all splits."""
        expected = f"one of {', '.join(LANGUAGES)}"
        if self.task == "translation":
            expected = f"two of {', '.join(LANGUAGES)} for translation, such as 'tr-en'"
            source, _, target = self.language.partition("-")
            known = source in LANGUAGES and target in LANGUAGES and source != target
        else:
            known = self.language in LANGUAGES
        if not known:
            raise SettingError(f"language is {self.language!r}; expected {expected}.")
        if self.task == "copa" and self.disjoint_lexemes:
            raise SettingError(
                "disjoint_lexemes is True, but copa has one table of events for all splits; leave it out."
            )

    @property
    def languages(self) -> list[str]:
        """The language, or the two of a translation."""
        return self.language.split("-")

    @property
    def name(self) -> str:
        """The name of the corpus."""
        return f"sample-{self.task}-{self.language}-{self.split}"

    def ids(self) -> list[str]:
        """The ids of the sentences, the same in every language."""
        return [f"{self.split}-{self.seed}-{number:06d}" for number in range(1, self.size + 1)]


@dataclass(frozen=True)
class WriteSampleSettings(SampleSettings):
    """What `residuum sample` takes: a task, or `teacher` for the sample teacher."""

    example: ClassVar[str] = "residuum sample treebank --language tr --size 2000 --out tr.conllu"

    task: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        Literal[SampleTask, "teacher"],
        Argument("treebank, ner, nli, copa, translation, polarity, tense, text, or teacher for the sample model"),
    ]
    _: KW_ONLY
    out: Annotated[
        Path | None,
        Option("File or folder to write [standard output]", "output", short="-o", identity=False, parse=local_folder),
    ] = None
