"""Norms, and values divided by them: LayerNorm, RMSNorm, GroupNorm, InstanceNorm, cosines.

A sum of squares s = Σ_k x_k² of Gaussians with means μ, own variances v, factors F and covariance C = diag v + FᵀF has

    mean Σ(μ_k² + C_kk),   Cov(s, x_i) = 2(Cμ)_i,   variance 4μᵀCμ + 2 tr C²

exactly; its factors are 2Fμ. With g(s) = s^−½, s taken as log-normal (see `arithmetic.power_moments`), Stein gives

    E[x_i g(s)] ≈ μ_i E[g] + E[g']·Cov(s, x_i)

and the noise of x_i g(s) to first order is E[g]·(that of x_i) + μ_i E[g']·(that of s). So values are divided by the
root mean square of their distribution, not by that of their means. Centred values x − x̄ have own variances
v_i(1 − 2/n) + v̄/n, and as μ sums to 0 only the terms in v² change. Second-order terms
of the variance are left out: as the result is bounded they would make it too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dasp.propagation.gaussian import Gaussian, nonnegative
from dasp.propagation.rules.activations import abs as absolute
from dasp.propagation.rules.arithmetic import add, mul, power, power_moments
from dasp.propagation.rules.conditions import ne
from dasp.propagation.rules.maximum import amax, dimensions
from dasp.propagation.rules.registry import rule, within

aten = torch.ops.aten


def _flat(x: Gaussian, dims: Sequence[int]) -> Gaussian:
    """Return the value with these dimensions as one, the last."""
    last = range(-len(dims), 0)
    return x.map(lambda t: t.movedim(tuple(dims), tuple(last)).flatten(-len(dims)))


@dataclass(frozen=True)
class _Squares:
    """Values along the last dimension, and the sum of their squares, which keeps it with length 1."""

    x: Gaussian
    sum: Gaussian
    own: Tensor  # covariance of each value's own noise with the sum

    @property
    def covariance(self) -> Tensor:
        """Covariance of each value with the sum."""
        return self.own + self.x.covariance(self.sum)


def _squares(x: Gaussian, *, centred: bool) -> _Squares:
    n, v = x.mean.shape[-1], x.variance

    def average(t: Tensor) -> Tensor:
        return t.mean(-1, keepdim=True)

    if centred:
        mean, factors = x.mean - average(x.mean), x.columns(lambda column: column - average(column))
        x = Gaussian(mean, v * (1 - 2 / n) + average(v) / n if n > 1 else torch.zeros_like(v), factors)
    pull = x.mean * v
    own = 2 * (pull - average(pull)) if centred else 2 * pull
    variance = 4 * (x.mean * pull).sum(-1, keepdim=True) + 2 * (v * v).sum(-1, keepdim=True)
    if centred:
        variance = nonnegative(variance - 4 / n * (v * v).sum(-1, keepdim=True) + 2 * average(v) ** 2)
    total = x.total_variance
    first = (x.mean**2 + total).sum(-1, keepdim=True)
    if x.factors is None:
        return _Squares(x, Gaussian(first, variance), own)
    gram = torch.einsum("r...n,s...n->rs...", x.factors, x.factors).square().sum((0, 1)).unsqueeze(-1)
    shared = ((total - x.variance) * v).sum(-1, keepdim=True)
    columns = x.columns(lambda column: 2 * (column * x.mean).sum(-1, keepdim=True))
    return _Squares(x, Gaussian(first, variance + 2 * gram + 4 * shared, columns), own)


def normalized(x: Gaussian, *, centred: bool, scale: float, eps: float) -> Gaussian:
    """x or x − x̄ along the last dimension, times (scale·s + eps)^−½ for the sum s of its squares."""
    squares = _squares(x, centred=centred)
    s = squares.sum
    mean, slope, _ = power_moments(scale * s.mean + eps, scale**2 * s.total_variance, -0.5)
    return _multiplied(squares, mean, slope * scale)


_LEAST = 1e-3  # of a sum of squares, as the deviation that its slope is taken with


def by_own_norm(
    x: Gaussian, dims: Sequence[int], function: Callable[[Gaussian], Gaussian], *, centred: bool
) -> Gaussian:
    """x·g(s), or (x − x̄)·g(s), for the sum s of its squares along dimensions; `function` gives the moments of g."""
    sizes, last = [x.mean.shape[d] for d in dims], tuple(range(-len(dims), 0))
    squares = _squares(_flat(x, dims), centred=centred)
    s = squares.sum
    spread = s.total_variance
    level = torch.where(s.mean > 0, s.mean, 1)
    deviation = torch.maximum(spread, (_LEAST * level) ** 2).sqrt()
    probe = function(Gaussian(level, torch.zeros_like(level), deviation[None]))
    assert probe.factors is not None
    result = _multiplied(squares, function(Gaussian(s.mean, spread)).mean, probe.factors[0] / deviation)
    return result.map(lambda t: t.unflatten(-1, sizes).movedim(last, tuple(dims)))


def _multiplied(squares: _Squares, mean: Tensor, slope: Tensor) -> Gaussian:
    """x·g(s) by E[g] and E[g']; see the module's docstring."""
    x, s = squares.x, squares.sum
    own = mean**2 * x.variance + (x.mean * slope) ** 2 * s.variance + 2 * mean * x.mean * slope * squares.own
    factors = None
    if x.factors is not None and s.factors is not None:
        factors = mean * x.factors + x.mean * slope * s.factors
    return Gaussian(x.mean * mean + slope * squares.covariance, nonnegative(own), factors)


def _affine(x: Gaussian, weight: Tensor | None, bias: Tensor | None) -> Gaussian:
    if weight is not None:
        x = mul(x, weight)
    return x if bias is None else add(x, bias)


def _per_channel(parameter: Tensor | None, x: Gaussian) -> Tensor | None:
    return None if parameter is None else parameter.view(-1, *[1] * (x.mean.dim() - 2))


_over_shape = within(lambda x, shape, *_, **__: range(-len(shape), 0), keepdim=lambda *_, **__: None)


@rule(aten.layer_norm.default, tracker=_over_shape)
def layer_norm(
    x: Gaussian,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Gaussian:
    """(x − x̄)/√(mean (x − x̄)² + eps)·weight + bias over the last dimensions."""
    return _affine(_over_last(x, shape, eps, centred=True), weight, bias)


@rule(aten.rms_norm.default, tracker=_over_shape)
def rms_norm(x: Gaussian, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Gaussian:
    """x/√(mean x² + eps)·weight over the last dimensions."""
    eps = torch.finfo(x.mean.dtype).eps if eps is None else eps
    return _affine(_over_last(x, shape, eps, centred=False), weight, None)


def _over_last(x: Gaussian, shape: Sequence[int], eps: float, *, centred: bool) -> Gaussian:
    flat = x.map(lambda t: t.flatten(-len(shape)))
    result = normalized(flat, centred=centred, scale=1 / flat.mean.shape[-1], eps=eps)
    return result.map(lambda t: t.unflatten(-1, tuple(shape)))


@rule(aten.group_norm.default)
def group_norm(
    x: Gaussian,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Gaussian:
    """LayerNorm over each group of channels and all places; weight and bias are the channels'."""
    shape = x.mean.shape[1:]
    flat = x.map(lambda t: t.flatten(1).unflatten(1, (groups, -1)))
    result = normalized(flat, centred=True, scale=1 / flat.mean.shape[-1], eps=eps)
    result = result.map(lambda t: t.flatten(1).unflatten(1, shape))
    return _affine(result, _per_channel(weight, x), _per_channel(bias, x))


@rule(aten.instance_norm.default)
def instance_norm(
    x: Gaussian,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    use_input_stats: bool,
    *momentum_eps_cudnn: Any,
) -> Gaussian:
    """GroupNorm with a group per channel or, with running statistics, batch norm."""
    _, eps, _ = momentum_eps_cudnn
    if use_input_stats:
        return group_norm(x, x.mean.shape[1], weight, bias, eps)  # type: ignore[no-any-return]
    assert mean is not None
    assert variance is not None
    centred = add(x, -mean.view(-1, *[1] * (x.mean.dim() - 2)))
    scaled = mul(centred, torch.rsqrt(variance + eps).view(-1, *[1] * (x.mean.dim() - 2)))
    return _affine(scaled, _per_channel(weight, x), _per_channel(bias, x))


def _reduced(x: Gaussian, dim: Any, keepdim: bool, function: Callable[[Gaussian], Gaussian]) -> Gaussian:
    """Apply a function along the last dimension along any others."""
    dims = dimensions(x.mean, dim)
    result = function(_flat(x, dims))
    if not keepdim:
        return result.map(lambda t: t.squeeze(-1))
    shape = [1 if d in dims else size for d, size in enumerate(x.mean.shape)]
    return result.map(lambda t: t.reshape(shape))


_over_dims = within(dimensions, keepdim=lambda x, dim=None, *, correction=None, keepdim=False: keepdim)


@rule(aten.var.correction, tracker=_over_dims)
def var(x: Gaussian, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Gaussian:
    """Σ(x − x̄)²/(n − correction)."""
    freedom = -1.0 if correction is None else -float(correction)

    def along(x: Gaussian) -> Gaussian:
        return mul(_squares(x, centred=True).sum, 1 / (x.mean.shape[-1] + freedom))  # type: ignore[no-any-return]

    return _reduced(x, dim, keepdim, along)


@rule(aten.std.correction, tracker=_over_dims)
def std(x: Gaussian, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Gaussian:
    """The root of `var`."""
    return power(var(x, dim, correction=correction, keepdim=keepdim), 0.5)  # type: ignore[no-any-return]


def _over_dims_both(op: Any, *args: Any, **kwargs: Any) -> Any:
    players = _over_dims(op, *args, **kwargs)
    return None if players is None else (players, players)


@rule(aten.var_mean.correction, tracker=_over_dims_both)
def var_mean(
    x: Gaussian, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Gaussian, Gaussian]:
    """`var`, and Σ x/n."""
    dims = dimensions(x.mean, dim)
    mean = x.map(lambda t: t.mean(dims, keepdim))
    count = math.prod(x.mean.shape[d] for d in dims)
    spread = var(x, dim, correction=correction, keepdim=keepdim)
    return spread, replace(mean, variance=mean.variance / count)


@rule(aten.var.dim, tracker=within(dimensions, keepdim=lambda x, dim, unbiased=True, keepdim=False: keepdim))
def var_dim(x: Gaussian, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Gaussian:
    """Σ(x − x̄)²/(n − 1), or /n."""
    return var(x, dim, correction=int(unbiased), keepdim=keepdim)  # type: ignore[no-any-return]


@rule(aten.std.dim, tracker=within(dimensions, keepdim=lambda x, dim, unbiased=True, keepdim=False: keepdim))
def std_dim(x: Gaussian, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Gaussian:
    """The root of `var_dim`."""
    return std(x, dim, correction=int(unbiased), keepdim=keepdim)  # type: ignore[no-any-return]


def _along_norm(x: Any, order: float = 2, dim: Any = None, *_: Any, **__: Any) -> list[int]:
    return dimensions(x, dim)


@rule(
    aten.linalg_vector_norm.default,
    tracker=within(_along_norm, keepdim=lambda x, order=2, dim=None, keepdim=False, **_: keepdim),
)
def vector_norm(
    x: Gaussian, order: float = 2, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Gaussian:
    """(Σ|x|ᵖ)^(1/p); the largest |x| for p = ∞, the number of x ≠ 0 for p = 0."""
    if order == 0:
        return ne(x, 0.0).map(lambda t: t.sum(dimensions(x.mean, dim), keepdim))
    if order == 2:
        return _reduced(x, dim, keepdim, lambda flat: power(_squares(flat, centred=False).sum, 0.5))
    if order < 0:
        raise ValueError(f"a norm of order {order} has no moments here: use a positive order, or amin of abs")
    if order == float("inf"):
        return amax(absolute(x), dimensions(x.mean, dim), keepdim)  # type: ignore[no-any-return]
    powers = absolute(x) if order == 1 else power(absolute(x), order)
    dims = dimensions(x.mean, dim)
    sums = Gaussian(
        powers.mean.sum(dims, keepdim),
        powers.variance.sum(dims, keepdim),
        powers.columns(lambda t: t.sum(dims, keepdim)),
    )
    return power(sums, 1 / order)  # type: ignore[no-any-return]


@rule(aten.cosine_similarity.default)
def cosine_similarity(a: Gaussian | Tensor, b: Gaussian | Tensor, dim: int = 1, eps: float = 1e-8) -> Gaussian:
    """Σ ab/(|a||b|): both divided by their norms, multiplied and summed."""
    dim = dim if dim < 0 else dim - max(x.mean.dim() if isinstance(x, Gaussian) else x.dim() for x in (a, b))

    def unit(x: Gaussian | Tensor) -> Any:
        if isinstance(x, Tensor):
            return torch.nn.functional.normalize(x, dim=dim, eps=eps)
        units = normalized(_flat(x, [dim]), centred=False, scale=1.0, eps=eps**2)
        return units.map(lambda t: t.movedim(-1, dim))

    return mul(unit(a), unit(b)).map(lambda t: t.sum(dim))  # type: ignore[no-any-return]
