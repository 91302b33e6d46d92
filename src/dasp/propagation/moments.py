"""Moments of elementwise functions of a Gaussian, with derivatives written by hand.

A nonlinearity g of x ~ N(μ, v) is propagated by three functions of (μ, v): its mean E[g], its slope E[g'] and what the
slope leaves over, Var(g) − E[g']²v, the `residual` (see `gaussian`); without factors, by mean and variance alone. They
are where the time and the memory of a propagated network go, so there is one way for all of them:

- Only μ and v are kept for the backward pass, which computes the rest again. Recorded step by step by autograd, a ReLU6
  would keep some fifty tensors of the size of the layer.
- The work is done in pieces that stay in a processor's cache, as dozens of short operations pass over the same numbers.
- The derivatives are moments again, by Bonnet's and Price's theorems: ∂E[h]/∂μ = E[h'] and ∂E[h]/∂v = E[h'']/2, for
  h = g, g' and (g − u)², where u is any constant: the value at μ, so that nothing cancels where v is small.

A `Family` is a function of which the moments and their derivatives are known: `RECTIFIED`, `Ramp` (ReLU6, hard tanh,
clamps, hard sigmoid), `GELU`, and `Smooth`, which integrates any smooth function.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["GELU", "RECTIFIED", "Family", "Ramp", "Smooth", "moments"]

_PIECE = 2**14  # entries at once
_FAR = 40.0  # standard deviations: beyond, Φ and φ have reached their limits in double precision, as exp(−40²/2) is 0
_ROOT_HALF, _ROOT_TAU = math.sqrt(0.5), math.sqrt(2 * math.pi)


class Family(ABC):
    """An elementwise function whose moments at N(μ, v) are known."""

    @abstractmethod
    def forward(self, mean: Tensor, variance: Tensor, *, whole: bool) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return mean, slope and residual; if `whole`, the variance in the place of the last, and perhaps no slope."""

    @abstractmethod
    def backward(
        self, mean: Tensor, variance: Tensor, of_mean: Tensor, of_slope: Tensor | None, of_spread: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the derivatives in μ and v, from those in mean, slope and residual; in the variance in the place of
        the latter, if `of_slope` is None."""


def moments(family: Family, mean: Tensor, variance: Tensor, *, whole: bool = False) -> tuple[Tensor, ...]:
    """Return mean, slope and residual of a family's function at N(mean, variance); if `whole`, mean and variance."""
    return _Moments.apply(mean, variance, family, whole)  # type: ignore[no-any-return, no-untyped-call]


class _Moments(torch.autograd.Function):
    """The moments of a family, piece by piece."""

    @staticmethod
    def forward(mean: Tensor, variance: Tensor, family: Family, whole: bool) -> tuple[Tensor, ...]:  # type: ignore[override]
        mean, variance = (x.contiguous() for x in torch.broadcast_tensors(mean, variance))
        results = [torch.empty_like(mean) for _ in range(2 if whole else 3)]
        flat = [result.view(-1) for result in results]
        pieces = zip(mean.view(-1).split(_PIECE), variance.view(-1).split(_PIECE), strict=True)
        for i, piece in enumerate(pieces):
            found = family.forward(*piece, whole=whole)
            part = slice(i * _PIECE, (i + 1) * _PIECE)
            for into, value in zip(flat, (found[0], found[2]) if whole else found, strict=True):
                into[part] = value
        return tuple(results)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Family, bool], output: tuple[Tensor, ...]) -> None:
        del output
        mean, variance, ctx.family, ctx.whole = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(mean, variance)

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None]:  # type: ignore[override]
        if torch.is_grad_enabled():  # create_graph=True
            raise NotImplementedError("propagated nonlinearities can be differentiated once only")
        shapes = [x.shape for x in ctx.saved_tensors]
        mean, variance = (x.contiguous() for x in torch.broadcast_tensors(*ctx.saved_tensors))
        by_mean, by_variance = torch.empty_like(mean), torch.empty_like(mean)
        none = mean.new_zeros(()).expand(mean.shape)
        every = [mean, variance, *(none if x is None else x for x in given)]
        split = [x.reshape(-1).split(_PIECE) for x in every]
        into = zip(by_mean.view(-1).split(_PIECE), by_variance.view(-1).split(_PIECE), strict=True)
        for (first, second), piece in zip(into, zip(*split, strict=True), strict=True):
            slopes = (piece[2], None, piece[3]) if ctx.whole else piece[2:]
            found = ctx.family.backward(*piece[:2], *slopes)
            first.copy_(found[0])
            second.copy_(found[1])
        return by_mean.sum_to_size(shapes[0]), by_variance.sum_to_size(shapes[1]), None, None

    @staticmethod
    def vmap(  # type: ignore[override]
        info: Any, in_dims: tuple[int | None, ...], mean: Tensor, variance: Tensor, family: Family, whole: bool
    ) -> Any:
        """Elementwise, so a batch is more entries; torch's own rule would know none of the in-place functions."""
        del info
        given = zip((mean, variance), in_dims[:2], strict=True)
        parts = [x.unsqueeze(0) if dim is None else x.movedim(dim, 0) for x, dim in given]
        return moments(family, *torch.broadcast_tensors(*parts), whole=whole), (0,) * (2 if whole else 3)


