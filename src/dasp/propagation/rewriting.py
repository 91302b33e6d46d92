"""Operations of a graph, said in others that have rules."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

__all__ = ["SINGLE", "assign_by_choice", "take_first"]

aten = torch.ops.aten


def assign_by_choice(node: fx.Node) -> None:
    """x[mask] = number is where(mask, number, x)."""
    x, indices, value, *accumulate = node.args
    given: Any = (x, *indices, value)  # type: ignore[misc, operator]
    if any(accumulate) or len(given) != 3:
        return
    tensors: Any = [each.meta.get("val") if isinstance(each, fx.Node) else None for each in given]
    if not all(isinstance(each, Tensor) for each in tensors):
        return
    at, mask, number = tensors
    if mask.dtype == torch.bool and mask.dim() == at.dim() and number.dim() == 0:
        node.target, node.args = aten.where.self, (given[1], value, x)


# Ops with a main result and by-products, as ops with one result: arguments → (op, arguments).
SINGLE: dict[Any, Any] = {
    aten._native_batch_norm_legit_no_training.default: lambda x, weight, bias, mean, variance, momentum, eps: (
        aten.batch_norm.default,
        (x, weight, bias, mean, variance, False, momentum, eps, False),
    ),
    aten.max.dim: lambda x, dim, keepdim=False: (aten.amax.default, (x, [dim], keepdim)),
    aten.min.dim: lambda x, dim, keepdim=False: (aten.amin.default, (x, [dim], keepdim)),
    aten.max_pool2d_with_indices.default: lambda *args: (aten.max_pool2d.default, args),
    aten.max_pool3d_with_indices.default: lambda *args: (aten.max_pool3d.default, args),
    aten.rrelu_with_noise_functional.default: lambda x, _, a=1 / 8, b=1 / 3, *__: (
        aten.leaky_relu.default,
        (x, (a + b) / 2),
    ),
}


def take_first(graph: fx.Graph, node: fx.Node) -> None:
    """Replace `node[0]` by the op that gives just that, if nothing else of the result is used."""
    users = list(node.users)
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in users):
        return
    target, args = SINGLE[node.target](*node.args, **node.kwargs)
    with graph.inserting_before(node):
        single = graph.call_function(target, args)
    value = node.meta["val"]
    single.meta = {**node.meta, "val": value[0] if isinstance(value, (tuple, list)) else value}
    for user in users:
        user.replace_all_uses_with(single)
        graph.erase_node(user)
    graph.erase_node(node)
