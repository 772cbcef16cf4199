"""`rank_neurons`: which neurons a task needs, how few suffice, where they lie and what they react to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, TaskCorpora
from residuum.engine import Workers
from residuum.errors import SettingError
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.penalty_search import best_penalty
from residuum.maths.probing import Recipe, TrainedProbe
from residuum.maths.rankings import Ranking, lca_ranking, mass_shares
from residuum.maths.selection import MinimalSet, top_and_bottom
from residuum.probing.batteries import TASK, Bench, parse_penalty
from residuum.probing.cards import card_of, card_tables
from residuum.probing.examples import Splits, activations_folder, held_memory, labelled_splits
from residuum.probing.orders import METHODS, OF_NUMBERS, agreement_table, class_table, ranking_table, task_rankings
from residuum.probing.rank_sets import (
    Penalty,
    SetScores,
    growth_table,
    minimal_table,
    scored_set,
    seeded_probes,
    selection_table,
    smallest_set,
    spread_table,
)
from residuum.probing.rank_settings import SHARES, Settings
from residuum.probing.sampling import SAMPLE, check_room
from residuum.probing.twins import Twin, twin_identity, twin_splits
from residuum.storage.results import Result, Run, finished_run, write_run

if TYPE_CHECKING:
    from residuum.models.loading import Model

Neurons = Int[np.ndarray, " neuron"]
AGREEMENT_SHARE = 0.05
"""The first neurons on which rankings are compared."""


@dataclass(frozen=True, eq=False)
class NeuronRanking(Result):
    """What `rank_neurons` found. `frame` is tidy: every neuron by every method, the most important first."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """method, rank, neuron, layer, index, score."""
        return self.run.tables["ranking"]

    @property
    def classes(self) -> pd.DataFrame:
        """The first neurons of each class by LCA."""
        return self.run.tables["class_ranking"]

    @property
    def agreement(self) -> pd.DataFrame:
        """How far each pair of rankings agrees, seeds of LCA among them."""
        return self.run.tables["agreement"]

    @property
    def selection(self) -> pd.DataFrame:
        """Accuracy with only the top or bottom neurons of each ranking, before and after retraining."""
        return self.run.tables["selection"]

    @property
    def minimal(self) -> pd.DataFrame:
        """All neurons beside the minimal set: accuracy, control task, selectivity."""
        return self.run.tables["minimal"]

    @property
    def spread(self) -> pd.DataFrame:
        """How many neurons of each set lie in each layer."""
        return self.run.tables["spread"]

    @property
    def minimal_neurons(self) -> list[str]:
        """The minimal set, most important first."""
        return self.top(int(self.minimal["neurons"].iloc[-1]))

    def top(self, n: int, method: str | None = None) -> list[str]:
        """The first n neurons of a ranking (by default the one that the minimal set follows), as `layer:index`."""
        method = method or self.run.config["by"]
        rows = self.frame.loc[self.frame["method"] == method]
        if rows.empty:
            raise SettingError(f"{method} was not ranked; there are {', '.join(self.frame['method'].unique())}.")
        return rows["neuron"].head(n).tolist()

    def card(self, neuron: str) -> dict[str, pd.DataFrame]:
        """The tables of one neuron: its words, its contexts, and what it does in each class."""
        found = card_of(self.run.tables, neuron)
        if not found or found["words"].empty:
            raise SettingError(f"Neuron {neuron} has no card; rank again with neurons=[{neuron!r}].")
        return found

    def text(self) -> str:
        """The main figures as lines for a terminal."""
        rows = [
            f"{row['set']:>8}: {row['neurons']:,} neurons, {row['accuracy']:.4f} [{row['low']:.4f}, {row['high']:.4f}]"
            + ("" if np.isnan(row["control"]) else f", selectivity {row['selectivity']:.4f}")
            for row in self.minimal.to_dict("records")
        ]
        return "\n".join([*rows, *(f"{key}: {value}" for key, value in self.run.summary.items())])


def rank_neurons(
    source: Model | ActivationStore | Mapping[str, ActivationStore] | str | os.PathLike[str],
    data: Sequence[Any] | Mapping[str, Sequence[Any]] | Corpus | TaskCorpora | str | os.PathLike[str],
    task: str | Task = "labels",
    *,
    methods: Sequence[str] = METHODS,
    by: str = "lca",
    shares: Sequence[float] = SHARES,
    delta: float = 0.01,
    penalty: str = "1e-5",
    seeds: int = 3,
    sample: int = SAMPLE,
    neurons: Sequence[str] = (),
    cards: int = 10,
    random_twin: Twin = False,
    recipe: Recipe | None = None,
    out: str | Path | None = None,
    activations: str | os.PathLike[str] | None = None,
    max_memory: int | None = None,
    seed: int = 0,
    workers: Workers = None,
    fresh: bool = False,
    say: Callable[[str], object] = lambda _: None,
    **reading: Any,
) -> NeuronRanking:
    """Rank the neurons of all layers for a task, and find the fewest that suffice.

    `source` and `data` are a store and its labels, or a model and a corpus, as `labelled_splits` takes them; so are
    `reading` (`layers`, `dev`, `test`, `limit` …). A model's activations are kept in `activations`, or in `out`.
    Rankings come from the training part; the minimal set, within `delta` of the probe of all neurons, is chosen on
    the development part; accuracies are those of the test part. `penalty` is `λ1,λ2` or `search`. `neurons` get
    cards, or else the first `cards` of the ranking `by`. `random_twin` adds what the same model with random weights (or
    its stores) scores. `workers` (processes, or an `Engine`) read and train, each holding up to `max_memory` bytes.
    `say` is told what takes long before it begins.
    """
    settings = Settings(tuple(methods), by, tuple(shares), delta, penalty, seeds, sample, tuple(neurons), cards, seed)
    recipe = recipe or Recipe()
    with activations_folder(activations, out) as folder:
        reading |= {"seed": seed, "workers": workers, "fresh": fresh, "max_memory": max_memory}
        splits = labelled_splits(source, data, task, activations=folder, **reading)
        wanted = splits.layout.parse(neurons)
        splits, twin = twin_splits(splits, source, data, task, random_twin, folder, reading)
        config = {**splits.facts, **settings.facts, "random_twin": twin_identity(twin), "recipe": asdict(recipe)}
        if out is not None and (run := finished_run(out, "rank", config, fresh=fresh)):
            return NeuronRanking(run)
        run = _ranked(
            Bench(splits, recipe, held_memory(max_memory), seed, workers), twin, settings, wanted, config, say
        )
    if out is not None:
        write_run(out, run)
    return NeuronRanking(run)


@dataclass(frozen=True, eq=False)
class _Oracle:
    """The probes of all neurons: the first seed of the task ranks, the others tell how steady it is."""

    trained: list[TrainedProbe]
    scores: SetScores
    dev: float

    @property
    def probe(self) -> TrainedProbe:
        return self.probes[0]

    @property
    def probes(self) -> list[TrainedProbe]:
        return [score.probe for score in self.scores.task]


def _ranked(
    bench: Bench,
    twin: Splits | None,
    settings: Settings,
    wanted: Neurons,
    config: dict[str, Any],
    say: Callable[[str], object],
) -> Run:
    left_out = [name for name in settings.methods if bench.splits.regression and name not in OF_NUMBERS]
    methods = [name for name in settings.methods if name not in left_out]
    methods = methods if settings.by in methods else [settings.by, *methods]
    check_room(bench, methods, settings.sample)
    penalty, penalties = _penalty(bench, settings, say)
    oracle = _oracle(bench, settings, penalty, say)
    say(f"Ranking {bench.splits.layout.n_neurons:,} neurons by {', '.join(methods)}.")
    rankings = task_rankings(bench, oracle.probe, methods, settings.sample)
    orders = {method: ranking.order for method, ranking in rankings.items()}
    say(f"Probes with the top and bottom {', '.join(f'{share:.0%}' for share in settings.shares)} of each ranking.")
    selection = selection_table(bench, oracle.probes, orders, settings.shares, penalty)
    say("Looking for the smallest set of neurons that suffices.")
    minimal = smallest_set(bench, orders[settings.by], oracle.dev, settings.delta, penalty)
    reduced = scored_set(bench, bench.train(seeded_probes(bench, np.sort(minimal.neurons), penalty, settings.seeds)))
    sizes = {"all": (bench.splits.layout.n_neurons, oracle.dev, oracle.scores)}
    compared = minimal_table(bench, {**sizes, "minimal": (len(minimal.neurons), minimal.score, reduced)})
    if twin is not None:
        say("The same probes of a model with random weights.")
        compared["random_twin"] = _twin_scores(replace(bench, splits=twin), settings, penalty, len(minimal.neurons))
    tables = {
        "ranking": ranking_table(rankings, bench.splits.layout),
        **_class_tables(bench, oracle.probe),
        "agreement": agreement_table(orders | _other_seeds(oracle, methods), AGREEMENT_SHARE),
        "selection": selection,
        "minimal": compared,
        "growth": growth_table(minimal),
        "spread": _spread(orders, minimal, settings, bench.splits.layout),
        **({"penalties": penalties} if penalties is not None else {}),
        **_cards(bench, orders[settings.by], wanted, settings),
        "audit": bench.splits.audit,
    }
    summary = _summary(bench, oracle, minimal, compared, penalty, left_out)
    return Run("rank", config, summary, tables, _tensors(oracle.probe, rankings))


def _penalty(bench: Bench, settings: Settings, say: Callable[[str], object]) -> tuple[Penalty, pd.DataFrame | None]:
    """The penalties as given, or those that tell neurons apart best (with the whole grid)."""
    given = parse_penalty(settings.penalty)
    if given is not None:
        return Penalty(*given), None
    say("Searching the penalties: 64 probes of all neurons in one battery.")
    grid = bench.search_penalty()
    best = best_penalty(grid)
    unpenalised = next(cell.accuracy for cell in grid if cell.l1 == cell.l2 == 0)
    table = pd.DataFrame([{**vars(cell), "merit": cell.merit(unpenalised), "chosen": cell == best} for cell in grid])
    return Penalty(best.l1, best.l2), table


def _oracle(bench: Bench, settings: Settings, penalty: Penalty, say: Callable[[str], object]) -> _Oracle:
    probes = seeded_probes(bench, None, penalty, settings.seeds)
    say(f"The oracle: {bench.estimate(probes)}.")
    trained = bench.train(probes)
    scores = scored_set(bench, trained)
    (on_dev,) = bench.score([scores.task[0].probe], "dev")
    return _Oracle(trained, scores, on_dev.value)


def _twin_scores(bench: Bench, settings: Settings, penalty: Penalty, size: int) -> list[float]:
    """What the twin scores with all of its neurons, and with as many of its own best as the minimal set has."""

    def scored(neurons: Neurons | None) -> SetScores:
        probes = seeded_probes(bench, neurons, penalty, settings.seeds)
        return scored_set(bench, bench.train([probe for probe in probes if probe.target == TASK]))

    whole = scored(None)
    order = task_rankings(bench, whole.task[0].probe, [settings.by], settings.sample)[settings.by].order
    return [whole.accuracy, scored(np.sort(order[:size])).accuracy]


def _other_seeds(oracle: _Oracle, methods: Sequence[str]) -> dict[str, Neurons]:
    if "lca" not in methods:
        return {}
    return {f"lca (seed {probe.probe.seed})": lca_ranking(probe.weight).order for probe in oracle.probes[1:]}


def _class_tables(bench: Bench, probe: TrainedProbe) -> dict[str, pd.DataFrame]:
    classes = bench.targets["task"].classes
    return {"class_ranking": class_table(probe, classes, bench.splits.layout)} if classes else {}


def _cards(bench: Bench, order: Neurons, wanted: Neurons, settings: Settings) -> dict[str, pd.DataFrame]:
    """The cards of some neurons over all words of the training part, those without a label among them."""
    columns = wanted if wanted.size else order[: settings.cards]
    train, ids = bench.splits.train, bench.splits.layout.format(columns.tolist())
    return card_tables(train.with_unlabelled, ids, bench.max_memory, train) if ids else {}


def _spread(
    orders: Mapping[str, Neurons], minimal: MinimalSet, settings: Settings, layout: NeuronLayout
) -> pd.DataFrame:
    sets = {(settings.by, "minimal"): minimal.neurons}
    for method, order in orders.items():
        for share in settings.shares:
            sets[method, f"top {share:.3g}"] = top_and_bottom(order, share)[0]
    return spread_table(sets, layout)


def _tensors(probe: TrainedProbe, rankings: Mapping[str, Ranking]) -> dict[str, np.ndarray]:
    """Whole orders (as columns of all layers side by side), and what they come from."""
    return {
        **{f"order.{method}": ranking.order.astype(np.int64) for method, ranking in rankings.items()},
        "weight": probe.weight.astype(np.float32),
        "bias": probe.bias.astype(np.float32),
        "mass_share": mass_shares(probe.weight).astype(np.float32),
    }


def _summary(
    bench: Bench,
    oracle: _Oracle,
    minimal: MinimalSet,
    compared: pd.DataFrame,
    penalty: Penalty,
    left_out: Sequence[str],
) -> dict[str, Any]:
    whole, reduced = compared.iloc[0], compared.iloc[-1]
    measure = "pearson" if bench.splits.regression else "accuracy"
    unseen = getattr(oracle.scores.task[0].details, "n_unseen", 0)
    return {
        "examples": len(bench.splits.train),
        "test examples": len(bench.splits.test),
        "neurons": int(whole["neurons"]),
        f"oracle {measure}": float(whole["accuracy"]),
        **({"oracle selectivity": float(whole["selectivity"])} if oracle.scores.control else {}),
        **bench.baselines(),
        "minimal neurons": int(reduced["neurons"]),
        "minimal share": float(reduced["share"]),
        f"minimal {measure}": float(reduced["accuracy"]),
        **({"minimal selectivity": float(reduced["selectivity"])} if oracle.scores.control else {}),
        **({"random twin": float(whole["random_twin"])} if "random_twin" in compared else {}),
        **({"random twin, minimal": float(reduced["random_twin"])} if "random_twin" in compared else {}),
        "within delta on dev": minimal.sufficient,
        "penalty": f"{penalty.l1:g},{penalty.l2:g}",
        **({"test labels unseen in training": unseen} if unseen else {}),
        **({"left out": f"{', '.join(left_out)} (the task predicts numbers)"} if left_out else {}),
    }
