"""What the values of some pairs of coalitions say, reduced to the part of the regression that rows share.

With covariance V = ν + b·interactions of everything but β (see `posterior`), m pairs tell about β what no more than
min(m, N) pseudo-observations with independent noise of variance 1 do: values = design·β + noise. For m ≤ N they are the
pairs themselves, whitened; for m > N they come from zᵀV⁻¹z and zᵀV⁻¹y. V⁻¹ is taken in the smaller of pairs and
interactions.

All but the values depends on the pairs alone, and is most of the work. A `Regression` does it once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Lock

import torch
from torch import Tensor

from dasp.attribution.bayesian.directions import Covariance, Directions
from dasp.attribution.bayesian.noise import feature_count, features, kernel, size_means
from dasp.attribution.bayesian.pairs import Pairs, log_counts
from dasp.attribution.bayesian.structure import SecondOrder, gram

__all__ = ["Design", "ManyPairs", "Regression", "Regressions", "Summary"]

_STRENGTHS = (0.0, 0.3, 1.0, 3.0, 10.0)  # b: variance of interactions relative to the white part
_FEW_STRENGTHS = (0.0, 3.0)  # where pairs are too few to tell more of them apart: coverage and errors are the same
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
    flat: Directions  # what they tell of players who are all alike before

    def directions(self, covariance: Covariance) -> Directions:
        """What they tell of players whose values are distributed like that before."""
        return Directions.of(self.matrix, self.white, covariance)


@dataclass(frozen=True)
class Summary:
    """What the values of some columns say."""

    design: Design
    values: Tensor  # (k, columns)
    rest: Tensor  # the squares of y that no β can explain (columns,)
    shift: Tensor  # the white part of R that these imply (columns, players)

    def of(self, columns: Tensor | slice) -> Summary:
        """Select some of the columns."""
        return replace(self, values=self.values[:, columns], rest=self.rest[columns], shift=self.shift[columns])


class Regression(ABC):
    """The regression on a design, prepared for any values.

    >>> regression = Regression.on(Pairs.draw(players=6, number=12, seed=0))
    >>> regression.summaries(torch.ones(12, 2).double())[0].values.shape  # Σz = 0: one direction less than players
    torch.Size([5, 2])
    """

    strengths: tuple[float, ...] = _STRENGTHS
    second: SecondOrder | None = None  # where there are enough pairs for what is beyond this regression

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
        """Prepare it in the form that suits the number of pairs."""
        if len(pairs) <= pairs.players:
            return _FewPairs(pairs)
        result = _SomePairs(pairs) if len(pairs) <= feature_count(pairs.players) else ManyPairs(pairs)
        result.second = SecondOrder(pairs) if SecondOrder.suits(pairs) else None
        return result

    @abstractmethod
    def summaries(self, y: Tensor) -> list[Summary]:
        """Sum up the values (pairs, columns), once for each strength of the interactions."""

    @property
    def numbers(self) -> int:
        """How many numbers of eight bytes it keeps."""
        shared = len(self.pairs) * (self.pairs.players // 8 + 4)
        return len(self.strengths) * self._numbers_each() + shared + (self.second.numbers if self.second else 0)

    @abstractmethod
    def _numbers_each(self) -> int:
        """Count the numbers that it keeps for each strength."""

    def _regressors(self, part: slice = slice(None)) -> Tensor:
        """Size means, z, and the covariance of y with the white part of R, side by side."""
        z = self.pairs.centred(part)
        return torch.cat([size_means(self.pairs)[part], z, (self.pairs.weights * self.noise)[part, None] * z], 1)

    def _roots(self) -> Iterator[Tensor]:
        """V = root rootᵀ for each strength, (pairs, pairs)."""
        interactions = kernel(self.pairs) * self.unit
        for strength in self.strengths:
            yield torch.linalg.cholesky(torch.diag(self.noise) + strength * interactions)


class Regressions:
    """Regressions that are kept for further calls, as far as there is room; copies of it begin empty."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pairs: tuple[tuple[int, int, int], Pairs] | None = None
        self._kept: dict[tuple[int, int, int], Regression] = {}

    def __reduce__(self) -> tuple[type[Regressions], tuple[()]]:
        return Regressions, ()

    def pairs(self, players: int, number: int, seed: int) -> Pairs:
        """The first pairs of the design for a seed."""
        key, last = (players, number, seed), self._pairs
        if last is None or last[0] != key:
            self._pairs = last = key, Pairs.draw(*key)
        return last[1]

    def on(self, pairs: Pairs, seed: int) -> Regression:
        """Give the regression on pairs of the design for a seed, a kept one if there is one."""
        key = (pairs.players, len(pairs), seed)
        regression = self._kept.get(key)
        if regression is None:
            regression = Regression.on(pairs)
            with self._lock:
                self._keep(key, regression)
        return regression

    def _keep(self, key: tuple[int, int, int], regression: Regression) -> None:
        """If there is no room, those of other games have to go, but not those of this one: stages of growing designs
        come again in the same order, and the newest would always drive out the one that is needed next."""
        room = _MOST_KEPT - regression.numbers
        if sum(kept.numbers for kept in self._kept.values()) > room:
            self._kept = {other: kept for other, kept in self._kept.items() if (other[0], other[2]) == (key[0], key[2])}
        if sum(kept.numbers for kept in self._kept.values()) <= room:
            self._kept = {**self._kept, key: regression}


