"""When a neuron is constant: the one rule of clustering, comparison, standardised probes, rankings and cards.

With S = Σ(x − μ)² over n words, and ε the resolution of the numbers (float32 in a store), a neuron is constant where
its deviation √(S / n) is at most

- ε·|μ|: rounding alone may leave as much; or
- ε times the median deviation of the neurons beside it: in a sum with these it is lost to rounding, and so for every
  layer above. Real models have such dead neurons (all-MiniLM-L6-v2: 6:127 and 6:223 at 1e-32, 6:319 at 7e-9, the others
  at 0.3). The median, since a single neuron of huge variance must not silence the rest.

Both are relative, so the rule does not depend on the scale of a layer.
"""

import numpy as np
from jaxtyping import Bool, Float

SINGLE = float(np.finfo(np.float32).eps)
DOUBLE = 16 * float(np.finfo(np.float64).eps)
"""Means of float64 numbers are themselves a few roundings off."""

Neurons = Float[np.ndarray, " neuron"]


def constant_neurons(scatter: Neurons, floor: Neurons, resolution: float = SINGLE) -> Bool[np.ndarray, " neuron"]:
    """Which of the neurons that stand side by side are constant, by their S and by what rounding may leave of it."""
    typical = np.median(scatter) if scatter.size else 0.0
    return scatter <= np.maximum(floor, resolution**2 * typical)


def rounding_floor(n: int, mean: Neurons, resolution: float = SINGLE) -> Neurons:
    """The scatter n·(ε μ)² of n words that differ from their mean by no more than the resolution of their numbers."""
    return n * (resolution * mean) ** 2


def resolution_of(dtype: np.dtype) -> float:
    """ε of numbers of this type; activations are float32, and whatever is narrower was float32 once."""
    return DOUBLE if dtype == np.float64 else SINGLE
