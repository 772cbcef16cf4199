"""The orders of a task's neurons, and the one search for minimal sets: the smallest sufficient head of an order.

Orders come from second moments, probe weights, class sums, a sample of words, or chance. For a minimal set, sizes are
bisected over nested sets, each with its own probe. A set is sufficient by the one-standard-error rule: its
paired difference, over sentences, to the share of the oracle's score that is to be kept is at most one standard error.
With few dev examples the sets are cross-validated on train and dev. The neurons keep the order in which they were
searched, so the probe that is reported is the probe that was found sufficient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.costs import Cost, CostStep, within
from residuum.errors import StoreError
from residuum.maths.features import Features, windows
from residuum.maths.layouts import NeuronLayout
from residuum.maths.metrics import SentenceSums, paired_loss
from residuum.maths.probing import ConvergedRecipe, Probe, TrainedProbe
from residuum.maths.rankings import (
    JOINT_NEURONS,
    ClassSums,
    Ranking,
    class_sums,
    gaussian_bytes,
    gaussian_ranking,
    iou_bytes,
    iou_ranking,
    joint_scatter,
    lca_ranking,
    mass_shares,
    mean_difference_ranking,
    probeless_ranking,
    random_rankings,
    ranking_agreement,
    scatter_of_words,
)
from residuum.maths.selection import SMALL_DEV, MinimalSet, SetScore, sentence_folds, smallest_sufficient_set
from residuum.maths.task_moments import (
    LIMIT,
    class_forward_selection,
    forward_selection,
    neuron_subset,
    task_moments,
)
from residuum.probing.probe_data import TASK, ProbeData
from residuum.probing.scores import LEAST_SUPPORT
from residuum.storage.files import read_json, write_json

FORWARD = ("forward", "discriminant")
"""Forward selection, plain and with all classes scaled alike."""
OF_NUMBERS = ("forward", "lca", "random")
"""The orders that need no classes."""
SAMPLED = ("gaussian", "iou")
"""The orders that are taken from sampled words; the others see all."""
FEWEST = 1000
"""Sampled words below which an order would say little, however short memory is."""
CLASS_NEURONS = 50
"""Neurons of each class that a table has."""
PIECE = 256
"""Words whose float64 copies are summed at a time."""

FOLDS = 5
"""Parts of the training part that minimal sets are cross-validated on."""
Neurons = Int[np.ndarray, " neuron"]
Ranker = Callable[[ProbeData], Neurons]
"""The order of a task's neurons, from its training part alone."""


@dataclass(frozen=True)
class OrderSettings:
    """What decides the orders: penalty of LCA's probe, words of the sampled orders, number of random orders."""

    lca_penalty: tuple[float, float] = (1e-3, 1e-2)
    sample: int = 20_000
    random_orders: int = 3


def neuron_orders(
    data: ProbeData,
    methods: Sequence[str],
    settings: OrderSettings | None = None,
    oracle: TrainedProbe | None = None,
    forward: Mapping[str, Ranking] | None = None,
) -> dict[str, Ranking]:
    """Each method's order of all neurons, from the training part alone; random orders after the first are numbered.

    The papers' LCA takes the weights of the probe of all neurons, the `oracle` if it is known; a converged one has a
    penalty of its own, which the final probes do not share. `forward` are the orders of `forward_orders` if these are
    known.
    """
    settings = settings or OrderSettings()
    orders: dict[str, Ranking] = {}
    if forward is None:
        forward, _ = forward_orders(data, methods)
    orders |= forward
    if "lca" in methods:
        if oracle is None or isinstance(data.recipe, ConvergedRecipe):
            penalty = settings.lca_penalty if isinstance(data.recipe, ConvergedRecipe) else data.penalty or (None, None)
            (oracle,) = data.train([Probe(TASK, None, *penalty, data.seed)])
        orders["lca"] = lca_ranking(oracle.weight)
    if {"probeless", "mean_difference"} & set(methods):
        sums = _class_sums(data.features("train"), data.targets[TASK].values, data.targets[TASK].n_classes)
        orders["probeless"], orders["mean_difference"] = probeless_ranking(sums), mean_difference_ranking(sums)
    orders |= _sampled_orders(data, methods, settings.sample)
    if "random" in methods:
        generator = np.random.default_rng([data.seed, 4])
        drawn = random_rankings(data.splits.layout.n_neurons, generator, settings.random_orders)
        orders |= {f"random {i}" if i > 1 else "random": ranking for i, ranking in enumerate(drawn, 1)}
    return {name: orders[name] for name in orders if name in methods or name.startswith("random ")}


