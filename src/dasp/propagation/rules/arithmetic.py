"""Sums, products, quotients and powers, with constants and between random values.

For random a, b with covariance c = Σ_r a_r b_r:

    a·b:   mean = μ_a μ_b + c,   factors μ_a b_r + μ_b a_r,   rest μ_a² v_b + μ_b² v_a + V_a V_b + c²

where v is the independent and V the total variance. Two arguments that are the same value are one random variable, so
x + x is 2x and x·x is x².
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dasp.propagation.gaussian import Gaussian, nonnegative
from dasp.propagation.rules.activations import exp, integrated
from dasp.propagation.rules.maximum import dimensions, in_pairs, same_shape
from dasp.propagation.rules.registry import rule, same_entry, within
from dasp.propagation.values import Toggled

aten = torch.ops.aten
Scalar = float | Tensor


def depends(x: Any) -> bool:
    """Return True if a value is no constant."""
    return isinstance(x, (Gaussian, Toggled))


def _sum(a: Gaussian, b: Gaussian, sign: Scalar) -> Gaussian:
    """a + sign·b."""
    if a is b:
        return scaled(a, 1 + sign)
    both = a.factors is not None and b.factors is not None
    return Gaussian(a.mean + sign * b.mean, a.variance + sign**2 * b.variance, _add(a, b, sign) if both else None)


def _add(a: Gaussian, b: Gaussian, sign: Scalar) -> Tensor:
    # Aligned by hand: the column dimension must not be broadcast against dimensions of the values.
    return torch.vmap(lambda x, y: x + sign * y)(a.factors, b.factors)


def _shifted(x: Gaussian, mean: Tensor) -> Gaussian:
    """x plus a constant that may have more entries: variance and factors are broadcast along."""
    return Gaussian(mean, x.variance.expand_as(mean), x.columns(lambda column: column.expand_as(mean)))


def scaled(x: Gaussian, scale: Scalar) -> Gaussian:
    """x times a constant."""
    return Gaussian(x.mean * scale, x.variance * (scale * scale), x.columns(lambda column: column * scale))


@rule(aten.add.Tensor, aten.add.Scalar, tracker=same_entry, takes="counts")
def add(a: Gaussian | Scalar, b: Gaussian | Scalar, alpha: float = 1) -> Gaussian:
    """a + αb: factors add, independent variances add."""
    if isinstance(a, Gaussian):
        return _sum(a, b, alpha) if isinstance(b, Gaussian) else _shifted(a, a.mean + alpha * b)
    assert isinstance(b, Gaussian)
    product = scaled(b, alpha)
    return _shifted(product, a + product.mean)


@rule(aten.sub.Tensor, aten.sub.Scalar, tracker=same_entry, takes="counts")
def sub(a: Gaussian | Scalar, b: Gaussian | Scalar, alpha: float = 1) -> Gaussian:
    """a − αb."""
    return add(a, b, -alpha)


@rule(aten.rsub.Scalar, aten.rsub.Tensor, tracker=same_entry, takes="counts")
def rsub(a: Gaussian | Scalar, b: Gaussian | Scalar, alpha: float = 1) -> Gaussian:
    """b − αa."""
    return add(b, a, -alpha)


@rule(aten.mul.Tensor, aten.mul.Scalar, tracker=same_entry, takes="counts")
def mul(a: Gaussian | Scalar, b: Gaussian | Scalar) -> Gaussian:
    """a·b; see the module's docstring."""
    if isinstance(a, Gaussian) and isinstance(b, Gaussian):
        return square(a) if a is b else product(a, b)
    if isinstance(a, Gaussian):
        assert not isinstance(b, Gaussian)
        return scaled(a, b)
    assert isinstance(b, Gaussian)
    return scaled(b, a)


@rule(aten.lerp.Scalar, aten.lerp.Tensor, tracker=same_entry)
def lerp(a: Any, b: Any, weight: Any) -> Gaussian:
    """a + w(b − a); with a constant w as (1 − w)a + wb, in which each value occurs once."""
    if depends(weight):
        return add(a, mul(weight, sub(b, a) if depends(a) or depends(b) else b - a))  # type: ignore[no-any-return]
    if a is b:
        return a  # type: ignore[no-any-return]
    parts = (scaled(x, w) if depends(x) else x * w for x, w in ((a, 1 - weight), (b, weight)))
    return add(*parts)  # type: ignore[no-any-return]


def product(a: Gaussian, b: Gaussian) -> Gaussian:
    """The product of two random values."""
    mean = a.mean * b.mean
    variance = a.mean**2 * b.variance + b.mean**2 * a.variance + a.total_variance * b.total_variance
    if a.factors is None or b.factors is None:
        return Gaussian(mean, variance)
    covariance = torch.vmap(torch.mul)(a.factors, b.factors).sum(0)
    factors = torch.vmap(lambda x, y: a.mean * y + b.mean * x)(a.factors, b.factors)
    return Gaussian(mean + covariance, variance + covariance**2, factors)


@rule(aten.div.Tensor, aten.div.Scalar, tracker=same_entry, takes="counts")
def div(a: Gaussian | Scalar, b: Gaussian | Scalar) -> Gaussian:
    """a/b; for a random divisor a·b⁻¹ with the moments of `power`."""
    if not isinstance(b, Gaussian):
        assert isinstance(a, Gaussian)
        return Gaussian(a.mean / b, a.variance / (b * b), a.columns(lambda column: column / b))
    if a is b:
        return a.constant(torch.ones_like(a.mean))
    return mul(a, power(b, -1))


