"""Moments of elementwise functions of a Gaussian, with derivatives written by hand.

A nonlinearity g of x ~ N(μ, v) is propagated by three functions of (μ, v): its mean E[g], its slope E[g'] and what the
slope leaves over, Var(g) − E[g']²v, the `residual` (see `gaussian`); without factors, by mean and variance alone. They
are where the time and the memory of a propagated network go, so there is one way for all of them:

- The derivatives in μ and v are found beside the values, from the same probabilities and densities, and they alone are
  kept for the backward pass: four numbers an entry without factors, six with them. Recorded step by step by autograd, a
  ReLU6 would keep some fifty.
- The work is done in pieces that stay in a processor's cache, as dozens of short operations pass over the same numbers.
- The derivatives are moments again, by Bonnet's and Price's theorems: ∂E[h]/∂μ = E[h'] and ∂E[h]/∂v = E[h'']/2, for
  h = g, g' and (g − u)², where u is any constant: the value at μ, so that nothing cancels where v is small.
- Nothing underflows: a processor takes ten times as long for exp(−800) as for exp(−8). So a distance is at most as many
  standard deviations as its dtype has densities for, and there Φ and φ are exactly 0 or 1.

A `Family` is a function of which the moments and their derivatives are known: `RECTIFIED`, `Ramp` (ReLU6, hard tanh,
clamps, hard sigmoid), `GELU`, and `Smooth`, which integrates any smooth function.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["GELU", "RECTIFIED", "SIGMOID", "Family", "Ramp", "Smooth", "moments"]

_PIECE = 2**15  # entries at once
_ROOT_HALF, _ROOT_TAU = math.sqrt(0.5), math.sqrt(2 * math.pi)


class Family(ABC):
    """An elementwise function whose moments at N(μ, v) are known."""

    @abstractmethod
    def moments(self, mean: Tensor, variance: Tensor, *, whole: bool, differentiated: bool) -> list[Tensor]:
        """Return mean, slope and residual or, if `whole`, mean and variance; if `differentiated`, then the derivative
        of each in μ, and of each in v."""


def moments(family: Family, mean: Tensor, variance: Tensor, *, whole: bool = False) -> tuple[Tensor, ...]:
    """Return mean, slope and residual of a family's function at N(mean, variance); if `whole`, mean and variance."""
    differentiated = torch.is_grad_enabled() and (mean.requires_grad or variance.requires_grad)
    found = _Moments.apply(mean, variance, family, whole, differentiated)  # type: ignore[no-untyped-call]
    return found[: _number(whole)]  # type: ignore[no-any-return]


def _number(whole: bool) -> int:
    return 2 if whole else 3


class _Moments(torch.autograd.Function):
    """The moments of a family, piece by piece, with their derivatives beside them if they are wanted."""

    @staticmethod
    def forward(  # type: ignore[override]
        mean: Tensor, variance: Tensor, family: Family, whole: bool, differentiated: bool
    ) -> tuple[Tensor, ...]:
        mean, variance = (x.contiguous() for x in torch.broadcast_tensors(mean, variance))
        results = [torch.empty_like(mean) for _ in range(_number(whole) * (3 if differentiated else 1))]
        pieces = zip(*(x.view(-1).split(_PIECE) for x in (mean, variance, *results)), strict=True)
        for of_mean, of_variance, *into in pieces:
            found = family.moments(of_mean, of_variance, whole=whole, differentiated=differentiated)
            for result, value in zip(into, found, strict=True):
                result.copy_(value)
        return tuple(results)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Family, bool, bool], output: tuple[Tensor, ...]) -> None:
        mean, variance, _, whole, _ = inputs
        derivatives = output[_number(whole) :]
        ctx.mark_non_differentiable(*derivatives)
        ctx.set_materialize_grads(False)
        ctx.shapes = mean.shape, variance.shape
        ctx.save_for_backward(*derivatives)

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None, None]:  # type: ignore[override]
        if torch.is_grad_enabled():  # create_graph=True
            raise NotImplementedError("propagated nonlinearities can be differentiated once only")
        number = len(ctx.saved_tensors) // 2
        by: list[Tensor | None] = []
        for shape, derivatives in zip(
            ctx.shapes, (ctx.saved_tensors[:number], ctx.saved_tensors[number:]), strict=True
        ):
            total: Tensor | None = None
            for of, derivative in zip(given, derivatives, strict=False):
                if of is not None:
                    total = of * derivative if total is None else total.addcmul_(of, derivative)
            by.append(None if total is None else total.sum_to_size(shape))
        return *by, None, None, None  # type: ignore[return-value]

    @staticmethod
    def vmap(  # type: ignore[override]
        info: Any,
        in_dims: tuple[int | None, ...],
        mean: Tensor,
        variance: Tensor,
        family: Family,
        whole: bool,
        differentiated: bool,
    ) -> Any:
        """Elementwise, so a batch is more entries; torch's own rule would know none of the in-place functions."""
        given = zip((mean, variance), in_dims[:2], strict=True)
        parts = [x.unsqueeze(0) if dim is None else x.movedim(dim, 0) for x, dim in given]
        parts[0] = parts[0].expand(info.batch_size, *parts[0].shape[1:])
        results = _Moments.apply(*parts, family, whole, differentiated)  # type: ignore[no-untyped-call]
        return results, (0,) * len(results)


