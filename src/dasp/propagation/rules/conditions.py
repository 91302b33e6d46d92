"""Conditions on random values, and what is chosen by them.

A condition is the number 1 where it holds and 0 where it does not. That x > 0, for x ~ N(μ, σ²) with a = μ/σ, has

    mean p = Φ(a),   slope φ(a)/σ,   rest p(1 − p) − φ(a)²

as Stein's E[g'] of a step is the density of x at it. Conditions are combined as numbers: "and" is a product, "not" the
difference from 1. A **choice** by a condition m between y and z is z + m(y − z). With d = y − z and c = Cov(m, d) its

    mean = μ_z + pμ_d + c,   factors p·f_y + (1 − p)f_z + μ_d·f_m
    rest p²v_y + (1 − p)²v_z + μ_d²v_m + p(1 − p)V_d + c²

where v is the independent and V the total variance; the mean is exact if all is normal, as the variance is if m is
independent of y and z. Where the condition and the choices are functions of the same value, entry by entry, they are
taken together instead (`dasp.propagation.fusion`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dasp.errors import Operation, UnsupportedOperation
from dasp.propagation.gaussian import Gaussian, density, distribution, nonnegative, standardized
from dasp.propagation.rules.arithmetic import add, product, rsub, sub
from dasp.propagation.rules.maximum import dimensions, in_pairs
from dasp.propagation.rules.registry import RULES, Rule, rule, same_entry, within

aten = torch.ops.aten
_HUGE = 1e3


def _step(x: Gaussian, below: float, above: float, certain: Tensor) -> Gaussian:
    """`below` for x < 0 and `above` for x > 0; `certain` where x has no noise."""
    a, deviation = standardized(x.mean, x.total_variance)
    near, height = deviation > 0, above - below
    tail, pdf = distribution(-a.abs()), density(a)
    mean = torch.where(near, below + height * distribution(a), certain.to(x.mean))
    slope = torch.where(near, height * pdf / torch.where(near, deviation, 1), 0)
    return x.through(mean, slope, height**2 * torch.where(near, nonnegative(tail * (1 - tail) - pdf * pdf), 0))


def _comparison(op: Any, a: Any, b: Any, below: float, above: float) -> Gaussian:
    difference = sub(a, b)
    return _step(difference, below, above, op(difference.mean, 0))


@rule(aten.gt.Scalar, aten.gt.Tensor, tracker=same_entry, takes="counts", condition=True)
def gt(a: Any, b: Any) -> Gaussian:
    """a > b, that is a − b > 0; see the module's docstring."""
    return _comparison(torch.gt, a, b, 0.0, 1.0)


@rule(aten.ge.Scalar, aten.ge.Tensor, tracker=same_entry, takes="counts", condition=True)
def ge(a: Any, b: Any) -> Gaussian:
    """a ≥ b, which differs from a > b only without noise."""
    return _comparison(torch.ge, a, b, 0.0, 1.0)


@rule(aten.lt.Scalar, aten.lt.Tensor, tracker=same_entry, takes="counts", condition=True)
def lt(a: Any, b: Any) -> Gaussian:
    """a < b."""
    return _comparison(torch.lt, a, b, 1.0, 0.0)


@rule(aten.le.Scalar, aten.le.Tensor, tracker=same_entry, takes="counts", condition=True)
def le(a: Any, b: Any) -> Gaussian:
    """a ≤ b."""
    return _comparison(torch.le, a, b, 1.0, 0.0)


@rule(aten.eq.Scalar, aten.eq.Tensor, tracker=same_entry, condition=True)
def eq(a: Any, b: Any) -> Gaussian:
    """a = b, which does not happen where there is noise."""
    difference = sub(a, b)
    certain = difference.total_variance == 0
    return difference.constant(((difference.mean == 0) & certain).to(difference.mean.dtype))


@rule(aten.ne.Scalar, aten.ne.Tensor, tracker=same_entry, condition=True)
def ne(a: Any, b: Any) -> Gaussian:
    """a ≠ b."""
    return logical_not(eq(a, b))  # type: ignore[no-any-return]


@rule(aten.isnan.default, tracker=same_entry, condition=True)
def isnan(x: Gaussian) -> Gaussian:
    """A random value is a number for certain; a constant may be none."""
    return x.constant(x.mean.isnan().to(x.mean.dtype))


@rule(aten.isinf.default, tracker=same_entry, condition=True)
def isinf(x: Gaussian) -> Gaussian:
    """A random value is finite for certain; a constant may be infinite."""
    return x.constant(x.mean.isinf().to(x.mean.dtype))


@rule(aten.sign.default, aten.sgn.default, tracker=same_entry)
def sign(x: Gaussian) -> Gaussian:
    """−1 below 0 and 1 above."""
    return _step(x, -1.0, 1.0, x.mean.sign())


@rule(aten.heaviside.default, tracker=same_entry, condition=True)
def heaviside(x: Gaussian, at: Tensor) -> Gaussian:
    """0 below 0 and 1 above; `at` where x is 0 for certain."""
    return _step(x, 0.0, 1.0, torch.heaviside(x.mean.detach(), at.detach()))