def _standardized(distance: Tensor, deviation: Tensor) -> Tensor:
    """distance/σ within ±40; 0/0 is 0, and ±1/0 far out."""
    return (distance / deviation).nan_to_num_(0.0).clamp_(-_FAR, _FAR)


def _density(z: Tensor) -> Tensor:
    return (z * z).mul_(-0.5).exp_().mul_(1 / _ROOT_TAU)


class _Rectified(Family):
    """max(x, 0) (Frey & Hinton 1999). With a = μ/σ, p = Φ(a), φ = φ(a) and the tail c = Φ(−|a|), which is p or 1 − p:

        mean = μp + σφ,   slope = p,   residual = σ²(c(1 − c)(1 + a²) − φ² − |a|φ(1 − 2c))

    The residual is even in a, as ReLU(x) = x/2 + |x|/2, and beside σ² it vanishes like 2φ/|a|³. Taken from c it keeps
    its relative accuracy on both sides; as Var(g) − p²σ², it would be rounded to 0 where p is near 1 while its
    derivative is not. That must not be: a later maximum of two units that are alike but for what they have left over
    takes the *root* of residuals, and d√v = dv/(2√v) is finite, and vanishes with v, only if dv vanishes with v.

    The derivatives, with h = φ/σ, which vanishes with σ:

        d mean = p dμ + h/2 dv,   dp = h dμ − hμ/(2v) dv
        d residual = 2(μc(1 − c) − hv(2p − 1)) dμ + (c(1 − c) − h²v) dv
        d variance = 2(1 − p)·mean dμ + (p − h·mean) dv

    For |a| ≫ 1 those of the residual are like −2σφ/a² and φ/|a|: they vanish with it.
    """

    def forward(self, mean: Tensor, variance: Tensor, *, whole: bool) -> tuple[Tensor, Tensor, Tensor]:
        deviation = variance.sqrt()
        far = _standardized(mean, deviation).abs_()
        square = far * far
        tail = (far * _ROOT_HALF).erfc_().mul_(0.5)
        slope = _upper(tail, mean)
        share = torch.addcmul(tail, tail, tail, value=-1)
        share.addcmul_(share, square)
        pdf = square.mul_(-0.5).exp_().mul_(1 / _ROOT_TAU)
        far.mul_(pdf)
        share.addcmul_(pdf, pdf, value=-1).sub_(far).addcmul_(far, tail, value=2).clamp_(min=0)
        if whole:
            share.addcmul_(slope, slope)
        return (mean * slope).addcmul_(deviation, pdf), slope, share.mul_(variance)

    def backward(
        self, mean: Tensor, variance: Tensor, of_mean: Tensor, of_slope: Tensor | None, of_spread: Tensor
    ) -> tuple[Tensor, Tensor]:
        deviation = variance.sqrt()
        a = _standardized(mean, deviation)
        pdf = _density(a)
        tail = a.abs_().mul_(_ROOT_HALF).erfc_().mul_(0.5)
        slope = _upper(tail, mean)
        steepness = (pdf / deviation).nan_to_num_(0.0, 0.0, 0.0)
        by_mean, by_variance = of_mean * slope, (of_mean * steepness).mul_(0.5)
        if of_slope is None:
            result = (mean * slope).addcmul_(deviation, pdf)
            by_mean.addcmul_(torch.addcmul(result, result, slope, value=-1), of_spread, value=2)
            by_variance.addcmul_(slope.addcmul_(result, steepness, value=-1), of_spread)
            return by_mean, by_variance
        both, pull = tail.addcmul_(tail, tail, value=-1), steepness * variance  # c(1 − c) and σφ
        by_variance.addcmul_(torch.addcmul(both, pull, steepness, value=-1), of_spread)
        tilt = both.mul_(mean).add_(pull).addcmul_(pull, slope, value=-2)
        by_mean.addcmul_(tilt, of_spread, value=2)
        shift = of_slope * steepness
        by_mean.add_(shift)
        by_variance.add_(shift.mul_(mean).div_(variance).nan_to_num_(0.0, 0.0, 0.0), alpha=-0.5)
        return by_mean, by_variance


