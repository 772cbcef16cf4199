"""`redundancy`: what a model repeats in general, and what a task could do without."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from residuum.activations.auditing import audit_table
from residuum.activations.correlation import check_room, clustering_bytes
from residuum.activations.store import ActivationStore
from residuum.engine import Workers
from residuum.errors import SettingError
from residuum.probing.examples import Splits, activations_folder, held_memory, labelled_splits, whole_store
from residuum.probing.redundancy_general import Rows, general_redundancy, representatives
from residuum.probing.redundancy_settings import THRESHOLDS, Settings
from residuum.probing.twins import Twin, twin_identity, twin_splits
from residuum.storage.results import Result, Run, finished_run, finished_step, scratch, write_run

if TYPE_CHECKING:
    import pandas as pd

    from residuum.corpus import Corpus
    from residuum.corpus.tasks import Task, TaskCorpora
    from residuum.maths.probing import Recipe
    from residuum.models.loading import Model

OF_TASK = ("keep", "keep_layers", "seeds", "representatives")
"""Settings that mean nothing without a task."""


@dataclass(frozen=True, eq=False)
class Redundancy(Result):
    """What `redundancy` measured. `frame` has one row for each clustering threshold, 0 being all neurons.

    Without a task the columns of scores, and the tables `reduction`, `tried`, `selected`, `classes` and `class_layers`,
    are not there.
    """

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """threshold, neurons, share, grouped, largest cluster; dev, test, low, high, sd, control, selectivity, twin."""
        return self.run.tables["thresholds"]

    @property
    def layers(self) -> pd.DataFrame:
        """Each layer's neurons, mean CKA with the others, and scores; `enough` marks a redundant layer."""
        return self.run.tables["layers"]

    @property
    def survivors(self) -> pd.DataFrame:
        """Representatives per threshold and layer, by the rule that picks them."""
        return self.run.tables["survivors"]

    @property
    def windows(self) -> pd.DataFrame:
        """The share of clusters within 1, 2 or 3 neighbouring layers, or further, per threshold."""
        return self.run.tables["windows"]

    @property
    def similarity(self) -> pd.DataFrame:
        """Linear CKA of every pair of layers."""
        return self.run.tables["similarity"]

    @property
    def pictures(self) -> pd.DataFrame:
        """Activations of some neurons of the largest clusters over some sentences."""
        return self.run.tables["pictures"]

    @property
    def neurons(self) -> pd.DataFrame:
        """Each neuron's cluster at each threshold, by the chosen method and by others that were asked."""
        return self.run.tables["neurons"]

    @property
    def reduction(self) -> pd.DataFrame:
        """Oracle, lowest sufficient layer, clustered neurons and minimal sets side by side."""
        return self._of_task("reduction")

    @property
    def classes(self) -> pd.DataFrame:
        """Precision, recall, F1 and support of each class from each layer; absent where numbers are predicted."""
        return self._of_task("classes")

    @property
    def class_layers(self) -> pd.DataFrame:
        """Which layers are enough for each class; absent where numbers are predicted."""
        return self._of_task("class_layers")

    @property
    def selected(self) -> pd.DataFrame:
        """The neurons of the minimal sets, most important first."""
        return self._of_task("selected")

    def representatives(self, threshold: float, rule: str = "medoid", seed: int = 0) -> list[str]:
        """One neuron of each cluster at a measured threshold, as `layer:index`."""
        if threshold != 0 and f"cluster {threshold:g}" not in self.neurons:
            there = ", ".join(name.split()[1] for name in self.neurons if name.startswith("cluster "))
            raise SettingError(f"The threshold {threshold:g} was not measured; there are {there}.")
        return self.neurons["neuron"].iloc[representatives(self.neurons, threshold, rule, seed)].tolist()

    def text(self) -> str:
        """Neurons left at each threshold and, with a task, the sets that are enough, as lines to print."""
        own = self.frame.loc[:, [name for name in ("threshold", "neurons", "share", "test") if name in self.frame]]
        lines = [own.to_string(index=False, float_format="{:.3f}".format)]
        if "reduction" in self.run.tables:
            columns = ["set", "neurons", "share", "test", "low", "high", "selectivity", "enough"]
            lines.append(self.reduction.loc[:, columns].to_string(index=False, float_format="{:.3f}".format))
        return "\n\n".join(lines)

    def _of_task(self, table: str) -> pd.DataFrame:
        if table not in self.run.tables:
            if "reduction" in self.run.tables:
                raise SettingError(f"There is no table {table}: the task predicts numbers, which have no classes.")
            raise SettingError(f"There is no table {table}: no task was given. Run `redundancy` with a task.")
        return self.run.tables[table]


