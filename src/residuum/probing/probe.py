"""`probe`: every layer, all layers together and subsets of them, with all that must stand beside a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from residuum.errors import SettingError
from residuum.maths.metrics import paired_loss
from residuum.maths.probe_scores import description_lengths
from residuum.probing.baselines import baselines, read_task_data, twin_identity
from residuum.probing.examples import Splits, activations_folder, held_memory
from residuum.probing.probe_data import TASK, ProbeData, features_memory
from residuum.probing.scores import (
    ALL,
    NeuronSet,
    PartScores,
    ProbeGrid,
    class_layer_table,
    class_table,
    doubts,
    score_lines,
    score_table,
    single_layers,
    subsets_of_layers,
    unseen_table,
)
from residuum.probing.settings import ProbeSettings, arguments
from residuum.settings import command
from residuum.storage.results import Result, Run, finished_run, write_run


@dataclass(frozen=True, eq=False)
class Probing(Result):
    """What `probe` measured. `frame` has a row for each layer, for all layers together, and for subsets of them."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """Score with interval, baselines, control task, selectivity, random twin, and whether it is sufficient."""
        return self.run.tables["scores"]

    @property
    def classes(self) -> pd.DataFrame:
        """Precision, recall, F1 and support of each class from each layer; absent where numbers are predicted."""
        return self._table("classes")

    @property
    def class_layers(self) -> pd.DataFrame:
        """Which layers are sufficient for each class."""
        return self._table("class_layers")

    @property
    def baselines(self) -> pd.DataFrame:
        """Scores without any activation."""
        return self._table("baselines")

    @property
    def unseen(self) -> pd.DataFrame:
        """Labels of the test part that training never saw."""
        return self._table("unseen")

    def text(self) -> str:
        """The scores as lines for a terminal, warnings, which layer to use, and the next command."""
        summary = self.run.summary
        return "\n".join(
            [*score_lines(self.frame), *summary["warnings"], summary["answer"], f"Next: {summary['next']}"]
        )

    def _table(self, name: str) -> pd.DataFrame:
        if name not in self.run.tables:
            raise SettingError(f"This run has no table {name}; it has {', '.join(self.run.tables)}.")
        return self.run.tables[name]


@command(ProbeSettings)
def probe(settings: ProbeSettings) -> Probing:
    """Probe every layer of a model for a task, all layers together, and `subsets` of them.

    `model` and `data` are a model and a corpus, or a store (one for each of train, dev and test) and labels. Probes
    learn from the training part; λ2 and sufficient layers are chosen on dev; scores are those of test. A layer is
    sufficient if it keeps the share `keep` of the score of all layers within one standard error. A model is probed
    beside its random twin unless `random_twin` is False; activations alone have none, which is noted.
    `description_length` adds the online code length of Voita and Titov (2020).
    """
    with activations_folder(settings.activations, settings.out) as folder, settings.opened_engine() as engine:
        splits, twin = read_task_data(settings, folder, engine)
        data = ProbeData(
            splits,
            settings.probe_recipe(),
            held_memory(settings.max_memory),
            settings.seed,
            engine,
            settings.penalty,
            settings.seeds,
        )
        config = {**data.facts, "random_twin": twin_identity(twin), **settings.identity()}
        if settings.out is not None and (run := finished_run(settings.out, "probe", config, fresh=settings.fresh)):
            return Probing(run)
        if settings.description_length and splits.regression:
            raise SettingError("The description length is defined for classes, but this task predicts numbers.")
        run = Run("probe", config, *_measured(data, twin, settings))
    if settings.out is not None:
        write_run(settings.out, run)
    return Probing(run)


def _measured(
    data: ProbeData, twin: Splits | None, settings: ProbeSettings
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """The summary and the tables of a run."""
    layers = single_layers(data.splits.layout)
    subsets = subsets_of_layers(data.splits.layout) if settings.subsets else []
    train = ProbeGrid.solve_quickly if settings.quick else ProbeGrid.train
    twin_scores: dict[str, float] = {}
    if twin is not None:
        settings.say(f"Probing the random twin: {len(layers)} sets of neurons.")
        scores = train(ProbeGrid(data.of(twin), layers, [TASK])).on("test")
        twin_scores = {neurons.name: scores.mean(neurons.name) for neurons in layers}
    grid = ProbeGrid(data, [*layers, *subsets], [TASK] if settings.quick else None)
    settings.say(f"Probing: {len(grid.probes)} probes on {len(data.splits.train):,} examples.")
    trained, known = train(grid), baselines(data)
    dev, test = trained.on("dev"), trained.on("test")
    tables = {"scores": score_table(dev, test, twin_scores, settings.keep, known)}
    tables["baselines"] = pd.DataFrame(known.items(), columns=["baseline", "score"])
    tables["penalties"] = trained.penalty_table
    if not data.splits.regression:
        tables["classes"] = class_table(layers, dev, test, settings.keep)
        tables["class_layers"] = class_layer_table(tables["classes"])
        tables["unseen"] = unseen_table(data)
    if settings.description_length:
        settings.say("Computing description lengths.")
        tables["description"] = _description_table(data, layers)
    tables["audit"] = data.splits.audit
    summary = _summary(data, tables, known, settings)
    if settings.quick:
        summary["quick against converged"] = far = _distance(data, layers, dev, test)
        summary["warnings"].append(
            f"These are quick probes. Of {far['features']}, the quick one scores {far['quick']:.3f} and the converged "
            f"one {far['converged']:.3f} (difference {far['difference']:+.3f}, standard error "
            f"{far['standard error']:.3f})."
        )
        if not abs(far["difference"]) <= (1 - settings.keep) * far["converged"]:
            summary["answer"] = (
                "Quick probes cannot tell here which layer to use: they differ from converged ones by more than the "
                f"{1 - settings.keep:.2g} of the score that a layer may lose. Run again without --quick."
            )
            summary["next"] = (
                f"residuum probe {arguments(settings.model, settings.data)} --task {data.splits.task.name}"
                f"{settings.as_options} --out OUT"
            )
    return summary, tables


def _distance(data: ProbeData, layers: Sequence[NeuronSet], dev: PartScores, test: PartScores) -> dict[str, Any]:
    """How far quick probes are from converged ones: both of the layer that is best on dev, paired over sentences."""
    best = max((layer for layer in layers if layer.kind == "layer"), key=lambda layer: dev.mean(layer.name))
    converged = ProbeGrid(data, [best], [TASK]).train().on("test")
    loss = paired_loss(test.sums(best.name), converged.sums(best.name), 1.0)
    return {
        "features": best.name,
        "quick": test.mean(best.name),
        "converged": converged.mean(best.name),
        "difference": -loss.excess,
        "standard error": loss.standard_error,
    }


def _description_table(data: ProbeData, layers: Sequence[NeuronSet]) -> pd.DataFrame:
    """Bits to send the training labels given each set of neurons.

    Up to a half of the training part is copied: in memory where both fit, else it is read in windows of a half.
    """
    train, grid = data.splits.train, ProbeGrid(data, layers)
    half, memory = 2 * len(train) * data.splits.layout.n_neurons, features_memory(data.max_memory)
    data.make_room(half if 3 * half <= memory else data.max_memory)
    features = data.features("train") if 3 * half <= memory else train.features(memory // 2)
    first = [(neurons.name, target) for neurons, target, _ in grid.keys]
    probes = [data.probe(target, neurons.neurons) for neurons, target, _ in grid.keys]
    lengths = []
    for group in data.groups(probes, data.targets):
        generator = np.random.default_rng(data.seed)  # the same order of words for all groups
        lengths += description_lengths(features, data.targets, group, generator, recipe=data.recipe)
    rows = [
        (*name, length.online_bits, length.uniform_bits, length.compression)
        for name, length in zip(first, lengths, strict=True)
    ]
    names = ["features", "target", "online_bits", "uniform_bits", "compression"]
    return pd.DataFrame(rows, columns=pd.Index(names))


def _summary(
    data: ProbeData, tables: Mapping[str, pd.DataFrame], known: dict[str, float], settings: ProbeSettings
) -> dict[str, Any]:
    rows = tables["scores"].to_dict("records")
    single = [row for row in rows if row["kind"] == "layer"]
    oracle = next(row for row in rows if row["features"] == ALL)
    best = max(single, key=lambda row: row["dev"])
    sufficient = [row for row in single if row["sufficient"]]
    layer = sufficient[0]["layer"] if sufficient else None
    layers = "" if layer is None else f" --layers {layer}"
    rivals = {f"{name} baseline": value for name, value in known.items()}
    rivals |= {} if np.isnan(oracle["random_twin"]) else {"random twin": oracle["random_twin"]}
    return {
        "metric": data.metric,
        "oracle": oracle["score"],
        "oracle selectivity": None if np.isnan(oracle["selectivity"]) else oracle["selectivity"],
        "best layer": best["layer"],
        "best layer score": best["score"],
        "lowest sufficient layer": layer,
        **{f"{name} baseline": value for name, value in known.items()},
        "classes": data.targets[TASK].n_classes or None,
        "seeds": oracle["seeds"],
        "unseen labels": sum(tables["unseen"]["examples"].tolist()) if "unseen" in tables else 0,
        "examples": {part: len(data.examples(part)) for part in ("train", "dev", "test")},
        "warnings": doubts(data, oracle, known, settings.keep),
        "answer": _answer(sufficient, best, oracle, settings.keep, rivals),
        "next": f"residuum rank {arguments(settings.model, settings.data)} --task {data.splits.task.name}"
        f"{settings.as_options}{layers} --out OUT",
    }


def _answer(
    sufficient: Sequence[dict[str, Any]],
    best: dict[str, Any],
    oracle: dict[str, Any],
    keep: float,
    rivals: Mapping[str, float],
) -> str:
    """Which layer to use, in a sentence; none where all of them together do not beat the baselines and the twin."""
    whole = f"all layers score {oracle['score']:.3f}"
    name, highest = max(rivals.items(), key=lambda item: item[1], default=("", -np.inf))
    if oracle["score"] <= highest:
        return (
            f"Use no layer: all of them together ({oracle['metric']} {oracle['score']:.3f}) do not beat the {name} "
            f"({highest:.3f})."
        )
    if not sufficient:
        return (
            f"Use all layers ({whole}): no single layer keeps {keep:.0%} of their {oracle['metric']}; "
            f"the best, layer {best['layer']}, scores {best['score']:.3f}."
        )
    row = sufficient[0]
    low_high = f"95 % CI {row['low']:.3f}–{row['high']:.3f}"
    return (
        f"Use layer {row['layer']}: it is the lowest that keeps {keep:.0%} of the {oracle['metric']} of all layers on "
        f"dev, within one standard error (on test {row['score']:.3f}, {low_high}; {whole})."
    )
