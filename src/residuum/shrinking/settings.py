"""The settings of transfer, predict, prune, trim and shrink."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from residuum.errors import SettingError
from residuum.settings import (
    Activations,
    Argument,
    Device,
    MaxLoss,
    Option,
    Out,
    Precision,
    Publishing,
    Resumable,
    Seed,
    Seeds,
    Settings,
    Split,
    TableReading,
    TaskReading,
    TextReading,
    as_bytes,
    layers_text,
)

if TYPE_CHECKING:
    from residuum.maths.probing import ConvergedRecipe, PaperRecipe

STEPS = ("layers", "clusters", "neurons")
"""LayerSelector, correlation clustering and feature selection (Dalvi et al. 2020, §7)."""
BUDGETS = {"layers": "layers", "neurons": "neurons", "bytes": "layers", "ms": "layers", "speedup": "layers"}
"""What a budget can limit, and the step that keeps to it."""
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}

ModelName = Annotated[Any, Argument("Model folder, .gguf file or hub name")]


@dataclass(frozen=True)
class Budget:
    """What may be spent: layers above the embeddings, neurons, bytes of weights, ms per sentence; or a speed-up."""

    kind: str
    amount: float

    @staticmethod
    def parse(text: str) -> Budget:
        """`layers=3`, `neurons=300`, `bytes=60MB`, `ms=2.5` or `speedup=3`."""
        kind, _, amount = text.strip().partition("=")
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMG]?)B?", amount.strip(), re.IGNORECASE)
        if kind not in BUDGETS or match is None or (match[2] and kind != "bytes"):
            raise SettingError(
                f"The budget is {text!r}; expected layers=3, neurons=300, bytes=60MB, ms=2.5 or speedup=3."
            )
        return Budget(kind, float(match[1]) * _UNITS[match[2].lower()])

    @property
    def step(self) -> str:
        """The step that keeps to it."""
        return BUDGETS[self.kind]

    def __str__(self) -> str:
        return f"{self.kind}={self.amount:.12g}"


@dataclass(frozen=True)
class TransferSettings(TaskReading, Publishing, Resumable):
    """What `transfer` takes.

    Layers are chosen so that they lose at most half of 1 − `keep`, neurons so that the product keeps `keep` of the
    score of the oracle, a probe on all neurons of all layers. With `recipe="paper"` everything is chosen with the
    first of `seeds`; what was chosen is trained again with the others, to report a mean and a standard deviation.
    """

    example: ClassVar[str] = "residuum transfer bert-base-cased UD_English-EWT --task upos --out models/tagger"

    model: ModelName
    corpus: Annotated[Any, Argument("Treebank, column file, table, folder of splits or hub name")]
    task: Annotated[Any, Option("Task such as upos, chunk, ner, sst2, stsb, or the name of word labels", group="data")]
    out: Out
    _: KW_ONLY
    steps: Annotated[tuple[Literal["layers", "clusters", "neurons"], ...], Option("Selection steps to take")] = STEPS
    keep: Annotated[float, Option("Share of the oracle's score to keep", above=0, at_most=1)] = 0.99
    speedup: Annotated[float | None, Option("Speed-up to reach, with the best score that allows", above=1)] = None
    budget: Annotated[
        Any, Option("Limit instead of --keep: layers=3, neurons=300, bytes=60MB, ms=2.5", parse=Budget.parse)
    ] = None
    thresholds: Annotated[tuple[float, ...], Option("Clustering thresholds to try", above=0, below=1)] = (0.3, 0.5, 0.7)
    representatives: Annotated[Literal["random", "medoid", "first"], Option("Neuron that represents its cluster")] = (
        "medoid"
    )
    pooling: Annotated[Literal["last", "first", "mean", "max"], Option("How sub-words make a word")] = "last"
    position: Annotated[Literal["auto", "cls", "last", "mean", "all"], Option("Token that represents a sentence")] = (
        "auto"
    )
    penalty: Annotated[tuple[float, float] | None, Option("λ1,λ2 of the elastic net [chosen on dev]", at_least=0)] = (
        None
    )
    recipe: Annotated[Any, Option("converged, or paper: Adam as in the papers", metavar="converged|paper")] = (
        "converged"
    )
    save_as: Annotated[
        Literal["residuum", "transformers"],
        Option("residuum: neurons of several layers; transformers: one layer, for pipeline()", group="output"),
    ] = "residuum"
    trim: Annotated[bool, Option("Keep only the embeddings of tokens that the training texts use")] = False
    narrow: Annotated[bool, Option("Measure the model without hidden dimensions that no neuron needs too")] = False
    onnx: Annotated[bool, Option("Write model.onnx too, checked against the model", group="output")] = False
    random_twin: Annotated[
        bool, Option("Score the random twin too: same architecture, random weights; it reads the corpus once more")
    ] = False
    activations: Activations = None
    seed: Seed = 0
    seeds: Seeds = 1

    def check(self) -> None:
        """The budget needs the step that keeps to it."""
        if not self.steps or not self.thresholds:
            raise SettingError(f"No {'step' if not self.steps else 'threshold'} was given; expected at least one.")
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise SettingError(f"The budget is {self.budget!r}; expected text such as neurons=300.")
        if self.budget is not None and self.speedup is not None:
            raise SettingError(f"The budget is {self.budget} and the speed-up {self.speedup:g}; give one of them.")
        if isinstance(self.recipe, str) and self.recipe not in ("converged", "paper"):
            raise SettingError(f"recipe is {self.recipe!r}; expected converged or paper.")
        if self.seeds > 1 and self.recipe == "converged":
            raise SettingError(f"seeds is {self.seeds}; converged probes have no seed. Pass recipe paper, or one seed.")
        if self.one_layer and (self.pooling not in ("last", "first") or self.position not in ("auto", "cls")):
            raise SettingError(
                f"pooling is {self.pooling} and position is {self.position}; models of transformers classify a word by "
                "its first token and a sentence by [CLS]. Leave both out, or use --save-as residuum."
            )
        budget = self.allowance
        if budget is not None and budget.step not in self.steps:
            raise SettingError(
                f"The budget {budget} is kept by the step {budget.step!r}, which is left out; take that step too, or "
                "give no budget."
            )
        if budget is not None and budget.kind == "neurons" and budget.amount < 1:
            raise SettingError(f"The budget {budget} cannot be reached: the nearest is neurons=1.")

    @property
    def layer_keep(self) -> float:
        """The share of the oracle's score that the chosen layers keep: half of the loss is left to the neurons."""
        return 1 - (1 - self.keep) / 2

    @property
    def one_layer(self) -> bool:
        """Whether all neurons must be of one layer, as the heads of transformers have them."""
        return self.save_as == "transformers"

    @property
    def allowance(self) -> Budget | None:
        """The budget, or the speed-up as one."""
        return self.budget if self.speedup is None else Budget("speedup", self.speedup)

    def limit_of(self, kind: str) -> float | None:
        """The budget's amount if it is of this kind."""
        return self.allowance.amount if self.allowance is not None and self.allowance.kind == kind else None

    def probe_recipe(self) -> ConvergedRecipe | PaperRecipe:
        """The recipe of the probes."""
        from residuum.maths.probing import ConvergedRecipe, PaperRecipe

        named = {"converged": ConvergedRecipe, "paper": PaperRecipe}
        return named[self.recipe]() if isinstance(self.recipe, str) else self.recipe


