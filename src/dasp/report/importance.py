"""Which players matter over all rows, and what is known of every row: one pass over an output.

    importance of a player = mean |value| over n rows,   ± √( t² s²/n + 1.96² Σσ²/n² )

with the spread s of |value| over the rows (other rows of the same kind would have another mean), Student's quantile t,
and the standard deviations σ of the values themselves. The second term alone is the inner interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.jobs.summary import word_of
from dasp.report.contents import Contents, Rows
from dasp.words import INTERVAL, interval_of, plain

__all__ = ["Known", "Player", "known_of"]


@dataclass(frozen=True)
class Player:
    """A player, or a word, over all rows."""

    name: str
    mean: float  # of |value|
    half: float  # of the interval of 95 %
    inner: float | None  # of the one from errors alone; None if these are not known
    number: int  # of rows

    @property
    def uncertain(self) -> bool:
        """Whether the interval holds 0."""
        return self.number > 1 and self.mean <= self.half


@dataclass
class _Sums:
    """Sums over rows, of one player or of many at once."""

    number: Any = 0
    sizes: Any = 0.0  # Σ|v|
    squares: Any = 0.0
    variances: Any = 0.0  # Σσ²

    def add(self, values: NDArray[Any], std: NDArray[Any] | None) -> None:
        """Add rows of players; values that are not finite do not count."""
        finite = np.isfinite(values)
        there = np.where(finite, values, 0.0)
        self.number = self.number + finite.sum(0)
        self.sizes = self.sizes + np.abs(there).sum(0)
        self.squares = self.squares + np.square(there).sum(0)
        if std is not None:
            self.variances = self.variances + np.square(np.where(finite & np.isfinite(std), std, 0.0)).sum(0)

    def players(self, names: list[str], *, errors: bool) -> list[Player]:
        """Means of |v| with the halves of both intervals; NaN where there is no value."""
        columns = np.broadcast_arrays(self.number, self.sizes, self.squares, self.variances)
        found = []
        for name, (number, sizes, squares, variances) in zip(names, np.reshape(columns, (4, -1)).T, strict=True):
            n = int(number)
            mean = sizes / n if n else math.nan
            inner = INTERVAL * math.sqrt(variances) / n if n else math.nan
            spread = max(squares / n - mean**2, 0.0) / (n - 1) if n > 1 else 0.0  # of the mean
            half = math.hypot(interval_of(n) * math.sqrt(spread) if spread else 0.0, inner)
            found.append(Player(name, float(mean), half, inner if errors else None, n))
        return found


@dataclass
class Known:
    """What is known of all rows. Arrays have an entry for each."""

    rows: int = 0
    players: list[Player] = field(default_factory=list)  # in the order of their numbers; of texts, the largest first
    deviation: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # the largest of each row
    typical: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # the root mean square of each row's deviations
    size: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # the root mean square of its values
    gap: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    change: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # prediction − base
    evaluations: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    missed: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    targets: list[int] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    counts: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # players of each row

    @property
    def largest(self) -> list[Player]:
        """The players, from the most to the least important."""
        return [self.players[place] for place in self.order]

    @property
    def order(self) -> list[int]:
        """The numbers of the players, from the most to the least important; those without a value come last."""
        return np.argsort([-player.mean for player in self.players], kind="stable").tolist()  # NaN is last


def known_of(contents: Contents) -> Known:
    """Go through all rows once."""
    sums, words = _Sums(), dict[str, _Sums]()
    parts: dict[str, list[Any]] = {}
    targets, methods = set[int](), set[str]()
    rows = 0
    for some in contents.rows(data=False):
        rows += len(some)
        targets |= set(some.target.tolist())
        methods |= set(some.method)
        for name, part in _of_rows(some).items():
            parts.setdefault(name, []).append(part)
        if some.pieces is not None:
            _add_words(words, some)
        elif not contents.own_players:
            sums.add(some.values, some.std)
    arrays = {name: np.concatenate(several) for name, several in parts.items()}
    if contents.is_text:
        often = {word: own for word, own in words.items() if int(np.sum(own.number)) > 1}
        several = [own.players([word], errors=contents.has_errors)[0] for word, own in often.items()]
        players = sorted(several, key=lambda player: -player.mean)
    elif not contents.own_players:
        names = [plain(name) for name in contents.names] or [f"input {i}" for i in range(len(sums.sizes))]
        players = sums.players(names, errors=contents.has_errors)
    else:
        players = []
    return Known(rows=rows, players=players, targets=sorted(targets), methods=sorted(methods), **arrays)


def _of_rows(some: Rows) -> dict[str, NDArray[Any]]:
    none = np.full(len(some), np.nan)
    found = {
        "deviation": some.largest_std(),
        "typical": none if some.std is None else _root_mean_squares(some.std),
        "size": _root_mean_squares(some.values),
        "gap": some.gap,
        "change": some.prediction - some.base,
        "counts": np.array([len(one) for one in some.values]),
    }
    if some.evaluations is not None:
        found["evaluations"] = some.evaluations
    if some.missed is not None:
        found["missed"] = some.missed
    return found


def _root_mean_squares(rows: Any) -> NDArray[Any]:
    """Of each row."""
    if isinstance(rows, np.ndarray):
        return np.sqrt(np.square(rows).mean(1))
    return np.array([np.sqrt(np.square(one).mean()) if len(one) else 0.0 for one in rows])


def _add_words(words: dict[str, _Sums], some: Rows) -> None:
    """Count pieces of texts that are words."""
    assert some.pieces is not None
    for i, pieces in enumerate(some.pieces):
        for j, piece in enumerate(pieces):
            if word := word_of(piece):
                std = None if some.std is None else np.array([some.std[i][j]])
                words.setdefault(word, _Sums()).add(np.array([some.values[i][j]]), std)
