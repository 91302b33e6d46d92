"""Maxima and minima, two at a time by Clark's moments (`dasp.propagation.gaussian.maximum_moments`).

A maximum of many is a balanced tree of pairs; a pooling window is the maximum along each of its dimensions in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dasp.propagation.gaussian import Gaussian, maximum_moments
from dasp.propagation.rules.affine import adaptive_windows, each_dimension
from dasp.propagation.rules.registry import rule, same_entry, within
from dasp.propagation.rules.structural import cat

aten = torch.ops.aten


def negative(x: Gaussian) -> Gaussian:
    """−x."""
    return Gaussian(-x.mean, x.variance, None if x.factors is None else -x.factors)


def same_shape(a: Gaussian | Tensor, b: Gaussian | Tensor) -> tuple[Gaussian, Gaussian]:
    """Return both as Gaussians of the same shape."""
    random = a if isinstance(a, Gaussian) else b
    assert isinstance(random, Gaussian)
    left, right = (x if isinstance(x, Gaussian) else random.constant(x) for x in (a, b))
    shape = torch.broadcast_shapes(left.mean.shape, right.mean.shape)
    return left.map(lambda t: t.expand(shape)), right.map(lambda t: t.expand(shape))


@rule(aten.maximum.default, aten.max.other, aten.fmax.default, tracker=same_entry)
def maximum(a: Gaussian | Tensor, b: Gaussian | Tensor) -> Gaussian:
    """max(a, b), entry by entry."""
    return a if a is b and isinstance(a, Gaussian) else maximum_moments(*same_shape(a, b))


@rule(aten.minimum.default, aten.min.other, aten.fmin.default, tracker=same_entry)
def minimum(a: Gaussian | Tensor, b: Gaussian | Tensor) -> Gaussian:
    """min(a, b) = −max(−a, −b)."""
    left, right = same_shape(a, b)
    return negative(maximum(negative(left), negative(right)))


def _narrowed(x: Gaussian, dim: int, start: int, size: int) -> Gaussian:
    return x.map(lambda t: t.narrow(dim, start, size))


def tree(values: list[Gaussian], pair: Callable[[Gaussian, Gaussian], Gaussian] = maximum_moments) -> Gaussian:
    """The maximum of a list, or another function of two values applied to all of it, in pairs of neighbours."""
    while len(values) > 1:
        pairs = [pair(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]


def in_pairs(x: Gaussian, dim: int, pair: Callable[[Gaussian, Gaussian], Gaussian]) -> Gaussian:
    """Apply a function of two values to all along a dimension, halves against halves, until its length is 1."""
    while (length := x.mean.shape[dim]) > 1:
        half = length // 2
        first, second = _narrowed(x, dim, 0, half), _narrowed(x, dim, half, half)
        left = _narrowed(x, dim, 2 * half, length - 2 * half)
        x = pair(first, second)
        if length % 2:
            x = cat([x, left], dim)
    return x


def dimensions(x: Tensor, dim: int | Sequence[int] | None = (), *_: Any, **__: Any) -> list[int]:
    """The dimensions of a reduction, counted from the front; all if none are given."""
    given = [dim] if isinstance(dim, int) else list(dim or ())
    return [d % x.dim() for d in given] or list(range(x.dim()))


_reduced = within(dimensions, keepdim=lambda x, dim=(), keepdim=False: keepdim)


@rule(aten.amax.default, tracker=_reduced)
def amax(x: Gaussian, dim: Any = (), keepdim: bool = False) -> Gaussian:
    """max over dimensions."""
    dims = dimensions(x.mean, dim)
    for d in dims:
        x = in_pairs(x, d, maximum_moments)
    return x if keepdim else x.map(lambda t: t.squeeze(tuple(dims)))


@rule(aten.amin.default, tracker=_reduced)
def amin(x: Gaussian, dim: Any = (), keepdim: bool = False) -> Gaussian:
    """min over dimensions."""
    return negative(amax(negative(x), dim, keepdim))


def _pool(x: Gaussian, dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Gaussian:
    for d, each in enumerate(geometry(dims, kernel, stride, padding, dilation)):
        x = _windows(x, d - dims, *each, ceil_mode)
    return x


def geometry(dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any) -> list[tuple[int, int, int, int]]:
    """Kernel size, stride, padding and dilation of each dimension; without a stride it is the kernel size."""
    stride = stride if stride not in ((), [], None) else kernel
    sizes, steps, borders, spacings = (each_dimension(x, dims) for x in (kernel, stride, padding, dilation))
    return list(zip(sizes, steps, borders, spacings, strict=True))


def window_count(length: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Return the number of pooling windows along a dimension."""
    room = length + 2 * padding - dilation * (kernel - 1) - 1
    outputs = (-(-room // stride) if ceil_mode else room // stride) + 1
    # A window must start inside the input or its left border.
    return outputs - 1 if ceil_mode and (outputs - 1) * stride >= length + padding else outputs


def _windows(x: Gaussian, dim: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> Gaussian:
    """Sliding maxima along one dimension (counted from the end): the maximum of `kernel` shifted slices."""
    length, reach = x.mean.shape[dim], dilation * (kernel - 1) + 1
    outputs = window_count(length, kernel, stride, padding, dilation, ceil_mode)
    right = max((outputs - 1) * stride + reach - length - padding, 0)
    if padding or right:
        border = [0, 0] * (-dim - 1) + [padding, right]
        x = _bordered(x, border)
    position = x.mean.dim() + dim

    def shifted(offset: int) -> Gaussian:
        index = (slice(None),) * position + (slice(offset, offset + (outputs - 1) * stride + 1, stride),)
        factors = None if x.factors is None else x.factors[(slice(None), *index)]
        return Gaussian(x.mean[index], x.variance[index], factors)

    return tree([shifted(i * dilation) for i in range(kernel)])


def below(x: Gaussian) -> Tensor:
    """A number that is certainly below every entry, but of their magnitude, so that differences with it are exact
    enough."""
    lowest = x.mean.detach().amin()
    return lowest - lowest.abs() - 1 - 10 * x.total_variance.detach().amax().sqrt()


def _bordered(x: Gaussian, border: list[int]) -> Gaussian:
    """A border that is certain, and certainly below every value."""
    inside = functional.pad(torch.ones_like(x.mean, dtype=torch.bool), border)
    return Gaussian(
        torch.where(inside, functional.pad(x.mean, border), below(x)),
        functional.pad(x.variance, border),
        x.columns(lambda column: functional.pad(column, border)),
    )


@rule(aten.max_pool1d.default)
def max_pool1d(
    x: Gaussian, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Gaussian:
    """Window maxima along one dimension."""
    return _pool(x, 1, kernel, stride, padding, dilation, ceil_mode)


@rule(aten.max_pool2d.default)
def max_pool2d(
    x: Gaussian, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Gaussian:
    """Window maxima: along the rows, then along the columns."""
    return _pool(x, 2, kernel, stride, padding, dilation, ceil_mode)


@rule(aten.max_pool3d.default)
def max_pool3d(
    x: Gaussian, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Gaussian:
    """Window maxima along the three dimensions in turn."""
    return _pool(x, 3, kernel, stride, padding, dilation, ceil_mode)


@rule(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default, outputs=1)
def adaptive_max_pool(x: Gaussian, sizes: Any) -> tuple[Gaussian]:
    """Window maxima; windows may differ in length by one, and overlap."""
    wanted = [sizes] if isinstance(sizes, int) else list(sizes)
    for d, outputs in enumerate(wanted):
        dim = x.mean.dim() - len(wanted) + d
        windows = adaptive_windows(x.mean.shape[dim], outputs)
        parts = [_narrowed(x, dim, start, end - start) for start, end in windows]
        x = cat([in_pairs(part, dim, maximum_moments) for part in parts], dim)
    return (x,)
