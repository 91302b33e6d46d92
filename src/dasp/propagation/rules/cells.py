"""One step of a recurrent network: LSTM, GRU or plain.

A step takes the projection p of its input and the state before it. With a = p + Wh + b, by parts,

    LSTM    i, f, o = σ(a_i), σ(a_f), σ(a_o),   c' = f·c + i·tanh(a_g),   h' = o·tanh(c')
    GRU     r, z = σ(a_r), σ(a_z),   n = tanh(p_n + r·(Wh + b)_n),   h' = n + z·(h − n)
    plain   h' = tanh(a)  or  ReLU(a)

where sums and products have the moments of `arithmetic`, and all gates of a step are one call of `tanh_moments`, as
σ(a) = ½ + ½ tanh(a/2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from dasp.propagation.gaussian import Gaussian, nonnegative, rectified_moments
from dasp.propagation.rules.hyperbolic import tanh_moments

__all__ = ["GRU", "LSTM", "PLAIN", "RECTIFIED", "Cell", "Layer", "State"]

State = tuple[Gaussian, ...]  # h, and c of an LSTM


@dataclass(frozen=True)
class Cell:
    """A step, and the scale of the argument of each of its gates: ½ for a sigmoid, as σ(a) = ½ + ½ tanh(a/2)."""

    step: Callable[[Gaussian, State, Layer], State]
    scales: tuple[float, ...]


class _Affine:
    """Wx + b."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias, self.squared = weight, bias, weight * weight

    def __call__(self, x: Gaussian) -> Gaussian:
        factors = None if x.factors is None else linear(x.factors, self.weight)
        return Gaussian(linear(x.mean, self.weight, self.bias), linear(x.variance, self.squared), factors)


class Layer:
    """The weights of a layer in one direction, with the arguments of gates scaled."""

    def __init__(self, cell: Cell, params: Sequence[Tensor], has_biases: bool) -> None:
        into, again, *others = params
        scale = into.new_tensor(cell.scales).repeat_interleave(len(into) // len(cell.scales))
        biases = [bias * scale for bias in others[:2]] if has_biases else [None, None]
        self.into, self.again = (_Affine(w * scale[:, None], b) for w, b in zip((into, again), biases, strict=True))
        self.project = _Affine(others[-1]) if len(others) % 2 else None  # from an LSTM's cells to its smaller state


def _sum(a: Gaussian, b: Gaussian, sign: int = 1) -> Gaussian:
    """a + sign·b."""
    mean, variance = torch.add(a.mean, b.mean, alpha=sign), a.variance + b.variance
    if a.factors is None or b.factors is None:
        return Gaussian(mean, variance)
    return Gaussian(mean, variance, torch.add(a.factors, b.factors, alpha=sign))


def _product(a: Gaussian, b: Gaussian) -> Gaussian:
    """As `arithmetic.product`; without factors, Var(ab) = E[a²]·v_b + v_a·μ_b²."""
    if a.factors is None or b.factors is None:
        square = torch.addcmul(a.variance, a.mean, a.mean)
        return Gaussian(a.mean * b.mean, torch.addcmul(square * b.variance, a.variance, b.mean * b.mean))
    covariance = a.covariance(b)
    own = a.mean**2 * b.variance + b.mean**2 * a.variance + a.total_variance * b.total_variance
    factors = torch.addcmul(a.mean * b.factors, b.mean, a.factors)
    return Gaussian(a.mean * b.mean + covariance, torch.addcmul(own, covariance, covariance), factors)


def _tanh(x: Gaussian) -> Gaussian:
    spread = x.total_variance
    mean, total = tanh_moments(x.mean, spread)
    if x.factors is None:
        return Gaussian(mean, total)
    slope = 1 - mean * mean - total
    return x.through(mean, slope, nonnegative(total - slope * slope * spread))


def _opened(x: Gaussian) -> Gaussian:
    """½ + ½x: a sigmoid, of the tanh of half its argument."""
    return Gaussian(x.mean * 0.5 + 0.5, x.variance * 0.25, None if x.factors is None else x.factors * 0.5)


def _parts(x: Gaussian, *sizes: int) -> list[Gaussian]:
    columns: Any = [None] * len(sizes) if x.factors is None else x.factors.split(sizes, -1)
    return [Gaussian(*part) for part in zip(x.mean.split(sizes, -1), x.variance.split(sizes, -1), columns, strict=True)]


def _lstm(p: Gaussian, state: State, layer: Layer) -> State:
    h, c = state
    i, f, g, o = _parts(_tanh(_sum(p, layer.again(h))), *[c.mean.shape[-1]] * 4)
    c = _sum(_product(_opened(f), c), _product(_opened(i), g))
    h = _product(_opened(o), _tanh(c))
    return h if layer.project is None else layer.project(h), c


def _gru(p: Gaussian, state: State, layer: Layer) -> State:
    """h' has each of z, h and n once, so that its variance is that of independent ones, with the factors beside."""
    (h,), size = state, state[0].mean.shape[-1]
    (gates, new), (again, inner) = (_parts(x, 2 * size, size) for x in (p, layer.again(h)))
    r, z = _parts(_opened(_tanh(_sum(gates, again))), size, size)
    n = _tanh(_sum(new, _product(r, inner)))
    change = _sum(h, n, -1)
    mean = torch.addcmul(n.mean, z.mean, change.mean)
    variance = torch.addcmul(z.mean**2 * h.variance, (1 - z.mean) ** 2, n.variance)
    variance = torch.addcmul(variance, change.mean**2, z.variance)
    variance = torch.addcmul(variance, z.total_variance, change.total_variance)
    if z.factors is None or n.factors is None or change.factors is None:
        return (Gaussian(mean, variance),)
    covariance = z.covariance(change)
    factors = torch.addcmul(torch.addcmul(n.factors, z.mean, change.factors), change.mean, z.factors)
    return (Gaussian(mean + covariance, torch.addcmul(variance, covariance, covariance), factors),)


def _plain(p: Gaussian, state: State, layer: Layer) -> State:
    return (_tanh(_sum(p, layer.again(state[0]))),)


def _rectified(p: Gaussian, state: State, layer: Layer) -> State:
    x = _sum(p, layer.again(state[0]))
    return (x.through(*rectified_moments(x.mean, x.total_variance.expand_as(x.mean))),)


LSTM, GRU = Cell(_lstm, (0.5, 0.5, 1.0, 0.5)), Cell(_gru, (0.5, 0.5, 1.0))
PLAIN, RECTIFIED = Cell(_plain, (1.0,)), Cell(_rectified, (1.0,))
