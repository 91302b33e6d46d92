"""Estimates that grow, stage by stage, until every row is as certain as was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from dasp.attribution.base import Estimate
from dasp.games.evaluator import Evaluated
from dasp.games.idle_players import Active

__all__ = ["Clock", "Refined", "background_deviation", "collected", "refined", "stages"]

_NEGLIGIBLE = 0.01  # of the largest value over all outputs of a row
_SLOWER = 1.5  # times what the last stage says: what the next may take
_TICK = 1e-9  # seconds: less than anything takes
_NEXT = 1.25  # times the samples of a stage: with hardly more, there is no other
_WORTHWHILE = 8  # part of the samples that were taken: for fewer, a stage is not begun


@dataclass(frozen=True)
class Refined:
    """The values that were found for the rows of one game, and how certain they are."""

    mean: Tensor  # (players, rows, *selected)
    deviation: Tensor
    missed: Tensor  # True for rows that did not reach the tolerance
    evaluations: Tensor  # of the model for each row, beside each baseline
    evaluated: Evaluated | None = None  # the coalitions and their worth, if they are kept
    background: Tensor | None = None  # standard deviations of the mean for the choice of the baselines, if it is known

    @staticmethod
    def cat(parts: list[Refined]) -> Refined:
        """Join the rows of all parts."""
        return Refined(
            torch.cat([part.mean for part in parts], 1),
            torch.cat([part.deviation for part in parts], 1),
            torch.cat([part.missed for part in parts]),
            torch.cat([part.evaluations for part in parts]),
            parts[0].evaluated if len(parts) == 1 else None,  # as these are too many to be kept
            parts[0].background if len(parts) == 1 else None,
        )


class Clock:
    """The seconds that an estimate may take, from now on. After each stage it says how many samples there is time for,
    by what a sample took in that stage, and the linear algebra after the samples, which grows with the square of their
    number at least."""

    def __init__(self, seconds: float) -> None:
        self.start, self.seconds = time.perf_counter(), seconds
        self.done, self.then = 0, 0.0  # of the last stage
        self.sampled_at: float | None = None

    @property
    def _now(self) -> float:
        return time.perf_counter() - self.start

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.seconds - self._now

    def part(self, rows: int, of: int) -> Clock:
        """Return a clock for some rows of those that are left."""
        return Clock(self.left * rows / of)

    def sampled(self) -> None:
        """Note that the samples of a stage are taken: what is left of it is linear algebra."""
        self.sampled_at = self._now

    def within(self, done: int, wanted: int) -> int:
        """Return the number of samples to go on to after `done` of them: `wanted` at most, and `done` for none."""
        now = self._now
        taken = now if self.sampled_at is None else self.sampled_at
        each, algebra = max(taken - self.then, _TICK) / max(1, done - self.done), now - taken
        slower = 1 if self.done == 0 else _SLOWER  # much of the first stage comes once
        self.done, self.then, self.sampled_at = done, now, None
        # The largest n of slower·(n·each + algebra·(1 + n/done)²) ≤ left.
        square, linear = algebra / done**2, each + 2 * algebra / done
        rest = (self.seconds - now) / slower - algebra
        more = 0
        if rest > 0:
            more = int(2 * rest / (linear + (linear**2 + 4 * square * rest) ** 0.5))
        return min(wanted, done + more) if more * _WORTHWHILE >= done else done


def stages(first: int, last: int, growth: float, tolerance: float | None, clock: Clock | None = None) -> list[int]:
    """Return growing numbers of samples up to `last`; only the last if there is neither a tolerance nor a clock.

    >>> stages(4, 30, 2, tolerance=0.1)
    [4, 8, 16, 30]
    """
    result = []
    while (tolerance is not None or clock is not None) and first * _NEXT < last:
        result.append(first)
        first = int(first * growth)
    return [*result, last]


def refined(
    numbers: list[int],
    tolerance: float | None,
    rows: int,
    estimate: Callable[[int, Tensor], tuple[Tensor, Tensor]],
    cost: Callable[[Tensor], Tensor],
    *,
    clearly: float = 0.0,
    clock: Clock | None = None,
    fewest: int = 0,
) -> Refined:
    """Return means and standard deviations, which rows missed the tolerance, and what they cost.

    `estimate` gives the first two for a number of samples and those of the `rows` that are left, `cost` the evaluations
    that numbers of samples take. Rows leave when their largest standard deviation was within the tolerance, as a part
    of their largest value, twice in a row, as once may be luck, or once within a part of it, `clearly`; with fewer
    than `fewest` samples, nobody leaves for that. All rows leave when the `clock` says so.
    """
    left = torch.arange(rows)
    before = torch.zeros(rows, dtype=torch.bool)
    samples = torch.full((rows,), numbers[0])
    mean, deviation = estimate(numbers[0], left)
    done = numbers[0]
    for number in [*numbers[1:], None]:
        if tolerance is not None and done >= min(fewest, numbers[-1]):
            scale = tolerance * _largest(mean[:, left])
            largest = deviation[:, left].amax(0)
            within, surely = ((largest <= part * scale).view(len(left), -1).all(1) for part in (1, clearly))
            still = ~(within & (before[left] | surely))
            before[left] = within
            left = left[still]
        if number is None or not len(left):
            break
        wanted = number if clock is None else clock.within(done, number)
        if wanted == done:
            break
        mean[:, left], deviation[:, left] = estimate(wanted, left)
        samples[left] = done = wanted
    missed = torch.zeros_like(before)
    if tolerance is not None:
        missed[left] = ~before[left]
    return Refined(mean, deviation, missed, cost(samples))


def _largest(values: Tensor) -> Tensor:
    """The largest value (players, rows, *outputs) of each row and output, but at least 1 % of the row's: nobody minds
    an output that says nearly nothing."""
    largest = values.abs().amax(0)
    of_row = largest.reshape(len(largest), -1).amax(1).view(-1, *[1] * (largest.dim() - 1))
    return torch.maximum(largest, _NEGLIGIBLE * of_row)


def background_deviation(by_group: Tensor) -> Tensor:
    """Return the standard deviation of the mean of values by groups of baselines (groups, …): other baselines of the
    same kind would give other values, and groups of them show by how much."""
    return by_group.var(0).div(len(by_group)).sqrt()


def collected(active: Active, parts: Iterable[Refined]) -> Estimate:
    """Return the values of each game, for all players, in the dtype and on the device of the inputs."""
    found = list(parts)
    values = active.restored([part.mean for part in found])
    std = active.restored([part.deviation for part in found], deviations=True)
    baselines = len(active.whole.empties)
    return Estimate(
        values, std, active.by_row([part.missed for part in found], False),
        active.by_row([part.evaluations * baselines for part in found], 2 * baselines),
        active.evaluated([part.evaluated for part in found]),
        background_std=None if any(part.background is None for part in found) or not found else active.restored(
            [part.background for part in found if part.background is not None], deviations=True
        ),
    )  # fmt: skip
