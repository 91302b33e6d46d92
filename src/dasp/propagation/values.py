"""The kinds of values that flow through a lifted graph, from players to Gaussians.

A **player** is one input entry, or a group of entries that come and go together. In a coalition S the model sees the
entries of players in S from the input (**on**) and the others from the baseline (**off**). Players are numbered through
the batch, row·N + player + 1, so that a player keeps its number wherever its entries are moved; `NOBODY` owns the
entries that are the same on and off.

| value             | what it is                          | where it arises             | what turns it into the next |
|-------------------|-------------------------------------|-----------------------------|-----------------------------|
| `Tensor`          | the same in every coalition         | weights, further arguments  | nothing                     |
| `Toggled`         | exact values, its player on and off | inputs, until players meet  | an op where players meet    |
| `Contributions`   | offset + Σ_p member_p c_p           | that op, if it is affine    | probabilities of players    |
| `SizedCoalitions` | moments for coalitions of all sizes | `Contributions`, for DASP   | a player and a size         |
| `Switched`        | on, off, and who is a member        | an op that takes both: LSTM | that op                     |
| `Conditional`     | Gaussians given its player on, off  | attention among players     | mixing by a probability     |
| `Gaussian`        | mean, own variance, shared noise    | all of the above            | every further rule          |

`SizedCoalitions` is in `coalitions`, with the distributions, and `Gaussian` in `gaussian`.

**Contributions.** c_p, what player p adds to a unit, is the linear part of the operation applied to p's entries of
(on − off). Where players meet in an operation that is not affine, it is the identity whose contributions are taken.

**Conditional values.** Where players are tokens, most of what happens to a token after attention happens within it, and
what its own player does to it is neither small nor Gaussian. So the exact pair (on, off) is continued past the
operation where players meet, as two Gaussians, each conditional on the state of the entry's own player and random in
the *other* players. Operations within a player act on both. Where tokens meet again, a rule may know what to do
(`Rule.conditional`); else the two are mixed by the player's probability q:

    mean q·μ_on + (1 − q)·μ_off,   own column √(q(1 − q))·(μ_on − μ_off),   other columns q·f_on + (1 − q)·f_off
    variance q·v_on + (1 − q)·v_off + q(1 − q)·|f_on − f_off|²
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils import _pytree

from dasp.propagation.gaussian import Gaussian, root

__all__ = [
    "NOBODY", "Conditional", "Contributions", "Convolution", "Linear", "Power", "Switched", "Toggled", "deviation",
    "owners", "packing",
]  # fmt: skip

NOBODY = 0

Power = Literal[0, 1, 2, "absolute"]
"""The power of the weights of an affine op."""
Linear = Callable[[Tensor, Power], Tensor]
"""The linear part of an affine op, w·x, with its weights to a power: 1 as they are, 2 squared, 0 all one; or |w|·x."""


@runtime_checkable
class Convolution(Protocol):
    """The linear part of a convolution, which knows what a whole place of all channels adds."""

    def __call__(self, data: Tensor, power: Power) -> Tensor:
        """As any `Linear`."""

    def has_places(self, data: Tensor) -> bool:
        """Return True if the channels are dimension 1, as those of a batch are."""

    def of_places(self, data: Tensor, weights: Tensor) -> Tensor:
        """Return Σ weight·(Σ_c w_c x_c)² over the places that a unit sees, c being the channels."""


@dataclass(frozen=True)
class Toggled:
    """Two values per entry: with its player on and with it off."""

    on: Tensor
    off: Tensor
    players: Tensor  # int64, the shape of on

    @cached_property
    def difference(self) -> Tensor:
        """on − off; 0 where they are the same, −∞ too, as a mask makes it."""
        return torch.where(self.on == self.off, 0, self.on - self.off)


def owners(players: Tensor, linear: Linear) -> Tensor | None:
    """Return the player that each unit of a linear op depends on, NOBODY if none; None if some unit has two.

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
    packing: int  # columns in which no two players meet, see `packing`
    conditional: bool = False  # True if the value may become a `Conditional` one

    def entries(self, per_player: Tensor) -> Tensor:
        """Spread values (*any, rows, N) to the entries of the players, (*any, *shape); nobody's entries get 0."""
        lead = per_player.shape[:-2]
        flat = per_player.flatten(-2)
        flat = torch.cat([flat.new_zeros(*lead, 1), flat], -1)
        # Not flat[…, players]: the derivative of index_select is the faster one.
        entries = flat.index_select(-1, self.value.players.flatten()).view(*lead, *self.value.players.shape)
        return entries.to(self.value.on.dtype)

    def expected(self, membership: Tensor) -> Tensor:
        """Return the units if each entry's player takes part to the degree `membership`, of the entries' shape."""
        return self.affine(torch.addcmul(self.value.off, membership, self.value.difference))

    def columns(self, weights: Tensor) -> Tensor:
        """Return Σ_p weight_p c_p for every column of weights (r, *entries): (r, *units)."""
        return torch.vmap(lambda column: self.linear(column * self.value.difference, 1))(weights)

    def squares(self, weights: Tensor) -> Tensor:
        """Return Σ_p weight_p c_p², for weights of the entries' shape that are not negative."""
        if self.packing == 1:
            return self.linear(weights * self.value.difference.square(), 2)
        if self.packing == _BY_PLACE:
            return self.linear.of_places(self.value.difference, weights)  # type: ignore[attr-defined, no-any-return]
        # Squared after summing within the player.
        packed = torch.stack([_packed(self.value.players, self.count, self.packing, c) for c in range(self.packing)])
        return self.columns(packed.to(weights) * root(weights)).square().sum(0)


