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

**ReLU** (Frey & Hinton 1999), with a = μ/σ, p = Φ(a) and φ = φ(a), the standard normal cdf and pdf:

    mean = μp + σφ,   variance = σ²(p + p(1 − p)a² − φ² − aφ(2p − 1)),   slope = p

Written like this nothing large cancels for |a| ≫ 1. And since max(A, B) = B + ReLU(D) with D = A − B, it also gives
Clark's (1961) moments of a maximum: with Cov(B, ReLU(D)) = p·Cov(B, D),

    mean = μ_B + E[ReLU(D)],   slopes p of A and 1 − p of B,   variance = p²v_A + (1 − p)²v_B + (Var ReLU(D) − p²θ²)

where v is the independent variance and θ² = Var(D). No variance floors: where σ vanishes beside μ, a is its own limit
±∞ and all of this is exact, as are its derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

__all__ = ["Gaussian", "density", "distribution", "maximum_moments", "rectified_moments", "standardized"]

# Beyond this many standard deviations Φ and φ have reached their limits in double precision: exp(−40²/2) is 0.
FAR = 40.0


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
        """Entrywise covariance with another value that shares the same noise ξ: Σ_r f_r g_r."""
        if self.factors is None or other.factors is None:
            return self.mean.new_zeros(())
        return (self.factors * other.factors).sum(0)

    def columns(self, function: Callable[[Tensor], Tensor]) -> Tensor | None:
        """`function`, written for one column, applied to every factor column."""
        return None if self.factors is None else torch.vmap(function)(self.factors)

    def constant(self, value: Tensor) -> Gaussian:
        """A constant beside this value: no variance, and as many factor columns."""
        zeros = torch.zeros_like(value)
        factors = None if self.factors is None else zeros.expand(self.rank, *zeros.shape)
        return Gaussian(value, zeros, factors)

    def through(self, mean: Tensor, slope: Tensor, residual: Tensor) -> Gaussian:
        """This value after a nonlinearity with the given mean, E[g'] and variance of the rest."""
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
    """a = difference/σ and σ, with finite derivatives where σ = 0: there a is ±FAR, and 0 where both are 0."""
    random = variance > (difference / FAR) ** 2
    deviation = torch.where(random, variance, 1).sqrt()
    a = torch.where(random, difference / deviation, difference.sign() * FAR)
    return a, torch.where(random, deviation, 0)


def rectified_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and slope of ReLU at N(mean, variance)."""
    if torch.compiler.is_compiling():  # which fuses what is written out
        a, deviation = standardized(mean, variance)
        pdf, slope = density(a), distribution(a)
        share = slope + slope * (1 - slope) * (a * a) - pdf * pdf - a * pdf * (2 * slope - 1)
        return mean * slope + deviation * pdf, share.clamp(min=0) * variance, slope
    return _Rectified.apply(mean, variance)[:3]  # type: ignore[no-any-return, no-untyped-call]


class _Rectified(torch.autograd.Function):
    """The same in few passes over memory, which is where the time of a network goes, with derivatives in closed form:

        d mean = p dμ + h/2 dσ²,   d variance = 2(1 − p)·mean dμ + (p − h·mean) dσ²,   dp = h dμ − hμ/(2σ²) dσ²

    with h = φ/σ, which vanishes with σ.
    """

    @staticmethod
    def forward(mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        deviation = variance.sqrt()
        a = (mean / deviation).nan_to_num_(0.0).clamp_(-FAR, FAR)  # 0/0 is 0, and ±1/0 far out
        square = a * a
        pdf = (square * -0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
        slope = (a * -math.sqrt(0.5)).erfc_().mul_(0.5)
        share = torch.addcmul(slope, slope, slope, value=-1).mul_(square).add_(slope).addcmul_(pdf, pdf, value=-1)
        a.mul_(pdf)
        share.add_(a).addcmul_(a, slope, value=-2).clamp_(min=0).mul_(variance)
        result = (mean * slope).addcmul_(deviation, pdf)
        steepness = pdf.div_(deviation).nan_to_num_(0.0, 0.0, 0.0)
        return result, share, slope, steepness

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
        result, _, slope, steepness = output
        ctx.mark_non_differentiable(steepness)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, result, slope, steepness)

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, of_mean: Tensor | None, of_variance: Tensor | None, of_slope: Tensor | None, _: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise NotImplementedError("propagated ReLUs and maxima can be differentiated once only")
        mean, variance, result, slope, steepness = ctx.saved_tensors
        by_mean, by_variance = torch.zeros_like(mean), torch.zeros_like(mean)
        if of_mean is not None:
            by_mean, by_variance = of_mean * slope, (of_mean * steepness).mul_(0.5)
        if of_variance is not None:
            twice = torch.addcmul(result, result, slope, value=-1).mul_(of_variance)
            by_mean.add_(twice, alpha=2)
            by_variance.addcmul_(torch.addcmul(slope, result, steepness, value=-1), of_variance)
        if of_slope is not None:
            shift = of_slope * steepness
            by_mean.add_(shift)
            by_variance.add_(shift.mul_(mean).div_(variance).nan_to_num_(0.0, 0.0, 0.0), alpha=-0.5)
        return by_mean, by_variance

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], *inputs: Tensor) -> Any:  # type: ignore[override]
        """Elementwise, so a batch is more entries; torch's own rule would know none of the in-place functions."""
        del info
        parts = [x.unsqueeze(0) if dim is None else x.movedim(dim, 0) for x, dim in zip(inputs, in_dims, strict=True)]
        return _Rectified.apply(*torch.broadcast_tensors(*parts)), (0,) * 4  # type: ignore[no-untyped-call]


def maximum_moments(a: Gaussian, b: Gaussian) -> Gaussian:
    """max(a, b), Clark's moments; the covariance is that of the shared noise."""
    own = a.variance + b.variance
    if a.factors is None or b.factors is None:
        surplus, variance, p = rectified_moments(a.mean - b.mean, own)
        # p²v_a + (1 − p)²v_b − p²(v_a + v_b) = (1 − 2p)v_b
        return Gaussian(b.mean + surplus, torch.addcmul(variance + b.variance, p, b.variance, value=-2).clamp(min=0))
    spread = own + (a.factors - b.factors).square().sum(0)  # Var(a − b): nothing cancels
    surplus, variance, p = rectified_moments(a.mean - b.mean, spread)
    rest = (variance - p * p * spread).clamp(min=0)
    complement = 1 - p
    return Gaussian(
        b.mean + surplus,
        rest + p * p * a.variance + complement * complement * b.variance,
        p * a.factors + complement * b.factors,
    )
