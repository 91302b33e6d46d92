"""Interactions of two players, from the same evaluations as their values, with standard deviations.

The half sums (v(S) + v(Sᶜ))/2 of pairs of coalitions have the even orders of a game, which Shapley values know nothing
of; its Shapley interaction index is of these alone. With v = Σ_A c_A Π_{j∈A} z_j and z = ±1 (see `process`),

    I_ij = Σ_{A∋i,j, |A| even} 4c_A/(|A|−1),        1/(|A|−1) = ∫₀¹ t^{|A|−2} dt

so it is a linear functional of the game, and has a posterior under the same Gaussian process: c_A ~ N(0, λ^|A|), with a
further variance ρ of the interactions of two (the same for all, or larger for players with larger contributions), and
a white part of variance ω. Its covariance with the half sum of z is

    4z_iz_j/(N(N−1)/2) ρ  +  4λ²z_iz_j ∫₀¹ [½Π_{k≠i,j}(1 + tλz_k) + ½Π_{k≠i,j}(1 − tλz_k) − 1] dt  +  2ω w_ij(S)

where w_ij(S) is the weight of a coalition in the index: p_t = 1/((N−1)C(N−2, t)) with t = |S| − 2 if both players are
in S, p_t with t = |S| if neither is, −p_t with t = |S| − 1 if one is. The mean of all half sums, and a jump between the
half sum of nobody and everybody and all others, are left open. λ, ρ and ω are averaged over by their evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from torch import Tensor

from dasp.attribution.bayesian.design import MOST_CHOSEN, Pairs, pair_count
from dasp.games.evaluator import Evaluated, EvaluatedRow

__all__ = ["InteractionPosterior", "InteractionRegression", "interactions_of", "learned", "mixed"]

_SHAPES = [(order, rough, two) for order in (1.0, 3.0) for rough in (0.02, 0.2) for two in (1.0, 10.0)] + [
    (1.0, 1.0, two) for two in (0.1, 1.0, 10.0)
]
_OPEN = 1e4  # the variance of what is left open, relative to that of all else
_JITTER = 1e-9
_WIDER = 1.2  # variances, for what none of the models knows; chosen on half of the public games, as what follows
_EXPONENTS = (0.5, 1.0)  # of relevances
_RELEVANCES = (0.05, 4.0)  # the least and the largest, in parts of the mean
_RIDGE = 0.1
_MOST_RELEVANT = 511  # pairs: more of them take long, for every column by itself


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

    def __init__(
        self,
        pairs: Pairs,
        *,
        ends: bool = True,
        shapes: list[tuple[float, float, float]] = _SHAPES,
        relevances: Tensor | None = None,
    ) -> None:
        n = pairs.players
        everybody = torch.ones(int(ends), n, dtype=torch.bool)
        self.players, members = n, torch.cat([pairs.members, everybody])
        self._open = 1 + int(ends)  # numbers that are left open
        sign, sizes = 2 * members.double() - 1, members.sum(1)
        self.first, self.second = torch.triu_indices(n, n, 1)
        product = sign[:, self.first] * sign[:, self.second]
        inside = members[:, self.first].long() + members[:, self.second].long()
        overlap, couples = sign @ sign.T, n * (n - 1) / 2
        two_kernel, two_cross = (overlap**2 - n) / (2 * couples), torch.full((len(self.first),), 4 / couples).double()
        if relevances is not None:
            own = relevances[self.first] * relevances[self.second]
            scale = own.sum()
            two_kernel = (((sign * relevances) @ sign.T) ** 2 - relevances.square().sum()) / (2 * scale)
            two_cross = 4 * own / scale
        white = _weights(n)[inside, sizes[:, None]]
        end = (sizes == n).double()
        open_kernel = _OPEN * (1 + torch.outer(end, end))
        open_cross, open_variance = _OPEN * 2 / (n - 1) * end[:, None], _OPEN * (2 / (n - 1)) ** 2 * ends
        self._parts = []
        for order, rough, two in shapes:
            smooth = _Smooth.of(overlap, sizes, inside, n, min(0.9, order / n))
            covariance = two * two_kernel + (1 - rough) * smooth.kernel + open_kernel
            covariance.diagonal().add_(rough + _JITTER)
            cross = product * (two * two_cross + (1 - rough) * smooth.cross) + 2 * rough * white + open_cross
            variance = two * 4 * two_cross + (1 - rough) * smooth.variance + 2 * rough * _white_variance(n)
            root = torch.linalg.cholesky(covariance)
            solved = torch.linalg.solve_triangular(root, cross, upper=False)
            left = (variance + open_variance - solved.square().sum(0)).clamp(min=0)
            log_determinant = 2 * float(root.diagonal().log().sum())
            self._parts.append((root, solved, left, log_determinant))

    @property
    def numbers(self) -> int:
        """The number of numbers of eight bytes that it keeps."""
        return sum(root.numel() + solved.numel() for root, solved, _, _ in self._parts)

    def posterior(self, sums: Tensor, *others: InteractionRegression) -> InteractionPosterior:
        """Return the posterior of the interactions, given half sums (pairs, columns): those of the design, and with
        `ends` one more, (v(P) + v(∅))/2. Other regressions on the same pairs are averaged with this one, by their
        evidence."""
        size = (sums - sums.mean(0)).abs().amax(0)
        size = torch.where(size > 0, size, 1)
        values = (sums - sums.mean(0)) / size
        known = [each for regression in (self, *others) for each in regression._models(values)]
        mean, variance = mixed(*(torch.stack(part) for part in zip(*known, strict=True)))
        rms = mean.square().mean(1, keepdim=True).sqrt()
        share = 1 + (mean / torch.where(rms > 0, rms, 1)).square()  # large ones are pulled to zero by more than others
        variance = variance * share * (_WIDER / share.mean(1, keepdim=True))
        return InteractionPosterior(self._square(mean * size[:, None]), self._square(variance.sqrt() * size[:, None]))

    def _models(self, values: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The means and variances (columns, couples) of each model, and the logarithms of its evidence (columns,)."""
        freedom = len(values) - self._open
        for root, solved, left, log_determinant in self._parts:
            white = torch.linalg.solve_triangular(root, values, upper=False)
            squares = white.square().sum(0).clamp(min=torch.finfo(white.dtype).tiny)
            variance = left * (squares / max(1, freedom - 2))[:, None]
            yield (solved.T @ white).T, variance, -(log_determinant + freedom * squares.log()) / 2

    def _square(self, values: Tensor) -> Tensor:
        result = torch.zeros(len(values), self.players, self.players, dtype=values.dtype)
        result[:, self.first, self.second] = result[:, self.second, self.first] = values
        return result


