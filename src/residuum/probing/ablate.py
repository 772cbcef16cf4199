"""`ablate`: silence neurons in the running model and measure a task again. Is what they encode also used?

A probe that loses accuracy when it no longer *sees* some neurons (masked) shows that they encode the task. If it loses
more when the *model* runs without them (running), the rest of the network computed from them: they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from residuum.activations.extraction import extract
from residuum.activations.store import neuron_means
from residuum.corpus.tasks import TaskCorpora, labels_of, named_task, read_task
from residuum.maths.features import column_scatter, windows
from residuum.maths.layouts import NeuronLayout
from residuum.maths.metrics import combined_interval
from residuum.maths.probing import TrainedProbe
from residuum.maths.selection import top_and_bottom
from residuum.maths.statistics import Interval
from residuum.models.ablation import ablated, silenced_values
from residuum.models.loading import Model, as_model, parse_layers
from residuum.probing.baselines import baselines
from residuum.probing.examples import activations_folder, examples, held_memory, labelled_splits
from residuum.probing.orders import neuron_orders
from residuum.probing.probe_data import CONTROL, TASK, ProbeData
from residuum.probing.scores import (
    ALL,
    PartScores,
    ProbeGrid,
    TrainedGrid,
    all_layers,
    rival_warnings,
    score_columns,
    single_layers,
)
from residuum.probing.settings import AblateSettings, ProbeTraining
from residuum.settings import command
from residuum.storage.results import Result, Run, finished_run, scratch, write_run

Neurons = Int[np.ndarray, " neuron"]
SilencedSets = dict[tuple[str, float], Neurons]
"""Neurons by the name of their set and its share of all neurons."""
NEURON_TABLE = "neurons"


@dataclass(frozen=True, eq=False)
class Ablation(Result):
    """The result of `ablate`. `frame` has one row per set of silenced neurons and probe."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """set, share, neurons, probe, layer, intact, masked, running, sd, low, high, drop, used, …, retrained."""
        return self.run.tables["ablation"]

    @property
    def neurons(self) -> pd.DataFrame:
        """The neurons of each set."""
        return self.run.tables[NEURON_TABLE]

    @property
    def answer(self) -> str:
        """Whether the model uses the first set of neurons, in a sentence."""
        return self.run.summary["answer"]

    def text(self) -> str:
        """The scores of each probe, the baselines, and whether the model uses the first set of neurons."""
        lines = [
            f"{row['set']:>8} {row['share']:.3g}  {row['probe']:>10}  intact {row['intact']:.3f}  masked "
            f"{row['masked']:.3f}  running {row['running']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            + ("" if np.isnan(row["retrained"]) else f"  retrained {row['retrained']:.3f}")
            for row in self.frame.to_dict("records")
        ]
        summary, config = self.run.summary, self.run.config
        known = [
            f"{name} {value:.3f}" for name, value in summary.items() if name.endswith(("baseline", "control task"))
        ]
        probes = ProbeTraining(recipe=config["recipe"], seeds=config["seeds"]).probes_in_words
        lines.append(f"{summary['metric']}; {', '.join(known) or 'no baseline'}; {probes}.")
        return "\n".join([*lines, *summary.get("warnings", []), self.answer, f"Next: {summary['next']}"])


@command(AblateSettings)
def ablate(settings: AblateSettings) -> Ablation:
    """Silence neurons of a running model and test the probes of a task again, in every layer.

    Silenced are the top and the bottom `shares` of an order of the neurons of the layers `within` (`by` forward
    selection or LCA), and as many random neurons from the same layers as the top (`draws` times); or the named
    `neurons`, and as many random ones. `how` is `zero`, `mean` (of the training part) or `keep` (the others of these
    layers are silenced). Probes of the task and of its
    control task learn from the intact model. With `retrain` they also learn from the ablated model,
    which reads the training part once more per set.
    """
    task, out = named_task(settings.task), settings.out
    model = as_model(settings.model, device=settings.device, max_memory=settings.max_memory)
    named = NeuronLayout(model.widths).parse(settings.neurons)
    layers = parse_layers(settings.within, model.n_layers)
    corpora = settings.corpus
    if not isinstance(corpora, TaskCorpora):
        reading = {name: getattr(settings, name) for name in ("dev", "test", "limit", "seed")}
        corpora = read_task(task, corpora, **reading, **settings.table)
    corpora = corpora.as_pairs()
    options = {name: getattr(settings, name) for name in ("fresh", "max_memory", "max_loss", "seed", "progress")}
    with activations_folder(settings.activations, out) as folder, settings.opened_engine() as engine:
        splits = labelled_splits(model, corpora, task, activations=folder, workers=engine, **options)
        config = {**splits.facts, **settings.identity()}
        if out is not None and (run := finished_run(out, "ablate", config, fresh=settings.fresh)):
            return Ablation(run)
        training = (settings.seed, engine, settings.penalty, settings.seeds)
        probes = ProbeData(splits, settings.probe_recipe(), held_memory(settings.max_memory), *training)
        with scratch(out, config, fresh=settings.fresh) as temporary:
            intact = _IntactModel(model, corpora, probes, settings, temporary)
            sets = _silenced_sets(named, layers, intact)
            frame = pd.concat([intact.silenced(name, columns) for name, columns in sets.items()], ignore_index=True)
    tables = {"ablation": frame, NEURON_TABLE: _neuron_table(sets, splits.layout), "audit": splits.audit}
    run = Run("ablate", config, _summary(frame, intact.scores), tables)
    if out is not None:
        write_run(out, run)
    return Ablation(run)


@dataclass(frozen=True, eq=False)
class _IntactModel:
    """A model with the probes that learn from it, and what becomes of them when neurons are silenced."""

    model: Model
    corpora: TaskCorpora
    data: ProbeData
    settings: AblateSettings
    folder: Path  # where activations of the ablated model are kept for a while

    @cached_property
    def probes(self) -> TrainedGrid:
        """Probes of all layers side by side, and of each layer: the task and its control task."""
        layout = self.data.splits.layout
        grid = ProbeGrid(self.data, [all_layers(layout), *single_layers(layout)[:-1]])
        self.settings.say(f"The intact model: {len(grid.probes)} probes.")
        return grid.train()

    @cached_property
    def scores(self) -> PartScores:
        """The scores of these probes on the test part."""
        return self.probes.on("test")

    def silenced(self, name: tuple[str, float], columns: Neurons) -> pd.DataFrame:
        """All probes with one set of neurons silenced: masked in what they read, and in the running model."""
        layout, how = self.data.splits.layout, self.settings.how
        ids = layout.format(columns.tolist())
        means = neuron_means(self.data.splits.train.store) if how == "mean" else None
        silences = silenced_values(self.model.widths, ids, how, means)
        starts = [layout.layer_slice(layer).start for layer in silences]
        places = np.concatenate([start + s.indices.numpy() for start, s in zip(starts, silences.values(), strict=True)])
        values = np.concatenate([silence.values.numpy() for silence in silences.values()])
        self.settings.say(f"The model reads again with {len(places):,} neurons silenced ({name[0]}).")
        ablated_data = self._read_ablated(ids, means)
        masked_probes = [_masked(probe, places, values) for probe in self.probes.trained]
        masked = replace(self.probes, trained=masked_probes).on("test")
        running = self.probes.on("test", ablated_data)
        rows = [
            {
                "set": name[0],
                "share": name[1],
                "neurons": len(columns),
                "probe": probe.name,
                "layer": probe.layer,
                **self._figures(probe.name, masked, running),
            }
            for probe in self.scores.sets
        ]
        frame = pd.DataFrame(rows).astype({"layer": "Int64"})
        retrained: list[float] | float = np.nan  # where that was not asked for
        if self.settings.retrain:
            scores = ProbeGrid(ablated_data, self.scores.sets, [TASK]).train().on("test")
            retrained = [scores.mean(probe.name) for probe in scores.sets]
        return frame.assign(change=_changes(self.data, ablated_data), retrained=retrained)

    def _read_ablated(self, ids: Sequence[str], means: Mapping[int, np.ndarray] | None) -> ProbeData:
        """The test part (and, to retrain, the other parts) as the ablated model reads it."""
        splits, read = self.data.splits, {}
        with ablated(self.model, ids, self.settings.how, means) as running:
            for part, corpus in self.corpora.items():
                if part == "test" or self.settings.retrain:
                    # The intact model has been checked for lost words already.
                    options: dict[str, Any] = {"unit": splits.task.unit, "max_loss": 1.0, "fresh": True}
                    store = extract(running, corpus, self.folder / part, progress=self.settings.progress, **options)
                    read[part] = examples(store, labels_of(corpus, splits.task))
        return self.data.of(replace(splits, **read))

    def _figures(self, probe: str, masked: PartScores, running: PartScores) -> dict[str, Any]:
        """Scores of one probe, with the intervals of `running` and of what is lost from `intact` and from `masked`."""
        intact, interval = self.scores, running.interval(probe)
        drop, used = (_loss(before, running, probe) for before in (intact, masked))
        return {
            "metric": self.data.metric,
            "intact": intact.mean(probe),
            "masked": masked.mean(probe),
            "running": running.mean(probe),
            "sd": running.deviation(probe),
            "seeds": len(running.runs(probe)),
            "low": float(interval.low),
            "high": float(interval.high),
            "drop": intact.mean(probe) - running.mean(probe),
            "drop_low": float(drop.low),
            "drop_high": float(drop.high),
            "used": masked.mean(probe) - running.mean(probe),
            "used_low": float(used.low),
            "used_high": float(used.high),
            "control_intact": intact.mean(probe, CONTROL),
            "control_masked": masked.mean(probe, CONTROL),
            "control_running": running.mean(probe, CONTROL),
        }


def _loss(before: PartScores, after: PartScores, probe: str) -> Interval:
    """The interval of the lost score: the same sentences are drawn for both."""
    runs = zip(before.runs(probe), after.runs(probe), strict=True)
    return combined_interval([[(1.0, a.sums), (-1.0, b.sums)] for a, b in runs], seed=after.data.seed)


def _masked(probe: TrainedProbe, columns: Neurons, values: Float[np.ndarray, " neuron"]) -> TrainedProbe:
    """The same probe, not retrained, that sees fixed values in some neurons: W x + b with x_S = v is another b."""
    place = {int(column): i for i, column in enumerate(columns)}
    hidden = np.array([int(neuron) in place for neuron in probe.neurons])
    seen = np.array([values[place[int(neuron)]] for neuron in probe.neurons[hidden]], np.float32)
    if probe.centre is not None and probe.scale is not None:
        seen = (seen - probe.centre[hidden]) / probe.scale[hidden]
    return replace(probe, weight=probe.weight * ~hidden, bias=probe.bias + probe.weight[:, hidden] @ seen)


def _changes(data: ProbeData, ablated_data: ProbeData) -> list[float]:
    """How far the test words moved, in all layers and in each: √(Σ‖x' − x‖² / Σ‖x − μ‖²), 0 where nothing did.

    Infinite where all that moved had been constant, as the first token is in the embeddings.
    """
    layout, moved = data.splits.layout, np.zeros(data.splits.layout.n_neurons)
    for before, after in zip(windows(data.features("test")), windows(ablated_data.features("test")), strict=True):
        moved += np.einsum("wn,wn->n", d := (after.x - before.x).astype(np.float64), d)
    variation = column_scatter(data.features("test"))
    changes = []
    for columns in (slice(None), *map(layout.layer_slice, layout.layers)):
        distance, spread = moved[columns].sum(), variation[columns].sum()
        changes.append(float(np.sqrt(distance / spread)) if spread else np.inf if distance > 0 else 0.0)
    return changes


def _silenced_sets(named: Neurons, layers: Sequence[int], intact: _IntactModel) -> SilencedSets:
    """The named neurons, else the top and the bottom of an order of the neurons of some layers; and random sets."""
    if named.size:
        named = np.unique(named)
        share = len(named) / intact.data.splits.layout.n_neurons
        return {("named", share): named, **_random_sets(named, share, intact)}
    by = intact.settings.by
    order = neuron_orders(intact.data, [by], oracle=intact.probes.trained[0])[by].order
    order = order[np.isin(order, intact.data.splits.layout.columns(layers))]
    sets: SilencedSets = {}
    for share in sorted(set(intact.settings.shares)):
        top, bottom = top_and_bottom(order, share)
        sets |= {("top", share): top, ("bottom", share): bottom, **_random_sets(top, share, intact)}
    return sets


def _random_sets(like: Neurons, share: float, intact: _IntactModel) -> SilencedSets:
    """Random sets with as many neurons of every layer as another set has, and none of its own if others are left."""
    layout, generator = intact.data.splits.layout, np.random.default_rng([intact.data.seed, 3])
    sets: SilencedSets = {}
    for draw in range(1, intact.settings.draws + 1):
        drawn = []
        for layer, count in zip(layout.layers, layout.spread(like), strict=True):
            in_layer = layout.columns([layer])
            others = np.setdiff1d(in_layer, like)
            drawn.append(generator.choice(others if len(others) >= count else in_layer, count, replace=False))
        sets[f"random {draw}", share] = np.sort(np.concatenate(drawn))
    return sets


def _neuron_table(sets: SilencedSets, layout: NeuronLayout) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"set": name, "share": share, "neuron": neuron, "layer": int(neuron.partition(":")[0])}
            for (name, share), columns in sets.items()
            for neuron in layout.format(columns.tolist())
        ]
    )


def _summary(frame: pd.DataFrame, intact: PartScores) -> dict[str, Any]:
    whole, data = frame.loc[frame["probe"] == ALL].to_dict("records"), intact.data
    known = {f"{name} baseline": value for name, value in baselines(data).items()}
    return {
        "metric": data.metric,
        "test examples": len(data.splits.test),
        "intact": whole[0]["intact"],
        **known,
        **({"control task": whole[0]["control_intact"]} if data.control else {}),
        **{
            f"{row['set']} {row['share']:.3g}": f"masked {row['masked']:.4f}, running {row['running']:.4f}"
            for row in whole
        },
        "warnings": rival_warnings(score_columns(intact, ALL), known),
        "answer": _answer(whole),
        "next": f"residuum describe MODEL CORPUS --neurons NEURONS --out OUT (the neurons are in {NEURON_TABLE}.csv)",
    }


def _answer(whole: Sequence[Mapping[str, Any]]) -> str:
    """Whether the model uses the first set of neurons, by the probe of all layers, beside random sets."""
    first, random = whole[0], [row["used"] for row in whole if row["set"].startswith("random")]
    cost = f"{first['used']:.3f} (95 % CI {first['used_low']:.3f} to {first['used_high']:.3f})"
    beside = f"; random sets of the same size cost {min(random):.3f} to {max(random):.3f}" if random else ""
    used = first["used_low"] > max(random, default=0.0)
    return (
        f"Silencing the {first['set']} {first['neurons']:,} neurons costs the running model {cost} beyond what the "
        f"probe loses by not seeing them{beside}. "
        + ("The model uses what they encode." if used else "No sign that the model uses them more than others.")
    )
