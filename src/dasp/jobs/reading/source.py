"""Sources, which are what every kind of data file gives, whatever its format; and what all of them need.

Files are checked before they are opened, and sizes before they are allocated: what cannot be read is refused in one
line. NumPy and Arrow are converted into each other without pandas, which pyarrow's own conversions import where it is
installed: it takes longer than a small job does.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dasp.errors import BadInput, line_of

__all__ = [
    "BYTES", "RawChunk", "Source", "check_file", "check_unpacked", "column", "floats", "is_folder", "lists", "muted",
    "strings", "texts",
]  # fmt: skip

BYTES = 8  # of an entry, when its size is compared with what is allowed: means are taken in float64

_SPECIAL = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


@dataclass(frozen=True)
class RawChunk:
    """Successive rows as they are in the file, missing entries and all."""

    number: int  # rows number * size, number * size + 1, … of the file
    values: NDArray[Any]  # (n, *shape), NaN where an entry is missing
    ids: pa.Array | None = None  # None: the rows have no names
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
        """Yield chunks of `size` rows, the last one shorter, without those whose number is in `skip`."""


def is_folder(path: Path) -> bool:
    """Return True for a folder and False for a file. Anything else is refused: a pipe would be waited for, and a device
    may never end, while the data is read more than once.

    >>> is_folder(Path("absent.csv"))
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: absent.csv: no such file or folder
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file or folder") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {line_of(error)}") from error
    for test, what in _SPECIAL.items():
        if test(mode):
            raise BadInput(f"{path}: is {what}; copy what it gives to a file, and name that one")
    return stat.S_ISDIR(mode)


def check_file(path: Path) -> None:
    """Refuse what is not a file."""
    if is_folder(path):
        raise BadInput(f"{path}: is a folder; a file is needed")


def check_unpacked(path: Path, what: str, size: int, limit: int) -> None:
    """Refuse something in a file that takes more bytes than are allowed, before it is unpacked.

    >>> check_unpacked(Path("rows.npz"), "a row", 3 * 2**30, 2**30)
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: rows.npz: a row takes 3.0 GiB when it is read, and --max-unpacked allows 1.0 GiB
    """
    if size > limit:
        raise BadInput(f"{path}: {what} takes {_size(size)} when it is read, and --max-unpacked allows {_size(limit)}")


def _size(size: int) -> str:
    """Return a number of bytes as people write it."""
    unit = next((unit for unit in (2**30, 2**20, 2**10) if size >= unit), 1)
    return f"{size / unit:,.1f} { {2**30: 'GiB', 2**20: 'MiB', 2**10: 'KiB', 1: 'bytes'}[unit] }"


def column(values: NDArray[Any]) -> pa.Array:
    """Return numbers or truth values in one dimension as an array of Arrow.

    >>> column(np.array([True, False, True])).to_pylist(), column(np.array([0.5, 2])).to_pylist()
    ([True, False, True], [0.5, 2.0])
    """
    kind = pa.from_numpy_dtype(values.dtype)
    packed = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(packed)])


def texts(values: Sequence[str]) -> pa.Array:
    """Return texts as an array of Arrow.

    >>> texts(["a", "", "Zürich"]).to_pylist()
    ['a', '', 'Zürich']
    """
    encoded = [text.encode() for text in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers).cast(pa.string())


def floats(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return a column of numbers in float64, with NaN where an entry is missing.

    >>> floats(pa.chunked_array([[1, None], [3]]))
    array([ 1., nan,  3.])
    """
    cast = values.cast(pa.float64(), safe=False).combine_chunks()
    filled: Any = np.from_dlpack(pc.coalesce(cast, column(np.array([np.nan]))[0]))
    return filled


def strings(values: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of texts as objects, with None where an entry is missing.

    >>> strings(pa.chunked_array([["a", None], ["Zürich"]])).tolist()
    ['a', None, 'Zürich']
    """
    found = np.empty(len(values), dtype=object)
    found[:] = values.to_pylist()
    return found


@contextmanager
def muted() -> Iterator[None]:
    """Hide what libraries in C and Rust write to stderr besides the error: libtiff about damaged files, tokenizers when
    they fail. What other threads write meanwhile is lost, too, so this is for moments."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def lists(entries: pa.Array, lengths: Sequence[int]) -> pa.Array:
    """Return entries, one list behind the other, as lists of these lengths.

    >>> lists(texts(["a", "b", "c"]), [2, 1]).to_pylist()
    [['a', 'b'], ['c']]
    """
    return pa.ListArray.from_arrays(column(np.cumsum([0, *lengths], dtype=np.int32)), entries)
