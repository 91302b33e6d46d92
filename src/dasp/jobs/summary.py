"""What a job came to, in a few lines: how sure the values are, and which inputs matter most."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Summary"]

_LISTED = 8  # inputs
_NUMBER = 9  # characters of a number
_WORD = 40  # characters of a word, at most
_AROUND = string.punctuation + string.whitespace + "…“”‘’«»–—"
_FEWEST = 10  # characters that a bar is drawn with, at least


@dataclass
class Summary:
    r"""Counted while the output is written.

    >>> table = pa.table({"base_value": [0.0, 0.0], "a": [1.0, -2.0], "b": [0.5, 0.0], "gap": [0.0, 0.0],
    ...                   "method": ["Exact"] * 2})
    >>> summary = Summary()
    >>> summary.add(table)
    >>> print(*summary.lines(40), sep="\n")
    most important, by the mean of |value|:
      a    ███████████████████████     1.500
      b    ███▉                       0.2500
    """

    rows: int = 0
    sizes: dict[str, float] = field(default_factory=dict)  # sums of |values|, by the players' names
    bars: list[NDArray[Any]] = field(default_factory=list)  # the largest standard deviation of each row
    counts: Counter[str] = field(default_factory=Counter)  # how often pieces of texts were there

    def add(self, table: pa.Table) -> None:
        """Count the rows of a part of the output."""
        names = table.column_names
        self.rows += len(table)
        if "gap" not in names:  # nothing that a worker has made
            return
        between = names[names.index("base_value") + 1 : names.index("gap")]
        bars = [name for name in between if name == "sd" or name.startswith("sd:")]
        if bars:
            self.bars.append(np.max([_largest(table[name]) for name in bars], 0))
        if "pieces" in between:
            self._add_pieces(table)
        for name in between:
            if name not in (*bars, "values", "pieces"):  # a list has no names
                self.sizes[name] = self.sizes.get(name, 0.0) + float(np.abs(_numbers(table[name])).sum())

    def _add_pieces(self, table: pa.Table) -> None:
        """Count the pieces of texts, however they are written; those that are longer than a word hardly come again."""
        pieces, values = (table[name].combine_chunks().flatten() for name in ("pieces", "values"))
        for piece, value in zip(pieces.to_pylist(), np.abs(np.from_dlpack(values)).tolist(), strict=True):
            word = piece.lower().strip(_AROUND)
            if 0 < len(word) <= _WORD:
                self.counts[word] += 1
                self.sizes[word] = self.sizes.get(word, 0.0) + value

    def lines(self, width: int, *, plain: bool = False) -> Iterator[str]:
        """Lines for a terminal of so many columns; `plain` in ASCII."""
        bars = np.concatenate(self.bars) if self.bars else np.zeros(0)
        if bars.any():
            yield f"error bars: the largest of a row is {np.median(bars):.3g} in the median, {bars.max():.3g} at most"
        means = {name: size / self.counts.get(name, self.rows) for name, size in self.sizes.items()}
        if self.counts:
            means = {name: mean for name, mean in means.items() if self.counts[name] > 1}
        if len(means) < 2:
            return
        first = sorted(means, key=lambda name: -means[name])[:_LISTED]
        yield f"most important{' of what occurs twice or more' * bool(self.counts)}, by the mean of |value|:"
        longest = max(4, min(max(map(len, first)), width // 3))
        room = width - longest - _NUMBER - 4
        for name in first:
            share = means[name] / means[first[0]] if means[first[0]] > 0 else 0.0
            bar = f" {_bar(share, room, plain):{room}}" if room >= _FEWEST else ""
            yield f"  {_short(name, longest, plain):{longest}}{bar} {_told(means[name]):>{_NUMBER}}"
        if len(means) > len(first):
            yield f"  and {len(means) - len(first):,} more"


def _bar(share: float, room: int, plain: bool) -> str:
    if plain:
        return "#" * round(share * room)
    eighths = round(share * room * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _short(name: str, longest: int, plain: bool) -> str:
    name = " ".join(name.split())  # on one line
    return name if len(name) <= longest else name[: longest - 1] + ("~" if plain else "…")


def _told(number: float) -> str:
    return f"{number:#.4g}" if 1e-3 <= number < 1e4 else f"{number:.2e}"


def _numbers(column: pa.ChunkedArray) -> Any:
    return np.from_dlpack(column.combine_chunks())


def _largest(column: pa.ChunkedArray) -> Any:
    """The largest entry of each row, of numbers or of lists."""
    whole = column.combine_chunks()
    if pa.types.is_floating(whole.type):
        return np.from_dlpack(whole)
    if pa.types.is_fixed_size_list(whole.type):
        return np.from_dlpack(whole.flatten()).reshape(len(whole), -1).max(1)
    return np.array([max(row) for row in whole.to_pylist()])
