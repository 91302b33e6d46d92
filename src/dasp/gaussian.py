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

**ReLU** (Frey & Hinton 1999), with a = μ/σ and Φ, φ the standard normal cdf and pdf:

    mean = μΦ(a) + σφ(a),   slope = Φ(a),   residual = σ² e(a),
    e(a) = Φ(1 − Φ)(1 + a²) − φ² − aφ(2Φ − 1)

The residual is even in a because ReLU(x) and ReLU(−x) differ by x, which is linear. Written like this nothing large
cancels for |a| ≫ 1, and since max(A, B) = B + ReLU(A − B), it also gives Clark's (1961) moments of a maximum:

    max(A, B) = pA + (1 − p)B + θφ(α) + rest,   α = (μ_A − μ_B)/θ,  p = Φ(α),  Var(rest) = θ² e(α)

with θ² = Var(A − B). No variance floors: where σ vanishes beside μ, a is its own limit ±∞ and all of this is exact,
as are its derivatives.
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
    """What noise does to a ReLU at N(mean, variance): σφ(a), slope and residual; its mean is mean·slope + σφ(a)."""
    if torch.compiler.is_compiling():  # fuses them itself
        a, deviation = standardized(mean, variance)
        pdf, slope = density(a), distribution(a)
        excess = slope * (1 - slope) * (1 + a * a) - pdf * pdf - a * pdf * (2 * slope - 1)
        return deviation * pdf, slope, excess.clamp(min=0) * variance
    return _Rectified.apply(mean, variance)  # type: ignore[no-any-return, no-untyped-call]


def _rectified(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The formulas of the module's docstring in few passes over memory, which is where the time of a network goes."""
    deviation = variance.sqrt()
    a = (mean / deviation).nan_to_num_(0.0).clamp_(-FAR, FAR)  # 0/0 is 0, and ±1/0 far out
    square = a * a
    pdf = (square * -0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
    slope = (a * -math.sqrt(0.5)).erfc_().mul_(0.5)
    complement = 1 - slope
    both = slope * complement
    excess = both.addcmul_(both, square).addcmul_(pdf, pdf, value=-1)
    excess.addcmul_(a.mul_(pdf), complement.sub_(slope)).clamp_(min=0)
    return pdf.mul_(deviation), slope, excess.mul_(variance)


class _Rectified(torch.autograd.Function):
    """`_rectified` with its derivatives in closed form: with c = 1 − Φ(a),

    d(σφ) = −aφ dμ + φ(1 + a²)/(2σ) dσ²,   dΦ = φ/σ dμ − aφ/(2σ²) dσ²,
    d residual = 2σ(aΦc + φ(c − Φ)) dμ + (Φc − φ²) dσ²
    """

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], *inputs: Tensor) -> Any:  # type: ignore[override]
        """Elementwise, so a batch is more entries; torch's own rule would know none of the in-place functions."""
        del info
        parts = [x.unsqueeze(0) if dim is None else x.movedim(dim, 0) for x, dim in zip(inputs, in_dims, strict=True)]
        return _Rectified.apply(*torch.broadcast_tensors(*parts)), (0, 0, 0)  # type: ignore[no-untyped-call]

    @staticmethod
    def forward(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        return _rectified(mean, variance)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        mean, variance, slope = ctx.saved_tensors
        of_noise, of_slope, of_residual = gradients
        a, deviation = standardized(mean, variance)
        pdf = density(a)
        certain = deviation == 0
        steepness = torch.where(certain, 0, pdf / torch.where(certain, 1, deviation))  # φ/σ, which vanishes with σ
        curvature = torch.where(certain, 0, a * steepness / torch.where(certain, 1, deviation))
        complement = 1 - slope
        both = slope * complement
        by_mean = (
            of_slope * steepness
            - of_noise * (a * pdf)
            + of_residual * (2 * deviation * (a * both + pdf * (complement - slope)))
        )
        by_variance = (of_noise * (steepness * (1 + a * a)) - of_slope * curvature) / 2
        return by_mean, by_variance + of_residual * (both - pdf * pdf)


def maximum_moments(a: Gaussian, b: Gaussian) -> Gaussian:
    """max(a, b), Clark's moments; the covariance is that of the shared noise."""
    spread = a.variance + b.variance
    if a.factors is not None and b.factors is not None:
        spread = spread + (a.factors - b.factors).square().sum(0)  # Var(a − b): nothing cancels
    noise, p, residual = rectified_moments(a.mean - b.mean, spread)
    complement = 1 - p
    return Gaussian(
        torch.addcmul(torch.addcmul(noise, p, a.mean), complement, b.mean),
        torch.addcmul(torch.addcmul(residual, p * p, a.variance), complement * complement, b.variance),
        None if a.factors is None or b.factors is None else p * a.factors + complement * b.factors,
    )