def forward_orders(
    data: ProbeData, methods: Sequence[str], first: int = 0
) -> tuple[dict[str, Ranking], dict[str, Ranking]]:
    """The orders by forward selection, and the `first` neurons that tell each class from all others, by its name.

    All of them come from one pass over the training part. `discriminant` counts a rare class as much as a frequent one.
    """
    if not {*FORWARD} & {*methods}:
        return {}, {}
    data.make_room(forward_bytes(data.splits.layout.n_neurons))
    target = data.targets[TASK]
    moments = task_moments(data.features("train"), target)
    orders = {
        name: forward_selection(moments, discriminant=name == "discriminant") for name in FORWARD if name in methods
    }
    of_classes = class_forward_selection(moments, limit=first) if first and target.classes else []
    return orders, dict(zip(target.classes, of_classes, strict=False))


def neuron_order(
    data: ProbeData,
    method: str,
    within: Int[np.ndarray, " kept"] | None = None,
    settings: OrderSettings | None = None,
) -> Int[np.ndarray, " neuron"]:
    """One method's order of all neurons, or of some of them as if there were no others."""
    settings = settings or OrderSettings()
    if within is not None and method in FORWARD:
        moments = neuron_subset(task_moments(data.features("train"), data.targets[TASK]), within)
        return within[forward_selection(moments, discriminant=method == "discriminant").order]
    if within is not None and method == "lca":
        penalty = settings.lca_penalty if isinstance(data.recipe, ConvergedRecipe) else data.penalty or (None, None)
        (probe,) = data.train([Probe(TASK, within, *penalty, data.seed)])
        return within[lca_ranking(probe.weight).order]
    order = neuron_orders(data, [method], settings)[method].order
    return order if within is None else order[np.isin(order, within)]


def check_memory(data: ProbeData, methods: Sequence[str], wanted: int) -> None:
    """Raise an error before anything is ranked where the smallest form of an order is too large for the memory."""
    layout, sample = data.splits.layout, WordSample.of(data, wanted)
    needed = {method: sample.n_bytes(method) for method in SAMPLED if method in methods}
    needed |= {method: forward_bytes(layout.n_neurons) for method in FORWARD if method in methods}
    steps = tuple(CostStep(f"{method} order", 0.0, memory=size) for method, size in needed.items())
    if steps:
        what = f"{sample.n_words:,} sampled words × {layout.n_neurons:,} neurons"
        remedy = "Allow more, leave it out (--methods, --by), or rank fewer layers (--layers)"
        within(Cost(what, steps), data.max_memory, remedy)


def forward_bytes(n_neurons: int) -> int:
    """The memory of forward selection beside the words: two matrices of all pairs, and the rows of the factor."""
    return 16 * n_neurons**2 + 8 * min(LIMIT, n_neurons) * n_neurons


def order_table(orders: Mapping[str, Ranking], layout: NeuronLayout) -> pd.DataFrame:
    """method, rank, neuron, layer, index, score: every neuron by every method, the most important first."""
    tables = [
        _named(ranking.order, layout).assign(score=ranking.scores[ranking.order], method=method)
        for method, ranking in orders.items()
    ]
    columns = ["method", "rank", "neuron", "layer", "index", "score"]
    return pd.concat(tables, ignore_index=True).reindex(columns=columns)


def class_forward_table(data: ProbeData, of_classes: Mapping[str, Ranking], first: int = CLASS_NEURONS) -> pd.DataFrame:
    """The first neurons of each class by forward selection: `share` is what a neuron adds of the class' variance."""
    tables = [
        _of_class(data, label, ranking.order[:first]).assign(share=ranking.scores[ranking.order[:first]])
        for label, ranking in of_classes.items()
    ]
    columns = ["label", "rank", "neuron", "layer", "index", "share", "support", "supported"]
    return pd.concat(tables, ignore_index=True).reindex(columns=columns)


def class_neuron_table(data: ProbeData, oracle: TrainedProbe, first: int = CLASS_NEURONS) -> pd.DataFrame:
    """The first neurons of each class by their share of its |θ|, with the sign that the weight has."""
    tables = []
    for label, weight, share in zip(data.targets[TASK].classes, oracle.weight, mass_shares(oracle.weight), strict=True):
        order = np.argsort(-share, kind="stable")[:first]
        tables.append(_of_class(data, label, order).assign(share=share[order], weight=weight[order]))
    columns = ["label", "rank", "neuron", "layer", "index", "share", "weight", "support", "supported"]
    return pd.concat(tables, ignore_index=True).reindex(columns=columns)


def agreement_table(orders: Mapping[str, Int[np.ndarray, " neuron"]], share: float) -> pd.DataFrame:
    """How far each pair of orders agrees: on their first `share` of neurons, and on all."""
    columns = ["first", "second", "k", "overlap", "average_overlap", "spearman", "kendall"]
    if len(orders) < 2:
        return pd.DataFrame(columns=columns)
    k = max(round(share * len(next(iter(orders.values())))), 1)
    return pd.DataFrame([vars(pair) for pair in ranking_agreement(orders, k)], columns=columns)


