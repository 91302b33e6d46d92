"""Ops that are affine in one argument: each line gives the linear part with its weights to a power.

With W to the power 1 the linear part maps factor columns, with W² independent variances, and with ones for W it tells
which entries a unit sees (whatever the weights are, so that a lifted graph outlives a change of them). DeepLIFT's rules
for differences also need |W|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dasp.propagation.gaussian import nonnegative
from dasp.propagation.rules.registry import affine
from dasp.propagation.values import Linear, Power

aten = torch.ops.aten


def raised(weight: Any, power: Power) -> Any:
    """The weights to a power; 0 makes all of them 1, in float64 as the counts need it."""
    if power == "absolute":
        return weight if isinstance(weight, Tensor) and weight.dtype == torch.bool else abs(weight)
    if power == 0:
        return torch.ones_like(weight, dtype=torch.float64) if isinstance(weight, Tensor) else 1.0
    return weight * weight if power == 2 else weight


@affine(
    aten.linear.default,
    aten.conv_transpose1d.default,
    aten.conv_transpose2d.input,
    aten.conv_transpose3d.input,
)
def weighted(op: Any, x: Any, weight: Tensor, bias: Tensor | None = None, *geometry: Any) -> tuple[Any, Linear]:
    """W ∗ x + b."""
    return x, lambda data, power: op(data, raised(weight, power), None, *geometry)


@dataclass(frozen=True)
class _Convolving:
    """W ∗ x of a convolution in one group of channels."""

    op: Any
    weight: Tensor
    geometry: tuple[Any, ...]

    def __call__(self, data: Tensor, power: Power) -> Tensor:
        return self.op(data, raised(self.weight, power), None, *self.geometry)  # type: ignore[no-any-return]

    def has_places(self, data: Tensor) -> bool:
        return data.dim() == self.weight.dim()

    def of_places(self, data: Tensor, weights: Tensor) -> Tensor:
        """(Σ_c w_c x_c)² = Σ_k Σ_c (w_c w_{c+k})(x_c x_{c+k}), the channels counted in a circle: one convolution, of
        the products of channels, with the products of weights; those of k and −k are the same."""
        channels = self.weight.shape[1]
        pairs = [(k, 1 if 2 * k in (0, channels) else 2) for k in range(channels // 2 + 1)]
        products = torch.cat([weights * data * data.roll(-k, 1) * times for k, times in pairs], 1)
        weight = torch.cat([self.weight * self.weight.roll(-k, 1) for k, _ in pairs], 1)
        return nonnegative(self.op(products, weight, None, *self.geometry))


_GROUPS = 3  # where a convolution has its groups, after its stride, padding and dilation


@affine(
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.conv1d.padding,
    aten.conv2d.padding,
    aten.conv3d.padding,
)
def convolved(op: Any, x: Any, weight: Tensor, bias: Tensor | None = None, *geometry: Any) -> tuple[Any, Linear]:
    """W ∗ x + b."""
    if geometry[_GROUPS:] in ((), (1,)):
        return x, _Convolving(op, weight, geometry)
    return x, lambda data, power: op(data, raised(weight, power), None, *geometry)


@affine(aten.convolution.default)
def convolution(op: Any, x: Any, weight: Tensor, bias: Tensor | None, *geometry: Any) -> tuple[Any, Linear]:
    """W ∗ x + b, the form of all convolutions in one."""
    return x, lambda data, power: op(data, raised(weight, power), None, *geometry)


@affine(aten.batch_norm.default)
def batch_norm(
    op: Any,
    x: Any,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> tuple[Any, Linear]:
    """(x − mean)/√(variance + eps)·weight + bias, with running statistics: a scale per channel."""
    if training:
        raise ValueError("batch norm is in training mode: call model.eval() first")
    scale = torch.rsqrt(variance + eps) * (1 if weight is None else weight)

    def linear(data: Tensor, power: Power) -> Tensor:
        return data * raised(scale, power).view(-1, *[1] * (data.dim() - 2))

    return x, linear


def _uniform(op: Any, counts: Any, *args: Any, **kwargs: Any) -> Linear:
    """An average: every entry that a unit sees has the weight 1/counts."""

    def linear(data: Tensor, power: Power) -> Tensor:
        result = op(data, *args, **kwargs)
        if power == "absolute":
            return result
        result = result * counts(data) ** float(1 - power)
        return result.round() if power == 0 else result  # sums of integers

    return linear


@affine(aten.sum.dim_IntList, takes="counts")
def total(op: Any, x: Any, *args: Any, **kwargs: Any) -> tuple[Any, Linear]:
    """Σ x: all weights are 1."""
    return x, lambda data, power: op(data, *args, **kwargs)


@affine(aten.cumsum.default, aten.col2im.default)
def sums(op: Any, x: Any, *args: Any, **kwargs: Any) -> tuple[Any, Linear]:
    """Running sums, and those of overlapping patches: all weights are 1."""
    return x, lambda data, power: op(data, *args, **kwargs)


@affine(aten.mean.dim)
def mean(op: Any, x: Any, dim: Sequence[int], *args: Any, **kwargs: Any) -> tuple[Any, Linear]:
    """Σ x / n."""
    return x, _uniform(op, lambda data: math.prod(data.shape[d] for d in dim), dim, *args, **kwargs)


@affine(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default)
def avg_pool(
    op: Any,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> tuple[Any, Linear]:
    """Window averages. With borders the weight differs between windows: it is what the op makes of a field of ones,
    divided by the number of ones each window holds."""
    override = () if op is aten.avg_pool1d.default else (divisor_override,)

    def counts(data: Tensor) -> Tensor:
        ones = torch.ones_like(data[:1])
        covered = op(ones, kernel, stride, padding, ceil_mode, count_include_pad, *override)  # n·w
        # Without the border in the count, the op divides by n: a field that is 1 inside and 0 in the border tells n.
        number = _window_counts(ones, kernel, stride, padding, ceil_mode, covered.shape[ones.dim() - dims :], dims)
        return number / covered

    dims = {aten.avg_pool1d.default: 1, aten.avg_pool2d.default: 2, aten.avg_pool3d.default: 3}[op]
    return x, _uniform(op, counts, kernel, stride, padding, ceil_mode, count_include_pad, *override)


def _window_counts(
    ones: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, sizes: Sequence[int], dims: int
) -> Tensor:
    """The number of entries of the input that each pooling window covers: a product over dimensions."""
    kernel, padding = each_dimension(kernel, dims), each_dimension(padding, dims)
    stride = each_dimension(stride, dims) if stride not in ((), [], None) else kernel
    number = ones.new_ones(())
    for d in range(dims):
        length = ones.shape[ones.dim() - dims + d]
        start = torch.arange(sizes[d], device=ones.device) * stride[d] - padding[d]
        covered = (start + kernel[d]).clamp(max=length) - start.clamp(min=0)
        number = number.unsqueeze(-1) * covered.to(ones.dtype)
    return number


def each_dimension(value: Any, dims: int) -> list[int]:
    """A kernel size, stride …: one number for all dimensions or one for each."""
    values = [value] if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 else values


def adaptive_windows(length: int, outputs: int) -> list[tuple[int, int]]:
    """Start and end of the windows of adaptive pooling."""
    return [(i * length // outputs, -(-(i + 1) * length // outputs)) for i in range(outputs)]


@affine(aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default, aten.adaptive_avg_pool3d.default)
def adaptive_avg_pool(op: Any, x: Any, sizes: Any) -> tuple[Any, Linear]:
    """Window averages; windows may differ in length by one, and overlap."""

    def counts(data: Tensor) -> Tensor:
        wanted = [sizes] if isinstance(sizes, int) else list(sizes)
        number = data.new_ones(())
        for length, outputs in zip(data.shape[data.dim() - len(wanted) :], wanted, strict=True):
            lengths = [end - start for start, end in adaptive_windows(length, outputs)]
            number = number.unsqueeze(-1) * data.new_tensor(lengths)
        return number

    return x, _uniform(op, counts, sizes)


@affine(aten.neg.default)
def neg(op: Any, x: Any) -> tuple[Any, Linear]:
    """−x."""
    return x, lambda data, power: op(data) if power == 1 else data


@affine(aten._trilinear.default)
def trilinear(op: Any, *args: Any) -> tuple[Any, Linear]:
    """Σ abc over some dimensions, of values that are missing others; two of them are constants, and make one weight."""
    at = next((i for i in range(3) if not isinstance(args[i], Tensor)), 0)
    first, second = (i for i in range(3) if i != at)

    def linear(data: Tensor, power: Power) -> Tensor:
        names = [chr(ord("a") + d) for d in range(data.dim() + len(args[3 + at]))]
        *letters, result = ("".join(name for d, name in enumerate(names) if d not in left) for left in args[3:7])
        kept = "".join(sorted({*letters[first], *letters[second]} & {*letters[at], *result}))
        weight = torch.einsum(f"{letters[first]},{letters[second]}->{kept}", args[first], args[second])
        return torch.einsum(f"{letters[at]},{kept}->{result}", data, raised(weight, power))

    return args[at], linear
