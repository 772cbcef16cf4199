"""From scores to choices: minimal neuron sets, top and bottom, sufficient classes, layer subsets.

A candidate is *sufficient* by the one-standard-error rule: over the same sentences, it is not significantly worse than
the loss that is allowed. A *measure* takes sets of neurons and returns the score of a probe on each; it gets several
sets at a time, so that they can be solved as one battery.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from residuum.errors import SettingError
from residuum.maths.layouts import NeuronLayout

Neurons = Int[np.ndarray, " _"]
SMALL_DEV = 1000
"""Held-out examples below which sets are chosen by cross-validation on train and dev together."""


@dataclass(frozen=True)
class SetScore:
    """A candidate's score, and by how much its loss exceeds the allowed one (with the standard error of that)."""

    score: float
    excess: float
    standard_error: float

    @property
    def sufficient(self) -> bool:
        """Not worse than allowed by more than one standard error."""
        return self.excess <= self.standard_error


Measure = Callable[[Sequence[Neurons]], Sequence[SetScore]]


def sentence_folds(sentences: Int[np.ndarray, " example"], folds: int = 5) -> Int[np.ndarray, " example"]:
    """The fold of each example: whole sentences, folds of about equal size, the same for every order of examples."""
    names, place, sizes = np.unique(sentences, return_inverse=True, return_counts=True)
    if not 2 <= folds <= len(names):
        raise SettingError(f"{len(names)} sentences cannot be cut into {folds} folds; expected 2 to {len(names)}.")
    held, fold = np.zeros(folds, int), np.empty(len(names), int)
    for sentence in np.argsort(-sizes, kind="stable"):
        fold[sentence] = held.argmin()
        held[fold[sentence]] += sizes[sentence]
    return fold[place]


@dataclass(frozen=True, eq=False)
class MinimalSet:
    """The smallest tried head of a ranking that is sufficient, its score, and every (size, score) tried."""

    neurons: Neurons
    score: float
    required: float
    sufficient: bool
    tried: tuple[tuple[int, float], ...]


def smallest_sufficient_set(
    order: Neurons, measure: Measure, *, resolution: int | None = None, at_once: int = 2
) -> MinimalSet:
    """Grow the head of a ranking until it is sufficient, then bisect the gap to the last insufficient size.

    All sets are nested. A round measures up to `at_once` sizes: the next of `growing_sizes`, later evenly between the
    two. The search ends when the gap is at most `resolution` neurons (by default 5 % of the size). When no size
    suffices all neurons are returned with `sufficient=False`. The set that is returned is one that was measured.
    """
    sizes, tried = growing_sizes(len(order)), dict[int, SetScore]()

    def try_sizes(chosen: Sequence[int]) -> None:
        tried.update(zip(chosen, measure([order[:size] for size in chosen]), strict=True))

    for start in range(0, len(sizes), at_once):
        try_sizes(sizes[start : start + at_once])
        if any(score.sufficient for score in tried.values()):
            break
    while (best := min((n for n, score in tried.items() if score.sufficient), default=None)) is not None:
        below, gap = max((n for n in tried if n < best), default=0), resolution or max(best // 20, 1)
        if best - below <= gap:
            break
        steps = min(at_once, (best - below - 1) // gap) + 1
        try_sizes(sorted({below + (best - below) * step // steps for step in range(1, steps)}))
    size = best if best is not None else max(tried)
    required = tried[size].score + tried[size].excess
    scores = tuple((n, tried[n].score) for n in sorted(tried))
    return MinimalSet(order[:size], tried[size].score, required, best is not None, scores)


def growing_sizes(n_neurons: int, smallest: int = 10, factor: float = 1.6) -> list[int]:
    """Sizes to try: from `smallest`, each `factor` times the last, up to all neurons."""
    sizes, size = [], float(min(smallest, n_neurons))
    while round(size) < n_neurons:
        sizes.append(round(size))
        size = max(size * factor, size + 1)
    return [*sizes, n_neurons]


def top_and_bottom(order: Neurons, share: float) -> tuple[Neurons, Neurons]:
    """The first and the last `share` of a ranking, one neuron or more each (Durrani et al. 2021, table 1)."""
    if not 0 < share <= 0.5:
        raise SettingError(f"Top and bottom shares of {share} overlap or are empty; choose at most 0.5.")
    size = max(round(share * len(order)), 1)
    return order[:size], order[-size:]


def sufficient_classes(
    recall: Float[np.ndarray, " class"], oracle: Float[np.ndarray, " class"], share: float = 0.99
) -> Bool[np.ndarray, " class"]:
    """Classes that a layer finds as well as the oracle does (Dalvi et al. 2020, figures 7–9).

    A class that the oracle never finds is not sufficient in any layer.
    """
    return (recall >= share * oracle) & (oracle > 0)


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
