"""`rank`: which neurons a task needs, how few are sufficient, where they lie and which words they react to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.errors import SettingError
from residuum.maths.probing import TrainedProbe
from residuum.maths.rankings import Ranking, beats_random, lca_ranking, mass_shares
from residuum.maths.selection import MinimalSet, top_and_bottom
from residuum.probing.baselines import baselines, read_task_data, twin_identity
from residuum.probing.examples import Splits, activations_folder, held_memory
from residuum.probing.neuron_cards import card_of, card_tables
from residuum.probing.orders import (
    CLASS_NEURONS,
    OF_NUMBERS,
    OrderSettings,
    agreement_table,
    check_memory,
    class_forward_table,
    class_neuron_table,
    find_minimal_set,
    forward_orders,
    growth_table,
    layer_spread_table,
    neuron_order,
    neuron_orders,
    order_table,
)
from residuum.probing.probe_data import TASK, ProbeData
from residuum.probing.scores import (
    ALL,
    BASELINES,
    PartScores,
    ProbeGrid,
    TrainedGrid,
    all_layers,
    doubts,
    kept_text,
    neuron_set,
    score_table,
    unseen_labels,
)
from residuum.probing.settings import RankSettings, arguments
from residuum.settings import command
from residuum.storage.results import Result, Run, finished_run, write_run

Neurons = Int[np.ndarray, " neuron"]
AGREEMENT_SHARE = 0.05
"""The first neurons on which orders are compared."""
MINIMAL = "minimal"


@dataclass(frozen=True, eq=False)
class NeuronRanking(Result):
    """What `rank` found. `frame` is tidy: every neuron by every method, the most important first."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """method, rank, neuron, layer, index, score."""
        return self.run.tables["ranking"]

    @property
    def classes(self) -> pd.DataFrame:
        """The first neurons of each class by the weights of the probe of all neurons."""
        return self.run.tables["class_ranking"]

    @property
    def class_forward(self) -> pd.DataFrame:
        """The first neurons of each class by forward selection: those that tell it from all other classes."""
        return self.run.tables["class_forward"]

    @property
    def agreement(self) -> pd.DataFrame:
        """How far each pair of orders agrees."""
        return self.run.tables["agreement"]

    @property
    def selection(self) -> pd.DataFrame:
        """Scores with only the top or bottom neurons of each order, without and with retraining."""
        return self.run.tables["selection"]

    @property
    def minimal(self) -> pd.DataFrame:
        """All neurons beside the minimal set: score, baselines, control task, selectivity."""
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
        """The first n neurons of an order (by default the one that the minimal set follows), as `layer:index`."""
        method = method or self.run.config["by"]
        rows = self.frame.loc[self.frame["method"] == method]
        if rows.empty:
            raise SettingError(f"{method} was not ranked; there are {', '.join(self.frame['method'].unique())}.")
        return rows["neuron"].head(n).tolist()

    def card(self, neuron: str) -> dict[str, pd.DataFrame]:
        """The tables of one neuron: its words, its contexts, and what it does in each class."""
        tables = card_of(self.run.tables, neuron)
        if not tables or tables["words"].empty:
            raise SettingError(f"Neuron {neuron} has no card; rank again with neurons=[{neuron!r}].")
        return tables

    def text(self) -> str:
        """The main figures as lines for a terminal, warnings, the answer and the next command."""
        summary, minimal = self.run.summary, self.minimal
        lines = [
            f"{row['set']:>8}: {row['neurons']:,} neurons, {row['metric']} {row['score']:.3f} "
            f"[{row['low']:.3f}, {row['high']:.3f}]"
            + ("" if np.isnan(row["selectivity"]) else f", selectivity {row['selectivity']:.3f}")
            + ("" if np.isnan(row["random_twin"]) else f", random twin {row['random_twin']:.3f}")
            for row in minimal.to_dict("records")
        ]
        known = ", ".join(f"{n.replace('_', ' ')} {minimal[n].iloc[0]:.3f}" for n in BASELINES if n in minimal)
        lines += [f"baselines: {known}"] if known else []
        top = self.selection.loc[self.selection["set"] == "top"]
        table = top.pivot(index="method", columns="share", values="retrained").rename(columns="{:.0%}".format)
        lines += ["", "Score of a probe on the first neurons:", table.round(3).to_string(), ""]
        return "\n".join([*lines, *summary["warnings"], summary["answer"], f"Next: {summary['next']}"])


@command(RankSettings)
def rank(settings: RankSettings) -> NeuronRanking:
    """Rank the neurons of all layers for a task, and find the fewest that are sufficient.

    Orders come from the training part. The minimal set follows the order `by`: the smallest head that keeps the share
    `keep` of the score of all neurons, within one standard error over sentences of dev (cross-validated on train and
    dev where dev is small). Scores are those of the test part. Several random orders stand beside the others. `neurons`
    get cards, or else the first `cards` of the order.
    """
    with activations_folder(settings.activations, settings.out) as folder, settings.opened_engine() as engine:
        splits, twin = read_task_data(settings, folder, engine)
        wanted = splits.layout.parse(settings.neurons)
        memory = held_memory(settings.max_memory)
        training = (settings.seed, engine, settings.penalty, settings.seeds)
        data = ProbeData(splits, settings.probe_recipe(), memory, *training)
        config = {**data.facts, **settings.identity(), "random_twin": twin_identity(twin)}
        if settings.out is not None and (run := finished_run(settings.out, "rank", config, fresh=settings.fresh)):
            return NeuronRanking(run)
        run = _ranked(data, twin, settings, wanted, config)
    if settings.out is not None:
        write_run(settings.out, run)
    return NeuronRanking(run)


def _ranked(
    data: ProbeData, twin: Splits | None, settings: RankSettings, wanted: Neurons, config: dict[str, Any]
) -> Run:
    left_out = [name for name in settings.methods if data.splits.regression and name not in OF_NUMBERS]
    methods = list(dict.fromkeys([settings.by, *(name for name in settings.methods if name not in left_out), "random"]))
    options = OrderSettings(settings.lca_penalty, settings.sample, settings.random_orders)
    check_memory(data, methods, settings.sample)
    settings.say(f"Probing all {data.splits.layout.n_neurons:,} neurons on {len(data.splits.train):,} examples.")
    whole = ProbeGrid(data, [all_layers(data.splits.layout)]).train()
    oracles = [score.probe for score in whole.on("test").runs(ALL)]
    settings.say(f"Ordering neurons by {', '.join(methods)}.")
    forward, of_classes = forward_orders(data, methods, CLASS_NEURONS)
    rankings = neuron_orders(data, methods, options, oracles[0], forward)
    orders = {method: ranking.order for method, ranking in rankings.items()}
    settings.say(f"Probing the top and bottom {', '.join(f'{share:.0%}' for share in settings.shares)} of each order.")
    selection = selection_table(data, oracles, orders, settings.shares)
    settings.say("Searching the smallest sufficient set of neurons.")
    by = settings.by
    minimal = find_minimal_set(
        data,
        lambda fold: neuron_order(fold, by, settings=options),
        orders[by],
        settings.keep,
        oracle=whole.on("dev").runs(ALL)[0].sums,
    )
    compared = _minimal_table(whole, twin, minimal, settings, options)
    named = {name: order for name, order in orders.items() if not name.startswith("random ")}
    oracle, train = oracles[0], data.splits.train
    # Over all words of the training part, those without a label among them.
    cards = data.splits.layout.format((wanted if wanted.size else orders[by][: settings.cards]).tolist())
    tables = {
        **_order_tables(data, {name: rankings[name] for name in named}, oracles, of_classes),
        "selection": selection,
        "minimal": compared,
        "growth": growth_table(minimal),
        "spread": _spread_table(named, minimal, settings, data),
        **(card_tables(train.with_unlabelled, cards, data.max_memory, train) if cards else {}),
        "audit": data.splits.audit,
    }
    tensors = {
        **{f"order.{method}": order.astype(np.int64) for method, order in named.items()},
        "weight": oracle.weight.astype(np.float32),
        "bias": oracle.bias.astype(np.float32),
        "mass_share": mass_shares(oracle.weight).astype(np.float32),
    }
    return Run("rank", config, _summary(data, compared, selection, minimal, settings, left_out), tables, tensors)


def _order_tables(
    data: ProbeData, rankings: Mapping[str, Ranking], oracles: Sequence[TrainedProbe], of_classes: Mapping[str, Ranking]
) -> dict[str, pd.DataFrame]:
    """All orders neuron by neuron, those of single classes, and how far orders agree, also those of LCA's seeds."""
    orders = {name: ranking.order for name, ranking in rankings.items()}
    if "lca" in orders:
        orders |= {f"lca (seed {oracle.probe.seed})": lca_ranking(oracle.weight).order for oracle in oracles[1:]}
    of_class = {"class_ranking": class_neuron_table(data, oracles[0])} if data.targets[TASK].classes else {}
    of_class |= {"class_forward": class_forward_table(data, of_classes)} if of_classes else {}
    return {
        "ranking": order_table(rankings, data.splits.layout),
        **of_class,
        "agreement": agreement_table(orders, AGREEMENT_SHARE),
    }


