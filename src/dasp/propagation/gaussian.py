"""The value that flows through a probabilistic network, and its pure maths.

An activation is modelled as

    x ~ mean + factorsᵀ ξ + sqrt(variance) ε,        ξ, ε independent standard noise

`variance` is the noise that a unit has for itself. Each of the r `factors` is one column of *shared* noise: how the
unit responds to ξ_r. Two units a, b have covariance Σ_r a_r b_r, and a unit's total variance is variance + Σ_r f_r².

**Nonlinearities.** Let g act on x ~ N(μ, σ²) and split g into what is linear in the noise and the rest,

    g(x) = E[g] + E[g'](x − μ) + rest,      Cov(rest, x) = 0      (Stein: Cov(g(x), x) = σ² E[g'])

so the shared noise passes through with slope E[g'], and Var(rest) = Var(g) − E[g']²σ² joins the unit's own noise. A
nonlinearity is therefore three functions of (μ, σ²): mean, slope, and the variance of the rest (`residual`), which is
what `Gaussian.through` takes.

**ReLU** (Frey & Hinton 1999), with a = μ/σ, p = Φ(a) and φ = φ(a), the standard normal cdf and pdf, and the tail
c = Φ(−|a|), which is p or 1 − p:

    mean = μp + σφ,   slope = p,   residual = σ²(c(1 − c)(1 + a²) − φ² − |a|φ(1 − 2c))

The residual is even in a, as ReLU(x) = x/2 + |x|/2, and beside σ² it vanishes like 2φ/|a|³. Taken from c it keeps its
relative accuracy on both sides; as Var(g) − p²σ², it would be rounded to 0 where p is near 1 while its derivative is
not. That must not be: a later maximum of two units that are alike but for what they have left over takes the *root* of
residuals, and d√v = dv/(2√v) is finite, and vanishes with v, only if dv vanishes with v. The same holds for every
difference that is a variance: `nonnegative` lets its derivative end where it does.

Since max(A, B) = B + ReLU(D) with D = A − B, ReLU also gives Clark's (1961) moments of a maximum: with
Cov(B, ReLU(D)) = p·Cov(B, D),

    mean = μ_B + E[ReLU(D)],   slopes p of A and 1 − p of B,   variance = p²v_A + (1 − p)²v_B + residual of ReLU(D)

where v is the independent variance and θ² = Var(D) = v_A + v_B + |f_A − f_B|², a sum in which nothing cancels. No
variance floors: where σ vanishes beside μ, a is its own limit ±∞ and all of this is exact, as are its derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

__all__ = [
    "Gaussian",
    "density",
    "distribution",
    "maximum_moments",
    "nonnegative",
    "rectified_moments",
    "root",
    "standardized",
]

# Beyond this many standard deviations Φ and φ have reached their limits in double precision: exp(−40²/2) is 0.
_FAR = 40.0


@dataclass(frozen=True)
class Gaussian:
    """mean + factorsᵀ ξ + sqrt(variance) ε; see the module's docstring.

    >>> x = Gaussian(torch.zeros(2), torch.ones(2), factors=torch.tensor([[1.0, -1.0]]))
    >>> x.total_variance
    tensor([2., 2.])
    """

    mean: Tensor
    variance: Tensor
    factors: Tensor | None = None  # (r, *mean.shape)

    @property
    def total_variance(self) -> Tensor:
        """The variance of each unit, its own and the shared part."""
        return self.variance + self.covariance(self)

    @property
    def rank(self) -> int:
        """The number of factor columns."""
        return 0 if self.factors is None else self.factors.shape[0]

    def covariance(self, other: Gaussian) -> Tensor:
        """Return the entrywise covariance with another value that shares the same noise ξ: Σ_r f_r g_r."""
        if self.factors is None or other.factors is None:
            return self.mean.new_zeros(())
        return (self.factors * other.factors).sum(0)

    def columns(self, function: Callable[[Tensor], Tensor]) -> Tensor | None:
        """Apply `function`, written for one column, to every factor column."""
        return None if self.factors is None else torch.vmap(function)(self.factors)

    def map(self, function: Callable[[Tensor], Tensor]) -> Gaussian:
        """Apply a function that moves or adds entries to the mean, the variance and every factor column."""
        return Gaussian(function(self.mean), function(self.variance), self.columns(function))

    def constant(self, value: Tensor) -> Gaussian:
        """Return a constant beside this value: without variance, and with as many factor columns."""
        zeros = torch.zeros_like(value)
        factors = None if self.factors is None else zeros.expand(self.rank, *zeros.shape)
        return Gaussian(value, zeros, factors)

    def through(self, mean: Tensor, slope: Tensor, residual: Tensor) -> Gaussian:
        """Return this value after a nonlinearity g, from E[g], E[g'] and the variance of the rest (`residual`)."""
        factors = None if self.factors is None else self.factors * slope
        return Gaussian(mean, torch.addcmul(residual, self.variance, slope * slope), factors)


def _flatten(x: Gaussian) -> tuple[list[Tensor], None]:
    return [x.mean, x.variance] if x.factors is None else [x.mean, x.variance, x.factors], None


def _unflatten(parts: Iterable[Tensor], _: None) -> Gaussian:
    return Gaussian(*parts)


# torch.vmap and torch.compile see through the dataclass.
_pytree.register_pytree_node(Gaussian, _flatten, _unflatten, serialized_type_name="dasp.Gaussian")


def density(a: Tensor) -> Tensor:
    """φ(a), the standard normal density."""
    return torch.exp(a * a * -0.5) * (1 / math.sqrt(2 * math.pi))


def distribution(a: Tensor) -> Tensor:
    """Φ(a), the standard normal distribution function, accurate in the lower tail."""
    return torch.erfc(a * -math.sqrt(0.5)) * 0.5


def standardized(difference: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """a = difference/σ and σ, with finite derivatives where σ = 0: there a is ±40, and 0 where both are 0."""
    random = variance > (difference / _FAR) ** 2
    deviation = torch.where(random, variance, 1).sqrt()
    a = torch.where(random, difference / deviation, difference.sign() * _FAR)
    return a, torch.where(random, deviation, 0)


def nonnegative(variance: Tensor) -> Tensor:
    """A variance taken as a difference: 0 where rounding leaves nothing, and its derivative too, unlike `clamp`."""
    return variance.relu()


def root(variance: Tensor) -> Tensor:
    """The root of a variance, with a derivative of 0 where nothing is random, unlike `sqrt`."""
    certain = variance == 0
    return torch.where(certain, 0, torch.where(certain, 1, variance).sqrt())


def rectified_moments(mean: Tensor, variance: Tensor, *, whole: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, slope and residual of ReLU at N(mean, variance); with `whole`, its variance as the latter."""
    if torch.compiler.is_compiling():  # which fuses what is written out
        a, deviation = standardized(mean, variance)
        far, pdf, slope = a.abs(), density(a), distribution(a)  # the slope not from |a|, which has none at 0
        tail = distribution(-far)
        share = nonnegative(tail * (1 - tail) * (1 + a * a) - pdf * pdf - far * pdf * (1 - 2 * tail))
        share = share + slope * slope if whole else share
        return mean * slope + deviation * pdf, slope, share * variance
    return _Rectified.apply(mean, variance, whole)[:3]  # type: ignore[no-any-return, no-untyped-call]


class _Rectified(torch.autograd.Function):
    """The same in few passes over memory, which is where the time of a network goes, with derivatives in closed form:

        d mean = p dμ + h/2 dσ²,   dp = h dμ − hμ/(2σ²) dσ²
        d residual = 2(μc(1 − c) − hσ²(2p − 1)) dμ + (c(1 − c) − h²σ²) dσ²
        d variance = 2(1 − p)·mean dμ + (p − h·mean) dσ²

    with h = φ/σ, which vanishes with σ. For |a| ≫ 1 the derivatives of the residual are like −2σφ/a² and φ/|a|: they
    vanish with it.
    """

    @staticmethod
    def forward(mean: Tensor, variance: Tensor, whole: bool) -> tuple[Tensor, ...]:  # type: ignore[override]
        deviation = variance.sqrt()
        far = (mean / deviation).nan_to_num_(0.0).abs_().clamp_(max=_FAR)  # 0/0 is 0, and ±1/0 far out
        square = far * far
        tail = (far * math.sqrt(0.5)).erfc_().mul_(0.5)
        slope = torch.lerp(tail, 1 - tail, mean.sign().clamp_(min=0))  # by μ > 0; exact, and quicker than `where`
        share = torch.addcmul(tail, tail, tail, value=-1)
        share.addcmul_(share, square)
        pdf = square.mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
        far.mul_(pdf)
        share.addcmul_(pdf, pdf, value=-1).sub_(far).addcmul_(far, tail, value=2).clamp_(min=0)
        if whole:
            share.addcmul_(slope, slope)
        share.mul_(variance)
        result = (mean * slope).addcmul_(deviation, pdf)
        steepness = pdf.div_(deviation).nan_to_num_(0.0, 0.0, 0.0)
        return result, slope, share, tail, steepness

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: tuple[Tensor, ...]) -> None:
        mean, variance, ctx.whole = inputs
        result, slope, _, tail, steepness = output
        ctx.mark_non_differentiable(tail, steepness)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(mean, variance, slope, steepness, result if ctx.whole else tail)

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, of_mean: Tensor | None, of_slope: Tensor | None, of_spread: Tensor | None, *_: Any
    ) -> tuple[Tensor | None, Tensor | None, None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise NotImplementedError("propagated ReLUs and maxima can be differentiated once only")
        mean, variance, slope, steepness, kept = ctx.saved_tensors
        if of_mean is None:
            by_mean, by_variance = torch.zeros_like(mean), torch.zeros_like(mean)
        else:
            by_mean, by_variance = of_mean * slope, (of_mean * steepness).mul_(0.5)
        if of_spread is not None and ctx.whole:
            by_mean.addcmul_(torch.addcmul(kept, kept, slope, value=-1), of_spread, value=2)
            by_variance.addcmul_(torch.addcmul(slope, kept, steepness, value=-1), of_spread)
        elif of_spread is not None:
            both, pull = torch.addcmul(kept, kept, kept, value=-1), steepness * variance  # c(1 − c) and σφ
            by_variance.addcmul_(torch.addcmul(both, pull, steepness, value=-1), of_spread)
            tilt = both.mul_(mean).add_(pull).addcmul_(pull, slope, value=-2)
            by_mean.addcmul_(tilt, of_spread, value=2)
        if of_slope is not None:
            shift = of_slope * steepness
            by_mean.add_(shift)
            by_variance.add_(shift.mul_(mean).div_(variance).nan_to_num_(0.0, 0.0, 0.0), alpha=-0.5)
        return by_mean, by_variance, None

    @staticmethod
    def vmap(  # type: ignore[override]
        info: Any, in_dims: tuple[int | None, ...], mean: Tensor, variance: Tensor, whole: bool
    ) -> Any:
        """Elementwise, so a batch is more entries; torch's own rule would know none of the in-place functions."""
        del info
        given = zip((mean, variance), in_dims[:2], strict=True)
        parts = [x.unsqueeze(0) if dim is None else x.movedim(dim, 0) for x, dim in given]
        return _Rectified.apply(*torch.broadcast_tensors(*parts), whole), (0,) * 5  # type: ignore[no-untyped-call]


def maximum_moments(a: Gaussian, b: Gaussian) -> Gaussian:
    """Return max(a, b) by Clark's moments; the covariance is that of the shared noise."""
    spread = a.variance + b.variance  # becomes Var(a − b): nothing cancels
    if a.factors is not None and b.factors is not None:
        spread = spread + (a.factors - b.factors).square().sum(0)
    surplus, p, residual = rectified_moments(a.mean - b.mean, spread)
    complement = 1 - p
    variance = torch.addcmul(residual, p * p, a.variance)
    variance = torch.addcmul(variance, complement * complement, b.variance)
    if a.factors is None or b.factors is None:
        return Gaussian(b.mean + surplus, variance)
    return Gaussian(b.mean + surplus, variance, torch.lerp(b.factors, a.factors, p))
