"""All rankings of a task's neurons: from a trained probe, from sums over the classes, from a sample of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from residuum.batteries import TASK, Bench
from residuum.maths.class_sums import ClassSums, class_sums
from residuum.maths.features import BLOCK, Features, windows
from residuum.maths.gaussian_ranking import gaussian_ranking
from residuum.maths.moments import MomentsAccumulator
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probing import TrainedProbe
from residuum.maths.rankings import (
    Ranking,
    iou_ranking,
    lca_ranking,
    mass_shares,
    mean_difference_ranking,
    probeless_ranking,
    random_ranking,
    ranking_agreement,
)

METHODS = ("lca", "probeless", "gaussian", "iou", "mean_difference", "random")
OF_NUMBERS = ("lca", "random")
"""The methods that need no classes."""
SAMPLE = 20_000
"""Words from which the Gaussian and IoU rankings are taken; the others see all."""


def task_rankings(bench: Bench, oracle: TrainedProbe, methods: Sequence[str], sample: int) -> dict[str, Ranking]:
    """Each method's ranking of all neurons, from the training part alone."""
    found: dict[str, Ranking] = {}
    if "lca" in methods:
        found["lca"] = lca_ranking(oracle.weight)
    if {"probeless", "mean_difference"} & set(methods):
        sums = _streamed_class_sums(bench)
        found["probeless"], found["mean_difference"] = probeless_ranking(sums), mean_difference_ranking(sums)
    if {"gaussian", "iou"} & set(methods):
        x, classes = _sampled(bench, sample, np.random.default_rng([bench.seed, 2]))
        if "gaussian" in methods:
            found["gaussian"] = _gaussian(x, classes, bench.targets[TASK].n_classes)
        if "iou" in methods:
            found["iou"] = iou_ranking(x, classes)
    if "random" in methods:
        found["random"] = random_ranking(oracle.n_features, np.random.default_rng([bench.seed, 4]))
    return {method: found[method] for method in methods}


def ranking_table(rankings: Mapping[str, Ranking], layout: NeuronLayout) -> pd.DataFrame:
    """method, rank, neuron, layer, index, score: every neuron by every method, the most important first."""
    tables = [
        _named(ranking.order, layout).assign(score=ranking.scores[ranking.order], method=method)
        for method, ranking in rankings.items()
    ]
    columns = ["method", "rank", "neuron", "layer", "index", "score"]
    return pd.concat(tables, ignore_index=True).reindex(columns=columns)


def class_table(oracle: TrainedProbe, classes: Sequence[str], layout: NeuronLayout, first: int = 50) -> pd.DataFrame:
    """The first neurons of each class by their share of its |θ|, with the sign that the weight has."""
    tables = []
    for place, (label, share) in enumerate(zip(classes, mass_shares(oracle.weight), strict=True)):
        order = np.argsort(-share, kind="stable")[:first]
        named = _named(order, layout)
        tables.append(named.assign(label=label, share=share[order], weight=oracle.weight[place, order]))
    columns = ["label", "rank", "neuron", "layer", "index", "share", "weight"]
    return pd.concat(tables, ignore_index=True).reindex(columns=columns)


def agreement_table(orders: Mapping[str, Int[np.ndarray, " neuron"]], share: float) -> pd.DataFrame:
    """How far each pair of rankings agrees: on their first `share` of neurons, and on all."""
    columns = ["first", "second", "k", "overlap", "average_overlap", "spearman", "kendall"]
    if len(orders) < 2:
        return pd.DataFrame(columns=columns)
    k = max(round(share * len(next(iter(orders.values())))), 1)
    return pd.DataFrame([vars(pair) for pair in ranking_agreement(orders, k)], columns=columns)


def _named(order: Int[np.ndarray, " neuron"], layout: NeuronLayout) -> pd.DataFrame:
    ids = layout.format(order.tolist())
    layers, indices = zip(*(map(int, neuron.split(":")) for neuron in ids), strict=True)
    return pd.DataFrame({"rank": np.arange(1, len(ids) + 1), "neuron": ids, "layer": layers, "index": indices})


def _streamed_class_sums(bench: Bench) -> ClassSums:
    target = bench.targets[TASK]
    blocks = (
        class_sums(
            window.x[start : start + BLOCK], target.values[window.words[start : start + BLOCK]], target.n_classes
        )
        for window in windows(bench.features("train"))
        for start in range(0, len(window.x), BLOCK)
    )
    return reduce(add, blocks)


def _sampled(
    bench: Bench, size: int, generator: np.random.Generator
) -> tuple[Float[np.ndarray, "word neuron"], Int[np.ndarray, " word"]]:
    """Some training words drawn without replacement, in their order, and their classes."""
    features: Features = bench.features("train")
    n_words, n_neurons = features.shape
    size = min(size, n_words, max(bench.max_memory // (8 * n_neurons), 1000))
    if isinstance(features, np.ndarray) and size == n_words:
        return features, bench.targets[TASK].values
    chosen = np.sort(generator.choice(n_words, size, replace=False))
    x = np.empty((size, n_neurons), np.float32)
    for window in windows(features):
        here = np.flatnonzero(np.isin(window.words, chosen))
        x[np.searchsorted(chosen, window.words[here])] = window.x[here]
    return x, bench.targets[TASK].values[chosen]


def _gaussian(x: Float[np.ndarray, "word neuron"], classes: Int[np.ndarray, " word"], n_classes: int) -> Ranking:
    moments = MomentsAccumulator([x.shape[1]])
    moments.update(x)
    starts = range(0, len(x), BLOCK)
    sums = reduce(add, (class_sums(x[s : s + BLOCK], classes[s : s + BLOCK], n_classes) for s in starts))
    return gaussian_ranking(sums, moments.result().layer(0).scatter)
