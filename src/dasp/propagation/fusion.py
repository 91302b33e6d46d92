"""Functions of one value, entry by entry, that a model has in several operations.

In x·(x > 0), x·σ(x) or where(x > 0, x, eˣ − 1) a value meets functions of itself, whose noise is not independent even
where units have it for themselves. Such operations become one: the composed function h(x), whose moments are integrals
in one dimension. Its root x is the nearest value that all arguments are functions of.

What h is made of may have kinks and steps, and h is integrated from one to the next. Each is where some quantity u
changes its sign; u must be an affine function of x, so that two values of it tell the place:

    u(x) = u(0) + (u(1) − u(0))x = 0    at    x = u(0)/(u(0) − u(1))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, fx

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.rules import RULES
from dasp.propagation.rules.activations import integrated
from dasp.propagation.rules.piecewise import KINKS, integrated_pieces
from dasp.propagation.rules.registry import Rule, named, same_entry
from dasp.propagation.tracing import SHAPE_ONLY

__all__ = ["fused"]

aten = torch.ops.aten

_COPIES = {aten._to_copy.default, aten.clone.default, aten.alias.default, aten.detach.default}
_SUMS = {aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Scalar, aten.rsub.Tensor}
_PRODUCTS = {aten.mul.Tensor, aten.mul.Scalar}
_QUOTIENTS = {aten.div.Tensor, aten.div.Scalar}
# Ops that are affine if the argument at this place is constant.
_WEIGHTED = {aten.where.self: 0, aten.lerp.Scalar: 2, aten.lerp.Tensor: 2, **dict.fromkeys(_QUOTIENTS, 1)}
_LINEAR = _COPIES | _SUMS | _PRODUCTS | _WEIGHTED.keys() | {aten.neg.default}
# Not defined for all numbers, so that they are left alone if what they are given is as likely to be any.
_ROOTS_AND_LOGARITHMS = {
    aten.log.default, aten.log1p.default, aten.log2.default, aten.log10.default, aten.sqrt.default, aten.rsqrt.default,
    aten.reciprocal.default, aten.logit.default, aten.xlogy.Tensor, aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor,
}  # fmt: skip
_ENTRYWISE = _COPIES | {aten.neg.default} | {
    op for op, rule in RULES.items() if rule.tracker is same_entry and rule.gaussian is not None
}  # fmt: skip


def fused(traced: fx.GraphModule, varying: Iterable[bool]) -> fx.GraphModule:
    """The graph with such operations as one; `varying` tells which of its inputs are not constant."""
    inputs = [node for node in traced.graph.nodes if node.op == "placeholder"]
    depends = {node for node, varies in zip(inputs, varying, strict=True) if varies}
    sources: dict[fx.Node, fx.Node] = {}  # what a node is a function of, entry by entry
    made: dict[fx.Node, _Composition] = {}
    for node in traced.graph.nodes:
        given = [x for x in node.all_input_nodes if x in depends]
        if not given or node.target in SHAPE_ONLY:
            continue
        depends.add(node)
        if node.target not in _ENTRYWISE:
            continue
        if len(given) == 1:
            sources[node] = given[0]
            continue
        for root in _common([_lineage(x, sources) for x in given]):
            composition = _Composition(node, root, depends)
            if composition.integrable:
                sources[node], made[node] = root, composition
                break
    return _replaced(traced, made) if made else traced


def _lineage(node: fx.Node, sources: dict[fx.Node, fx.Node]) -> list[fx.Node]:
    """A node, what it is a function of, and so on."""
    lineage = [node]
    while lineage[-1] in sources:
        lineage.append(sources[lineage[-1]])
    return lineage


def _common(lineages: list[list[fx.Node]]) -> list[fx.Node]:
    first, *others = lineages
    return [node for node in first if all(node in other for other in others)]


class _Composition:
    """All that is between a root and a node."""

    def __init__(self, node: fx.Node, root: fx.Node, depends: set[fx.Node]) -> None:
        self.node, self.root, self.depends = node, root, depends
        found, todo = {node}, [node]
        while todo:
            new = {x for x in todo.pop().all_input_nodes if x in depends and x is not root} - found
            found |= new
            todo += new
        self.nodes = [x for x in node.graph.nodes if x in found]
        inputs = dict.fromkeys(x for each in self.nodes for x in each.all_input_nodes)
        self.constants = [x for x in inputs if x not in depends]
        self.affine = {root}
        for x in self.nodes:
            if self._stays_affine(x):
                self.affine.add(x)

    def _random(self, x: Any) -> bool:
        return isinstance(x, fx.Node) and x in self.depends

    def _stays_affine(self, node: fx.Node) -> bool:
        if node.target not in _LINEAR or not _real(node):
            return False
        random = [x for x in node.args if self._random(x)]
        if not all(x in self.affine for x in random):
            return False
        if node.target in _PRODUCTS:
            return len(random) == 1
        return node.target not in _WEIGHTED or not self._random(node.args[_WEIGHTED[node.target]])

    @property
    def integrable(self) -> bool:
        """Whether all of it has the shape of the root, a place for its kinks, and values everywhere."""
        shape = str(self.root.meta["val"].shape)
        alike = _real(self.root) and all(str(x.meta["val"].shape) == shape for x in self.nodes)
        return alike and not any(map(self._unplaced, self.nodes)) and not any(map(self._undefined, self.nodes))

    def _unplaced(self, node: fx.Node) -> bool:
        random = [x for x in node.all_input_nodes if x in self.depends]
        return node.target in KINKS and not all(x in self.affine for x in random)

    def _undefined(self, node: fx.Node) -> bool:
        if node.target is aten._to_copy.default and not _real(node):  # whole numbers of a real one are a staircase
            return any(map(_real, node.all_input_nodes))
        if node.target in _QUOTIENTS:
            return self._random(node.args[1]) and node.args[1] in self.affine
        if node.target not in _ROOTS_AND_LOGARITHMS or _natural(node):
            return False
        return any(x in self.affine for x in node.all_input_nodes if x in self.depends)

    def target(self) -> Callable[..., Any]:
        """The composed function, of the root and the constants, as an op with its rule."""
        function = self._graph(lambda graph, made: made[self.node])
        kinked = [x for x in self.nodes if x.target in KINKS]

        def decide(graph: fx.Graph, made: dict[fx.Node, fx.Node]) -> list[fx.Node]:
            def like(x: fx.Node) -> Any:
                return fx.node.map_arg((x.args, x.kwargs), made.__getitem__)

            return [graph.call_function(KINKS[x.target], *like(x)) for x in kinked]

        deciding = self._graph(decide) if kinked else None
        affine, op = self.node in self.affine, cast(Callable[..., Any], self.node.target)

        def fused(x: Tensor, *constants: Any) -> Any:
            return function(x, *constants)

        def gaussian(x: Gaussian, *constants: Any) -> Gaussian:
            def values(at: Tensor) -> Tensor:
                return function(at, *constants).to(x.mean.dtype)  # type: ignore[no-any-return]

            zero = torch.zeros_like(x.mean)
            if affine:
                return x.through(values(x.mean), values(zero + 1) - values(zero), zero)
            if deciding is None:
                return integrated(x, values)
            signs = [[u for part in deciding(at, *constants) for u in part] for at in (zero, zero + 1)]
            places = [_zero(at_zero, at_one, x.mean) for at_zero, at_one in zip(*signs, strict=True)]
            return integrated_pieces(x, values, places)

        fused.rule = Rule(named(op, gaussian), same_entry, condition=not _real(self.node))  # type: ignore[attr-defined]
        return named(op, fused)

    def _graph(self, output: Callable[[fx.Graph, dict[fx.Node, fx.Node]], Any]) -> fx.GraphModule:
        graph = fx.Graph()
        made = {x: graph.placeholder(x.name) for x in (self.root, *self.constants)}
        for x in self.nodes:
            made[x] = graph.node_copy(x, made.__getitem__)
            if x.target is aten.detach.default:  # as in its rule
                made[x].target = aten.alias.default
        graph.output(output(graph, made))
        graph.eliminate_dead_code()
        return fx.GraphModule(torch.nn.Module(), graph)


def _real(node: fx.Node) -> bool:
    return bool(node.meta["val"].is_floating_point())


def _natural(node: fx.Node) -> bool:
    exponent = node.args[1] if node.target is aten.pow.Tensor_Scalar else None
    return isinstance(exponent, (int, float)) and exponent >= 0 and float(exponent).is_integer()


def _zero(at_zero: Tensor, at_one: Tensor, mean: Tensor) -> Tensor:
    """Where an affine function is 0; anywhere, like at the mean, if nowhere."""
    slope = at_one - at_zero
    flat = slope == 0
    return torch.where(flat, mean, -at_zero / torch.where(flat, 1, slope))


def _replaced(traced: fx.GraphModule, made: dict[fx.Node, _Composition]) -> fx.GraphModule:
    """A copy of the graph with compositions in place of the nodes that they end in."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in traced.graph.nodes:
        if node not in made:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            continue
        composition = made[node]
        arguments = tuple(copies[x] for x in (composition.root, *composition.constants))
        copies[node] = graph.call_function(composition.target(), arguments)
        copies[node].meta = dict(node.meta)
    graph.eliminate_dead_code()
    return fx.GraphModule(traced, graph)
