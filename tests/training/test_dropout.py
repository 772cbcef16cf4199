"""Dropout of training: the rate, the scale and the gradient of torch's, and nothing left behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from residuum.training.dropout import dropped, quick_dropout

N = 1_000_003  # no multiple of the neurons that share a draw


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_as_many_are_dropped_as_the_rate_says_and_the_others_are_scaled_up(rate):
    torch.manual_seed(0)
    y = dropped(torch.ones(N), rate)
    lost = (y == 0).double().mean()
    assert abs(lost - rate) < 5 * (rate * (1 - rate) / N) ** 0.5
    assert torch.allclose(y[y != 0], torch.tensor(1 / (1 - rate)), rtol=1e-3)
    assert abs(y.double().mean() - 1) < 0.01


def test_neurons_that_share_a_draw_are_dropped_independently():
    torch.manual_seed(0)
    kept = (dropped(torch.ones(4_000_000), 0.5) != 0).view(-1, 4).double()
    correlation = torch.corrcoef(kept.T)
    assert (correlation - torch.eye(4)).abs().max() < 5 / 1000  # five deviations of a million draws


def test_the_gradient_is_that_of_what_was_kept():
    torch.manual_seed(0)
    x = torch.randn(50, 30, requires_grad=True)
    y = dropped(x, 0.3)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad * x, y)
    assert 0 < (y == 0).sum() < y.numel()


def test_a_seed_decides_what_is_dropped():
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(dropped(torch.ones(1000), 0.5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_modules_draw_quickly_inside_and_as_before_afterwards():
    shared = nn.Dropout(0.5)
    nets = [nn.Sequential(shared, nn.Identity()), nn.Sequential(shared)]
    x = torch.ones(1000)

    def drawn(draw=nets[0]):
        torch.manual_seed(0)
        return draw(x)

    before, quick = drawn(), drawn(lambda x: dropped(x, 0.5))
    assert not torch.equal(before, quick)
    with pytest.raises(KeyError), quick_dropout(nets):
        assert torch.equal(drawn(), quick)
        raise KeyError
    assert torch.equal(drawn(), before)
    assert "forward" not in vars(shared)


def test_what_does_not_train_or_drops_all_or_nothing_is_left_to_torch():
    x = torch.ones(100)
    for part in (nn.Dropout(0.0), nn.Dropout(1.0), nn.Dropout(0.5).eval()):
        with quick_dropout([part]):
            assert torch.equal(part(x), torch.zeros(100) if part.p == 1 else x)
    with quick_dropout([part := nn.Dropout(0.5)]):
        assert part(x.to("meta")).device.type == "meta"