def selection_table(
    data: ProbeData, oracles: Sequence[TrainedProbe], orders: Mapping[str, Neurons], shares: Sequence[float]
) -> pd.DataFrame:
    """Scores with only the top or bottom neurons (Durrani et al. 2021, tables 1, 4, 5), on the test part.

    `kept`: the `oracles`, probes of all neurons, without retraining: they see 0 in all other neurons. `retrained`:
    probes of their own. Random orders are one row each share and end, the mean over them, and `beats_random` says
    whether a retrained top lies above their mean by more than chance (`maths.rankings.beats_random`).
    """
    named = {name: [order] for name, order in orders.items() if not name.startswith("random")}
    named["random"] = [order for name, order in orders.items() if name.startswith("random")]
    cells = list(product(named, shares, ("top", "bottom")))
    heads = {
        (method, share, end): [top_and_bottom(order, share)[end == "bottom"] for order in named[method]]
        for method, share, end in cells
    }
    sets = [neuron_set(str(cell), "order", data.splits.layout, *heads[cell]) for cell in cells]
    retrained = ProbeGrid(data, sets, [TASK]).train().on("test")
    keeping = {
        neurons.name: [oracle.keeping(draw) for draw in neurons.draws or (neurons.picked,) for oracle in oracles]
        for neurons in sets
    }
    scores = iter(data.score([probe for probes in keeping.values() for probe in probes], "test"))
    by_set = {(name, TASK): [next(scores) for _ in probes] for name, probes in keeping.items()}
    kept, rows = PartScores(data, "test", sets, by_set), []
    for (method, share, end), neurons in zip(cells, sets, strict=True):
        after, before = retrained.interval(neurons.name), kept.interval(neurons.name)
        random = retrained.values(str(("random", share, end)))
        value, error = retrained.mean(neurons.name), float(after.standard_error)
        rows.append(
            {"method": method, "share": share, "set": end, "neurons": neurons.n_neurons, "metric": data.metric}
            | {"kept": kept.mean(neurons.name), "kept_sd": kept.deviation(neurons.name)}
            | {"kept_low": float(before.low), "kept_high": float(before.high)}
            | {"retrained": value, "sd": retrained.deviation(neurons.name), "low": float(after.low)}
            | {"high": float(after.high), "runs": len(retrained.runs(neurons.name))}
            | {"beats_random": method != "random" and len(random) > 1 and beats_random(value, random, error)}
        )
    return pd.DataFrame(rows)