def _upper(tail: Tensor, mean: Tensor) -> Tensor:
    """Φ(a) from Φ(−|a|): by μ > 0; exact, and quicker than `where`."""
    return torch.lerp(tail, 1 - tail, mean.sign().clamp_(min=0))


RECTIFIED = _Rectified()


@dataclass(frozen=True)
class Ramp(Family):
    """min(max(x, low), high), the difference of two rectified Gaussians.

    With u = g(μ), the distances d₁ = low − u, d₂ = high − u and e = μ − u, the ends in standard units z = (end − μ)/σ,
    the probabilities p₁, p, p₂ below, between and above, and φ₁, φ₂ the densities at the ends:

        E[g − u] = d₁p₁ + d₂p₂ + ep + σ(φ₁ − φ₂),      slope = p
        E[(g − u)²] = d₁²p₁ + d₂²p₂ + (e² + v)p + 2eσ(φ₁ − φ₂) + v(z₁φ₁ − z₂φ₂)

        dE[g] = p dμ + (φ₁ − φ₂)/2σ dv,      dp = (φ₁ − φ₂)/σ dμ + (z₁φ₁ − z₂φ₂)/2v dv
        dE[(g − u)²] = 2(ep + σ(φ₁ − φ₂)) dμ + (p + (d₁φ₁ − d₂φ₂)/σ) dv
    """

    low: float
    high: float

    def _parts(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        deviation = variance.sqrt()
        z1, z2 = (_standardized(end - mean, deviation) for end in (self.low, self.high))
        # Both tails on the side where the nearer end is: probabilities far out keep their relative accuracy.
        side = (z1 + z2).sign_()
        side += side == 0  # which is as good as either
        tail1, tail2 = ((z * side).mul_(_ROOT_HALF).erfc_().mul_(0.5) for z in (z1, z2))
        between = (tail1 - tail2).mul_(side)
        positive = side.clamp_(min=0)
        below, above = torch.lerp(tail1, 1 - tail1, positive), torch.lerp(1 - tail2, tail2, positive)
        level = mean.clamp(self.low, self.high)
        return deviation, z1, z2, _density(z1), _density(z2), below, between, above, level

    def _centred(self, mean: Tensor, variance: Tensor, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """E[g − u], Var(g), and what they are made of: d₁, d₂, e and φ₁ − φ₂."""
        deviation, z1, z2, pdf1, pdf2, below, between, above, level = parts
        d1, d2, e = self.low - level, self.high - level, mean - level
        drop = pdf1 - pdf2
        pull = deviation * drop
        first = (d1 * below).addcmul_(d2, above).addcmul_(e, between).add_(pull)
        square = (d1 * d1).mul_(below).addcmul_(d2 * d2, above).addcmul_(torch.addcmul(variance, e, e), between)
        square.addcmul_(e, pull, value=2).addcmul_(variance, (z1 * pdf1).addcmul_(z2, pdf2, value=-1))
        return first, square.addcmul_(first, first, value=-1), d1, d2, e, drop

    def forward(self, mean: Tensor, variance: Tensor, *, whole: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean, slope and residual, or mean and variance."""
        parts = self._parts(mean, variance)
        first, spread, *_ = self._centred(mean, variance, parts)
        slope = parts[6]
        if not whole:
            spread.addcmul_(slope * slope, variance, value=-1)
        return first.add_(parts[8]), slope, spread.clamp_(min=0)

    def backward(
        self, mean: Tensor, variance: Tensor, of_mean: Tensor, of_slope: Tensor | None, of_spread: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the derivatives in μ and v."""
        parts = self._parts(mean, variance)
        deviation, z1, z2, pdf1, pdf2, _, slope, _, _ = parts
        first, spread, d1, d2, e, drop = self._centred(mean, variance, parts)
        inverse = deviation.reciprocal().nan_to_num_(0.0, 0.0, 0.0)
        bend = drop * inverse  # E[g'']
        if of_slope is not None:
            spread.addcmul_(slope * slope, variance, value=-1)
        of_spread = of_spread * ((spread > 0) | (variance == 0))  # where rounding leaves nothing, nothing changes
        of_mean = torch.addcmul(of_mean, of_spread, first, value=-2)
        by_mean, by_variance = of_mean * slope, (of_mean * bend).mul_(0.5)
        by_mean.addcmul_(of_spread, (e * slope).addcmul_(deviation, drop), value=2)
        by_variance.addcmul_(of_spread, (d1 * pdf1).addcmul_(d2, pdf2, value=-1).mul_(inverse).add_(slope))
        if of_slope is not None:
            by_variance.addcmul_(of_spread, slope * slope, value=-1)
            of_slope = torch.addcmul(of_slope, of_spread * slope, variance, value=-2)
            by_mean.addcmul_(of_slope, bend)
            curve = (z1 * pdf1).addcmul_(z2, pdf2, value=-1).mul_(inverse).mul_(inverse)
            by_variance.addcmul_(of_slope, curve, value=0.5)
        return by_mean, by_variance


class _Gelu(Family):
    """x·Φ(x), in closed form. With s² = 1 + v, t = μ/s, p = Φ(t), φ = φ(t) and r² = 1 + 2v:

        mean = μp + vφ/s,      slope = p + tφ/s²

    and, by Stein's lemma twice, E[x²Φ(x)²] = (μ² + v)E[Φ²] + 2v(μE[2Φφ] + v E[φ² − xΦφ]), of which

        E[Φ²] = p − 2T(t, 1/r),      E[Φφ] = φ(t)Φ(t/r)/s,      E[φ²] = φ(√2 μ/r)/(√(2π) r),
        E[xΦφ] = (μE[Φφ] + v E[φ²])/s²

    T is Owen's function, T(h, a) = ∫₀ᵃ exp(−h²(1 + x²)/2)/(1 + x²) dx/2π. T(h, 1) = Φ(h)Φ(−h)/2 is exact, and the rest
    is integrated from a to 1 by Gauss and Legendre's rule: the interval is as short as v is small. All of it in double
    precision, as the variance is a difference of large terms.

    The derivatives are moments of the same kind. Under the density, x ~ N(m, w) with m = μ/s² and w = v/s²:
    E[h(x)φ(x)] = φ(t)/s · E[h(y)], y ~ N(m, w). With A = E[gg'] and B = E[g'² + gg''],

        dE[g²] = 2A dμ + B dv,   A = E[xΦ²] + E[x²Φφ],   B = E[Φ²] + 4E[xΦφ] + E[x²φ²] − E[x³Φφ]
    """

    @staticmethod
    def _parts(mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        """In double precision: s², t, p, E[φ], r², E[Φ²], E[Φφ], E[φ²]."""
        square = variance + 1
        root = square.sqrt()
        t = mean / root
        p, rest = ((t * sign).erfc_().mul_(0.5) for sign in (-_ROOT_HALF, _ROOT_HALF))
        pdf = _density(t).div_(root)
        twice = torch.add(square, variance)
        ratio = twice.rsqrt()
        both = p - p * rest  # p − 2T(t, 1)
        length, half = 1 - ratio, t.square().mul_(-0.5)
        for node, weight in _OWEN:
            place = (length * node).add_(ratio).square_().add_(1)
            both.addcmul_(length, (half * place).exp_().div_(place), value=weight / math.pi)
        crossed = (t * ratio).mul_(-_ROOT_HALF).erfc_().mul_(0.5).mul_(pdf)
        doubled = (mean.square().div_(twice)).neg_().exp_().mul_(ratio).mul_(1 / (2 * math.pi))
        return square, t, p, pdf, twice, both, crossed, doubled

    @staticmethod
    def _centred(mean: Tensor, variance: Tensor, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Mean, slope, variance, and E[xΦφ]."""
        square, _, p, pdf, _, both, crossed, doubled = parts
        result = (mean * p).addcmul_(variance, pdf)
        slope = p + mean * pdf / square
        mixed = (mean * crossed).addcmul_(variance, doubled).div_(square)
        second = torch.addcmul(variance, mean, mean).mul_(both).addcmul_(variance * mean, crossed, value=4)
        second.addcmul_(variance.square(), doubled - mixed, value=2)
        second.addcmul_(result, result, value=-1).mul_(variance > 0)  # where rounding would leave something of nothing
        return result, slope, second, mixed

    def forward(self, mean: Tensor, variance: Tensor, *, whole: bool) -> tuple[Tensor, Tensor, Tensor]:
        mean, variance = mean.double(), variance.double()
        result, slope, spread, _ = self._centred(mean, variance, self._parts(mean, variance))
        if not whole:
            spread.addcmul_(slope.square(), variance, value=-1)
        return result, slope, spread.clamp_(min=0)

    def backward(
        self, mean: Tensor, variance: Tensor, of_mean: Tensor, of_slope: Tensor | None, of_spread: Tensor
    ) -> tuple[Tensor, Tensor]:
        mean, variance = mean.double(), variance.double()
        parts = self._parts(mean, variance)
        square, _, _, pdf, twice, both, crossed, doubled = parts
        result, slope, spread, mixed = self._centred(mean, variance, parts)
        m, w = mean / square, variance / square
        bend = pdf * (2 - m * m - w)  # E[g'']
        second = torch.addcmul(w, m, m).mul_(crossed).addcmul_(w, 2 * m * doubled + w * doubled * -m / (1 + w))
        third = m * second + w * (2 * mixed + doubled * ((mean / twice).square() + variance / twice))
        product = mean * both + 2 * variance * crossed + second  # A
        growth = both + 4 * mixed + doubled * ((mean / twice).square() + variance / twice) - third  # B
        if of_slope is not None:
            spread.addcmul_(slope.square(), variance, value=-1)
        of_spread = of_spread * ((spread > 0) | (variance == 0))  # where rounding leaves nothing, nothing changes
        of_mean = of_mean - 2 * of_spread * result
        by_mean = of_mean * slope + 2 * of_spread * product
        by_variance = of_mean * bend / 2 + of_spread * growth
        if of_slope is not None:
            of_slope = of_slope - 2 * of_spread * slope * variance
            by_mean += of_slope * bend
            by_variance += of_slope * pdf * m * (m * m + 3 * w - 4) / 2 - of_spread * slope.square()
        return by_mean, by_variance


_OWEN = [((1 + x) / 2, w / 2) for x, w in np.stack(np.polynomial.legendre.leggauss(6)).T.tolist()]
GELU = _Gelu()


@dataclass(frozen=True)
class Smooth(Family):
    """Any smooth function, by the trapezoidal rule over x = μ + σz; the slope is E[g(x)z]/σ (Stein).

    On a Gaussian the rule converges geometrically in its spacing, until that comes near to how far the function's poles
    are from the real axis: π/2 for tanh. So σ decides how many nodes there are: a spacing of 0.6 in z for σ up to 1,
    half of that up to 2, and so on. Of sigmoid, tanh, softplus, SiLU, Mish and erf, mean, slope and residual are then
    within 10⁻⁵ (the mean as a part of σ, if that is above 1; the residual as a part of v), in double precision and up to
    σ = 32. Each entry has its own spacing, whatever is beside it.

    Moments are taken of g(x) − g(μ), so that zero variance gives g(μ) to the last bit. For v below the square root of
    the machine epsilon the nodes stay where they are and the moments shrink in proportion to v: the second-order Taylor
    expansion by finite differences. The derivatives are taken with the same nodes, and g' by autograd:

        dE[g] = E[g'] dμ + E[g'z]/2σ dv,   dE[g'] = E[g'z]/σ dμ + E[g'(z² − 1)]/2v dv
        dVar(g) = 2Cov(g, g') dμ + E[(g − E[g])g'z]/σ dv
    """

    function: Callable[[Tensor], Tensor]

    def forward(self, mean: Tensor, variance: Tensor, *, whole: bool) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return mean, slope and residual, or mean and variance."""
        results = [torch.empty_like(mean) for _ in range(2 if whole else 3)]
        for own, (z, weights) in _by_width(variance):
            mu, v, deviation, share = _spread(mean[own], variance[own])
            value = self.function(mu)
            change = self.function(torch.addcmul(mu, z, deviation)).sub_(value)
            first = weights @ change
            total = (weights @ change.square()).addcmul_(first, first, value=-1).clamp_(min=0).mul_(share)
            if whole:
                found = [value + share * first, total]
            else:
                slope = (weights * z[:, 0]) @ change / deviation
                found = [value + share * first, slope, total.addcmul_(slope.square(), v, value=-1).clamp_(min=0)]
            for result, part in zip(results, found, strict=True):
                result[own] = part
        return (results[0], None, results[1]) if whole else (results[0], results[1], results[2])

    def backward(
        self, mean: Tensor, variance: Tensor, of_mean: Tensor, of_slope: Tensor | None, of_spread: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the derivatives in μ and v."""
        by_mean, by_variance = torch.empty_like(mean), torch.empty_like(mean)
        for own, (z, weights) in _by_width(variance):
            mu, v, deviation, share = _spread(mean[own], variance[own])
            value, steepness = self._differentiated(mu)
            change, slopes = self._differentiated(torch.addcmul(mu, z, deviation))
            change.sub_(value)
            tilted = weights * z[:, 0]
            first, slope, bend = weights @ change, weights @ slopes, tilted @ slopes / deviation
            of, spread = of_mean[own], of_spread[own]
            total = (weights @ change.square()).addcmul_(first, first, value=-1)
            if of_slope is not None:
                chord = tilted @ change / deviation
                total = share * total - chord.square() * v
            spread = spread * ((total > 0) | (v == 0))
            by = of * (steepness + share * (slope - steepness))
            by += 2 * spread * share * (weights @ (change * slopes) - first * slope)
            by_v = of * bend / 2 + spread * (tilted @ (change.sub_(first) * slopes)) / deviation
            if of_slope is not None:
                of_chord = of_slope[own] - 2 * spread * chord * v
                by += of_chord * bend
                curve = ((weights * (z[:, 0].square() - 1)) @ slopes) / (2 * deviation.square())
                by_v += of_chord * curve - spread * chord.square()
            by_mean[own], by_variance[own] = by, by_v
        return by_mean, by_variance

    def _differentiated(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            place = x.detach().requires_grad_()
            value = self.function(place)
            (slope,) = torch.autograd.grad(value.sum(), place)
        return value.detach().clone(), slope


_SPACING, _REACH, _WIDEST = 0.6, 5.3, 5  # in z; standard deviations; nodes for σ up to 2⁵
_SHORT_PIECE = 2**11  # entries at once, times the nodes


@cache
def _nodes(width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes (K, 1) and weights (K,) for σ up to 2^width, scaled to unit variance."""
    spacing = _SPACING / 2**width
    number = round(_REACH / spacing)
    nodes = np.arange(-number, number + 1) * spacing
    weights = np.exp(-(nodes**2) / 2)
    weights /= weights.sum()
    nodes /= np.sqrt((weights * nodes**2).sum())
    return torch.tensor(nodes, dtype=dtype, device=device)[:, None], torch.tensor(weights, dtype=dtype, device=device)


def _by_width(variance: Tensor) -> Any:
    """Entries, as slices or indices, with the nodes for them."""
    width = variance.clamp(min=1).log2().mul_(0.5).ceil_().clamp_(max=_WIDEST)
    widest = int(width.max()) if len(width) else 0
    for each in range(widest + 1):
        if widest == 0:
            parts: Any = [slice(i, i + _SHORT_PIECE) for i in range(0, len(variance), _SHORT_PIECE)]
        else:
            parts = (width == each).nonzero()[:, 0].split(max(1, _SHORT_PIECE >> each))
        for part in parts:
            if not isinstance(part, slice) and not len(part):
                continue
            yield part, _nodes(each, variance.dtype, variance.device)


def _spread(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean and variance, the deviation of the nodes, and the part of the moments that counts."""
    spread = variance.clamp(min=math.sqrt(torch.finfo(variance.dtype).eps))
    return mean, variance, spread.sqrt(), variance / spread