class _Scale:
    """The deviation σ of a variance, and distances and densities in units of it, also where it is 0."""

    def __init__(self, variance: Tensor) -> None:
        self.far, least, self._density, self._tail = _limits(variance.dtype)
        self._inverse = variance.clamp(min=least).rsqrt_()
        self.random = variance.sign()  # 1, or 0 where nothing is random
        self.deviation = variance * self._inverse
        self.inverse = self._inverse * self.random  # 1/σ, and 0 for σ = 0

    def standardized(self, distance: Tensor) -> Tensor:
        """distance/σ, as far as there are densities; 0/0 is 0."""
        return (distance * self._inverse).clamp_(-self.far, self.far)

    def density(self, square: Tensor) -> Tensor:
        """φ from z², in its place."""
        return torch.threshold_(square.mul_(-0.5).exp_().mul_(1 / _ROOT_TAU), self._density, 0.0)

    def tail(self, z: Tensor) -> Tensor:
        """Φ(−z)."""
        return torch.threshold_((z * _ROOT_HALF).erfc_().mul_(0.5), self._tail, 0.0)

    def certain(self, spread: Tensor) -> Tensor:
        """0 where rounding leaves nothing of a variance, so that nothing changes there either; else, and where nothing
        is random, 1."""
        return torch.maximum(spread.sign(), 1 - self.random)


@cache
def _limits(dtype: torch.dtype) -> tuple[float, float, float, float]:
    """The farthest distance in standard deviations, the least variance, and just more than φ and Φ are at the former,
    where both still are normal numbers."""
    tiny = torch.finfo(dtype).tiny
    far = math.sqrt(-2 * math.log(tiny)) - 0.5
    more = 1 + 1e-3
    return far, tiny**0.75, more * math.exp(-far * far / 2) / _ROOT_TAU, more * math.erfc(far * _ROOT_HALF) / 2


class _Rectified(Family):
    """max(x, 0) (Frey & Hinton 1999). With a = μ/σ, p = Φ(a), φ = φ(a) and the tail c = Φ(−|a|), which is p or 1 − p:

        mean = μp + σφ,   slope = p,   residual = σ²(c(1 − c)(1 + a²) − φ² − |a|φ(1 − 2c))

    The residual is even in a, as ReLU(x) = x/2 + |x|/2, and beside σ² it vanishes like 2φ/|a|³. Taken from c it keeps
    its relative accuracy on both sides; as Var(g) − p²σ², it would be rounded to 0 where p is near 1 while its
    derivative is not. That must not be: a later maximum of two units that are alike but for what they have left over
    takes the *root* of residuals, and d√v = dv/(2√v) is finite, and vanishes with v, only if dv vanishes with v.

    The derivatives, with h = φ/σ, which vanishes with σ:

        d mean = p dμ + h/2 dv,   dp = h dμ − ha/(2σ) dv
        d residual = 2(μc(1 − c) − hv(2p − 1)) dμ + (c(1 − c) − h²v) dv
        d variance = 2(1 − p)·mean dμ + (p − h·mean) dv

    For |a| ≫ 1 those of the residual are like −2σφ/a² and φ/|a|: they vanish with it.
    """

    def moments(self, mean: Tensor, variance: Tensor, *, whole: bool, differentiated: bool) -> list[Tensor]:
        scale = _Scale(variance)
        a = scale.standardized(mean)
        far, square = a.abs(), a * a
        tail = scale.tail(far)
        both = torch.addcmul(tail, tail, tail, value=-1)  # c(1 − c)
        share = torch.addcmul(both, both, square)
        pdf = scale.density(square)
        slope = torch.lerp(tail, 1 - tail, mean.sign().clamp_(min=0))  # by μ > 0; exact, and quicker than `where`
        far.mul_(pdf)
        share.addcmul_(pdf, pdf, value=-1).sub_(far).addcmul_(far, tail, value=2).clamp_(min=0)
        if whole:
            share.addcmul_(slope, slope)
        pull = scale.deviation * pdf
        result = torch.addcmul(pull, mean, slope)
        values = [result, share.mul_(variance)] if whole else [result, slope, share.mul_(variance)]
        if not differentiated:
            return values
        steepness = pdf.mul_(scale.inverse)
        rise = steepness * 0.5
        if whole:
            by_mean = torch.addcmul(result, result, slope, value=-1).mul_(2)
            return [*values, slope, by_mean, rise, torch.addcmul(slope, steepness, result, value=-1)]
        tilt = (both * mean).add_(pull).addcmul_(pull, slope, value=-2).mul_(2)
        curve = a.mul_(scale.inverse).mul_(rise).neg_()
        return [*values, slope, steepness, tilt, rise, curve, both.addcmul_(pull, steepness, value=-1)]


