"""The exact Shapley values of a maximum, in O(n log n).

Player i has the value on_i in a coalition and off_i outside it, and v(S) is the largest of the n values. Cut v into
layers, v(S) = const + ∫ 1{v(S) > t} dt. In the layer t a player with on_i > t ≥ off_i lifts the maximum above t by
joining; one with off_i > t ≥ on_i does so by staying away. With p of the first and q of the second kind, and nobody who
is above t either way, v(S) ≤ t only if S has all q and none of the p. Joining changes that for

- one of the p if it comes after all q and before the other p:   + (p−1)! q! / (p+q)!
- one of the q if it comes last of them and before all p:        − (q−1)! p! / (p+q)!

of all orders. The layers below max_i min(on_i, off_i) always count and are cut off. Above it, p and q are the numbers
of on and of off values beyond t, so one pass over the 2n sorted values integrates both weights, and a player's value is
the integral between its off and its on value. With off_i all equal it is the algorithm of Lundberg & Lee (2017).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["maximum_slopes", "shapley_of_maximum"]


def shapley_of_maximum(on: Tensor, off: Tensor) -> Tensor:
    """Return what each entry along the last dimension contributes to max(on) − max(off).

    >>> shapley_of_maximum(torch.tensor([3.0, 2.0, 1.0]), torch.zeros(3))
    tensor([1.8333, 0.8333, 0.3333])
    """
    if on.shape != off.shape:
        raise ValueError(f"on has shape {tuple(on.shape)} and off {tuple(off.shape)}: they must be equal")
    return _values(on.double(), off.double()).to(on.dtype)


def maximum_slopes(on: Tensor, off: Tensor) -> Tensor:
    """Return the Shapley values divided by on − off. Where both are the same, their limit for on ↓ off: the share of
    orders in which the player has the largest value when it joins."""
    high, low = on.double(), off.double()
    same = high == low
    floor = _floor(high, low)
    joiners, leavers = ((x > floor).sum(-1, keepdim=True) for x in (high, low))
    limit = torch.where(high == floor, _orders(joiners + 1, leavers), 0)
    return torch.where(same, limit, _values(high, low) / torch.where(same, 1, high - low)).to(on.dtype)


def _floor(on: Tensor, off: Tensor) -> Tensor:
    """Return what the maximum is at least, whoever joins."""
    return torch.minimum(on, off).amax(-1, keepdim=True)


def _orders(own: Tensor, others: Tensor) -> Tensor:
    """(p−1)! q! / (p+q)! for p = own ≥ 1 players of one kind, and q = others."""
    own, others = own.clamp(min=1).double(), others.double()
    return torch.exp(torch.lgamma(own) + torch.lgamma(others + 1) - torch.lgamma(own + others + 1))


def _values(on: Tensor, off: Tensor) -> Tensor:
    count, floor = on.shape[-1], _floor(on, off)
    levels, order = torch.cat([on, off], -1).maximum(floor).sort(-1)
    # Beyond each of the sorted levels, up to the next:
    joiners = count - (order < count).cumsum(-1)[..., :-1]
    leavers = count - (order >= count).cumsum(-1)[..., :-1]
    width = levels.diff(dim=-1)
    present, absent = order.argsort(-1).split(count, -1)  # where on and off values are among the levels

    def between(weights: Tensor) -> Tensor:
        integral = torch.nn.functional.pad((weights * width).cumsum(-1), (1, 0))
        return integral.gather(-1, present) - integral.gather(-1, absent)

    return torch.where(on > off, between(_orders(joiners, leavers)), between(_orders(leavers, joiners)))
