"""A game as a Gaussian process over coalitions, for few players of whom nothing is known beforehand.

With z_j = 1 if player j is in and −1 if not, every game is v = Σ_A c_A Π_{j∈A} z_j. Interactions of all orders are
possible, higher ones less likely: c_A ~ N(0, Π_{j∈A} λ_j). Pairs of coalitions see the odd orders; the first is the
regression's own (β, see `posterior`), and all others have the covariance

    K(z, z') = ½ Π_j (1 + λ_j z_j z'_j) − ½ Π_j (1 − λ_j z_j z'_j) − Σ_j λ_j z_j z'_j

The Shapley value is linear in the coefficients, R_i = Σ_{A∋i, |A| odd} 2c_A/|A|, and 1/|A| = ∫₀¹ t^{|A|−1} dt, hence

    Cov(R_i, v(z)) = λ_i z_i ∫₀¹ [Π_{j≠i}(1 + tλ_j z_j) + Π_{j≠i}(1 − tλ_j z_j) − 2] dt
    Var(R_i)       = 2λ_i ∫₀¹∫₀¹ [Π_{j≠i}(1 + tuλ_j) + Π_{j≠i}(1 − tuλ_j) − 2] dt du

by Gauss–Legendre, which is exact for polynomials. Unlike the interactions of `regression`, these have Shapley values.
As v(P) − v(∅) is known, what counts is h̃(z) = h(z) − z̄ h(1) with z̄ = Σz_j/N, and R̃_i = R_i − 2h(1)/N.

- **Rough parts** (trees, data values) are white: every pair has a further independent value of the same variance.
- **Sizes.** The worth of no players is often unlike anything else: a jump between it and the smallest coalitions, the
  same for all players, has no Shapley value, and its size is left open; so are waves over sizes with many pairs.
- **Profiles.** In deep networks contributions fade as a coalition grows, all by the same factor f(s), as the output
  saturates. With many players that is steeper than interactions of three or five describe, and z f(s) with
  f ∝ exp(−4γ q(1−q)), q = s/N, is tried in the place of z; f has the mean 1, so that β stays the Shapley value.
- **Relevances.** Who interacts with one player interacts with others. The half sums of pairs see the even orders, which
  are other numbers than those that are explained: a player's relevance λ_j is taken in proportion to the squares of its
  interactions of two (or to their root). By its evidence, this is averaged with all players alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log, pi
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from dasp.attribution.bayesian.design import MOST_CHOSEN, MOST_OPENED, Pairs
from dasp.attribution.bayesian.interaction_regression import InteractionRegression
from dasp.attribution.bayesian.regression import PairSummary, Reduced, Regression, white_variance

__all__ = ["Process", "Regressions", "regression_on"]

_Key = tuple[int, int, int, bool]  # players, pairs, seed and opening

_SHAPES = [(order, white) for order in (0.7, 3.0) for white in (0.003, 0.05, 0.4)] + [(0.7, 1.0)]
_PROFILED = 20  # players: with no more of them, orders three and five describe how contributions change with the size
_PROFILES = (1.0, 2.0)  # γ
_PROFILE_ODDS = 4.0  # by how much (in logarithms) a profile is thought less likely than none
_MOST_RELEVANCE = 0.9  # λ of a single player
_LEAST_RELEVANCE, _LARGEST_RELEVANCE = 0.05, 4.0  # in parts of the mean
_EXPONENTS = (0.5, 1.0)  # of relevances
_FEW_SHAPES = [(1.0, 0.2, 1.0), (1.0, 0.2, 10.0)]  # of interactions, which need not be known well for relevances
_TRIED = 3  # shapes, the most probable ones, with relevances
_RELEVANT = (4, 511)  # relevances are tried from so many pairs for each player on, up to so many pairs
_WAVES, _PAIRS_FOR_A_WAVE = 3, 48
_FEWEST_INTERACTING = 3  # players
_JUMP_FROM = 1.5  # pairs for each player
_JITTER = 1e-10
# By how much variances are multiplied, for what none of the models knows: with many pairs, and where hardly more than
# single players were seen. Chosen on half of the public games.
_WIDER, _MUCH_WIDER = 1.15, 2.0
_MOST_KEPT = 2**25  # numbers: 256 MB


class Process(Regression):
    """The regression with the interactions of the process, prepared for any values.

    Args:
        pairs: the design.
        shapes: pairs of θ = λN, which says how much less likely higher orders are, and the variance of the white part.
        relevances: of the players, with a mean of 1; None for all alike.
    """

    def __init__(
        self, pairs: Pairs, shapes: list[tuple[float, float]] = _SHAPES, relevances: Tensor | None = None
    ) -> None:
        n = pairs.players
        self.pairs = pairs
        alike = torch.ones(n, dtype=torch.float64) if relevances is None else relevances
        sizes, z = size_functions(pairs), pairs.centred()
        regressors = {0.0: z} | {g: _profile(pairs, g) * z for g in (_PROFILES if n > _PROFILED else ())}
        self._shapes: list[tuple[float, float]] = []
        self._reduced: list[Reduced] = []
        self._odds: list[float] = []
        parts = {order: _Smooth.of(pairs, (alike * (order / n)).clamp(max=_MOST_RELEVANCE)) for order, _ in shapes}
        for order, rough in shapes:
            smooth = parts[order]
            covariance = (1 - rough) * smooth.kernel
            covariance.diagonal().add_(rough + _JITTER)
            root = torch.linalg.cholesky(covariance)
            rest = (1 - rough) * smooth.cross + rough * pairs.weights[:, None] * z
            variance = (1 - rough) * smooth.variance + rough * white_variance(n)
            for profile, x in regressors.items():
                self._shapes.append((order, rough))
                self._reduced.append(Reduced.of(root, torch.cat([sizes, x, rest], 1), variance, pairs))
                self._odds.append(-_PROFILE_ODDS if profile else 0.0)

    @staticmethod
    def suits(pairs: Pairs) -> bool:
        """True if there are neither too many players nor too many pairs."""
        return pairs.players <= MOST_OPENED and len(pairs) <= MOST_CHOSEN

    @property
    def numbers(self) -> int:
        """The number of numbers of eight bytes that it keeps."""
        own, pairs = sum(reduced.numbers for reduced in self._reduced), len(self.pairs)
        couples = self.pairs.players * (self.pairs.players - 1) // 2
        return own + (len(_FEW_SHAPES) * pairs * (pairs + couples) if self.chooses else 0)

    def summaries(self, y: Tensor) -> list[PairSummary]:
        """Sum up the values, once for each shape and profile."""
        found = zip(self._reduced, self._odds, strict=True)
        return [reduced.summary(y).more_likely(odds) for reduced, odds in found]

    def shared_out(self, variance: Tensor, mean: Tensor) -> Tensor:
        """Return variances with more for players with larger values, who interact more, and less for the others."""
        size = mean.square().mean(1, keepdim=True).sqrt()
        share = 1 + mean.abs() / torch.where(size > 0, size, 1)
        wider = _WIDER if len(self.pairs) >= _JUMP_FROM * self.pairs.players else _MUCH_WIDER
        return variance * share * (wider / share.mean(1, keepdim=True))

    @property
    def chooses(self) -> bool:
        """True if there are enough pairs for relevances, and not so many that it takes too long for every column."""
        fewest, most = _RELEVANT
        return self.pairs.players > 2 and fewest * self.pairs.players <= len(self.pairs) <= most

    @cached_property
    def _interactions(self) -> InteractionRegression:
        return InteractionRegression(self.pairs, ends=False, shapes=_FEW_SHAPES)

    def own_summaries(self, y: Tensor, sums: Tensor, evidence: Tensor) -> list[PairSummary]:
        """Sum up a column with relevances, for the shapes that are the most probable with all players alike."""
        sums = sums - sums.mean()
        if not float(size := sums.abs().max()) > 0:
            return []
        found = self._interactions.posterior(sums[:, None] / size)
        squares = (found.mean.square() + found.deviation.square()).sum((0, 2))
        order = evidence.argsort(descending=True).tolist()
        shapes = list(dict.fromkeys(self._shapes[i] for i in order))[:_TRIED]
        odds = log(len(self._shapes) / (len(shapes) * len(_EXPONENTS)))  # all of them together are like all alike
        result = []
        for exponent in _EXPONENTS:
            relevances = (squares / squares.mean()) ** exponent
            relevances = (relevances / relevances.mean()).clamp(_LEAST_RELEVANCE, _LARGEST_RELEVANCE)
            own = Process(self.pairs, shapes, relevances / relevances.mean())
            result += [summary.more_likely(odds) for summary in own.summaries(y)]
        return result


class Regressions:
    """Regressions that are kept for further calls, as far as there is room; copies of it begin empty."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pairs: tuple[_Key, Pairs] | None = None
        self._kept: dict[_Key, Regression] = {}

    def __reduce__(self) -> tuple[type[Regressions], tuple[()]]:
        return Regressions, ()

    def pairs(self, players: int, number: int, seed: int, *, opening: bool) -> Pairs:
        """Return the first pairs of the design for a seed."""
        key, last = (players, number, seed, opening), self._pairs
        if last is None or last[0] != key:
            self._pairs = last = key, Pairs.draw(players, number, seed, opening=opening)
        return last[1]

    def on(self, pairs: Pairs, seed: int, *, opening: bool) -> Regression:
        """Return the regression on pairs of the design for a seed, a kept one if there is one."""
        key = (pairs.players, len(pairs), seed, opening)
        regression = self._kept.get(key)
        if regression is None:
            regression = regression_on(pairs, opening=opening)
            with self._lock:
                self._keep(key, regression)
        return regression

    def _keep(self, key: _Key, regression: Regression) -> None:
        """If there is no room, those of other games have to go, but not those of this one: stages of growing designs
        come again in the same order, and the newest would always drive out the one that is needed next."""
        room = _MOST_KEPT - regression.numbers
        if sum(kept.numbers for kept in self._kept.values()) > room:
            same = (key[0], *key[2:])
            self._kept = {other: kept for other, kept in self._kept.items() if (other[0], *other[2:]) == same}
        if sum(kept.numbers for kept in self._kept.values()) <= room:
            self._kept = {**self._kept, key: regression}


