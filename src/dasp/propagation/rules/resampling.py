"""Resampling: images enlarged, shrunk, or read at the points of a constant grid.

Every unit is a weighted sum of a few entries near to each other. The op itself gives the mean and maps factor columns;
to square the weights, they are asked from the op too, so that its conventions for corners and borders are not repeated:

- **Interpolation is separable**: its matrix is a product of one per axis, and the op on a unit matrix is such a matrix.
- **A grid** may point anywhere. Entries are put in classes of which no unit sees two, by their coordinates modulo the
  width of the kernel. On the entries of a class, and on ones in their place, the op gives w·x and w.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from dasp.propagation.rules.affine import raised
from dasp.propagation.rules.registry import affine, structural
from dasp.propagation.values import Linear, Power

aten = torch.ops.aten

structural(
    aten.upsample_nearest1d.default,
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.default,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.default,
    aten.upsample_nearest3d.vec,
)

# The same interpolation in two dimensions, along one of which there is a single entry.
_ALONG_ONE_AXIS = {
    aten.upsample_linear1d: aten.upsample_bilinear2d.default,
    aten.upsample_bilinear2d: aten.upsample_bilinear2d.default,
    aten.upsample_trilinear3d: aten.upsample_bilinear2d.default,
    aten.upsample_bicubic2d: aten.upsample_bicubic2d.default,
    aten._upsample_bilinear2d_aa: aten._upsample_bilinear2d_aa.default,
    aten._upsample_bicubic2d_aa: aten._upsample_bicubic2d_aa.default,
}


@affine(*(packet.default for packet in _ALONG_ONE_AXIS))
def interpolation(op: Any, x: Any, sizes: list[int], align_corners: bool, *scales: float | None) -> tuple[Any, Linear]:
    """A ⊗ B ⊗ … x, with a matrix per axis."""

    def linear(data: Tensor, power: Power) -> Tensor:
        if power == 1:
            return op(data, sizes, align_corners, *scales)  # type: ignore[no-any-return]
        along = _ALONG_ONE_AXIS[op.overloadpacket]
        for axis, size in enumerate(sizes, start=data.dim() - len(sizes)):
            length = data.shape[axis]
            unit = torch.eye(length, dtype=data.dtype, device=data.device).view(1, length, 1, length)
            scale = scales[axis - data.dim() + len(sizes)] if scales else None
            matrix = along(unit, [1, size], align_corners, None, scale).view(length, size)
            data = (data.movedim(axis, -1) @ _to_power(matrix, power)).movedim(-1, axis)
        return data

    return x, linear


@affine(*(packet.vec for packet in _ALONG_ONE_AXIS))
def interpolation_by_factors(
    op: Any, x: Any, sizes: list[int] | None, align_corners: bool, factors: list[float] | None
) -> tuple[Any, Linear]:
    """The same with either sizes or factors."""

    def linear(data: Tensor, power: Power) -> Tensor:
        lengths = data.shape[2:]
        wanted = sizes or [int(n * by) for n, by in zip(lengths, factors or (), strict=True)]
        _, given = interpolation(op.overloadpacket.default, x, wanted, align_corners, *(factors or ()))
        return given(data, power)

    return x, linear


def _to_power(weight: Tensor, power: Power) -> Tensor:
    """Weights that depend on nothing but shapes and constants, to a power; those of 0 stay so."""
    return (weight != 0).to(weight.dtype) if power == 0 else raised(weight, power)  # type: ignore[no-any-return]


_WIDTHS = (2, 1, 4)  # entries that a unit sees along an axis: of bilinear, nearest and bicubic sampling


@affine(aten.grid_sampler.default, aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(op: Any, x: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> tuple[Any, Linear]:
    """x at the points of a constant grid."""

    def linear(data: Tensor, power: Power) -> Tensor:
        at = grid.to(data.dtype)
        if power == 1:
            return op(data, at, mode, padding, align_corners)  # type: ignore[no-any-return]
        result = []
        for entries in _classes(data, _WIDTHS[mode]):
            weight = op(entries.expand(len(grid), 1, *data.shape[2:]), at, mode, padding, align_corners)
            weighted = op(data * entries, at, mode, padding, align_corners)
            plain = weighted / torch.where(weight == 0, 1, weight)
            result.append(_to_power(weight, power) * (plain.round() if power == 0 else plain))
        return torch.stack(result).sum(0)

    return x, linear


def _classes(data: Tensor, width: int) -> Iterator[Tensor]:
    """Masks (1, 1, *sizes) of the entries whose coordinates modulo the width are equal."""
    sizes = data.shape[2:]
    for remainders in product(range(width), repeat=len(sizes)):
        mask = data.new_ones(1, 1)
        for size, remainder in zip(sizes, remainders, strict=True):
            mask = mask.unsqueeze(-1) * (torch.arange(size, device=data.device) % width == remainder)
        yield mask
