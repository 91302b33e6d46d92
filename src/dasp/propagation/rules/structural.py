"""Ops that only move entries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.rules.registry import RULES, Rule, joined, moved, rule, structural
from dasp.propagation.values import NOBODY, Toggled

aten = torch.ops.aten

structural(
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.expand.default,
    aten.repeat.default,
    aten.repeat_interleave.self_int,
    aten.slice.Tensor,
    aten.select.int,
    aten.chunk.default,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unbind.int,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.flip.default,
    aten.roll.default,
    aten.diagonal.default,
    aten.unfold.default,
    aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default,
    aten.channel_shuffle.default,
    aten.im2col.default,
)

# A random condition or count is no index.
structural(aten.index.Tensor, aten.index_select.default, aten.gather.default, takes="reals")

# The parts of a value may have strides of their own, so a view of them is not always one.
structural(
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    call=aten.reshape.default,
    tracker=lambda op, *args, **kwargs: moved(aten.reshape.default, *args, **kwargs),
)


def _unchanged(op: Any, x: Toggled, *args: Any, **kwargs: Any) -> Tensor:
    return x.players.contiguous()


structural(aten.clone.default, aten.contiguous.default, aten.alias.default, tracker=_unchanged)


@rule(aten._to_copy.default, tracker=_unchanged, moves=True, takes="counts")
def to_copy(x: Gaussian, *, dtype: torch.dtype | None = None, **options: Any) -> Gaussian:
    """A copy, or a cast; the moments of a condition or a count are no integers, whatever it is cast to."""
    to = dtype if dtype is None or dtype.is_floating_point else x.mean.dtype
    mean, variance = (aten._to_copy.default(part, dtype=to, **options) for part in (x.mean, x.variance))
    return Gaussian(mean, variance, x.columns(lambda column: aten._to_copy.default(column, dtype=to, **options)))


# A value's dependence on the coalition does not end where its author ended that on the parameters.
structural(aten.detach.default, tracker=_unchanged, call=aten.alias.default)


def _padded(op: Any, x: Toggled, pad: list[int], mode: str = "constant", value: float | None = None) -> Tensor:
    return moved(op, x, pad, mode, float(NOBODY) if mode == "constant" else None)  # type: ignore[no-any-return]


@rule(aten.pad.default, tracker=_padded, moves=True)
def pad(x: Gaussian, pad: list[int], mode: str = "constant", value: float | None = None) -> Gaussian:
    """A constant border has no variance; the other modes copy entries."""
    border = 0.0 if mode == "constant" else None
    return Gaussian(
        aten.pad.default(x.mean, pad, mode, value),
        aten.pad.default(x.variance, pad, mode, border),
        x.columns(lambda column: aten.pad.default(column, pad, mode, border)),
    )


@rule(aten.constant_pad_nd.default, tracker=lambda op, x, pad, value=0: op(x.players, pad, NOBODY), moves=True)
def constant_pad_nd(x: Gaussian, padding: list[int], value: float = 0) -> Gaussian:
    """A constant border has no variance."""
    return pad(x, padding, "constant", value)


@rule(aten.cat.default, tracker=joined, moves=True, takes="counts")
def cat(values: list[Gaussian | Tensor], dim: int = 0) -> Gaussian:
    """Side by side; constants have no variance."""
    return _joined(aten.cat.default, values, dim)


@rule(aten.stack.default, tracker=joined, moves=True, takes="counts")
def stack(values: list[Gaussian | Tensor], dim: int = 0) -> Gaussian:
    """Side by side in a new dimension."""
    return _joined(aten.stack.default, values, dim)


def _joined(op: Any, values: list[Gaussian | Tensor], dim: int) -> Gaussian:
    random = next(x for x in values if isinstance(x, Gaussian))
    parts = [x if isinstance(x, Gaussian) else random.constant(x) for x in values]
    columns = [x.factors for x in parts if x.factors is not None]
    return Gaussian(
        op([x.mean for x in parts], dim),
        op([x.variance for x in parts], dim),
        torch.vmap(lambda *column: op(list(column), dim))(*columns) if columns else None,
    )


def _looked_up(op: Any, weight: Tensor, index: Toggled, *args: Any, **kwargs: Any) -> Tensor:
    return index.players.unsqueeze(-1).expand(*index.players.shape, weight.shape[-1])


# Exact for integers that a player switches; a random index has no distribution here.
RULES[aten.embedding.default] = Rule(None, _looked_up)