@rule(aten.logical_not.default, aten.bitwise_not.default, tracker=same_entry, takes="conditions", condition=True)
def logical_not(m: Gaussian) -> Gaussian:
    """1 − m."""
    return rsub(m, 1.0)  # type: ignore[no-any-return]


@rule(aten.logical_and.default, aten.bitwise_and.Tensor, tracker=same_entry, takes="conditions", condition=True)
def logical_and(a: Any, b: Any) -> Gaussian:
    """a and b: the product ab."""
    return a if a is b else _as_condition(product(*_numbers(a, b)))  # type: ignore[no-any-return]


@rule(aten.logical_or.default, aten.bitwise_or.Tensor, tracker=same_entry, takes="conditions", condition=True)
def logical_or(a: Any, b: Any) -> Gaussian:
    """1 − (1 − a)(1 − b)."""
    return logical_not(logical_and(*map(logical_not, _numbers(a, b))))  # type: ignore[no-any-return]


@rule(aten.logical_xor.default, aten.bitwise_xor.Tensor, tracker=same_entry, takes="conditions", condition=True)
def logical_xor(a: Any, b: Any) -> Gaussian:
    """(1 − (1 − 2a)(1 − 2b))/2."""
    signs = product(*(add(1.0, x, -2) for x in _numbers(a, b)))
    return _as_condition(add(0.5, signs, -0.5))


def _as_condition(m: Gaussian) -> Gaussian:
    """Return a value that is 0 or 1, with its variance p(1 − p)."""
    p = m.mean.clamp(0, 1)
    return Gaussian(p, nonnegative(p * (1 - p) - m.covariance(m)), m.factors)


_reduced = within(dimensions, keepdim=lambda x, dim, keepdim=False: keepdim)


@rule(aten.any.dim, aten.any.dims, tracker=_reduced, takes="conditions", condition=True)
def any_of(m: Gaussian, dim: Any = None, keepdim: bool = False) -> Gaussian:
    """1 − Π(1 − m), in pairs."""
    dims = dimensions(m.mean, dim)
    for d in dims:
        m = in_pairs(m, d, logical_or)
    if keepdim:
        return m
    at = tuple(dims)
    return Gaussian(m.mean.squeeze(at), m.variance.squeeze(at), m.columns(lambda column: column.squeeze(at)))


def _numbers(*values: Any) -> list[Gaussian]:
    """Gaussians of the same shape of all values; constants have no noise."""
    like = next(x for x in values if isinstance(x, Gaussian))
    alike = [x if isinstance(x, Gaussian) else like.constant(torch.as_tensor(x).to(like.mean)) for x in values]
    shape = torch.broadcast_shapes(*(x.mean.shape for x in alike))

    def expanded(x: Gaussian) -> Gaussian:
        return Gaussian(x.mean.expand(shape), x.variance.expand(shape), x.columns(lambda column: column.expand(shape)))

    return [expanded(x) for x in alike]


@rule(aten.where.self, tracker=same_entry, moves=True, takes="counts")
def where(condition: Tensor | Gaussian, a: Gaussian | Tensor, b: Gaussian | Tensor) -> Gaussian:
    """a or b by a condition; see the module's docstring."""
    if not isinstance(condition, Gaussian):
        a, b = _numbers(a, b)

        def choose(x: Tensor, y: Tensor) -> Tensor:
            return torch.where(condition, x, y)  # type: ignore[arg-type]

        columns = None if a.factors is None or b.factors is None else torch.vmap(choose)(a.factors, b.factors)
        return Gaussian(choose(a.mean, b.mean), choose(a.variance, b.variance), columns)
    _check_moderate(a, b)
    m, y, z = _numbers(condition, a, b)
    difference = y.mean - z.mean
    spread = y.total_variance + z.total_variance - 2 * y.covariance(z)
    covariance = m.covariance(y) - m.covariance(z)
    other = 1 - m.mean
    own = m.mean**2 * y.variance + other**2 * z.variance + difference**2 * m.variance
    factors = None
    if m.factors is not None and y.factors is not None and z.factors is not None:
        factors = m.mean * y.factors + other * z.factors + difference * m.factors
    own = own + m.total_variance * nonnegative(spread) + covariance**2
    return Gaussian(z.mean + m.mean * difference + covariance, own, factors)


def _check_moderate(*values: Any) -> None:
    """Refuse a random choice of what masks a softmax: −10⁹ or nothing has no use for a mean and a variance."""
    if any(isinstance(x, Tensor) and bool((x.abs() > _HUGE).any()) for x in values):
        mask = Operation(
            "aten.where.self", f"a choice by players of a number beyond {_HUGE:g}, as in a mask for softmax"
        )
        raise UnsupportedOperation([mask])


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor, tracker=same_entry, moves=True, takes="counts")
def masked_fill(x: Gaussian | Tensor, mask: Tensor | Gaussian, value: float | Tensor) -> Gaussian:
    """A constant where the mask is set."""
    return where(mask, torch.as_tensor(value), x)  # type: ignore[arg-type, no-any-return]


# Exact before players meet; no rule for random values.
for _op in (aten.floor.default, aten.ceil.default, aten.round.default, aten.trunc.default, aten.frac.default,
            aten.remainder.Scalar, aten.fmod.Scalar):  # fmt: skip
    RULES[_op] = Rule(None, same_entry)
