"""`ablate`: silence neurons in the running model and measure a task again. Is what they encode also used?

A probe that loses accuracy when it no longer *sees* some neurons (masked) tells that they encode the task. If it loses
more when the *model* does not have them either (running), the rest of the network computed from them: they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from residuum.activations.extraction import extract
from residuum.activations.store import neuron_means
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, TaskCorpora, labels_of, named_task, read_task
from residuum.errors import SettingError
from residuum.maths.features import column_scatter, windows
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probe_scores import ClassScores
from residuum.maths.probing import Probe, Recipe, TrainedProbe
from residuum.maths.rankings import lca_ranking
from residuum.maths.selection import top_and_bottom
from residuum.models.ablation import WAYS, Silence, ablated, silenced_values
from residuum.models.loading import Model, load_model, parse_layers
from residuum.probing.batteries import TASK, Bench, Score, accuracy_interval, parse_penalty
from residuum.probing.examples import activations_folder, examples, held_memory, labelled_splits
from residuum.probing.rank_sets import Penalty, SetScores, scored_sets, seeded_probes
from residuum.probing.rank_settings import check_shares
from residuum.storage.results import Result, Run, finished_run, scratch, write_run

Neurons = Int[np.ndarray, " neuron"]
ALL = "all layers"
"""The probe of all layers side by side."""


@dataclass(frozen=True, eq=False)
class Ablation(Result):
    """What `ablate` measured. `frame` has one row for each set of silenced neurons and each probe."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """set, share, neurons, probe, layer, intact, masked, running, sd, low, high, drop, …, change, retrained."""
        return self.run.tables["ablation"]

    @property
    def neurons(self) -> pd.DataFrame:
        """The neurons of each set."""
        return self.run.tables["neurons"]

    def text(self) -> str:
        """The scores of each probe as lines for a terminal."""
        return "\n".join(
            f"{row['set']:>8} {row['share']:.3g}  {row['probe']:>10}  intact {row['intact']:.4f}  masked "
            f"{row['masked']:.4f}  running {row['running']:.4f} [{row['low']:.4f}, {row['high']:.4f}]"
            + ("" if np.isnan(row["retrained"]) else f"  retrained {row['retrained']:.4f}")
            for row in self.frame.to_dict("records")
        )


def ablate(
    source: Model | str | os.PathLike[str],
    data: Corpus | TaskCorpora | str | os.PathLike[str],
    task: str | Task = "upos",
    *,
    neurons: Sequence[str] = (),
    shares: Sequence[float] = (0.05,),
    within: str | int | Sequence[int] = "all",
    how: str = "zero",
    retrain: bool = False,
    draws: int = 3,
    penalty: str = "1e-5",
    seeds: int = 3,
    recipe: Recipe | None = None,
    out: str | Path | None = None,
    activations: str | os.PathLike[str] | None = None,
    max_memory: int | None = None,
    max_loss: float = 0.0,
    seed: int = 0,
    device: str = "auto",
    fresh: bool = False,
    say: Callable[[str], object] = lambda _: None,
    **reading: Any,
) -> Ablation:
    """Silence neurons of a running model and test the probes of a task again, in every layer.

    Silenced are the top and the bottom `shares` of an LCA ranking of the layers `within`, and as many neurons by lot
    from the same layers as the top (`draws` times); or the `neurons` that are named, and as many by lot. `how` is
    `zero`, `mean` (of the training part) or `keep` (the others of these layers go). Probes learn from the intact
    model, with `seeds` each, and so do probes of the control task; with `retrain` they learn also from the ablated one,
    which reads the training part once more for each set. `reading` is that of `read_task`.
    """
    wish = Wish(tuple(neurons), tuple(shares), within, how, retrain, draws, penalty, seeds, seed)
    task, model = named_task(task), _loaded(source, device, max_memory)
    wish.check(model)
    corpora = (data if isinstance(data, TaskCorpora) else read_task(task, data, seed=seed, **reading)).as_pairs()
    recipe = recipe or Recipe()
    with activations_folder(activations, out) as folder:
        extraction = {"fresh": fresh, "max_memory": max_memory, "max_loss": max_loss}
        splits = labelled_splits(model, corpora, task, activations=folder, seed=seed, **extraction)
        config = {**splits.facts, **wish.facts, "recipe": asdict(recipe)}
        if out is not None and (run := finished_run(out, "ablate", config, fresh=fresh)):
            return Ablation(run)
        bench = Bench(splits, recipe, held_memory(max_memory), seed)
        with scratch(out, config, fresh=fresh) as temporary:
            run = Run("ablate", config, *_measured(model, corpora, bench, wish, temporary, say))
    if out is not None:
        write_run(out, run)
    return Ablation(run)


@dataclass(frozen=True)
class Wish:
    """Which neurons are silenced, how, and what is measured then."""

    neurons: tuple[str, ...]
    shares: tuple[float, ...]
    within: str | int | Sequence[int]
    how: str
    retrain: bool
    draws: int
    penalty: str
    seeds: int
    seed: int

    def __post_init__(self) -> None:
        check_shares(self.shares)
        if self.draws < 0:
            raise SettingError(f"{self.draws} random sets cannot be drawn; expected 0 or more.")
        if self.seeds < 1:
            raise SettingError(f"Found {self.seeds} seeds; expected at least 1.")
        if self.how not in WAYS:
            raise SettingError(f"Neurons cannot be ablated by {self.how!r}; choose one of {', '.join(WAYS)}.")
        if parse_penalty(self.penalty) is None:
            raise SettingError(
                "The penalty of an ablation is not searched; give λ1,λ2, for example those that rank chose."
            )

    def check(self, model: Model) -> None:
        """Raise an error that names the first neuron or layer that a model does not have."""
        NeuronLayout(model.widths).parse(self.neurons)
        parse_layers(self.within, model.n_layers)

    @property
    def facts(self) -> dict[str, Any]:
        """The wish as a run keeps it."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @property
    def lambdas(self) -> Penalty:
        """λ1 and λ2 of the probes."""
        return Penalty(*(parse_penalty(self.penalty) or (0.0, 0.0)))


