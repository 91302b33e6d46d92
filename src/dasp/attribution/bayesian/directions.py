"""The directions in which observations inform about players' values, for one covariance of these beforehand.

With observations A β + noise of variance 1 and β ~ N(·, aT), given Σβ, the covariance 1 + aATAᵀ of the observations is
diagonal in the eigenvectors of ATAᵀ, for every a at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Covariance", "Directions"]


@dataclass(frozen=True)
class Covariance:
    """A candidate for T = √t K √t: how the prior's errors are distributed."""

    scale: Tensor  # t, (columns, players), or (1, players) for all columns
    correlation: Tensor | None = None  # K, (players, players)

    @staticmethod
    def flat(players: int) -> Covariance:
        """Take all players as alike and independent."""
        return Covariance(torch.ones(1, players, dtype=torch.float64))

    def of(self, columns: Tensor | slice) -> Covariance:
        """Select some of the columns."""
        return self if len(self.scale) == 1 else Covariance(self.scale[columns], self.correlation)


@dataclass(frozen=True)
class Directions:
    """Indices: column c (one for all, where T is the same), direction k, player p."""

    values: Tensor  # eigenvalues of ATAᵀ, given Σβ (ck)
    vectors: Tensor | None  # of the observations, in columns (c, observation, k); None if these are the directions
    additive: Tensor  # covariance of each direction with β/a (ckp)
    white: Tensor  # and with the white part of R (ckp)
    before: Tensor  # the diagonal of T, given Σβ (cp)
    share: Tensor  # which part of a change of Σβ each player has (cp)
    total: Tensor  # the variance of Σβ/√a before it was given, 1ᵀT1 (c1)

    @staticmethod
    def orthogonal(matrix: Tensor, white: Tensor) -> Directions:
        """Directions of observations with AAᵀ diagonal and A1 = 0, for players who are all alike before."""
        share = torch.full((1, matrix.shape[1]), 1 / matrix.shape[1], dtype=matrix.dtype)
        values, total = matrix.square().sum(1)[None], 1 / share[:, :1]
        return Directions(values, None, matrix[None], white[None], 1 - share, share, total)

    @staticmethod
    def of(matrix: Tensor, white: Tensor, covariance: Covariance) -> Directions:
        """Directions from A (observations, players) and the covariance of the observations with the white part of R."""
        root = covariance.scale.sqrt()
        smooth, ones = matrix * root[:, None], root
        if covariance.correlation is not None:
            smooth, ones = smooth @ covariance.correlation, ones @ covariance.correlation
        smooth, ones = smooth * root[:, None], ones * root  # AT and T1
        total = ones.sum(1, keepdim=True)
        share = ones / total
        smooth = smooth - smooth.sum(2, keepdim=True) * share[:, None]
        values, vectors = torch.linalg.eigh(smooth @ matrix.T)
        before = covariance.scale - ones * share
        return Directions(values.clamp(min=0), vectors, vectors.mT @ smooth, vectors.mT @ white, before, share, total)

    def along(self, residual: Tensor) -> Tensor:
        """Observations (columns, observations) in these directions."""
        return residual if self.vectors is None else (residual[:, None] @ self.vectors)[:, 0]
