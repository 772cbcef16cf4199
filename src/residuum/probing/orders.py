"""All rankings of a task's neurons: from a trained probe, from sums over the classes, from a sample of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.maths.class_sums import ClassSums, class_sums
from residuum.maths.features import windows
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probing import TrainedProbe
from residuum.maths.rankings import (
    Ranking,
    lca_ranking,
    mass_shares,
    mean_difference_ranking,
    probeless_ranking,
    random_ranking,
    ranking_agreement,
)
from residuum.probing.batteries import TASK, Bench
from residuum.probing.sampling import PIECE, sampled_rankings

METHODS = ("lca", "probeless", "gaussian", "iou", "mean_difference", "random")
OF_NUMBERS = ("lca", "random")
"""The methods that need no classes."""


def task_rankings(bench: Bench, oracle: TrainedProbe, methods: Sequence[str], sample: int) -> dict[str, Ranking]:
    """Each method's ranking of all neurons, from the training part alone."""
    found: dict[str, Ranking] = {}
    if "lca" in methods:
        found["lca"] = lca_ranking(oracle.weight)
    if {"probeless", "mean_difference"} & set(methods):
        sums = _streamed_class_sums(bench)
        found["probeless"], found["mean_difference"] = probeless_ranking(sums), mean_difference_ranking(sums)
    found |= sampled_rankings(bench, methods, sample)
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
            window.x[start : start + PIECE], target.values[window.words[start : start + PIECE]], target.n_classes
        )
        for window in windows(bench.features("train"))
        for start in range(0, len(window.x), PIECE)
    )
    return reduce(add, blocks)