def _measured(
    model: Model, corpora: TaskCorpora, bench: Bench, wish: Wish, folder: Path, say: Callable[[str], object]
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """The summary and the tables: every set of neurons silenced in turn."""
    layout = bench.splits.layout
    named, layers = layout.parse(wish.neurons), parse_layers(wish.within, model.n_layers)
    probes = _probes(bench, wish)
    say(f"The intact model: {bench.estimate([probe for own in probes.values() for probe in own])}.")
    intact = _trained(bench, probes)
    sets = _named_sets(named, bench, wish.draws) if named.size else _ranked_sets(intact[ALL][0], layers, bench, wish)
    study = _Study(model, corpora, bench, intact, wish.how, wish.retrain, folder, say)
    frame = pd.concat([study.measure(name, columns) for name, columns in sets.items()], ignore_index=True)
    numbers = [None if probe == ALL else int(probe.split()[1]) for probe in frame["probe"]]
    frame.insert(4, "layer", pd.array(numbers, dtype="Int64"))
    tables = {"ablation": frame, "neurons": _neuron_table(sets, layout), "audit": bench.splits.audit}
    return _summary(frame, bench), tables


@dataclass(frozen=True, eq=False)
class _Study:
    """One model and task: the probes of the intact model, and where ablated activations are kept for a while."""

    model: Model
    corpora: TaskCorpora
    bench: Bench
    intact: Mapping[str, list[TrainedProbe]]
    how: str
    retrain: bool
    folder: Path
    say: Callable[[str], object]

    def measure(self, name: tuple[str, float], columns: Neurons) -> pd.DataFrame:
        """All probes with one set of neurons silenced: masked in what they read, and in the running model."""
        layout, groups = self.bench.splits.layout, list(self.intact.values())
        ids = layout.format(columns.tolist())
        means = neuron_means(self.bench.splits.train.store) if self.how == "mean" else None
        places, values = _silenced(layout, silenced_values(self.model.widths, ids, self.how, means))
        self.say(f"The model reads again with {len(places):,} neurons silenced ({name[0]}).")
        lesioned, retrained = self._ablated(ids, means)
        scores = (
            self._intact_scores,
            scored_sets(self.bench, [[_masked(probe, places, values) for probe in own] for own in groups]),
            scored_sets(lesioned, groups),
        )
        change = _changes(self.bench, lesioned)
        rows = [
            {"set": name[0], "share": name[1], "neurons": len(columns), "probe": probe, **figures}
            for probe, figures in zip(self.intact, map(self._figures, *scores), strict=True)
        ]
        return pd.DataFrame(rows).assign(
            change=[change[probe] for probe in self.intact],
            retrained=[scores.accuracy for scores in retrained] if retrained else np.nan,
        )

    @cached_property
    def _intact_scores(self) -> list[SetScores]:
        return scored_sets(self.bench, list(self.intact.values()))

    def _ablated(self, ids: Sequence[str], means: Mapping[int, np.ndarray] | None) -> tuple[Bench, list[SetScores]]:
        """The test part (and, to retrain, the training part) as the ablated model reads it; and what is relearnt."""
        splits = self.bench.splits
        parts = ("train", "test") if self.retrain else ("test",)
        read = {}
        with ablated(self.model, ids, self.how, means) as lesioned:
            for part, corpus in self.corpora.items():
                if part in parts:
                    settings = {"unit": splits.task.unit, "max_loss": 1.0, "fresh": True}  # as the intact model lost
                    store = extract(lesioned, corpus, self.folder / part, **settings)
                    read[part] = examples(store, labels_of(corpus, splits.task))
        bench = replace(self.bench, splits=replace(splits, **read))
        if not self.retrain:
            return bench, []
        probes = {name: [trained.probe for trained in own] for name, own in self.intact.items()}
        of_task = {name: [probe for probe in own if probe.target == TASK] for name, own in probes.items()}
        return bench, scored_sets(bench, list(_trained(bench, of_task).values()))

    def _figures(self, intact: SetScores, masked: SetScores, running: SetScores) -> dict[str, float]:
        """Means over seeds; `sd` is the deviation of `running`, `low` and `high` its interval over sentences."""
        interval = self.bench.interval(running.task, "test")
        low, high = _interval_of_drop(self.bench, intact.task, running.task)
        return {
            "intact": intact.accuracy,
            "masked": masked.accuracy,
            "running": running.accuracy,
            "sd": running.sd,
            "low": float(interval.low),
            "high": float(interval.high),
            "drop": intact.accuracy - running.accuracy,
            "drop_low": low,
            "drop_high": high,
            "control_intact": intact.control_accuracy,
            "control_masked": masked.control_accuracy,
            "control_running": running.control_accuracy,
        }


def _loaded(source: Model | str | os.PathLike[str], device: str, max_memory: int | None) -> Model:
    if not isinstance(source, str | os.PathLike):
        return source
    if (Path(source) / "manifest.json").exists():
        raise SettingError(
            f"{source} is a store of activations; neurons are silenced in a running model. Give the model."
        )
    return load_model(os.fspath(source), device=device, max_memory=max_memory)


def _probes(bench: Bench, wish: Wish) -> dict[str, list[Probe]]:
    """Probes of all layers side by side, and of each layer: the task and its control, with every seed."""
    layout = bench.splits.layout
    neurons = {ALL: None, **{f"layer {layer}": layout.layer_slice(layer) for layer in layout.layers}}
    return {name: seeded_probes(bench, own, wish.lambdas, wish.seeds) for name, own in neurons.items()}


def _trained(bench: Bench, probes: Mapping[str, Sequence[Probe]]) -> dict[str, list[TrainedProbe]]:
    """All probes trained in one battery."""
    trained = iter(bench.train([probe for own in probes.values() for probe in own]))
    return {name: [next(trained) for _ in own] for name, own in probes.items()}


def _ranked_sets(
    oracle: TrainedProbe, layers: Sequence[int], bench: Bench, wish: Wish
) -> dict[tuple[str, float], Neurons]:
    order = lca_ranking(oracle.weight).order
    order = order[np.isin(order, bench.splits.layout.columns(layers))]
    sets = {}
    for share in sorted(set(wish.shares)):
        top, bottom = top_and_bottom(order, share)
        sets |= {("top", share): top, ("bottom", share): bottom, **_drawn_sets(top, share, bench, wish.draws)}
    return sets


def _named_sets(named: Neurons, bench: Bench, draws: int) -> dict[tuple[str, float], Neurons]:
    named = np.unique(named)
    share = len(named) / bench.splits.layout.n_neurons
    return {("named", share): named, **_drawn_sets(named, share, bench, draws)}


def _drawn_sets(like: Neurons, share: float, bench: Bench, draws: int) -> dict[tuple[str, float], Neurons]:
    """Sets by lot, each with as many neurons of every layer as another set has, none of its own if others are left."""
    layout = bench.splits.layout
    generator = np.random.default_rng([bench.seed, 3])
    sets = {}
    for draw in range(1, draws + 1):
        drawn = []
        for layer, count in zip(layout.layers, layout.spread(like), strict=True):
            own = layout.columns([layer])
            others = np.setdiff1d(own, like)
            drawn.append(generator.choice(others if len(others) >= count else own, count, replace=False))
        sets[f"random {draw}", share] = np.sort(np.concatenate(drawn))
    return sets


def _silenced(layout: NeuronLayout, silences: Mapping[int, Silence]) -> tuple[Neurons, Float[np.ndarray, " neuron"]]:
    """The columns that are overwritten, of all layers side by side, and the values that they get."""
    columns = [layout.layer_slice(layer).start + silence.indices.numpy() for layer, silence in silences.items()]
    return np.concatenate(columns), np.concatenate([silence.values.numpy() for silence in silences.values()])


def _masked(probe: TrainedProbe, columns: Neurons, values: Float[np.ndarray, " neuron"]) -> TrainedProbe:
    """The same probe, not retrained, that sees fixed values in some neurons: W x + b with x_S = v is another b."""
    place = {int(column): i for i, column in enumerate(columns)}
    hidden = np.array([int(neuron) in place for neuron in probe.neurons])
    seen = np.array([values[place[int(neuron)]] for neuron in probe.neurons[hidden]], np.float32)
    if probe.centre is not None and probe.scale is not None:
        seen = (seen - probe.centre[hidden]) / probe.scale[hidden]
    return replace(probe, weight=probe.weight * ~hidden, bias=probe.bias + probe.weight[:, hidden] @ seen)


def _interval_of_drop(bench: Bench, intact: Sequence[Score], running: Sequence[Score]) -> tuple[float, float]:
    """The interval over sentences of the lost accuracy, a mean over seeds, the same sentences being drawn for both."""
    both = (intact, running)
    before, after = ([s.details.correct for s in own if isinstance(s.details, ClassScores)] for own in both)
    if not before:
        return np.nan, np.nan
    lost = np.mean(before, axis=0) - np.mean(after, axis=0)
    interval = accuracy_interval(lost, bench.splits.test.sentences, seed=bench.seed)
    return float(interval.low), float(interval.high)


def _changes(bench: Bench, lesioned: Bench) -> dict[str, float]:
    """How far the test words moved in each layer: √(Σ‖x' − x‖² / Σ‖x − μ‖²), 0 where nothing did.

    Infinite where all that moved had been constant, as the first token is in the embeddings.
    """
    layout, moved = bench.splits.layout, np.zeros(bench.splits.layout.n_neurons)
    for before, after in zip(windows(bench.features("test")), windows(lesioned.features("test")), strict=True):
        moved += np.einsum("wn,wn->n", d := (after.x - before.x).astype(np.float64), d)
    variation = column_scatter(bench.features("test"))
    parts = {ALL: slice(None), **{f"layer {layer}": layout.layer_slice(layer) for layer in layout.layers}}
    return {name: _distance(moved[own].sum(), variation[own].sum()) for name, own in parts.items()}


def _distance(moved: float, variation: float) -> float:
    if variation == 0:
        return np.inf if moved > 0 else 0.0
    return float(np.sqrt(moved / variation))


def _summary(frame: pd.DataFrame, bench: Bench) -> dict[str, Any]:
    whole = frame.loc[frame["probe"] == ALL]
    return {
        "test examples": len(bench.splits.test),
        "intact": float(whole["intact"].iloc[0]),
        **bench.baselines(),
        **({"control task": float(whole["control_intact"].iloc[0])} if bench.control else {}),
        **{
            f"{row['set']} {row['share']:.3g}": f"masked {row['masked']:.4f}, running {row['running']:.4f}"
            for row in whole.to_dict("records")
        },
    }


def _neuron_table(sets: Mapping[tuple[str, float], Neurons], layout: NeuronLayout) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"set": name, "share": share, "neuron": neuron, "layer": int(neuron.partition(":")[0])}
            for (name, share), columns in sets.items()
            for neuron in layout.format(columns.tolist())
        ]
    )
