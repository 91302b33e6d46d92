"""What a row's figure shows: the largest players by name, and all others together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dasp.plots.given import Given
from dasp.plots.labels import fitted_all
from dasp.plots.style import DOWN, TEXT, UP
from dasp.words import entry, within

__all__ = ["Part", "faces", "largest", "lumped", "parts_of"]

_HATCHES = "////"
_FEWEST = 60  # points of a name


@dataclass(frozen=True)
class Part:
    """A player, or several together, with its value."""

    label: str
    value: float
    half: float | None  # of the interval of 95 %

    @property
    def uncertain(self) -> bool:
        """Whether the interval holds 0, and is not only 0."""
        return self.half is not None and abs(self.value) <= self.half and self.half > 0

    @property
    def text(self) -> str:
        """The value with its interval, unless it is exact."""
        return within(self.value, self.half or None)


def largest(sizes: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of the largest, in decreasing order, and all others; one is never left alone."""
    order = np.argsort(-np.abs(sizes), kind="stable")
    number = len(order) if len(order) <= most else max(1, most - 1)
    return order[:number], order[number:]


def lumped(found: Given, players: Iterable[int]) -> Part:
    """Several players together: their values add up, and so do the variances, as if errors were independent."""
    which = list(players)
    half = None if found.half is None else float(np.sqrt(np.square(found.half[which]).sum()))
    return Part(f"{len(which)} other{'s' * (len(which) != 1)}", float(found.values[which].sum()), half)


def parts_of(found: Given, players: Iterable[int], width: float, size: float = TEXT) -> list[Part]:
    """Players of a row, each called after its name and what it is there, on so many points."""
    which = list(players)
    entries = ["" if found.data is None else f" = {entry(found.data[i])}" for i in which]
    room = max(width - 5 * max(map(len, entries), default=0), _FEWEST)
    names = fitted_all([found.names[i] for i in which], room, size)
    halves = [None if found.half is None else float(found.half[i]) for i in which]
    return [
        Part(name + own, float(found.values[i]), half)
        for i, name, own, half in zip(which, names, entries, halves, strict=True)
    ]


def faces(part: Part) -> dict[str, Any]:
    """How the area of a part is filled: red or blue, and only hatched if it may as well be nothing."""
    colour = UP if part.value >= 0 else DOWN
    if part.uncertain:
        return {"facecolor": "white", "edgecolor": colour, "hatch": _HATCHES, "linewidth": 0.9}
    return {"facecolor": colour, "edgecolor": "white", "linewidth": 0.8}
