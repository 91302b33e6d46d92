"""Interactions of odd order that a game is likely to have, chosen by what its pairs of coalitions tell of even order.

The half differences of pairs have the odd part of a game, which Shapley values are of; the half sums

    (v(S) + v(Sᶜ))/2 = constant + Σ_{ij} b_ij σ_iσ_j + …          σ = ±1 in and out of S

have the even part, which costs nothing more. Where two players interact, three do: the variance of the coefficient of

    ψ_T = χ_T − Σ_{i∈T} σ_i / |T|,      χ_T = Π_{i∈T} σ_i,      |T| = 3 or 5

is taken as the root of the weight of all trees on T, whose branches weigh a_ij = b_ij² + κ b_i² b_j² / Σb_k² each, with
b_i² = Σ_j b_ij². The most likely T are kept. As they come from other numbers than those that they explain, nothing is
fitted by choice, and error bars stay honest. ψ_T has no Shapley value, as in `noise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor

from dasp.attribution.bayesian.pairs import Pairs

__all__ = ["SecondOrder", "Sets", "gram", "likely"]

_MOST_PLAYERS = 64  # 2,016 interactions of two
_FEWEST_PAIRS = 1024  # with fewer, there is less to gain than the time that it takes for every row
_FEWEST_FOR_A_PLAYER = 8
_MOST_IN_FIVES = 20  # players: 15,504 sets
_FIFTH = 0.1  # variance of all interactions of five relative to those of three
_BACKGROUND = 0.2  # κ
_RIDGE = 30.0  # as if every interaction of two had been seen to be zero in so many pairs
_WAVES = 4  # of the mean by size
_PAIRS_AT_ONCE = 4096


class SecondOrder:
    """Regression of half sums on all interactions of two; all but the sums depends on the pairs alone."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.weights = 1 / (pairs.sizes * (pairs.players - pairs.sizes))
        self.weights /= self.weights.mean()
        products = sum((gram(self._regressors(part)) for part in self._slices()), start=torch.zeros(()))
        ridge = torch.full((len(products),), _RIDGE, dtype=products.dtype)
        ridge[: _WAVES + 1] = 1e-6  # the mean by size
        self.root = torch.linalg.cholesky(products + torch.diag(ridge))

    @staticmethod
    def suits(pairs: Pairs) -> bool:
        """Tell whether there are enough pairs to learn from, and not too many players."""
        fewest = max(_FEWEST_PAIRS, _FEWEST_FOR_A_PLAYER * pairs.players)
        return 5 <= pairs.players <= _MOST_PLAYERS and len(pairs) >= fewest

    @property
    def numbers(self) -> int:
        """How many numbers of eight bytes it keeps."""
        return self.root.numel() + len(self.weights)

    def affinities(self, sums: Tensor) -> Tensor:
        """a_ij of one column of half sums, (players, players)."""
        players = self.pairs.players
        weighted = self.weights.sqrt() * (sums - sums.mean()) / (sums - sums.mean()).abs().max().clamp(min=1e-300)
        xy = torch.stack([self._regressors(part).T @ weighted[part] for part in self._slices()]).sum(0)
        squares = torch.cholesky_solve(xy[:, None], self.root)[_WAVES + 1 :, 0].square()
        first, second = torch.triu_indices(players, players, 1)
        result = torch.zeros(players, players, dtype=sums.dtype)
        result[first, second] = result[second, first] = squares
        each = result.sum(1)
        return result + _BACKGROUND * torch.outer(each, each) / each.sum().clamp(min=1e-300)

    def _slices(self) -> list[slice]:
        return [slice(start, start + _PAIRS_AT_ONCE) for start in range(0, len(self.pairs), _PAIRS_AT_ONCE)]

    def _regressors(self, part: slice) -> Tensor:
        """Waves over sizes and σ_iσ_j, times the root of the weights."""
        players = self.pairs.players
        wave = torch.cos(2 * pi * torch.arange(_WAVES + 1) * self.pairs.sizes[part, None] / players)
        sign = 2 * self.pairs.members[part].double() - 1
        first, second = torch.triu_indices(players, players, 1)
        return torch.cat([wave, sign[:, first] * sign[:, second]], 1) * self.weights[part, None].sqrt()


@dataclass(frozen=True)
class Sets:
    """Sets of players of one size, and the variances of their interactions."""

    members: Tensor  # (sets, size)
    variances: Tensor

    @staticmethod
    def of(players: Tensor, size: int, affinities: Tensor) -> Sets:
        """All sets of some players; the variances sum to 1."""
        members = players[torch.combinations(torch.arange(len(players)), size)]
        variances = _trees(affinities[members[:, :, None], members[:, None]]).sqrt()
        return Sets(members, variances / variances.sum().clamp(min=1e-300))

    def above(self, least: float, factor: float) -> Sets:
        """Keep those whose variance, times a factor, is at least this."""
        variances = factor * self.variances
        kept = variances >= least
        return Sets(self.members[kept], variances[kept])

    def features(self, pairs: Pairs, part: slice) -> Tensor:
        """√variance·ψ_T, (pairs, sets): it depends only on how many of T are in S."""
        size = self.members.shape[1]
        inside = torch.zeros(pairs.players, len(self.members), dtype=torch.float64)
        inside.scatter_(0, self.members.T, 1.0)
        number = torch.arange(size + 1)
        values = (-1.0) ** (size - number) - (2.0 * number - size) / size
        count = (pairs.members[part].double() @ inside).long()
        return values.double()[count] * self.variances.sqrt()


def _trees(weights: Tensor) -> Tensor:
    """The sum over all spanning trees of the products of their branches' weights (Kirchhoff), (sets, size, size)."""
    degrees = weights.sum(2) - weights.diagonal(dim1=1, dim2=2)
    laplacian = torch.diag_embed(degrees + weights.diagonal(dim1=1, dim2=2)) - weights
    return torch.linalg.det(laplacian[:, 1:, 1:]).clamp(min=0)


def likely(affinities: Tensor, most: int) -> list[Sets]:
    """The sets with the largest variances, of three and of five."""
    players = affinities.sum(1).argsort(descending=True)
    threes = Sets.of(players.sort().values, 3, affinities)
    fives = Sets.of(players[:_MOST_IN_FIVES].sort().values, 5, affinities)
    every = torch.cat([threes.variances, _FIFTH * fives.variances])
    least = float(every.topk(min(most, len(every))).values[-1])
    return [threes.above(least, 1), fives.above(least, _FIFTH)]


def gram(x: Tensor) -> Tensor:
    """xᵀx. NumPy sees that both are the same, and does half the work."""
    own = x.numpy()
    return torch.from_numpy(own.T @ own)
