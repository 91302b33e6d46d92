"""From a model's graph to the same graph on random coalitions.

Walking the graph once with the players' numbers tells, for every node, whether it is constant, still exact for each
player, or random. The graph is then cut in two plain `fx.GraphModule`s, the halves of `Lifted`:

    exact     inputs (on and off) ──▶ frontier: the values where players meet, and constants that are needed later
    random    frontier as Gaussians ──▶ the model's output as a Gaussian

A coalition's distribution enters only between the two, at the `Frontier`, so the exact half runs once per input however
many distributions are propagated. Both halves share the model's weights and leave the model as it is.

**Numbers that may be random** are reals, and conditions as 0 and 1 with sums of them, but no other integers. A Gaussian
stands for a real number. It also has the two moments of a condition, or of a count of conditions, but nothing that it
could be an index with: a rule says whether it takes these (`Rule.takes`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree

from dasp.errors import Operation, UnsupportedOperation
from dasp.models.export_lock import evaluation_lock
from dasp.models.witness import Places
from dasp.propagation.fusion import fused, joined_norms
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.rules.registry import Rule, conditional_rule, evaluate, named, rule_of
from dasp.propagation.tracing import SHAPE_ONLY, is_own
from dasp.propagation.values import Conditional, Contributions, Linear, Switched, Toggled, packing

__all__ = ["Frontier", "Lifted", "covered", "lift", "operation"]

aten = torch.ops.aten


@dataclass(frozen=True)
class Lifted:
    """A lifted graph in two halves; see the module's docstring."""

    exact: fx.GraphModule
    random: fx.GraphModule
    places: Places = field(default_factory=partial(Places, share=None))  # of its rows, to be propagated again

    def __call__(self, *inputs: Any) -> Gaussian:
        """Run both halves, for inputs that are Gaussians already."""
        with evaluation_lock():
            return _as_gaussian(self.random(*self.exact(*inputs)))

    def frontier(self, *inputs: Any) -> Frontier:
        """Run the exact half, and return what crosses to the random one."""
        with torch.no_grad(), evaluation_lock():
            values = tuple(self.exact(*inputs))
        return Frontier(self, values, tuple(isinstance(x, (Contributions, Switched)) for x in values))


@dataclass(frozen=True)
class Frontier:
    """The values where players meet, as functions of who takes part or what was made of them; and constants."""

    lifted: Lifted
    values: tuple[Any, ...]
    meeting: tuple[bool, ...]  # True for those of the values that are no constants

    @property
    def depends(self) -> bool:
        """True if anything there depends on who takes part."""
        return any(self.meeting)

    @property
    def entries(self) -> int:
        """The number of entries of the widest tensor of units."""
        met = [x for x in self.values if isinstance(x, Contributions)]
        units = [x.expected(torch.zeros_like(x.value.difference)).numel() for x in met]
        return max([1, *units, *(2 * x.on.numel() for x in self.values if isinstance(x, Switched))])

    @property
    def packing(self) -> int:
        """The number of columns that the squares of players take where they meet, each of which is a pass through that
        operation; at least 1."""
        return max([1, *(x.packing for x in self.values if isinstance(x, Contributions))])

    def map(self, function: Callable[[Any], Any]) -> Frontier:
        """Apply `function` to what depends on who takes part; constants stay."""

        def mapped(x: Any) -> Any:
            return replace(x, member=function(x.member)) if isinstance(x, Switched) else function(x)

        both = zip(self.values, self.meeting, strict=True)
        return replace(self, values=tuple(mapped(x) if meets else x for x, meets in both))

    def propagated(self, *, batched: bool = False, through: Callable[..., Any] | None = None) -> Gaussian:
        """Run the random half, for values that are Gaussians by now; `batched` along a first dimension.

        It may be run `through` a compiled version of it.
        """
        random = through or self.lifted.random
        if batched:
            random = torch.vmap(random, in_dims=tuple(map(_batch_dims, self.values)))
        with evaluation_lock():
            return _as_gaussian(random(*self.values))


