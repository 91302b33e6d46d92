"""The rules by which DeepLIFT passes differences through the operations of a model.

Most operations need no rule of their own: what an operation does to Gaussians tells that it moves entries, is affine,
or works entry by entry. Left are sums; products; maxima; and softmax.

**Products** are games of two players: with ā = ½(a + a⁰) and b̄ = ½(b + b⁰)

    ab − a⁰b⁰ = Δa·b̄ + Δb·ā

are the Shapley values of the factors, so that each passes through the linear rule with the other's middle for weights.

**Maxima and minima** are games of their entries. `maximum_game` has the Shapley value φ_i of every entry of a maximum,
exactly, and the linear rule takes the weights φ_i/Δ_i, none of which is negative. For a pooling window the entries are
first gathered: along each dimension a table (windows, window size) of their positions, with −1 for what lies outside
the input.

**Softmax** is the sigmoid of the log-odds of each entry against all others, as in `propagation.rules.softmax`, and its
logarithm the sigmoid's. For two entries the log-odds are the entries' difference. For more, with S_j = Σ_{k≠j} exp x_k,

    d_j = x_j − log S_j,      log S_j − log S_j⁰ = Σ_{k≠j} r_j a_k Δ_k,      a = Δ(exp x)/Δx,   r = Δ(log S)/ΔS

by Rescale, which gives what all entries have in common to none; the linear rule takes these weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils import _pytree

from dasp.attribution.deeplift.differences import Difference, Nonlinear, rescale, revealcancel, weighted
from dasp.attribution.deeplift.maximum_game import maximum_slopes
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.rules.activations import channels
from dasp.propagation.rules.affine import adaptive_windows, raised
from dasp.propagation.rules.maximum import dimensions, geometry, window_count
from dasp.propagation.rules.registry import RULES, Rule, same_entry
from dasp.propagation.values import Linear

__all__ = ["DIFFERENCE_RULES", "at_reference", "difference_rule", "whole_operations"]

aten = torch.ops.aten

DIFFERENCE_RULES: dict[Any, Callable[..., Any]] = {}

# What is done to the log-odds of entries.
_OF_LOG_ODDS = {
    aten.softmax.int: torch.sigmoid,
    aten._softmax.default: torch.sigmoid,
    aten._safe_softmax.default: torch.sigmoid,
    aten.log_softmax.int: functional.logsigmoid,
    aten._log_softmax.default: functional.logsigmoid,
}

_SCALES = {aten.batch_norm.default, aten.neg.default}  # affine ops that work entry by entry

# Powers are products. The others are not defined everywhere, and RevealCancel would leave the range from x⁰ to x.
_RESCALED = {
    aten.square.default,
    aten.pow.Tensor_Scalar,
    aten.reciprocal.default,
    aten.sqrt.default,
    aten.rsqrt.default,
    aten.log.default,
}


def _rule_for(*ops: Any) -> Callable[[Callable[..., Any]], Any]:
    """Register the decorated function on differences as the rule of `ops`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            DIFFERENCE_RULES[op] = function
        return function

    return register


def difference_rule(op: Any, args: Any, kwargs: Any, nonlinear: Nonlinear) -> Callable[..., Any] | None:
    """Return the rule of an op for the arguments at hand; None if there is none."""
    if op in DIFFERENCE_RULES:
        return DIFFERENCE_RULES[op]
    rule = RULES.get(op)
    if rule is None or not (_serves(rule) or op in _OF_LOG_ODDS):
        return None
    if rule.moves:
        return _moving(op)
    values = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, Difference)]
    if len(values) > 1:
        return None
    if rule.linear is not None:
        return _affine(op, rule.linear) if isinstance(rule.linear(*args, **kwargs)[0], Difference) else None
    dense = values[0].reference.dim() <= 2
    reveals = op not in _RESCALED and (nonlinear == "revealcancel" or (nonlinear == "mixed" and dense))
    divided = revealcancel if reveals else rescale
    if op in _OF_LOG_ODDS:
        return lambda x, dim, *_, **__: divided(_OF_LOG_ODDS[op], log_odds(x, dim))
    return _elementwise(op, values[0], divided)


