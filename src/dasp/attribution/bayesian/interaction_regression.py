"""Interactions of two players, from the same evaluations as their values, with standard deviations.

The half sums (v(S) + v(Sᶜ))/2 of pairs of coalitions have the even orders of a game, which Shapley values know nothing
of; its Shapley interaction index is of these alone. With v = Σ_A c_A Π_{j∈A} z_j and z = ±1 (see `process`),

    I_ij = Σ_{A∋i,j, |A| even} 4c_A/(|A|−1),        1/(|A|−1) = ∫₀¹ t^{|A|−2} dt

so it is a linear functional of the game, and has a posterior under the same Gaussian process: c_A ~ N(0, λ^|A|), with a
further variance ρ of the interactions of two, and a white part of variance ω. Its covariance with the half sum of z is

    4z_iz_j/(N(N−1)/2) ρ  +  4λ²z_iz_j ∫₀¹ [½Π_{k≠i,j}(1 + tλz_k) + ½Π_{k≠i,j}(1 − tλz_k) − 1] dt  +  2ω w_ij(S)

where w_ij(S) is the weight of a coalition in the index: p_t = 1/((N−1)C(N−2, t)) with t = |S| − 2 if both players are
in S, p_t with t = |S| if neither is, −p_t with t = |S| − 1 if one is. The mean of all half sums, and a jump between the
half sum of nobody and everybody and all others, are left open. λ, ρ and ω are averaged over by their evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from torch import Tensor

from dasp.attribution.bayesian.design import MOST_CHOSEN, Pairs, pair_count
from dasp.games.evaluator import Evaluated, EvaluatedRow

__all__ = ["InteractionPosterior", "InteractionRegression", "interactions_of", "mixed"]

_SHAPES = [(order, rough, two) for order in (1.0, 3.0) for rough in (0.02, 0.2) for two in (1.0, 10.0)] + [
    (1.0, 1.0, two) for two in (0.1, 1.0, 10.0)
]
_OPEN = 1e4  # the variance of what is left open, relative to that of all else
_JITTER = 1e-9


@dataclass(frozen=True)
class InteractionPosterior:
    """Interactions of all pairs of players with their standard deviations, (columns, players, players); the diagonals
    are 0."""

    mean: Tensor
    deviation: Tensor


class InteractionRegression:
    """The regression of half sums on a design, prepared for any values; with `ends`, also on that of nobody and
    everybody.

    >>> pairs = Pairs.draw(players=6, number=31, seed=0, opening=True)  # all of them
    >>> x = torch.cat([pairs.members, torch.ones(1, 6)]).double()
    >>> product = x[:, 0] * x[:, 1]
    >>> other = (1 - x[:, 0]) * (1 - x[:, 1])
    >>> found = InteractionRegression(pairs).posterior(((product + other) / 2)[:, None])
    >>> round(float(found.mean[0, 0, 1]), 2)
    1.0
    """

    def __init__(self, pairs: Pairs, *, ends: bool = True, shapes: list[tuple[float, float, float]] = _SHAPES) -> None:
        n = pairs.players
        everybody = torch.ones(int(ends), n, dtype=torch.bool)
        self.players, members = n, torch.cat([pairs.members, everybody])
        sign, sizes = 2 * members.double() - 1, members.sum(1)
        self.first, self.second = torch.triu_indices(n, n, 1)
        product = sign[:, self.first] * sign[:, self.second]
        inside = members[:, self.first].long() + members[:, self.second].long()
        overlap, couples = sign @ sign.T, n * (n - 1) / 2
        white = _weights(n)[inside, sizes[:, None]]
        end = (sizes == n).double()
        open_kernel = _OPEN * (1 + torch.outer(end, end))
        open_cross, open_variance = _OPEN * 2 / (n - 1) * end[:, None], _OPEN * (2 / (n - 1)) ** 2 * ends
        self._parts = []
        for order, rough, two in shapes:
            smooth = _Smooth.of(overlap, sizes, inside, n, min(0.9, order / n))
            covariance = two * (overlap**2 - n) / (2 * couples) + (1 - rough) * smooth.kernel + open_kernel
            covariance.diagonal().add_(rough + _JITTER)
            cross = product * (two * 4 / couples + (1 - rough) * smooth.cross) + 2 * rough * white + open_cross
            variance = two * 16 / couples + (1 - rough) * smooth.variance + 2 * rough * _white_variance(n)
            root = torch.linalg.cholesky(covariance)
            solved = torch.linalg.solve_triangular(root, cross, upper=False)
            left = (variance + open_variance - solved.square().sum(0)).clamp(min=0)
            log_determinant = 2 * float(root.diagonal().log().sum())
            self._parts.append((root, solved, left, log_determinant))

    @property
    def numbers(self) -> int:
        """The number of numbers of eight bytes that it keeps."""
        return sum(root.numel() + solved.numel() for root, solved, _, _ in self._parts)

    def posterior(self, sums: Tensor) -> InteractionPosterior:
        """Return the posterior of the interactions, given half sums (pairs, columns): those of the design, and with
        `ends` one more, (v(P) + v(∅))/2."""
        size = (sums - sums.mean(0)).abs().amax(0)
        size = torch.where(size > 0, size, 1)
        values = (sums - sums.mean(0)) / size
        freedom = len(sums) - 2  # of which the open ones take two
        means, variances, evidence = [], [], []
        for root, solved, left, log_determinant in self._parts:
            white = torch.linalg.solve_triangular(root, values, upper=False)
            squares = white.square().sum(0).clamp(min=torch.finfo(white.dtype).tiny)
            means.append((solved.T @ white).T)
            variances.append(left * (squares / max(1, freedom - 2))[:, None])
            evidence.append(-(log_determinant + freedom * squares.log()) / 2)
        mean, variance = mixed(torch.stack(means), torch.stack(variances), torch.stack(evidence))
        return InteractionPosterior(self._square(mean * size[:, None]), self._square(variance.sqrt() * size[:, None]))

    def _square(self, values: Tensor) -> Tensor:
        result = torch.zeros(len(values), self.players, self.players, dtype=values.dtype)
        result[:, self.first, self.second] = result[:, self.second, self.first] = values
        return result


def interactions_of(rows: Sequence[EvaluatedRow | None]) -> tuple[Tensor, Tensor]:
    """Return the interactions of all pairs of players of each row and their standard deviations, (rows, *selected,
    players, players), from what was evaluated. Idle players have none, and rows of which nothing was evaluated, as they
    have no two busy players, are all 0."""
    known = next((row.game for row in rows if row is not None), None)
    if known is None:
        raise ValueError("nothing was evaluated of these rows")
    selected = known.ends.shape[2:]
    result = torch.zeros(2, len(rows), *selected, known.everybody, known.everybody, dtype=torch.float64)
    alike: dict[tuple[int, int, bytes], list[int]] = defaultdict(list)  # rows of one game with the same pairs
    for place, row in enumerate(rows):
        if row is not None:
            there = _there(row)
            alike[id(row.game), len(there), there.numpy().tobytes()].append(place)
    for places in alike.values():
        first = rows[places[0]]
        assert first is not None
        own = torch.tensor([row.row for row in (rows[place] for place in places) if row is not None])
        found = _posterior(first.game, _there(first), own)
        one, other = torch.meshgrid(first.game.players, first.game.players, indexing="ij")
        for part, values in zip(result, (found.mean, found.deviation), strict=True):
            spread = torch.zeros(*values.shape[:1], known.everybody, known.everybody, dtype=values.dtype)
            spread[:, one, other] = values
            part[places] = spread.unflatten(0, (len(places), *selected))
    return result[0], result[1]


def _there(row: EvaluatedRow) -> Tensor:
    """The places of the pairs that a row has finite values of."""
    halves = row.game.halves[:, : int(row.game.numbers[row.row]), row.row]
    return halves.transpose(0, 1).flatten(1).isfinite().all(1).nonzero()[:, 0]


def _posterior(game: Evaluated, there: Tensor, rows: Tensor) -> InteractionPosterior:
    """The posterior of some rows of a game by their pairs; exact if these are all there are."""
    pairs = Pairs(game.members[there])
    sums = torch.cat([game.halves[1][there][:, rows], game.ends[1][None, rows]]).flatten(1)
    if len(pairs) == pair_count(pairs.players):
        return _exact(pairs, sums)
    if len(pairs) > MOST_CHOSEN:  # more take long, and tell little more than the first of them
        pairs, sums = Pairs(pairs.members[:MOST_CHOSEN]), torch.cat([sums[:MOST_CHOSEN], sums[-1:]])
    return InteractionRegression(pairs).posterior(sums)


def _exact(pairs: Pairs, sums: Tensor) -> InteractionPosterior:
    """The definition: Σ_S w_ij(S) v(S), and both of a pair have the same weight."""
    n = pairs.players
    members = torch.cat([pairs.members, torch.ones(1, n, dtype=torch.bool)])
    first, second = torch.triu_indices(n, n, 1)
    inside = members[:, first].long() + members[:, second].long()
    values = 2 * sums.T @ _weights(n)[inside, members.sum(1)[:, None]]
    mean = torch.zeros(len(values), n, n, dtype=values.dtype)
    mean[:, first, second] = mean[:, second, first] = values
    return InteractionPosterior(mean, torch.zeros_like(mean))


def mixed(means: Tensor, variances: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the variance over models (models, columns, numbers) whose logarithms of evidence are
    (models, columns)."""
    weights = evidence.softmax(0)[..., None]
    mean = (weights * means).sum(0)
    return mean, (weights * (variances + (means - mean) ** 2)).sum(0)


