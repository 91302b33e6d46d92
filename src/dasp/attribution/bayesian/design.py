"""The coalitions that are evaluated: pairs {S, Sᶜ}, drawn without replacement.

The Shapley values are a weighted regression of v(S) on membership over all coalitions (Charnes et al. 1988). Evaluated
in pairs, y = (v(S) − v(Sᶜ))/2 has no interactions of even order, and with z = 1_S − s/N

    R = Δ/N + Σ_pairs w_s z y,      w_s = N K_s/L_s,  K_s = 2/(s(N−s)),  L_s = C(N, s),      s = 1 … ⌊N/2⌋

(K and L halved at s = N/2, where both halves of a pair have the same size). Leverage scores of this regression are
equal over sizes (Musco and Witter 2025), so the sizes of the pairs go through 1 … ⌊N/2⌋ evenly; a size that has no
pairs left is left out from then on.

**With an opening.** R = ∫₀¹ ∂F/∂q dq is an integral over the share q of the players who are there (Owen 1972). An even
spread over sizes integrates at random nodes; Simpson's rule, with nodes at q = 0, ½ and 1, is exact for interactions of
up to four players. So where nothing is known beforehand and there are few players, the design begins with all single
players (whose pairs are all but one), goes on with 2N pairs of which two of three are halves, and only then spreads
evenly: the longer it is, the more nodes there are. (Of more than 24 players, a sixth of N of these pairs come before
the single players: an estimate may end before all of these were seen, and must see that halves are otherwise.) Within a
size, the next coalition is the one of several that is least like those before, which makes halves nearly orthogonal, as
rows of a Hadamard matrix are. With a good prior, or with many players, single players say little that is not known, and
an even spread is better (see `priors.opens`).

A longer design begins with the shorter one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import comb, exp, inf, lgamma, log

import numpy as np
import torch
from torch import Tensor

__all__ = ["MOST_CHOSEN", "MOST_OPENED", "Pairs", "pair_count"]

MOST_OPENED = 64  # players
MOST_CHOSEN = 1023  # pairs
_HALVES = 2 / 3  # of the pairs before and after the single players
_MIXED_FOR = 2  # times as many pairs as players
_BEFORE_SINGLES, _FEW_PLAYERS = 1 / 6, 24  # the first of these pairs, for more than so many players
_UNEVEN = 0.35  # of the halves have one player less
_CANDIDATES = 16  # coalitions of a size, among which the next one is chosen
_ALL_AT_ONCE = 2**13  # coalitions of a size, which are all drawn at once
_BITS = np.array([value.bit_count() for value in range(256)], dtype=np.uint8)
_LIKENESS = 6.0  # how much more an overlap counts than a smaller one: exp(6|z·z'|/N)
_UNSEEN = 1e-10  # of the largest eigenvalue, which is rounding
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
    def draw(players: int, number: int, seed: int, *, opening: bool = False) -> Pairs:
        """Return the first pairs of the design for a seed: evenly over the sizes, or with single players and halves as
        an opening, for at most 64 players.

        >>> Pairs.draw(4, 3, seed=0).members.shape
        torch.Size([3, 4])
        >>> Pairs.draw(4, 3, seed=0, opening=True).sizes
        tensor([1., 1., 1.], dtype=torch.float64)
        """
        number = min(number, pair_count(players))
        if opening:
            return Pairs(torch.from_numpy(_opened(players, number, seed)))
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

    def hidden(self) -> Tensor:
        """Return the projection on the differences between players that none of the pairs shows, (players, players):
        on all vectors of sum 0 that are orthogonal to every z.

        >>> together = Pairs(torch.tensor([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]).bool())
        >>> (together.hidden().round(decimals=3) + 0.0).tolist()[:2]  # the first two are always in or out together
        [[0.5, -0.5, 0.0, 0.0], [-0.5, 0.5, 0.0, 0.0]]
        """
        n = self.players
        seen = torch.full((n, n), float(len(self)) / n, dtype=torch.float64)  # of the sum, which is known
        for part in self.slices():
            z = self.centred(part)
            seen += z.T @ z
        strengths, directions = torch.linalg.eigh(seen)
        own = directions[:, strengths <= _UNSEEN * strengths[-1]]
        return own @ own.T


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


def _sizes(players: int, seed: int, left: list[float] | None = None) -> Iterator[int]:
    """Sizes of pairs one after the other: points of a low-discrepancy sequence among the sizes with pairs left. Who
    gives the numbers of those `left` counts them down, too."""
    counted = left is None
    left = left or [_count(players, s) for s in range(1, players // 2 + 1)]
    shares = np.ones(players // 2)
    if players % 2 == 0:
        shares[-1] = 0.5
    place = float(np.random.default_rng([seed, 0]).random())
    while any(left):
        ends = np.where(np.array(left) > 0, shares, 0).cumsum()
        there = sum(number > 0 for number in left)
        while sum(number > 0 for number in left) == there:
            place = (place + _GOLDEN) % 1
            index = int(np.searchsorted(ends, place * ends[-1], side="right"))
            yield index + 1
            left[index] -= counted


def _opened(players: int, number: int, seed: int) -> np.ndarray:
    """The members of the first pairs of the design that begins with single players and halves. Beyond the first 1,023
    they are not chosen any more, but drawn."""
    left = [_count(players, s) for s in range(1, players // 2 + 1)]
    sizes = _opening_sizes(players, seed, left)
    chosen = _Chosen(players, min(number, MOST_CHOSEN), seed)
    later: list[int] = []
    for k in range(number):
        size = next(sizes)
        if left[size - 1] == 0:  # the nearest size that has pairs left; of two, the larger one
            size = max((s for s, there in enumerate(left, 1) if there), key=lambda s: (-abs(s - size), s))
        left[size - 1] -= 1
        if k < MOST_CHOSEN:
            chosen.take(size)
        else:
            later.append(size)
    return np.concatenate([chosen.members, _others(players, np.array(later, dtype=np.int64), chosen, seed)])


def _others(players: int, sizes: np.ndarray, chosen: _Chosen, seed: int) -> np.ndarray:
    """Coalitions of these sizes in random order, other than those that were chosen."""
    members = np.zeros((len(sizes), players), dtype=bool)
    for size in np.unique(sizes).tolist():
        places = np.flatnonzero(sizes == size)
        number = min(len(places) + len(chosen.members), int(_count(players, size)))
        drawn = _coalitions(players, size, number, np.random.default_rng([seed, size, 1]))
        members[places] = [row for row in drawn if row.tobytes() not in chosen.taken][: len(places)]
    return members


def _opening_sizes(players: int, seed: int, left: list[float]) -> Iterator[int]:
    """Sizes one after the other: of more than 24 players, some halves and others; single players; halves among an even
    spread; the even spread."""
    even = _sizes(players, seed, left)
    mixed = _mixed_sizes(players, even)
    before = round(_BEFORE_SINGLES * players) if players > _FEW_PLAYERS else 0
    yield from islice(mixed, before)
    yield from [1] * int(left[0])
    yield from islice(mixed, _MIXED_FOR * players - before)
    yield from even


def _mixed_sizes(players: int, even: Iterator[int]) -> Iterator[int]:
    """Sizes of halves, some of them with one player less, among others."""
    share = place = 0.5
    while True:
        share += _HALVES
        if share >= 1:
            share -= 1
            place = (place + _GOLDEN) % 1
            yield max(1, players // 2 - (place < _UNEVEN))
        else:
            yield next(even)


class _Chosen:
    """Coalitions that are chosen one after the other, each as the least like those before among some of its size."""

    def __init__(self, players: int, number: int, seed: int) -> None:
        self.players, self.number = players, 0
        self.members = np.zeros((number, players), dtype=bool)
        self._packed = np.zeros((number, -(-players // 8)), dtype=np.uint8)
        self.taken: set[bytes] = set()  # members
        self._waiting: dict[int, deque[np.ndarray]] = {}  # of sizes with few coalitions: all that are left
        self._likeness = np.exp(_LIKENESS * np.abs(1 - 2 * np.arange(players + 1) / players))
        self._seed, self._generator = seed, np.random.default_rng([seed, players, 2])

    def take(self, size: int) -> None:
        """Choose a coalition of a size."""
        candidates = self._candidates(size)
        packed = np.packbits(candidates, axis=1)
        different = _BITS[packed[:, None] ^ self._packed[: self.number]].sum(2)  # |z·z'| = |N − 2 · this|
        best = int(self._likeness[different].sum(1).argmin())
        self.members[self.number], self._packed[self.number] = candidates[best], packed[best]
        self.taken.add(candidates[best].tobytes())
        self.number += 1
        if size in self._waiting:
            self._waiting[size].extend(np.delete(candidates, best, 0))

    def _candidates(self, size: int) -> np.ndarray:
        if (total := _count(self.players, size)) > _ALL_AT_ONCE:
            drawn = _random_members(self.players, size, 2 * _CANDIDATES, self._generator)
            if 2 * size == self.players:
                drawn ^= ~drawn[:, -1:]
            new = [row for row in drawn if row.tobytes() not in self.taken]
            return np.array(new[:_CANDIDATES])
        if size not in self._waiting:
            order = _shuffled(int(total), int(total), np.random.default_rng([self._seed, size, 2]))
            self._waiting[size] = deque(_by_rank(self.players, size, order))
        waiting = self._waiting[size]
        return np.array([waiting.popleft() for _ in range(min(_CANDIDATES, len(waiting)))])


def _count(players: int, size: int) -> float:
    """L_s, or infinity where it is of no use."""
    if lgamma(players + 1) - lgamma(size + 1) - lgamma(players - size + 1) > log(_RANKED):
        return inf
    return comb(players, size) // (2 if 2 * size == players else 1)


def _coalitions(players: int, size: int, number: int, generator: np.random.Generator) -> np.ndarray:
    """Different coalitions of a size in random order; of those of half the players, only ones with the last player."""
    if (all_of_them := _count(players, size)) < inf:
        return _by_rank(players, size, _shuffled(int(all_of_them), number, generator))
    return _random_members(players, size, number, generator)  # the same coalition twice is out of the question


def _random_members(players: int, size: int, number: int, generator: np.random.Generator) -> np.ndarray:
    """Random coalitions of a size."""
    keys = generator.random((number, players))
    members = np.zeros((number, players), dtype=bool)
    np.put_along_axis(members, np.argpartition(keys, size, axis=1)[:, :size], values=True, axis=1)
    return members


def _by_rank(players: int, size: int, ranks: np.ndarray) -> np.ndarray:
    """Coalitions by their rank among those of a size; of those of half the players, only ones with the last player."""
    if 2 * size != players:
        return _unranked(players, size, ranks)
    return np.concatenate([_unranked(players - 1, size - 1, ranks), np.ones((len(ranks), 1), dtype=bool)], 1)


def _shuffled(total: int, number: int, generator: np.random.Generator) -> np.ndarray:
    """The first numbers of a random permutation of 0 … total−1 (Fisher–Yates, remembering only what was moved)."""
    places = generator.integers(np.arange(number), total)
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
