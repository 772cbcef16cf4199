"""From scores to choices: minimal neuron sets, top and bottom, sufficient layers, layer subsets.

A *scorer* takes sets of neurons and returns the accuracy of a probe trained on each; it gets several sets at
a time, so that they can train as one battery.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from residuum.errors import SettingError
from residuum.maths.neuron_ids import NeuronLayout

Neurons = Int[np.ndarray, " _"]
Scorer = Callable[[Sequence[Neurons]], Sequence[float]]


@dataclass(frozen=True, eq=False)
class MinimalSet:
    """The smallest tried head of a ranking that scores at least `required`, and every (size, score) tried."""

    neurons: Neurons
    score: float
    required: float
    sufficient: bool
    tried: tuple[tuple[int, float], ...]


def minimal_set(
    order: Neurons,
    score_sets: Scorer,
    required: float,
    *,
    resolution: int = 10,
    at_once: int = 4,
) -> MinimalSet:
    """Grow the head of a ranking until it scores `required`, then narrow the gap to the last insufficient size.

    `required` is usually `keep_share(oracle)` (Dalvi et al. 2020) or oracle − δ (Durrani et al. 2021). A round scores
    up to `at_once` sizes: the next of `growing_sizes`, later evenly between the two. The search ends when the gap is
    at most `resolution` neurons. When no size suffices all neurons are returned with `sufficient=False`.
    """
    sizes = growing_sizes(len(order))
    tried: dict[int, float] = {}
    for start in range(0, len(sizes), at_once):
        _try_sizes(order, sizes[start : start + at_once], score_sets, tried)
        if any(score >= required for score in tried.values()):
            break
    size = _refine(order, score_sets, required, resolution, at_once, tried)
    found = size if size is not None else max(tried)
    return MinimalSet(order[:found], tried[found], required, size is not None, tuple(sorted(tried.items())))


def growing_sizes(n_neurons: int, smallest: int = 10, factor: float = 1.6) -> list[int]:
    """Sizes to try: from `smallest`, each `factor` times the last, up to all neurons."""
    sizes, size = [], float(min(smallest, n_neurons))
    while round(size) < n_neurons:
        sizes.append(round(size))
        size = max(size * factor, size + 1)
    return [*sizes, n_neurons]


def keep_share(oracle: float, share: float = 0.99) -> float:
    """The score that keeps this share of the oracle's (1 % loss unless told otherwise)."""
    if not 0 < share <= 1:
        raise SettingError(f"The share of the oracle to keep is {share}; it must lie above 0 and at most at 1.")
    return share * oracle


def top_and_bottom(order: Neurons, share: float) -> tuple[Neurons, Neurons]:
    """The first and the last `share` of a ranking, one neuron or more each (Durrani et al. 2021, table 1)."""
    if not 0 < share <= 0.5:
        raise SettingError(f"Top and bottom shares of {share} overlap or are empty; choose at most 0.5.")
    size = max(round(share * len(order)), 1)
    return order[:size], order[-size:]


def sufficient_layers(scores: Mapping[int, float], required: float) -> list[int]:
    """Layers that reach `required` alone: redundant for the task (Dalvi et al. 2020, figure 4)."""
    return sorted(layer for layer, score in scores.items() if score >= required)


def lowest_sufficient_layer(scores: Mapping[int, float], required: float) -> int | None:
    """The lowest layer that reaches `required`, or None.

    Scores of single layers tell how deep the task lies; scores of the concatenation up to each layer are what
    LayerSelector uses (Dalvi et al. 2020, §7).
    """
    return next(iter(sufficient_layers(scores, required)), None)


def sufficient_classes(
    recall: Float[np.ndarray, " class"], oracle: Float[np.ndarray, " class"], share: float = 0.99
) -> Bool[np.ndarray, " class"]:
    """Classes that a layer finds as well as the oracle does (Dalvi et al. 2020, figures 7–9).

    A class that the oracle never finds is not sufficient in any layer.
    """
    return (recall >= keep_share(1.0, share) * oracle) & (oracle > 0)


def layers_up_to(layout: NeuronLayout) -> dict[int, Neurons]:
    """For each layer, the columns of the concatenation of all layers up to it."""
    ordered = sorted(layout.layers)
    return {layer: layout.columns(ordered[: place + 1]) for place, layer in enumerate(ordered)}


def layer_subsets(layout: NeuronLayout) -> dict[str, tuple[int, ...]]:
    """The subsets of layers of the study of distilled models (§3.3), layer 0 being the embeddings.

    Alternate, bottom half and top half have equally many layers, rounded up, so that their scores compare;
    with an odd number of layers the middle one is in both halves.
    """
    layers = tuple(sorted(layout.layers))
    half = (len(layers) + 1) // 2
    subsets = {"alternate": layers[::2], "bottom half": layers[:half], "top half": layers[-half:]}
    if 0 in layers and len(layers) > 1:
        subsets |= {"embeddings": (0,), "all but embeddings": layers[1:]}
    return subsets


def _try_sizes(order: Neurons, sizes: Sequence[int], score_sets: Scorer, tried: dict[int, float]) -> None:
    scores = score_sets([order[:size] for size in sizes])
    tried.update(zip(sizes, (float(score) for score in scores), strict=True))


def _refine(
    order: Neurons, score_sets: Scorer, required: float, resolution: int, at_once: int, tried: dict[int, float]
) -> int | None:
    """Cut the gap below the smallest sufficient size into even parts until it is at most `resolution`."""
    while True:
        enough = min((size for size, score in tried.items() if score >= required), default=None)
        if enough is None:
            return None
        below = max((size for size in tried if size < enough), default=0)
        if enough - below <= resolution:
            return enough
        steps = min(at_once, (enough - below - 1) // resolution) + 1
        between = {below + (enough - below) * step // steps for step in range(1, steps)}
        _try_sizes(order, sorted(between), score_sets, tried)