def _minimal_table(
    whole: TrainedGrid, twin: Splits | None, minimal: MinimalSet, settings: RankSettings, options: OrderSettings
) -> pd.DataFrame:
    """All neurons beside the minimal set (Durrani et al. 2021, table 7): the score table, as `set` and `share`."""
    data, size = whole.grid.data, len(minimal.neurons)
    layout = data.splits.layout
    sets = [all_layers(layout), neuron_set(MINIMAL, MINIMAL, layout, minimal.neurons, ordered=True)]
    twin_scores: dict[str, float] = {}
    if twin is not None:
        settings.say("Probing the random twin.")
        other = data.of(twin)
        order = neuron_order(other, settings.by, settings=options)
        twin_sets = [all_layers(layout), neuron_set(MINIMAL, MINIMAL, layout, order[:size], ordered=True)]
        scores = ProbeGrid(other, twin_sets, [TASK]).train().on("test")
        twin_scores = {name: scores.mean(name) for name in (ALL, MINIMAL)}
    trained = TrainedGrid(ProbeGrid(data, sets), [*whole.trained, *ProbeGrid(data, sets[1:]).train().trained])
    table = score_table(trained.on("dev"), trained.on("test"), twin_scores, settings.keep, baselines(data))
    table.insert(0, "set", ["all", MINIMAL])
    table.insert(1, "share", table["neurons"] / layout.n_neurons)
    table["sufficient"] = [True, minimal.sufficient]
    return table.drop(columns=["kind", "features", "layer", "layers"])


