"""The waterfall of a row: its largest players with what they are, and all others together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.report.contents import Contents, Rows
from dasp.report.page import rounded
from dasp.words import INTERVAL, entry

__all__ = ["Row", "Table", "parts"]

_PARTS = 12  # lines of a waterfall

Row = dict[str, Any]  # what the page is told of a row


def parts(
    values: NDArray[Any], std: NDArray[Any] | None, label: Callable[[int], Any], data: Callable[[int], str]
) -> Row:
    """The largest players of a row, [label, value, half of the interval, data], and all others together."""
    order = np.argsort(-np.abs(values), kind="stable")
    named = order if len(order) <= _PARTS else order[: _PARTS - 1]
    others = order[len(named) :]
    found: Row = {
        "parts": [
            [label(i), rounded(values[i]), None if std is None else rounded(INTERVAL * std[i]), data(i)]
            for i in named.tolist()
        ]
    }
    if len(others):
        half = None if std is None else rounded(INTERVAL * float(np.sqrt(np.square(std[others]).sum())))
        found["others"] = [len(others), rounded(float(values[others].sum())), half]
    return found


class Table:
    """Rows of columns, or of groups of columns."""

    def __init__(self, contents: Contents) -> None:
        self.members = None if contents.mask is None else [
            np.flatnonzero(contents.mask == player) for player in range(int(contents.mask.max()) + 1)
        ]  # fmt: skip

    def __call__(self, some: Rows, i: int) -> Row:
        """The players of a row."""
        std = None if some.std is None else some.std[i]
        return parts(some.values[i], std, int, lambda player: self.data(some, i, player))

    def data(self, some: Rows, i: int, player: int) -> str:
        """What a player is in a row."""
        if some.data is None:
            return ""
        members = [player] if self.members is None else self.members[player].tolist()
        told = [entry(some.data[i][member]) for member in members[:3]]
        return ", ".join(told) + (", …" if len(members) > len(told) else "")
