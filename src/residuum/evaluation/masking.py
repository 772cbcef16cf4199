"""What a language model is asked to predict: which tokens, and what stands in their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residuum.models.alignment import Window

MASKINGS = ("sampled", "each")
HIDDEN, CHANGED = 0.8, 0.1  # of the chosen tokens, as in pretraining; the rest is shown as it is


@dataclass(frozen=True, eq=False)
class Prediction:
    """A window as the model sees it, the places whose states predict, and the tokens that are to be found there."""

    line: int
    window: Window
    places: np.ndarray
    truth: np.ndarray


def causal_predictions(lines: Sequence[Sequence[Window]]) -> Iterator[Prediction]:
    """Every token that is not special, from the state before it; one that begins its window has nothing before it."""
    for line, windows in enumerate(lines):
        for window in windows:
            predicted = window.content[window.content > 0]
            if len(predicted):
                yield Prediction(line, window, predicted - 1, np.array(window.ids)[predicted])


def masked_predictions(
    lines: Sequence[Sequence[Window]], mask: int, ordinary: np.ndarray, *, share: float | None, seed: int
) -> Iterator[Prediction]:
    """A share of the tokens of each window, at least one; without a share every token, each hidden alone.

    The draw depends on the seed and the line's number only. `ordinary` are the tokens that may stand in for others.
    """
    for line, windows in enumerate(lines):
        rng = np.random.default_rng([seed, line])
        for window in windows:
            if share is None:
                yield from (_hidden(line, window, mask, place) for place in window.content.tolist())
            else:
                yield _sampled(line, window, mask, ordinary, share, rng)


def _hidden(line: int, window: Window, mask: int, place: int) -> Prediction:
    ids = window.ids.copy()
    ids[place] = mask
    return Prediction(line, replace(window, ids=ids), np.array([place]), np.array([window.ids[place]]))


def _sampled(
    line: int, window: Window, mask: int, ordinary: np.ndarray, share: float, rng: np.random.Generator
) -> Prediction:
    count = max(1, round(share * len(window.content)))
    places = np.sort(rng.choice(window.content, size=count, replace=False))
    original = np.array(window.ids)
    shown = original.copy()
    fate = rng.random(count)
    shown[places[fate < HIDDEN]] = mask
    changed = places[(fate >= HIDDEN) & (fate < HIDDEN + CHANGED)]
    shown[changed] = rng.choice(ordinary, size=len(changed))
    return Prediction(line, replace(window, ids=shown.tolist()), places, original[places])
