"""Functions in pieces: polynomials (clamps, hard sigmoid and swish, shrinkage) in closed form, others by quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dasp.propagation.gaussian import Gaussian, density, distribution, nonnegative, standardized
from dasp.propagation.moments import RECTIFIED, Ramp
from dasp.propagation.rules.activations import applied
from dasp.propagation.rules.maximum import maximum, minimum, same_shape
from dasp.propagation.rules.registry import rule, same_entry

aten = torch.ops.aten

Bound = float | Tensor
Piece = tuple[Bound, Bound, Sequence[Bound]]
"""Lower end, upper end, coefficients c₀ + c₁x + c₂x² of a piecewise polynomial."""


def _piecewise(x: Gaussian, pieces: Sequence[Piece], at: Tensor | None = None) -> Gaussian:
    """A piecewise polynomial of degree ≤ 2, by the moments of a truncated normal; `at` is g(μ), if there are steps.

    With x = μ + σz every piece is a polynomial in z; its constant term is taken relative to g(μ), so that the second
    moment does not cancel for σ ≪ |μ|. The moments M_k = ∫ zᵏφ(z)dz over a piece follow from
    M_k = (k−1)M_{k−2} − [zᵏ⁻¹φ(z)]. A step has the slope of its height times the density there.
    """
    variance = x.total_variance
    steps = at is not None
    if at is None:
        at = torch.zeros_like(x.mean)
        for low, high, coefficients in pieces:
            inside = (x.mean >= low) & (x.mean < high)
            at = torch.where(inside, _polynomial(coefficients, x.mean), at)
    first, second, slope = (torch.zeros_like(x.mean) for _ in range(3))
    for low, high, coefficients in pieces:
        _, c1, c2 = (*coefficients, 0.0, 0.0)[:3]
        lower, deviation = standardized(low - x.mean, variance)
        upper, other = standardized(high - x.mean, variance)
        deviation = torch.maximum(deviation, other)
        m = _truncated_moments(lower, upper)
        # g(μ + σz) − g(μ) = b₀ + b₁z + b₂z²
        b0 = _polynomial(coefficients, x.mean) - at
        d1 = c1 + 2 * c2 * x.mean
        b1, b2 = d1 * deviation, c2 * variance
        first = first + b0 * m[0] + b1 * m[1] + b2 * m[2]
        second = second + b0 * b0 * m[0] + 2 * b0 * b1 * m[1] + (d1 * d1 * variance + 2 * b0 * b2) * m[2]
        second = second + 2 * b1 * b2 * m[3] + b2 * b2 * m[4]
        slope = slope + d1 * m[0] + 2 * c2 * deviation * m[1]
    for (_, place, left), (_, _, right) in pairwise(pieces if steps else ()):
        heights = (b - a for a, b in zip_longest(left, right, fillvalue=0.0))
        a, deviation = standardized(place - x.mean, variance)
        at_place = torch.where(deviation > 0, density(a) / torch.where(deviation > 0, deviation, 1), 0)
        slope = slope + sum(height * place**k for k, height in enumerate(heights)) * at_place
    residual = nonnegative(second - first * first - slope * slope * variance)
    return x.through(at + first, slope, residual)


def _polynomial(coefficients: Sequence[Bound], x: Tensor) -> Tensor:
    c0, c1, c2 = (*coefficients, 0.0, 0.0)[:3]
    return (c2 * x + c1) * x + c0


def _truncated_moments(lower: Tensor, upper: Tensor) -> list[Tensor]:
    """∫ zᵏφ(z)dz from lower to upper, k = 0 … 4."""
    low, high = density(lower), density(upper)
    # Φ(u) − Φ(l) from the tail that is small: no cancellation far out on either side.
    positive = lower > 0
    mass = torch.where(positive, distribution(-lower) - distribution(-upper), distribution(upper) - distribution(lower))
    moments = [mass, low - high]
    for k in range(2, 5):
        moments.append((k - 1) * moments[k - 2] + lower ** (k - 1) * low - upper ** (k - 1) * high)
    return moments


INFINITY = math.inf


def _between(x: Gaussian, low: float, high: float) -> Gaussian:
    """clamp(x, low, high) with numbers as ends, of which one may be infinite: then it is a ReLU, moved or mirrored."""
    if math.isinf(low) and math.isinf(high):
        return x
    if math.isinf(high):
        above = applied(replace(x, mean=x.mean - low), RECTIFIED)
        return replace(above, mean=above.mean + low)
    if math.isinf(low):
        mirrored = x.factors if x.factors is None else -x.factors
        below = applied(Gaussian(high - x.mean, x.variance, mirrored), RECTIFIED)
        return Gaussian(high - below.mean, below.variance, below.factors if below.factors is None else -below.factors)
    return applied(x, Ramp(low, high))


def _clamped(x: Gaussian, low: Bound, high: Bound, scale: float = 1.0, shift: float = 0.0) -> Gaussian:
    """scale·clamp(x, low, high) + shift."""
    if not isinstance(low, Tensor) and not isinstance(high, Tensor) and low < high:
        clamped = _between(x, low, high)
        if (scale, shift) == (1.0, 0.0):
            return clamped
        factors = None if clamped.factors is None else clamped.factors * scale
        return Gaussian(clamped.mean * scale + shift, clamped.variance * scale**2, factors)
    ends = [scale * end + shift if isinstance(end, Tensor) or math.isfinite(end) else 0.0 for end in (low, high)]
    return _piecewise(x, [(-INFINITY, low, ends[:1]), (low, high, (shift, scale)), (high, INFINITY, ends[1:])])


@rule(aten.hardtanh.default, tracker=same_entry)
def hardtanh(x: Gaussian, low: float = -1, high: float = 1) -> Gaussian:
    """clamp(x, −1, 1)."""
    return _clamped(x, float(low), float(high))


@rule(aten.clamp.default, tracker=same_entry)
def clamp(x: Gaussian, low: float | None = None, high: float | None = None) -> Gaussian:
    """clamp(x, low, high); either bound may be missing."""
    upper = INFINITY if high is None else float(high)
    return _clamped(x, -INFINITY if low is None else min(float(low), upper), upper)


@rule(aten.clamp.Tensor, tracker=same_entry)
def clamp_between(x: Any, low: Any = None, high: Any = None) -> Gaussian:
    """clamp(x, low, high), entry by entry; the bounds may be random, then as min(max(x, low), high)."""
    bounds = [bound for bound in (low, high) if bound is not None]
    if not all(isinstance(bound, Tensor) for bound in bounds):
        x = x if low is None else maximum(x, low)
        return x if high is None else minimum(x, high)  # type: ignore[no-any-return]
    for bound in bounds:
        x, _ = same_shape(x, bound)
    upper = INFINITY if high is None else high
    return _clamped(x, -INFINITY if low is None else low if high is None else torch.minimum(low, high), upper)


@rule(aten.clamp_min.Tensor, tracker=same_entry)
def clamp_from(x: Any, low: Any) -> Gaussian:
    """max(x, low), entry by entry."""
    return maximum(x, low)  # type: ignore[no-any-return]


@rule(aten.clamp_max.Tensor, tracker=same_entry)
def clamp_to(x: Any, high: Any) -> Gaussian:
    """min(x, high), entry by entry."""
    return minimum(x, high)  # type: ignore[no-any-return]


@rule(aten.clamp_min.default, tracker=same_entry)
def clamp_min(x: Gaussian, low: float) -> Gaussian:
    """max(x, low)."""
    return _clamped(x, float(low), INFINITY)


@rule(aten.clamp_max.default, tracker=same_entry)
def clamp_max(x: Gaussian, high: float) -> Gaussian:
    """min(x, high)."""
    return _clamped(x, -INFINITY, float(high))


@rule(aten.hardsigmoid.default, tracker=same_entry)
def hardsigmoid(x: Gaussian) -> Gaussian:
    """clamp(x/6 + ½, 0, 1)."""
    return _clamped(x, -3.0, 3.0, 1 / 6, 0.5)


@rule(aten.hardswish.default, tracker=same_entry)
def hardswish(x: Gaussian) -> Gaussian:
    """x·clamp(x/6 + ½, 0, 1): a parabola between −3 and 3."""
    return _piecewise(x, [(-INFINITY, -3.0, (0.0,)), (-3.0, 3.0, (0.0, 0.5, 1 / 6)), (3.0, INFINITY, (0.0, 1.0))])


@rule(aten.threshold.default, tracker=same_entry)
def threshold(x: Gaussian, at: float, value: float) -> Gaussian:
    """x above a threshold, else a constant."""
    pieces = [(-INFINITY, float(at), (float(value),)), (float(at), INFINITY, (0.0, 1.0))]
    return _piecewise(x, pieces, aten.threshold.default(x.mean, at, value))


@rule(aten.hardshrink.default, tracker=same_entry)
def hardshrink(x: Gaussian, half: float = 0.5) -> Gaussian:
    """x outside of −λ to λ, else 0."""
    pieces = [(-INFINITY, -half, (0.0, 1.0)), (-half, half, (0.0,)), (half, INFINITY, (0.0, 1.0))]
    return _piecewise(x, pieces, aten.hardshrink.default(x.mean, half))


@rule(aten.softshrink.default, tracker=same_entry)
def softshrink(x: Gaussian, half: float = 0.5) -> Gaussian:
    """x nearer to 0 by λ: x − clamp(x, −λ, λ)."""
    return _piecewise(x, [(-INFINITY, -half, (half, 1.0)), (-half, half, (0.0,)), (half, INFINITY, (-half, 1.0))])


REACH = 6.0  # standard deviations; beyond them is 2·10⁻⁹ of the distribution
_POINTS, _WEIGHTS = ((part / 2).tolist() for part in np.polynomial.legendre.leggauss(20))


def integrated_pieces(x: Gaussian, function: Callable[[Tensor], Tensor], places: Sequence[Tensor]) -> Gaussian:
    """A function that is smooth between the given places, by Gauss–Legendre quadrature from one to the next.

    Means and slopes as in `activations.integrated_moments`. The places move with μ and σ in units of z, so that the
    derivatives of this count the steps as well.
    """
    variance = x.total_variance
    spread = variance.clamp(min=math.sqrt(torch.finfo(variance.dtype).eps))
    share, deviation = variance / spread, spread.sqrt()
    sorted_places = torch.stack([place.expand_as(x.mean) for place in places]).sort(0).values
    within = ((sorted_places - x.mean) / deviation).clamp(-REACH, REACH)
    end = torch.full_like(x.mean, REACH)
    value = function(x.mean)
    first, second, tilt = (torch.zeros_like(value) for _ in range(3))
    for lower, upper in zip((-end, *within), (*within, end), strict=True):
        length = upper - lower
        for point, weight in zip(_POINTS, _WEIGHTS, strict=True):
            z = lower + length * (point + 0.5)
            mass = weight * length * density(z)
            change = function(x.mean + z * deviation) - value
            weighted = mass * change
            first, second, tilt = first + weighted, second + weighted * change, tilt + weighted * z
    slope, total = tilt / deviation, share * nonnegative(second - first * first)
    return x.through(value + share * first, slope, nonnegative(total - slope * slope * variance))


def _at_zero(x: Tensor, *args: Any, **kwargs: Any) -> list[Tensor]:
    return [x]


def _from_each(x: Tensor, *bounds: Any, **named: Any) -> list[Tensor]:
    return [x - bound for bound in (*bounds, *named.values()) if bound is not None]


def _at_both(half: float) -> Callable[..., list[Tensor]]:
    return lambda x, at=half: [x - at, x + at]


# Where ops have kinks or steps: quantities that change their sign there.
KINKS: dict[Any, Callable[..., list[Tensor]]] = {
    **dict.fromkeys(
        (aten.relu.default, aten.leaky_relu.default, aten.abs.default, aten.elu.default, aten.selu.default,
         aten.celu.default, aten.sign.default, aten.sgn.default, aten.heaviside.default), _at_zero,
    ),
    **dict.fromkeys(
        (aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default, aten.hardtanh.default,
         aten.gt.Scalar, aten.ge.Scalar, aten.lt.Scalar, aten.le.Scalar, aten.gt.Tensor, aten.ge.Tensor, aten.lt.Tensor,
         aten.le.Tensor, aten.maximum.default, aten.minimum.default, aten.max.other, aten.min.other,
         aten.fmax.default, aten.fmin.default, aten.clamp.Tensor, aten.clamp_min.Tensor, aten.clamp_max.Tensor),
        _from_each,
    ),
    aten.hardsigmoid.default: _at_both(3.0),
    aten.hardswish.default: _at_both(3.0),
    aten.hardshrink.default: _at_both(0.5),
    aten.softshrink.default: _at_both(0.5),
    aten.threshold.default: lambda x, at, value: [x - at],
}  # fmt: skip
