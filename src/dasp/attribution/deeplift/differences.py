"""Differences from a reference, and how DeepLIFT divides them (Shrikumar, Greenside & Kundaje 2017).

A value x is seen as what it is at the baseline, its reference x⁰, and two parts of the difference from it:

    x = x⁰ + Δ⁺ + Δ⁻

A rule gives the parts of an op's result as multiples of the parts of its arguments. The multipliers depend on the
values, but count as constants: the output's difference is a linear function of the inputs' parts, to be differentiated.

**Linear rule.** For y = Σ w_i x_i contributions of one sign make up one part. With Δ_i = Δ_i⁺ + Δ_i⁻, s_i = sign Δ_i:

    y⁺ = Σ max(w_i Δ_i, 0) = ½ Σ (w_i + |w_i| s_i) Δ_i,        y⁻ = ½ Σ (w_i − |w_i| s_i) Δ_i

An entry whose parts cancel has s_i = 0 and goes to both in halves, as in the paper. Ops that work entry by entry
(scales, sums of two values) keep the parts, y⁺ = w⁺Δ⁺ + w⁻Δ⁻, as the authors' code does for batch norm: otherwise it
would matter whether a normalization is folded into the layer before it.

**Rescale.** y = f(x) multiplies both parts by (f(x) − f(x⁰))/(x − x⁰).

**RevealCancel.** Δ⁺ and Δ⁻ are the players of a game of two, and the parts of y = f(x) their Shapley values:

    y⁺ = ½(f(x⁰ + Δ⁺) − f(x⁰)) + ½(f(x⁰ + Δ⁻ + Δ⁺) − f(x⁰ + Δ⁻)),        y⁻ with + and − exchanged
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from dasp.propagation.rules.affine import raised
from dasp.propagation.values import Linear

__all__ = ["Difference", "Nonlinear", "rescale", "revealcancel", "weighted"]

Function = Callable[[Tensor], Tensor]
Nonlinear = Literal["revealcancel", "rescale", "mixed"]
"""The rule for nonlinearities; "mixed" is Rescale for activations of three or more dimensions, as convolutions have."""


@dataclass(frozen=True)
class Difference:
    """reference + positive + negative; see the module's docstring.

    >>> x = Difference.between(torch.tensor([3.0, 1.0]), torch.tensor([1.0, 2.0]))
    >>> x.total, x.middle
    (tensor([ 2., -1.]), tensor([2.0000, 1.5000]))
    """

    reference: Tensor
    positive: Tensor
    negative: Tensor

    @staticmethod
    def between(value: Tensor, reference: Tensor) -> Difference:
        """A difference whose entries are each of one sign."""
        change = value - reference
        return Difference(reference, change.clamp(min=0), change.clamp(max=0))

    @staticmethod
    def of(x: Any, like: Difference) -> Difference:
        """x itself; or a constant, which has no difference."""
        if isinstance(x, Difference):
            return x
        constant = torch.as_tensor(x, dtype=like.reference.dtype, device=like.reference.device)
        return Difference(constant, torch.zeros_like(constant), torch.zeros_like(constant))

    @property
    def total(self) -> Tensor:
        """Δ = x − x⁰."""
        return self.positive + self.negative

    @property
    def change(self) -> Tensor:
        """Δ as a constant; 0 where the parts cancel but for rounding, as in a ReLU that is off at both ends."""
        total = self.total.detach()
        return torch.where(_lost(total, self.size), 0, total)

    @property
    def size(self) -> Tensor:
        """|Δ⁺| + |Δ⁻|, as a constant."""
        return self.positive.detach().abs() + self.negative.detach().abs()

    @property
    def value(self) -> Tensor:
        """x, as a constant."""
        return self.reference + self.change

    @property
    def middle(self) -> Tensor:
        """½(x + x⁰), as a constant."""
        return self.reference + self.change / 2

    def each(self, function: Function) -> Difference:
        """A function that only moves entries, on all parts."""
        return Difference(function(self.reference), function(self.positive), function(self.negative))

    def __add__(self, other: Difference) -> Difference:
        return Difference(
            self.reference + other.reference, self.positive + other.positive, self.negative + other.negative
        )

    def __mul__(self, weight: Tensor | float) -> Difference:
        return weighted(self.reference * weight, lambda x, power: x * raised(weight, power), self, entrywise=True)

    def __neg__(self) -> Difference:
        return Difference(-self.reference, -self.negative, -self.positive)


def weighted(reference: Tensor, linear: Linear, x: Difference, *, entrywise: bool = False) -> Difference:
    """The linear rule, for an op's linear part and the reference of its result."""
    magnitude = x.positive - x.negative if entrywise else x.change.sign() * x.total
    change, spread = linear(x.total, 1), linear(magnitude, "absolute")
    return Difference(reference, (change + spread) / 2, (change - spread) / 2)


def rescale(function: Function, x: Difference) -> Difference:
    """Rescale: both parts get the slope from x⁰ to x."""
    slope = _slope(function, x, x.reference, x.change)
    return Difference(function(x.reference), slope * x.positive, slope * x.negative)


def revealcancel(function: Function, x: Difference) -> Difference:
    """Each part with its slope, averaged over the other part's absence and presence."""

    def multiplied(own: Tensor, other: Tensor) -> Tensor:
        step = own.detach()
        slopes = [_slope(function, x, start, step) for start in (x.reference, x.reference + other.detach())]
        return (slopes[0] + slopes[1]) / 2 * own

    return Difference(function(x.reference), multiplied(x.positive, x.negative), multiplied(x.negative, x.positive))


def _slope(function: Function, x: Difference, start: Tensor, step: Tensor) -> Tensor:
    """(f(start + step) − f(start))/step; f'(start) where the step is lost in the rounding of x and its parts, or 0
    where there is no derivative, as of √ at 0."""
    lost = _lost(step, x.reference.abs() + x.size)
    with torch.enable_grad():
        at = start.clone().requires_grad_()
        value = function(at)
        (derivative,) = torch.autograd.grad(value.sum(), at)
    ratio = (function(start + step) - value.detach()) / torch.where(lost, 1, step)
    return torch.where(lost, derivative.nan_to_num(posinf=0, neginf=0), ratio)


def _lost(step: Tensor, scale: Tensor) -> Tensor:
    """Say where a step cannot be told from the rounding of numbers of that scale."""
    return step.abs() <= torch.finfo(step.dtype).eps ** 0.75 * scale
