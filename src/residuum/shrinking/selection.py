"""The three steps of Dalvi et al. (2020), §7: which layers, which clusters' representatives, which neurons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from residuum.activations.correlation import cluster_store
from residuum.activations.store import ActivationStore
from residuum.errors import DataError, SettingError
from residuum.maths.selection import growing_sizes, lowest_sufficient_layer, minimal_set
from residuum.probing.batteries import Bench
from residuum.shrinking.candidates import Candidate, Candidates, train_candidates
from residuum.shrinking.classifiers import classifier_bytes
from residuum.shrinking.costs import Costs, network_bytes, neurons_within
from residuum.shrinking.settings import Budget, Settings

AT_ONCE = 8  # sizes of a ranking's head that train as one battery


def select_layers(bench: Bench, settings: Settings, costs: Costs) -> Candidates:
    """LayerSelector: probe the concatenation up to each layer, and keep the lowest that is good enough.

    Good enough is to lose at most the share `layer_loss` of the oracle's score on dev, the oracle being all layers.
    With a budget of layers, bytes or milliseconds it is the best of those that are within it. Without this step all
    layers are kept, and only the oracle is trained.
    """
    tried = train_candidates(bench, "layers", layer_sets(bench, settings), settings)
    scores = {candidate.layer: candidate.dev for candidate in tried}
    if not tried[-1].dev > 0:
        raise DataError(
            f"All layers together score {tried[-1].dev:.3f} on the development part, so there is nothing to keep; "
            "give more training data or another task."
        )
    if settings.budget is not None and settings.budget.step == "layers":
        chosen = _best_affordable(bench, tried, costs, settings)
    else:
        chosen = lowest_sufficient_layer(scores, _required(tried[-1].dev, settings.layer_loss))
    return Candidates(tried, list(scores).index(tried[-1].layer if chosen is None else chosen))


def layer_sets(bench: Bench, settings: Settings) -> dict[int, slice]:
    """The columns up to each layer that is tried: all layers, or only the last where none may be left out."""
    layout = bench.splits.layout
    tops = layout.layers if "layers" in settings.steps else layout.layers[-1:]
    return {layer: slice(0, layout.layer_slice(layer).stop) for layer in tops}


def affordable_layers(costs: Costs, settings: Settings, n_rows: int) -> dict[int, int]:
    """The layers up to which a network is within the budget, and the most of their neurons that are.

    It is known before anything is trained. Bytes are those of the network and of a classifier of `n_rows` classes;
    where feature selection is taken that may look at one neuron, else at all of them.
    """
    budget = settings.budget
    if budget is None or budget.step != "layers":
        return {layer: int(cost["neurons"]) for layer, cost in costs.items()}
    least = {layer: _least(cost, settings, budget.kind, n_rows) for layer, cost in costs.items()}
    found = [layer for layer, spent in least.items() if spent <= budget.amount]
    if not found:
        raise _unreachable(budget, least)
    if budget.kind != "bytes":
        return {layer: int(costs[layer]["neurons"]) for layer in found}
    return {layer: neurons_within(costs[layer], n_rows, budget.amount) for layer in found}


def select_representatives(bench: Bench, layers: Candidate, settings: Settings) -> Candidates:
    """Correlation clustering of the kept layers: one neuron of each cluster, at the largest threshold that is enough.

    Enough is to lose at most half the share `neuron_loss` of the kept layers' score on dev. If no threshold is, all
    neurons stay.
    """
    tree = cluster_store(_up_to(bench.splits.train.store, layers.layer))
    generator = np.random.default_rng(settings.seed)
    sets: dict[float, Int[np.ndarray, " neuron"]] = {}
    for threshold in sorted(settings.thresholds):
        columns = tree.representatives(threshold, settings.representatives, generator)
        if len(columns) < layers.n_neurons and all(len(columns) < len(other) for other in sets.values()):
            sets[threshold] = columns
    tried = [replace(layers, step="clusters", setting=0.0)]
    if sets:
        tried += train_candidates(bench, "clusters", sets, settings)
    required = _required(layers.dev, settings.neuron_loss / 2)
    return Candidates(tried, max(place for place, c in enumerate(tried) if place == 0 or c.dev >= required))


def select_neurons(
    bench: Bench, kept: Candidate, layers: Candidate, settings: Settings, most: int | None = None
) -> Candidates:
    """Feature selection: the smallest head of the LCA ranking of the kept neurons that is good enough.

    Good enough is to lose at most the share `neuron_loss` of the kept layers' score on dev. With a budget
    of neurons it is the best head within it; with one of bytes, which leaves room for `most` neurons, the smallest
    that is good enough or, where none of them is, the best. A probe is trained anew on every head that is tried.
    """
    tried = {kept.n_neurons: replace(kept, step="neurons", setting=kept.n_neurons)}

    def score_sets(heads: Sequence[Int[np.ndarray, " neuron"]]) -> list[float]:
        new = {len(head): np.sort(head) for head in heads if len(head) not in tried}
        if new:
            tried.update((c.n_neurons, c) for c in train_candidates(bench, "neurons", new, settings))
        return [tried[len(head)].dev for head in heads]

    limit = settings.limit("neurons")
    room = min([kept.n_neurons, *(int(bound) for bound in (most, limit) if bound is not None)])
    if limit is not None:
        score_sets([kept.order[:size] for size in growing_sizes(room)])
        size, sufficient = _best_size(tried, room), True
    else:
        required = _required(layers.dev, settings.neuron_loss)
        found = minimal_set(kept.order[:room], score_sets, required, at_once=AT_ONCE)
        within = found.sufficient or room == kept.n_neurons
        size, sufficient = (len(found.neurons), found.sufficient) if within else (_best_size(tried, room), True)
    ordered = [tried[key] for key in sorted(tried)]
    return Candidates(ordered, sorted(tried).index(size), sufficient)


def most_neurons(costs: Costs, layers: Candidate, settings: Settings) -> int | None:
    """For how many neurons a budget of bytes leaves room beside the kept layers; None without such a budget."""
    limit = settings.limit("bytes")
    return None if limit is None else neurons_within(costs[layers.layer], len(layers.bias), limit)


def _required(score: float, loss: float) -> float:
    return (1 - loss) * score


def _best_affordable(bench: Bench, tried: Sequence[Candidate], costs: Costs, settings: Settings) -> int:
    """The layer with the best score within the budget, the lowest of equals.

    Where all neurons up to a layer would be too many bytes, it is judged by a probe on as many as fit: the head of
    its ranking.
    """
    most = affordable_layers(costs, settings, len(tried[0].bias))
    scores = {own.layer: own.dev for own in tried if own.layer in most}
    heads = {own.layer: np.sort(own.order[: most[own.layer]]) for own in tried if own.layer in most}
    short = {layer: head for layer, head in heads.items() if len(head) < costs[layer]["neurons"]}
    if short:
        found = train_candidates(bench, "layers", short, settings)
        scores |= {layer: own.dev for layer, own in zip(short, found, strict=True)}
    return max(scores, key=lambda layer: (scores[layer], -layer))


def _best_size(tried: Mapping[int, Candidate], most: int) -> int:
    """The size with the best score, the smallest of equals, among those of at most so many neurons."""
    return max((size for size in tried if size <= most), key=lambda size: (tried[size].dev, -size))


def _least(cost: Mapping[str, float], settings: Settings, kind: str, n_rows: int) -> float:
    """The least that a network up to a layer takes: of bytes, with the smallest classifier that the steps lead to."""
    if kind != "bytes":
        return cost[kind]
    fewest = 1 if "neurons" in settings.steps else int(cost["neurons"])
    return network_bytes(cost, n_rows) + classifier_bytes(n_rows, fewest)


def _unreachable(budget: Budget, least: Mapping[int, float]) -> SettingError:
    nearest = min(least, key=lambda layer: least[layer])
    in_bytes = budget.kind == "bytes"
    return SettingError(
        f"The budget {budget} cannot be reached: the nearest is {budget.kind}="
        f"{least[nearest]:{'.0f' if in_bytes else '.4g'}}, "
        f"{'the embeddings alone' if nearest == 0 else f'layers up to {nearest}'}"
        f"{' with the smallest classifier' if in_bytes else ''}. "
        f"Raise it{' or trim the vocabulary (--trim)' if in_bytes else ''}."
    )


def _up_to(store: ActivationStore, layer: int) -> ActivationStore:
    """The same store with its layers up to this one; nothing is copied."""
    layers = [own for own in store.layers if own <= layer]
    return replace(store, manifest=replace(store.manifest, layers=layers, widths=store.widths[: len(layers)]))
