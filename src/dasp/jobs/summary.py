"""The result of a job in a few lines: how sure the values are, which inputs matter most, and what went wrong.

`Notes` are counted in every chunk and kept with it; a `Summary` is counted while the output is written. Both are said
once, when all rows are done.
"""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Notes", "Summary", "word_of"]

_NOTES = b"notes"  # in the metadata of a table
_IDS, _ID_LENGTH = 10, 100  # ids that are listed, and characters of one
_LISTED = 8  # inputs
_NUMBER = 9  # characters of a number
_WORD = 40  # characters of a word, at most
_AROUND = string.punctuation + string.whitespace + "…“”‘’«»–—"
_FEWEST = 10  # characters that a bar is drawn with, at least


@dataclass(frozen=True)
class Notes:
    r"""Numbers of rows that something is wrong with.

    >>> print(*(Notes(left_out=1, ids=("7",)) + Notes(missed=2)).lines(50, 0.1), sep="\n")
    warning: left out, as the model's output is not finite: 1 rows (id 7)
    warning: 2 of 50 rows did not reach --tolerance 0.1
    """

    left_out: int = 0  # their outputs are not finite, or cannot be explained
    ids: tuple[str, ...] = ()  # of the first of these
    infinite: int = 0  # their values are not finite
    missed: int = 0  # the tolerance
    gaps: int = 0  # their values do not add up
    large: int = 0  # of those left out, how many have squares that overflow
    cut: int = 0  # texts that are longer than the model takes
    undefined: int = 0  # of those left out, how many have coalitions without a finite value

    @classmethod
    def of_rows(cls, ids: list[Any], large: int = 0, undefined: int = 0) -> Notes:
        """Return notes on rows that are left out; some of their ids are enough."""
        some = tuple(str(one)[:_ID_LENGTH] for one in ids[:_IDS])
        return cls(left_out=len(ids), ids=some, large=large, undefined=undefined)

    def __add__(self, other: Notes) -> Notes:
        return Notes(
            self.left_out + other.left_out,
            (self.ids + other.ids)[:_IDS],
            self.infinite + other.infinite,
            self.missed + other.missed,
            self.gaps + other.gaps,
            self.large + other.large,
            self.cut + other.cut,
            self.undefined + other.undefined,
        )

    def on(self, table: pa.Table) -> pa.Table:
        """Return the table with these notes in its metadata."""
        return table.replace_schema_metadata({**(table.schema.metadata or {}), _NOTES: json.dumps(asdict(self))})

    @staticmethod
    def off(table: pa.Table) -> tuple[Notes, pa.Table]:
        """Return the notes of a table, and the table without them."""
        metadata = dict(table.schema.metadata or {})
        noted = json.loads(metadata.pop(_NOTES, b"{}"))
        notes = Notes(**{**noted, "ids": tuple(noted.get("ids", ()))})
        return notes, table.replace_schema_metadata(metadata or None)

    def lines(self, rows: int, tolerance: float | None) -> Iterator[str]:
        """Yield the warnings for so many rows in the output."""
        if self.left_out:
            listed = ", ".join(self.ids) + (", …" if self.left_out > len(self.ids) else "")
            why = "the model's output is not finite" + " for coalitions of the row" * (self.undefined == self.left_out)
            why += " or squares overflow" * bool(self.large)
            yield f"warning: left out, as {why}: {self.left_out:,} rows (id {listed})"
        if self.infinite:
            yield f"warning: {self.infinite:,} of {rows:,} rows have values that are not finite"
        if self.cut:
            yield (
                f"warning: {self.cut:,} of {rows:,} texts are longer than the model takes: what is beyond is cut off, "
                "and has the value 0"
            )
        if self.missed:
            yield f"warning: {self.missed:,} of {rows:,} rows did not reach --tolerance {tolerance:g}"
        if self.gaps:
            from dasp.explainer.explanation import LARGE_GAP  # noqa: PLC0415 (torch takes seconds)

            yield (
                f"warning: the values of {self.gaps:,} of {rows:,} rows miss prediction − base_value by more than "
                f"{LARGE_GAP:.0%} of their sizes; --method auto evaluates coalitions, and has error bars"
            )


@dataclass
class Summary:
    r"""Error bars and the sizes of values over all rows, counted while the output is written.

    >>> table = pa.table({"base_value": [0.0, 0.0], "a": [1.0, -2.0], "b": [0.5, 0.0], "gap": [0.0, 0.0],
    ...                   "method": ["exact_shapley"] * 2})
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
        bars = [name for name in between if name == "error_std" or name.startswith("error_std:")]
        if bars:
            self.bars.append(np.max([_largest(table[name]) for name in bars], 0))
        if "pieces" in between:
            self._add_pieces(table)
        for name in between:
            if name not in (*bars, "values", "pieces"):  # a list has no names
                self.sizes[name] = self.sizes.get(name, 0.0) + float(np.abs(_numbers(table[name])).sum())

    def _add_pieces(self, table: pa.Table) -> None:
        """Count the pieces of texts that are words."""
        pieces, values = (table[name].combine_chunks().flatten() for name in ("pieces", "values"))
        for piece, value in zip(pieces.to_pylist(), np.abs(np.from_dlpack(values)).tolist(), strict=True):
            if word := word_of(piece):
                self.counts[word] += 1
                self.sizes[word] = self.sizes.get(word, 0.0) + value

    def lines(self, width: int, *, plain: bool = False) -> Iterator[str]:
        """Yield lines for a terminal of so many columns; `plain` in ASCII."""
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
            yield f"  {_short(name, longest, plain):{longest}}{bar} {_number_text(means[name]):>{_NUMBER}}"
        if len(means) > len(first):
            yield f"  and {len(means) - len(first):,} more"


def word_of(piece: str) -> str | None:
    """Return the word that a piece of a text is, however it is written, or None: longer pieces hardly come again.

    >>> word_of(" Good,"), word_of("…")
    ('good', None)
    """
    word = piece.lower().strip(_AROUND)
    return word if 0 < len(word) <= _WORD else None


def _bar(share: float, room: int, plain: bool) -> str:
    if plain:
        return "#" * round(share * room)
    eighths = round(share * room * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _short(name: str, longest: int, plain: bool) -> str:
    name = " ".join(name.split())  # on one line
    return name if len(name) <= longest else name[: longest - 1] + ("~" if plain else "…")


def _number_text(number: float) -> str:
    return f"{number:#.4g}" if 1e-3 <= number < 1e4 else f"{number:.2e}"


def _numbers(column: pa.ChunkedArray) -> Any:
    return np.from_dlpack(column.combine_chunks())


def _largest(column: pa.ChunkedArray) -> Any:
    """Return the largest entry of each row, of numbers or of lists."""
    whole = column.combine_chunks()
    if pa.types.is_floating(whole.type):
        return np.from_dlpack(whole)
    if pa.types.is_fixed_size_list(whole.type):
        return np.from_dlpack(whole.flatten()).reshape(len(whole), -1).max(1)
    return np.array([max(row) for row in whole.to_pylist()])
