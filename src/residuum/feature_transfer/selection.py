"""The three steps of Dalvi et al. (2020), §7: which layers, which clusters' representatives, which neurons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from residuum.activations.correlation import cluster_store
from residuum.activations.store import ActivationStore
from residuum.batteries import Bench
from residuum.errors import DataError, SettingError
from residuum.feature_transfer.candidates import Candidate, Candidates, train_candidates
from residuum.feature_transfer.costs import Costs
from residuum.feature_transfer.settings import Settings
from residuum.maths.selection import growing_sizes, lowest_sufficient_layer, minimal_set

AT_ONCE = 8  # sizes of a ranking's head that train as one battery


def select_layers(bench: Bench, settings: Settings, costs: Costs) -> Candidates:
    """LayerSelector: probe the concatenation up to each layer, and keep the lowest that is good enough.

    Good enough is to lose at most the share `layer_loss` of the oracle's score on dev, the oracle being all layers.
    With a budget of layers, bytes or milliseconds it is the best of those that are within it. Without this step all
    layers are kept, and only the oracle is trained.
    """
    layout = bench.splits.layout
    tops = layout.layers if "layers" in settings.steps else layout.layers[-1:]
    sets = {layer: slice(0, layout.layer_slice(layer).stop) for layer in tops}
    tried = train_candidates(bench, "layers", sets, settings)
    scores = {candidate.layer: candidate.dev for candidate in tried}
    if not tried[-1].dev > 0:
        raise DataError(
            f"All layers together score {tried[-1].dev:.3f} on the development part, so there is nothing to keep; "
            "give more training data or another task."
        )
    if settings.budget is not None and settings.budget.step == "layers":
        chosen = _best_affordable(scores, costs, settings)
    else:
        chosen = lowest_sufficient_layer(scores, _required(tried[-1].dev, settings.layer_loss))
    return Candidates(tried, list(scores).index(layout.layers[-1] if chosen is None else chosen))


def affordable_layers(costs: Costs, settings: Settings) -> list[int]:
    """The layers up to which a network is within the budget; known before anything is trained."""
    budget = settings.budget
    if budget is None or budget.step != "layers":
        return list(costs)
    found = [layer for layer, cost in costs.items() if cost[budget.kind] <= budget.amount]
    if not found:
        nearest = min(costs, key=lambda layer: costs[layer][budget.kind])
        remedy = " or trim the vocabulary (--trim)" if budget.kind == "bytes" else ""
        raise SettingError(
            f"The budget {budget} cannot be reached: the nearest is {budget.kind}={costs[nearest][budget.kind]:.4g}, "
            f"{'the embeddings alone' if nearest == 0 else f'layers up to {nearest}'}. Raise it{remedy}."
        )
    return found


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


def select_neurons(bench: Bench, kept: Candidate, layers: Candidate, settings: Settings) -> Candidates:
    """Feature selection: the smallest head of the LCA ranking of the kept neurons that is good enough.

    Good enough is to lose at most the share `neuron_loss` of the kept layers' score on dev. With a budget of neurons
    it is the best head within it. A probe is trained anew on every head that is tried.
    """
    tried = {kept.n_neurons: replace(kept, step="neurons", setting=kept.n_neurons)}

    def score_sets(heads: Sequence[Int[np.ndarray, " neuron"]]) -> list[float]:
        new = {len(head): np.sort(head) for head in heads if len(head) not in tried}
        if new:
            tried.update((c.n_neurons, c) for c in train_candidates(bench, "neurons", new, settings))
        return [tried[len(head)].dev for head in heads]

    most = settings.limit("neurons")
    if most is not None:
        sizes = growing_sizes(min(int(most), kept.n_neurons))
        scores = score_sets([kept.order[:size] for size in sizes])
        size, sufficient = sizes[int(np.argmax(scores))], True
    else:
        required = _required(layers.dev, settings.neuron_loss)
        found = minimal_set(kept.order, score_sets, required, at_once=AT_ONCE)
        size, sufficient = len(found.neurons), found.sufficient
    ordered = [tried[key] for key in sorted(tried)]
    return Candidates(ordered, sorted(tried).index(size), sufficient)


def _required(score: float, loss: float) -> float:
    return (1 - loss) * score


def _best_affordable(scores: Mapping[int, float], costs: Costs, settings: Settings) -> int:
    return max(affordable_layers(costs, settings), key=lambda layer: (scores[layer], -layer))


def _up_to(store: ActivationStore, layer: int) -> ActivationStore:
    """The same store with its layers up to this one; nothing is copied."""
    layers = [own for own in store.layers if own <= layer]
    return replace(store, manifest=replace(store.manifest, layers=layers, widths=store.widths[: len(layers)]))