RECTIFIED = _Rectified()


@dataclass(frozen=True)
class Ramp(Family):
    """min(max(x, low), high), the difference of two rectified Gaussians.

    About the centre of both ends it is odd, so that it is enough to know for μ below: with x and g measured from the
    centre, the ends are ∓h, and all probabilities are tails above them, which keep their relative accuracy. With
    u = g(μ), the distances d₁ = −h − u, d₂ = h − u and e = μ − u, of which d₁ or e is 0, z = (end − μ)/σ, φ₁, φ₂ and
    c₁, c₂ the densities at the ends and tails above them, p = c₁ − c₂ and n = σφ:

        E[g − u] = d₁(1 − c₁) + d₂c₂ + ep + n₁ − n₂ = f,      slope = p
        E[(g − u)²] = d₁²(1 − c₁) + d₂²c₂ + (e² + v)p + (d₁ + e)n₁ − (d₂ + e)n₂

        dE[g] = p dμ + (φ₁ − φ₂)/2σ dv,      dp = (φ₁ − φ₂)/σ dμ + (z₁φ₁ − z₂φ₂)/2v dv
        dVar(g) = 2((e − f)p + n₁ − n₂) dμ + (p + ((d₁ − f)φ₁ − (d₂ − f)φ₂)/σ) dv
    """

    low: float
    high: float

    def moments(self, mean: Tensor, variance: Tensor, *, whole: bool, differentiated: bool) -> list[Tensor]:
        """Return mean, slope and residual, or mean and variance, and the derivatives."""
        half = (self.high - self.low) / 2
        scale = _Scale(variance)
        centred = mean - (self.low + self.high) / 2
        side = centred.sign().neg_()  # −1 where all of it is mirrored
        to_low = centred.abs_().sub_(half)  # from μ to the ends
        z1, z2 = scale.standardized(to_low), scale.standardized(to_high := to_low + 2 * half)
        c1, c2 = scale.tail(z1), scale.tail(z2)
        pdf1, pdf2 = scale.density(z1 * z1), scale.density(z2 * z2)
        between, below = c1 - c2, 1 - c1
        d1, e = to_low.clamp(max=0), to_low.clamp_(min=0).neg_()
        d2 = to_high.add_(e)
        pull1, pull2 = scale.deviation * pdf1, scale.deviation * pdf2
        drop = pull1 - pull2
        first = (d1 * below).addcmul_(d2, c2).addcmul_(e, between).add_(drop)
        spread = torch.addcmul(variance, e, e).mul_(between).addcmul_(below.mul_(d1), d1).addcmul_(c2.mul_(d2), d2)
        spread.addcmul_(d1 + e, pull1).addcmul_(pull2, d2 + e, value=-1).addcmul_(first, first, value=-1)
        if not whole:
            spread.addcmul_(between * between, variance, value=-1)
        result = torch.addcmul(mean.clamp(self.low, self.high), first, side)
        values = [result, spread.clamp_(min=0)] if whole else [result, between, spread.clamp_(min=0)]
        if not differentiated:
            return values
        certain = scale.certain(spread)
        tilt = torch.addcmul(drop, e.sub_(first), between).mul_(2)  # in the mirrored μ
        pdf1.mul_(scale.inverse)
        pdf2.mul_(scale.inverse)
        bend = pdf1 - pdf2
        growth = torch.addcmul(between, d1.sub_(first), pdf1).addcmul_(d2.sub_(first), pdf2, value=-1)
        rise = (bend * side).mul_(0.5)
        if whole:
            return [*values, between, tilt.mul_(side).mul_(certain), rise, growth.mul_(certain)]
        curve = z1.mul_(pdf1).addcmul_(z2, pdf2, value=-1).mul_(scale.inverse).mul_(0.5)
        by_slope = (between * variance).mul_(-2)
        tilt.addcmul_(by_slope, bend).mul_(side).mul_(certain)
        growth.addcmul_(by_slope, curve).addcmul_(between, between, value=-1).mul_(certain)
        return [*values, between, bend.mul_(side), tilt, rise, curve, growth]