class _FewPairs(Regression):
    """No more than players: the whitened pairs themselves, without the size means."""

    strengths = _FEW_STRENGTHS

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
            flat = Directions.of(matrix, white, Covariance.flat(pairs.players))
            design = Design(matrix, white, unknown, log_determinant, len(pairs) - means, flat)
            self._parts.append((root, basis, design))

    def _numbers_each(self) -> int:
        return len(self.pairs) * (2 * len(self.pairs) + 4 * self.pairs.players)

    def summaries(self, y: Tensor) -> list[Summary]:
        nothing = torch.zeros(y.shape[1], dtype=y.dtype)
        whitened = [(design, basis, _solve(root, y)) for root, basis, design in self._parts]
        return [Summary(design, x - basis @ (basis.T @ x), nothing, nothing[:, None]) for design, basis, x in whitened]


class _SomePairs(Regression):
    """More than players, no more than interactions: products in the metric V⁻¹ from a root of V."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__(pairs)
        regressors = self._regressors()
        self._parts = []
        for root in self._roots():
            x = _solve(root, regressors)
            self._parts.append((root, x, _Reduction.of(x.T @ x, _log_determinant(root), self.variance, pairs)))

    def _numbers_each(self) -> int:
        players = self.pairs.players
        return len(self.pairs) * (len(self.pairs) + 2 * players) + 3 * players**2

    def summaries(self, y: Tensor) -> list[Summary]:
        whitened = [(reduction, x, _solve(root, y)) for root, x, reduction in self._parts]
        return [reduction.summary(x.T @ values, values.square().sum(0)) for reduction, x, values in whitened]


class ManyPairs(Regression):
    """More than interactions F: V⁻¹ = ν⁻¹ − ν⁻¹F(1/b + Fᵀν⁻¹F)⁻¹Fᵀν⁻¹ (Woodbury)."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__(pairs)
        count = self._interactions(slice(1)).shape[1]
        products: Tensor | float = 0.0
        for part in self._slices():
            x = torch.cat([self._interactions(part), self._regressors(part)], 1) / self.noise[part, None].sqrt()
            products = products + gram(x)
        assert isinstance(products, Tensor)
        ff, self._fx, xx = products[:count, :count], products[:count, count:].clone(), products[count:, count:]
        log_noise = float(self.noise.log().sum())
        self._parts = []
        for strength in self.strengths:
            root = torch.linalg.cholesky(torch.eye(count, dtype=ff.dtype) + strength * ff)
            x = _solve(root, strength**0.5 * self._fx)
            log_determinant = log_noise + _log_determinant(root)
            reduction = _Reduction.of(xx - x.T @ x, log_determinant, self.variance, pairs)
            self._parts.append((strength, root, reduction))

    def _numbers_each(self) -> int:
        return len(self._fx) ** 2 + self._fx.numel() // len(self.strengths) + 3 * self.pairs.players**2

    def _slices(self) -> list[slice]:
        return [slice(start, start + _PAIRS_AT_ONCE) for start in range(0, len(self.pairs), _PAIRS_AT_ONCE)]

    def _interactions(self, part: slice) -> Tensor:
        return features(self.pairs, part).mul_(self.unit**0.5)

    def summaries(self, y: Tensor) -> list[Summary]:
        """Sum up the values, see `Regression`."""
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
    """The way from products in the metric V⁻¹ of regressors x with y to pseudo-observations, one for each direction of
    β; the size means, which come first in x, are projected out."""

    design: Design
    root: Tensor  # of the products of the size means
    cross: Tensor  # their products with the other regressors, whitened
    whiten: Tensor

    @staticmethod
    def of(xx: Tensor, log_determinant: float, variance: float, pairs: Pairs) -> _Reduction:
        """Make it from the products of the regressors with themselves."""
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
        flat = Directions.orthogonal(matrix, white)
        design = Design(matrix, white, unknown, log_determinant + _log_determinant(root), len(pairs) - means, flat)
        return _Reduction(design, root, cross, whiten)

    def summary(self, xy: Tensor, yy: Tensor) -> Summary:
        """Sum up the products with y, and of y with itself."""
        means, n = len(self.root), self.cross.shape[1] // 2
        of_means = _solve(self.root, xy[:means])
        xy = xy[means:] - self.cross.T @ of_means
        values = self.whiten @ xy[:n]
        rest = (yy - of_means.square().sum(0) - values.square().sum(0)).clamp(min=0)
        return Summary(self.design, values, rest, (xy[n:] - self.design.white.T @ values).T)


def _solve(root: Tensor, x: Tensor, *, upper: bool = False) -> Tensor:
    return torch.linalg.solve_triangular(root, x, upper=upper)


def _log_determinant(root: Tensor) -> float:
    """The logarithm of the determinant of root rootᵀ."""
    return 2 * float(root.diagonal().abs().log().sum())
