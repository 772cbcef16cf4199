"""The settings of adapt and evaluate adapted."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal

from residuum.errors import SettingError
from residuum.settings import Argument, Device, Limit, Option, Out, Resumable, Seed, Seeds, Settings, setting_fields


@dataclass(frozen=True, kw_only=True)
class AdaptationTraining(Settings):
    """How a task is learnt, from the source language and from few examples of a target language.

    Defaults are those of the thesis (table 4.2, sections 4.2.2 and 4.2.3). `by_length` is not: it is faster, and the
    thesis draws batches from all examples.
    """

    epochs: Annotated[float | None, Option("Training epochs [10 for xnli, 20 for others]", above=0)] = None
    batch_size: Annotated[int, Option("Examples per step", at_least=1)] = 64
    learning_rate: Annotated[
        float | None, Option("Learning rate of AdamW [2e-5 for full-source and full-target, 1e-4 for others]", above=0)
    ] = None
    warmup: Annotated[float, Option("Warm-up, as a fraction of the steps or, from 1, in steps", at_least=0)] = 0.1
    weight_decay: Annotated[float, Option("Weight decay of matrices; biases and norms have none", at_least=0)] = 0.05
    clip: Annotated[float | None, Option("Maximum gradient norm", above=0)] = 1.0
    accumulation: Annotated[int, Option("Batches per step", at_least=1)] = 1
    by_length: Annotated[bool, Option("Group batches by length to reduce padding")] = True
    precision: Annotated[Literal["float32", "bfloat16", "float16"], Option("Precision of training")] = "float32"
    max_length: Annotated[int | None, Option("Maximum tokens per example", at_least=8)] = 128
    checkpoint: Annotated[
        Literal["best", "last"], Option("Weights to keep: best on the source language's development part, or last")
    ] = "best"
    reduction: Annotated[int, Option("Layer width divided by adapter width", at_least=1)] = 16
    rank: Annotated[int, Option("Rank of LoRA's updates", at_least=1)] = 8
    few_shot_epochs: Annotated[float, Option("Epochs on the few-shot examples", above=0)] = 50.0
    few_shot_batch_size: Annotated[int, Option("Few-shot examples per step", at_least=1)] = 32
    few_shot_learning_rate: Annotated[float, Option("Learning rate on the few-shot examples", above=0)] = 2e-5


@dataclass(frozen=True, kw_only=True)
class TransferFiles(Settings):
    """Files of a task that are not found in the data folder by their names."""

    source_language: Annotated[str, Option("Language to learn from", group="data", identity=False)] = "en"
    train: Annotated[
        Any,
        Option("Training file of the source language, or a folder of splits", "data", metavar="FILE", identity=False),
    ] = None
    dev: Annotated[Any, Option("Development file of the source language", "data", metavar="FILE", identity=False)] = (
        None
    )
    target_train: Annotated[
        Any,
        Option(
            "File that few-shot examples are drawn from, with one target language",
            "data",
            metavar="FILE",
            identity=False,
        ),
    ] = None
    target_dev: Annotated[
        Any, Option("Development file, with one target language", "data", metavar="FILE", identity=False)
    ] = None
    target_test: Annotated[
        Any, Option("Test file, with one target language", "data", metavar="FILE", identity=False)
    ] = None
    limit: Limit = None


@dataclass(frozen=True)
class AdaptSettings(AdaptationTraining, TransferFiles, Resumable):
    """What `adapt` takes."""

    example: ClassVar[str] = "residuum adapt students/en xnli/ --task xnli --target tr=students/tr --out runs/xnli"

    source: Annotated[Any, Argument("Student of the source language, or a multilingual model")]
    data: Annotated[Any, Argument("Folder with files such as train-en.tsv, dev-tr.tsv and test-tr.tsv")] = None
    task: Annotated[
        Any,
        Option(
            "xnli, wikiann, xcopa, or another task: ner, upos, sentence, choice, mnli, …",
            group="data",
            required=True,
            identity=False,
        ),
    ] = None
    out: Out = None
    _: KW_ONLY
    target: Annotated[
        Any | tuple[str, ...],
        Option(
            "Student of each target language [the source model serves as both]",
            group="model",
            metavar="LANGUAGE=MODEL",
            identity=False,
        ),
    ] = None
    language: Annotated[
        tuple[str, ...], Option("Target languages, where --target does not name them", group="data", identity=False)
    ] = ()
    strategy: Annotated[
        tuple[str, ...],
        Option(
            "all, or some of full-source, full-target, freeze+0 (+2, +4, …), adapter-source, adapter-target, "
            "adapter-joint, bitfit-source, bitfit-target, bitfit-joint, sparse-delta; beyond the thesis lora-source, "
            "lora-target, lora-joint",
            identity=False,
        ),
    ] = ("full-target",)
    teacher: Annotated[
        Any, Option("Model fine-tuned on the task, for task distillation", group="model", identity=False)
    ] = None
    keep_layers: Annotated[
        str | None, Option("Layers to keep of the models: top:6, bottom:6, alternate or 1,4-6", "model", identity=False)
    ] = None
    few_shot: Annotated[
        tuple[int, ...], Option("Numbers of target examples to tune on afterwards, such as 10,100,500", at_least=1)
    ] = ()
    draws: Annotated[int, Option("Number of random few-shot samples per size", at_least=1)] = 3
    save_few_shot: Annotated[bool, Option("Write few-shot models too", group="output", identity=False)] = False
    seeds: Seeds = 1
    seed: Seed = 0
    device: Device = "auto"

    def check(self) -> None:
        """What is needed in Python too, and numbers that differ."""
        for name in ("task", "out"):
            if getattr(self, name) is None:
                raise SettingError(f"{name} is missing; adapt needs a task and a folder to write.")
        if len(set(self.few_shot)) < len(self.few_shot):
            raise SettingError(f"few_shot is {', '.join(map(str, self.few_shot))}; expected different numbers.")

    def training_identity(self) -> dict[str, Any]:
        """How a task is learnt, as a run's config has it."""
        return {setting.name: getattr(self, setting.name) for setting in setting_fields(AdaptationTraining)}


@dataclass(frozen=True)
class AdaptedSettings(Resumable):
    """What `evaluate adapted` takes."""

    example: ClassVar[str] = "residuum evaluate adapted runs/xnli/full-target/tr/seed-0 test-tr.tsv --out scores"

    folder: Annotated[Any, Argument("Folder of a strategy that `adapt` wrote, such as runs/xnli/full-target/tr/seed-0")]
    data: Annotated[Any, Argument("Labelled file of the same task, in any language")]
    out: Out = None
    _: KW_ONLY
    student: Annotated[
        Any, Option("Student to put the change into, where the folder serves several", group="model", identity=False)
    ] = None
    limit: Limit = None
    device: Device = "auto"
