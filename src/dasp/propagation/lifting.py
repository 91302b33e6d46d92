"""From a model's graph to the same graph on random coalitions.

Walking the graph once with the players' numbers tells, for every node, whether it is constant, still exact for each
player, or random. The graph is then cut in two plain `fx.GraphModule`s:

    exact     inputs (on and off) ──▶ frontier: the values where players meet, and constants that are needed later
    random    frontier as Gaussians ──▶ the model's output as a Gaussian

A coalition's distribution enters only between the two, so the exact half runs once per input however many
distributions are propagated. Both halves share the model's weights and leave the model as it is.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree

from dasp.errors import Operation, UnsupportedOperation
from dasp.propagation.exporting import is_own
from dasp.propagation.frontier import Frontier, Lifted
from dasp.propagation.fusion import fused
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.kinds import as_numbers, continuous, may_be_random, real_dtype
from dasp.propagation.own_norm import joined_norms
from dasp.propagation.rules.registry import Rule, evaluate, kept_apart, named, rule_of
from dasp.propagation.tracing import SHAPE_ONLY
from dasp.propagation.values import Contributions, Linear, Switched, Toggled, packing

__all__ = ["Frontier", "Lifted", "covered", "lift", "operation"]


aten = torch.ops.aten


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
    given = iter(arguments)
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "get_attr":
            values[node] = reduce(getattr, node.target.split("."), traced)
        elif node.op == "call_function":
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            try:
                varying = [x for x in node.all_input_nodes if isinstance(values[x], _DEPENDENT)]
                targets[node], values[node] = _lift_call(node, varying, args, kwargs, count)
            except _NoRule:
                missing.append(node)
                values[node] = _RANDOM
        elif node.op == "output":
            values[node] = None
        else:
            raise UnsupportedOperation([Operation(f"{node.op} {node.target}")])
    if missing:
        raise UnsupportedOperation([operation(node) for node in missing])
    apart = any(_meet_apart(node, values) for node in traced.graph.nodes)
    if apart:
        random = {node: rule_of(node.target) for node in targets if values[node] is _RANDOM}
        targets |= {node: kept_apart(node.target, rule) for node, rule in random.items() if rule is not None}  # type: ignore[arg-type]
    return _cut(traced, values, targets, count, apart)


def _meet_apart(node: fx.Node, values: dict[fx.Node, Any]) -> bool:
    """Whether players meet in an op that keeps them apart."""
    rule = rule_of(node.target) if values[node] is _RANDOM else None
    return rule is not None and rule.apart is not None and isinstance(values[node.all_input_nodes[0]], Toggled)


def _lift_call(
    node: fx.Node, varying: list[fx.Node], args: Any, kwargs: Any, count: int
) -> tuple[Callable[..., Any], Any]:
    """What a node becomes, and its value; `varying` are those of its inputs that depend on the coalition."""
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
        if rule.linear is not None and continuous(rule.linear(*args, **kwargs)[0]):
            target = named(op, _mixing(op, rule.linear, count, args, kwargs))
            return target, target(*args, **kwargs)
    if rule.gaussian is None or not may_be_random(node, rule, varying, _leaves((args, kwargs))):
        raise _NoRule
    if rule.linear is not None and isinstance(rule.linear(*args, **kwargs)[0], Tensor):
        raise _NoRule  # affine in an argument that is constant
    return rule.gaussian, _RANDOM


def _leaves(tree: Any) -> list[Any]:
    return _pytree.tree_leaves(tree, is_leaf=lambda x: isinstance(x, Gaussian))


def _several(tree: Any) -> bool:
    """Whether more than one value depends on the coalition."""
    return sum(isinstance(x, _DEPENDENT) for x in _leaves(tree)) > 1


def covered(node: fx.Node, rule: Rule) -> bool:
    """Whether the rule gives all results of the node that are used."""
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
    op: Any, linear_part: Callable[..., Any], count: int, args: Any, kwargs: Any, apart: bool = False
) -> Callable[..., Any]:
    """The first op that mixes players; who meets whom is the same for all inputs, and found here."""
    value, linear = linear_part(*args, **kwargs)
    columns = packing(value.players, linear, count)

    def mixing(*args: Any, **kwargs: Any) -> Contributions:
        """The op as a function of who takes part."""
        value, linear = linear_part(*args, **kwargs)
        return Contributions(value, lambda x: evaluate(op, lambda _: x, args, kwargs), linear, count, columns, apart)

    return mixing


def _entry(x: Toggled) -> tuple[Toggled, Linear]:
    """The linear part of the identity."""
    return x, lambda data, power: data


def _cut(
    traced: fx.GraphModule,
    values: dict[fx.Node, Any],
    targets: dict[fx.Node, Callable[..., Any]],
    count: int,
    apart: bool,
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
            given = in_exact[node.args[0]]
            switched[node] = exact.call_function(Switched.of, (given, exact.call_function(players, (given,)), count))
    used = {n for user in random_nodes for n in user.all_input_nodes if not (user in switched and n is user.args[0])}
    frontier = [node for node in nodes if node in used - random_nodes and node.op != "get_attr"]
    for node in frontier:
        if isinstance(values[node], Toggled):  # players meet here without an affine op: each entry by itself
            if not continuous(values[node]):
                in_exact[node] = exact.call_function(as_numbers, (in_exact[node], real_dtype(nodes)))
                values[node] = as_numbers(values[node], real_dtype(nodes))
            identity = _mixing(aten.alias.default, _entry, count, (values[node],), {}, apart)
            in_exact[node] = exact.call_function(identity, (in_exact[node],))
    exact.output((*(in_exact[node] for node in frontier), *switched.values()))
    exact.eliminate_dead_code()
    in_random = {node: random.placeholder(node.name) for node in frontier}
    as_is = {node: random.placeholder(f"{node.name}_apart") for node in switched}
    for node in nodes:
        if node in random_nodes or (node in used and node.op == "get_attr"):
            taken = {**in_random, node.args[0]: as_is[node]} if node in as_is else in_random
            in_random[node] = random.node_copy(node, taken.__getitem__)
            in_random[node].target = targets.get(node, node.target)
    return Lifted(fx.GraphModule(traced, exact), fx.GraphModule(traced, random))


def operation(node: fx.Node) -> Operation:
    """The operation of a node, with the user's own line."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in \S+\n\s+(.+)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if is_own(frame[0])] or frames
    return Operation(str(node.target), "{}, line {}: {}".format(*own[-1]) if own else "")
