"""Inputs of a linear map that can go, and the least-squares map on those that stay."""

from itertools import combinations

import pytest
import torch

from residuum.errors import SettingError
from residuum.maths.elimination import eliminate


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 8, generator=generator, dtype=torch.float64) @ torch.randn(
        8, 8, generator=generator, dtype=torch.float64
    )
    weight = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    return x, weight, x.T @ x / len(x)


def error_of(x, weight, kept):
    """What least squares misses, by the solver of numpy."""
    y = x @ weight.T
    solution = torch.linalg.lstsq(x[:, kept], y).solution
    return float((y - x[:, kept] @ solution).square().sum() / y.square().sum()), solution.T


@pytest.mark.parametrize("n_kept", [7, 5, 2])
def test_the_map_on_what_is_left_is_that_of_least_squares(n_kept, problem):
    x, weight, moments = problem
    found = eliminate(weight, moments, n_kept)
    error, expected = error_of(x, weight, found.kept)
    torch.testing.assert_close(found.weight, expected, atol=2e-2, rtol=1e-2)
    assert found.error == pytest.approx(error, rel=1e-2, abs=1e-3)


def test_the_first_to_go_is_the_one_that_brute_force_names(problem):
    x, weight, moments = problem
    errors = {kept: error_of(x, weight, list(kept))[0] for kept in combinations(range(8), 7)}
    assert tuple(eliminate(weight, moments, 7).kept.tolist()) == min(errors, key=errors.__getitem__)


def test_groups_go_together(problem):
    x, weight, moments = problem
    found = eliminate(weight, moments, 3, width=2)
    assert found.weight.shape == (5, 6)
    errors = {}
    for kept in combinations(range(4), 3):
        errors[kept] = error_of(x, weight, [2 * group + i for group in kept for i in range(2)])[0]
    assert tuple(found.kept.tolist()) == min(errors, key=errors.__getitem__)


def test_copies_and_silent_inputs_cost_nothing(problem):
    x, weight, _ = problem
    doubled = torch.cat([x, x, torch.zeros(len(x), 4).double()], dim=1)
    wide = torch.cat([weight, weight, torch.ones(5, 4).double()], dim=1)
    found = eliminate(wide, doubled.T @ doubled / len(x), 8, at_once=3)
    assert found.error < 1e-3
    assert len(set((found.kept % 8).tolist())) == 8


def test_more_than_there_is_cannot_be_kept(problem):
    _, weight, moments = problem
    with pytest.raises(SettingError, match="9 of 8 inputs in groups of 1 cannot be kept"):
        eliminate(weight, moments, 9)
