"""The settings of the training loop, of `finetune` and of `pretrain`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from residuum.errors import SettingError
from residuum.settings import (
    Argument,
    Device,
    Limit,
    Option,
    Out,
    Publishing,
    Resumable,
    Seed,
    Settings,
    TableReading,
    as_bytes,
    from_mapping,
)

Schedule = Literal["linear", "cosine", "constant"]
Precision = Literal["float32", "bfloat16", "float16"]
LearningRate = Annotated[float, Option("Learning rate of AdamW", at_least=0)]
ScheduleOption = Annotated[Schedule, Option("How the learning rate falls after the warm-up")]
Warmup = Annotated[float, Option("Warm-up: below 1 a fraction of all steps, from 1 a number of steps", at_least=0)]
WeightDecay = Annotated[float, Option("Weight decay of matrices; biases and norms are not decayed", at_least=0)]
Clip = Annotated[float | None, Option("Bound of the gradient norm", above=0)]
Accumulation = Annotated[int, Option("Batches per step on each process", at_least=1)]
PrecisionOption = Annotated[Precision, Option("Precision of the computation", group="where it runs")]
CheckpointEvery = Annotated[int, Option("Steps between checkpoints", group="output", at_least=1, identity=False)]
ReportTo = Annotated[
    tuple[str, ...],
    Option("Trackers of Accelerate, such as tensorboard or wandb", group="output", identity=False),
]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """How the loop trains; pass either `steps` or `epochs`.

    A step takes `accumulation` batches on every process and updates the weights once. The learning rate rises
    linearly over `warmup`, then follows `schedule`. `clip` bounds the norm of the whole gradient (None: no bound).
    Checkpoints, evaluations and rows of the history come every so many steps, and at the end. With `best_score`, the
    checkpoint with the best value of that score is kept beside the last one.
    """

    steps: Annotated[int | None, Option("Training steps", at_least=1)] = None
    epochs: Annotated[float | None, Option("Passes over the training data", above=0)] = None
    learning_rate: LearningRate = 2e-4
    schedule: ScheduleOption = "linear"
    warmup: Warmup = 0.1
    weight_decay: WeightDecay = 0.01
    betas: Annotated[tuple[float, float], Option("Decay rates of AdamW's moments", at_least=0, below=1)] = (0.9, 0.999)
    epsilon: Annotated[float, Option("Epsilon of AdamW", at_least=0)] = 1e-8
    clip: Clip = 1.0
    accumulation: Accumulation = 1
    precision: PrecisionOption = "float32"
    seed: Seed = 0
    checkpoint_every: CheckpointEvery = 500
    evaluate_every: Annotated[int | None, Option("Steps between evaluations", at_least=1)] = None
    log_every: Annotated[int, Option("Steps between rows of the history", at_least=1)] = 10
    best_score: Annotated[str | None, Option("Score whose best checkpoint is kept")] = None
    lower_is_better: Annotated[bool, Option("Whether a lower best_score is better")] = False
    patience: Annotated[
        int | None, Option("Stop after so many evaluations without a better best_score [never]", at_least=1)
    ] = None
    keep_checkpoints: Annotated[
        int, Option("Number of last checkpoints to keep, beside the best", group="output", at_least=1, identity=False)
    ] = 1
    report_to: ReportTo = ()

    def check(self) -> None:
        """Steps or epochs; a best score needs evaluations."""
        if (self.steps is None) == (self.epochs is None):
            raise SettingError(f"steps is {self.steps} and epochs is {self.epochs}; pass exactly one of them.")
        if self.best_score is not None and self.evaluate_every is None:
            raise SettingError(f"best_score is {self.best_score!r}, but evaluate_every is not set.")
        if self.patience is not None and self.best_score is None:
            raise SettingError(f"patience is {self.patience}, but best_score is not set: nothing says what is better.")

    def total_steps(self, batches_per_epoch: float | None, processes: int) -> int:
        """The number of steps; an epoch counts the batches of all processes."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        if batches_per_epoch is None:
            raise SettingError(f"epochs is {self.epochs}, but the text is a stream of unknown length; pass steps.")
        return max(1, math.ceil(self.epochs * batches_per_epoch / (self.accumulation * processes)))