@dataclass(frozen=True)
class PredictSettings(Settings):
    """What `predict` takes."""

    example: ClassVar[str] = "residuum predict models/tagger < texts.txt"

    folder: Annotated[Any, Argument("Folder that `transfer` wrote", metavar="DIR")]
    texts: Annotated[Any, Option("Texts; on the command line, the lines of standard input", cli=False)] = None
    _: KW_ONLY
    batch_size: Annotated[
        int, Option("Texts per batch; 1 answers every line at once", group="where it runs", at_least=1)
    ] = 32
    device: Device = "auto"
    max_memory: Annotated[
        int | None,
        Option("Memory limit in GB", "where it runs", metavar="GB", at_least=0, parse=as_bytes, expects="gigabytes"),
    ] = None

    def check(self) -> None:
        """Texts are a list: of one text the letters would be labelled."""
        if self.texts is not None and (isinstance(self.texts, str | bytes) or not isinstance(self.texts, Iterable)):
            raise SettingError(f"texts is {self.texts!r:.80}; expected a list of texts.")


HealSteps = Annotated[int, Option("Healing steps: training of the cut model by the original; 0: none", at_least=0)]
By = Literal["cka", "angular", "influence", "fidelity", "perplexity", "probe"]
Pairs = Annotated[
    Any,
    Option(
        "Translations to heal with too: a folder, table or common stem of two files, as in evaluate retrieval",
        group="data",
    ),
]


