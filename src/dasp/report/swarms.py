"""Swarms: the values of some rows for the most important players, and what these were there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.report.contents import Contents, Rows
from dasp.report.importance import Known
from dasp.report.page import rounded
from dasp.words import INTERVAL, number

__all__ = ["Swarms"]

_ROWS, _PLAYERS = 400, 12


class Swarms:
    """A line of dots for each of the most important players, from some of the rows of the page."""

    def __init__(self, contents: Contents, known: Known, rows: int) -> None:
        self.players = known.order[:_PLAYERS]
        self.names = [known.players[player].name for player in self.players]
        self.grouped = contents.mask is not None
        self.places = np.unique(np.linspace(0, rows - 1, min(rows, _ROWS)).round().astype(int)).tolist()

    def of(self, rows: Iterable[tuple[Rows, int]]) -> list[dict[str, Any]]:
        """For each player: values, whether they may be nothing, how large the data is from 0 to 100, and the numbers
        of the rows."""
        wanted = set(self.places)
        seen = [self._seen(some, i) for place, (some, i) in enumerate(rows) if place in wanted]
        return [self._line(place, [row[place] for row in seen]) for place in range(len(self.players))]

    def _seen(self, some: Rows, i: int) -> list[tuple[float, float, Any]]:
        """The value of each player in a row, half of its interval, and the data."""
        halves = np.zeros(len(some.values[i])) if some.std is None else INTERVAL * some.std[i]
        data = [None] * len(halves) if some.data is None or self.grouped else some.data[i]
        return [(float(some.values[i][p]), float(halves[p]), data[p]) for p in self.players]

    def _line(self, place: int, seen: list[tuple[float, float, Any]]) -> dict[str, Any]:
        values = [value for value, _, _ in seen]
        return {
            "player": self.players[place],
            "values": [rounded(value) for value in values],
            "unsure": [int(abs(value) <= half and half > 0) for value, half, _ in seen],
            "ranks": _ranks([data for _, _, data in seen]),
            "rows": self.places,
            "said": _said(self.names[place], np.array(values)),
        }


def _said(name: str, values: NDArray[Any]) -> str:
    there = values[np.isfinite(values)]
    if not len(there):
        return f"Values of {name}: none of them is finite."
    low, middle, high = np.percentile(there, (0, 50, 100))
    return f"Values of {name}: from {number(low)} to {number(high)}, {number(middle)} in the middle."


def _ranks(data: list[Any]) -> list[int] | None:
    """How large numbers are, from 0 (the 5th percentile) to 100 (the 95th); None if they are no numbers."""
    try:
        numbers = np.array(data, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if not np.isfinite(numbers).all():
        return None
    low, high = np.percentile(numbers, (5, 95))
    return np.clip(100 * (numbers - low) / ((high - low) or 1.0), 0, 100).round().astype(int).tolist()