@dataclass(frozen=True, kw_only=True)
class LearningSettings(Settings):
    """How a task is learnt; the defaults are those of Wu et al. (2020, appendix D) and of transformers."""

    epochs: Annotated[float, Option("Passes over the training part", above=0)] = 3.0
    batch_size: Annotated[int, Option("Examples per batch", at_least=1)] = 8
    learning_rate: LearningRate = 5e-5
    schedule: ScheduleOption = "linear"
    warmup: Warmup = 0.0
    weight_decay: WeightDecay = 0.0
    clip: Clip = 1.0
    accumulation: Accumulation = 1
    precision: PrecisionOption = "float32"
    evaluate_every: Annotated[int | None, Option("Steps between development scores [once per epoch]", at_least=1)] = (
        None
    )
    checkpoint_every: CheckpointEvery = 500
    by_length: Annotated[bool, Option("Group batches by length to reduce padding")] = True
    report_to: ReportTo = ()

    def for_training(self, per_epoch: float, best_score: str, seed: int, processes: int = 1) -> TrainingSettings:
        """The settings of the training loop for `per_epoch` batches that some processes share."""
        shared = ("epochs", "learning_rate", "schedule", "warmup", "weight_decay", "clip", "accumulation")
        shared += ("precision", "checkpoint_every", "report_to")
        return TrainingSettings(
            **{name: getattr(self, name) for name in shared},
            seed=seed,
            evaluate_every=self.evaluate_every or max(1, math.ceil(per_epoch / (self.accumulation * processes))),
            best_score=best_score,
            lower_is_better=best_score == "mean_squared_error",
        )