Heads = Annotated[
    float | None, Option("Share of the attention heads to keep (Llama and Qwen models)", above=0, at_most=1)
]
Merge = Annotated[bool, Option("Average dropped layers into the nearest kept one")]


@dataclass(frozen=True, kw_only=True)
class Healing(Settings):
    """How a model that was cut learns from the original on plain text."""

    heal: HealSteps = 0
    heal_batch: Annotated[int, Option("Lines per healing step", at_least=1)] = 32
    heal_rate: Annotated[float | None, Option("Learning rate of healing [0.12 / hidden size]", above=0)] = None
    heal_precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Option("Precision of healing; auto: bfloat16 where the device multiplies it", group="where it runs"),
    ] = "auto"


@dataclass(frozen=True)
class PruneSettings(Healing, TableReading, Publishing, Resumable):
    """What `prune` takes.

    By position, `drop` or `keep` names layers: `top:6`, `bottom:6`, `alternate` or a list such as `1,4-6` (the
    embeddings, layer 0, always stay). By measurement, it is how many. `ffn` and `heads` are the shares that stay in
    every block. With a `corpus`, what is lost is measured on every fifth of its lines, which only cka, angular
    and probe read, too.
    """

    example: ClassVar[str] = "residuum prune bert-base-cased --drop top:6 --out models/bert-6"

    model: ModelName
    out: Out
    _: KW_ONLY
    drop: Annotated[
        Any,
        Option(
            "Layers to drop: top:6, bottom:6, alternate or 1,4-6; with --by: how many",
            expects="top:6, bottom:6, alternate or 1,4-6",
            form=layers_text,
        ),
    ] = None
    keep: Annotated[
        Any,
        Option("Layers to keep instead, written the same way", expects="top:6 or numbers", form=layers_text),
    ] = None
    by: Annotated[
        By | None,
        Option(
            "Measure: output most like input (cka), least rotation (angular: neighbours; influence: one by one), least "
            "change of sentence vectors (fidelity), of perplexity, or least gain of a probe"
        ),
    ] = None
    iterative: Annotated[bool, Option("With --by: drop one layer at a time and measure again")] = False
    merge: Merge = False
    ffn: Annotated[float | None, Option("Share of the feed-forward neurons to keep", above=0, at_most=1)] = None
    heads: Heads = None
    compensate: Annotated[
        bool, Option("Fit the second feed-forward map of every kept layer to the original's states, by least squares")
    ] = False
    corpus: Annotated[Any, Option("Text to measure and heal on", group="data", identity=False)] = None
    task: Annotated[str | None, Option("Task of the probe, with --by probe", group="data")] = None
    split: Split = None
    limit: Annotated[int | None, Option("Read only the first N sentences", group="data", at_least=1)] = None
    max_loss: MaxLoss = 0.0
    seed: Seed = 0
    device: Device = "auto"
    precision: Precision = "float32"

    def check(self) -> None:
        """One way to choose, and all that it needs."""
        narrower = self.ffn is not None or self.heads is not None
        if self.drop is None and self.keep is None and not narrower:
            raise SettingError("prune needs drop= or keep=, and with by= the number of layers; or ffn= or heads=.")
        if self.drop is not None and self.keep is not None:
            raise SettingError(f"drop is {self.drop!r} and keep is {self.keep!r}; give exactly one of them.")
        if self.corpus is None:
            measured = [name for name in ("by", "ffn", "heads") if getattr(self, name) is not None]
            measured += [name for name in ("compensate", "heal") if getattr(self, name)]
            if measured:
                raise SettingError(f"{measured[0]} is {getattr(self, measured[0])!r}, which needs text; give a corpus.")
            given = [name for name in ("task", "split", "limit") if getattr(self, name) is not None]
            if given:
                raise SettingError(f"A {' and '.join(given)} is given, but no text; give a corpus, or leave it out.")
        if self.by is not None and self.drop is None and self.keep is None:
            raise SettingError(f"by is {self.by!r}, which chooses layers; pass drop= or keep= with their number.")
        if self.heal and self.precision != "float32":
            raise SettingError(f"precision is {self.precision}, but healing trains in float32; leave one of them out.")
        if self.iterative and self.by is None:
            raise SettingError("iterative measures again after each layer; pass by= too.")
        if (self.task is None) == (self.by == "probe"):
            problem = (
                "needs a task whose labels are in the corpus" if self.by == "probe" else "uses no task; leave it out"
            )
            raise SettingError(f"task is {self.task!r}; by {self.by!r} {problem}.")
        if self.task is not None and self.split is not None:
            raise SettingError(
                f"split is {self.split}; a probe learns from one part and is scored on another: give all."
            )


