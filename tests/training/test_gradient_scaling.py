"""Float16 scales losses: how far the scale has come is part of a checkpoint."""

import pytest
import torch
from torch import nn

from residuum.errors import StoreError
from residuum.training.checkpoints import FOLDER, SCALER, Progress, resume, write_checkpoint


def moved_scaler(net, optimiser):
    """A scaler after a step whose gradient overflowed, which halves the scale, and one that did not."""
    scaler = torch.amp.GradScaler("cpu", growth_interval=7)
    for factor in (float("inf"), 1.0):
        optimiser.zero_grad()
        scaler.scale(net(torch.ones(1, 2)).sum() * factor).backward()
        scaler.step(optimiser)
        scaler.update()
    return scaler


def test_a_resumed_scaler_goes_on_where_it_stood(tmp_path):
    net = nn.Linear(2, 2)
    optimiser = torch.optim.AdamW(net.parameters(), fused=True)
    scaler = moved_scaler(net, optimiser)
    state = scaler.state_dict()
    fresh = torch.amp.GradScaler("cpu", growth_interval=7)
    assert (state["scale"], state["_growth_tracker"]) == (fresh.get_scale() / 2, 1)
    write_checkpoint(tmp_path, {"net": net}, optimiser, Progress(step=2), scaler)
    resume(tmp_path, {"net": net}, optimiser, fresh)
    assert fresh.state_dict() == state


def test_a_damaged_scale_is_refused(tmp_path):
    net = nn.Linear(2, 2)
    optimiser = torch.optim.AdamW(net.parameters(), fused=True)
    write_checkpoint(tmp_path, {"net": net}, optimiser, Progress(step=2), torch.amp.GradScaler("cpu"))
    (tmp_path / FOLDER / "step-000000002" / SCALER).write_text('{"scale": "large"}')
    with pytest.raises(StoreError, match=r"scaler.json does not hold scale, growth_factor"):
        resume(tmp_path, {"net": net}, optimiser, torch.amp.GradScaler("cpu"))