def _as_gaussian(output: Any) -> Gaussian:
    """Return an output as a Gaussian; one that does not depend on the inputs has no variance."""
    output = output.mixed if isinstance(output, Conditional) else output
    return output if isinstance(output, Gaussian) else Gaussian(output, torch.zeros_like(output))


def _batch_dims(x: Any) -> Any:
    """Return the dimension of a value's batch, for vmap."""
    if isinstance(x, Switched):
        return Switched(None, None, None, 0)  # type: ignore[arg-type]
    return 0 if isinstance(x, Gaussian) else None


class _NoRule(Exception):
    """Says, while the graph is walked, that a node has no rule for its arguments."""


class _Random:
    """Stands, while the graph is walked, for a value that will be a Gaussian."""


class _Later:
    """Stands for a value that is not random, but known only in the random half, like the size of a Gaussian."""


_RANDOM, _LATER = _Random(), _Later()
_DEPENDENT = (Toggled, Contributions, Gaussian, _Random)


def lift(traced: fx.GraphModule, arguments: tuple[Any, ...], count: int) -> Lifted:
    """Lift a traced model for `arguments`: `Toggled` for players, `Gaussian` for random inputs, else constants.

    Which nodes are exact depends on who the players are, not on the values, so the result serves all inputs of the
    same shapes with the same players. `count` is the number of players of one row.
    """
    traced = fused(joined_norms(traced), [isinstance(x, _DEPENDENT) for x in arguments])
    values: dict[fx.Node, Any] = {}
    targets: dict[fx.Node, Callable[..., Any]] = {}
    missing: list[fx.Node] = []
    discrete: set[fx.Node] = set()  # what an order, a place or a step is, and what follows from it
    inputs = iter(arguments)
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(inputs)
        elif node.op == "get_attr":
            values[node] = reduce(getattr, node.target.split("."), traced)
        elif node.op == "call_function":
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            try:
                varying = [x for x in node.all_input_nodes if isinstance(values[x], _DEPENDENT)]
                targets[node], values[node] = _lift_call(node, varying, args, kwargs, count)
            except _NoRule:
                values[node] = _RANDOM
                if discrete.isdisjoint(node.all_input_nodes):  # else no rule would help, and the cause is named
                    missing.append(node)
                    if operation(node).discrete:
                        discrete.add(node)
            if not discrete.isdisjoint(node.all_input_nodes):
                discrete.add(node)
        elif node.op == "output":
            values[node] = None
        else:
            raise UnsupportedOperation([Operation(f"{node.op} {node.target}")])
    if missing:
        raise UnsupportedOperation([operation(node) for node in missing])
    conditional = any(_has_conditional_rule(node, values) for node in traced.graph.nodes)
    if conditional:
        random = {node: rule_of(node.target) for node in targets if values[node] is _RANDOM}
        targets |= {node: conditional_rule(node.target, rule) for node, rule in random.items() if rule is not None}  # type: ignore[arg-type]
    return _cut(traced, values, targets, count, conditional)


def _has_conditional_rule(node: fx.Node, values: dict[fx.Node, Any]) -> bool:
    """Return True if players meet in an op whose rule continues values conditional on their players."""
    rule = rule_of(node.target) if values[node] is _RANDOM else None
    return rule is not None and rule.conditional is not None and isinstance(values[node.all_input_nodes[0]], Toggled)