@dataclass(frozen=True)
class FinetuneSettings(LearningSettings, TableReading, Publishing, Resumable):
    """What `finetune` takes."""

    example: ClassVar[str] = "residuum finetune bert-base-cased glue/SST-2 --task sst2 --seeds 3 --out runs/sst2"

    model: Annotated[Any, Argument("Model folder or hub name")]
    data: Annotated[Any, Argument("Folder of splits, file or hub name [GLUE tasks: from the hub]")] = None
    task: Annotated[
        Any,
        Option(
            "cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte; upos, chunk, ner or other word labels; sentence, regression "
            "or choice for your own table",
            group="data",
            required=True,
            identity=False,
        ),
    ] = None
    out: Out = None
    _: KW_ONLY
    dev: Annotated[Any, Option("Development part, if DATA is the training part", group="data", identity=False)] = None
    test: Annotated[Any, Option("Test part, if DATA is the training part", group="data", identity=False)] = None
    limit: Limit = None
    freeze: Annotated[
        str | None,
        Option("Frozen layers: bottom:6 (with the embeddings), top:4, embeddings or 1,4-6; join with +", group="model"),
    ] = None
    drop: Annotated[
        str | None, Option("Layers to drop before training: top:6, bottom:6, alternate or 1,4-6", group="model")
    ] = None
    max_length: Annotated[int | None, Option("Maximum tokens per example", group="data", at_least=8)] = 128
    seeds: Annotated[int | tuple[int, ...], Option("Number of models, one per random seed", identity=False)] = 1
    seed: Annotated[int, Option("First random seed", at_least=0, at_most=2**63 - 1, identity=False)] = 0
    cache: Annotated[bool, Option("Compute the states of a frozen bottom only once", group="where it runs")] = True
    cache_memory: Annotated[
        int,
        Option(
            "GB of these states in memory, at most a quarter of --max-memory; the rest goes to disk [1]",
            group="where it runs",
            metavar="GB",
            at_least=0,
            identity=False,
            parse=as_bytes,
            expects="gigabytes such as 4 or 0.5",
        ),
    ] = 1 << 30
    device: Device = "auto"

    def check(self) -> None:
        """A task and a folder are needed; seeds differ."""
        if self.task is None or self.out is None:
            raise SettingError(
                f"{'task' if self.task is None else 'out'} is not set; finetune needs a task and a folder."
            )
        seeds = self.chosen_seeds()
        if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
            shown = list(self.seeds) if isinstance(self.seeds, tuple) else self.seeds
            raise SettingError(f"seeds is {shown!r}; expected a number from 1, or different whole numbers from 0.")

    def chosen_seeds(self) -> list[int]:
        """So many seeds from the first on, or the listed ones."""
        return list(range(self.seed, self.seed + self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)


@dataclass(frozen=True, kw_only=True)
class PairSource(Settings):
    """Translations: two parallel files, two columns of a table without header, or the sample grammar."""

    languages: Annotated[tuple[str, str], Option("Languages of both sides", group="data")]
    files: Annotated[tuple[str, str] | None, Option("Two parallel files", group="data")] = None
    table: Annotated[str | None, Option("Table without header", group="data")] = None
    columns: Annotated[tuple[int, int], Option("Columns of the table", group="data", at_least=0)] = (0, 1)
    sample: Annotated[int | None, Option("Pairs of the sample grammar", group="data", at_least=1)] = None
    longest: Annotated[
        int | None, Option("Leave out and count pairs with a side of more words", group="data", at_least=1)
    ] = None
    weight: Annotated[float, Option("Sampling weight, beside size to the power of `exponent`", above=0)] = 1.0

    def check(self) -> None:
        """Exactly one source."""
        sources = [name for name in ("files", "table", "sample") if getattr(self, name) is not None]
        if len(sources) != 1:
            named = ", ".join(sources) or "no source"
            raise SettingError(f"pairs have {named}; pass exactly one of files, table, sample.")


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings(Settings):
    """A unigram vocabulary with the special tokens of XLM-R."""

    pieces: Annotated[int, Option("Size of the vocabulary", above=20)] = 10_000
    lines: Annotated[int, Option("Training lines of all languages, sampled by `exponent`", at_least=1)] = 200_000


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(Settings):
    """The architecture and its size."""

    architecture: Annotated[Literal["xlm-roberta", "bert", "gpt2"], Option("Architecture")] = "xlm-roberta"
    layers: Annotated[int, Option("Number of blocks", at_least=1)] = 6
    hidden: Annotated[int, Option("Width of the states", at_least=1)] = 192
    heads: Annotated[int, Option("Attention heads per block", at_least=1)] = 4
    feed_forward: Annotated[int, Option("Width of the feed-forward part", at_least=1)] = 768
    window: Annotated[int, Option("Maximum tokens per sequence", at_least=5)] = 128
    dropout: Annotated[float, Option("Dropout rate", at_least=0, below=1)] = 0.1
    attention_dropout: Annotated[float, Option("Dropout rate of attention; 0 is faster", at_least=0, below=1)] = 0.1

    def check(self) -> None:
        """Heads share the width equally."""
        if self.hidden % self.heads:
            raise SettingError(f"network: hidden {self.hidden} is not a multiple of heads {self.heads}.")


@dataclass(frozen=True, kw_only=True)
class PretrainingObjective(Settings):
    """One objective. `share` is its share of all batches, relative to the other objectives.

    mlm: masked tokens of single sentences; clm: the next token; tlm: masked tokens of a sentence and its translation
    side by side; ranking: each sentence finds its translation among those of the batch, and vice versa, by the cosine
    of mean-pooled states of `layer`, divided by `temperature`.
    """

    kind: Annotated[Literal["mlm", "clm", "tlm", "ranking"], Option("Objective")]
    share: Annotated[float, Option("Share of the batches", above=0)] = 1.0
    batch: Annotated[int, Option("Sentences or pairs per batch", at_least=1)] = 64
    length: Annotated[int, Option("Maximum tokens per sequence", at_least=3)] = 64
    mask: Annotated[float, Option("Fraction of masked tokens", above=0, below=1)] = 0.15
    layer: Annotated[int | None, Option("Layer whose states are ranked", at_least=0)] = None
    temperature: Annotated[float, Option("Temperature of the ranking", above=0)] = 0.05

    def check(self) -> None:
        """Ranking needs a layer and negatives."""
        if (self.kind == "ranking") != (self.layer is not None):
            found = f"kind is {self.kind} and layer is {self.layer}"
            raise SettingError(f"{found}; ranking needs a layer, other objectives have none.")
        if self.kind == "ranking" and self.batch < 2:
            raise SettingError("ranking needs a batch of at least 2 pairs: the others are the negatives.")


@dataclass(frozen=True, kw_only=True)
class RetrievalSet(Settings):
    """Two parallel files; each line of the first searches its translation in the second."""

    files: Annotated[tuple[str, str], Option("Two parallel files", group="data")]


@dataclass(frozen=True, kw_only=True)
class PretrainingEvaluation(Settings):
    """Scores during training: perplexity on held-out sentences and retrieval by each layer."""

    every: Annotated[int, Option("Steps between evaluations", at_least=1)] = 500
    held_out: Annotated[int, Option("Held-out sentences per language", at_least=0)] = 300
    retrieval: Annotated[dict[str, RetrievalSet], Option("Retrieval sets by name")] = field(default_factory=dict)


@dataclass(frozen=True)
class PretrainSettings(Publishing, Resumable):
    """What `pretrain` takes. Paths may hold ${VARIABLES} of the environment and wildcards; .gz and .xz are unpacked."""

    example: ClassVar[str] = "residuum pretrain --config recipes/sample-teacher.yaml --out teacher"
    estimates: ClassVar[bool] = True

    text: Annotated[
        dict[str, tuple[str, ...]],
        Option("Text files per language, one sentence per line", "data", metavar="NAME=FILE"),
    ] = field(default_factory=dict)
    out: Out = None
    _: KW_ONLY
    name: Annotated[str, Option("Name on the model card", group="output")] = "model"
    seed: Seed = 0
    column: Annotated[
        str | None, Option("Column of the text in JSON lines and parquet [text, sentence or content]", group="data")
    ] = None
    sample_text: Annotated[
        int, Option("Sentences of the sample grammar, added to each of its languages", group="data", at_least=0)
    ] = 0
    pairs: Annotated[tuple[PairSource, ...], Option("Translations", group="data", cli=False)] = ()
    exclude: Annotated[
        tuple[str, ...], Option("Files whose lines are left out of all pairs, and counted", group="data")
    ] = ()
    exponent: Annotated[
        float, Option("Sample languages by size to this power: 1 as they are, 0 equally", "data", at_least=0, at_most=1)
    ] = 0.5
    tokenizer: Annotated[TokenizerSettings, Option("Vocabulary", group="model", cli=False)] = TokenizerSettings()
    network: Annotated[NetworkSettings, Option("Architecture", group="model", cli=False)] = NetworkSettings()
    objectives: Annotated[tuple[PretrainingObjective, ...], Option("What is learnt", cli=False)] = ()
    training: Annotated[Any, Option("Steps, learning rate and schedule of the loop", cli=False)] = None
    evaluation: Annotated[PretrainingEvaluation, Option("Scores during training", cli=False)] = PretrainingEvaluation()
    dtype: Annotated[Precision, Option("Precision of the written weights", "output")] = "float32"
    sources: Annotated[tuple[str, ...], Option("Data, licences and attribution for the card", "output", cli=False)] = ()
    as_is: Annotated[
        bool, Option("Write the model of the last checkpoint without further training", "output", identity=False)
    ] = False
    device: Device = "auto"

    def check(self) -> None:
        """Objectives fit the network and the data; the training section becomes the settings of the loop."""
        if self.out is None or not self.text or not self.objectives:
            missing = next(name for name in ("out", "text", "objectives") if not getattr(self, name))
            raise SettingError(f"{missing} is not set; write the settings into a YAML file and pass --config FILE.")
        network = self.network
        for number, objective in enumerate(self.objectives):
            where = f"objectives.{number}"
            if objective.kind in ("tlm", "ranking") and not self.pairs:
                raise SettingError(f"{where}: {objective.kind} needs translations; pass pairs.")
            if objective.kind in (("mlm", "tlm") if network.architecture == "gpt2" else ("clm",)):
                raise SettingError(f"{where}: {objective.kind} does not fit the architecture {network.architecture}.")
            if objective.layer is not None and objective.layer > network.layers:
                raise SettingError(f"{where}: layer {objective.layer} does not exist; there are 0–{network.layers}.")
            if objective.length > network.window:
                raise SettingError(f"{where}: length {objective.length} exceeds the window of {network.window} tokens.")
        if isinstance(self.training, TrainingSettings):
            return
        section = self.training if isinstance(self.training, Mapping) else {}
        for name, place in (("seed", "seed"), ("evaluate_every", "evaluation.every")):
            if name in section:
                raise SettingError(f"training: {name} belongs elsewhere; set {place} instead.")
        section = {**section, "seed": self.seed, "evaluate_every": self.evaluation.every}
        object.__setattr__(self, "training", from_mapping(TrainingSettings, section, "training"))
