"""Moments of elementwise functions: against fine sums, their own differences, and for what they keep."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dasp.propagation.moments import GELU, RECTIFIED, Ramp, Smooth, moments

FAMILIES = {
    "relu": (RECTIFIED, functional.relu),
    "relu6": (Ramp(0.0, 6.0), functional.relu6),
    "hardtanh": (Ramp(-1.0, 1.0), functional.hardtanh),
    "gelu": (GELU, functional.gelu),
    **{
        f.__name__: (Smooth(f), f)
        for f in (torch.tanh, torch.sigmoid, torch.erf, functional.silu, functional.softplus, functional.mish)
    },
}
MEANS = [-30.0, -5.0, -1.3, -0.2, 0.0, 0.4, 2.0, 5.9, 7.0, 40.0]
VARIANCES = [1e-6, 1e-3, 0.05, 0.5, 1.0, 3.0, 30.0, 400.0]
families = pytest.mark.parametrize(("family", "function"), FAMILIES.values(), ids=FAMILIES)


def grid() -> tuple[Tensor, Tensor]:
    pairs = torch.cartesian_prod(torch.tensor(MEANS, dtype=torch.float64), torch.tensor(VARIANCES, dtype=torch.float64))
    return pairs[:, 0].clone(), pairs[:, 1].clone()


@families
def test_moments_are_those_of_fine_sums(family, function):
    mean, variance = grid()
    z = torch.linspace(-9, 9, 200_001, dtype=torch.float64)[:, None]
    weights = torch.exp(-z * z / 2)
    weights /= weights.sum()
    values = function(mean + variance.sqrt() * z)
    first = (weights * values).sum(0)
    spread = (weights * (values - first).square()).sum(0)
    slope = (weights * z * (values - first)).sum(0) / variance.sqrt()
    found = moments(family, mean, variance)
    assert bool(((found[0] - first).abs() <= 1e-5 * variance.sqrt().clamp(min=1)).all())
    assert bool(((found[1] - slope).abs() <= 1e-5).all())
    assert bool(((found[2] - (spread - slope.square() * variance)).abs() <= 1e-5 * variance).all())
    whole = moments(family, mean, variance, whole=True)
    assert bool(((whole[1] - spread).abs() <= 2e-5 * variance).all())


@families
@pytest.mark.parametrize("whole", [False, True])
def test_derivatives_are_those_of_the_moments(family, function, whole):
    del function
    mean = torch.tensor([-3.0, -0.7, 0.1, 1.9, 5.5], dtype=torch.float64).repeat(3).requires_grad_()
    variance = torch.tensor([0.04, 0.6, 2.3], dtype=torch.float64).repeat_interleave(5).requires_grad_()
    atol = 3e-4 if isinstance(family, Smooth) else 1e-6  # those of the integrals, not of their sums
    assert torch.autograd.gradcheck(lambda m, v: moments(family, m, v, whole=whole), (mean, variance), atol=atol)


@families
def test_without_noise_they_are_the_function(family, function):
    mean = torch.linspace(-8, 8, 41, dtype=torch.float64).requires_grad_()
    variance = torch.zeros_like(mean).requires_grad_()
    value, slope, residual = moments(family, mean, variance)
    torch.testing.assert_close(value, function(mean), rtol=1e-14, atol=1e-14)
    assert bool((residual == 0).all())
    (by_mean, by_variance) = torch.autograd.grad((value + slope + residual).sum(), (mean, variance))
    assert bool(by_mean.isfinite().all())
    assert bool(by_variance.isfinite().all())


@families
def test_they_do_not_depend_on_what_is_beside_them(family, function):
    del function
    generator = torch.Generator().manual_seed(0)
    mean, variance = torch.randn(2**15, generator=generator) * 3, torch.rand(2**15, generator=generator) * 9
    every = torch.stack(moments(family, mean, variance))
    some = torch.randperm(len(mean), generator=generator)[:777]
    torch.testing.assert_close(every[:, some], torch.stack(moments(family, mean[some], variance[some])))


@pytest.mark.parametrize(("whole", "number"), [(True, 4), (False, 6)])
def test_only_the_derivatives_are_kept(whole, number):
    kept = []
    mean, variance = torch.randn(50, requires_grad=True), torch.rand(50, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        moments(Ramp(0.0, 6.0), mean, variance, whole=whole)
    assert len(kept) == number
    kept.clear()
    with torch.no_grad():
        moments(Ramp(0.0, 6.0), mean, variance, whole=whole)
    assert not kept


CLOSED = [name for name, (family, _) in FAMILIES.items() if not isinstance(family, Smooth)]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", CLOSED)
def test_single_precision_is_enough(name, whole):
    """Of closed forms, which are differences: values to 2·10⁻⁶ of v or σ, derivatives in μ to 3·10⁻⁵."""
    family, _ = FAMILIES[name]
    generator = torch.Generator().manual_seed(0)
    mean = (torch.rand(100_000, generator=generator) * 2 - 1) * 12
    variance = 10 ** (torch.rand(100_000, generator=generator) * 9 - 6)
    single = family.moments(mean, variance, whole=whole, differentiated=True)
    double = family.moments(mean.double(), variance.double(), whole=whole, differentiated=True)
    number = 2 if whole else 3
    scales = [variance.sqrt().clamp(min=1), torch.ones_like(variance), variance]
    scales = [scales[0], scales[2]] if whole else scales
    for a, b, scale in zip(single[:number], double[:number], scales, strict=True):
        assert float(((a - b).abs() / scale).max()) < 2e-6
    for a, b in zip(single[number : 2 * number], double[number : 2 * number], strict=True):
        assert float((a - b).abs().max()) < 3e-5


def test_far_out_nothing_is_left_of_large_numbers():
    """A unit far beyond both ends is certain, however far."""
    mean, variance = torch.tensor([1e3, -1e3, 1e6]), torch.ones(3)
    value, spread = moments(Ramp(0.0, 6.0), mean, variance, whole=True)
    assert value.tolist() == [6.0, 0.0, 6.0]
    assert spread.tolist() == [0.0, 0.0, 0.0]
    assert math.isfinite(float(spread.sum()))
