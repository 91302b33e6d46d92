"""Softmax, its logarithm, and the logarithm of a sum of exponentials.

**Softmax** is the sigmoid of the log-odds of each entry against all others,

    softmax(x)_j = σ(d_j),   log softmax(x)_j = log σ(d_j),   d_j = x_j − log Σ_{k≠j} exp x_k

so that one-dimensional quadrature gives its moments once d_j is a Gaussian; for two entries it is one. For more, with
w_k = softmax of the others at their means, V their total variances and u = Var(Σ w_k x_k), the logarithm is expanded to

    log Σ exp x_k ≈ log Σ exp μ_k + ½(Σ w_k V_k − u) + Σ w_k (x_k − μ_k)

which is the mean to second order and the noise to first. For normal x this has a fraction of the error of first-order
propagation. A softmax leaves the second-order term out and divides by its sum instead, which takes the sum out of the
mean and, to first order, out of the shared noise: that is less near for normal x, but nearer for the logits of
attention, which are products, and far from normal.

**log Σ exp** is taken two at a time, as the maximum is: log(eᵃ + eᵇ) = b + softplus(a − b) = a + softplus(b − a).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dasp.propagation.gaussian import Gaussian, nonnegative
from dasp.propagation.moments import SIGMOID, Smooth
from dasp.propagation.rules.activations import applied, integrated_moments
from dasp.propagation.rules.arithmetic import div
from dasp.propagation.rules.maximum import dimensions, in_pairs, same_shape
from dasp.propagation.rules.registry import rule, same_entry, within

aten = torch.ops.aten

_along = within(lambda x, dim, *_, **__: [dim], keepdim=lambda *_, **__: None)


def log_odds(x: Gaussian, dim: int, *, curved: bool) -> Gaussian:
    """Log-odds of each entry along `dim` against all others, with the second-order term if `curved`.

    What concerns all entries but one is a sum over all minus that one, except for the largest entry: there the others
    are summed by themselves, as the difference would cancel.
    """
    lowest = torch.finfo(x.mean.dtype).min / 4  # in place of −∞, as a mask makes it: differences are numbers there
    mean = (x.mean - x.mean.detach().amax(dim, keepdim=True)).clamp(min=lowest)
    largest = torch.zeros_like(mean, dtype=torch.bool).scatter(dim, mean.argmax(dim, keepdim=True), True)
    below = mean.masked_fill(largest, -torch.inf)
    shares, beside_largest = mean.softmax(dim), below.softmax(dim)
    share = torch.where(largest, 0, shares)  # at most ½

    def others(values: Tensor, power: int) -> Tensor:
        """Σ_{k≠j} w_kᵖ·values_k."""
        beside = (beside_largest**power * values).sum(dim, keepdim=True)
        weighted = shares**power * values
        return torch.where(largest, beside, (weighted.sum(dim, keepdim=True) - weighted) / (1 - share) ** power)

    own = nonnegative(others(x.variance, 2))
    columns = x.columns(lambda column: others(column, 1))
    sums = torch.where(
        largest, below.logsumexp(dim, keepdim=True), mean.logsumexp(dim, keepdim=True) + torch.log1p(-share)
    )
    if curved:
        spread = own if columns is None else own + columns.square().sum(0)
        sums = sums + nonnegative(others(x.total_variance, 1) - spread) / 2
    factors = None if columns is None or x.factors is None else x.factors - columns
    return Gaussian(mean - sums, x.variance + own, factors)


def _cast(x: Gaussian, dtype: torch.dtype | None) -> Gaussian:
    if dtype is None or dtype == x.mean.dtype:
        return x
    return x.map(lambda part: part.to(dtype))


@rule(aten.softmax.int, tracker=_along)
def softmax(x: Gaussian, dim: int, dtype: torch.dtype | None = None) -> Gaussian:
    """exp x_j / Σ exp x_k; see the module's docstring."""
    x = _cast(x, dtype)
    if x.mean.shape[dim] == 1:
        return x.constant(torch.ones_like(x.mean))
    result = applied(log_odds(x, dim, curved=False), SIGMOID)
    result = div(result, result.mean.sum(dim, keepdim=True))
    factors = result.columns(lambda column: column - result.mean * column.sum(dim, keepdim=True))
    return replace(result, factors=factors)


@rule(aten.log_softmax.int, tracker=_along)
def log_softmax(x: Gaussian, dim: int, dtype: torch.dtype | None = None) -> Gaussian:
    """x_j − log Σ exp x_k; see the module's docstring."""
    x = _cast(x, dtype)
    if x.mean.shape[dim] == 1:
        return x.constant(torch.zeros_like(x.mean))
    return applied(log_odds(x, dim, curved=True), Smooth(functional.logsigmoid))


@rule(aten._softmax.default, aten._safe_softmax.default, tracker=_along)
def inner_softmax(x: Gaussian, dim: int, half_to_float: Any = False) -> Gaussian:
    """Softmax, as decompositions have it."""
    return softmax(x, dim)  # type: ignore[no-any-return]


@rule(aten._log_softmax.default, tracker=_along)
def inner_log_softmax(x: Gaussian, dim: int, half_to_float: bool = False) -> Gaussian:
    """log softmax, as decompositions have it."""
    return log_softmax(x, dim)  # type: ignore[no-any-return]


def _logaddexp(a: Gaussian, b: Gaussian) -> Gaussian:
    """From the larger one, max(a, b) + softplus(−|a − b|) at the means, so that −∞ adds nothing."""
    spread = a.variance + b.variance
    if a.factors is not None and b.factors is not None:
        spread = spread + (a.factors - b.factors).square().sum(0)
    difference = torch.where(a.mean == b.mean, 0, a.mean - b.mean)  # −∞ from −∞, too
    moments = integrated_moments(-difference.abs(), spread, lambda d: torch.logaddexp(d, d.new_zeros(())))
    surplus, smaller, total = moments
    assert smaller is not None
    p = torch.where(difference > 0, 1 - smaller, smaller)
    variance = nonnegative(total - smaller**2 * spread) + p * p * a.variance + (1 - p) ** 2 * b.variance
    mean = torch.maximum(a.mean, b.mean) + surplus
    if a.factors is None or b.factors is None:
        return Gaussian(mean, variance)
    return Gaussian(mean, variance, torch.lerp(b.factors, a.factors, p))


@rule(aten.logaddexp.default, tracker=same_entry)
def logaddexp(a: Gaussian | Tensor, b: Gaussian | Tensor) -> Gaussian:
    """log(eᵃ + eᵇ) = b + softplus(a − b)."""
    return _logaddexp(*same_shape(a, b))


@rule(aten.logsumexp.default, tracker=within(dimensions, keepdim=lambda x, dim=(), keepdim=False: keepdim))
def logsumexp(x: Gaussian, dim: int | Sequence[int], keepdim: bool = False) -> Gaussian:
    """log Σ exp x_k, in pairs."""
    dims = dimensions(x.mean, dim)
    for d in dims:
        x = in_pairs(x, d, _logaddexp)
    if keepdim:
        return x
    return x.map(lambda part: part.squeeze(tuple(dims)))
