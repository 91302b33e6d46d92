"""Which players matter over all rows, and what is known of every row: one pass over an output.

    importance of a player = mean |value| over n rows,   ± 1.96 √(s²/n + Σσ²/n²)

with the spread s of |value| over the rows (other rows of the same kind would have another mean) and the standard
deviations σ of the values themselves. The second term alone is the inner interval.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.report.contents import Contents, Rows
from dasp.words import INTERVAL, plain

__all__ = ["Known", "Player", "known_of"]

_LONGEST = 40  # characters of a word that counts
_AROUND = string.punctuation + string.whitespace + "…“”‘’«»–—"


@dataclass(frozen=True)
class Player:
    """A player, or a word, over all rows."""

    name: str
    mean: float  # of |value|
    half: float  # of the interval of 95 %
    inner: float | None  # of the one from errors alone; None if these are not known
    signed: float  # mean value
    number: int  # of rows

    @property
    def uncertain(self) -> bool:
        """Whether nothing but errors may be in it."""
        return self.inner is not None and self.mean <= self.half


@dataclass
class _Sums:
    """Sums over rows, of one player or of many at once."""

    number: Any = 0
    sizes: Any = 0.0  # Σ|v|
    values: Any = 0.0
    squares: Any = 0.0
    variances: Any = 0.0  # Σσ²

    def add(self, values: NDArray[Any], std: NDArray[Any] | None) -> None:
        """Add rows of players; values that are not finite do not count."""
        finite = np.isfinite(values)
        there = np.where(finite, values, 0.0)
        self.number = self.number + finite.sum(0)
        self.sizes = self.sizes + np.abs(there).sum(0)
        self.values = self.values + there.sum(0)
        self.squares = self.squares + np.square(there).sum(0)
        if std is not None:
            self.variances = self.variances + np.square(np.where(finite & np.isfinite(std), std, 0.0)).sum(0)

    def moments(self) -> tuple[Any, Any, Any, Any]:
        """Means of |v| and of v, and the halves of both intervals."""
        number = np.maximum(self.number, 1)
        mean = self.sizes / number
        spread = np.maximum(self.squares / number - mean**2, 0.0) * number / np.maximum(number - 1, 1)
        inner = INTERVAL * np.sqrt(self.variances) / number
        return mean, self.values / number, np.hypot(INTERVAL * np.sqrt(spread / number), inner), inner


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
        return sorted(self.players, key=lambda player: -player.mean)


def known_of(contents: Contents) -> Known:
    """Go through all rows once."""
    sums, words = _Sums(), dict[str, _Sums]()
    parts: dict[str, list[Any]] = {}
    targets, methods = set[int](), set[str]()
    rows = 0
    for some in contents.rows():
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
        players = sorted(_worded(words, errors=contents.has_errors), key=lambda player: -player.mean)
    else:
        players = [] if contents.own_players else _named(sums, contents)
    return Known(rows=rows, players=players, targets=sorted(targets), methods=sorted(methods), **arrays)


def _of_rows(some: Rows) -> dict[str, NDArray[Any]]:
    none = np.full(len(some), np.nan)
    found = {
        "deviation": some.largest_std(),
        "typical": none if some.std is None else np.array([_root_mean_square(one) for one in some.std]),
        "size": np.array([_root_mean_square(one) for one in some.values]),
        "gap": some.gap,
        "change": some.prediction - some.base,
        "counts": np.array([len(one) for one in some.values]),
    }
    if some.evaluations is not None:
        found["evaluations"] = some.evaluations
    if some.missed is not None:
        found["missed"] = some.missed
    return found


def _root_mean_square(numbers: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(numbers)))) if len(numbers) else 0.0


def _add_words(words: dict[str, _Sums], some: Rows) -> None:
    """Count pieces of texts, however they are written; those longer than a word hardly come again."""
    assert some.pieces is not None
    for i, pieces in enumerate(some.pieces):
        for j, piece in enumerate(pieces):
            word = piece.lower().strip(_AROUND)
            if 0 < len(word) <= _LONGEST:
                std = None if some.std is None else np.array([some.std[i][j]])
                words.setdefault(word, _Sums()).add(np.array([some.values[i][j]]), std)


def _worded(words: dict[str, _Sums], *, errors: bool) -> list[Player]:
    """Words that occur twice or more."""
    return [_player(word, sums, errors=errors) for word, sums in words.items() if int(np.sum(sums.number)) > 1]


def _player(name: str, sums: _Sums, *, errors: bool) -> Player:
    mean, signed, half, inner = (float(part) for part in sums.moments())
    return Player(name, mean, half, inner if errors else None, signed, int(sums.number))


def _named(sums: _Sums, contents: Contents) -> list[Player]:
    means, signed, halves, inners = sums.moments()
    names = [plain(name) for name in contents.names] or [f"input {i}" for i in range(len(means))]
    return [
        Player(name, float(mean), float(half), float(inner) if contents.has_errors else None, float(lean), int(number))
        for name, mean, half, inner, lean, number in zip(names, means, halves, inners, signed, sums.number, strict=True)
    ]
