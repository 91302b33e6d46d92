"""The registry of rules: each says what an ATen op does to values that depend on a random coalition.

A rule has two sides.

- **Before players meet** (`Toggled` values) an op that stays within players acts on the on and the off half. Its
  `Tracker` says whose entries the result has, or None if the op mixes players.
- **Once they have met** the rule's `gaussian` function maps Gaussians to Gaussians. For an affine op `linear` also
  gives its linear part, which turns the exact pair into a Gaussian with exact moments. A rule with `switched` takes the
  exact pair itself, and one with `conditional` the pair of Gaussians that is continued from it.

Families make most ops one line: `structural`, `elementwise`, `affine`; `rule` is for everything else:

    @rule(torch.ops.mylib.square.default, tracker=same_entry)
    def square(x: Gaussian) -> Gaussian: ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils import _pytree

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.values import NOBODY, Conditional, Linear, Toggled, owners

__all__ = ["RULES", "Rule", "Tracker", "affine", "mixing", "rule", "rule_of", "same_entry", "structural", "within"]

Op = Callable[..., Any]
Tracker = Callable[..., Any]
"""(op, *args, **kwargs) → the players of the op's result (the op's own structure of tensors), or None if it mixes."""

Players = Callable[[Toggled], Tensor | None]
"""A function that gives the players of a value in the shape that a rule needs, or None if entries there mix players."""


Takes = Literal["reals", "counts", "conditions"]
"""The numbers that may be random in an op: reals; also conditions (0 or 1) and sums of them; or conditions alone."""


@dataclass(frozen=True)
class Rule:
    """The two sides of an op's rule; see the module's docstring."""

    gaussian: Callable[..., Any] | None
    tracker: Tracker
    linear: Callable[..., tuple[Any, Linear]] | None = None
    outputs: int | None = None  # the number of the op's results that the rule gives; None: all
    moves: bool = False  # True if all entries of the result are entries of the arguments, or constants
    takes: Takes = "reals"
    condition: bool = False  # True if its result is one of two values, as true or false
    switched: Players | None = None  # if the rule takes its first argument as `Switched`, of these players
    conditional: Callable[..., Any] | None = None  # for `Conditional` arguments that meet here; may give None


RULES: dict[Op, Rule] = {}
"""The rule of every operation that has one."""


def rule_of(op: Any) -> Rule | None:
    """Return the rule of an op, or the one that an operation made of several brings along."""
    return getattr(op, "rule", None) or RULES.get(op)


def mixing(op: Op, *args: Any, **kwargs: Any) -> None:
    """The tracker of an op that may combine any entries."""
    return


def same_entry(op: Op, *args: Any, **kwargs: Any) -> Tensor | None:
    """The tracker of an elementwise op, which stays within players if the entries it combines have the same one."""
    leaves = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, (Tensor, Toggled))]
    maps = torch.broadcast_tensors(
        *(x.players if isinstance(x, Toggled) else torch.full_like(x, NOBODY, dtype=torch.int64) for x in leaves)
    )
    owner = torch.stack(maps).amax(0)
    agree = all(bool(((m == owner) | (m == NOBODY)).all()) for m in maps)
    return owner if agree else None


def moved(op: Op, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The tracker of a structural op: the players move with the entries of its first argument."""
    if not isinstance(x, Toggled) or any(isinstance(leaf, Toggled) for leaf in _pytree.tree_leaves((args, kwargs))):
        return None
    # Not all ops take integers; the players' numbers are exact in float64.
    return _pytree.tree_map(Tensor.long, op(x.players.double(), *args, **kwargs))


