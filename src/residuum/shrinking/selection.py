"""LayerSelector and CCFS (Dalvi et al. 2020, §7): which layers, which clusters' representatives, which neurons.

Everything is judged on dev by probes that are solved to convergence (or trained as in the papers). A set is sufficient
if its score is at least a share of the oracle's, the probe on all neurons of all layers. Where dev is small, heads of
neurons are judged by cross-validation on train and dev.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from residuum.activations.correlation import cluster_store
from residuum.errors import DataError, SettingError
from residuum.maths.features import windows
from residuum.maths.layouts import NeuronLayout
from residuum.maths.metrics import SentenceSums, paired_loss
from residuum.maths.probe_stack import Columns
from residuum.maths.probing import Probe
from residuum.maths.selection import SMALL_DEV, SetScore, growing_sizes, smallest_sufficient_set
from residuum.maths.task_moments import TaskMoments, forward_selection, neuron_subset, task_moments
from residuum.probing.orders import held_out_parts, pool
from residuum.probing.probe_data import TASK, ProbeData
from residuum.shrinking.classifier import Classifier, classifier_bytes, classifier_of, folded
from residuum.shrinking.measuring import Costs, network_bytes, neurons_within
from residuum.shrinking.settings import TransferSettings
from residuum.storage.results import Run

COLUMNS = ["step", "setting", "layer", "neurons", "dev", "test", "low", "high"]
TENSORS = ("columns", "weight", "bias", "order")
AT_ONCE = 4  # sizes of a ranking's head that are solved as one battery
PATH_SHARES = (0.01, 0.025, 0.05, 0.1)
"""Shares of all neurons that are tried up to every layer, for the curve of score over cost."""

Neurons = Int[np.ndarray, " neuron"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """Some neurons (columns of all layers side by side), the folded probe on them, and how good it is.

    `order` has the same neurons, the most important first where they were selected one after the other. `setting` is
    what made the set: the highest layer, the clustering threshold or the number of neurons.
    """

    step: str
    setting: float
    columns: Neurons
    weight: Float[np.ndarray, "class neuron"]
    bias: Float[np.ndarray, " class"]
    order: Neurons
    layer: int
    dev: float
    test: float
    low: float
    high: float

    @property
    def n_neurons(self) -> int:
        """The number of neurons."""
        return len(self.columns)

    def classifier(self, layout: NeuronLayout, labels: Sequence[str]) -> Classifier:
        """The classifier that does the task from these neurons."""
        return classifier_of(self.weight, self.bias, self.columns, layout, labels)


@dataclass(frozen=True, eq=False)
class Candidates:
    """What one step trained, and the place of the one that it chose; as a run it survives a killed process."""

    tried: list[Candidate]
    chosen: int
    sufficient: bool = True
    note: str = ""

    @property
    def best(self) -> Candidate:
        """The chosen one."""
        return self.tried[self.chosen]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per candidate."""
        rows = [[c.step, c.setting, c.layer, c.n_neurons, c.dev, c.test, c.low, c.high] for c in self.tried]
        return pd.DataFrame(rows, columns=pd.Index(COLUMNS)).assign(chosen=np.arange(len(rows)) == self.chosen)

    def as_run(self) -> Run:
        """All of it as tables and tensors."""
        tensors = {
            f"{name} {place}": np.ascontiguousarray(getattr(candidate, name))
            for place, candidate in enumerate(self.tried)
            for name in TENSORS
        }
        summary = {"chosen": self.chosen, "sufficient": self.sufficient, "note": self.note}
        return Run("transfer", {}, summary, {"tried": self.table}, tensors)

    @classmethod
    def of_run(cls, run: Run) -> Candidates:
        """What `as_run` made."""
        tried = []
        for place, row in enumerate(run.tables["tried"].to_dict("records")):
            parts: dict[str, Any] = {name: run.tensors[f"{name} {place}"] for name in TENSORS}
            names = ("step", "setting", "layer", "dev", "test", "low", "high")
            tried.append(Candidate(**{name: row[name] for name in names}, **parts))
        return cls(tried, run.summary["chosen"], run.summary["sufficient"], run.summary["note"])