def regression_on(pairs: Pairs, *, opening: bool) -> Regression:
    """Return the regression that suits a design: for one with an opening the process, if there are not too many
    pairs."""
    return Process(pairs) if opening and Process.suits(pairs) else Regression.on(pairs)


def size_functions(pairs: Pairs) -> Tensor:
    """Return functions of a coalition's size that are left open, (pairs, functions): a jump from nobody and everybody
    to all others, and waves; none where there are hardly more pairs than players. They have no Shapley value."""
    n, number = pairs.players, len(pairs)
    share = 2 * pairs.sizes[:, None] / n - 1
    different = len(pairs.sizes[2 * pairs.sizes < n].unique())
    if number < _JUMP_FROM * n or different == 0:
        return share[:, :0]
    waves = max(0, min(_WAVES, number // _PAIRS_FOR_A_WAVE, (n - 1) // 2 - 1, different - 2))
    return torch.cat([share, torch.sin(pi * torch.arange(1, waves + 1, dtype=torch.float64) * share)], 1)


def _profile(pairs: Pairs, decay: float) -> Tensor:
    """How much contributions count in coalitions of each pair's size, (pairs, 1): 1 in the mean over all sizes."""
    q = torch.arange(1, pairs.players, dtype=torch.float64) / pairs.players
    profile = torch.exp(-4 * decay * q * (1 - q))
    return (profile / profile.mean())[pairs.sizes.long() - 1, None]


@dataclass(frozen=True)
class _Smooth:
    """Interactions of three and more players, with a variance of 1 in the mean over the pairs."""

    kernel: Tensor  # of h̃ (pairs, pairs)
    cross: Tensor  # its covariance with R̃ (pairs, players)
    variance: Tensor  # of R̃ (players,)

    @staticmethod
    def of(pairs: Pairs, relevances: Tensor) -> _Smooth:
        """From λ of every player."""
        n, members = pairs.players, pairs.members
        sign = 2 * members.double() - 1
        if n < _FEWEST_INTERACTING:
            nothing = torch.zeros(len(sign), n, dtype=sign.dtype)
            return _Smooth(torch.zeros(len(sign), len(sign), dtype=sign.dtype), nothing, torch.zeros_like(nothing[0]))
        slopes, base = torch.atanh(relevances), torch.log1p(-relevances.square()).sum() / 2

        def odd(overlap: Tensor, first: Tensor) -> Tensor:
            """The odd part of a product without its first order."""
            return ((base + overlap).exp() - (base - overlap).exp()) / 2 - first

        kernel = odd((sign * slopes) @ sign.T, (sign * relevances) @ sign.T)
        to_all = odd(sign @ slopes, sign @ relevances)
        of_all = odd(slopes.sum(), relevances.sum())
        mean = sign.mean(1, keepdim=True)
        kernel = kernel - mean * to_all - to_all[:, None] * mean.T + mean * mean.T * of_all

        plus, minus = torch.log1p(_NODES[:, None] * relevances), torch.log1p(-_NODES[:, None] * relevances)
        inside, outside = members.double(), (~members).double()
        there, turned = inside @ plus.T + outside @ minus.T, inside @ minus.T + outside @ plus.T  # (pairs, nodes)
        own, other = torch.where(members[:, None], plus, minus), torch.where(members[:, None], minus, plus)
        products = (there[..., None] - own).exp() + (turned[..., None] - other).exp() - 2  # (pairs, nodes, players)
        cross = torch.einsum("k,pki->pi", _WEIGHTS, products) * sign * relevances
        all_cross = relevances * _others(plus, minus, _WEIGHTS)
        cross = cross - mean * all_cross - (2 / n) * (to_all[:, None] - mean * of_all)

        nodes, weights = torch.outer(_NODES, _NODES).flatten()[:, None], torch.outer(_WEIGHTS, _WEIGHTS).flatten()
        variance = 2 * relevances * _others(torch.log1p(nodes * relevances), torch.log1p(-nodes * relevances), weights)
        variance = variance - (4 / n) * all_cross + (4 / n**2) * of_all
        scale = kernel.diagonal().mean().clamp(min=1e-300)
        return _Smooth(kernel / scale, cross / scale, variance.clamp(min=0) / scale)


def _others(plus: Tensor, minus: Tensor, weights: Tensor) -> Tensor:
    """∫ [Π_{j≠i}(1 + tλ_j) + Π_{j≠i}(1 − tλ_j) − 2] dt for every player, from logarithms (nodes, players)."""
    products = (plus.sum(1, keepdim=True) - plus).exp() + (minus.sum(1, keepdim=True) - minus).exp() - 2
    return weights @ products


_NODES, _WEIGHTS = (torch.tensor(x / 2) for x in np.polynomial.legendre.leggauss(24))
_NODES = _NODES + 0.5