def _lift_call(
    node: fx.Node, varying: list[fx.Node], args: Any, kwargs: Any, count: int
) -> tuple[Callable[..., Any], Any]:
    """Return what a node becomes, and its value; `varying` are the inputs of it that depend on the coalition."""
    op: Any = node.target
    kinds = {type(x) for x in _leaves((args, kwargs))} & {Toggled, Contributions, Gaussian, _Random, _Later}
    if not kinds:
        return op, op(*args, **kwargs)
    if op is operator.getitem:
        return op, args[0] if args[0] in (_RANDOM, _LATER) else op(*args)
    if op in SHAPE_ONLY:  # what depends on the shape does not depend on the coalition
        target = named(op, _of_shape(op))
        return target, target(*args, **kwargs) if kinds <= {Toggled, Gaussian} else _LATER
    if kinds == {_Later}:
        return op, _LATER
    rule = rule_of(op)
    if rule is None or not covered(node, rule):
        raise _NoRule
    if rule.linear is not None and _several((args, kwargs)) and rule.linear(*args, **kwargs)[0] is not None:
        raise _NoRule  # affine in one argument, but others are random too
    if kinds == {Toggled}:
        players = rule.tracker(op, *args, **kwargs)
        if players is not None:
            target = named(op, _exact(op, rule))
            return target, target(*args, **kwargs)
        if rule.linear is not None and _continuous(rule.linear(*args, **kwargs)[0]):
            target = named(op, _mixing(op, rule.linear, count, args, kwargs))
            return target, target(*args, **kwargs)
    if rule.gaussian is None or not _may_be_random(node, rule, varying, _leaves((args, kwargs))):
        raise _NoRule
    if rule.linear is not None and isinstance(rule.linear(*args, **kwargs)[0], Tensor):
        raise _NoRule  # affine in an argument that is constant
    return rule.gaussian, _RANDOM


def _leaves(tree: Any) -> list[Any]:
    return _pytree.tree_leaves(tree, is_leaf=lambda x: isinstance(x, Gaussian))


def _several(tree: Any) -> bool:
    """Return True if more than one value depends on the coalition."""
    return sum(isinstance(x, _DEPENDENT) for x in _leaves(tree)) > 1


def _continuous(x: Any) -> bool:
    """Return True if a value is a real number per player."""
    return isinstance(x, Toggled) and x.on.is_floating_point()


def _may_be_random(node: fx.Node, rule: Rule, varying: list[fx.Node], arguments: list[Any]) -> bool:
    """Return True if a node with a rule can be a Gaussian; its inputs `varying` depend on the coalition."""
    exact = {x.on.dtype for x in arguments if isinstance(x, Toggled)}
    taken = exact | {x.dtype for source in varying for x in _tensors(source)}
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


def _as_numbers(x: Toggled, dtype: torch.dtype) -> Toggled:
    """Return a condition as 1 where it holds and 0 where it does not."""
    return Toggled(x.on.to(dtype), x.off.to(dtype), x.players)


def _real_dtype(nodes: list[fx.Node]) -> torch.dtype:
    """Return the dtype that a graph computes in."""
    dtypes = (x.dtype for node in nodes for x in _tensors(node))
    return next((dtype for dtype in dtypes if dtype.is_floating_point), torch.get_default_dtype())


def covered(node: fx.Node, rule: Rule) -> bool:
    """Return True if the rule gives all results of the node that are used."""
    return rule.outputs is None or all(_index(user) < rule.outputs for user in node.users)


def _index(user: fx.Node) -> int:
    return user.args[1] if user.target is operator.getitem else 0  # type: ignore[return-value]


def _of_shape(op: Any) -> Callable[..., Any]:
    def of_shape(*args: Any, **kwargs: Any) -> Any:
        """The op on any tensor of the value's shape."""
        return evaluate(op, lambda value: value.on if isinstance(value, Toggled) else value.mean, args, kwargs)

    return of_shape


def _exact(op: Any, rule: Rule) -> Callable[..., Any]:
    # A baseline for all rows has strides of its own, so a view of it is not always one.
    call = aten.reshape.default if op in (aten.view.default, aten._unsafe_view.default) else op

    def exact(*args: Any, **kwargs: Any) -> Any:
        """The op on both halves of its arguments."""
        players = rule.tracker(op, *args, **kwargs)
        on = evaluate(call, lambda value: value.on, args, kwargs)
        off = evaluate(call, lambda value: value.off, args, kwargs)
        if isinstance(on, Tensor):
            return Toggled(on, off, players)
        return [Toggled(*part) for part in zip(on, off, players, strict=True)]

    return exact