@dataclass(frozen=True, eq=False)
class FeatureSelection:
    """The three steps on a task's data; `costs` are those of a network up to each layer."""

    data: ProbeData
    settings: TransferSettings
    costs: Costs
    single_layers: Sequence[int] = ()  # those that may stand alone, with `save_as="transformers"`

    def layers(self) -> Candidates:
        """LayerSelector: the lowest layers that are sufficient; the last candidate is the oracle.

        The concatenation up to each layer is probed, or with `--save-as transformers` each layer alone. Within a
        budget of layers, bytes or milliseconds it is the best. Without this step only the oracle is trained.
        """
        tried = self.train("layers", self._layer_sets())
        oracle = tried[-1]
        if not oracle.dev > 0:
            raise DataError(
                f"All layers together score {oracle.dev:.3f} on the development part, so there is nothing to keep; "
                "give more training data or another task."
            )
        choices = tried[:-1] if self.settings.one_layer else tried
        if self.settings.allowance is not None and self.settings.allowance.step == "layers":
            # The best within the budget, the lowest of equals. Where all neurons up to a layer would be too many bytes,
            # the layer is judged by a probe on as many as fit.
            most = affordable_layers(self.costs, self.settings, len(choices[0].bias))
            scores = {i: c.dev for i, c in enumerate(choices) if c.layer in most}
            short = {
                i: np.sort(self.order(choices[i].columns)[: most[choices[i].layer]])
                for i in scores
                if most[choices[i].layer] < choices[i].n_neurons
            }
            if short:
                heads = self.train("layers", short)
                scores |= {i: head.dev for i, head in zip(short, heads, strict=True)}
            return Candidates(tried, max(scores, key=lambda i: (scores[i], -i)))
        sufficient = [i for i, c in enumerate(choices) if c.dev >= self.settings.layer_keep * oracle.dev]
        best = max(range(len(choices)), key=lambda i: choices[i].dev)
        return Candidates(tried, sufficient[0] if sufficient else best, bool(sufficient))

    def path(self, layers: Candidates) -> Candidates:
        """The best few neurons up to every layer: what a smaller network or classifier would score."""
        n_neurons, sets, orders = self.data.splits.layout.n_neurons, dict[float, Neurons](), dict[float, Neurons]()
        choices = layers.tried[:-1] if self.settings.one_layer else layers.tried
        for candidate in choices:
            order = self.order(candidate.columns)
            for share in PATH_SHARES:
                if 1 <= (size := round(share * n_neurons)) < candidate.n_neurons:
                    place = float(candidate.layer * n_neurons + size)
                    sets[place], orders[place] = np.sort(order[:size]), order[:size]
        tried = self.train("path", sets, orders) if sets else []
        return Candidates([replace(c, setting=c.n_neurons) for c in tried], 0)

    def representatives(self, layers: Candidate, reference: float) -> Candidates:
        """Correlation clustering of the kept layers: one neuron per cluster, at the largest sufficient threshold.

        Clustering may take half of what the layers left of the allowed loss. If no threshold is sufficient, all
        neurons stay.
        """
        settings, layout = self.settings, self.data.splits.layout
        store = self.data.splits.train.store
        kept = sorted({layout.layers[place] for place in layout.positions[layers.columns].tolist()})
        widths = [store.widths[store.layers.index(layer)] for layer in kept]
        tree = cluster_store(replace(store, manifest=replace(store.manifest, layers=kept, widths=widths)))
        generator = np.random.default_rng(settings.seed)
        sets: dict[float, Neurons] = {}
        for threshold in sorted(settings.thresholds):
            columns = layers.columns[tree.representatives(threshold, settings.representatives, generator)]
            if len(columns) < min(layers.n_neurons, *map(len, sets.values()), layers.n_neurons):
                sets[threshold] = columns
        tried = [replace(layers, step="clusters", setting=0.0), *(self.train("clusters", sets) if sets else [])]
        required = (settings.keep + settings.layer_keep) / 2 * reference
        return Candidates(tried, max(i for i, c in enumerate(tried) if i == 0 or c.dev >= required))

    def neurons(self, layers: Candidate, clusters: Candidate | None, reference: float) -> Candidates:
        """Feature selection: the smallest sufficient head of the neurons in order of forward selection.

        All neurons of the kept layers are searched, and the representatives of clusters too where there are fewer of
        them: clustering is used only if it leads to the smaller set. With a budget of neurons it is the best head
        within it; with one of bytes, the smallest sufficient head within it or, without one, the best.
        """
        alone = self._smallest_head(layers, reference)
        if clusters is None or clusters.n_neurons == layers.n_neurons:
            return alone
        clustered = self._smallest_head(clusters, reference)
        sizes = f"{clustered.best.n_neurons:,} neurons with it, {alone.best.n_neurons:,} without"
        pays = (clustered.sufficient, -clustered.best.n_neurons) > (alone.sufficient, -alone.best.n_neurons)
        best = clustered if pays else alone
        return replace(best, note=f"clustering {'pays' if pays else 'does not pay and was skipped'}: {sizes}")

    def order(self, columns: Neurons) -> Neurons:
        """Some neurons in the order in which each explains most of what those before it leave unexplained."""
        return columns[forward_selection(neuron_subset(self._moments, columns)).order]

    def train(
        self, step: str, sets: Mapping[Any, Columns], orders: Mapping[Any, Neurons] | None = None
    ) -> list[Candidate]:
        """Train a probe on each set in one battery, and score all on dev, to choose, and test, to report."""
        data, layout = self.data, self.data.splits.layout
        trained = data.train([self.probe(columns) for columns in sets.values()])
        scores = zip(sets, trained, data.score(trained, "dev"), data.score(trained, "test"), strict=True)
        candidates = []
        for setting, probe, dev, test in scores:
            interval, (weight, bias) = data.interval(test), folded(probe)
            candidates.append(
                Candidate(
                    step=step,
                    setting=float(setting),
                    columns=probe.neurons,
                    weight=weight,
                    bias=bias,
                    order=probe.neurons if orders is None else orders[setting],
                    layer=max(layout.layers[place] for place in np.unique(layout.positions[probe.neurons])),
                    dev=dev.value,
                    test=test.value,
                    low=float(interval.low),
                    high=float(interval.high),
                )
            )
        return candidates

    def probe(self, columns: Columns, seed: int | None = None) -> Probe:
        """The probe of a set of neurons; without a penalty λ2 is chosen on dev, or the recipe's."""
        l1, l2 = self.settings.penalty or (None, None)
        return Probe(TASK, columns, l1, l2, self.settings.seed if seed is None else seed)

    def seed_scores(self, candidates: Mapping[str, Candidate]) -> dict[str, list[float]]:
        """The test score of each candidate's neurons from every seed: the first, and newly trained probes.

        Candidates with the same neurons are trained once.
        """
        settings = self.settings
        sets = {candidate.columns.tobytes(): candidate.columns for candidate in candidates.values()}
        scores: dict[bytes, list[float]] = {key: [] for key in sets}
        more = range(settings.seed + 1, settings.seed + settings.seeds)
        read: list[Columns] = []
        for columns in sets.values():  # neighbours are given as a range, which is read without a copy
            first, stop = int(columns[0]), int(columns[-1]) + 1
            neighbours = stop - first == len(columns) and bool((np.diff(columns) == 1).all())
            read.append(slice(first, stop) if neighbours else columns)
        probes = [self.probe(columns, seed) for seed in more for columns in read]
        if probes:
            values = iter(self.data.score(self.data.train(probes), "test"))
            for _ in more:
                for key in sets:
                    scores[key].append(next(values).value)
        return {name: [best.test, *scores[best.columns.tobytes()]] for name, best in candidates.items()}

    @cached_property
    def _moments(self) -> TaskMoments:
        return task_moments(self.data.features("train"), self.data.targets[TASK])

    def _layer_sets(self) -> dict[float, slice]:
        """The columns of each choice of layers that is tried; those of the oracle come last."""
        layout, settings = self.data.splits.layout, self.settings
        everything = {float(layout.layers[-1]): slice(0, layout.n_neurons)}
        if "layers" not in settings.steps and not settings.one_layer:
            return everything
        if not settings.one_layer:
            return {float(layer): slice(0, layout.layer_slice(layer).stop) for layer in layout.layers}
        alone = self.single_layers or layout.layers
        tops = alone if "layers" in settings.steps else alone[-1:]
        oracle = {layout.layers[-1] + 1.0: everything[float(layout.layers[-1])]}
        return {float(layer): layout.layer_slice(layer) for layer in tops} | oracle

    def _smallest_head(self, kept: Candidate, reference: float) -> Candidates:
        """The smallest sufficient head of the kept neurons, or the best within a budget."""
        order = self.order(kept.columns)
        tried = {kept.n_neurons: replace(kept, step="neurons", setting=kept.n_neurons, order=order)}

        def score_sets(heads: Sequence[Neurons]) -> list[float]:
            new = {float(len(head)): head for head in heads if len(head) not in tried}
            if new:
                ascending = {size: np.sort(head) for size, head in new.items()}
                tried.update((c.n_neurons, c) for c in self.train("neurons", ascending, new))
            return [tried[len(head)].dev for head in heads]

        limit, n_bytes = self.settings.limit_of("neurons"), self.settings.limit_of("bytes")
        room = kept.n_neurons if limit is None else min(kept.n_neurons, int(limit))
        if n_bytes is not None:
            room = min(room, neurons_within(self.costs[kept.layer], len(kept.bias), n_bytes))
        if limit is not None:
            score_sets([order[:size] for size in growing_sizes(room)])
            size, sufficient = _best_size(tried, room), True
        else:
            losses = self._cross_validated_losses(kept.columns, order) or self._dev_losses(tried, reference)

            def measure(heads: Sequence[Neurons]) -> list[SetScore]:
                scores = score_sets(heads)
                lost = losses(list(map(len, heads)))
                # What is written is a promise: the loss must be within the allowed one by a standard error.
                return [SetScore(score, x.excess, -x.standard_error) for score, x in zip(scores, lost, strict=True)]

            smallest = smallest_sufficient_set(order[:room], measure, at_once=AT_ONCE)
            within = smallest.sufficient or room == kept.n_neurons
            size = len(smallest.neurons) if within else _best_size(tried, room)
            sufficient = smallest.sufficient or not within
        return Candidates([tried[key] for key in sorted(tried)], sorted(tried).index(size), sufficient)

    def _cross_validated_losses(
        self, columns: Neurons, order: Neurons
    ) -> Callable[[Sequence[int]], list[SetScore]] | None:
        """What heads of an order lose beyond the allowed loss, over dev and the folds of the training part.

        A few hundred dev examples cannot tell 99 % from 94 %. None where dev is large enough, or a budget decides.
        """
        if len(self.data.splits.dev) >= SMALL_DEV or self.settings.allowance is not None:
            return None

        def ranker(fold: ProbeData) -> Neurons:
            moments = task_moments(fold.features("train"), fold.targets[TASK])
            return columns[forward_selection(neuron_subset(moments, columns)).order]

        parts = held_out_parts(self.data, ranker, order)
        oracle = pool([part.oracle for part in parts])

        def losses(sizes: Sequence[int]) -> list[SetScore]:
            pooled = map(pool, zip(*(part.sums(sizes) for part in parts), strict=True))
            return [paired_loss(sums, oracle, self.settings.keep) for sums in pooled]

        return losses

    def _dev_losses(
        self, tried: Mapping[int, Candidate], reference: float
    ) -> Callable[[Sequence[int]], list[SetScore]]:
        """The same on dev alone; the loss counts from the reference, its standard error from the largest set."""
        whole = self._dev_sums(tried[max(tried)])

        def losses(sizes: Sequence[int]) -> list[SetScore]:
            paired = [paired_loss(self._dev_sums(tried[size]), whole, self.settings.keep) for size in sizes]
            return [replace(loss, excess=self.settings.keep * reference - loss.score) for loss in paired]

        return losses

    def _dev_sums(self, candidate: Candidate) -> SentenceSums:
        """Per-sentence sums of a candidate on dev, from its folded weights."""
        scores = np.empty((len(self.data.splits.dev), len(candidate.bias)), np.float32)
        for window in windows(self.data.features("dev")):
            scores[window.words] = window.x[:, candidate.columns] @ candidate.weight.T + candidate.bias
        classes = self.data.targets[TASK].n_classes
        return self.data.truth("dev").sums(scores.argmax(axis=1) if classes else scores[:, 0])