@rule(aten.square.default, tracker=same_entry)
def square(x: Gaussian) -> Gaussian:
    """x²:  mean μ² + σ²,  slope 2μ,  rest 2σ⁴."""
    variance = x.total_variance
    return x.through(x.mean**2 + variance, 2 * x.mean, 2 * variance**2)


@rule(aten.pow.Tensor_Scalar, tracker=same_entry)
def power(x: Gaussian, exponent: float) -> Gaussian:
    """xᵖ. Exact for p = 1, 2 and by quadrature for other natural numbers. Otherwise there is a pole or branch point at
    0, which x must stay away from, and x is taken as log-normal with the same mean and variance. With ρ = σ²/μ²:

        mean = μᵖ(1 + ρ)^(p(p−1)/2),   Var = mean²((1 + ρ)^(p²) − 1),   slope ≈ p·μ^(p−1)(1 + ρ)^((p−1)(p−2)/2)
    """
    if exponent == 1:
        return x
    if exponent == 2:
        return square(x)
    if exponent >= 0 and float(exponent).is_integer():
        return integrated(x, lambda at: at**exponent)
    return x.through(*power_moments(x.mean, x.total_variance, exponent))


@rule(aten.pow.Tensor_Tensor, aten.pow.Scalar, tracker=same_entry)
def power_of(base: Any, exponent: Any) -> Gaussian:
    """xᵖ as `power` has it for any p; with a random exponent bˣ = exp(x·log b)."""
    if isinstance(exponent, Gaussian):
        return exp(mul(exponent, log(base) if depends(base) else torch.as_tensor(base).to(exponent.mean).log()))  # type: ignore[no-any-return]
    base, _ = same_shape(base, exponent)
    return base.through(*power_moments(base.mean, base.total_variance, exponent))


def power_moments(mean: Tensor, variance: Tensor, exponent: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, slope and residual of a power of a positive value, taken as log-normal; see `power`."""
    log = _log_spread(mean, variance)

    def expectation(p: float | Tensor) -> Tensor:
        return mean**p * torch.exp(log * (p * (p - 1) / 2))

    first, slope = expectation(exponent), exponent * expectation(exponent - 1)
    total = first**2 * torch.expm1(log * exponent**2)
    slope = slope.sign() * torch.minimum(slope.abs(), _ratio(total, variance).sqrt())
    return first, slope, nonnegative(total - slope**2 * variance)


def _log_spread(mean: Tensor, variance: Tensor) -> Tensor:
    """log(1 + ρ), the variance of the logarithm; 0 for a certain 0."""
    nothing = (mean == 0) & (variance == 0)
    return torch.log1p(variance / torch.where(nothing, 1, mean) ** 2)


def _ratio(total: Tensor, variance: Tensor) -> Tensor:
    """total/variance, and a large number where the variance is 0 and no bound is needed."""
    return torch.where(variance > 0, total / torch.where(variance > 0, variance, 1), torch.finfo(total.dtype).max)


@rule(aten.reciprocal.default, tracker=same_entry)
def reciprocal(x: Gaussian) -> Gaussian:
    """x⁻¹, see `power`."""
    return power(x, -1)


@rule(aten.sqrt.default, tracker=same_entry)
def sqrt(x: Gaussian) -> Gaussian:
    """x^½, see `power`."""
    return power(x, 0.5)


@rule(aten.rsqrt.default, tracker=same_entry)
def rsqrt(x: Gaussian) -> Gaussian:
    """x^−½, see `power`."""
    return power(x, -0.5)


@rule(aten.log.default, tracker=same_entry)
def log(x: Gaussian) -> Gaussian:
    """log x for x taken as log-normal:  mean log μ − ½log(1 + ρ),  Var log(1 + ρ),  slope 1/μ at most."""
    variance = x.total_variance
    total = _log_spread(x.mean, variance)
    slope = torch.minimum(1 / x.mean, _ratio(total, variance).sqrt())
    return x.through(x.mean.log() - total / 2, slope, nonnegative(total - slope**2 * variance))


@rule(aten.log1p.default, tracker=same_entry)
def log1p(x: Gaussian) -> Gaussian:
    """log(1 + x), see `log`."""
    return log(add(x, 1.0))  # type: ignore[no-any-return]


@rule(aten.log2.default, tracker=same_entry)
def log2(x: Gaussian) -> Gaussian:
    """log x/log 2."""
    return scaled(log(x), 1 / math.log(2))


@rule(aten.log10.default, tracker=same_entry)
def log10(x: Gaussian) -> Gaussian:
    """log x/log 10."""
    return scaled(log(x), 1 / math.log(10))


@rule(aten.exp2.default, tracker=same_entry)
def exp2(x: Gaussian) -> Gaussian:
    """2ˣ."""
    return exp(scaled(x, math.log(2)))  # type: ignore[no-any-return]


@rule(aten.xlogy.Tensor, tracker=same_entry)
def xlogy(a: Any, b: Any) -> Gaussian:
    """a·log b."""
    return mul(a, log(b) if depends(b) else torch.as_tensor(b).log())  # type: ignore[no-any-return]


@rule(aten.prod.dim_int, tracker=within(dimensions, keepdim=lambda x, dim, keepdim=False, dtype=None: keepdim))
def prod(x: Gaussian, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None) -> Gaussian:
    """Π x, in pairs."""
    x = in_pairs(x, dim, product)
    if keepdim:
        return x
    return Gaussian(x.mean.squeeze(dim), x.variance.squeeze(dim), x.columns(lambda column: column.squeeze(dim)))