def joined(op: Op, values: Sequence[Toggled | Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """The tracker of an op that puts values side by side."""
    players = [v.players if isinstance(v, Toggled) else torch.full_like(v, NOBODY, dtype=torch.int64) for v in values]
    return op(players, *args, **kwargs)


def within(dims: Callable[..., Sequence[int]], keepdim: Callable[..., bool | None]) -> Tracker:
    """Return the tracker of an op that combines entries along `dims(*args)`, and stays within players while those all
    have one. The result has these dimensions as they are if `keepdim(*args)` is None, with length 1 if it is True, and
    not at all if it is False."""

    def tracker(op: Op, x: Toggled, *args: Any, **kwargs: Any) -> Tensor | None:
        along = tuple(dims(x.on, *args, **kwargs))
        owner = x.players.amax(along, keepdim=True)
        if not bool(((x.players == owner) | (x.players == NOBODY)).all()):
            return None
        keep = keepdim(x.on, *args, **kwargs)
        return owner.expand_as(x.players) if keep is None else owner if keep else owner.squeeze(along)

    return tracker


def _reached(op: Op, *args: Any, linear: Callable[..., tuple[Any, Linear]], **kwargs: Any) -> Tensor | None:
    """The tracker of an affine op, which stays within players if no unit sees two."""
    x, weights = linear(op, *args, **kwargs)
    return owners(x.players, weights) if isinstance(x, Toggled) else None  # else several arguments: not affine


def rule(*ops: Op, tracker: Tracker = mixing, **properties: Any) -> Callable[[Callable[..., Any]], Any]:
    """Register the decorated function of Gaussians as the rule of `ops`; properties are those of `Rule`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            RULES[op] = Rule(function, tracker, **properties)
        return function

    return register


def structural(*ops: Op, tracker: Tracker = moved, call: Op | None = None, takes: Takes = "counts") -> None:
    """Register ops that only move entries: they act, or `call` in their place, on mean, variance and each column."""
    for op in ops:
        RULES[op] = Rule(named(op, _structural(call or op)), tracker, moves=True, takes=takes)


def _structural(op: Op) -> Callable[..., Any]:
    def structural(x: Gaussian, *args: Any, **kwargs: Any) -> Any:
        def call(tensor: Tensor) -> Any:
            return op(tensor, *args, **kwargs)

        mean, variance, factors = call(x.mean), call(x.variance), x.columns(call)
        if isinstance(mean, Tensor):
            return Gaussian(mean, variance, factors)
        columns: Any = [None] * len(mean) if factors is None else factors
        return [Gaussian(*part) for part in zip(mean, variance, columns, strict=True)]

    return structural


def named(op: Op, function: Callable[..., Any]) -> Callable[..., Any]:
    """Name a closure after its op: fx writes functions by name into the code it generates, and tracebacks show it."""
    function.__name__ = f"{function.__name__}_{getattr(op, '__name__', 'op').replace('.', '_')}"
    return function


def affine(*ops: Op, takes: Takes = "reals") -> Callable[[Callable[..., Any]], Any]:
    """Register ops that are affine in one argument.

    The decorated function takes the op and its arguments and returns that argument with the op's `Linear` part; the
    offset is what the op itself adds. An op that is affine in either of two arguments names the random one.
    """

    def register(linear: Callable[..., tuple[Any, Linear]]) -> Callable[..., Any]:
        for op in ops:
            tracker = partial(_reached, linear=linear)
            RULES[op] = Rule(named(op, _affine(op, linear)), tracker, partial(linear, op), takes=takes)
        return linear

    return register


def _affine(op: Op, linear: Callable[..., tuple[Any, Linear]]) -> Callable[..., Gaussian]:
    def affine(*args: Any, **kwargs: Any) -> Gaussian:
        x, weights = linear(op, *args, **kwargs)
        mean = evaluate(op, lambda value: value.mean, args, kwargs)
        return Gaussian(mean, weights(x.variance, 2), x.columns(lambda column: weights(column, 1)))

    return affine


def conditional_rule(op: Op, rule: Rule) -> Callable[..., Any]:
    """Return the rule on Gaussians for values that may be `Conditional`: on both while it stays within players."""
    gaussian = rule.gaussian
    assert gaussian is not None

    def conditional(*args: Any, **kwargs: Any) -> Any:
        leaves = _pytree.tree_leaves((args, kwargs), is_leaf=lambda x: isinstance(x, Gaussian))
        value = next((x for x in leaves if isinstance(x, Conditional)), None)
        if value is None:
            return gaussian(*args, **kwargs)
        if not any(isinstance(x, Gaussian) for x in leaves):
            with torch.no_grad():
                players = evaluate(partial(rule.tracker, op), lambda x: x.toggled, args, kwargs)
            if players is not None:
                on, off = (evaluate(gaussian, attrgetter(half), args, kwargs) for half in ("on", "off"))
                if isinstance(on, Gaussian):
                    return Conditional(on, off, players, value.probabilities)
                return [Conditional(*part, value.probabilities) for part in zip(on, off, players, strict=True)]
            if rule.conditional is not None and (result := rule.conditional(*args, **kwargs)) is not None:
                return result
        return evaluate(gaussian, lambda x: x.mixed if isinstance(x, Conditional) else x, args, kwargs)

    return named(op, conditional)


def evaluate(op: Op, part: Callable[[Any], Any], args: Any, kwargs: Any) -> Any:
    """Evaluate `op` on one part of each value among its arguments."""

    def leaf(x: Any) -> bool:
        return isinstance(x, (Gaussian, Toggled, Conditional))

    def pick(x: Any) -> Any:
        return part(x) if leaf(x) else x

    return op(*_pytree.tree_map(pick, args, is_leaf=leaf), **_pytree.tree_map(pick, kwargs, is_leaf=leaf))
