"""Ops that put entries into another value, or add them to it, at constant places.

The result is jointly linear in both values, with weights 0 and 1, or alpha for what is added. So the op itself maps
means, factor columns and, with alpha², independent variances; a constant has no variance.

What is reduced at such places, as messages are at the nodes of a graph, is linear if it is a sum or a mean. Maxima,
minima and products are taken in pairs: first of each place's first two values, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.rules.affine import raised
from dasp.propagation.rules.arithmetic import product
from dasp.propagation.rules.maximum import below, negative, tree
from dasp.propagation.rules.registry import RULES, Rule, affine, named
from dasp.propagation.values import NOBODY, Linear, Toggled

aten = torch.ops.aten


def _copy(value: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """In place of aten.copy, which has no derivative."""
    return source.to(value.dtype).expand_as(value)


def _slice_scatter(
    value: Tensor, source: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """In place of the op, which torch.vmap cannot give the largest integer that stands for no end."""
    end = None if end is None else min(end, value.shape[dim])
    return aten.slice_scatter.default(value, source, dim, start, end, step)  # type: ignore[no-any-return]


# Where the argument is that goes into the first one, and what to call.
_MOVED = {
    aten.copy.default: (1, _copy),
    aten.slice_scatter.default: (1, _slice_scatter),
    aten.select_scatter.default: (1, aten.select_scatter.default),
    aten.index_copy.default: (3, aten.index_copy.default),
    aten.scatter.src: (3, aten.scatter.src),
}
_ADDED = {aten.index_put.default: 2, aten.index_add.default: 3, aten.scatter_add.default: 3}
_FILLED = (aten.scatter.value, aten.index_fill.int_Scalar)


def _with(args: tuple[Any, ...], at: int, value: Any, source: Any) -> tuple[Any, ...]:
    return (value, *args[1:at], source, *args[at + 1 :])


def _put(op: Any, at: int) -> Callable[..., Gaussian]:
    def put(*args: Any, **kwargs: Any) -> Gaussian:
        """The op on each part of its two values."""
        random = next(x for x in (args[0], args[at]) if isinstance(x, Gaussian))
        value, source = (x if isinstance(x, Gaussian) else random.constant(x) for x in (args[0], args[at]))

        def call(x: Any, y: Any) -> Any:
            return op(*_with(args, at, x, y), **kwargs)

        squared = {name: raised(alpha, 2) for name, alpha in kwargs.items()}
        return Gaussian(
            call(value.mean, source.mean),
            op(*_with(args, at, value.variance, source.variance), **squared),
            None if random.factors is None else torch.vmap(call)(value.factors, source.factors),
        )

    return put


def _placed(op: Any, *args: Any, at: int) -> Tensor:
    """The tracker of ops that move entries into a value: the players move with them."""
    both = (args[0], args[at])
    players = (x.players if isinstance(x, Toggled) else torch.full_like(x, NOBODY, dtype=torch.int64) for x in both)
    return op(*_with(args, at, *players))  # type: ignore[no-any-return]


def _linear(op: Any, *args: Any, at: int, **kwargs: Any) -> tuple[Any, Linear]:
    """The linear part in the one of the two values that is random."""
    value, source = args[0], args[at]
    if isinstance(source, Tensor):
        return value, lambda data, power: op(*_with(args, at, data, torch.zeros_like(source, dtype=data.dtype)))
    if not isinstance(value, Tensor):
        return None, lambda data, power: data

    def added(data: Tensor, power: Any) -> Tensor:
        nothing = torch.zeros_like(value, dtype=data.dtype)
        return op(*_with(args, at, nothing, data), **{k: raised(alpha, power) for k, alpha in kwargs.items()})  # type: ignore[no-any-return]

    return source, added


for _op, (_at, _call) in _MOVED.items():
    RULES[_op] = Rule(named(_op, _put(_call, _at)), partial(_placed, at=_at), moves=True)

for _op, _at in _ADDED.items():
    affine(_op)(partial(_linear, at=_at))
    RULES[_op] = replace(RULES[_op], gaussian=named(_op, _put(_op, _at)))


def _index_put(op: Any, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Tensor | None:
    """The tracker of index_put: entries may be moved, or added."""
    return _added(op, x, indices, values, True) if accumulate else _placed(op, x, indices, values, at=2)  # type: ignore[no-any-return]


_added = RULES[aten.index_put.default].tracker
RULES[aten.index_put.default] = replace(RULES[aten.index_put.default], tracker=_index_put)


def _fill(op: Any) -> Rule:
    def fill(x: Gaussian, dim: int, index: Tensor, value: float) -> Gaussian:
        """A constant number at some places has no variance."""
        variance, factors = op(x.variance, dim, index, 0), x.columns(lambda column: op(column, dim, index, 0))
        return Gaussian(op(x.mean, dim, index, value), variance, factors)

    return Rule(named(op, fill), lambda op, x, dim, index, value: op(x.players, dim, index, NOBODY), moves=True)


for _op in _FILLED:
    RULES[_op] = _fill(_op)


def _reduced(
    op: Any, value: Any, dim: int, index: Tensor, source: Any, reduce: str, *, include_self: bool = True
) -> tuple[Any, Linear]:
    """The linear part of a sum or a mean in the one of the two values that is random."""
    random = [x for x in (value, source) if not isinstance(x, Tensor)]
    if reduce not in ("sum", "mean") or len(random) != 1:
        return None, lambda data, power: data

    def linear(data: Tensor, power: Any) -> Tensor:
        x, y = (data if each is random[0] else torch.zeros_like(each, dtype=data.dtype) for each in (value, source))
        return _weighted_sum(x, y, dim, index, reduce, power, include_self)

    return random[0], linear


def _weighted_sum(
    value: Tensor, source: Tensor, dim: int, index: Tensor, reduce: str, power: Any, include_self: bool
) -> Tensor:
    """Sums at the places of the index; for a mean with the weight 1/n, or 1/n² for variances, where n are summed."""

    def total(x: Tensor, y: Tensor) -> Tensor:
        return aten.scatter_add.default(x if include_self else x.scatter(dim, index, 0.0), dim, index, y)  # type: ignore[no-any-return]

    if reduce == "sum":
        return total(value, source)
    counts = total(torch.ones_like(value), torch.ones_like(source))
    return total(value, source) / counts ** (1 if power == "absolute" else power)


affine(aten.scatter_reduce.two)(_reduced)


def _scatter_reduce(
    value: Any, dim: int, index: Tensor, source: Any, reduce: str, *, include_self: bool = True
) -> Gaussian:
    """The sum, mean, maximum, minimum or product of all that falls on one place."""
    random = value if isinstance(value, Gaussian) else source
    value, source = (x if isinstance(x, Gaussian) else random.constant(x) for x in (value, source))
    if reduce == "amin":
        lowest = _scatter_reduce(negative(value), dim, index, negative(source), "amax", include_self=include_self)
        return negative(lowest)
    if reduce in ("amax", "prod"):
        neutral = torch.minimum(below(value), below(source)) if reduce == "amax" else value.mean.new_ones(())
        slots = _slots(value, dim, index, source, neutral, include_self)
        return tree(slots) if reduce == "amax" else tree(slots, product)

    def weighted(x: Tensor, y: Tensor, power: int = 1) -> Tensor:
        return _weighted_sum(x, y, dim, index, reduce, power, include_self)

    return Gaussian(
        weighted(value.mean, source.mean),
        weighted(value.variance, source.variance, 2),
        None if value.factors is None else torch.vmap(weighted)(value.factors, source.factors),
    )


def _slots(
    value: Gaussian, dim: int, index: Tensor, source: Gaussian, neutral: Tensor, include_self: bool
) -> list[Gaussian]:
    """The value, and what falls on each of its places first, second and so on; a `neutral` number if there is none."""
    length = value.mean.shape[dim]

    def put(x: Gaussian, at: Tensor, y: Gaussian) -> Gaussian:
        columns = None if x.factors is None else torch.vmap(lambda a, b: a.scatter(dim, at, b))(x.factors, y.factors)
        return Gaussian(x.mean.scatter(dim, at, y.mean), x.variance.scatter(dim, at, y.variance), columns)

    nothing = value.constant(torch.zeros_like(value.mean) + neutral)
    slots = [value if include_self else put(value, index, source.constant(torch.zeros_like(source.mean) + neutral))]
    turn = _turns(index, dim)
    empty = nothing.map(lambda t: torch.cat([t, t.narrow(dim, 0, 1)], dim))  # with a place for those of other turns
    for each in range(int(turn.max()) + 1):
        taken = put(empty, torch.where(turn == each, index, length), source)
        slots.append(taken.map(lambda t: t.narrow(dim, 0, length)))
    return slots


def _turns(index: Tensor, dim: int) -> Tensor:
    """The number of earlier entries along the dimension that fall on the same place."""
    along = index.movedim(dim, -1)
    ordered, order = along.sort(dim=-1, stable=True)
    ordered = ordered.contiguous()
    turns = torch.arange(along.shape[-1], device=index.device) - torch.searchsorted(ordered, ordered)
    return torch.empty_like(order).scatter(-1, order, turns).movedim(-1, dim)


RULES[aten.scatter_reduce.two] = replace(
    RULES[aten.scatter_reduce.two], gaussian=named(aten.scatter_reduce.two, _scatter_reduce)
)