@dataclass(frozen=True)
class ProbePlan:
    """How probes are trained, where there is a task."""

    l1: float
    l2: float
    recipe: Recipe | None
    max_memory: int
    workers: Workers

    @staticmethod
    def of(penalty: str, recipe: Recipe | None, max_memory: int, workers: Workers) -> ProbePlan:
        """The plan with its penalties checked."""
        from residuum.probing.batteries import parse_penalty

        penalties = parse_penalty(penalty)
        if penalties is None:
            raise SettingError("`redundancy` does not search penalties; find them with `probe --penalty search`.")
        return ProbePlan(*penalties, recipe, max_memory, workers)


def redundancy(
    source: Model | ActivationStore | Mapping[str, ActivationStore] | str | os.PathLike[str],
    data: Sequence[Any] | Mapping[str, Sequence[Any]] | Corpus | TaskCorpora | str | os.PathLike[str] | None = None,
    task: str | Task | None = None,
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    representatives: str = "random",
    keep: float = 0.99,
    keep_layers: float = 0.99,
    clusters: str = "average",
    focus: float = 0.3,
    pictures: int = 3,
    agreement: Sequence[float] = (),
    seeds: int = 3,
    seed: int = 0,
    random_twin: Twin = False,
    penalty: str = "1e-5,1e-5",
    recipe: Recipe | None = None,
    out: str | Path | None = None,
    activations: str | Path | None = None,
    max_memory: int | None = None,
    workers: Workers = None,
    split: str | None = None,
    fresh: bool = False,
    progress: bool = True,
    say: Callable[[str], object] = lambda line: None,
    **reading: Any,
) -> Redundancy:
    """Find which neurons and layers of a model say the same, and which a task can do without.

    `source` is a store, one store for each of train, dev and test, or a model that reads the corpus `data` into the
    folder `activations` (in `out` by default). Labels (or a task, whose labels the corpus has) add probes: on all
    neurons, each layer, the representatives of the `clusters` (average, kmeans or dbscan), and the minimal sets that
    keep the share `keep` of the score of all neurons; a layer that alone keeps `keep_layers` is redundant. Clusters are
    found on the training part. `random_twin` adds the scores of the model with random weights (or of its stores), which
    costs a second reading of the corpus. `max_memory` (bytes) bounds the activations that are held at once, by each of
    the `workers` (processes, or an `Engine`) that read, add up and train; `reading` are options of `labelled_splits`
    (`layers`, `dev`, `test`, `limit`, …) and of `extract`.
    """
    cuts, compared = ([float(f"{value:g}") for value in given] for given in (thresholds, agreement))  # as tables say
    cutting = (tuple(cuts), representatives, float(f"{focus:g}"), pictures, tuple(compared))
    settings = Settings(*cutting, keep, keep_layers, clusters, seeds, seed)
    plan = ProbePlan.of(penalty, recipe, held_memory(max_memory), workers)
    with activations_folder(activations, out) as place:
        extraction = {"workers": workers, "max_memory": max_memory, "fresh": fresh, "progress": progress}
        options = {**reading, **extraction, "activations": place}
        twin = None
        if task is None and (data is None or _is_text(data)):
            _check_without_task(random_twin, reading)
            store, splits = whole_store(source, data, split=split, **options), None  # pyright: ignore[reportArgumentType]
        else:
            splits = labelled_splits(source, data, task or "labels", seed=seed, **options)  # pyright: ignore[reportArgumentType]
            store = splits.train.store
            own = {**reading, **extraction, "seed": seed}
            splits, twin = twin_splits(splits, source, data, task or "labels", random_twin, place, own)
        config = _config(store, splits, twin, settings, plan)
        if out is not None and (run := finished_run(out, "redundancy", config, fresh=fresh)):
            return Redundancy(run)
        check_room(store, held_memory(max_memory), slow=clusters != "average" or bool(settings.agreement))
        with scratch(out, config, fresh=fresh) as folder:
            manner = {"workers": workers, "max_memory": held_memory(max_memory), "folder": folder}
            general = finished_step(folder, "general", lambda: _general(store, splits, settings, manner, progress, say))
            audit = audit_table([store]) if splits is None else splits.audit
            run = Run("redundancy", config, general.summary, {**general.tables, "audit": audit}, general.tensors)
            if splits is not None:
                run = _of_task(run, splits, twin, settings, plan, folder, say)
        if out is not None:
            write_run(out, run)
    return Redundancy(run)


