"""Players, and values that are still known exactly for each of them.

A **player** is one input entry, or a group of entries that come and go together. In a coalition S the model sees the
entries of players in S from the input (**on**) and the others from the baseline (**off**).

Until the first operation that mixes players, a value is known exactly: `Toggled` holds what it is when its player is
on, what it is when off, and whose entry it is. Players are numbered through the batch, row·N + player + 1, so that a
player keeps its number wherever its entries are moved; `NOBODY` owns the entries that are the same on and off.

The first affine operation that mixes players gives `Contributions`: a unit is offset + Σ_p member_p c_p, and c_p, what
player p adds to it, is the operation's linear part applied to p's entries of (on − off).

An operation that is not affine may take values as they are: `Switched` has on and off, and beside them the membership
of their players, which is what becomes random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils import _pytree

__all__ = ["NOBODY", "Contributions", "Linear", "Power", "Switched", "Toggled", "owners", "packing"]

NOBODY = 0

Power = Literal[0, 1, 2, "absolute"]
Linear = Callable[[Tensor, Power], Tensor]
"""The linear part of an affine op, w·x, with its weights to a power: 1 as they are, 2 squared, 0 all one; or |w|·x."""


@dataclass(frozen=True)
class Toggled:
    """A value per entry with its player on and with it off."""

    on: Tensor
    off: Tensor
    players: Tensor  # int64, the shape of on

    @cached_property
    def difference(self) -> Tensor:
        """on − off; 0 where they are the same, −∞ too, as a mask makes it."""
        return torch.where(self.on == self.off, 0, self.on - self.off)


def owners(players: Tensor, linear: Linear) -> Tensor | None:
    """The player that each unit of a linear op depends on, NOBODY if none; None if some unit has two.

    With weights of one, the op counts the entries a unit sees (n) and sums their players' numbers (s) and squares
    (t); they are all one player's if and only if (s/n)·s = t. Integers in float64, so the comparison is exact.
    """
    number = players.double()
    n, s, t = (linear(v, 0) for v in ((number != NOBODY).double(), number, number * number))
    player = torch.where(n > 0, s / n.clamp(min=1), NOBODY)
    return player.long() if bool((player * s == t).all()) else None


@dataclass(frozen=True)
class Contributions:
    """An affine function of a `Toggled` value, as a function of who takes part."""

    value: Toggled
    affine: Callable[[Tensor], Tensor]
    linear: Linear
    count: int  # N, the players of one row
    packing: int  # columns that keep players apart, see `packing`
    apart: bool = False  # whether the value may be handed on as it is, with its player on and off

    def entries(self, per_player: Tensor) -> Tensor:
        """Values (*any, rows, N) spread to the entries of the players, (*any, *shape); 0 for nobody's."""
        lead = per_player.shape[:-2]
        flat = per_player.flatten(-2)
        flat = torch.cat([flat.new_zeros(*lead, 1), flat], -1)
        # Not flat[…, players]: the derivative of index_select is the faster one.
        entries = flat.index_select(-1, self.value.players.flatten()).view(*lead, *self.value.players.shape)
        return entries.to(self.value.on.dtype)

    def expected(self, membership: Tensor) -> Tensor:
        """The units when each entry's player takes part to the degree `membership`, which has the entries' shape."""
        return self.affine(torch.addcmul(self.value.off, membership, self.value.difference))

    def columns(self, weights: Tensor) -> Tensor:
        """Σ_p weight_p c_p for every column of weights (r, *entries): (r, *units)."""
        return torch.vmap(lambda column: self.linear(column * self.value.difference, 1))(weights)

    def squares(self, weights: Tensor) -> Tensor:
        """Σ_p weight_p c_p², for weights of the entries' shape that are not negative."""
        if self.packing == 1:
            return self.linear(weights * self.value.difference.square(), 2)
        # Squared after summing within the player.
        certain = weights == 0
        root = torch.where(certain, 0, torch.where(certain, 1, weights).sqrt())
        apart = torch.stack([_packed(self.value.players, self.count, self.packing, c) for c in range(self.packing)])
        return self.columns(apart.to(root) * root).square().sum(0)


@dataclass(frozen=True)
class Switched:
    """off + member·(on − off), for an operation that takes on and off by themselves."""

    on: Tensor
    off: Tensor
    players: Tensor  # int64, broadcasts to on
    member: Any  # of the shape of players: 1 if the player takes part, 0 if not; Contributions, and later a Gaussian

    @staticmethod
    def of(x: Toggled, players: Tensor, count: int) -> Switched:
        """A value of which a rule wants to know `players`."""
        one, none = (torch.full_like(players, member, dtype=x.on.dtype) for member in (1, 0))
        member = Contributions(Toggled(one, none, players), _same, _same, count, packing(players, _same, count))
        return Switched(x.on, x.off, players, member)


def _same(x: Tensor, power: Power = 1) -> Tensor:
    return x


# torch.vmap sees through the dataclass.
_pytree.register_pytree_node(
    Switched,
    lambda x: ([x.on, x.off, x.players, x.member], None),
    lambda parts, _: Switched(*parts),
    serialized_type_name="dasp.Switched",
)

_MOST_PACKED = 32


def packing(players: Tensor, linear: Linear, count: int) -> int:
    """The number of columns to put players in so that each unit sees at most one of a column.

    1 means that every player owns at most one entry, so that squares of entries are squares of players and no columns
    are needed. Else a player is in the column of its number modulo the columns, as players that are far apart meet in
    no unit of a convolution; at the latest, each has its own.
    """
    if bool((torch.bincount(players.flatten())[NOBODY + 1 :] <= 1).all()):
        return 1
    for columns in range(2, min(count, _MOST_PACKED + 1)):
        parts = (_packed(players, count, columns, c) for c in range(columns))
        if all(owners(torch.where(part, players, NOBODY), linear) is not None for part in parts):
            return columns
    return count


def _packed(players: Tensor, count: int, columns: int, column: int) -> Tensor:
    """Which entries belong to the players of a column."""
    return (players != NOBODY) & ((players - NOBODY - 1) % count % columns == column)
