"""Sources: what every kind of data file gives, whatever its format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["BYTES", "RawChunk", "Source"]

BYTES = 8  # of an entry, when its size is compared with what is allowed: means are taken in float64


@dataclass(frozen=True)
class RawChunk:
    """Successive rows as they are in the file, missing entries and all."""

    number: int  # rows number * size, number * size + 1, … of the file
    values: NDArray[Any]  # (n, *shape), NaN where an entry is missing
    ids: pa.Array | None = None  # None: the rows have no names
    data: NDArray[Any] | None = None  # the values before they were normalised; None: they are the same
    targets: NDArray[np.float64] | None = None  # (n,), NaN where one is missing; None: there is no such column
    reduced: Counter[str] = field(default_factory=Counter)  # in how many rows what the file has is not kept


class Source(Protocol):
    """Rows of one shape, read in chunks; can be sent to another machine that has the same files."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of a row's entries, or None if they are not in one dimension."""

    @property
    def files(self) -> list[Path]:
        """The files that the rows come from, in their order."""

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[RawChunk]:
        """Chunks of `size` rows, the last one shorter, without those whose number is in `skip`."""
