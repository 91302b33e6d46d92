"""What the values of some pairs of coalitions say, reduced to the part of the regression that rows share.

With covariance V = ν + b·interactions of everything but β (see `posterior`), m pairs tell about β what min(m, N)
pseudo-observations with independent noise of variance 1 do: values = design·β + noise. For m ≤ N they are the pairs
themselves, whitened; for m > N they come from zᵀV⁻¹z and zᵀV⁻¹y. V⁻¹ is taken in the smaller of pairs and interactions.

All but the values depends on the pairs alone, and is most of the work. A `Regression` does it once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from dasp.attribution.directions import Covariance, Directions
from dasp.attribution.interactions import feature_count, features, kernel, size_means
from dasp.attribution.pairs import Pairs, log_counts

__all__ = ["Design", "Regression", "Regressions", "Summary"]

_STRENGTHS = (0.0, 0.3, 1.0, 3.0, 10.0)  # b: variance of interactions relative to the white part
_PAIRS_AT_ONCE = 4096
_SINGULAR = 1e-12
_MOST_KEPT = 2**25  # numbers: 256 MB


@dataclass(frozen=True)
class Design:
    """The pseudo-observations for one strength of interactions, whatever their values."""

    matrix: Tensor  # A (k, players)
    white: Tensor  # covariance of the pseudo-observations with the white part of R (k, players)
    unknown: Tensor  # variance of the white part of R that the data do not reveal, if β was known (players,)
    log_determinant: float  # of V, on the complement of the size means
    freedom: int  # degrees of freedom of y without the size means

    @cached_property
    def flat(self) -> Directions:
        """What it tells of players who are all alike before."""
        return self.directions(Covariance.flat(self.matrix.shape[1]))

    def directions(self, covariance: Covariance) -> Directions:
        """What it tells of players whose values are distributed like that before."""
        return Directions.of(self.matrix, self.white, covariance)


@dataclass(frozen=True)
class Summary:
    """What the values of some columns say."""

    design: Design
    values: Tensor  # (k, columns)
    rest: Tensor  # the squares of y that no β can explain (columns,)
    shift: Tensor  # the white part of R that these imply (columns, players)

    def of(self, columns: Tensor | slice) -> Summary:
        """For some of the columns."""
        return replace(self, values=self.values[:, columns], rest=self.rest[columns], shift=self.shift[columns])


class Regression(ABC):
    """The regression on a design, prepared for any values.

    >>> regression = Regression.on(Pairs.draw(players=6, number=12, seed=0))
    >>> [summary.values.shape for summary in regression.summaries(torch.ones(12, 2).double())][0]
    torch.Size([6, 2])
    """

    def __init__(self, pairs: Pairs) -> None:
        n = pairs.players
        noise = pairs.sizes * (n - pairs.sizes)
        self.pairs = pairs
        self.unit = float((1 / noise).mean())  # the scale of ν: means nothing, but keeps numbers near 1
        self.noise = noise * self.unit
        # Σ w² z_i² ν over all pairs of a size is 4ν/(s(N−s)L), a quarter of it at s = N/2
        fractions = torch.full((n // 2,), 4.0, dtype=torch.float64)
        if n % 2 == 0:
            fractions[-1] = 1
        self.variance = self.unit * float((fractions * (-log_counts(n)).exp()).sum())

    @staticmethod
    def on(pairs: Pairs) -> Regression:
        """In the form that suits the number of pairs."""
        if len(pairs) <= pairs.players:
            return _FewPairs(pairs)
        return _SomePairs(pairs) if len(pairs) <= feature_count(pairs.players) else _ManyPairs(pairs)

    @abstractmethod
    def summaries(self, y: Tensor) -> list[Summary]:
        """From the values (pairs, columns), one summary for each strength of the interactions."""

    @property
    def numbers(self) -> int:
        """How many numbers it keeps, about."""
        players = self.pairs.players
        return len(_STRENGTHS) * (min(len(self.pairs), feature_count(players)) ** 2 + 6 * players**2)

    def _regressors(self, part: slice = slice(None)) -> Tensor:
        """Size means, z, and the covariance of y with the white part of R, side by side."""
        z = self.pairs.centred(part)
        return torch.cat([size_means(self.pairs)[part], z, (self.pairs.weights * self.noise)[part, None] * z], 1)

    def _roots(self) -> list[Tensor]:
        """V = root rootᵀ for each strength, (pairs, pairs)."""
        interactions = kernel(self.pairs) * self.unit
        return [torch.linalg.cholesky(torch.diag(self.noise) + strength * interactions) for strength in _STRENGTHS]


class Regressions:
    """Designs and regressions on them that were used last, as many as fit."""

    def __init__(self) -> None:
        self._pairs: tuple[tuple[int, int, int], Pairs] | None = None
        self._kept: OrderedDict[tuple[int, int, int], Regression] = OrderedDict()

    def pairs(self, players: int, number: int, seed: int) -> Pairs:
        """The first pairs of the design for a seed."""
        key = (players, number, seed)
        if self._pairs is None or self._pairs[0] != key:
            self._pairs = key, Pairs.draw(*key)
        return self._pairs[1]

    def on(self, pairs: Pairs, seed: int) -> Regression:
        """On pairs of the design for a seed."""
        key = (pairs.players, len(pairs), seed)
        regression = self._kept.pop(key, None) or Regression.on(pairs)
        self._kept[key] = regression
        while sum(kept.numbers for kept in self._kept.values()) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return regression


class _FewPairs(Regression):
    """No more than players: the whitened pairs themselves, without the size means."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__(pairs)
        regressors = self._regressors()
        means = regressors.shape[1] - 2 * pairs.players
        self._parts = []
        for root in self._roots():
            x = _solve(root, regressors)
            basis, triangle = torch.linalg.qr(x[:, :means])
            matrix, white = (x - basis @ (basis.T @ x))[:, means:].tensor_split(2, 1)
            unknown = self.variance - white.square().sum(0)
            log_determinant = _log_determinant(root) + _log_determinant(triangle)
            self._parts.append((root, basis, Design(matrix, white, unknown, log_determinant, len(pairs) - means)))

    def summaries(self, y: Tensor) -> list[Summary]:
        nothing = torch.zeros(y.shape[1], dtype=y.dtype)
        whitened = [(design, basis, _solve(root, y)) for root, basis, design in self._parts]
        return [Summary(design, x - basis @ (basis.T @ x), nothing, nothing[:, None]) for design, basis, x in whitened]


