"""The settings of compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal

from residuum.settings import (
    Argument,
    Device,
    Execution,
    Limit,
    MaxLoss,
    Option,
    Out,
    Precision,
    Seed,
    Split,
    TableReading,
)

PAPER = ("neuron", "mixed", "svcca", "pwcca", "cka")
"""The measures of Wu et al. (2020)."""


@dataclass(frozen=True)
class CompareSettings(Execution, TableReading):
    """What `compare` takes."""

    example: ClassVar[str] = (
        "residuum compare bert-base-cased --random-twins --corpus en_ewt-ud-dev.conllu --out runs/twin"
    )
    estimates: ClassVar[bool] = True

    sources: Annotated[
        Sequence[Any], Argument("Activation stores; or models, with --corpus; NAME=MODEL names one", metavar="MODEL")
    ]
    corpus: Annotated[Any, Option("Text that models read; stores have their own", "data", identity=False)] = None
    _: KW_ONLY
    out: Out = None
    measures: Annotated[
        Sequence[str], Option("paper, attention, standard, outputs, all, or names separated by commas")
    ] = PAPER
    beside: Annotated[
        Any, Option("Folder of a comparison of the same layers over another text, to compare with", identity=False)
    ] = None
    random_twins: Annotated[
        bool, Option("Add the random twin of every model: same architecture, random weights", "model", identity=False)
    ] = False
    groups: Annotated[int, Option("Groups of sentences for the jackknife", at_least=1)] = 10
    intervals: Annotated[bool, Option("Compute 95 % intervals")] = True
    null: Annotated[bool, Option("Add mean, spread and p-value under permuted words")] = False
    permutations: Annotated[int, Option("Permutations of words for --null", at_least=1)] = 10
    sample: Annotated[int, Option("Words for measures of distances, such as rsa and knn", at_least=4)] = 1000
    seed: Seed = 0
    products: Annotated[
        Literal["float64", "float32"], Option("Precision of products; float64 takes twice the time, sums are float64")
    ] = "float32"
    top_k: Annotated[int | None, Option("Average only the k most similar neurons", at_least=1)] = None
    variance: Annotated[float | None, Option("Fraction of variance that SVCCA and PWCCA keep", above=0, at_most=1)] = (
        None
    )
    standardize: Annotated[bool, Option("Scale every neuron to unit variance first", "method")] = False
    skip_first: Annotated[int, Option("Words to leave out at the start of each sentence", "method", at_least=0)] = 0
    clip: Annotated[
        float | None,
        Option(
            "Cut each neuron to this central fraction of its values",
            "method",
            above=0,
            at_most=1,
        ),
    ] = None
    drop_neurons: Annotated[
        Sequence[str],
        Option("Neurons to leave out: layer:neuron, or MODEL/layer:neuron for one model", "method"),
    ] = ()
    regularization: Annotated[float | None, Option("Ridge penalty of gulp per mean variance", above=0)] = None
    fraction: Annotated[float | None, Option("Kernel width of cka_rbf per median distance", above=0)] = None
    batch: Annotated[int | None, Option("Words per minibatch of cka_rbf", at_least=4)] = None
    debiased: Annotated[bool | None, Option("Unbiased HSIC for cka_rbf")] = None
    neighbours: Annotated[int | None, Option("Neighbours per word for knn and its relatives", at_least=1)] = None
    distance: Annotated[str | None, Option("Distance of rsa: cosine, correlation or euclidean")] = None
    correlation: Annotated[str | None, Option("Correlation of rsa: pearson or spearman")] = None
    split: Split = None
    limit: Limit = None
    max_loss: MaxLoss = 0.0
    device: Device = "auto"
    precision: Precision = "float32"

    @property
    def measure_options(self) -> dict[str, Any]:
        """The options of measures that were given."""
        names = ("top_k", "variance", "regularization", "fraction", "batch", "debiased")
        names += ("neighbours", "distance", "correlation")
        return {name: value for name in names if (value := getattr(self, name)) is not None}
