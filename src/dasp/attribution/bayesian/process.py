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

import numpy as np
import torch
from torch import Tensor

from dasp.attribution.bayesian.design import MOST_CHOSEN, MOST_OPENED, Pairs
from dasp.attribution.bayesian.interactions import InteractionRegression
from dasp.attribution.bayesian.regression import PairSummary, Reduced, Regression, white_variance

__all__ = ["Process"]

_SHAPES = [(order, white) for order in (0.7, 3.0) for white in (0.003, 0.05, 0.4)] + [(0.7, 1.0)]
_PROFILED = 20  # players: with no more of them, orders three and five describe how contributions change with the size
_PROFILES = (1.0, 2.0)  # γ
_PROFILE_ODDS = 4.0  # by how much (in logarithms) a profile is thought less likely than none
_MOST_RELEVANCE = 0.9  # λ of a single player
_LEAST_RELEVANCE, _LARGEST_RELEVANCE = 0.05, 4.0  # in parts of the mean
_EXPONENTS = (0.5, 1.0)  # of relevances
_TRIED = 3  # shapes, the most probable ones, with relevances
_RELEVANT = (2, 511)  # relevances are tried from so many pairs for each player on, up to so many pairs
_WAVES, _PAIRS_FOR_A_WAVE = 3, 48
_JUMP_FROM = 1.5  # pairs for each player
_JITTER = 1e-10


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
        for order, rough in shapes:
            smooth = _Smooth.of(pairs, (alike * (order / n)).clamp(max=_MOST_RELEVANCE))
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
        own = sum(reduced.numbers for reduced in self._reduced)
        return own + (self._interactions.numbers if self.chooses else 0)

    def summaries(self, y: Tensor) -> list[PairSummary]:
        """Sum up the values, once for each shape and profile."""
        found = zip(self._reduced, self._odds, strict=True)
        return [reduced.summary(y).more_likely(odds) for reduced, odds in found]

    @property
    def chooses(self) -> bool:
        """True if there are enough pairs for relevances, and not so many that it takes too long for every column."""
        fewest, most = _RELEVANT
        return self.pairs.players > 2 and fewest * self.pairs.players <= len(self.pairs) <= most

    @cached_property
    def _interactions(self) -> InteractionRegression:
        return InteractionRegression(self.pairs, ends=False)

    def own_summaries(self, y: Tensor, sums: Tensor, evidence: Tensor) -> list[PairSummary]:
        """Sum up a column with relevances, for the shapes that are the most probable with all players alike."""
        found = self._interactions.posterior(sums[:, None])
        squares = (found.mean.square() + found.deviation.square()).sum((0, 2))
        if not float(squares.sum()) > 0:
            return []
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
        cross = torch.zeros_like(sign)
        for node, weight in enumerate(_WEIGHTS.tolist()):
            own, other = torch.where(members, plus[node], minus[node]), torch.where(members, minus[node], plus[node])
            cross += weight * ((there[:, node, None] - own).exp() + (turned[:, node, None] - other).exp() - 2)
        cross *= sign * relevances
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
