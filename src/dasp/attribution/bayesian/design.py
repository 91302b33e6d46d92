"""The coalitions that are evaluated: pairs {S, Sᶜ}, drawn without replacement, all sizes alike.

The Shapley values are a weighted regression of v(S) on membership over all coalitions (Charnes et al. 1988). Evaluated
in pairs, y = (v(S) − v(Sᶜ))/2 has no interactions of even order, and with z = 1_S − s/N

    R = Δ/N + Σ_pairs w_s z y,      w_s = N K_s/L_s,  K_s = 2/(s(N−s)),  L_s = C(N, s),      s = 1 … ⌊N/2⌋

(K and L halved at s = N/2, where both halves of a pair have the same size). Leverage scores of this regression are
equal over sizes (Musco and Witter 2025), so the sizes of the pairs go through 1 … ⌊N/2⌋ evenly; a size that has no
pairs left is left out from then on. A longer design begins with the shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import comb, exp, inf, lgamma, log

import numpy as np
import torch
from torch import Tensor

__all__ = ["Pairs", "pair_count"]

_GOLDEN = (5**0.5 - 1) / 2
_PAIRS_AT_ONCE = 4096
_RANKED = 2**62  # sizes with fewer pairs than this are drawn by their rank, without replacement


def pair_count(players: int) -> int:
    """Return the number of all pairs but {∅, P}.

    >>> pair_count(3)
    3
    """
    return 2 ** (players - 1) - 1


@dataclass(frozen=True)
class Pairs:
    """Pairs of coalitions, each given by the smaller of the two."""

    members: Tensor  # (pairs, players), bool

    @staticmethod
    def draw(players: int, number: int, seed: int) -> Pairs:
        """Return the first pairs of the design for a seed.

        >>> Pairs.draw(4, 3, seed=0).members.shape
        torch.Size([3, 4])
        """
        number = min(number, pair_count(players))
        sizes = np.fromiter(_sizes(players, seed), dtype=np.int64, count=number)
        members = np.zeros((number, players), dtype=bool)
        for size in np.unique(sizes).tolist():
            places = np.flatnonzero(sizes == size)
            members[places] = _coalitions(players, size, len(places), np.random.default_rng([seed, size]))
        return Pairs(torch.from_numpy(members))

    def first(self, number: int) -> Pairs:
        """Return the first pairs as a design of their own: a copy, which does not hold the longer one."""
        return self if number == len(self) else Pairs(self.members[:number].clone())

    def __len__(self) -> int:
        return len(self.members)

    @property
    def players(self) -> int:
        """The number of players, N."""
        return self.members.shape[1]

    @cached_property
    def sizes(self) -> Tensor:
        """The size s of every pair's smaller coalition."""
        return self.members.sum(1).double()

    @cached_property
    def weights(self) -> Tensor:
        """The weight w_s of every pair in the Shapley values."""
        return shapley_weights(self.players)[self.sizes.long() - 1]

    def slices(self) -> list[slice]:
        """Return the places of all pairs in parts of at most 4,096."""
        return [slice(start, start + _PAIRS_AT_ONCE) for start in range(0, len(self), _PAIRS_AT_ONCE)]

    def centred(self, part: slice = slice(None)) -> Tensor:
        """Return z = 1_S − s/N, the membership of every player less its mean."""
        return self.members[part].double() - (self.sizes[part] / self.players)[:, None]


def log_counts(players: int) -> Tensor:
    """Return log L_s for s = 1 … ⌊N/2⌋, the logarithm of the number of pairs of each size."""
    sizes = range(1, players // 2 + 1)
    logs = [lgamma(players + 1) - lgamma(s + 1) - lgamma(players - s + 1) - (log(2) if 2 * s == players else 0)
            for s in sizes]  # fmt: skip
    return torch.tensor(logs, dtype=torch.float64)


def shapley_weights(players: int) -> Tensor:
    """Return w_s for s = 1 … ⌊N/2⌋, the weight of a pair of each size in the Shapley values."""
    logs = log_counts(players).tolist()
    weights = [
        (1 if 2 * s == players else 2) * players / (s * (players - s)) * exp(-logs[s - 1])
        for s in range(1, players // 2 + 1)
    ]
    return torch.tensor(weights, dtype=torch.float64)


def _sizes(players: int, seed: int) -> Iterator[int]:
    """Sizes of pairs one after the other: points of a low-discrepancy sequence among the sizes with pairs left."""
    left = [_count(players, s) for s in range(1, players // 2 + 1)]
    shares = np.ones(players // 2)
    if players % 2 == 0:
        shares[-1] = 0.5
    place = float(np.random.default_rng([seed, 0]).random())
    while shares.any():
        ends = shares.cumsum()
        while True:
            place = (place + _GOLDEN) % 1
            index = int(np.searchsorted(ends, place * ends[-1], side="right"))
            yield index + 1
            left[index] -= 1
            if left[index] == 0:
                shares[index] = 0
                break


def _count(players: int, size: int) -> float:
    """L_s, or infinity where it is of no use."""
    if lgamma(players + 1) - lgamma(size + 1) - lgamma(players - size + 1) > log(_RANKED):
        return inf
    return comb(players, size) // (2 if 2 * size == players else 1)


def _coalitions(players: int, size: int, number: int, generator: np.random.Generator) -> np.ndarray:
    """Different coalitions of a size in random order; of those of half the players, only ones with the last player."""
    if (count := _count(players, size)) < inf:
        ranks = _shuffled(int(count), number, generator)
        if 2 * size == players:
            last = np.ones((number, 1), dtype=bool)
            return np.concatenate([_unranked(players - 1, size - 1, ranks), last], 1)
        return _unranked(players, size, ranks)
    keys = generator.random((number, players))  # the same coalition twice is out of the question
    members = np.zeros((number, players), dtype=bool)
    np.put_along_axis(members, np.argpartition(keys, size, axis=1)[:, :size], values=True, axis=1)
    return members


def _shuffled(count: int, number: int, generator: np.random.Generator) -> np.ndarray:
    """The first numbers of a random permutation of 0 … count−1 (Fisher–Yates, remembering only what was moved)."""
    places = generator.integers(np.arange(number), count)
    moved: dict[int, int] = {}
    result = np.empty(number, dtype=np.int64)
    for i, j in enumerate(places.tolist()):
        result[i] = moved.get(j, j)
        moved[j] = moved.get(i, i)
    return result


def _unranked(players: int, size: int, ranks: np.ndarray) -> np.ndarray:
    """Coalitions by their rank in the combinatorial number system."""
    members = np.zeros((len(ranks), players), dtype=bool)
    ranks, missing = ranks.copy(), np.full(len(ranks), size)
    for player in reversed(range(players)):
        below = np.array([min(comb(player, k), _RANKED) for k in range(size + 1)])[missing]
        members[:, player] = joins = (missing > 0) & (ranks >= below)
        ranks -= np.where(joins, below, 0)
        missing -= joins
    return members