class _Gelu(Family):
    """x·Φ(x), in closed form. With s² = 1 + v, t = μ/s, p = Φ(t), ψ = φ(t)/s and r² = 1 + 2v:

        mean = μp + vψ,      slope = p + μψ/s²

    and, by Stein's lemma twice, E[x²Φ(x)²] = (μ² + v)E[Φ²] + 2v(μE[2Φφ] + v E[φ² − xΦφ]), of which, with p' = Φ(t/r),

        E[Φ²] = p² + I,      E[Φφ] = ψp',      D = E[φ²] = exp(−μ²/r²)/2πr,      E[xΦφ] = (μψp' + vD)/s²

    I = Var(Φ) is the part of Owen's function T(t, ·) between 1/r and 1, I = 1/π ∫ exp(−t²(1 + y²)/2)/(1 + y²) dy, by
    Gauss and Legendre's rule: the interval, 2v/(r(r + 1)), is as short as v is small. In the variance all terms without
    a factor of v cancel beforehand, so that single precision is enough:

        variance = vp² + (μ² + v)I + 2vμψ(2p' − p) + v²(2D − 2E[xΦφ] − ψ²)

    The derivatives are moments of the same kind. Under the density, x ~ N(m, w) with m = μ/s² and w = v/s²:
    E[h(x)φ(x)] = ψE[h(y)], y ~ N(m, w). Of the derivative of the variance in μ, 2Cov(g, g'), the same terms cancel:

        Cov(g, g') = μI + vψ(2p' − p) + wψp' + mμψ(p' − p − wp') + wmD(2 + w)/(1 + w) − vmψ²
        ∂ variance/∂v = E[g'² + (g − E[g])g''] = p² + I + 4E[xΦφ] + E[x²φ²] − E[x³Φφ] − mean·E[g'']
    """

    def moments(self, mean: Tensor, variance: Tensor, *, whole: bool, differentiated: bool) -> list[Tensor]:
        p, pdf, crossed, doubled, inner, ratio, inverse = self._parts(mean, variance)
        m, w = mean * inverse, variance * inverse
        result = (mean * p).addcmul_(variance, pdf)
        slope = torch.addcmul(p, m, pdf)
        pulled = torch.sub(crossed, p, alpha=0.5).mul_(2).mul_(pdf).mul_(variance)  # vψ(2p' − p)
        crossed.mul_(pdf)  # ψp'
        mixed = (m * crossed).addcmul_(w, doubled)  # E[xΦφ]
        own = p * p
        if not whole:
            own.addcmul_(slope, slope, value=-1)
        spread = torch.sub(doubled, mixed).mul_(2).addcmul_(pdf, pdf, value=-1).mul_(variance).add_(own).mul_(variance)
        spread.addcmul_(torch.addcmul(variance, mean, mean), inner).addcmul_(mean, pulled, value=2).clamp_(min=0)
        values = [result, spread] if whole else [result, slope, spread]
        if not differentiated:
            return values
        certain = torch.maximum(spread.sign(), 1 - variance.sign())
        level = m * m
        bend = torch.add(level, w).neg_().add_(2).mul_(pdf)  # E[g'']
        lever = w * m * doubled
        lever.mul_((w / (w + 1)).neg_().add_(2))  # wmD(2 + w)/(1 + w)
        tilt = torch.addcmul(pulled, mean, inner).addcmul_(w, crossed).add_(lever)
        tilt.addcmul_(m * mean, torch.addcmul(crossed, pdf, p, value=-1).addcmul_(w, crossed, value=-1))
        tilt.addcmul_(variance * m, pdf * pdf, value=-1).mul_(2)
        place = mean * ratio
        curved = torch.addcmul(variance, place, place).mul_(ratio).mul_(ratio).mul_(doubled)  # E[x²φ²]
        third = torch.add(level, w).mul_(crossed).add_(lever).mul_(m).addcmul_(w, mixed, value=2).addcmul_(w, curved)
        growth = torch.addcmul(inner, p, p).add_(mixed, alpha=4).add_(curved).sub_(third)
        growth.addcmul_(result, bend, value=-1)
        rise = bend * 0.5
        if whole:
            return [*values, slope, tilt.mul_(certain), rise, growth.mul_(certain)]
        curve = level.add_(w, alpha=3).sub_(4).mul_(m).mul_(pdf).mul_(0.5)
        by_slope = (slope * variance).mul_(-2)
        tilt.addcmul_(by_slope, bend).mul_(certain)
        growth.addcmul_(by_slope, curve).addcmul_(slope, slope, value=-1).mul_(certain)
        return [*values, slope, bend, tilt, rise, curve, growth]

    @staticmethod
    def _parts(mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        """p, ψ, p', D, I, 1/r and 1/s²."""
        lowest = math.log(torch.finfo(mean.dtype).tiny) + 1
        farthest = math.sqrt(-lowest) - 1  # for erfc, which is about exp(−x²)
        square = variance + 1
        inverse, twice = square.rsqrt(), square + variance
        root = twice.sqrt()
        ratio = root.reciprocal()
        t = mean * inverse
        p, crossed = (x.mul_(-_ROOT_HALF).clamp_(max=farthest).erfc_().mul_(0.5) for x in (t.clone(), t * ratio))
        half = t.mul_(t).mul_(-0.5)
        pdf = half.clamp(min=lowest).exp_().mul_(inverse).mul_(1 / _ROOT_TAU)
        length = (variance * 2).div_(root.add_(1)).mul_(ratio)
        inner = torch.zeros_like(mean)
        for node, weight in _OWEN:
            place = torch.add(ratio, length, alpha=node).square_().add_(1)
            inner.add_((half * place).clamp_(min=lowest).exp_().div_(place), alpha=weight / math.pi)
        doubled = (mean * ratio).square_().neg_().clamp_(min=lowest).exp_().mul_(ratio).mul_(1 / (2 * math.pi))
        return p, pdf, crossed, doubled, inner.mul_(length), ratio, inverse.mul_(inverse)


_OWEN = [((1 + x) / 2, w / 2) for x, w in np.stack(np.polynomial.legendre.leggauss(4)).T.tolist()]
GELU = _Gelu()


@dataclass(frozen=True)
class Smooth(Family):
    """Any smooth function, by the trapezoidal rule over x = μ + σz; the slope is E[g(x)z]/σ (Stein).

    On a Gaussian the rule converges geometrically in its spacing, until that comes near to how far the function's poles
    are from the real axis: π/2 for tanh. So σ decides how many nodes there are: a spacing of 0.6 in z for σ up to 1,
    half of that up to 2, and so on. Of sigmoid, tanh, softplus, SiLU, Mish and erf, mean, slope and residual are then
    within 10⁻⁵ (the mean as a part of σ, if that is above 1; the residual as a part of v), in double precision and up
    to σ = 32. Each entry has its own spacing, whatever is beside it.

    Moments are taken of g(x) − g(μ), so that zero variance gives g(μ) to the last bit. For v below the square root of
    the machine epsilon the nodes stay where they are and the moments shrink in proportion to v: the second-order Taylor
    expansion by finite differences. The derivatives are taken with the same nodes, and g' by autograd, or from g by
    `derivative`:

        dE[g] = E[g'] dμ + E[g'z]/2σ dv,   dE[g'] = E[g'z]/σ dμ + E[g'(z² − 1)]/2v dv
        dVar(g) = 2Cov(g, g') dμ + E[(g − E[g])g'z]/σ dv
    """

    function: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor] | None = None  # g' as a function of g, if it is one

    def moments(self, mean: Tensor, variance: Tensor, *, whole: bool, differentiated: bool) -> list[Tensor]:
        """Return mean, slope and residual, or mean and variance, and the derivatives."""
        results = [torch.empty_like(mean) for _ in range(_number(whole) * (3 if differentiated else 1))]
        for own, nodes in _by_width(variance):
            found = self._part(mean[own], variance[own], *nodes, whole=whole, differentiated=differentiated)
            for result, part in zip(results, found, strict=True):
                result[own] = part
        return results

    def _part(
        self, mean: Tensor, variance: Tensor, z: Tensor, weights: Tensor, *, whole: bool, differentiated: bool
    ) -> list[Tensor]:
        """Integrate with nodes z (K, 1) and rows of weights: 1, z and z² − 1, times those of the rule."""
        spread = variance.clamp(min=math.sqrt(torch.finfo(variance.dtype).eps))
        deviation, share = spread.sqrt(), variance / spread
        places = torch.addcmul(mean, z, deviation)
        if differentiated:
            (value, steepness), (change, slopes) = self._differentiated(mean), self._differentiated(places)
        else:
            value, change = self.function(mean), self.function(places)
        change.sub_(value)
        first, tilted = weights[:2] @ change
        squares = change * change
        total = (weights[0] @ squares).addcmul_(first, first, value=-1).mul_(share)
        if not whole:
            chord = tilted / deviation
            total.addcmul_(chord * chord, variance, value=-1)
        total.clamp_(min=0)
        result = torch.addcmul(value, share, first)
        values = [result, total] if whole else [result, chord, total]
        if not differentiated:
            return values
        certain = torch.maximum(total.sign(), 1 - variance.sign())
        slope, bend, curve = weights @ slopes
        crossed, lifted = weights[:2] @ slopes.mul_(change)
        tilt = crossed.addcmul_(first, slope, value=-1).mul_(share).mul_(2)  # 2Cov(g, g')
        growth = lifted.addcmul_(first, bend, value=-1).div_(deviation)
        bend = bend / deviation
        by_mean = torch.addcmul(steepness, share, slope - steepness)
        if whole:
            return [*values, by_mean, tilt.mul_(certain), bend * 0.5, growth.mul_(certain)]
        curve = curve / spread.mul_(2)
        by_slope = (chord * variance).mul_(-2)
        tilt.addcmul_(by_slope, bend).mul_(certain)
        growth.addcmul_(by_slope, curve).addcmul_(chord, chord, value=-1).mul_(certain)
        return [*values, by_mean, bend, tilt, bend * 0.5, curve, growth]

    def _differentiated(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.derivative is not None:
            value = self.function(x)
            return value, self.derivative(value)
        with torch.enable_grad():
            place = x.detach().requires_grad_()
            value = self.function(place)
            (slope,) = torch.autograd.grad(value.sum(), place)
        return value.detach().clone(), slope


SIGMOID = Smooth(torch.sigmoid, lambda value: torch.addcmul(value, value, value, value=-1))

_SPACING, _REACH, _WIDEST = 0.6, 5.3, 5  # in z; standard deviations; nodes for σ up to 2⁵
_SHORT_PIECE = 2**11  # entries at once, times the nodes


@cache
def _nodes(width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes (K, 1) for σ up to 2^width, scaled to unit variance, and weights (3, K) of 1, z and z² − 1."""
    spacing = _SPACING / 2**width
    number = round(_REACH / spacing)
    nodes = np.arange(-number, number + 1) * spacing
    weights = np.exp(-(nodes**2) / 2)
    weights /= weights.sum()
    nodes /= np.sqrt((weights * nodes**2).sum())
    rows = np.stack([weights, weights * nodes, weights * (nodes**2 - 1)])
    return torch.tensor(nodes, dtype=dtype, device=device)[:, None], torch.tensor(rows, dtype=dtype, device=device)


def _by_width(variance: Tensor) -> Iterator[tuple[Any, tuple[Tensor, Tensor]]]:
    """Entries, as slices or indices, with the nodes for them."""
    if not len(variance) or float(variance.max()) <= 1:
        for i in range(0, len(variance), _SHORT_PIECE):
            yield slice(i, i + _SHORT_PIECE), _nodes(0, variance.dtype, variance.device)
        return
    width = variance.clamp(min=1).log2().mul_(0.5).ceil_().clamp_(max=_WIDEST)
    width.nan_to_num_(nan=_WIDEST)  # what has overflowed is to be seen in the result
    for each in range(int(width.max()) + 1):
        for part in (width == each).nonzero()[:, 0].split(max(1, _SHORT_PIECE >> each)):
            if len(part):
                yield part, _nodes(each, variance.dtype, variance.device)
