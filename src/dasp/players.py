"""Players, and values that are still known exactly for each of them.

A **player** is one input entry, or a group of entries that come and go together. In a coalition S the model sees the
entries of players in S from the input (**on**) and the others from the baseline (**off**).

Until the first operation that mixes players, a value is known exactly: `Toggled` holds what it is when its player is
on, what it is when off, and whose entry it is. Players are numbered through the batch, row·N + player + 1, so that a
player keeps its number wherever its entries are moved; `NOBODY` owns the entries that are the same on and off.

The first affine operation that mixes players gives `Contributions`: a unit is offset + Σ_p member_p c_p, and c_p, what
player p adds to it, is the operation's linear part applied to p's entries of (on − off).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["NOBODY", "Contributions", "Linear", "Toggled"]

NOBODY = 0

Linear = Callable[[Tensor, int], Tensor]
"""The linear part of an affine op, w·x, with its weights to a power: 1 as they are, 2 squared, 0 where not zero."""


@dataclass(frozen=True)
class Toggled:
    """A value per entry with its player on and with it off."""

    on: Tensor
    off: Tensor
    players: Tensor  # int64, the shape of on

    @property
    def difference(self) -> Tensor:
        """on − off, in the dtype of the model."""
        return self.on - self.off


@dataclass(frozen=True)
class Contributions:
    """An affine function of a `Toggled` value, as a function of who takes part."""

    value: Toggled
    affine: Callable[[Tensor], Tensor]
    linear: Linear
    count: int  # N, the players of one row

    @staticmethod
    def identity(value: Toggled, count: int) -> Contributions:
        """Each entry by itself: where a `Toggled` value meets a Gaussian without an affine op between."""
        return Contributions(value, lambda x: x, lambda x, power: x, count)

    def expected(self, membership: Tensor) -> Tensor:
        """The units when player p takes part to the degree membership[row, p]: affine(off + membership·(on − off))."""
        return self.affine(self.value.off + self._entries(membership) * self.value.difference)

    def columns(self, weights: Tensor) -> Tensor:
        """Σ_p weights[r, row, p] c_p for every column r: (r, *units)."""
        difference = self.value.difference
        return torch.vmap(lambda column: self.linear(self._entries(column) * difference, 1))(weights)

    def squares(self, weights: Tensor) -> Tensor:
        """Σ_p weights[row, p] c_p², for weights that are not negative."""
        if self.one_entry_each:
            return self.linear(self._entries(weights) * self.value.difference.square(), 2)
        return self.columns(self.separate(weights.sqrt())).square().sum(0)  # squared after summing within the player

    def separate(self, weights: Tensor) -> Tensor:
        """(rows, N) weights as (N, rows, N): a column for every player."""
        return torch.diag_embed(weights).movedim(-1, 0)

    @cached_property
    def one_entry_each(self) -> bool:
        """Whether every player owns at most one entry, so that squares of entries are squares of players."""
        entries = torch.bincount(self.value.players.flatten())
        return bool((entries[NOBODY + 1 :] <= 1).all())

    def _entries(self, per_player: Tensor) -> Tensor:
        """(rows, N) values spread to the entries of the players; 0 for nobody's."""
        flat = per_player.flatten()
        return torch.cat([flat.new_zeros(1), flat])[self.value.players]