class _SomePairs(Regression):
    """More than players, fewer than interactions: products in the metric V⁻¹ from a root of V."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__(pairs)
        self._x = self._regressors()
        self._parts = []
        for root in self._roots():
            x = _solve(root, self._x)
            self._parts.append((root, _Reduction.of(x.T @ x, _log_determinant(root), self.variance, pairs)))

    def summaries(self, y: Tensor) -> list[Summary]:
        whitened = [(reduction, root, _solve(root, y)) for root, reduction in self._parts]
        return [
            reduction.summary(self._x.T @ _solve(root.T, values, upper=True), values.square().sum(0))
            for reduction, root, values in whitened
        ]


class _ManyPairs(Regression):
    """More than interactions F: V⁻¹ = ν⁻¹ − ν⁻¹F(1/b + Fᵀν⁻¹F)⁻¹Fᵀν⁻¹ (Woodbury)."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__(pairs)
        products: Tensor | float = 0.0
        for part in self._slices():
            x = torch.cat([self._interactions(part), self._regressors(part)], 1)
            products = products + x.T @ (x / self.noise[part, None])
        assert isinstance(products, Tensor)
        count = feature_count(pairs.players)
        ff, self._fx = products[:count].tensor_split([count], 1)
        xx = products[count:, count:]
        log_noise = float(self.noise.log().sum())
        self._parts = []
        for strength in _STRENGTHS:
            root = torch.linalg.cholesky(torch.eye(count, dtype=ff.dtype) + strength * ff)
            x = _solve(root, strength**0.5 * self._fx)
            log_determinant = log_noise + _log_determinant(root)
            reduction = _Reduction.of(xx - x.T @ x, log_determinant, self.variance, pairs)
            self._parts.append((strength, root, reduction))

    def _slices(self) -> list[slice]:
        return [slice(start, start + _PAIRS_AT_ONCE) for start in range(0, len(self.pairs), _PAIRS_AT_ONCE)]

    def _interactions(self, part: slice) -> Tensor:
        return features(self.pairs, part).mul_(self.unit**0.5)

    def summaries(self, y: Tensor) -> list[Summary]:
        weighted = y / self.noise[:, None]
        fy, xy = (
            torch.stack([regressors(part).T @ weighted[part] for part in self._slices()]).sum(0)
            for regressors in (self._interactions, self._regressors)
        )
        yy = (y * weighted).sum(0)
        result = []
        for strength, root, reduction in self._parts:
            z = _solve(root, strength**0.5 * fy)
            less = strength**0.5 * self._fx.T @ _solve(root.T, z, upper=True)
            result.append(reduction.summary(xy - less, yy - z.square().sum(0)))
        return result


@dataclass(frozen=True)
class _Reduction:
    """From products in the metric V⁻¹ of regressors x with y to pseudo-observations, one for each direction of β; the
    size means, which come first in x, are projected out."""

    design: Design
    root: Tensor  # of the products of the size means
    cross: Tensor  # their products with the other regressors, whitened
    whiten: Tensor

    @staticmethod
    def of(xx: Tensor, log_determinant: float, variance: float, pairs: Pairs) -> _Reduction:
        """From the products of the regressors with themselves."""
        n = pairs.players
        means = len(xx) - 2 * n
        root = torch.linalg.cholesky(xx[:means, :means])
        cross = _solve(root, xx[:means, means:])
        xx = xx[means:, means:] - cross.T @ cross
        precision, directions = torch.linalg.eigh(xx[:n, :n])
        seen = precision > _SINGULAR * precision[-1]
        whiten = (directions[:, seen] / precision[seen].sqrt()).T
        matrix, white = (whiten @ xx[:n]).tensor_split(2, 1)
        unknown = variance - xx[n:, n:].diagonal()
        design = Design(matrix, white, unknown, log_determinant + _log_determinant(root), len(pairs) - means)
        return _Reduction(design, root, cross, whiten)

    def summary(self, xy: Tensor, yy: Tensor) -> Summary:
        """From the products with y, and of y with itself."""
        means, n = len(self.root), self.cross.shape[1] // 2
        of_means = _solve(self.root, xy[:means])
        xy = xy[means:] - self.cross.T @ of_means
        values = self.whiten @ xy[:n]
        rest = (yy - of_means.square().sum(0) - values.square().sum(0)).clamp(min=0)
        return Summary(self.design, values, rest, (xy[n:] - self.design.white.T @ values).T)


def _solve(root: Tensor, x: Tensor, *, upper: bool = False) -> Tensor:
    return torch.linalg.solve_triangular(root, x, upper=upper)


def _log_determinant(root: Tensor) -> float:
    """Of root rootᵀ."""
    return 2 * float(root.diagonal().abs().log().sum())
