"""Hidden units over random coalitions, against enumeration."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from reproduction.gaussianity import moments, spread_sizes

PLAYERS, COALITIONS = 9, 4000
SIZES = (0, 1, 4, 8, 9)


@pytest.fixture(scope="module")
def setting():
    torch.manual_seed(0)
    linear = nn.Sequential(nn.Linear(PLAYERS, 6), nn.Linear(6, 4))  # without a nonlinearity everything is exact
    x, baseline = torch.randn(2, 1, PLAYERS)
    found = moments({"first": linear[:1], "second": linear}, x, baseline, sizes=SIZES, coalitions=COALITIONS)
    return linear, x, baseline, {(one.layer, one.size): one for one in found}


def enumerated(layer, x, baseline, size):
    """The units for all coalitions of a size."""
    members = torch.zeros(0, PLAYERS, dtype=torch.bool)
    for chosen in itertools.combinations(range(PLAYERS), size):
        members = torch.cat([members, torch.isin(torch.arange(PLAYERS), torch.tensor(chosen).long())[None]])
    with torch.no_grad():
        return layer(torch.where(members, x, baseline))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layer", ["first", "second"])
def test_moments_are_those_of_all_coalitions(setting, layer, size):
    linear, x, baseline, found = setting
    one = found[layer, size]
    units = enumerated(linear[:1] if layer == "first" else linear, x, baseline, size)
    mean, std = units.mean(0), units.std(0, correction=0)
    full = one.propagated[PLAYERS]
    torch.testing.assert_close(full.mean, mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(full.std, std, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(one.propagated[0].mean, mean, rtol=1e-5, atol=1e-5)
    if layer == "first":
        torch.testing.assert_close(one.propagated[0].std, std, rtol=1e-5, atol=1e-5)
    error = std / COALITIONS**0.5 + 1e-5
    assert bool(((one.sampled.mean - mean).abs() < 5 * error).all())
    fourth = (units - mean).pow(4).mean(0).sqrt()
    assert bool(((one.sampled.std.square() - std.square()).abs() < 5 * fourth / COALITIONS**0.5 + 1e-5).all())
    torch.testing.assert_close(one.values.std(), one.sampled.std[one.unit])


def test_factors_carry_the_correlation_that_rank_0_leaves_out(setting):
    *_, found = setting
    one = found["second", 4]
    assert not torch.allclose(one.propagated[0].std, one.propagated[PLAYERS].std, rtol=0.05)


def test_coalitions_have_their_size_and_models_keep_their_mode():
    count = nn.Linear(40, 1, bias=False)
    nn.init.ones_(count.weight)
    found = moments({"count": count}, torch.ones(1, 40), coalitions=700)
    assert [one.size for one in found] == spread_sizes(40) == [2, 7, 12, 17, 22, 27, 32, 37]
    for one in found:
        assert one.values.tolist() == [one.size] * 700
        assert set(one.propagated) == {0, 32}
    assert count.training


def test_one_row():
    with pytest.raises(ValueError, match="one row"):
        moments({"all": nn.Linear(3, 1)}, torch.ones(2, 3))
