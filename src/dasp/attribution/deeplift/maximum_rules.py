"""Maxima and minima of differences: the entries are the players of a game.

`maximum_game` has the Shapley value φ_i of every entry of a maximum, its own and exact. The linear rule takes the
weights φ_i/Δ_i, none of which is negative. For a pooling window the entries are first gathered: along each dimension a
table (windows, window size) of their positions, with −1 for what lies outside the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dasp.attribution.deeplift.difference import Difference, weighted
from dasp.attribution.deeplift.maximum_game import maximum_slopes
from dasp.attribution.deeplift.rules import at_reference, moving, own
from dasp.propagation.rules.affine import adaptive_windows
from dasp.propagation.rules.maximum import dimensions, geometry, window_count

aten = torch.ops.aten


def _largest(x: Difference) -> Difference:
    """The maximum along the last dimension."""
    slopes = maximum_slopes(x.value, x.reference)
    return weighted(x.reference.amax(-1), lambda data, power: (slopes * data).sum(-1), x)


@own(aten.amax.default)
def amax(x: Difference, dim: Any = (), keepdim: bool = False) -> Difference:
    """max over dimensions."""
    dims = dimensions(x.reference, dim)
    largest = _largest(x.each(lambda part: part.movedim(dims, tuple(range(-len(dims), 0))).flatten(-len(dims))))
    shape = x.reference.amax(dims, keepdim).shape
    return largest.each(lambda part: part.reshape(shape))


@own(aten.amin.default)
def amin(x: Difference, dim: Any = (), keepdim: bool = False) -> Difference:
    """min over dimensions."""
    return -amax(-x, dim, keepdim)  # type: ignore[no-any-return]


@own(aten.maximum.default, aten.max.other)
def maximum(a: Any, b: Any) -> Difference:
    """max(a, b), entry by entry."""
    like = a if isinstance(a, Difference) else b
    shape = at_reference(torch.maximum, (a, b), {}).shape
    pair = [Difference.of(x, like).each(lambda part: part.expand(shape)) for x in (a, b)]
    return _largest(moving(aten.stack.default)(pair, -1))


@own(aten.minimum.default, aten.min.other)
def minimum(a: Any, b: Any) -> Difference:
    """min(a, b) = −max(−a, −b)."""
    return -maximum(-a, -b)  # type: ignore[no-any-return]


@own(aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default)
def max_pool(
    x: Difference, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Difference:
    """Window maxima."""
    lengths = x.reference.shape[2:]
    tables = []
    for length, each in zip(lengths, geometry(len(lengths), kernel, stride, padding, dilation), strict=True):
        size, step, border, spacing = each
        windows = torch.arange(window_count(length, *each, ceil_mode))
        table = (windows * step - border)[:, None] + torch.arange(size) * spacing
        tables.append(torch.where(table < length, table, -1).clamp(min=-1))
    return _pooled(x, tables)


@own(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(x: Difference, sizes: Any) -> tuple[Difference]:
    """Window maxima; windows may differ in length by one, and overlap."""
    wanted: Sequence[int] = [sizes] if isinstance(sizes, int) else sizes
    tables = []
    for length, outputs in zip(x.reference.shape[-len(wanted) :], wanted, strict=True):
        windows = [torch.arange(start, end) for start, end in adaptive_windows(length, outputs)]
        tables.append(torch.nn.utils.rnn.pad_sequence(windows, batch_first=True, padding_value=-1))
    return (_pooled(x, tables),)


def _pooled(x: Difference, tables: list[Tensor]) -> Difference:
    """The maxima of windows given by their positions along each of the last dimensions."""
    lengths, positions = x.reference.shape[-len(tables) :], torch.zeros(1, 1, dtype=torch.long)
    for length, table in zip(lengths, tables, strict=True):
        before, after = positions[:, None, :, None], table[None, :, None, :]
        inside = (before >= 0) & (after >= 0)
        positions = torch.where(inside, before * length + after, -1).flatten(2).flatten(0, 1)
    # One more entry stands for all outside: as small as the smallest, so that it never counts.
    lowest = float(torch.minimum(x.value, x.reference).amin())
    index = torch.where(positions < 0, lengths.numel(), positions).to(x.reference.device)

    def gathered(part: Tensor, outside: float) -> Tensor:
        flat = functional.pad(part.flatten(-len(lengths)), (0, 1), value=outside)
        return flat.index_select(-1, index.flatten()).unflatten(-1, index.shape)

    entries = Difference(gathered(x.reference, lowest), gathered(x.positive, 0.0), gathered(x.negative, 0.0))
    return _largest(entries).each(lambda part: part.unflatten(-1, [len(table) for table in tables]))
