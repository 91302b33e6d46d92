"""Values that are kept apart by their own player: Gaussian in the other players, once with it on and once with it off.

Where players are tokens, most of what happens to a token after attention happens within it, and what its own player
does to it is neither small nor Gaussian. So the exact pair (on, off) of `Toggled` is continued past the operation where
players meet: `Apart` holds two Gaussians, each in the *other* players. Operations within a player act on both; where
tokens meet again, a rule may know what to do (`Rule.apart`), or the two are mixed by the player's probability q:

    mean q·μ_on + (1 − q)·μ_off,   own column √(q(1 − q))·(μ_on − μ_off),   other columns q·f_on + (1 − q)·f_off
    variance q·v_on + (1 − q)·v_off + q(1 − q)·|f_on − f_off|²
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.values import NOBODY, Toggled

__all__ = ["Apart", "deviation"]


def deviation(chance: Tensor) -> Tensor:
    """√(q(1 − q)), with a derivative of 0 where the coalition is certain."""
    weights = chance * (1 - chance)
    certain = weights == 0
    return torch.where(certain, 0, torch.where(certain, 1, weights).sqrt())


@dataclass(frozen=True)
class Apart:
    """Two Gaussians with a factor column per player: with an entry's own player on, and with it off."""

    on: Gaussian
    off: Gaussian
    players: Tensor  # as in `Toggled`
    probabilities: Tensor  # (rows, N)

    @staticmethod
    def of(value: Toggled, probabilities: Tensor) -> Apart:
        """A value that depends on nobody but its own player yet."""
        halves = (value.off + value.difference, value.off)
        none = torch.zeros_like(value.off)
        columns = none.expand(probabilities.shape[1], *none.shape)
        on, off = (Gaussian(half, none, columns) for half in halves)
        return Apart(on, off, value.players, probabilities)

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
        """The means, for those who ask for players and shapes."""
        return Toggled(self.on.mean, self.off.mean, self.players)

    @cached_property
    def mixed(self) -> Gaussian:
        """One Gaussian of both."""
        on, off, q = self.on, self.off, self.chance
        assert on.factors is not None
        assert off.factors is not None
        apart = on.factors - off.factors
        every = torch.arange(len(on.factors), device=q.device).view(-1, *[1] * q.dim())
        own = (every == self.number) * (deviation(q) * (on.mean - off.mean))
        variance = torch.lerp(off.variance, on.variance, q) + q * (1 - q) * apart.square().sum(0)
        return Gaussian(torch.lerp(off.mean, on.mean, q), variance, off.factors + q * apart + own)

    @property
    def mean(self) -> Tensor:
        """The mean of both."""
        return self.mixed.mean
