"""What one model knows of all tasks of a text: layers, salient neurons, minimal sets; one pass trains all tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from residuum.activations.store import ActivationStore
from residuum.batteries import CONTROL, TASK, Bench, same_examples
from residuum.differences.settings import Settings
from residuum.differences.texts import Text
from residuum.engine import Workers, worker_count
from residuum.examples import Splits
from residuum.maths.probe_scores import ClassScores
from residuum.maths.rankings import lca_ranking
from residuum.maths.selection import MinimalSet, top_and_bottom
from residuum.probes.measuring import ALL, Battery, Measurement, single_layers, targets_of, train_batteries
from residuum.probes.tables import score_table
from residuum.ranking.orders import class_table
from residuum.ranking.sets import (
    Neurons,
    SetScores,
    minimal_table,
    scored_set,
    seeded_probes,
    selection_table,
    smallest_set,
    spread_table,
)
from residuum.results import Run

RANKING = "lca"
KEEP = 0.99
"""The share of all layers' score that is enough for one layer (Dalvi et al. 2020)."""
RUNGS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)
"""The shares of neurons that are tried as a minimal set: the same in every model, so that sizes compare."""
AT_ONCE = 6  # of these: the larger ones cost most, and are tried only where the smaller do not suffice
COPIES = 2  # of the words of a reading: as features, and those of the neurons that some probes need
Say = Callable[[str], object]


def probed_at_once(sizes: Sequence[int], max_memory: int) -> int:
    """How many readings, of so many activations each, are probed at a time: as there are cores, and room for all.

    The steps of small probes are too short to gain from threads, so that each is given one.
    """
    return max(1, min(worker_count(None), len(sizes), max_memory // (COPIES * 4 * max(sizes))))


def probe_tasks(
    store: ActivationStore, text: Text, settings: Settings, max_memory: int, workers: Workers, say: Say
) -> Run:
    """All tasks of a text in one model: its tables have a column `task`, its tensors are named after tasks.

    `correct TASK`: layers (and last, all of them together) × test examples, the share of seeds that were right;
    `places TASK`: the sentence and word of each test example.
    """
    tables: dict[str, list[pd.DataFrame]] = {}
    tensors: dict[str, np.ndarray] = {}
    for together in _groups([text.splits(store, task) for task in text.tasks]):
        for battery in _trained_batteries(together, settings, max_memory, workers, say):
            task = battery.bench.splits.task.name
            say(f"{store.name}, {task}: the neurons that matter.")
            test = battery.on("test")
            for name, table in _task_tables(battery, test, settings).items():
                table.insert(0, "task", task)
                tables.setdefault(name, []).append(table)
            tensors[f"correct {task}"] = _correct(battery, test)
            examples = battery.bench.splits.test
            tensors[f"places {task}"] = np.ascontiguousarray(examples.store.row_words[examples.rows], np.int64)
    joined = {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}
    return Run("diff", {}, {}, joined, tensors)


def _groups(splits: Iterable[Splits]) -> list[list[Splits]]:
    """Tasks with labels of the same words stand together, so that their probes train in one pass."""
    groups: list[list[Splits]] = []
    for one in splits:
        fitting = next((group for group in groups if same_examples(group[0], one)), None)
        if fitting is None:
            groups.append([one])
        else:
            fitting.append(one)
    return groups


def _trained_batteries(
    together: Sequence[Splits], settings: Settings, max_memory: int, workers: Workers, say: Say
) -> list[Battery]:
    """Each layer and all of them, the tasks and their control tasks, every seed: trained in one pass."""
    first = Bench(together[0], settings.recipe, max_memory, settings.seed, workers)
    benches = [first, *(first.beside(splits) for splits in together[1:])]
    penalty, seeds = settings.penalties, range(settings.seed, settings.seed + settings.seeds)
    sets = single_layers(first.splits.layout)
    batteries = [Battery(bench, sets, targets_of(bench), seeds, (penalty.l1, penalty.l2)) for bench in benches]
    for battery in batteries:
        say(f"{first.splits.train.store.name}, {battery.bench.splits.task.name}: {_size(battery)}.")
    train_batteries(batteries)
    return batteries


def _size(battery: Battery) -> str:
    return str(battery.bench.estimate(battery.probes))


def _task_tables(battery: Battery, test: Measurement, settings: Settings) -> dict[str, pd.DataFrame]:
    bench, penalty = battery.bench, settings.penalties
    dev = battery.on("dev")
    oracles = [score.probe for score in test.scores[ALL, TASK]]
    oracle = oracles[0]
    order = lca_ranking(oracle.weight).order
    on_dev = dev.values(ALL)[0]
    minimal = _smallest_rung(bench, order, on_dev, settings)
    reduced = scored_set(bench, bench.train(seeded_probes(bench, np.sort(minimal.neurons), penalty, settings.seeds)))
    whole = SetScores(tuple(test.scores[ALL, TASK]), tuple(test.scores.get((ALL, CONTROL), ())))
    sizes = {
        "all": (len(order), on_dev, whole),
        "minimal": (len(minimal.neurons), minimal.score, reduced),
    }
    classes = class_table(oracle, bench.targets[TASK].classes, bench.splits.layout, settings.properties)
    return {
        "scores": score_table(battery.sets, dev, test, {}, KEEP).drop(columns=["layers", "random_twin"]),
        "selection": selection_table(bench, oracles, {RANKING: order}, settings.shares, penalty).drop(columns="method"),
        "minimal": minimal_table(bench, sizes).assign(sufficient=[True, minimal.sufficient]),
        "spread": _spread(order, minimal.neurons, settings, bench),
        "properties": classes,
        "baselines": pd.DataFrame(bench.baselines().items(), columns=["baseline", "score"]),
    }


def _smallest_rung(bench: Bench, order: Neurons, on_dev: float, settings: Settings) -> MinimalSet:
    """The first rung that keeps the score; the lower ones train as one battery, which costs far less than each."""
    n_neurons = len(order)
    sizes = sorted({max(round(share * n_neurons), 1) for share in RUNGS})
    return smallest_set(
        bench, order, on_dev, settings.delta, settings.penalties, sizes=sizes, resolution=n_neurons, at_once=AT_ONCE
    )


def _spread(order: Neurons, minimal: Neurons, settings: Settings, bench: Bench) -> pd.DataFrame:
    """Where the salient neurons lie (Durrani et al. 2021, figures 2 and 3)."""
    sets: Mapping[tuple[str, str], Int[np.ndarray, " neuron"]] = {
        (RANKING, "minimal"): minimal,
        **{(RANKING, f"top {share:.3g}"): top_and_bottom(order, share)[0] for share in settings.shares},
    }
    return spread_table(sets, bench.splits.layout).drop(columns="method")


def _correct(battery: Battery, test: Measurement) -> Float[np.ndarray, "set example"]:
    """For each set of neurons and test example the share of seeds whose probe is right."""
    scores = [[score.details for score in test.scores[one.name, TASK]] for one in battery.sets]
    right = [[one.correct for one in own if isinstance(one, ClassScores)] for own in scores]
    return np.stack([np.mean(own, axis=0) for own in right]).astype(np.float64)
