"""Functions that a model has in several operations, as one operation each.

**Functions of one value, entry by entry** (`fused`). In x·(x > 0), x·σ(x) or where(x > 0, x, eˣ − 1) a value meets
functions of itself, whose noise is not independent even where units have it for themselves. Such operations become one:
the composed function h(x), whose moments are integrals in one dimension. Its root x is the nearest value that all
arguments are functions of.

What h is made of may have kinks and steps, and h is integrated from one to the next. Each is where some quantity u
changes its sign; u must be an affine function of x, so that two values of it tell the place:

    u(x) = u(0) + (u(1) − u(0))x = 0    at    x = u(0)/(u(0) − u(1))

**Values divided by their own norm** (`joined_norms`). In x/max(‖x‖, ε), as `F.normalize` has it, or in RMSNorm and
LayerNorm as many models write them, x·(mean x² + ε)^−½ and (x − x̄)/√(mean (x − x̄)² + ε), a value meets the sum of its
squares, which is anything but independent of it where one entry dominates. The operations between both are a function g
of the sum; with the product x·g they become one operation, which knows their covariance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.rules import RULES
from dasp.propagation.rules.activations import integrated
from dasp.propagation.rules.arithmetic import power
from dasp.propagation.rules.normalization import by_own_norm
from dasp.propagation.rules.piecewise import KINKS, integrated_pieces
from dasp.propagation.rules.registry import Rule, named, same_entry, within
from dasp.propagation.tracing import SHAPE_ONLY

__all__ = ["fused", "joined_norms"]

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
    """Return the graph with functions of one value as one operation each; `varying` is True for inputs that depend on
    the coalition."""
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
    """Return a node, the node that it is a function of, and so on."""
    lineage = [node]
    while lineage[-1] in sources:
        lineage.append(sources[lineage[-1]])
    return lineage


def _common(lineages: list[list[fx.Node]]) -> list[fx.Node]:
    first, *others = lineages
    return [node for node in first if all(node in other for other in others)]


class _Composition:
    """All nodes between a root and a node that is a function of it."""

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
    def arguments(self) -> tuple[fx.Node, ...]:
        """The nodes that the composed function takes."""
        return self.root, *self.constants

    @property
    def integrable(self) -> bool:
        """True if all of it has the shape of the root, a place for its kinks, and values everywhere."""
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
        """Return the composed function, of the root and the constants, as an op with its rule."""
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
        made = {x: graph.placeholder(x.name) for x in self.arguments}
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
    """Return the place where an affine function is 0; if there is none, any place, like the mean."""
    slope = at_one - at_zero
    flat = slope == 0
    return torch.where(flat, mean, -at_zero / torch.where(flat, 1, slope))


_STEPS = {  # what a norm may go through before a value is divided by it
    aten.add.Tensor, aten.add.Scalar, aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar,
    aten.clamp.default, aten.clamp_min.default, aten.sqrt.default, aten.rsqrt.default, aten.reciprocal.default,
    aten.pow.Tensor_Scalar,
}  # fmt: skip


def joined_norms(traced: fx.GraphModule) -> fx.GraphModule:
    """Return the graph with divisions of values by their own norms as one operation each."""
    found = {node: norm for node in traced.graph.nodes if (norm := _own_norm(node)) is not None}
    return _replaced(traced, found) if found else traced


def _own_norm(node: fx.Node) -> _OwnNorm | None:
    if node.target not in (aten.div.Tensor, aten.mul.Tensor) or not all(isinstance(x, fx.Node) for x in node.args):
        return None
    divides = node.target is aten.div.Tensor
    pairs = [node.args] if divides else [node.args, node.args[::-1]]
    candidates = (_OwnNorm.of(value, factor, divides) for value, factor in pairs)  # type: ignore[arg-type]
    return next((norm for norm in candidates if norm is not None), None)


@dataclass(frozen=True)
class _OwnNorm:
    """A value, and the steps from the sum of its squares to the number that it is divided by or multiplied with."""

    value: fx.Node
    dims: list[int]
    centred: bool  # True if the value less its mean is squared, summed and divided
    steps: list[Callable[[Any], Any]]

    @property
    def arguments(self) -> tuple[fx.Node, ...]:
        """The node that the operation takes."""
        return (self.value,)

    @staticmethod
    def of(value: fx.Node, factor: fx.Node, divides: bool) -> _OwnNorm | None:
        """Go back from the factor to a norm of the value; None if it is none."""
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
        """Return the operation, with its rule."""
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

        divided.rule = Rule(gaussian, within(lambda x: dims, keepdim=lambda x: None))  # type: ignore[attr-defined]
        return divided


@dataclass(frozen=True)
class _Sums:
    """The sum of squares of a value along dimensions, and the steps that follow it."""

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
    """Return the sum of squares of which a node is the norm, variance, mean or sum; None if it is none of them."""
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
    """Return the arguments of an op by name, with its defaults."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    defaults = {argument.name: argument.default_value for argument in schema.arguments}
    names = (argument.name for argument in schema.arguments)
    return {**defaults, **dict(zip(names, node.args, strict=False)), **node.kwargs}


def _squared(node: fx.Node) -> Any:
    if node.target is aten.square.default or (node.target is aten.pow.Tensor_Scalar and node.args[1] == 2):
        return node.args[0]
    return node.args[0] if node.target is aten.mul.Tensor and _same(*node.args) else None


def _same(a: Any, b: Any) -> bool:
    """Return True if two nodes are one, or do the same to the same."""
    if a is b or not (isinstance(a, fx.Node) and isinstance(b, fx.Node)):
        return a is b
    return a.op == "call_function" and a.target is b.target and a.args == b.args and a.kwargs == b.kwargs


def _centred(node: fx.Node, dims: list[int]) -> fx.Node | None:
    """Return x if a node is x less its mean along the dimensions; else None."""
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
    """Return True if a slice takes all, as in x[:, None]."""
    return node.target is aten.slice.Tensor and tuple(node.args[2:]) in ((), (0, 2**63 - 1))


def _kept(dims: list[int], keepdim: bool, restored: Any, rank: int) -> bool:
    """Return True if the norm has the dimensions of the entries that it is the norm of."""
    if keepdim:
        return restored is None
    return restored is not None and len(dims) == 1 and restored % rank == dims[0] % rank


def _replaced(traced: fx.GraphModule, found: Mapping[fx.Node, _Composition | _OwnNorm]) -> fx.GraphModule:
    """Return a copy of the graph with one operation for all those that end in a node that was found."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in traced.graph.nodes:
        if node in found:
            copies[node] = graph.call_function(found[node].target(), tuple(copies[x] for x in found[node].arguments))
            copies[node].meta = dict(node.meta)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.eliminate_dead_code()
    return fx.GraphModule(traced, graph)
