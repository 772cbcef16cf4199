"""Sets of neurons by a ranking: the top, the bottom, the smallest that suffices, and where in the network they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probing import Probe, TrainedProbe
from residuum.maths.selection import MinimalSet, minimal_set, top_and_bottom
from residuum.probing.batteries import CONTROL, TASK, Bench, Score

Neurons = Int[np.ndarray, " neuron"]


@dataclass(frozen=True)
class Penalty:
    """λ1 and λ2 of the probes."""

    l1: float
    l2: float


@dataclass(frozen=True, eq=False)
class SetScores:
    """Probes of one set of neurons on the test part: the task, and its control task where it has one, by seed."""

    task: tuple[Score, ...]
    control: tuple[Score, ...]

    @property
    def accuracy(self) -> float:
        """The mean score over the seeds."""
        return float(np.mean([score.value for score in self.task]))

    @property
    def sd(self) -> float:
        """The deviation of the score over the seeds; NaN of one seed."""
        values = [score.value for score in self.task]
        return float(np.std(values, ddof=1)) if len(values) > 1 else np.nan

    @property
    def control_accuracy(self) -> float:
        """The mean score on the control task; NaN where there is none."""
        return float(np.mean([score.value for score in self.control])) if self.control else np.nan


def seeded_probes(bench: Bench, neurons: Neurons | slice | None, penalty: Penalty, seeds: int) -> list[Probe]:
    """A set's probes: the task and, where there is one, the control task, each with every seed."""
    return [
        Probe(target, neurons, penalty.l1, penalty.l2, bench.seed + seed)
        for target in bench.targets
        for seed in range(seeds)
    ]


def scored_set(bench: Bench, trained: Sequence[TrainedProbe]) -> SetScores:
    """Scores on the test part of the probes that `seeded_probes` asked for."""
    return scored_sets(bench, [trained])[0]


def scored_sets(bench: Bench, groups: Sequence[Sequence[TrainedProbe]]) -> list[SetScores]:
    """Scores on the test part of the probes of several sets, in one pass over the words."""
    scores = iter(bench.score([probe for group in groups for probe in group], "test"))
    return [_of_targets([next(scores) for _ in group]) for group in groups]


def _of_targets(scores: Sequence[Score]) -> SetScores:
    by_target = {name: tuple(s for s in scores if s.probe.probe.target == name) for name in (TASK, CONTROL)}
    return SetScores(by_target[TASK], by_target[CONTROL])


def selection_table(
    bench: Bench,
    oracles: Sequence[TrainedProbe],
    orders: Mapping[str, Neurons],
    shares: Sequence[float],
    penalty: Penalty,
) -> pd.DataFrame:
    """Accuracy with only the top or bottom neurons (Durrani et al. 2021, tables 1, 4, 5), on the test part.

    `kept`: the `oracles`, probes of all neurons with a seed each, without retraining: they see 0 in all other neurons.
    `retrained`: probes of their own, with as many seeds. Both are means over seeds, with their deviation and the
    interval of the mean over sentences. The rows of `random` are what neurons drawn by lot give.
    """
    ends = ranking_ends(orders, shares)
    trained = bench.train(end_probes(ends, [oracle.probe.seed for oracle in oracles], penalty))
    return scored_ends(bench, oracles, ends, trained)


@dataclass(frozen=True, eq=False)
class RankingEnd:
    """The top or bottom neurons of a ranking, in ascending order."""

    method: str
    share: float
    end: str
    neurons: Neurons


def ranking_ends(orders: Mapping[str, Neurons], shares: Sequence[float]) -> list[RankingEnd]:
    """The top and the bottom of each ranking, for each share of its neurons."""
    return [
        RankingEnd(method, share, end, np.sort(neurons))
        for method, share in product(orders, shares)
        for end, neurons in zip(("top", "bottom"), top_and_bottom(orders[method], share), strict=True)
    ]


def end_probes(ends: Sequence[RankingEnd], seeds: Sequence[int], penalty: Penalty) -> list[Probe]:
    """The task's probes of each end, seeds innermost."""
    return [Probe(TASK, end.neurons, penalty.l1, penalty.l2, seed) for end in ends for seed in seeds]


def scored_ends(
    bench: Bench, oracles: Sequence[TrainedProbe], ends: Sequence[RankingEnd], trained: Sequence[TrainedProbe]
) -> pd.DataFrame:
    """The table of `selection_table`, from what `end_probes` asked for once it is trained."""
    groups, found = iter(trained), []
    kept = scored_sets(bench, [[oracle.keeping(end.neurons) for oracle in oracles] for end in ends])
    retrained = scored_sets(bench, [[next(groups) for _ in oracles] for _ in ends])
    for end, before, after in zip(ends, kept, retrained, strict=True):
        cell = {"method": end.method, "share": end.share, "set": end.end, "neurons": len(end.neurons)}
        cell |= {f"kept{ending}": value for ending, value in _with_bounds(bench, before).items()}
        own = _with_bounds(bench, after)
        found.append(cell | {"retrained": own[""], "sd": own["_sd"], "low": own["_low"], "high": own["_high"]})
    return pd.DataFrame(found)


def _with_bounds(bench: Bench, scores: SetScores) -> dict[str, float]:
    """The mean over seeds, its deviation, and its interval over sentences, by the ending of their columns."""
    interval = bench.interval(scores.task, "test")
    return {"": scores.accuracy, "_sd": scores.sd, "_low": float(interval.low), "_high": float(interval.high)}


def smallest_set(bench: Bench, order: Neurons, oracle_on_dev: float, delta: float, penalty: Penalty) -> MinimalSet:
    """The smallest head of a ranking whose own probe is within `delta` of the oracle on the development part."""
    score_sets = bench.set_scorer("dev", l1=penalty.l1, l2=penalty.l2)
    return minimal_set(order, score_sets, oracle_on_dev - delta)


def minimal_table(bench: Bench, sets: Mapping[str, tuple[int, float, SetScores]]) -> pd.DataFrame:
    """All neurons beside the minimal set (Durrani et al. 2021, table 7), on the test part.

    accuracy is the mean over seeds, sd their deviation, low and high the interval of
    that mean over sentences; dev is what the choice was made by.
    """
    rows = []
    whole = max(size for size, _, _ in sets.values())
    for name, (size, dev, scores) in sets.items():
        bounds = _with_bounds(bench, scores)
        rows.append(
            {
                "set": name,
                "neurons": size,
                "share": size / whole,
                "dev": dev,
                "accuracy": bounds[""],
                "sd": bounds["_sd"],
                "low": bounds["_low"],
                "high": bounds["_high"],
                "control": scores.control_accuracy,
                "selectivity": scores.accuracy - scores.control_accuracy,
            }
        )
    return pd.DataFrame(rows)


def growth_table(minimal: MinimalSet) -> pd.DataFrame:
    """The sizes that were tried on the way to the minimal set, and how each scored on the development part."""
    sizes, scores = zip(*minimal.tried, strict=True)
    return pd.DataFrame({"neurons": sizes, "dev": scores, "required": minimal.required})


def spread_table(sets: Mapping[tuple[str, str], Neurons], layout: NeuronLayout) -> pd.DataFrame:
    """How many neurons of each (method, set) lie in each layer (Durrani et al. 2021, figures 2 and 3)."""
    tables = [
        pd.DataFrame(
            {
                "method": method,
                "set": name,
                "layer": layout.layers,
                "neurons": layout.spread(neurons),
                "share": layout.spread(neurons) / len(neurons),
            }
        )
        for (method, name), neurons in sets.items()
    ]
    return pd.concat(tables, ignore_index=True)
