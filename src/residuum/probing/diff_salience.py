"""The neurons that matter to several tasks of the same words: top, bottom, fewest; every round trains them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from residuum.maths.probing import Probe, TrainedProbe
from residuum.maths.rankings import lca_ranking
from residuum.maths.selection import top_and_bottom
from residuum.probing.batteries import CONTROL, TASK, Bench, train_together
from residuum.probing.diff_settings import Settings
from residuum.probing.measuring import ALL, Battery, Measurement
from residuum.probing.rank_sets import (
    Neurons,
    Penalty,
    SetScores,
    end_probes,
    minimal_table,
    ranking_ends,
    scored_ends,
    scored_set,
    seeded_probes,
    spread_table,
)

RANKING = "lca"
ROUNDS = ((0.01, 0.02, 0.03, 0.05, 0.07, 0.1), (0.15, 0.2), (0.3,), (0.5,), (0.7,))
"""The shares of neurons that are tried as a minimal set: the same in every model, so that sizes compare.

Those of a round train together; the larger ones cost most, and are tried only where the smaller do not suffice. At
last come all neurons, whose score is known.
"""


@dataclass(frozen=True, eq=False)
class Trained:
    """A task's battery after training, with its scores; the probes of all neurons rank them."""

    battery: Battery
    dev: Measurement
    test: Measurement

    @property
    def bench(self) -> Bench:
        """The task's data."""
        return self.battery.bench

    @property
    def oracles(self) -> list[TrainedProbe]:
        """The probes of all neurons, one a seed."""
        return [score.probe for score in self.test.scores[ALL, TASK]]

    @property
    def on_dev(self) -> float:
        """The score of the first of them on the development part, by which neurons are chosen."""
        return self.dev.values(ALL)[0]

    @property
    def whole(self) -> SetScores:
        """All neurons on the test part."""
        return SetScores(tuple(self.test.scores[ALL, TASK]), tuple(self.test.scores.get((ALL, CONTROL), ())))

    @cached_property
    def order(self) -> Neurons:
        """All neurons, the most salient first."""
        return lca_ranking(self.oracles[0].weight).order

    def head(self, share: float) -> Neurons:
        """The most salient neurons, one at least, in ascending order."""
        return np.sort(self.order[: max(round(share * len(self.order)), 1)])


@dataclass(frozen=True, eq=False)
class Minimal:
    """The fewest neurons that keep the score on the development part, their score there and on the test part."""

    neurons: Neurons
    on_dev: float
    on_test: SetScores


def salience_tables(tasks: Sequence[Trained], settings: Settings) -> list[dict[str, pd.DataFrame]]:
    """For each task the tables `selection`, `minimal` and `spread`."""
    lessons = _Lessons([task.bench for task in tasks])
    penalty, seeds = settings.penalties, range(settings.seed, settings.seed + settings.seeds)
    ends = [ranking_ends({RANKING: task.order}, settings.shares) for task in tasks]
    asked = [end_probes(own, seeds, penalty) for own in ends]
    rungs = [_rung_probes(task, ROUNDS[0], penalty) for task in tasks]
    lessons.learn([[*a, *b] for a, b in zip(asked, rungs, strict=True)])
    minimal = _minimal_sets(tasks, lessons, settings)
    return [
        {
            "selection": scored_ends(task.bench, task.oracles, own, trained).drop(columns="method"),
            "minimal": _sizes(task, fewest),
            "spread": _spread(task, fewest.neurons, settings.shares),
        }
        for task, own, trained, fewest in zip(tasks, ends, lessons.learn(asked), minimal, strict=True)
    ]


class _Lessons:
    """Probes of several tasks of the same examples, which train in one pass, and none twice."""

    def __init__(self, benches: Sequence[Bench]):
        self._benches = benches
        self._learnt: list[dict[object, TrainedProbe]] = [{} for _ in benches]

    def learn(self, asked: Sequence[Sequence[Probe]]) -> list[list[TrainedProbe]]:
        """The probes of each task after training, in the order in which they were asked for."""
        new = [
            (place, list({_key(probe): probe for probe in probes if _key(probe) not in learnt}.values()))
            for place, (probes, learnt) in enumerate(zip(asked, self._learnt, strict=True))
        ]
        new = [(place, probes) for place, probes in new if probes]
        trained = train_together([(self._benches[place], probes) for place, probes in new]) if new else []
        for (place, _), own in zip(new, trained, strict=True):
            self._learnt[place] |= {_key(probe.probe): probe for probe in own}
        return [[learnt[_key(probe)] for probe in own] for own, learnt in zip(asked, self._learnt, strict=True)]


def _key(probe: Probe) -> object:
    assert isinstance(probe.neurons, np.ndarray), "sets of neurons are given by their numbers"
    return probe.target, probe.neurons.tobytes(), probe.seed


def _rung_probes(task: Trained, shares: Sequence[float], penalty: Penalty) -> list[Probe]:
    return [Probe(TASK, task.head(share), penalty.l1, penalty.l2, task.bench.seed) for share in shares]


def _minimal_sets(tasks: Sequence[Trained], lessons: _Lessons, settings: Settings) -> list[Minimal]:
    """Of each task the lowest rung that is within `delta` of all neurons, and its own probes on the test part."""
    found = _lowest_rungs(tasks, lessons, settings)
    probes = [
        []
        if len(neurons) == len(task.order)
        else seeded_probes(task.bench, neurons, settings.penalties, settings.seeds)
        for task, (neurons, _) in zip(tasks, found, strict=True)
    ]
    return [
        Minimal(neurons, score, scored_set(task.bench, trained) if trained else task.whole)
        for task, (neurons, score), trained in zip(tasks, found, lessons.learn(probes), strict=True)
    ]


def _lowest_rungs(tasks: Sequence[Trained], lessons: _Lessons, settings: Settings) -> list[tuple[Neurons, float]]:
    """The neurons and their score on the development part; all neurons, whose score is known, suffice at last."""
    found: dict[int, tuple[Neurons, float]] = {}
    for shares in ROUNDS:
        asked = [
            [] if place in found else _rung_probes(task, shares, settings.penalties) for place, task in enumerate(tasks)
        ]
        for place, (task, trained) in enumerate(zip(tasks, lessons.learn(asked), strict=True)):
            scores = [score.value for score in task.bench.score(trained, "dev")] if trained else []
            rungs = zip(trained, scores, strict=True)
            enough = [(probe.neurons, score) for probe, score in rungs if score >= task.on_dev - settings.delta]
            if enough:
                found[place] = enough[0]
    return [found.get(place, (np.sort(task.order), task.on_dev)) for place, task in enumerate(tasks)]


def _sizes(task: Trained, minimal: Minimal) -> pd.DataFrame:
    whole = (len(task.order), task.on_dev, task.whole)
    return minimal_table(task.bench, {"all": whole, "minimal": (len(minimal.neurons), minimal.on_dev, minimal.on_test)})


def _spread(task: Trained, minimal: Neurons, shares: Sequence[float]) -> pd.DataFrame:
    """Where the salient neurons lie (Durrani et al. 2021, figures 2 and 3)."""
    tops = {(RANKING, f"top {share:.3g}"): top_and_bottom(task.order, share)[0] for share in shares}
    table = spread_table({(RANKING, "minimal"): minimal, **tops}, task.bench.splits.layout)
    return table.drop(columns="method")
