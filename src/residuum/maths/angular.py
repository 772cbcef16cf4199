"""Angular distance between layers, and the run of blocks that turns the states least (Gromov et al. 2024)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from residuum.errors import DataError


class AngularAccumulator:
    """Adds up words and gives the mean angular distance between all layers, in [0, 1].

    d(l, m) = mean over words of arccos(⟨x_l, x_m⟩ / ‖x_l‖‖x_m‖) / π. Invariant to the scale of every state, not to
    rotations of one layer alone. A state that is zero has no direction and counts as orthogonal (0.5) to all others.
    """

    def __init__(self, n_layers: int) -> None:
        self._sum = np.zeros((n_layers, n_layers))
        self._n = 0

    def update(self, layers: Sequence[Float[np.ndarray, "word neuron"]]) -> None:
        """Add words, each layer of the same width."""
        states = np.stack(layers, axis=1).astype(np.float64)
        norms = np.linalg.norm(states, axis=2, keepdims=True)
        units = np.divide(states, norms, out=np.zeros_like(states), where=norms > 0)
        cosines = np.clip(units @ units.transpose(0, 2, 1), -1.0, 1.0)
        self._sum += (np.arccos(cosines) / np.pi).sum(axis=0)
        self._n += len(states)

    def result(self) -> Float[np.ndarray, "layer layer"]:
        """The mean distances; the diagonal is exactly 0."""
        if self._n == 0:
            raise DataError("There are no words to measure distances on; give a corpus with at least one.")
        distances = self._sum / self._n
        np.fill_diagonal(distances, 0.0)
        return distances


def least_turning_run(distances: Float[np.ndarray, "layer layer"], size: int) -> list[int]:
    """The `size` neighbouring blocks l + 1 … l + size with the least d(l, l + size); of equals the highest."""
    starts = range(len(distances) - size)
    best = min(starts, key=lambda start: (distances[start, start + size], -start))
    return list(range(best + 1, best + size + 1))
