"""Curves over layers, read off a matrix of similarities: localization, layer average, adjacent layers."""

import numpy as np
from jaxtyping import Float

from residuum.errors import DataError


def localization(
    neuron: Float[np.ndarray, "row column"], svcca: Float[np.ndarray, "other another"]
) -> Float[np.ndarray, " column"]:
    """How much of what layers share sits in single neurons: column means of `neuron` minus those of `svcca`.

    Wu et al. (2020), section 5: higher where single neurons, rather than directions, are alike across layers.
    """
    _require_square(neuron, svcca)
    return neuron.mean(axis=0) - svcca.mean(axis=0)


def layer_average(similarity: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " column"]:
    """The mean similarity of each layer to the model's other layers; the layer itself is left out."""
    _require_square(similarity)
    n = len(similarity)
    if n < 2:
        raise DataError("Found 1 layer; expected at least 2 for a mean over the other layers.")
    return (similarity.sum(axis=1) - np.diag(similarity)) / (n - 1)


def adjacent_profile(similarity: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " step"]:
    """The similarity of each layer to the next, mean of both directions: one value fewer than layers."""
    _require_square(similarity)
    return (np.diag(similarity, 1) + np.diag(similarity, -1)) / 2


def _require_square(*matrices: Float[np.ndarray, "_ _"]) -> None:
    shapes = {matrix.shape for matrix in matrices}
    if len(shapes) != 1 or len(set(*shapes)) != 1:
        raise DataError(f"Found similarities of shape {sorted(shapes)}; expected layers × layers, the same in each.")
