import numpy as np
import pytest
import torch

from residuum.maths.probe_stack import ProbeStack, StackedProbe

WIDTH = 12
VIEWS = [slice(0, 5), np.array([7, 2, 9]), slice(None)]
WIDTHS = [5, 3, WIDTH]
PROBES = [
    StackedProbe("tag", 2, 4, l1=1e-3, l2=1e-2),
    StackedProbe("score", 0, 0, l1=1e-3, l2=1e-3),
    StackedProbe("tag", 0, 4, l1=0.0, l2=0.0),
    StackedProbe("other", 1, 3, l1=1e-2, l2=0.0),
    StackedProbe("tag", 2, 4, l1=0.0, l2=5e-2),
    StackedProbe("score", 2, 0, l1=0.0, l2=1e-2),
]


def batches(n=30, seed=0):
    rng = np.random.default_rng(seed)
    for size in rng.integers(3, 20, n):
        x = torch.from_numpy(rng.standard_normal((size, WIDTH)).astype(np.float32))
        tags = torch.from_numpy(rng.integers(0, 4, size))
        yield x, {"tag": tags, "other": tags % 3, "score": x[:, 1] - 2 * x[:, 8] + 0.5}


def initial(seed=1):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(0, 0.2, (p.n_rows, WIDTHS[p.view])).astype(np.float32) for p in PROBES]
    return weights, [rng.normal(0, 0.2, p.n_rows).astype(np.float32) for p in PROBES]


def train_with_autograd(probe, weight, bias, penalty):
    """The straightforward loop: one probe, torch's own loss, gradients and Adam."""
    weight, bias = (torch.tensor(part, requires_grad=True) for part in (weight, bias))
    optimiser = torch.optim.Adam([weight, bias], lr=0.01)
    for x, targets in batches():
        output = x[:, VIEWS[probe.view]] @ weight.T + bias
        truth = targets[probe.target]
        if probe.n_classes:
            loss = torch.nn.functional.cross_entropy(output, truth)
        else:
            loss = torch.nn.functional.mse_loss(output[:, 0], truth)
        second = weight.pow(2).sum() if penalty == "squared" else weight.norm()
        optimiser.zero_grad()
        (loss + probe.l1 * weight.abs().sum() + probe.l2 * second).backward()
        optimiser.step()
    return weight.detach().numpy(), bias.detach().numpy()


@pytest.mark.parametrize("penalty", ["squared", "published"])
def test_against_autograd_and_adam_one_probe_at_a_time(penalty):
    weights, biases = initial()
    stack = ProbeStack(PROBES, VIEWS, weights, biases, learning_rate=0.01, penalty=penalty)
    for x, targets in batches():
        stack.step(x, targets)
    for probe, weight, bias, (found_weight, found_bias) in zip(PROBES, weights, biases, stack.trained(), strict=True):
        expected_weight, expected_bias = train_with_autograd(probe, weight, bias, penalty)
        np.testing.assert_allclose(found_weight, expected_weight, atol=2e-5)
        np.testing.assert_allclose(found_bias, expected_bias, atol=2e-5)
        assert np.abs(found_weight - weight).max() > 0.05  # it did learn


def test_a_weight_of_zero_norm_gets_no_gradient_from_the_published_penalty():
    probe = StackedProbe("tag", 2, 4, l1=0.0, l2=100.0)
    zeros = np.zeros((4, WIDTH), np.float32)
    stack = ProbeStack([probe], VIEWS, [zeros], [zeros[:, 0]], learning_rate=0.01, penalty="published")
    x, targets = next(batches())
    stack.step(x, targets)
    assert np.isfinite(stack.trained()[0][0]).all()