def whole_operations() -> set[Any]:
    """Return the operations that may have a rule; others are decomposed, as what mixes entries may consist of those."""
    return {op for op, rule in RULES.items() if op in DIFFERENCE_RULES or op in _OF_LOG_ODDS or _serves(rule)}


def _serves(rule: Rule) -> bool:
    """True if an op's rule for Gaussians tells what it does to differences."""
    told = rule.moves or rule.linear is not None or rule.tracker in (same_entry, channels)
    return rule.gaussian is not None and told and not rule.condition


def at_reference(op: Any, args: Any, kwargs: Any) -> Any:
    """Return the op's result on the references of its arguments."""
    return _evaluate(op, lambda x: x.reference, args, kwargs)


def _evaluate(op: Any, part: Callable[[Difference], Any], args: Any, kwargs: Any) -> Any:
    args, kwargs = _pytree.tree_map(lambda x: part(x) if isinstance(x, Difference) else x, (args, kwargs))
    return op(*args, **kwargs)


def _moving(op: Any) -> Callable[..., Any]:
    """The rule of an op that moves entries. It treats all parts of a value alike, be they mean, variance and factors of
    a Gaussian or, in their place, those of a difference."""

    def moving(*args: Any, **kwargs: Any) -> Any:
        function = RULES[op].gaussian
        moved = _evaluate(function, lambda x: Gaussian(x.reference, x.positive, x.negative[None]), args, kwargs)
        return _pytree.tree_map(_parts, moved, is_leaf=lambda x: isinstance(x, Gaussian))

    return moving


def _parts(x: Gaussian) -> Difference:
    assert x.factors is not None
    return Difference(x.mean, x.variance, x.factors[0])


def _affine(op: Any, linear_part: Callable[..., tuple[Any, Linear]]) -> Callable[..., Difference]:
    def affine(*args: Any, **kwargs: Any) -> Difference:
        x, linear = linear_part(*args, **kwargs)
        return weighted(at_reference(op, args, kwargs), linear, x, entrywise=op in _SCALES)

    return affine


def _elementwise(op: Any, x: Difference, divided: Callable[..., Difference]) -> Callable[..., Difference]:
    def elementwise(*args: Any, **kwargs: Any) -> Difference:
        return divided(lambda at: _evaluate(op, lambda _: at, args, kwargs), x)

    return elementwise


@_rule_for(aten.add.Tensor, aten.add.Scalar)
def add(a: Any, b: Any, alpha: float = 1) -> Difference:
    """a + αb, part by part."""
    like = a if isinstance(a, Difference) else b
    return Difference.of(a, like) + Difference.of(b, like) * alpha


@_rule_for(aten.sub.Tensor, aten.sub.Scalar)
def sub(a: Any, b: Any, alpha: float = 1) -> Difference:
    """a − αb."""
    return add(a, b, -alpha)


@_rule_for(aten.rsub.Scalar, aten.rsub.Tensor)
def rsub(a: Any, b: Any, alpha: float = 1) -> Difference:
    """b − αa."""
    return add(b, a, -alpha)


def _product(op: Any, constant_case: Callable[..., Difference]) -> Callable[..., Difference]:
    def product(a: Any, b: Any) -> Difference:
        """a·b; see the module's docstring."""
        if not (isinstance(a, Difference) and isinstance(b, Difference)):
            return constant_case(a, b)
        both = constant_case(a, b.middle) + constant_case(a.middle, b)
        return replace(both, reference=op(a.reference, b.reference))

    return product


mul = _rule_for(aten.mul.Tensor, aten.mul.Scalar)(
    _product(torch.mul, lambda a, b: a * b if isinstance(a, Difference) else b * a)
)

for _op in (aten.mm.default, aten.bmm.default, aten.matmul.default):
    _rule_for(_op)(_product(_op, _affine(_op, RULES[_op].linear)))  # type: ignore[arg-type]


