"""Random coalitions, and the Gaussians that they make of the values where players meet.

A unit is offset + Σ_p member_p c_p (`dasp.propagation.values.Contributions`). With a = Σ_p c_p:

| coalition of                | mean             | covariance of units j, l                                    |
|-----------------------------|------------------|-------------------------------------------------------------|
| probabilities q_p           | off + Σ_p q_p c_p | Σ_p q_p(1−q_p) c_pj c_pl                                    |
| exactly k of M, uniformly   | off + (k/M) a    | k(M−k)/(M(M−1)) [Σ_p c_pj c_pl − a_j a_l/M]                 |

Both are exact, and zero where the coalition is certain (q = 0, 1; k = 0, M).

**Factors.** One column per player, scaled by the square root of its weight above, gives every covariance. A `sketch`
with fewer columns adds players into them with random signs: column r holds the sign of its players and 0 for
the others, and the covariance is right on average over the signs. Whatever the sketch, the variance of each unit is
kept exact: what the columns lack becomes independent variance, what they have too much is scaled away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dasp.propagation.gaussian import Gaussian, nonnegative, root
from dasp.propagation.values import Contributions

__all__ = ["Rank", "SizedCoalitions", "bernoulli", "column_count", "sketch", "spaced_sizes"]

Rank = int | Literal["full"]


def column_count(rank: Rank, players: int) -> int:
    """Return the number of factor columns for a `rank` argument: at most one per player."""
    if isinstance(rank, str) and rank == "full":
        return players
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
        raise ValueError(f'rank must be a number of columns or "full", not {rank!r}')
    return min(rank, players)


def sketch(columns: int, players: int, coordinates: Tensor | None = None, seed: int = 0) -> Tensor:
    """Return signs (columns, players) with each player in one column; the identity if everyone has a column.

    Players are spread evenly at random, or by `coordinates` (players, D) on a grid, where they are *coloured*: player
    (y, x) of an s×s colouring is in column (y mod s)·s + x mod s, as far as possible from the others in it. A unit that
    sees at most s×s pixels, like the first of a convolution, then sees no two of one column. Uses the largest sᴰ
    columns that `columns` has room for.
    """
    if columns >= players:
        return torch.eye(players)
    generator = torch.Generator().manual_seed(seed)
    if coordinates is None:
        column = torch.randperm(players, generator=generator) % columns
    else:
        dims = coordinates.shape[1]
        side = int(columns ** (1 / dims) + 1e-9)
        columns = side**dims
        column = (coordinates.cpu() % side * side ** torch.arange(dims - 1, -1, -1)).sum(1)
    sign = torch.randint(0, 2, (players,), generator=generator) * 2.0 - 1
    return torch.zeros(columns, players).scatter_(0, column[None], sign[None])


def bernoulli(contributions: Contributions, probabilities: Tensor, signs: Tensor | None = None) -> Gaussian:
    """Return the units if player p of row b joins with probabilities[b, p], independently; differentiable in them.

    `signs` are the sketch of each row, (columns, rows or 1, N), or None for none.
    """
    chance = contributions.entries(probabilities)
    mean = contributions.expected(chance)
    weights = chance * (1 - chance)
    if signs is None:
        return Gaussian(mean, contributions.squares(weights))
    columns = contributions.columns(contributions.entries(signs.expand(-1, *probabilities.shape)) * root(weights))
    if len(signs) == contributions.count:
        return Gaussian(mean, torch.zeros_like(mean), columns)
    return _with_variance(mean, columns, contributions.squares(weights))


def _with_variance(mean: Tensor, columns: Tensor, variance: Tensor, dim: int = 0) -> Gaussian:
    """Return a Gaussian whose total variance is `variance` and whose shared noise is as near `columns` as that allows;
    the columns are along dimension `dim`."""
    shared = columns.square().sum(dim)
    excessive = shared > variance
    shrink = torch.where(excessive, variance / torch.where(excessive, shared, 1), 1)
    scale = root(shrink)
    return Gaussian(mean, nonnegative(variance - shared), columns * scale.unsqueeze(dim))


@dataclass(frozen=True)
class SizedCoalitions:
    """Coalitions of k of the M = N − 1 players other than i, for any i and k, with and without i; or of all N.

    What each player contributes is computed once; taking player i out is a subtraction. In terms of the centred
    contributions d_p = c_p − a/N, where nothing cancels if players contribute alike, the others have

        mean of c:  a/N − d_i/M,      Σ_{p≠i} (c_p − mean)² = Σ_p d_p² − d_i² N/M
    """

    offset: Tensor
    centre: Tensor  # a/N
    centred: Tensor  # d: (N, *units)
    squares: Tensor  # Σ_p d_p²
    sketches: Tensor | None  # (sizes or 1, r, N)
    sketched: Tensor | None  # (sizes or 1, r, *units): Σ_p sketch_rp d_p

    @staticmethod
    def of(contributions: Contributions, rows: int, sketches: Tensor | None = None) -> SizedCoalitions:
        """Prepare them for `rows` rows; `sketches` has one sketch for all sizes or one for each."""
        players = contributions.count
        difference = contributions.value.difference
        offset = contributions.expected(torch.zeros_like(difference))
        alone = torch.eye(players, dtype=difference.dtype, device=difference.device)
        each = contributions.columns(contributions.entries(alone[:, None].expand(-1, rows, -1)))
        centre = each.mean(0)
        centred = each - centre
        sketched = None
        if sketches is not None:
            full = sketches.shape[1] == players
            sketches = sketches.to(centred.dtype)
            sketched = centred[None] if full else torch.tensordot(sketches, centred, dims=1)
        return SizedCoalitions(offset, centre, centred, centred.square().sum(0), sketches, sketched)

    def gaussian(self, players: Tensor, sizes: Tensor, index: Tensor, joined: Tensor) -> Gaussian:
        """Return one distribution per entry of the arguments, along a new first dimension.

        The arguments are the player, the size k, the index of that size among the sketches, and 1 if the player itself
        joins the coalition, else 0.
        """
        count = len(self.centred)
        others = max(count - 1, 1)  # a single player has none, and all that is divided by them is 0
        sizes = sizes.to(self.offset.dtype)

        def spread(x: Tensor) -> Tensor:
            return x.to(self.offset.dtype).view(-1, *[1] * self.offset.dim())

        own = self.centred[players]
        typical = self.centre - own / others
        mean = self.offset + spread(sizes) * typical + spread(joined) * (self.centre + own)
        scale = sizes * (others - sizes) / (others * max(others - 1, 1))
        variance = spread(scale) * (self.squares - own.square() * (count / others)).clamp(min=0)
        if self.sketches is None or self.sketched is None:
            return Gaussian(mean, variance)
        sketch = self.sketches[index if len(self.sketches) > 1 else 0]
        sketch = sketch.expand(len(players), *sketch.shape[-2:])
        theirs = torch.gather(sketch, 2, players[:, None, None].expand(-1, sketch.shape[1], 1)).squeeze(2)
        # Column r: Σ_{p≠i} s_rp (c_p − mean of the others) = sketched_r + (Σ_p s_rp) d_i/M − s_ri d_i N/M
        taken = (sketch.sum(2) - theirs * count) / others
        columns = self.sketched[index if len(self.sketched) > 1 else 0]
        columns = (columns + _outer(taken, own)) * spread(scale.sqrt()).unsqueeze(1)
        if sketch.shape[1] == count:
            return Gaussian(mean, torch.zeros_like(mean), columns)
        return _with_variance(mean, columns, variance, dim=1)

    def of_all(self, sizes: Tensor) -> Gaussian:
        """Return the distributions of coalitions of exactly k of all M = N players, one per size k along a new first
        dimension; the sketches are one per size, or one for all. As Σ_p c_p² − a²/N = Σ_p d_p², the table above says

            mean = off + k a/N,      covariance = k(N−k)/(N(N−1)) Σ_p d_pj d_pl
        """
        count = len(self.centred)
        sizes = sizes.to(self.offset).view(-1, *[1] * self.offset.dim())
        scale = sizes * (count - sizes) / (count * max(count - 1, 1))
        mean, variance = self.offset + sizes * self.centre, scale * self.squares
        if self.sketches is None or self.sketched is None:
            return Gaussian(mean, variance)
        columns = self.sketched * scale.sqrt().unsqueeze(1)
        if self.sketches.shape[1] == count:
            return Gaussian(mean, torch.zeros_like(mean), columns)
        return _with_variance(mean, columns, variance, dim=1)


def _outer(weights: Tensor, units: Tensor) -> Tensor:
    """weights (m, r) times units (m, *u), as (m, r, *u)."""
    return weights.view(*weights.shape, *[1] * (units.dim() - 1)) * units.unsqueeze(1)


def spaced_sizes(players: int, sizes: int | None) -> list[float]:
    """Return K coalition sizes for the other players, equally spaced: the centres of K equal parts of 0 … N−1.

    These are all sizes if `sizes` is None. Each stands for as many sizes, so their plain average is the midpoint rule;
    they need not be integers, as the moments are defined in between.

    >>> spaced_sizes(4, None)
    [0.0, 1.0, 2.0, 3.0]
    >>> spaced_sizes(4, 2)
    [0.5, 2.5]
    """
    number = players if sizes is None else sizes
    return [(j + 0.5) * players / number - 0.5 for j in range(number)]