def _check_without_task(random_twin: Twin, reading: Mapping[str, Any]) -> None:
    """Refuse what only probes would use."""
    if random_twin is not None and random_twin is not False:
        raise SettingError("Probes are compared with the random twin, and without a task there are none.")
    if parts := [part for part in ("dev", "test") if reading.get(part) is not None]:
        raise SettingError(
            f"Probes are tested on the {' and '.join(parts)} part, and without a task there are none. Give the task, "
            "or only the text that the clusters shall be made of."
        )


def _is_text(data: Any) -> bool:
    from residuum.corpus import Corpus

    return isinstance(data, str | os.PathLike | Corpus)


def _config(
    store: ActivationStore, splits: Splits | None, twin: Splits | None, settings: Settings, plan: ProbePlan
) -> dict[str, Any]:
    chosen = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(settings).items()}
    if splits is None:
        corpus = store.manifest.corpus["name"]
        facts = {"model": store.name, "layers": store.layers, "data": f"{corpus} {store.fingerprint}"}
        return facts | {key: value for key, value in chosen.items() if key not in OF_TASK}
    from residuum.maths.probing import Recipe
    from residuum.probing.batteries import Bench

    training = {"penalty": [plan.l1, plan.l2], "recipe": asdict(plan.recipe or Recipe())}
    facts = Bench(splits, seed=settings.seed).facts
    return facts | {"random_twin": twin_identity(twin)} | chosen | training


def _general(
    store: ActivationStore,
    splits: Splits | None,
    settings: Settings,
    manner: Mapping[str, Any],
    progress: bool,
    say: Callable[[str], object],
) -> Run:
    rows = None if splits is None else _training_rows(splits)
    n_rows, n_neurons = store.n_rows if rows is None else len(rows), sum(store.widths)
    size = clustering_bytes(n_neurons, store.widths) / 1e9
    say(f"Clustering {n_neurons:,} neurons over {n_rows:,} {store.unit}s: about {size:.1f} GB.")
    with tqdm(total=n_rows, unit=f" {store.unit}s", disable=None if progress else True, leave=False) as bar:
        return general_redundancy(store, rows, settings, advance=bar.update, **manner)


def _training_rows(splits: Splits) -> Rows | None:
    """All rows of the training sentences, labelled or not; None where the training part has a store of its own."""
    train = splits.train
    if train.store.path != splits.test.store.path:
        return None
    return np.flatnonzero(np.isin(train.store.row_words[:, 0], np.unique(train.sentences)))


def _of_task(
    run: Run,
    splits: Splits,
    twin: Splits | None,
    settings: Settings,
    plan: ProbePlan,
    folder: Path,
    say: Callable[[str], object],
) -> Run:
    """The run with the scores of its layers and thresholds, and with the minimal sets."""
    from residuum.maths.probing import Recipe
    from residuum.probing.batteries import Bench
    from residuum.probing.redundancy_probes import Penalty, probe_layers_and_clusters, probe_twin
    from residuum.probing.redundancy_sets import find_minimal_sets

    bench = Bench(splits, plan.recipe or Recipe(), plan.max_memory, settings.seed, plan.workers)
    penalty = Penalty(plan.l1, plan.l2)
    random: dict[str, float] = {}
    if twin is not None:
        found = finished_step(folder, "twin", lambda: probe_twin(bench, twin, settings, penalty, say))
        random = dict(zip(found.tables["twin"]["set"], found.tables["twin"]["score"], strict=True))
    probes = finished_step(
        folder, "probes", lambda: probe_layers_and_clusters(bench, run.tables, settings, penalty, random, say)
    )
    minimal = finished_step(folder, "minimal", lambda: find_minimal_sets(bench, probes, settings, penalty, folder, say))
    return Run(
        run.command,
        run.config,
        {"task": splits.task.name, **run.summary, **probes.summary, **minimal.summary},
        {**run.tables, **probes.tables, **minimal.tables},
        run.tensors,
    )
