"""The settings of the commands that probe: probe, rank, redundancy, ablate, describe, diff and probe-languages."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from residuum.errors import SettingError
from residuum.settings import (
    LAYERS,
    Activations,
    Argument,
    Device,
    Execution,
    Layers,
    Limit,
    MaxLoss,
    Option,
    Out,
    Seed,
    Seeds,
    Settings,
    Split,
    TableReading,
    TaskReading,
    layer_numbers,
)

if TYPE_CHECKING:
    from residuum.maths.probing import ProbeRecipe

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The clustering thresholds of Dalvi et al. (2020)."""
LANGUAGE_THRESHOLDS = (0.0, *THRESHOLDS, 0.95)
"""Clustering thresholds of the study of multilingual models (tables B.1 and B.2); 0 keeps all neurons."""
MEASURES = ("neuron", "svcca", "cka", "attention_pearson", "attention_cka")
"""Single neurons and directions (whose difference is the localization), layers, heads, and attention as a whole.

`attention_js` (figure 6 of Wu et al. 2020) takes fifty times as long as `attention_pearson`.
"""

METHODS = ("forward", "discriminant", "lca", "probeless", "gaussian", "iou", "mean_difference", "random")
"""The orders of neurons; the first is the default."""
SHARES = (0.01, 0.05, 0.1, 0.2)
"""Fractions of neurons in the top and bottom sets; Durrani et al. (2021) take 5 % and 10 %."""
CLUSTERINGS = {"average": "average linkage", "kmeans": "k-means", "dbscan": "DBSCAN"}
"""How neurons are clustered, and what each way is called in tables."""
ModelOrStore = Annotated[Any, Argument("Model folder or hub name, or activation store(s)", metavar="MODEL")]
LabelledCorpus = Annotated[Any, Argument("Labelled corpus, or folder of train, dev and test parts", metavar="CORPUS")]
ModelSource = Annotated[Any, Argument("Model folder or hub name", metavar="MODEL")]
CorpusSource = Annotated[Any, Argument("Treebank, column file, table, folder of splits or hub name", metavar="CORPUS")]
TaskName = Annotated[
    Any,
    Option(
        "Task: upos, xpos, deprel, chunk, a UD feature, sst2, …", "data", "-t", "TASK", identity=False, required=True
    ),
]
Shares = Annotated[
    tuple[float, ...], Option("Shares of neurons in the top and bottom sets", above=0, at_most=0.5, metavar="X,…")
]


By = Annotated[
    Literal["forward", "lca"], Option("Order of neurons: forward selection, or the weights of the probe (lca)")
]
Keep = Annotated[float, Option("Share of the score of all neurons that is sufficient", above=0, at_most=1)]
RandomTwin = Annotated[
    bool | None,
    Option("Probe the random twin too: same architecture, random weights", group="model", identity=False),
]
TwinStores = Annotated[
    Any, Option("Stores of the random twin, where activations are given", group="model", identity=False, cli=False)
]


