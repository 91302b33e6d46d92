"""From a model's graph to the same graph on differences."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree

from dasp.attribution.deeplift.difference import Difference, Nonlinear
from dasp.attribution.deeplift.rules import at_reference, difference_rule
from dasp.errors import UnsupportedOperation
from dasp.propagation.lifting import covered, operation
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import SHAPE_ONLY

__all__ = ["walk"]


def walk(traced: fx.GraphModule, arguments: tuple[Any, ...], nonlinear: Nonlinear) -> Difference:
    """The output of a traced model for `arguments`: differences, or constants."""
    walker = _Walker(traced, nonlinear)
    output = walker.run(*arguments)
    if walker.missing:
        raise UnsupportedOperation([operation(node) for node in walker.missing], "differences from a reference", "Use")
    return Difference.of(output, like=next(x for x in arguments if isinstance(x, Difference)))


class _Walker(fx.Interpreter):
    def __init__(self, traced: fx.GraphModule, nonlinear: Nonlinear) -> None:
        super().__init__(traced)
        self.nonlinear = nonlinear
        self.missing: list[fx.Node] = []

    def run_node(self, node: fx.Node) -> Any:
        """A node's value: a difference if one of its arguments is."""
        if node.op == "get_attr":
            return super().run_node(node).detach()
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        op: Any = node.target
        depends = any(isinstance(x, Difference) for x in _pytree.tree_leaves((args, kwargs)))
        if node.op != "call_function" or not depends or op is operator.getitem:
            return super().run_node(node)
        if op in SHAPE_ONLY:
            return at_reference(op, args, kwargs)
        rule = difference_rule(op, args, kwargs, self.nonlinear)
        if rule is None or not covered(node, RULES[op]) or not _continuous(node):
            self.missing.append(node)
            return _pytree.tree_map(_unknown, at_reference(op, args, kwargs))
        return rule(*args, **kwargs)


def _continuous(node: fx.Node) -> bool:
    """Whether the results that the rule gives are floating point."""
    results = [x for x in _pytree.tree_leaves(node.meta.get("val")) if isinstance(x, Tensor)]
    return all(x.is_floating_point() for x in results[: RULES[node.target].outputs])  # type: ignore[index]


def _unknown(x: Any) -> Any:
    """Stands for the result of an operation without a rule, so that the walk can go on to find others."""
    continuous = isinstance(x, Tensor) and x.is_floating_point()
    return Difference(x, torch.zeros_like(x), torch.zeros_like(x)) if continuous else x
