"""The Shapley values of a maximum against the definition: marginal contributions, averaged over all orders."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp import ExactShapley, shapley_of_maximum
from dasp.attribution.deeplift.maximum_game import maximum_slopes


def by_orders(on: torch.Tensor, off: torch.Tensor) -> torch.Tensor:
    orders = list(itertools.permutations(range(len(on))))
    total = torch.zeros_like(on)
    for order in orders:
        present = off.clone()
        for player in order:
            before = present.max()
            present[player] = on[player]
            total[player] += present.max() - before
    return total / len(orders)


def pairs(numbers):
    """on and off of one to five players."""
    return st.integers(1, 5).flatmap(lambda n: st.tuples(*[st.lists(numbers, min_size=n, max_size=n)] * 2))


ties = pairs(st.integers(-2, 2).map(float))
values = pairs(st.floats(-10, 10))


@settings(max_examples=200, deadline=None)
@given(ties | values)
def test_values_are_those_of_the_definition(pair):
    on, off = torch.tensor(pair, dtype=torch.float64)
    torch.testing.assert_close(shapley_of_maximum(on, off), by_orders(on, off), rtol=1e-9, atol=1e-9)


@settings(max_examples=200, deadline=None)
@given(ties)
def test_slopes_where_nothing_differs_are_the_limit(pair):
    on, off = torch.tensor(pair, dtype=torch.float64)
    slopes = maximum_slopes(on, off)
    torch.testing.assert_close(slopes * (on - off), by_orders(on, off), rtol=1e-9, atol=1e-9)
    for player in (on == off).nonzero():
        near = on.clone()
        near[player] += 1e-6
        torch.testing.assert_close(slopes[player], by_orders(near, off)[player] / 1e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_and_many_players(dtype):
    torch.manual_seed(0)
    on, off = torch.randn(2, 3, 4, 14, dtype=dtype)
    exact = ExactShapley(lambda x: x.amax(1)).attribute(on.flatten(0, 1), off.flatten(0, 1)).view(on.shape)
    result = shapley_of_maximum(on, off)
    assert result.dtype == dtype
    torch.testing.assert_close(result, exact)
    on, off = torch.randn(2, 2000, dtype=dtype)
    torch.testing.assert_close(shapley_of_maximum(on, off).sum(), on.max() - off.max(), rtol=0, atol=1e-5)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="must be equal"):
        shapley_of_maximum(torch.ones(3), torch.ones(1))
