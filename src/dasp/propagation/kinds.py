"""Which numbers may be random: reals, and conditions as 0 and 1 with sums of them, but no other integers.

A Gaussian stands for a real number. It also has the two moments of a condition, or of a count of conditions,
but nothing that it could be an index with: a rule says whether it takes these (`Rule.takes`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree

from dasp.propagation.rules.registry import Rule
from dasp.propagation.values import Toggled

__all__ = ["as_numbers", "continuous", "may_be_random", "real_dtype"]

aten = torch.ops.aten


def continuous(x: Any) -> bool:
    """Whether a value is a real number per player."""
    return isinstance(x, Toggled) and x.on.is_floating_point()


def may_be_random(node: fx.Node, rule: Rule, given: list[fx.Node], arguments: list[Any]) -> bool:
    """Whether a node with a rule can be a Gaussian, by what it is `given` that depends on the coalition."""
    exact = {x.on.dtype for x in arguments if isinstance(x, Toggled)}
    taken = exact | {x.dtype for source in given for x in _tensors(source)}
    discrete = {dtype for dtype in taken if not dtype.is_floating_point}
    if any(not dtype.is_floating_point and dtype != torch.bool for dtype in exact):
        return False
    if discrete and (rule.takes == "reals" or (rule.takes == "conditions" and discrete != {torch.bool})):
        return False
    if rule.takes == "conditions" and not discrete:
        return False
    if not all(x.is_floating_point() for x in _tensors(node)[: rule.outputs]) and not (discrete or rule.condition):
        return False
    dtype: Any = node.kwargs.get("dtype")
    return dtype is None or dtype.is_floating_point or node.target is aten._to_copy.default


def _tensors(node: fx.Node) -> list[Tensor]:
    return [x for x in _pytree.tree_leaves(node.meta.get("val")) if isinstance(x, Tensor)]


def as_numbers(x: Toggled, dtype: torch.dtype) -> Toggled:
    """A condition as 1 where it holds and 0 where it does not."""
    return Toggled(x.on.to(dtype), x.off.to(dtype), x.players)


def real_dtype(nodes: list[fx.Node]) -> torch.dtype:
    """The dtype that a graph computes in."""
    dtypes = (x.dtype for node in nodes for x in _tensors(node))
    return next((dtype for dtype in dtypes if dtype.is_floating_point), torch.get_default_dtype())