def arguments(model: Any, corpus: Any, *, store: bool = True) -> str:
    """Model and corpus as the next command takes them; MODEL where it needs a model and activations were given."""
    paths = [os.fspath(source) if isinstance(source, str | os.PathLike) else None for source in (model, corpus)]
    if paths[0] is not None and not store and (Path(paths[0]) / "manifest.json").exists():
        paths[0] = None
    return " ".join(
        name if source is None else quote(source) for source, name in zip(paths, ("MODEL", "CORPUS"), strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class ProbeTraining(Settings):
    """How probes are trained: solved to convergence, or with the papers' Adam protocol."""

    recipe: Annotated[
        Literal["converged", "paper"],
        Option("converged: the one solution of the convex problem; paper: Adam for some epochs, several seeds"),
    ] = "converged"
    penalty: Annotated[
        tuple[float, float] | None,
        Option("L1 and L2 penalty, such as 0,0.01 [chosen on dev; paper: 1e-5,1e-5]", at_least=0),
    ] = None
    seeds: Seeds = 3
    epochs: Annotated[int, Option("Probe epochs (paper)", at_least=1)] = 10
    batch_size: Annotated[int, Option("Examples per batch (paper)", at_least=1)] = 128
    learning_rate: Annotated[float, Option("Probe learning rate (paper)", above=0)] = 1e-3
    norm: Annotated[
        Literal["squared", "published"], Option("L2 penalty: squared as written, or as in the papers' code (paper)")
    ] = "squared"
    standardize: Annotated[bool, Option("Scale neurons to mean 0 and deviation 1 first (paper)")] = False
    seed: Seed = 0

    def probe_recipe(self) -> ProbeRecipe:
        """The recipe that the settings describe."""
        from residuum.maths.probing import ConvergedRecipe, PaperRecipe

        if self.recipe == "converged":
            return ConvergedRecipe()
        return PaperRecipe(self.epochs, self.batch_size, self.learning_rate, self.norm, self.standardize)

    @property
    def probes_in_words(self) -> str:
        """What the scores come from: converged probes, or the number of seeds of the papers' recipe."""
        if self.recipe == "converged":
            return "converged probes"
        return "1 probe seed, others may differ" if self.seeds == 1 else f"{self.seeds} probe seeds"


@dataclass(frozen=True)
class ProbeSettings(Execution, TaskReading, ProbeTraining):
    """What `probe` takes."""

    example: ClassVar[str] = "residuum probe bert-base-cased UD_English-EWT --task upos --out runs/upos"

    model: ModelOrStore
    data: LabelledCorpus
    task: TaskName = "labels"
    out: Out = None
    _: KW_ONLY
    layers: Layers = "all"
    keep: Keep = 0.99
    subsets: Annotated[bool, Option("Probe subsets of layers too: halves, alternate layers, …")] = True
    quick: Annotated[bool, Option("Closed-form probes from second moments (LDA, ridge): a first look")] = False
    random_twin: RandomTwin = None
    twin_stores: TwinStores = None
    description_length: Annotated[bool, Option("Measure the bits that the labels cost given each layer")] = False
    activations: Activations = None


@dataclass(frozen=True)
class RankSettings(Execution, TaskReading, ProbeTraining):
    """What `rank` takes."""

    example: ClassVar[str] = "residuum rank bert-base-cased UD_English-EWT --task upos --out runs/neurons"

    model: ModelOrStore
    data: LabelledCorpus
    task: TaskName = "labels"
    out: Out = None
    _: KW_ONLY
    layers: Layers = "all"
    methods: Annotated[Sequence[str], Option(f"Orders of neurons: {', '.join(METHODS)}")] = METHODS
    by: Annotated[str, Option("Order that the minimal set and the cards follow")] = METHODS[0]
    shares: Annotated[
        Sequence[float], Option("Fractions of neurons in the top and bottom sets", above=0, at_most=0.5)
    ] = SHARES
    keep: Keep = 0.99
    random_orders: Annotated[int, Option("Random orders to compare with", at_least=2)] = 3
    lca_penalty: Annotated[
        tuple[float, float], Option("L1 and L2 penalty of the probe whose weights rank neurons (lca)", at_least=0)
    ] = (1e-3, 1e-2)
    sample: Annotated[int, Option("Words for the gaussian and iou orders", at_least=2)] = 20_000
    neurons: Annotated[Sequence[str], Option("Neurons that get a card, such as 3:17,5:2 [first of the order]")] = ()
    cards: Annotated[int, Option("Number of neurons that get a card", at_least=0)] = 10
    random_twin: RandomTwin = False
    twin_stores: TwinStores = None
    activations: Activations = None

    def check(self) -> None:
        """Refuse orders that do not exist."""
        unknown = [name for name in (*self.methods, self.by) if name not in METHODS]
        if unknown or not self.methods:
            raise SettingError(
                f"There is no order of neurons {', '.join(unknown) or 'given'}; choose from {', '.join(METHODS)}."
            )
        if not self.shares:
            raise SettingError("shares is empty; expected numbers above 0 and at most 0.5.")


@dataclass(frozen=True)
class RedundancySettings(Execution, TaskReading, ProbeTraining):
    """What `redundancy` takes."""

    example: ClassVar[str] = "residuum redundancy bert-base-cased UD_English-EWT --task upos --out runs/redundancy"

    model: ModelOrStore
    data: Annotated[
        Any, Argument("Text that a model reads, with the labels of a task if there is one", metavar="CORPUS")
    ] = None
    task: Annotated[
        Any,
        Option("Also find what this task needs: upos, chunk, sst2, …", group="data", short="-t", identity=False),
    ] = None
    out: Out = None
    _: KW_ONLY
    layers: Layers = "all"
    thresholds: Annotated[
        Sequence[float], Option("Clustering thresholds on 1 − |correlation|, ascending", at_least=0, at_most=1)
    ] = THRESHOLDS
    representatives: Annotated[Literal["random", "medoid", "first"], Option("Neuron kept per cluster")] = "random"
    clusters: Annotated[Literal["average", "kmeans", "dbscan"], Option("Clustering; kmeans and dbscan are slow")] = (
        "average"
    )
    keep: Keep = 0.99
    keep_layers: Annotated[
        float, Option("Share of the score of all neurons that is sufficient for one layer", above=0, at_most=1)
    ] = 0.99
    by: Annotated[str, Option(f"Order that minimal sets follow: {', '.join(METHODS)}")] = METHODS[0]
    focus: Annotated[float, Option("Threshold whose clusters are drawn", at_least=0, at_most=1)] = 0.3
    pictures: Annotated[int, Option("Number of clusters that are drawn", at_least=0)] = 3
    agreement: Annotated[
        Sequence[float],
        Option("Thresholds at which k-means and DBSCAN cluster too (slow), such as 0.3,0.7", at_least=0, at_most=1),
    ] = ()
    random_twin: RandomTwin = False
    twin_stores: TwinStores = None
    split: Annotated[str | None, Option("Part of the corpus, without a task", group="data", identity=False)] = None
    activations: Activations = None

    def check(self) -> None:
        """Refuse orders that do not exist, and thresholds that are not in ascending order."""
        if self.by not in METHODS:
            raise SettingError(f"There is no order of neurons {self.by}; choose from {', '.join(METHODS)}.")
        if not self.thresholds or list(self.thresholds) != sorted(set(self.thresholds)):
            raise SettingError(f"The thresholds are {list(self.thresholds)}; give each once, in ascending order.")

    @property
    def cuts(self) -> tuple[float, ...]:
        """The thresholds above 0: what is left at 0, all neurons, stands first in every table anyway."""
        return tuple(threshold for threshold in self.thresholds if threshold > 0)


@dataclass(frozen=True)
class DescribeSettings(Execution, TableReading):
    """What `describe` takes."""

    example: ClassVar[str] = "residuum describe bert-base-cased dev.conllu --neurons 3:17,5:2 --out runs/cards"

    model: Annotated[Any, Argument("Model folder or hub name, or activation store", metavar="MODEL")]
    corpus: Annotated[Any, Argument("Text that a model reads; a store has its own", metavar="CORPUS")] = None
    neurons: Annotated[
        tuple[str, ...], Option("Neurons, such as 3:17,5:2", metavar="LAYER:INDEX,…", required=True)
    ] = ()
    out: Out = None
    _: KW_ONLY
    unit: Annotated[Literal["word", "sentence"], Option("One row per word or per sentence", identity=False)] = "word"
    activations: Activations = None
    split: Split = None
    limit: Limit = None
    max_loss: MaxLoss = 0.0
    device: Device = "auto"

    def check(self) -> None:
        """There is a neuron to describe."""
        if not self.neurons:
            raise SettingError("No neuron was named; give at least one, for example 3:17.")


@dataclass(frozen=True)
class AblateSettings(Execution, TaskReading, ProbeTraining):
    """What `ablate` takes."""

    example: ClassVar[str] = "residuum ablate bert-base-cased en_ewt-ud-dev.conllu --task upos --out runs/ablation"

    model: ModelSource
    corpus: CorpusSource
    task: TaskName = "upos"
    out: Out = None
    _: KW_ONLY
    neurons: Annotated[
        tuple[str, ...],
        Option("Neurons to silence, such as 3:17,5:2 [top and bottom of an order]", metavar="LAYER:INDEX,…"),
    ] = ()
    shares: Shares = (0.05,)
    by: By = "forward"
    within: Annotated[Any, Option(f"Layers whose neurons are ranked: {LAYERS}", expects=LAYERS, form=layer_numbers)] = (
        "all"
    )
    how: Annotated[
        Literal["zero", "mean", "keep"],
        Option("Set neurons to zero, to their means, or keep them and zero the others of their layers"),
    ] = "zero"
    retrain: Annotated[bool, Option("Let probes learn from the ablated model too (slow)")] = False
    draws: Annotated[int, Option("Random sets of the same size", at_least=0)] = 3
    activations: Activations = None

    def check(self) -> None:
        """A store of activations cannot run."""
        if isinstance(self.model, str | os.PathLike) and (Path(self.model) / "manifest.json").exists():
            raise SettingError(
                f"{self.model} is a store of activations; neurons are silenced in a running model. Pass the model."
            )


@dataclass(frozen=True)
class DiffSettings(Execution, TaskReading, ProbeTraining):
    """What `diff` takes."""

    example: ClassVar[str] = (
        "residuum diff base=bert-base-cased tuned=runs/sst2/seed-0 --corpus UD_English-EWT --tasks upos --out runs/d"
    )

    models: Annotated[
        Mapping[str, Any] | Sequence[Any],
        Argument("The base model, then models made of it, or stores; NAME=MODEL names one", metavar="BASE OTHER"),
    ]
    corpus: Annotated[Any, Option("Treebank, column file, folder of splits, …", "data", identity=False)]
    tasks: Annotated[
        Any, Option("Tasks, such as upos,xpos,deprel; chunk=PATH takes one from another corpus", "data", identity=False)
    ]
    out: Out = None
    _: KW_ONLY
    measures: Annotated[Sequence[str], Option("Similarities: paper, attention, all, or names separated by commas")] = (
        MEASURES
    )
    groups: Annotated[int, Option("Groups of sentences for the jackknife of similarities", at_least=1)] = 5
    thresholds: Annotated[
        tuple[float, ...], Option("Clustering thresholds at which surviving neurons are counted", at_least=0, at_most=1)
    ] = THRESHOLDS
    shares: Shares = (0.05, 0.1)
    by: By = "forward"
    keep: Keep = 0.99
    properties: Annotated[int, Option("Neurons kept per class", at_least=1)] = 20
    layers: Layers = "all"
    pooling: Annotated[
        Literal["last", "first", "mean", "max"], Option("How sub-words make a word", "model", identity=False)
    ] = "last"
    activations: Activations = None

    def check(self) -> None:
        """The thresholds ascend."""
        if not self.thresholds or list(self.thresholds) != sorted(set(self.thresholds)):
            raise SettingError(f"The thresholds are {list(self.thresholds)}; give each once, in ascending order.")

    @property
    def products(self) -> str:
        """Precision of products in similarities: float32 unless a measure needs the smallest directions."""
        return "float64" if "mixed" in self.measures else "float32"


@dataclass(frozen=True)
class ProbeLanguagesSettings(Execution, TableReading, ProbeTraining):
    """What `probe-languages` takes."""

    example: ClassVar[str] = (
        "residuum probe-languages xlm-roberta-base --corpora en.conllu,tr.conllu --task upos --out runs/languages"
    )

    models: Annotated[Mapping[str, Any] | Sequence[Any], Argument("Models; NAME=MODEL names one", metavar="MODEL")]
    corpora: Annotated[
        Mapping[str, Any] | Sequence[Any],
        Option("Treebanks, one per language: FILE,… or LANGUAGE=FILE,…", "data", metavar="FILE,…", identity=False),
    ]
    task: TaskName = "upos"
    out: Out = None
    _: KW_ONLY
    source: Annotated[str | None, Option("Language that probes learn from [the first]", "data", identity=False)] = None
    shares: Annotated[
        tuple[float, float], Option("Shares of sentences to learn from and to hold out", "data", identity=False)
    ] = (0.9, 0.1)
    parallel: Annotated[bool, Option("The treebanks hold the same sentences", "data")] = True
    families: Annotated[
        Mapping[str, str], Option("Families of languages that Residuum does not know: sw=Bantu,eu=Basque", "data")
    ] = field(default_factory=dict)
    teachers: Annotated[
        Mapping[str, str],
        Option("Distilled models and their teachers: STUDENT=TEACHER,…", "model", identity=False),
    ] = field(default_factory=dict)
    random_twin: Annotated[
        bool, Option("Probe the models with random weights too; they read all treebanks again", "model", identity=False)
    ] = False
    layers: Layers = "all"
    thresholds: Annotated[
        tuple[float, ...], Option("Clustering thresholds; 0 keeps all neurons", at_least=0, at_most=1)
    ] = LANGUAGE_THRESHOLDS
    representatives: Annotated[Literal["random", "medoid", "first"], Option("Which neuron represents its cluster")] = (
        "random"
    )
    subsets: Annotated[bool, Option("Probe subsets of layers too")] = True
    overlap: Annotated[
        float, Option("Share of neurons selected in each language, whose overlap is measured", at_least=0, at_most=1)
    ] = 0.0
    limit: Limit = None
    max_loss: MaxLoss = 0.0
    device: Device = "auto"
    activations: Activations = None

    def check(self) -> None:
        """Each threshold is there once."""
        if not self.thresholds or len(set(self.thresholds)) != len(self.thresholds):
            raise SettingError(f"The thresholds are {list(self.thresholds)}; give at least one, each once.")
