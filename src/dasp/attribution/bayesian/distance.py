"""How far given numbers are from Shapley values that are known in distribution only."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

__all__ = ["Distance"]

_HALVINGS = 60


@dataclass(frozen=True)
class Distance:
    """The distribution of Q = Σ(numbers − R)²: log-normal for each choice of the hyper-parameters, whose probabilities
    have the given logs. All are (columns, choices)."""

    mean: Tensor
    variance: Tensor
    unknown: Tensor  # the part of the mean that is the variance of R
    logs: Tensor

    @staticmethod
    def of(numbers: Tensor, means: Tensor, variances: Tensor, logs: Tensor, freedom: int) -> Distance:
        """Moments of Q from those of R (columns, choices, players), as if players were independent given σ², which is
        known from so many degrees of freedom."""
        away, variances = (numbers[:, None] - means).square(), variances.clamp(min=0)
        unknown = variances.sum(2)
        spread = 2 * variances.square().sum(2) + 4 * (away * variances).sum(2) + 2 * unknown**2 / max(1, freedom - 4)
        return Distance(away.sum(2) + unknown, spread, unknown, logs)

    @staticmethod
    def cat(parts: list[Distance], dimension: int) -> Distance:
        """Put columns (dimension 0) or choices (1) together."""
        names = [field.name for field in fields(Distance)]
        return Distance(*(torch.cat([getattr(part, name) for part in parts], dimension) for name in names))

    def times(self, size: Tensor) -> Distance:
        """Numbers and values in another unit, column by column."""
        square = size[:, None] ** 2
        return Distance(self.mean * square, self.variance * square**2, self.unknown * square, self.logs)

    def among(self, columns: Tensor) -> Distance:
        """Make it a part of all columns, without weight in the others."""

        def spread(values: Tensor, others: float) -> Tensor:
            result = torch.full((len(columns), values.shape[1]), others, dtype=values.dtype)
            result[columns] = values
            return result

        return Distance(
            spread(self.mean, 0), spread(self.variance, 0), spread(self.unknown, 0), spread(self.logs, -torch.inf)
        )

    def quantile(self, probability: float) -> Tensor:
        """The number that Q is below with a probability, (columns,)."""
        mean = self.mean.clamp(min=torch.finfo(self.mean.dtype).tiny)
        spread = (self.variance.sqrt() / mean).square().log1p().sqrt().clamp(min=1e-6)
        centre = mean.log() - spread**2 / 2
        weights = self.logs.softmax(1)
        low, high = (torch.where(weights > 0, centre + side * 10 * spread, side * -torch.inf) for side in (-1, 1))
        low, high = low.amin(1), high.amax(1)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = (weights * torch.special.ndtr((middle[:, None] - centre) / spread)).sum(1) < probability
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high.exp()

    def scales(self, number: int, generator: torch.Generator) -> Tensor:
        """Draw by how much the variance of R is larger or smaller than its mean over all choices, (columns, number)."""
        weights = self.logs.softmax(1)
        mean = (weights * self.unknown).sum(1, keepdim=True)
        drawn = self.unknown.gather(1, torch.multinomial(weights, number, replacement=True, generator=generator))
        return torch.where(mean > 0, drawn / mean, 0)