def _spread_table(
    orders: Mapping[str, Neurons], minimal: MinimalSet, settings: RankSettings, data: ProbeData
) -> pd.DataFrame:
    sets = {(settings.by, MINIMAL): minimal.neurons}
    for (method, order), share in product(orders.items(), settings.shares):
        sets[method, f"top {share:.3g}"] = top_and_bottom(order, share)[0]
    return layer_spread_table(sets, data.splits.layout)


def _summary(
    data: ProbeData,
    compared: pd.DataFrame,
    selection: pd.DataFrame,
    minimal: MinimalSet,
    settings: RankSettings,
    left_out: Sequence[str],
) -> dict[str, Any]:
    whole, reduced = compared.to_dict("records")
    known = {name.replace("_", " "): whole[name] for name in BASELINES if name in whole}
    answer, first = kept_text(reduced, whole, settings.keep), data.splits.layout.format(minimal.neurons[:3].tolist())
    return {
        "metric": data.metric,
        "examples": len(data.splits.train),
        "test examples": len(data.splits.test),
        "neurons": whole["neurons"],
        "oracle": whole["score"],
        **{f"{name} baseline": value for name, value in known.items()},
        "minimal neurons": reduced["neurons"],
        "minimal share": reduced["share"],
        "minimal": reduced["score"],
        "sufficient": minimal.sufficient,
        "seeds": whole["seeds"],
        "unseen labels": len(unseen_labels(data)),
        **({"left out": f"{', '.join(left_out)} (the task predicts numbers)"} if left_out else {}),
        "warnings": [*doubts(data, whole, known, settings.keep), *_order_warnings(selection)],
        "answer": answer if minimal.sufficient and reduced["share"] < 1 else "No smaller set of neurons is sufficient.",
        "next": f"residuum ablate {arguments(settings.model, settings.data, store=False)} --task "
        f"{data.splits.task.name}{settings.as_options} --neurons {','.join(first)} --out OUT",
    }


def _order_warnings(selection: pd.DataFrame) -> list[str]:
    """A line that names the orders whose first neurons are not better than random ones, and at which shares."""
    top = selection.loc[(selection["set"] == "top") & (selection["method"] != "random")]
    lost = top.loc[~top["beats_random"].astype(bool)].groupby("share")["method"]
    tried = top.groupby("share")["method"].count()
    parts = [
        f"at {share:.0%} {'every order' if len(methods) == tried[share] else ', '.join(methods)}"
        for share, methods in lost
    ]
    return [f"Warning: not better than random orders of neurons: {'; '.join(parts)}."] if parts else []