def layer_spread_table(
    sets: Mapping[tuple[str, str], Int[np.ndarray, " neuron"]], layout: NeuronLayout
) -> pd.DataFrame:
    """How many neurons of each (method, set) lie in each layer (Durrani et al. 2021, figures 2 and 3)."""
    tables = []
    for (method, name), neurons in sets.items():
        counts = layout.spread(neurons)
        columns = {"layer": layout.layers, "neurons": counts, "share": counts / len(neurons)}
        tables.append(pd.DataFrame({"method": method, "set": name, **columns}))
    return pd.concat(tables, ignore_index=True)


def _named(order: Int[np.ndarray, " neuron"], layout: NeuronLayout) -> pd.DataFrame:
    ids = layout.format(order.tolist())
    layers, indices = zip(*(map(int, neuron.split(":")) for neuron in ids), strict=True)
    return pd.DataFrame({"rank": np.arange(1, len(ids) + 1), "neuron": ids, "layer": layers, "index": indices})


def _of_class(data: ProbeData, label: str, order: Int[np.ndarray, " neuron"]) -> pd.DataFrame:
    """Neurons of a class, and of how many training examples that says anything."""
    support = data.splits.train.labels.count(label)  # pyright: ignore[reportAttributeAccessIssue]
    columns = {"label": label, "support": support, "supported": support >= LEAST_SUPPORT}
    return _named(order, data.splits.layout).assign(**columns)


def _class_sums(features: Features, classes: Int[np.ndarray, " word"], n_classes: int) -> ClassSums:
    """The sums of all words, of which few at a time are copied in float64."""
    blocks = (
        class_sums(window.x[start : start + PIECE], classes[window.words[start : start + PIECE]], n_classes)
        for window in windows(features)
        for start in range(0, len(window.x), PIECE)
    )
    return reduce(add, blocks)