def _mixing(
    op: Any, linear_part: Callable[..., Any], count: int, args: Any, kwargs: Any, conditional: bool = False
) -> Callable[..., Any]:
    """Return the first op that mixes players, in terms of them; who meets whom is the same for all inputs."""
    value, linear = linear_part(*args, **kwargs)
    columns = packing(value.players, linear, count)

    def mixing(*args: Any, **kwargs: Any) -> Contributions:
        """The op as a function of who takes part."""
        value, linear = linear_part(*args, **kwargs)
        affine = partial(_with_value, op, args, kwargs)
        return Contributions(value, affine, linear, count, columns, conditional)

    return mixing


def _with_value(op: Any, args: Any, kwargs: Any, x: Tensor) -> Any:
    """Evaluate the op with a tensor in the place of the value among its arguments."""
    return evaluate(op, lambda _: x, args, kwargs)


def _entry(x: Toggled) -> tuple[Toggled, Linear]:
    """The linear part of the identity."""
    return x, lambda data, power: data


def _cut(
    traced: fx.GraphModule,
    values: dict[fx.Node, Any],
    targets: dict[fx.Node, Callable[..., Any]],
    count: int,
    conditional: bool,
) -> Lifted:
    """Copy every node into its half."""
    nodes = list(traced.graph.nodes)
    random_nodes = {n for n in nodes if n.op == "output" or values[n] is _RANDOM or values[n] is _LATER}
    exact, random = fx.Graph(), fx.Graph()
    in_exact: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        if node not in random_nodes:
            in_exact[node] = exact.node_copy(node, in_exact.__getitem__)
            in_exact[node].target = targets.get(node, node.target)
    switched = {}  # what takes its first argument as it is
    for node in nodes:
        rule = rule_of(node.target) if node in random_nodes else None
        players = None if rule is None else rule.switched
        if players is not None and isinstance(x := values[node.args[0]], Toggled) and players(x) is not None:
            value = in_exact[node.args[0]]
            switched[node] = exact.call_function(Switched.of, (value, exact.call_function(players, (value,)), count))
    used = {n for user in random_nodes for n in user.all_input_nodes if not (user in switched and n is user.args[0])}
    frontier = [node for node in nodes if node in used - random_nodes and node.op != "get_attr"]
    for node in frontier:
        if isinstance(values[node], Toggled):  # players meet here without an affine op: each entry by itself
            if not _continuous(values[node]):
                in_exact[node] = exact.call_function(_as_numbers, (in_exact[node], _real_dtype(nodes)))
                values[node] = _as_numbers(values[node], _real_dtype(nodes))
            identity = _mixing(aten.alias.default, _entry, count, (values[node],), {}, conditional)
            in_exact[node] = exact.call_function(identity, (in_exact[node],))
    exact.output((*(in_exact[node] for node in frontier), *switched.values()))
    exact.eliminate_dead_code()
    in_random = {node: random.placeholder(node.name) for node in frontier}
    as_is = {node: random.placeholder(f"{node.name}_switched") for node in switched}
    for node in nodes:
        if node in random_nodes or (node in used and node.op == "get_attr"):
            taken = {**in_random, node.args[0]: as_is[node]} if node in as_is else in_random
            in_random[node] = random.node_copy(node, taken.__getitem__)
            in_random[node].target = targets.get(node, node.target)
    return Lifted(fx.GraphModule(traced, exact), fx.GraphModule(traced, random))


def operation(node: fx.Node) -> Operation:
    """Return the operation of a node with the user's line of code."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in \S+\n\s+(.+)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if is_own(frame[0])] or frames
    return Operation(str(node.target), "{}, line {}: {}".format(*own[-1]) if own else "")
