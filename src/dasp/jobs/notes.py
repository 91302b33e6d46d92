"""What is to be said of explained rows: counted in every chunk, kept with it, and said once when all are done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

__all__ = ["Notes"]

_KEY = b"notes"
_LISTED, _LONGEST = 10, 100  # ids, and characters of one


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

    @classmethod
    def of_rows(cls, ids: list[Any], large: int = 0) -> Notes:
        """Notes on rows that are left out; some of their ids are enough."""
        return cls(left_out=len(ids), ids=tuple(str(one)[:_LONGEST] for one in ids[:_LISTED]), large=large)

    def __add__(self, other: Notes) -> Notes:
        return Notes(
            self.left_out + other.left_out,
            (self.ids + other.ids)[:_LISTED],
            self.infinite + other.infinite,
            self.missed + other.missed,
            self.gaps + other.gaps,
            self.large + other.large,
            self.cut + other.cut,
        )

    def on(self, table: pa.Table) -> pa.Table:
        """The table with these notes in its metadata."""
        return table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: json.dumps(asdict(self))})

    @staticmethod
    def off(table: pa.Table) -> tuple[Notes, pa.Table]:
        """The notes of a table, and the table without them."""
        metadata = dict(table.schema.metadata or {})
        found = json.loads(metadata.pop(_KEY, b"{}"))
        return Notes(**{**found, "ids": tuple(found.get("ids", ()))}), table.replace_schema_metadata(metadata or None)

    def lines(self, rows: int, tolerance: float | None) -> Iterator[str]:
        """What to say of so many rows in the output."""
        if self.left_out:
            listed = ", ".join(self.ids) + (", …" if self.left_out > len(self.ids) else "")
            why = "the model's output is not finite" + " or squares overflow" * bool(self.large)
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
            from dasp.explainer.result import LARGE_GAP  # noqa: PLC0415 (torch takes seconds)

            yield (
                f"warning: the values of {self.gaps:,} of {rows:,} rows miss prediction − base_value by more than "
                f"{LARGE_GAP:.0%} of their sizes: moments are a poor approximation there; --method auto evaluates "
                "coalitions, too, and has error bars"
            )
