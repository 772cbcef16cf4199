"""Dropout whose draws cost little on a CPU, where torch draws a number for every single neuron.

In a step of fine-tuning those draws take as long as a tenth of all products of matrices; four neurons share one here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

LEVELS = 1 << 16  # a neuron is drawn by 16 bits, so that a rate is right to 1/65,536
DRAWN_AT_ONCE = 4  # neurons of one 64-bit number


@contextmanager
def quick_dropout(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let every `nn.Dropout` of these modules draw by `dropped` while it trains on a CPU; elsewhere nothing changes."""
    found = {part for module in modules for part in module.modules() if type(part) is nn.Dropout}
    parts = [part for part in found if "forward" not in vars(part)]  # a training in a training has done so
    for part in parts:
        part.forward = partial(_forward, part)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        for part in parts:
            del part.forward


def dropped(x: Tensor, rate: float) -> Tensor:
    """x·m / (1 − r), with m = 0 by chance r and else 1, drawn by torch's generator; r is `rate`, to 1/65,536."""
    lost = round(rate * LEVELS)
    draws = torch.empty(-(-x.numel() // DRAWN_AT_ONCE), dtype=torch.int64).random_(-(1 << 63), None)
    places = draws.view(torch.int16)[: x.numel()].view(x.shape)  # −32,768 … 32,767, all as likely
    kept = (places >= lost - LEVELS // 2).to(x.dtype)
    return x * kept.mul_(LEVELS / (LEVELS - lost))


def _forward(part: nn.Dropout, x: Tensor) -> Tensor:
    quick = part.training and x.device.type == "cpu" and 0 < round(part.p * LEVELS) < LEVELS
    return dropped(x, part.p) if quick else functional.dropout(x, part.p, part.training, part.inplace)