Learned = Callable[[Evaluated, Tensor, Tensor], tuple[Tensor, Tensor]]
"""A function of a game, the places of some of its pairs and some of its rows, which gives means and standard deviations
(rows and outputs, players) or (rows and outputs, players, players)."""


def learned(rows: Sequence[EvaluatedRow], function: Learned, dimensions: int) -> tuple[Tensor, Tensor]:
    """Return what a function learns of each row from what was evaluated, and its standard deviations, (rows, *selected,
    players) or with players twice. Idle players have 0."""
    known = rows[0].game
    selected, players = known.ends.shape[2:], (known.everybody,) * dimensions
    result = torch.zeros(2, len(rows), *selected, *players, dtype=torch.float64)
    alike: dict[tuple[int, bytes], list[tuple[int, EvaluatedRow]]] = defaultdict(list)  # with the same pairs of a game
    for place, row in enumerate(rows):
        alike[id(row.game), _there(row).numpy().tobytes()].append((place, row))
    for several in alike.values():
        game, places = several[0][1].game, [place for place, _ in several]
        own = torch.tensor([row.row for _, row in several])
        if len(game.players) > 1:
            found = function(game, _there(several[0][1]), own)
        else:  # who is alone has all there is, and nobody to interact with
            total = 2 * game.ends[0][own].flatten() * (dimensions == 1)
            mean = total.view(-1, *[1] * dimensions).expand(-1, *[len(game.players)] * dimensions)
            found = mean, torch.zeros_like(mean)
        busy = torch.meshgrid(*[game.players] * dimensions, indexing="ij")
        for part, values in zip(result, found, strict=True):
            spread = torch.zeros(len(values), *players, dtype=values.dtype)
            spread[(slice(None), *busy)] = values  # type: ignore[index]
            part[places] = spread.unflatten(0, (len(places), *selected))
    playing = torch.stack([row.busy for row in rows]).view(len(rows), *[1] * len(selected), known.everybody)
    result *= playing if dimensions == 1 else playing[..., None] & playing[..., None, :]
    return result[0], result[1]


def interactions_of(rows: Sequence[EvaluatedRow]) -> tuple[Tensor, Tensor]:
    """Return the interactions of all pairs of players of each row and their standard deviations, (rows, *selected,
    players, players), from what was evaluated."""

    def both(game: Evaluated, there: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        known = _posterior(game, there, own)
        return known.mean, known.deviation

    return learned(rows, both, 2)


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
        pairs, sums = pairs.first(MOST_CHOSEN), torch.cat([sums[:MOST_CHOSEN], sums[-1:]])
    alike = InteractionRegression(pairs)
    if len(pairs) > _MOST_RELEVANT:
        return alike.posterior(sums)
    differences = game.halves[0][there][:, rows].flatten(1)
    columns = [
        alike.posterior(column[:, None], *_by_relevances(pairs, y))
        for column, y in zip(sums.unbind(1), differences.unbind(1), strict=True)
    ]
    return InteractionPosterior(
        *(torch.cat(part) for part in zip(*((c.mean, c.deviation) for c in columns), strict=True))
    )


def _by_relevances(pairs: Pairs, differences: Tensor) -> list[InteractionRegression]:
    """Regressions in which players with larger contributions are thought to interact more: half differences (pairs,)
    are other numbers than the half sums that are explained."""
    sign = 2 * pairs.members.double() - 1
    size = differences.abs().max().clamp(min=1e-300)
    ridge = _RIDGE * len(sign) * torch.eye(pairs.players, dtype=sign.dtype)
    slopes = torch.linalg.solve(sign.T @ sign + ridge, sign.T @ (differences / size)).abs()
    if not float(slopes.sum()) > 0:
        return []
    relevances = [(slopes / slopes.mean()) ** exponent for exponent in _EXPONENTS]
    relevances = [(each / each.mean()).clamp(*_RELEVANCES) for each in relevances]
    return [InteractionRegression(pairs, relevances=each / each.mean()) for each in relevances]


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
        scale = sum(comb(n, k) * strength**k for k in range(4, n + 1, 2))
        if scale == 0:  # of two or three players
            return _Smooth(torch.zeros_like(kernel), torch.zeros(inside.shape, dtype=kernel.dtype), 0.0)
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
