"""Layers of networks of different depths, lined up by how far up they lie."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from residuum.errors import SettingError


def relative_depths(layers: Sequence[int], n_layers: int) -> Float[np.ndarray, " layer"]:
    """d_l = l / L for layers l of a network with L blocks: 0 is the embeddings, 1 the last layer."""
    if n_layers < 1 or any(not 0 <= layer <= n_layers for layer in layers):
        raise SettingError(f"The layers {list(layers)} do not lie in a network of {n_layers} blocks.")
    return np.asarray(layers, np.float64) / n_layers


def depth_weights(
    depths: Float[np.ndarray, " layer"], base: Float[np.ndarray, " base"]
) -> Float[np.ndarray, "layer base"]:
    """W such that W @ v is what the values v at the depths `base` (ascending) are at other depths.

    Linear between the two neighbouring layers, constant beyond the ends: rows sum to 1, and a depth that is in `base`
    takes that layer alone. Because W is linear, means over words may be taken before or after.
    """
    if len(base) == 0 or (np.diff(base) <= 0).any():
        raise SettingError(f"The depths {base.tolist()} are not ascending; give each layer once, in order.")
    return np.stack([np.interp(depths, base, one) for one in np.eye(len(base))], axis=1)
