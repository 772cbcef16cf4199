"""The tables of a transfer: its steps side by side, and every size that was tried with the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from residuum.maths.neuron_ids import NeuronLayout
from residuum.shrinking.candidates import Candidate, Candidates
from residuum.shrinking.classifiers import classifier_bytes
from residuum.shrinking.costs import Costs, network_bytes

COSTS = ("neurons", "parameters", "bytes", "ms")
SCORES = ("dev", "test", "low", "high")


def step_row(name: str, candidate: Candidate, oracle: Candidate, costs: Costs, n_neurons: int) -> dict[str, Any]:
    """One step as Dalvi et al. (2020), tables 9 and 10, have it; ms is that of so many layers and all their neurons."""
    cost = candidate_cost(candidate, costs)
    return {
        "step": name,
        "layer": candidate.layer,
        "neurons": candidate.n_neurons,
        "share": candidate.n_neurons / n_neurons,
        **{key: getattr(candidate, key) for key in SCORES},
        "share_of_oracle": share_of_oracle(candidate.test, oracle),
        "parameters": int(cost["parameters"]),
        "bytes": int(cost["bytes"]),
        "ms": cost["ms"],
    }


def share_of_oracle(score: float, oracle: Candidate) -> float:
    """What is kept of the score of all neurons; nothing can be said where that is 0."""
    return score / oracle.test if oracle.test else math.nan


def curve_table(steps: Sequence[Candidates], costs: Costs) -> pd.DataFrame:
    """Every candidate with its scores and costs; `front …` marks those that no other beats on dev at the same cost."""
    table = pd.concat([step.table for step in steps], ignore_index=True)
    table = table.loc[~table.duplicated(["layer", "neurons", "dev"])].reset_index(drop=True)
    by_row = {(c.step, c.setting): candidate_cost(c, costs) for step in steps for c in step.tried}
    for cost in ("parameters", "bytes", "ms"):
        table[cost] = [by_row[key][cost] for key in zip(table["step"], table["setting"], strict=True)]
    for cost in COSTS:
        table[f"front {cost}"] = pareto_front(table[cost].to_numpy(), table["dev"].to_numpy())
    return table


def pareto_front(cost: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Which points no other point beats: none is as cheap and better, or cheaper and as good."""
    order = np.lexsort((-score, cost))
    front = np.zeros(len(cost), bool)
    best = -np.inf
    for place in order.tolist():
        if score[place] > best:
            front[place], best = True, score[place]
    return front


def candidate_cost(candidate: Candidate, costs: Costs) -> dict[str, float]:
    """The cost of a network up to the candidate's highest layer, and of its own classifier."""
    cost, n_rows = costs[candidate.layer], len(candidate.bias)
    return {
        "parameters": cost["parameters"] + n_rows * (candidate.n_neurons + 1),
        "bytes": network_bytes(cost, n_rows) + classifier_bytes(n_rows, candidate.n_neurons),
        "ms": cost["ms"],
    }


def neuron_table(chosen: Candidate, layout: NeuronLayout) -> pd.DataFrame:
    """The chosen neurons, the most important first."""
    ids = layout.format(chosen.order)
    layers, indices = zip(*(map(int, name.split(":")) for name in ids), strict=True)
    return pd.DataFrame({"rank": range(1, len(ids) + 1), "neuron": ids, "layer": layers, "index": indices})
