"""Values that are divided by their own norm, in several operations.

In x/max(‖x‖, ε), as `F.normalize` has it, or in RMSNorm and LayerNorm as many models write them, x·(mean x² + ε)^−½ and
(x − x̄)/√(mean (x − x̄)² + ε), a value meets the sum of its squares, which is anything but independent of it where one
entry dominates. The operations between both are a function g of the sum; with the product x·g they become one
operation, which knows their covariance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.rules import RULES
from dasp.propagation.rules.arithmetic import power
from dasp.propagation.rules.normalization import by_own_norm
from dasp.propagation.rules.registry import Rule, within

__all__ = ["joined_norms"]

aten = torch.ops.aten

_STEPS = {  # what a norm may go through before a value is divided by it
    aten.add.Tensor, aten.add.Scalar, aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar,
    aten.clamp.default, aten.clamp_min.default, aten.sqrt.default, aten.rsqrt.default, aten.reciprocal.default,
    aten.pow.Tensor_Scalar,
}  # fmt: skip
_QUOTIENTS, _PRODUCTS = (aten.div.Tensor,), (aten.mul.Tensor,)


def joined_norms(traced: fx.GraphModule) -> fx.GraphModule:
    """The graph with divisions by own norms as one operation each."""
    found = {node: norm for node in traced.graph.nodes if (norm := _found(node)) is not None}
    if not found:
        return traced
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in traced.graph.nodes:
        if node in found:
            copies[node] = graph.call_function(found[node].target(), (copies[found[node].value],))
            copies[node].meta = dict(node.meta)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.eliminate_dead_code()
    return fx.GraphModule(traced, graph)


def _found(node: fx.Node) -> _OwnNorm | None:
    if node.target not in (*_QUOTIENTS, *_PRODUCTS) or not all(isinstance(x, fx.Node) for x in node.args):
        return None
    pairs = [node.args] if node.target in _QUOTIENTS else [node.args, node.args[::-1]]
    candidates = (_OwnNorm.of(value, factor, node.target in _QUOTIENTS) for value, factor in pairs)  # type: ignore[arg-type]
    return next((norm for norm in candidates if norm is not None), None)


@dataclass(frozen=True)
class _OwnNorm:
    """A value, and the steps from the sum of its squares to what it is divided by, or multiplied with."""

    value: fx.Node
    dims: list[int]
    centred: bool  # whether it is the value less its mean whose squares are summed, and which is divided
    steps: list[Callable[[Any], Any]]

    @staticmethod
    def of(value: fx.Node, factor: fx.Node, divides: bool) -> _OwnNorm | None:
        """Go back from the factor to a norm of the value, if it is one."""
        steps: list[Callable[[Any], Any]] = [_inverse] if divides else []
        restored: Any = None
        while isinstance(factor, fx.Node):
            if factor.target is aten.unsqueeze.default and restored is None:
                restored = factor.args[1]
            elif factor.target in _STEPS and not factor.kwargs and not any(map(_is_node, factor.args[1:])):
                steps.insert(0, _step(factor.target, factor.args[1:]))
            elif factor.target is not aten.expand.default and not _whole_slice(factor):  # which change no number
                break
            factor = factor.args[0]  # type: ignore[assignment]
        sums = _sum_of_squares(factor)
        if sums is None or not _kept(sums.dims, sums.keepdim, restored, value.meta["val"].dim()):
            return None
        centre = _centred(value, sums.dims)
        if centre is not None and _same(centre if sums.centred else value, sums.value):
            return _OwnNorm(centre, sums.dims, True, [*sums.steps, *steps])
        if sums.centred or not _same(value, sums.value):
            return None
        return _OwnNorm(value, sums.dims, False, [*sums.steps, *steps])

    def target(self) -> Callable[..., Any]:
        """The operation, with its rule."""
        dims, centred = self.dims, self.centred

        def function(squares: Any) -> Any:
            for step in self.steps:
                squares = step(squares)
            return squares

        def divided(x: Tensor) -> Tensor:
            x = x - x.mean(dims, keepdim=True) if centred else x
            return x * function(x.square().sum(dims, keepdim=True))  # type: ignore[no-any-return]

        def gaussian(x: Gaussian) -> Gaussian:
            return by_own_norm(x, dims, function, centred=centred)

        apart = within(lambda x: dims, keepdim=lambda x: None)
        divided.rule = Rule(gaussian, apart)  # type: ignore[attr-defined]
        return divided


@dataclass(frozen=True)
class _Sums:
    """The sum of squares of a value along dimensions, and what is done to it."""

    value: fx.Node
    dims: list[int]
    keepdim: bool
    steps: list[Callable[[Any], Any]]
    centred: bool = False


def _is_node(x: Any) -> bool:
    return isinstance(x, fx.Node)


def _step(op: Any, extra: tuple[Any, ...]) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        function: Any = op if isinstance(x, Tensor) else RULES[op].gaussian
        return function(x, *extra)

    return step


def _inverse(x: Any) -> Any:
    return x.reciprocal() if isinstance(x, Tensor) else power(x, -1)


_VARIANCES = {aten.var.correction, aten.std.correction, aten.var.dim, aten.std.dim}
_ROOTS = {aten.std.correction, aten.std.dim, aten.linalg_vector_norm.default}
_REDUCTIONS = {aten.sum.dim_IntList, aten.mean.dim, aten.linalg_vector_norm.default} | _VARIANCES


def _sum_of_squares(node: Any) -> _Sums | None:
    """What a node is the norm, variance, mean or sum of squares of."""
    if not isinstance(node, fx.Node) or node.target not in _REDUCTIONS:
        return None
    given = _arguments(node)
    dims = [given["dim"]] if isinstance(given["dim"], int) else list(given["dim"] or ())
    plain = node.target in (aten.sum.dim_IntList, aten.mean.dim)
    value = _squared(given["self"]) if plain else given["self"]
    if value is None or not dims or given.get("ord", 2) != 2:
        return None
    sizes = [value.meta["val"].shape[d] for d in dims]
    if not all(isinstance(size, int) for size in sizes):
        return None
    count = torch.Size(sizes).numel()
    if node.target in _VARIANCES:
        correction = given.get("correction", 1 if given.get("unbiased", True) else 0)
        count -= 1 if correction is None else correction
    averaged = node.target is aten.mean.dim or node.target in _VARIANCES
    steps = [_step(aten.div.Scalar, (count,))] if averaged else []
    root = [_step(aten.sqrt.default, ())] if node.target in _ROOTS else []
    return _Sums(value, dims, bool(given["keepdim"]), [*steps, *root], node.target in _VARIANCES)


def _arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of an op by name, with its defaults."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    defaults = {argument.name: argument.default_value for argument in schema.arguments}
    names = (argument.name for argument in schema.arguments)
    return {**defaults, **dict(zip(names, node.args, strict=False)), **node.kwargs}


def _squared(node: fx.Node) -> Any:
    if node.target is aten.square.default or (node.target is aten.pow.Tensor_Scalar and node.args[1] == 2):
        return node.args[0]
    return node.args[0] if node.target is aten.mul.Tensor and _same(*node.args) else None


def _same(a: Any, b: Any) -> bool:
    """Whether two nodes are one, or do the same to the same."""
    if a is b or not (isinstance(a, fx.Node) and isinstance(b, fx.Node)):
        return a is b
    return a.op == "call_function" and a.target is b.target and a.args == b.args and a.kwargs == b.kwargs


def _centred(node: fx.Node, dims: list[int]) -> fx.Node | None:
    """The value that a node is less its mean along the dimensions, if it is."""
    if node.target is not aten.sub.Tensor or node.kwargs:
        return None
    value, mean = node.args
    if not isinstance(mean, fx.Node) or mean.target is not aten.mean.dim:
        return None
    given, rank = _arguments(mean), value.meta["val"].dim()  # type: ignore[union-attr]
    along = [given["dim"]] if isinstance(given["dim"], int) else list(given["dim"] or ())
    matches = sorted(d % rank for d in along) == sorted(d % rank for d in dims)
    return value if given["self"] is value and matches and given["keepdim"] else None  # type: ignore[return-value]


def _whole_slice(node: fx.Node) -> bool:
    """Whether a slice takes all, as in x[:, None]."""
    return node.target is aten.slice.Tensor and tuple(node.args[2:]) in ((), (0, 2**63 - 1))


def _kept(dims: list[int], keepdim: bool, restored: Any, rank: int) -> bool:
    """Whether the norm stands beside the entries that it is of."""
    if keepdim:
        return restored is None
    return restored is not None and len(dims) == 1 and restored % rank == dims[0] % rank
