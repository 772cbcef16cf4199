"""Which inputs of a linear map can go, and how the others make up for them: least squares on second moments.

For a map y = W h, inputs h with second moments S = E[h hᵀ] and kept inputs K, the best map that sees only K is
W_K' = W S_{:,K} S_{K,K}⁻¹; its error is E‖W h − W_K' h_K‖². Removing one group G after another, each time the cheapest,

    cost(G) = tr(W_G [(S⁻¹)_{G,G}]⁻¹ W_Gᵀ)

with W and S⁻¹ updated after each removal, is the optimal brain surgeon of Hassibi and Stork (1993), for columns: the
updated W is exactly the least-squares map on the inputs that are left.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from residuum.errors import SettingError

RIDGE = 1e-4  # share of the mean second moment that is added to each: neurons that never fire have none


PARTIAL = 0.05  # squared partial correlation beyond which two inputs do not go in the same round


@dataclass(frozen=True, eq=False)
class Elimination:
    """The groups of inputs that are kept, in order; the map on them; and the share of E‖W h‖² that it misses."""

    kept: Int[Tensor, " kept"]
    weight: Float[Tensor, "output kept_input"]
    error: float


def eliminate(
    weight: Float[Tensor, "output input"],
    moments: Float[Tensor, "input input"],
    n_kept: int,
    *,
    width: int = 1,
    at_once: int = 1,
) -> Elimination:
    """Keep `n_kept` groups of `width` neighbouring inputs; `at_once` of them go before costs are computed again.

    The error is at least 0 and at most that of keeping the same inputs without an update.
    """
    n_groups = weight.shape[1] // width
    if not 1 <= n_kept <= n_groups or weight.shape[1] % width:
        raise SettingError(f"{n_kept} of {weight.shape[1]} inputs in groups of {width} cannot be kept.")
    original, s = weight.double(), moments.double()
    ridge = RIDGE * s.diagonal().mean().clamp(min=1e-12)
    s = s + ridge * torch.eye(len(s), dtype=s.dtype)
    w, inverse = original.clone(), torch.linalg.inv(s)
    alive = torch.ones(n_groups, dtype=torch.bool)
    places = torch.arange(weight.shape[1]).view(n_groups, width)
    while (n_alive := int(alive.sum())) > n_kept:
        groups = alive.nonzero()[:, 0]
        inner = inverse[places[groups][:, :, None], places[groups][:, None, :]]  # group × width × width
        columns = w[:, places[groups]].permute(1, 0, 2)
        costs = (columns @ torch.linalg.inv(inner) * columns).sum(dim=(1, 2))
        order = groups[costs.argsort(stable=True)]
        chosen = _independent(order, inverse, places, min(at_once, n_alive - n_kept))
        gone = places[chosen].flatten()
        step = torch.linalg.solve(inverse[gone][:, gone], inverse[gone])
        w -= w[:, gone] @ step
        inverse -= inverse[:, gone] @ step
        alive[chosen] = False
        w[:, gone] = 0
        inverse[gone] = 0
        inverse[:, gone] = 0
    kept = alive.nonzero()[:, 0]
    missed = original - w
    error = ((missed @ s) * missed).sum() / ((original @ s) * original).sum().clamp(min=1e-30)
    return Elimination(kept, w[:, places[kept].flatten()].to(weight.dtype), float(error))


def _independent(order: Tensor, inverse: Tensor, places: Tensor, most: int) -> Tensor:
    """The first groups that do not stand in for each other: of two copies each costs nothing, both cost a lot.

    (S⁻¹)_{ij}² / ((S⁻¹)_{ii} (S⁻¹)_{jj}) is the squared partial correlation of inputs i and j, given all others.
    """
    scale = inverse.diagonal().clamp(min=1e-300).sqrt()
    blocked, chosen = torch.zeros(len(places), dtype=torch.bool), []
    for group in order.tolist():
        if blocked[group]:
            continue
        chosen.append(group)
        inputs = places[group]
        partial = (inverse[inputs] / scale[inputs][:, None] / scale).square().amax(dim=0)
        blocked |= partial[places].amax(dim=1) > PARTIAL
        if len(chosen) == most:
            break
    return torch.tensor(chosen)