def reference_score(oracle: Candidate, layers: Candidate, settings: TransferSettings) -> float:
    """The dev score of which neurons keep the share `keep`: the oracle's, or less where a budget cut its layers."""
    return min(oracle.dev, layers.dev / settings.layer_keep)


def affordable_layers(costs: Costs, settings: TransferSettings, n_rows: int) -> dict[int, int]:
    """The layers up to which a network is within the budget, and the most of their neurons that are.

    It is known before anything is trained. Bytes are those of the network and of a classifier of `n_rows` classes;
    where neurons are selected that may read one neuron, else all of them.
    """
    budget = settings.allowance
    if budget is None or budget.step != "layers":
        return {layer: int(cost["neurons"]) for layer, cost in costs.items()}
    amount = costs[max(costs)]["ms"] / budget.amount if budget.kind == "speedup" else budget.amount
    kind = "ms" if budget.kind == "speedup" else budget.kind
    least = {layer: _least(cost, settings, kind, n_rows) for layer, cost in costs.items()}
    within = [layer for layer, spent in least.items() if spent <= amount]
    if not within:
        nearest, in_bytes = min(least, key=lambda layer: least[layer]), kind == "bytes"
        reached = costs[max(costs)]["ms"] / least[nearest] if budget.kind == "speedup" else least[nearest]
        raise SettingError(
            f"The budget {budget} cannot be reached: the nearest is "
            f"{budget.kind}={reached:{'.0f' if in_bytes else '.4g'}}, "
            f"{'the embeddings alone' if nearest == 0 else f'layers up to {nearest}'}"
            f"{' with the smallest classifier' if in_bytes else ''}. "
            f"{'Lower' if budget.kind == 'speedup' else 'Raise'} it"
            f"{' or trim the vocabulary (--trim)' if in_bytes else ''}."
        )
    if kind != "bytes":
        return {layer: int(costs[layer]["neurons"]) for layer in within}
    return {layer: neurons_within(costs[layer], n_rows, amount) for layer in within}


def _least(cost: Mapping[str, float], settings: TransferSettings, kind: str, n_rows: int) -> float:
    """The least that a network up to a layer takes: of bytes, with the smallest classifier that the steps lead to."""
    if kind != "bytes":
        return cost[kind]
    fewest = 1 if "neurons" in settings.steps else int(cost["neurons"])
    return network_bytes(cost, n_rows) + classifier_bytes(n_rows, fewest)


def _best_size(tried: Mapping[int, Candidate], most: int) -> int:
    """The size with the best score, the smallest of equals, among those of at most so many neurons."""
    return max((size for size in tried if size <= most), key=lambda size: (tried[size].dev, -size))