@dataclass(frozen=True)
class _Smooth:
    """Interactions of four and more players, with a variance of 1 for every coalition."""

    kernel: Tensor  # (pairs, pairs)
    cross: Tensor  # the covariance with I_ij, without z_iz_j (pairs, couples)
    variance: float  # of I_ij

    @staticmethod
    def of(overlap: Tensor, sizes: Tensor, inside: Tensor, n: int, strength: float) -> _Smooth:
        """From overlaps z·z', sizes, and how many of each couple are in each coalition."""
        slope, base = np.arctanh(strength), n * np.log1p(-(strength**2)) / 2
        kernel = ((base + slope * overlap).exp() + (base - slope * overlap).exp()) / 2
        kernel -= 1 + strength**2 * (overlap**2 - n) / 2
        scale = ((1 + strength) ** n + (1 - strength) ** n) / 2 - 1 - strength**2 * n * (n - 1) / 2
        scale = max(scale, 1e-300)
        nodes, weights = (torch.tensor(x / 2) for x in np.polynomial.legendre.leggauss(24))
        t = strength * (nodes + 0.5)[:, None]
        there = torch.arange(n - 1)  # of the other players
        plus, minus = torch.log1p(t), torch.log1p(-t)
        logs = there * plus + (n - 2 - there) * minus, there * minus + (n - 2 - there) * plus
        integral = (weights[:, None] * ((logs[0].exp() + logs[1].exp()) / 2 - 1)).sum(0)
        cross = 4 * strength**2 * integral[(sizes[:, None] - inside).clamp(0, n - 2)]
        variance = sum(16 / (k - 1) ** 2 * comb(n - 2, k - 2) * strength**k for k in range(4, n + 1, 2))
        return _Smooth(kernel / scale, cross / scale, variance / scale)


def _weights(n: int) -> Tensor:
    """The weight of a coalition in the index of a couple, by how many of it are inside and the coalition's size."""
    p = [1 / ((n - 1) * comb(n - 2, t)) for t in range(n - 1)]
    result = torch.zeros(3, n + 1, dtype=torch.float64)
    for t, weight in enumerate(p):
        result[0, t], result[1, t + 1], result[2, t + 2] = weight, -weight, weight
    return result


def _white_variance(n: int) -> float:
    """The sum of the squares of all these weights."""
    return sum(4 / ((n - 1) ** 2 * comb(n - 2, t)) for t in range(n - 1))
