"""Estimates that grow, stage by stage, until every row is as certain as was asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from dasp.attribution.base import Estimate
from dasp.games.idle import Active
from dasp.games.request import yardstick

__all__ = ["Refined", "collected", "refined", "stages", "warn_of_missed"]

Refined = tuple[Tensor, Tensor, int]  # means, standard deviations (players, rows, *selected), rows that missed


def stages(first: int, last: int, growth: float, tolerance: float | None) -> list[int]:
    """Growing numbers of samples up to `last`; only the last if there is no tolerance.

    >>> stages(4, 30, 2, tolerance=0.1)
    [4, 8, 16, 30]
    """
    result = []
    while tolerance is not None and first < last:
        result.append(first)
        first = int(first * growth)
    return [*result, last]


def refined(
    numbers: list[int],
    tolerance: float | None,
    total: Tensor,
    estimate: Callable[[int, Tensor], tuple[Tensor, Tensor]],
    *,
    clearly: float = 0.0,
) -> Refined:
    """Means and standard deviations (players, rows, *selected), and how many rows missed the tolerance.

    `estimate` gives both for a number of samples and those rows that are left. Rows leave when their largest standard
    deviation was within the tolerance twice in a row, as once may be luck, or once within a part of it, `clearly`.
    """
    left = torch.arange(len(total))
    before = torch.zeros(len(total), dtype=torch.bool)
    mean, deviation = estimate(numbers[0], left)
    for number in [*numbers[1:], None]:
        if tolerance is None:
            break
        scale = tolerance * yardstick(total[left], mean[:, left])
        largest = deviation[:, left].amax(0)
        within, done = ((largest <= part * scale).view(len(left), -1).all(1) for part in (1, clearly))
        still = ~(within & (before[left] | done))
        before[left] = within
        left = left[still]
        if number is None or not len(left):
            break
        mean[:, left], deviation[:, left] = estimate(number, left)
    return mean, deviation, int((~before[left]).sum()) if tolerance is not None else 0


def collected(active: Active, parts: Iterable[Refined]) -> Estimate:
    """What was found of each game, for all players, in the dtype and on the device of the inputs."""
    found = list(parts)
    values = active.restored([mean for mean, _, _ in found])
    std = active.restored([deviation for _, deviation, _ in found], deviations=True)
    return Estimate(values, std, sum(missed for _, _, missed in found))


def warn_of_missed(missed: int, tolerance: float | None, most: str) -> None:
    """Say that rows missed the tolerance with the `most` that was allowed."""
    if missed:
        warnings.warn(
            f"{missed} row(s) did not reach the tolerance {tolerance:g} with {most}: allow for more, or see with "
            "return_std what was reached.",
            stacklevel=3,
        )