def as_count(text: str) -> int:
    """`20M`, `1.5G` or `300000` as a number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)", text.strip().lower())
    if match is None:
        raise ValueError(text)
    return int(float(match[1]) * _UNITS[match[2]])


@dataclass(frozen=True)
class ShrinkSettings(Healing, Publishing, Resumable):
    """What `shrink` takes.

    One limit says how small the model gets. `keep` is the share of quality that the plan must keep before healing:
    fidelity of sentence vectors, or the original's perplexity divided by that of the smaller model. Blocks and
    feed-forward neurons are planned together for `speedup`, `parameters` and `keep`; `layers` cuts blocks alone.
    """

    example: ClassVar[str] = "residuum shrink thenlper/gte-small --text lines.txt --layers 6 --out models/gte-6"

    model: ModelName
    text: Annotated[
        Any,
        Option("Text to plan, heal and judge on, one sentence per line: file, folder or hub name", "data",
               identity=False, required=True),
    ] = None  # fmt: skip
    out: Out = None
    _: KW_ONLY
    speedup: Annotated[float | None, Option("Speed-up to reach in batches of 32", above=1)] = None
    parameters: Annotated[
        int | None, Option("Parameters to stay below, such as 20M", at_least=1, parse=as_count, expects="a number, 20M")
    ] = None
    layers: Annotated[int | None, Option("Layers to keep", at_least=1)] = None
    keep: Annotated[float | None, Option("Share of the quality to keep before healing", above=0, below=1)] = None
    ffn: Annotated[
        float | None, Option("Share of the feed-forward neurons to keep [all, or as planned]", above=0, at_most=1)
    ] = None
    heads: Heads = None
    trim: Annotated[bool, Option("Keep only the vocabulary that the text uses")] = False
    by: Annotated[
        Literal["auto", "influence", "angular", "cka", "fidelity", "perplexity"],
        Option(
            "How blocks are chosen; auto: by fidelity or perplexity step by step, or by influence if that is better"
        ),
    ] = "auto"
    merge: Merge = False
    compensate: Annotated[
        bool, Option("Fit the second feed-forward map of every kept layer to the original's states before healing")
    ] = True
    heal: HealSteps = 1000
    pairs: Pairs = None
    task: Annotated[str | None, Option("Task to judge on, such as stsb", group="data")] = None
    data: Annotated[Any, Option("Data of the task: folder of splits, file or hub name", "data", identity=False)] = None
    limit: Annotated[int | None, Option("Read only the first N lines of the text", group="data", at_least=1)] = None
    onnx: Annotated[bool, Option("Write model.onnx too, checked against the model", group="output")] = False
    seed: Seed = 0
    device: Device = "auto"

    def check(self) -> None:
        """Text, a folder and exactly one limit; data for a task."""
        for name in ("text", "out"):
            if getattr(self, name) is None:
                raise SettingError(f"{name} is not set; shrink needs text to measure on and a folder to write.")
        given = [name for name in ("speedup", "parameters", "layers", "keep") if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"Found {' and '.join(given)}" if given else "shrink needs a target"
            raise SettingError(f"{found}; pass exactly one of speedup, parameters, layers and keep.")
        if (self.task is None) != (self.data is None):
            raise SettingError(f"task is {self.task} and data is {self.data}; a task needs its data, and data a task.")


@dataclass(frozen=True)
class TrimSettings(TextReading, Publishing, Resumable):
    """What `trim` takes."""

    example: ClassVar[str] = "residuum trim xlm-roberta-base turkish.txt --out models/xlmr-tr"

    model: ModelName
    texts: Annotated[tuple[Any, ...], Argument("Texts whose tokens are kept: files, folders or hub names")]
    out: Out
    _: KW_ONLY
    minimum: Annotated[int, Option("Keep tokens that occur at least this often", at_least=1)] = 1
    precision: Precision = "float32"
