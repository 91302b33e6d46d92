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

`moments` has these three of every family of functions. They vanish as they should where σ does, and their derivatives
with them; the same must hold for every difference that is a variance: `nonnegative` lets its derivative end where it
does.

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

import torch
from torch import Tensor
from torch.utils import _pytree

from dasp.propagation.moments import RECTIFIED, moments

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
    result, slope, residual = moments(RECTIFIED, mean, variance)
    return result, slope, torch.addcmul(residual, slope * slope, variance) if whole else residual


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
