"""Estimates that grow, stage by stage, until every row is as certain as was asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dasp.games.game import Game
from dasp.games.request import Question, yardstick
from dasp.games.target import Selection

__all__ = ["answered", "check_tolerance", "refined", "stages"]


def check_tolerance(tolerance: float | None) -> None:
    """Refuse what cannot be reached."""
    if tolerance is not None and not tolerance > 0:
        raise ValueError(f"tolerance must be positive, not {tolerance}")


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
    numbers: list[int], tolerance: float | None, total: Tensor, estimate: Callable[[int, Tensor], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor, int]:
    """Means and standard deviations (players, rows, *selected), and how many rows missed the tolerance.

    `estimate` gives both for a number of samples and those rows that are left. Rows leave when their largest standard
    deviation was within the tolerance twice in a row, as once may be luck.
    """
    left = torch.arange(len(total))
    before = torch.zeros(len(total), dtype=torch.bool)
    mean, deviation = estimate(numbers[0], left)
    for number in [*numbers[1:], None]:
        if tolerance is None:
            break
        scale = tolerance * yardstick(total[left], mean[:, left])
        within = (deviation[:, left].amax(0) <= scale).view(len(left), -1).all(1)
        still = ~(within & before[left])
        before[left] = within
        left = left[still]
        if number is None or not len(left):
            break
        mean[:, left], deviation[:, left] = estimate(number, left)
    return mean, deviation, int((~before[left]).sum()) if tolerance is not None else 0


def answered(
    question: Question,
    estimate: Callable[[int, Game, Selection, Tensor, Tensor], tuple[Tensor, Tensor, int]],
    tolerance: float | None,
    most: str,
    *,
    return_std: bool,
) -> Any:
    """The result of `attribute`: `estimate` gives what `refined` does for a game by its place, what is selected of its
    outputs, f(baseline) and f(x). Warns of rows that missed the tolerance with the `most` that was allowed."""
    means, deviations, missed, start = [], [], 0, 0
    for i, (game, select) in enumerate(zip(question.games, question.selections, strict=True)):
        rows = slice(start, start + game.rows)
        empty, full = question.empty[rows].cpu().double(), question.full[rows].cpu().double()
        mean, deviation, short = estimate(i, game, select, empty, full)
        means.append(mean.to(game.dtype).to(game.device))
        deviations.append(deviation.to(game.dtype).to(game.device))
        missed, start = missed + short, rows.stop
    if missed:
        warnings.warn(
            f"{missed} row(s) did not reach the tolerance {tolerance:g} with {most}: allow for more, or see with "
            "return_std what was reached.",
            stacklevel=3,
        )
    result = question.answer(means)
    return (result, question.answer(deviations)) if return_std else result