@_rule_for(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(a: Any, b: Any, weight: Any) -> Difference:
    """a + w(b − a)."""
    like = next(x for x in (a, b, weight) if isinstance(x, Difference))
    a, b = Difference.of(a, like), Difference.of(b, like)
    if isinstance(weight, Difference):
        return a + mul(weight, sub(b, a))  # type: ignore[no-any-return]
    return a * (1 - weight) + b * weight


def _into(op: Any, at: int) -> Callable[..., Difference]:
    one = _affine(op, RULES[op].linear)  # type: ignore[arg-type]

    def into(*args: Any, **kwargs: Any) -> Difference:
        """One value added to another at some places: the parts of each beside the other's reference."""
        value, source = args[0], args[at]
        if not (isinstance(value, Difference) and isinstance(source, Difference)):
            return one(*args, **kwargs)
        first = one(*args[:at], source.reference, *args[at + 1 :], **kwargs)
        return replace(first + one(value.reference, *args[1:], **kwargs), reference=first.reference)

    return into


for _op, _at in ((aten.index_put.default, 2), (aten.index_add.default, 3), (aten.scatter_add.default, 3)):
    _rule_for(_op)(_into(_op, _at))


def _sum_with_product(inner: Any) -> Callable[..., Difference]:
    def addmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Difference:
        """β·bias + α·a·b."""
        constant = not (isinstance(a, Difference) or isinstance(b, Difference))
        product = inner(a, b) if constant else DIFFERENCE_RULES[inner](a, b)
        return add(product * alpha, bias, beta)  # type: ignore[no-any-return]

    return addmm


_rule_for(aten.addmm.default)(_sum_with_product(aten.mm.default))
_rule_for(aten.baddbmm.default)(_sum_with_product(aten.bmm.default))


@_rule_for(aten.div.Tensor, aten.div.Scalar)
def div(a: Any, b: Any) -> Difference:
    """a·b⁻¹."""
    return mul(a, rescale(torch.reciprocal, b) if isinstance(b, Difference) else 1 / b)  # type: ignore[no-any-return]


def log_odds(x: Difference, dim: int) -> Difference:
    """Return x_j − log Σ_{k≠j} exp x_k along a dimension; see the module's docstring.

    What concerns all entries but one is a sum over all minus that one, except for the largest entry of either end:
    there the others are summed by themselves, as the difference would cancel. All of it is in float64, as what entries
    have in common may be large, and cancels.
    """
    dtype, x = x.reference.dtype, x.each(torch.Tensor.double)
    ends = (x.reference, x.value)
    tops = [torch.zeros_like(end, dtype=torch.bool).scatter(dim, end.argmax(dim, keepdim=True), True) for end in ends]
    every = _Exponentials(ends, x.change, dim)
    beside = [(top, _Exponentials([end.masked_fill(top, -torch.inf) for end in ends], x.change, dim)) for top in tops]
    logs = [log + torch.log1p(-end.softmax(dim).masked_fill(top, 0))
            for log, end, top in zip(every.logs, ends, tops, strict=True)]  # fmt: skip
    slopes = every.slopes_of(logs)
    for top, others in beside:
        logs = [torch.where(top, alone, log) for alone, log in zip(others.logs, logs, strict=True)]
        slopes = torch.where(top, others.slopes_of(others.logs), slopes)

    def linear(data: Tensor, power: Any) -> Tensor:
        each = every.slopes * data
        sums = each.sum(dim, keepdim=True) - each
        for top, others in beside:
            sums = torch.where(top, (others.slopes * data).sum(dim, keepdim=True), sums)
        return data + sums * raised(-slopes, power)

    return weighted(x.reference - logs[0], linear, x).each(lambda part: part.to(dtype))


class _Exponentials:
    """Entries' exponentials at both ends, as parts of the largest: log Σ exp x, and the slopes a and r."""

    def __init__(self, ends: Sequence[Tensor], change: Tensor, dim: int) -> None:
        self.lowest = torch.finfo(change.dtype).min / 4  # in place of −∞, where there are none
        highest = torch.maximum(*ends)
        self.shift = highest.amax(dim, keepdim=True).clamp(min=self.lowest)
        self.slopes = (highest - self.shift).exp() * _fall(change)
        self.logs = [end.logsumexp(dim, keepdim=True) for end in ends]

    def slopes_of(self, logs: Sequence[Tensor]) -> Tensor:
        """Return r of sums with these logarithms at both ends."""
        return (self.shift - torch.maximum(*logs).clamp(min=self.lowest)).exp() / _fall(logs[1] - logs[0])


def _fall(change: Tensor) -> Tensor:
    """(1 − exp(−t))/t for t = |change|: the mean slope of exp, as a part of the one at its higher end."""
    size = torch.where(change.isfinite(), change.abs(), 0)
    return torch.where(size == 0, 1, -torch.expm1(-size) / torch.where(size == 0, 1, size))


def _largest(x: Difference) -> Difference:
    """The maximum along the last dimension."""
    slopes = maximum_slopes(x.value, x.reference)
    return weighted(x.reference.amax(-1), lambda data, power: (slopes * data).sum(-1), x)


@_rule_for(aten.amax.default)
def amax(x: Difference, dim: Any = (), keepdim: bool = False) -> Difference:
    """max over dimensions."""
    dims = dimensions(x.reference, dim)
    largest = _largest(x.each(lambda part: part.movedim(dims, tuple(range(-len(dims), 0))).flatten(-len(dims))))
    shape = x.reference.amax(dims, keepdim).shape
    return largest.each(lambda part: part.reshape(shape))


@_rule_for(aten.amin.default)
def amin(x: Difference, dim: Any = (), keepdim: bool = False) -> Difference:
    """min over dimensions."""
    return -amax(-x, dim, keepdim)  # type: ignore[no-any-return]


@_rule_for(aten.maximum.default, aten.max.other)
def maximum(a: Any, b: Any) -> Difference:
    """max(a, b), entry by entry."""
    like = a if isinstance(a, Difference) else b
    shape = at_reference(torch.maximum, (a, b), {}).shape
    pair = [Difference.of(x, like).each(lambda part: part.expand(shape)) for x in (a, b)]
    return _largest(_moving(aten.stack.default)(pair, -1))


@_rule_for(aten.minimum.default, aten.min.other)
def minimum(a: Any, b: Any) -> Difference:
    """min(a, b) = −max(−a, −b)."""
    return -maximum(-a, -b)  # type: ignore[no-any-return]


@_rule_for(aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default)
def max_pool(
    x: Difference, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Difference:
    """Window maxima."""
    lengths = x.reference.shape[2:]
    tables = []
    for length, each in zip(lengths, geometry(len(lengths), kernel, stride, padding, dilation), strict=True):
        size, step, border, spacing = each
        windows = torch.arange(window_count(length, *each, ceil_mode))
        table = (windows * step - border)[:, None] + torch.arange(size) * spacing
        tables.append(torch.where(table < length, table, -1).clamp(min=-1))
    return _pooled(x, tables)


@_rule_for(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(x: Difference, sizes: Any) -> tuple[Difference]:
    """Window maxima; windows may differ in length by one, and overlap."""
    wanted: Sequence[int] = [sizes] if isinstance(sizes, int) else sizes
    tables = []
    for length, outputs in zip(x.reference.shape[-len(wanted) :], wanted, strict=True):
        windows = [torch.arange(start, end) for start, end in adaptive_windows(length, outputs)]
        tables.append(torch.nn.utils.rnn.pad_sequence(windows, batch_first=True, padding_value=-1))
    return (_pooled(x, tables),)


def _pooled(x: Difference, tables: list[Tensor]) -> Difference:
    """The maxima of windows given by their positions along each of the last dimensions."""
    lengths, positions = x.reference.shape[-len(tables) :], torch.zeros(1, 1, dtype=torch.long)
    for length, table in zip(lengths, tables, strict=True):
        before, after = positions[:, None, :, None], table[None, :, None, :]
        inside = (before >= 0) & (after >= 0)
        positions = torch.where(inside, before * length + after, -1).flatten(2).flatten(0, 1)
    # One more entry stands for all outside: as small as the smallest, so that it never counts.
    lowest = float(torch.minimum(x.value, x.reference).amin())
    index = torch.where(positions < 0, lengths.numel(), positions).to(x.reference.device)

    def gathered(part: Tensor, outside: float) -> Tensor:
        flat = functional.pad(part.flatten(-len(lengths)), (0, 1), value=outside)
        return flat.index_select(-1, index.flatten()).unflatten(-1, index.shape)

    entries = Difference(gathered(x.reference, lowest), gathered(x.positive, 0.0), gathered(x.negative, 0.0))
    return _largest(entries).each(lambda part: part.unflatten(-1, [len(table) for table in tables]))