_MOST_PACKED = 32
_BY_PLACE = 0


def packing(players: Tensor, linear: Linear, count: int) -> int:
    """Return the number of columns to put players in so that each unit sees at most one of a column.

    1 means that every player owns at most one entry, so that squares of entries are squares of players and no columns
    are needed. Else a player is in the column of its number modulo the columns, as distant players meet in
    no unit of a convolution; at the latest, each has its own. 0 means that a convolution does without columns, as every
    player owns the channels of one place: a pixel.
    """
    if bool((torch.bincount(players.flatten())[NOBODY + 1 :] <= 1).all()):
        return 1
    if isinstance(linear, Convolution) and linear.has_places(players) and _own_places(players):
        return _BY_PLACE
    for columns in range(2, min(count, _MOST_PACKED + 1)):
        parts = (_packed(players, count, columns, c) for c in range(columns))
        if all(owners(torch.where(part, players, NOBODY), linear) is not None for part in parts):
            return columns
    return count


def _own_places(players: Tensor) -> bool:
    """Return True if every player owns entries of one place alone, and every place has one player."""
    owner = players.amax(1, keepdim=True)
    alone = torch.bincount(owner.flatten())[NOBODY + 1 :] <= 1
    return bool(((players == owner) | (players == NOBODY)).all()) and bool(alone.all())


def _packed(players: Tensor, count: int, columns: int, column: int) -> Tensor:
    """Return a mask of the entries that belong to the players of a column."""
    return (players != NOBODY) & ((players - NOBODY - 1) % count % columns == column)


@dataclass(frozen=True)
class Switched:
    """off + member·(on − off), for an operation that takes on and off by themselves."""

    on: Tensor
    off: Tensor
    players: Tensor  # int64, broadcasts to on
    member: Any  # of the shape of players: 1 if the player takes part, 0 if not; Contributions, and later a Gaussian

    @staticmethod
    def of(x: Toggled, players: Tensor, count: int) -> Switched:
        """Return a value beside the membership of `players`, in the shape that a rule asks for."""
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


@dataclass(frozen=True)
class Conditional:
    """Two Gaussians with a factor column per player: given that an entry's own player is on, and that it is off."""

    on: Gaussian
    off: Gaussian
    players: Tensor  # as in `Toggled`
    probabilities: Tensor  # (rows, N)

    @staticmethod
    def of(value: Toggled, probabilities: Tensor) -> Conditional:
        """Return a value that depends on no other player yet."""
        halves = (value.off + value.difference, value.off)
        none = torch.zeros_like(value.off)
        columns = none.expand(probabilities.shape[1], *none.shape)
        on, off = (Gaussian(half, none, columns) for half in halves)
        return Conditional(on, off, value.players, probabilities)

    @property
    def number(self) -> Tensor:
        """The player of each entry, 0 … N−1; −1 for nobody's."""
        return torch.where(self.players == NOBODY, -1, (self.players - NOBODY - 1) % self.probabilities.shape[1])

    @property
    def chance(self) -> Tensor:
        """The probability of each entry's player; ½ for nobody's, which are the same on and off."""
        flat = self.probabilities.flatten()
        flat = torch.cat([torch.full_like(flat[:1], 0.5), flat])
        return flat.index_select(0, self.players.flatten()).view(self.players.shape).to(self.on.mean.dtype)

    @property
    def toggled(self) -> Toggled:
        """The two means as a `Toggled` value, which is what trackers take."""
        return Toggled(self.on.mean, self.off.mean, self.players)

    @cached_property
    def mixed(self) -> Gaussian:
        """One Gaussian of both; see the module's docstring."""
        on, off, q = self.on, self.off, self.chance
        assert on.factors is not None
        assert off.factors is not None
        difference = on.factors - off.factors
        every = torch.arange(len(on.factors), device=q.device).view(-1, *[1] * q.dim())
        own = (every == self.number) * (deviation(q) * (on.mean - off.mean))
        variance = torch.lerp(off.variance, on.variance, q) + q * (1 - q) * difference.square().sum(0)
        return Gaussian(torch.lerp(off.mean, on.mean, q), variance, off.factors + q * difference + own)

    @property
    def mean(self) -> Tensor:
        """The mean of `mixed`."""
        return self.mixed.mean


def deviation(chance: Tensor) -> Tensor:
    """Return √(q(1 − q)), with a derivative of 0 where the coalition is certain."""
    return root(chance * (1 - chance))
