"""What the values of some pairs of coalitions say, reduced to the part of the regression that rows share.

With covariance V = ν + b·interactions of everything but β (see `posterior`), m pairs tell about β what min(m, N)
pseudo-observations with independent noise of variance 1 do: values = design·β + noise. For m ≤ N they are the pairs
themselves, whitened; for m > N they come from zᵀV⁻¹z and zᵀV⁻¹y. V⁻¹ is taken in the smaller of pairs and interactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dasp.attribution.interactions import feature_count, features, kernel, size_means
from dasp.attribution.pairs import Pairs, log_counts

__all__ = ["Summary", "summaries"]

_STRENGTHS = (0.0, 0.3, 1.0, 3.0, 10.0)  # b: variance of interactions relative to the white part
_PAIRS_AT_ONCE = 4096
_SINGULAR = 1e-12


@dataclass(frozen=True)
class Summary:
    """What the data say for one strength of interactions."""

    design: Tensor  # A (k, players)
    white: Tensor  # covariance of the pseudo-observations with the white part of R (k, players)
    values: Tensor  # (k, columns)
    rest: Tensor  # the squares of y that no β can explain (columns,)
    shift: Tensor  # the white part of R that these imply (columns, players)
    unknown: Tensor  # variance of the white part of R that the data do not reveal, if β was known (players,)
    log_determinant: float  # of V, on the complement of the size means
    freedom: int  # degrees of freedom of y without the size means

    def of(self, columns: Tensor | slice) -> Summary:
        """For some of the columns."""
        return replace(self, values=self.values[:, columns], rest=self.rest[columns], shift=self.shift[columns])


def summaries(pairs: Pairs, y: Tensor) -> list[Summary]:
    """From the values (pairs, columns) of a design, one summary for each strength of the interactions."""
    n = pairs.players
    noise = pairs.sizes * (n - pairs.sizes)
    unit = float((1 / noise).mean())  # the scale of ν: means nothing, but keeps numbers near 1
    noise *= unit
    # Σ w² z_i² ν over all pairs of a size is 4ν/(s(N−s)L), a quarter of it at s = N/2
    fractions = torch.full((n // 2,), 4.0, dtype=torch.float64)
    if n % 2 == 0:
        fractions[-1] = 1
    variance = unit * float((fractions * (-log_counts(n)).exp()).sum())
    if len(pairs) > feature_count(n):
        return [_reduced(*gram, variance) for gram in _by_features(pairs, y, noise, unit)]
    by_pairs = _by_pairs(pairs, y, noise, unit)
    if len(pairs) > n:
        return [_reduced(*_products(*parts), variance) for parts in by_pairs]
    return [_whole(*parts, variance) for parts in by_pairs]


def _regressors(pairs: Pairs, noise: Tensor, part: slice = slice(None)) -> Tensor:
    """Size means, z, and the covariance of y with the white part of R, side by side."""
    z = pairs.centred(part)
    return torch.cat([size_means(pairs)[part], z, (pairs.weights * noise)[part, None] * z], 1)


def _by_pairs(pairs: Pairs, y: Tensor, noise: Tensor, unit: float) -> Iterator[tuple[Tensor, Tensor, float, int, int]]:
    """Regressors and y whitened by V, for each strength; log det V, and the numbers of pairs and of size means."""
    interactions, regressors = kernel(pairs) * unit, _regressors(pairs, noise)
    for strength in _STRENGTHS:
        root = torch.linalg.cholesky(torch.diag(noise) + strength * interactions)
        x, values = (torch.linalg.solve_triangular(root, part, upper=False) for part in (regressors, y))
        yield x, values, 2 * float(root.diagonal().log().sum()), len(pairs), x.shape[1] - 2 * pairs.players


def _whole(x: Tensor, y: Tensor, log_determinant: float, number: int, means: int, variance: float) -> Summary:
    """The whitened pairs themselves."""
    basis, triangle = torch.linalg.qr(x[:, :means])
    x, y = x - basis @ (basis.T @ x), y - basis @ (basis.T @ y)
    design, white = x[:, means:].tensor_split(2, 1)
    log_determinant += 2 * float(triangle.diagonal().abs().log().sum())
    nothing = torch.zeros(y.shape[1], dtype=y.dtype)
    unknown = variance - white.square().sum(0)
    return Summary(design, white, y, nothing, nothing[:, None], unknown, log_determinant, number - means)


@dataclass(frozen=True)
class _Products:
    """Products in the metric V⁻¹ of regressors x with themselves and with y, and of y with itself."""

    xx: Tensor
    xy: Tensor
    yy: Tensor

    def without(self, number: int) -> tuple[_Products, float]:
        """The first regressors projected out; the log determinant of their part."""
        if not number:
            return self, 0.0
        root = torch.linalg.cholesky(self.xx[:number, :number])
        x, y = (torch.linalg.solve_triangular(root, part, upper=False)
                for part in (self.xx[:number, number:], self.xy[:number]))  # fmt: skip
        rest = _Products(self.xx[number:, number:] - x.T @ x, self.xy[number:] - x.T @ y, self.yy - y.square().sum(0))
        return rest, 2 * float(root.diagonal().log().sum())


def _products(
    x: Tensor, y: Tensor, log_determinant: float, number: int, means: int
) -> tuple[_Products, float, int, int]:
    return _Products(x.T @ x, x.T @ y, y.square().sum(0)), log_determinant, number, means


def _by_features(pairs: Pairs, y: Tensor, noise: Tensor, unit: float) -> Iterator[tuple[_Products, float, int, int]]:
    """V⁻¹ = ν⁻¹ − ν⁻¹F(1/b + Fᵀν⁻¹F)⁻¹Fᵀν⁻¹ (Woodbury), where the interactions F are fewer than the pairs."""
    width = size_means(pairs).shape[1] + 2 * pairs.players
    number = feature_count(pairs.players)
    everything = torch.zeros(number + width, number + width + y.shape[1], dtype=torch.float64)
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        x = torch.cat([features(pairs, part) * unit**0.5, _regressors(pairs, noise, part)], 1)
        whitened = x / noise[part, None]
        everything += torch.cat([x.T @ whitened, whitened.T @ y[part]], 1)
    ff, fx = everything[:number].tensor_split([number], 1)
    xx, xy = everything[number:, number:].tensor_split([width], 1)
    yy = (y.square() / noise[:, None]).sum(0)
    for strength in _STRENGTHS:
        root = torch.linalg.cholesky(torch.eye(number, dtype=ff.dtype) + strength * ff)
        x, z = torch.linalg.solve_triangular(root, strength**0.5 * fx, upper=False).tensor_split([width], 1)
        products = _Products(xx - x.T @ x, xy - x.T @ z, yy - z.square().sum(0))
        log_determinant = float(noise.log().sum() + 2 * root.diagonal().log().sum())
        yield products, log_determinant, len(pairs), width - 2 * pairs.players


def _reduced(products: _Products, log_determinant: float, number: int, means: int, variance: float) -> Summary:
    """Pseudo-observations, one for each direction of β."""
    products, of_means = products.without(means)
    n = len(products.xx) // 2
    precision, directions = torch.linalg.eigh(products.xx[:n, :n])
    seen = precision > _SINGULAR * precision[-1]
    whiten = (directions[:, seen] / precision[seen].sqrt()).T
    design, white = (whiten @ products.xx[:n]).tensor_split(2, 1)
    values = whiten @ products.xy[:n]
    rest = (products.yy - values.square().sum(0)).clamp(min=0)
    shift = (products.xy[n:] - white.T @ values).T
    unknown = variance - products.xx[n:, n:].diagonal()
    return Summary(design, white, values, rest, shift, unknown, log_determinant + of_means, number - means)
