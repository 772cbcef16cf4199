"""What sums of third and fourth order gain when the words they were centred on are moved."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from residuum.maths.layer_blocks import Layout, Pair


@dataclass(frozen=True, eq=False)
class ShiftTerms:
    """What the third and fourth sums gain when the centred words y become y + d.

    With e_l = ‖d_l‖², t_l = tr S_ll and p_l = d_lᵀ S_l:, from ‖y_l + d_l‖² = ‖y_l‖² + 2 d_l·y_l + e_l:
    third  gains t_l d + 2 p_l + n e_l d;
    fourth gains 2 d_m·third_lm + 2 d_l·third_ml + t_l e_m + e_l t_m + 4 p_lm·d_m + n e_l e_m.
    """

    layout: Layout
    n: int
    d: Float[np.ndarray, " neuron"]
    e: Float[np.ndarray, " layer"]
    t: Float[np.ndarray, " layer"]
    p: Float[np.ndarray, "layer neuron"]

    @staticmethod
    def of(layout: Layout, blocks: Mapping[Pair, np.ndarray], n: int, d: Float[np.ndarray, " neuron"]) -> "ShiftTerms":
        """The terms for the centred scatter `blocks` of n words and the move d."""
        p = np.zeros((len(layout.widths), layout.total))
        for (i, j), block in blocks.items():
            p[i, layout.slices[j]] = d[layout.slices[i]] @ block
            p[j, layout.slices[i]] = block @ d[layout.slices[j]]
        t = layout.sum_by_layer(layout.diagonal(blocks))
        return ShiftTerms(layout, n, d, layout.sum_by_layer(d**2), t, p)

    def third(self) -> Float[np.ndarray, "layer neuron"]:
        """The gain of Σ‖y_l‖² y."""
        return np.outer(self.t + self.n * self.e, self.d) + 2 * self.p

    def fourth(self, third: Float[np.ndarray, "layer neuron"]) -> Float[np.ndarray, "layer layer"]:
        """The gain of Σ‖y_l‖²‖y_m‖², from the centred `third`."""
        half = 2 * self.layout.sum_by_layer(third * self.d) + np.outer(self.t, self.e)
        return half + half.T + 4 * self.layout.sum_by_layer(self.p * self.d) + self.n * np.outer(self.e, self.e)
