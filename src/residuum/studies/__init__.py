"""Chains of commands with settled settings: what `study` and `demo` take; each paper has its own module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from residuum.errors import SettingError
from residuum.settings import Argument, Device, Option, Resumable, Seed, Settings, local_folder

StudyName = Literal["similarity", "redundancy", "transfer-learning", "distilled", "monolingual"]
TaskName = Literal[
    "upos", "xpos", "deprel", "deprel_main", "chunk", "sem", "ccg",
    "sst2", "mrpc", "rte", "stsb", "qnli", "mnli", "qqp",
]  # fmt: skip
RequiredOut = Annotated[
    Path, Option("Folder to write", "output", short="-o", identity=False, required=True, parse=local_folder)
]


@dataclass(frozen=True, kw_only=True)
class StudyModel(Settings):
    """A model of a study: `{name: distilmbert, path: distilbert-base-multilingual-cased, teacher: mbert}` in YAML."""

    path: Annotated[str, Option("Model folder, hub name, or (in similarity) a folder of activations", "model")]
    name: Annotated[str, Option("Its name in tables and figures [the last part of the path]", "model")] = ""
    teacher: Annotated[str, Option("Name of the model that it was distilled from", "model")] = ""
    architecture: Annotated[str, Option("Its family [the model type of its config]", "model")] = ""
    multilingual: Annotated[bool | None, Option("Whether it is multilingual", "model")] = None


@dataclass(frozen=True)
class StudySettings(Resumable):
    """What `study` takes."""

    example: ClassVar[str] = "residuum study redundancy --scale small --models ./my-bert --data ./data --out redundancy"
    estimates: ClassVar[bool] = True

    name: Annotated[
        StudyName, Argument("similarity, redundancy, transfer-learning, distilled or monolingual", metavar="STUDY")
    ]
    out: RequiredOut
    _: KW_ONLY
    scale: Annotated[
        Literal["sample", "small", "paper"],
        Option("sample data and model (minutes), sizes for two cores, or all of the document"),
    ] = "sample"
    models: Annotated[
        Sequence[Any],
        Option(
            "Model folders or hub names; NAME=MODEL names one", "model", short="-m", metavar="MODEL", identity=False
        ),
    ] = ()
    teachers: Annotated[
        Mapping[str, str] | None,
        Option("Distilled models and their teachers, as STUDENT=TEACHER", "model", identity=False),
    ] = None
    data: Annotated[
        Path | None, Option("Folder with treebanks/, token/, glue/, crosslingual/ and text/", "data", identity=False)
    ] = None
    tasks: Annotated[Sequence[TaskName], Option("Tasks instead of the scale's", "data")] = ()
    treebank: Annotated[str, Option("English treebank in treebanks/", "data")] = "UD_English-EWT"
    test_treebank: Annotated[
        str, Option("Treebank in treebanks/ that distilled tests probes on [the test part of the treebank]", "data")
    ] = ""
    text: Annotated[
        Literal["train", "dev", "test"], Option("Part of the treebank over which layers are compared", "data")
    ] = "dev"
    languages: Annotated[
        Sequence[str],
        Option("Languages besides English, such as tr,sw,ur: targets of monolingual, treebanks of distilled", "data"),
    ] = ()
    examples: Annotated[int | None, Option("Training examples of each sentence task", "data", at_least=1)] = None
    limit: Annotated[int | None, Option("Sentences of each part of a treebank", "data", at_least=1)] = None
    steps: Annotated[
        Sequence[str], Option("Run only these kinds of steps, such as compare,finetune [all]", identity=False)
    ] = ()
    seeds: Annotated[int | None, Option("Random seeds of fine-tuning and probes [those of the scale]", at_least=1)] = (
        None
    )
    seed: Seed = 0
    yes: Annotated[bool, Option("Start the scale paper, which takes days", "where it runs", identity=False)] = False
    device: Device = "auto"

    def check(self) -> None:
        """The scale `sample` has its own data and tasks."""
        if self.scale == "sample":
            names = ("treebank", "test_treebank", "text")
            changed = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(type(self), name)}
            for name, value in {"data": self.data, "tasks": ", ".join(self.tasks), **changed}.items():
                if value:
                    raise SettingError(
                        f"{name} is {value}, but the scale sample uses the sample grammar; choose small."
                    )


@dataclass(frozen=True)
class DemoSettings(Resumable):
    """What `demo` takes."""

    example: ClassVar[str] = "residuum demo --out demo"

    out: Annotated[Path, Option("Folder to write", "output", short="-o", identity=False, parse=local_folder)] = Path(
        "demo"
    )
