"""Elementwise nonlinearities.

Functions that are linear on both sides of one kink are ReLU in disguise: αx + β·ReLU(x) has slope α + βE[ReLU'] and
the rest β²·Var(rest of ReLU), as the linear part adds none. `moments` says how those of each family are found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree

from dasp.propagation.gaussian import Gaussian, density, distribution, nonnegative, rectified_moments, standardized
from dasp.propagation.moments import GELU, RECTIFIED, SIGMOID, Family, Smooth, moments
from dasp.propagation.rules.registry import RULES, Rule, named, rule, same_entry

aten = torch.ops.aten


@rule(aten.relu.default, tracker=same_entry)
def relu(x: Gaussian) -> Gaussian:
    """max(x, 0):  E = μΦ(μ/σ) + σφ(μ/σ),  E[g'] = Φ(μ/σ)."""
    if not torch.compiler.is_compiling():
        return applied(x, RECTIFIED)
    if x.factors is None:
        mean, _, variance = rectified_moments(x.mean, x.variance, whole=True)
        return Gaussian(mean, variance)
    return x.through(*rectified_moments(x.mean, x.total_variance))


def _bent(x: Gaussian, below: float | Tensor, above: float | Tensor) -> Gaussian:
    """below·x for x < 0, above·x for x > 0."""
    mean, slope, residual = rectified_moments(x.mean, x.total_variance)
    bend = above - below
    return x.through(below * x.mean + bend * mean, below + bend * slope, residual * bend**2)


@rule(aten.leaky_relu.default, tracker=same_entry)
def leaky_relu(x: Gaussian, negative_slope: float = 0.01) -> Gaussian:
    """αx + (1 − α)·ReLU(x)."""
    return _bent(x, negative_slope, 1.0)


def channels(op: Any, x: Any, weight: Tensor) -> Tensor | None:
    """The tracker of an elementwise op with a parameter per channel."""
    return same_entry(op, x)


@rule(aten.prelu.default, tracker=channels)
def prelu(x: Gaussian, weight: Tensor) -> Gaussian:
    """Leaky ReLU with a slope per channel (dimension 1)."""
    if weight.numel() > 1 and weight.dim() == 1 and x.mean.dim() > 1:
        weight = weight.view(-1, *[1] * (x.mean.dim() - 2))
    return _bent(x, weight, 1.0)


@rule(aten.abs.default, tracker=same_entry)
def abs(x: Gaussian) -> Gaussian:
    """|x| = 2·ReLU(x) − x: the folded normal."""
    return _bent(x, -1.0, 1.0)


@rule(aten.exp.default, tracker=same_entry)
def exp(x: Gaussian) -> Gaussian:
    """eˣ is log-normal:  E = E[g'] = exp(μ + σ²/2),  Var = E²(exp σ² − 1)."""
    variance = x.total_variance
    mean = torch.exp(x.mean + variance / 2)
    return x.through(mean, mean, mean**2 * (torch.expm1(variance) - variance))


@rule(aten.expm1.default, tracker=same_entry)
def expm1(x: Gaussian) -> Gaussian:
    """eˣ − 1, which near 0 is more than the difference of both."""
    return replace(exp(x), mean=torch.expm1(x.mean + x.total_variance / 2))


@rule(aten.sin.default, tracker=same_entry)
def sin(x: Gaussian) -> Gaussian:
    """sin x:  E = sin μ·e^(−σ²/2),  Var = ½(1 − e^(−σ²))(1 + cos 2μ·e^(−σ²)),  E[g'] = cos μ·e^(−σ²/2)."""
    return _wave(x, x.mean)


@rule(aten.cos.default, tracker=same_entry)
def cos(x: Gaussian) -> Gaussian:
    """cos x = sin(x + π/2)."""
    return _wave(x, x.mean + math.pi / 2)


def _wave(x: Gaussian, phase: Tensor) -> Gaussian:
    variance = x.total_variance
    damping, damped = torch.exp(-variance / 2), -torch.expm1(-variance)
    slope = phase.cos() * damping
    total = damped * (1 + torch.cos(2 * phase) * torch.exp(-variance)) / 2
    return x.through(phase.sin() * damping, slope, nonnegative(total - slope * slope * variance))


@rule(aten.sinh.default, tracker=same_entry)
def sinh(x: Gaussian) -> Gaussian:
    """sinh x:  E = sinh μ·e^(σ²/2),  Var = ½(e^σ² − 1)(cosh 2μ·e^σ² + 1),  E[g'] = cosh μ·e^(σ²/2)."""
    return _hyperbolic(x, x.mean.sinh(), x.mean.cosh(), 1.0)


@rule(aten.cosh.default, tracker=same_entry)
def cosh(x: Gaussian) -> Gaussian:
    """cosh x:  E = cosh μ·e^(σ²/2),  Var = ½(e^σ² − 1)(cosh 2μ·e^σ² − 1),  E[g'] = sinh μ·e^(σ²/2)."""
    return _hyperbolic(x, x.mean.cosh(), x.mean.sinh(), -1.0)


def _hyperbolic(x: Gaussian, value: Tensor, derivative: Tensor, sign: float) -> Gaussian:
    variance = x.total_variance
    growth, slope = torch.exp(variance / 2), derivative * torch.exp(variance / 2)
    total = torch.expm1(variance) * (torch.cosh(2 * x.mean) * torch.exp(variance) + sign) / 2
    return x.through(value * growth, slope, nonnegative(total - slope * slope * variance))


def _quadrature() -> tuple[list[float], list[float]]:
    """Equally spaced nodes, weights φ: for a function with poles near the real axis (tanh, sigmoid …) the midpoint
    rule on a Gaussian converges geometrically in the spacing, and is more accurate than Gauss–Hermite with as many
    nodes once σ is large (mean of tanh at σ = 4: 0.3 % of its deviation against 2 to 3 %). Scaled to unit variance."""
    spacing, half = 0.4, 13
    nodes = (np.arange(-half, half) + 0.5) * spacing
    weights = np.exp(-(nodes**2) / 2)
    weights /= weights.sum()
    return list(nodes / np.sqrt((weights * nodes**2).sum())), list(weights)


NODES, WEIGHTS = _quadrature()


def applied(x: Gaussian, family: Family) -> Gaussian:
    """A function whose moments are known."""
    if x.factors is None:
        return Gaussian(*moments(family, x.mean, x.variance, whole=True))
    return x.through(*moments(family, x.mean, x.total_variance))


def integrated(x: Gaussian, function: Callable[[Tensor], Tensor]) -> Gaussian:
    """A smooth elementwise function, by `integrated_moments`."""
    variance = x.total_variance
    mean, slope, total = integrated_moments(x.mean, variance, function, with_slope=x.factors is not None)
    if slope is None:
        return Gaussian(mean, total)
    return x.through(mean, slope, nonnegative(total - slope * slope * variance))


def integrated_moments(
    mean: Tensor, variance: Tensor, function: Callable[[Tensor], Tensor], *, with_slope: bool = True
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Mean, slope and variance of a smooth function, by quadrature over x = μ + σz; the slope is E[g(x)z]/σ (Stein).

    Moments are taken of g(x) − g(μ), so that zero variance gives g(μ) to the last bit. For σ² below the square root of
    the machine epsilon the nodes stay where they are and the moments shrink in proportion to σ²: the second-order
    Taylor expansion by finite differences, whose derivative in σ² is right at 0, where that of sqrt is not.
    """
    spread = variance.clamp(min=math.sqrt(torch.finfo(variance.dtype).eps))
    share, deviation = variance / spread, spread.sqrt()
    value = function(mean)
    first, second, tilt = (torch.zeros_like(value) for _ in range(3))
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        change = function(mean + node * deviation) - value
        first = first + weight * change
        second = second + weight * change * change
        if with_slope:
            tilt = tilt + weight * node * change
    total = share * nonnegative(second - first * first)
    return value + share * first, tilt / deviation if with_slope else None, total


def elementwise(*ops: Any) -> None:
    """Register smooth elementwise ops, which need a derivative in torch. Their moments are taken by quadrature."""
    for op in ops:
        RULES[op] = Rule(named(op, _integrating(op)), same_entry)


def _integrating(op: Any) -> Callable[..., Gaussian]:
    def elementwise(x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
        if any(isinstance(leaf, Tensor) for leaf in _pytree.tree_leaves((args, kwargs))):
            return integrated(x, lambda at: op(at, *args, **kwargs))
        return applied(x, Smooth(lambda at: op(at, *args, **kwargs)))

    return elementwise


elementwise(
    aten.tanh.default,
    aten.softplus.default,
    aten.log_sigmoid.default,
    aten.silu.default,
    aten.mish.default,
    aten.erf.default,
    aten.erfc.default,
    aten.atan.default,
    aten.asinh.default,
)


@rule(aten.sigmoid.default, tracker=same_entry)
def sigmoid(x: Gaussian) -> Gaussian:
    """1/(1 + e⁻ˣ), integrated."""
    return applied(x, SIGMOID)


@rule(aten.gelu.default, tracker=same_entry)
def gelu(x: Gaussian, *, approximate: str = "none") -> Gaussian:
    """x·Φ(x) in closed form; of its approximation by tanh, the moments are integrated."""
    if approximate == "none":
        return applied(x, GELU)
    return applied(x, Smooth(lambda at: torch.nn.functional.gelu(at, approximate=approximate)))


@rule(aten.elu.default, tracker=same_entry)
def elu(x: Gaussian, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Gaussian:
    """scale·x for x > 0, scale·α(exp(input_scale·x) − 1) for x < 0.

    With p = Φ(−μ/σ) and e_c = E[exp(cx); x < 0] = exp(cμ + c²σ²/2)Φ(−(μ + cσ²)/σ), in units of scale:

        E[g] = E[ReLU] + α(e_s − p),   E[g²; x<0] = α²(e_2s − 2e_s + p),   E[g'] = Φ(μ/σ) + αs·e_s

    The second moment is a difference of large terms, so it is taken in double precision.
    """
    mean, variance = x.mean.double(), x.total_variance.double()
    a, deviation = standardized(mean, variance)
    near = deviation > 0
    pdf, above, below = density(a), distribution(a), distribution(-a)
    once, twice = (_half_exponential(mean, variance, a, c * input_scale) for c in (1.0, 2.0))
    rectified = mean * above + deviation * pdf
    first = rectified + alpha * (once - below)
    second = (mean * mean + variance) * above + mean * deviation * pdf + alpha**2 * (twice - 2 * once + below)
    slope = scale * (above + alpha * input_scale * once)
    total = second - first * first
    # Out of reach of the kink, or without noise, one side is all there is; there nothing needs to cancel.
    exponent = input_scale * mean + input_scale**2 * variance / 2
    side = torch.where(mean > 0, mean, alpha * torch.expm1(exponent.clamp(max=0)))
    spread = torch.exp(2 * exponent.clamp(max=0)) * torch.expm1(input_scale**2 * torch.where(near, 0, variance))
    first = torch.where(near, first, side)
    total = torch.where(near, total, torch.where(mean > 0, variance, alpha**2 * spread))
    residual = nonnegative(scale**2 * total - slope * slope * variance)
    return x.through(*((part).to(x.mean.dtype) for part in (scale * first, slope, residual)))


def _half_exponential(mean: Tensor, variance: Tensor, a: Tensor, c: float) -> Tensor:
    """E[exp(cx); x < 0], with the two factors, one huge and one tiny for μ ≫ 0, taken together by erfcx."""
    shifted, _ = standardized(mean + c * variance, variance)
    right = shifted > 0
    far = density(a) * math.sqrt(math.pi / 2) * torch.special.erfcx(torch.where(right, shifted, 0) * math.sqrt(0.5))
    exponent = torch.where(right, 0, c * mean + c * c * variance / 2)
    return torch.where(right, far, torch.exp(exponent) * distribution(-shifted))


@rule(aten.selu.default, tracker=same_entry)
def selu(x: Gaussian) -> Gaussian:
    """ELU with the constants of Klambauer et al. (2017)."""
    return elu(x, 1.6732632423543772, 1.0507009873554805)


@rule(aten.celu.default, tracker=same_entry)
def celu(x: Gaussian, alpha: float = 1.0) -> Gaussian:
    """ELU with input_scale = 1/α."""
    return elu(x, alpha, 1.0, 1 / alpha)