@dataclass(frozen=True)
class WordSample:
    """So many words of these neurons, and how they are ranked within the memory."""

    n_words: int
    layout: NeuronLayout
    n_classes: int
    max_memory: int

    @staticmethod
    def of(data: ProbeData, wanted: int) -> WordSample:
        """As many training words as are wanted, and as fit half of the memory beside what else is needed."""
        shape = (data.splits.layout, data.targets[TASK].n_classes, data.max_memory)
        beside = WordSample(0, *shape)._gaussian_bytes(joint=False)
        most = min(data.max_memory // 2, data.max_memory - beside) // (4 * data.splits.layout.n_neurons)
        return WordSample(min(wanted, len(data.splits.train), max(most, FEWEST)), *shape)

    @property
    def joint(self) -> bool:
        """Whether the Gaussian order holds the scatter of all neurons: where it fits, and saves time."""
        return self.layout.n_neurons <= JOINT_NEURONS and self._gaussian_bytes(joint=True) <= self.max_memory

    def n_bytes(self, method: str) -> int:
        """The most memory that an order holds, the words among it."""
        if method == "gaussian":
            return self._gaussian_bytes(joint=self.joint)
        return self._word_bytes + iou_bytes(self.n_words, self.layout.n_neurons, self.n_classes)

    def _gaussian_bytes(self, *, joint: bool) -> int:
        return self._word_bytes + gaussian_bytes(self.layout.widths, self.n_classes, joint=joint)

    @property
    def _word_bytes(self) -> int:
        """The words, and float64 copies of some of them, of their squares and of whether they are finite."""
        return (4 * self.n_words + 17 * PIECE) * self.layout.n_neurons


def _sampled_orders(data: ProbeData, methods: Sequence[str], wanted: int) -> dict[str, Ranking]:
    """The orders that are taken from sampled words; features of all words give way where memory is short."""
    chosen = [method for method in SAMPLED if method in methods]
    if not chosen:
        return {}
    sample = WordSample.of(data, wanted)
    data.make_room(max(sample.n_bytes(method) for method in chosen))
    n_words, classes = len(data.splits.train), data.targets[TASK].values
    x = data.features("train") if sample.n_words == n_words else None
    if not isinstance(x, np.ndarray):
        drawn = np.random.default_rng([data.seed, 2]).choice(n_words, sample.n_words, replace=False)
        x, classes = data.some_features("train", np.sort(drawn)), classes[np.sort(drawn)]
    orders: dict[str, Ranking] = {}
    if "gaussian" in chosen:
        sums = _class_sums(x, classes, sample.n_classes)
        scatter = joint_scatter(x, sample.layout.widths) if sample.joint else scatter_of_words(x)
        orders["gaussian"] = gaussian_ranking(sums, scatter)
    if "iou" in chosen:
        orders["iou"] = iou_ranking(x, classes)
    return orders


def find_minimal_set(
    data: ProbeData,
    ranker: Ranker,
    order: Neurons,
    keep: float,
    *,
    oracle: SentenceSums | None = None,
    known: Path | None = None,
) -> MinimalSet:
    """The smallest head of an order whose probe keeps the share `keep` of the score of all neurons.

    `order` is what `ranker` gives for the data; each fold of a cross-validation has an order of its own. `oracle` are
    the sums of all neurons on dev, where these are known. Scores are kept in the file `known` as they come, so that
    a killed search goes on.
    """
    parts = held_out_parts(data, ranker, order, oracle)

    def measure(sizes: Sequence[int]) -> list[SetScore]:
        whole = pool([part.oracle for part in parts])
        candidates = zip(*(part.sums(sizes) for part in parts), strict=True)
        return [paired_loss(pool(sums), whole, keep) for sums in candidates]

    scored = remembered_scores(measure, known)
    return smallest_sufficient_set(order, lambda sets: scored([len(neurons) for neurons in sets]))


def held_out_parts(
    data: ProbeData, ranker: Ranker, order: Neurons, oracle: SentenceSums | None = None
) -> list[HeldOutPart]:
    """What heads of an order are judged on: dev and, where that is small, the folds of the training part.

    Folds are of whole sentences; each is held out in turn, λ2 is chosen on dev. A fold without which fewer than two
    classes are left (for Matthews' correlation: not all of them) is not used.
    """
    parts, train = [HeldOutPart(data, order, "dev", oracle)], data.splits.train
    if len(data.splits.dev) >= SMALL_DEV or len(np.unique(train.sentences)) < FOLDS:
        return parts
    fold, classes = sentence_folds(train.sentences, FOLDS), data.targets[TASK].n_classes
    for number in range(FOLDS):
        numbers = [np.unique(train.sentences[part]).tolist() for part in (fold != number, fold == number)]
        learnt, held_out = (train.select(sentences) for sentences in numbers)
        left = len(set(learnt.labels)) if classes else 2
        if left >= (classes if data.metric == "matthews" else 2):
            of_fold = data.of(replace(data.splits, train=learnt, test=held_out))
            parts.append(HeldOutPart(of_fold, ranker(of_fold), "test"))
    return parts


def growth_table(minimal: MinimalSet) -> pd.DataFrame:
    """The sizes that were tried on the way to the minimal set, and their scores on held-out data."""
    sizes, scores = zip(*minimal.tried, strict=True)
    return pd.DataFrame({"neurons": sizes, "dev": scores, "required": minimal.required})


def pool(sums: Sequence[SentenceSums]) -> SentenceSums:
    """The sums of the sentences of several parts."""
    return replace(sums[0], sums=np.concatenate([part.sums for part in sums]))


@dataclass(frozen=True, eq=False)
class HeldOutPart:
    """A part that probes are scored on, and the order whose heads they read."""

    data: ProbeData
    order: Neurons
    part: str
    known_oracle: SentenceSums | None = None

    def sums(self, sizes: Sequence[int]) -> list[SentenceSums]:
        """Per-sentence sums of the probe of each head; λ2 is chosen on dev."""
        return self._sums_of([self.order[:size] for size in sizes])

    def _sums_of(self, sets: Sequence[Neurons | None]) -> list[SentenceSums]:
        probes = [self.data.probe(TASK, neurons) for neurons in sets]
        sums = [score.sums for score in self.data.score(self.data.train(probes), self.part)]
        if self.part == "test" and FOLDS * self.data.cache.n_bytes > self.data.max_memory:
            self.data.cache.clear()  # all folds at once would be too much
        return sums

    @cached_property
    def oracle(self) -> SentenceSums:
        """The same of all neurons, whether the order has them or not."""
        return self.known_oracle or self._sums_of([None])[0]


def remembered_scores(
    measure: Callable[[Sequence[int]], list[SetScore]], path: Path | None
) -> Callable[[Sequence[int]], list[SetScore]]:
    """The same measure, that looks first in a file: the scores that a killed search left, by number of neurons."""
    known = read_json(path) if path is not None and path.exists() else {}
    usable = isinstance(known, dict) and all(
        size.isdecimal() and isinstance(score, list) and list(map(type, score)) == [float] * 3
        for size, score in known.items()
    )
    if not usable:
        raise StoreError(f"{path} does not hold scores by number of neurons; remove it, and they are computed again.")

    def measured(sizes: Sequence[int]) -> list[SetScore]:
        new = [size for size in sizes if str(size) not in known]
        if new:
            scores = measure(new)
            known.update({str(n): [s.score, s.excess, s.standard_error] for n, s in zip(new, scores, strict=True)})
            if path is not None:
                write_json(path, known)
        return [SetScore(*known[str(size)]) for size in sizes]

    return measured
