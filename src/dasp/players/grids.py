"""Players that are equal parts of a grid: blocks of an image or volume, windows of a series, channels."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import torch
from torch import Tensor

from dasp.display import channel_axis
from dasp.errors import BadInput

__all__ = ["blocks", "channels", "whole", "windows"]


def blocks(shape: Sequence[int], size: int | Sequence[int], *, by_channel: bool = False) -> Tensor:
    """Divide an image into blocks: the entries of one block are one player.

    Args:
        shape: the shape of a row: (height, width), (channels, height, width), or (channels, depth, height, width).
        size: the sides of a block, or one number for all of them. Blocks at the far edges are smaller where the sides
            of the image are no multiples.
        by_channel: True if the channels of a block are players of their own.

    >>> blocks((1, 4, 6), 2)
    tensor([[[0, 0, 1, 1, 2, 2],
             [0, 0, 1, 1, 2, 2],
             [3, 3, 4, 4, 5, 5],
             [3, 3, 4, 4, 5, 5]]])
    """
    shape = _shape(shape)
    if not 2 <= len(shape) <= 4:
        raise BadInput(f"a row of shape {shape} is no image: (height, width) or (channels, height, width) is needed")
    if len(shape) == 3 and channel_axis(shape) == 2:
        raise BadInput(
            f"an image of shape {shape}: (channels, height, width) is needed; image.permute(2, 0, 1) puts the channels "
            "first"
        )
    sides = shape if len(shape) == 2 else shape[1:]
    steps = [size] * len(sides) if whole(size) is not None or not isinstance(size, Iterable) else list(size)
    if len(steps) != len(sides):
        raise BadInput(
            f"the size {tuple(steps)} of a block has {len(steps)} numbers, and images of {shape} {len(sides)}"
        )
    return _grid(shape, [*([1 if by_channel else shape[0]] if len(shape) > 2 else []), *steps])


def windows(shape: Sequence[int], size: int, *, time: int = -1, by_channel: bool = False) -> Tensor:
    """Divide a series into windows: `size` steps in a row are one player.

    Args:
        shape: the shape of a row: (steps,), (channels, steps) or, with `time=0`, (steps, channels).
        size: the number of steps. The last window is shorter where the length is no multiple.
        time: the dimension of the steps, counted without that of the rows.
        by_channel: True if the channels of a window are players of their own.

    >>> windows((2, 5), 2)
    tensor([[0, 0, 1, 1, 2],
            [0, 0, 1, 1, 2]])
    >>> windows((2, 5), 2, by_channel=True)
    tensor([[0, 0, 1, 1, 2],
            [3, 3, 4, 4, 5]])
    """
    shape = _shape(shape)
    along = _dimension(shape, time, "time")
    return _grid(shape, [size if d == along else 1 if by_channel else n for d, n in enumerate(shape)])


def channels(shape: Sequence[int], *, dim: int = 0) -> Tensor:
    """Divide an image or series into channels: all entries of one channel are one player.

    >>> channels((2, 3))
    tensor([[0, 0, 0],
            [1, 1, 1]])
    """
    shape = _shape(shape)
    along = _dimension(shape, dim, "dim")
    return _grid(shape, [1 if d == along else n for d, n in enumerate(shape)])


def _grid(shape: tuple[int, ...], steps: Sequence[int]) -> Tensor:
    """Return the number of the part that each entry is in, where parts have `steps` entries along each dimension."""
    result = torch.zeros(shape, dtype=torch.int64)
    for d, (length, step) in enumerate(zip(shape, steps, strict=True)):
        number = whole(step)
        if number is None or number < 1:
            raise BadInput(f"a size is {step!r}: a whole number from 1 on is needed")
        part = torch.arange(length) // number
        result = result * (int(part[-1]) + 1) + part.view(-1, *[1] * (len(shape) - d - 1))
    return result


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    given = tuple(shape)
    result = tuple(n for n in map(whole, given) if n is not None and n > 0)
    if not result or len(result) < len(given):
        raise BadInput(f"{given} is no shape of a row: positive whole numbers are needed, without the number of rows")
    return result


def whole(number: object) -> int | None:
    """Return a whole number of any type, such as NumPy's, as one of Python's; None if it is none. Truth values are no
    numbers."""
    if isinstance(number, bool) or not isinstance(number, SupportsIndex):
        return None
    try:
        return operator.index(number)
    except TypeError:  # of an array with several entries, say
        return None


def _dimension(shape: tuple[int, ...], dim: int, what: str) -> int:
    if not -len(shape) <= dim < len(shape):
        raise BadInput(f"{what} is {dim}, and a row of shape {shape} has {len(shape)} dimensions")
    return dim % len(shape)
