"""What one model knows of all tasks of a text: layers, salient neurons, minimal sets; one pass trains all tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from residuum.activations.store import ActivationStore
from residuum.engine import Workers, worker_count
from residuum.maths.probe_scores import ClassScores
from residuum.probing.batteries import TASK, Bench, same_examples
from residuum.probing.diff_salience import Trained, salience_tables
from residuum.probing.diff_settings import Settings
from residuum.probing.diff_texts import Text
from residuum.probing.examples import Splits
from residuum.probing.measuring import Battery, Measurement, single_layers, targets_of, train_batteries
from residuum.probing.orders import class_table
from residuum.probing.tables import score_table
from residuum.storage.results import Run

KEEP = 0.99
"""The share of all layers' score that is enough for one layer (Dalvi et al. 2020)."""
COPIES = 2  # of the words of a reading: as features, and those of the neurons that some probes need
Say = Callable[[str], object]


def steps_at_once(sizes: Sequence[int], max_memory: int, needed: int = 0) -> int:
    """How many steps run at a time, on readings of so many activations each: as there are cores, and room for all.

    `needed` are the bytes that a step of another kind cannot do without. The steps of small probes are too short to
    gain from threads, so that each is given one.
    """
    return max(1, min(worker_count(None), len(sizes), max_memory // max(COPIES * 4 * max(sizes), needed)))


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
        batteries = _trained_batteries(together, settings, max_memory, workers, say)
        tasks = [Trained(battery, battery.on("dev"), battery.on("test")) for battery in batteries]
        say(f"{store.name}, {', '.join(splits.task.name for splits in together)}: the neurons that matter.")
        for task, salient in zip(tasks, salience_tables(tasks, settings), strict=True):
            splits = task.bench.splits
            for name, table in (_tables(task, settings) | salient).items():
                table.insert(0, "task", splits.task.name)
                tables.setdefault(name, []).append(table)
            tensors[f"correct {splits.task.name}"] = _correct(task.battery, task.test)
            places = splits.test.store.row_words[splits.test.rows]
            tensors[f"places {splits.task.name}"] = np.ascontiguousarray(places, np.int64)
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


def _tables(task: Trained, settings: Settings) -> dict[str, pd.DataFrame]:
    """The tables for which nothing more has to be trained."""
    bench, oracle = task.bench, task.oracles[0]
    scores = score_table(task.battery.sets, task.dev, task.test, {}, KEEP)
    return {
        "scores": scores.drop(columns=["layers", "random_twin"]),
        "properties": class_table(oracle, bench.targets[TASK].classes, bench.splits.layout, settings.properties),
        "baselines": pd.DataFrame(bench.baselines().items(), columns=["baseline", "score"]),
    }


def _correct(battery: Battery, test: Measurement) -> Float[np.ndarray, "set example"]:
    """For each set of neurons and test example the share of seeds whose probe is right."""
    scores = [[score.details for score in test.scores[one.name, TASK]] for one in battery.sets]
    right = [[one.correct for one in own if isinstance(one, ClassScores)] for own in scores]
    return np.stack([np.mean(own, axis=0) for own in right]).astype(np.float64)
