"""Data files as chunks of rows that a model can be given, and one pass over them before any work is done.

A chunk is so many successive rows of the file, whatever becomes of them: rows with missing or infinite entries are left
out of it, and the numbers of all others stay the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dasp.errors import BadInput, Fraction, line_of
from dasp.jobs.reading.arrays import ARRAYS, entry_names, open_array
from dasp.jobs.reading.source import BYTES, Source, check_unpacked, column, is_folder
from dasp.jobs.reading.tables import (
    TABLES,
    CSVSource,
    TableHeader,
    TableSource,
    is_number,
    open_table,
    outputs_listed,
    read_header,
)

__all__ = ["TEXT", "Chunk", "Reader", "Survey", "open_data", "open_like", "read_all", "survey"]

_SURVEYED, _ENTRIES = 4096, 2**24  # rows and entries looked at together, at most
_FEW = 2
TEXT = "text"  # instead of a dtype


@dataclass(frozen=True)
class Chunk:
    """A chunk of the data: its usable rows, and the places of the others."""

    number: int
    values: NDArray[Any]  # (n, *shape)
    ids: pa.Array
    targets: NDArray[np.int64] | None  # (n,) class indices
    bad: list[int]  # row numbers
    data: NDArray[Any] | None = None  # the rows as the file has them, if they are needed

    def only(self, which: NDArray[np.bool_]) -> Chunk:
        """Return the same chunk with some of its usable rows."""
        targets, data = (None if x is None else x[which] for x in (self.targets, self.data))
        return replace(self, values=self.values[which], ids=self.ids.filter(column(which)), targets=targets, data=data)


@dataclass(frozen=True)
class Reader:
    """Chunks of `size` rows of a source, in the dtype of the model; ids of the type that fits all of them."""

    source: Source
    size: int
    dtype: str
    integer_ids: bool = False
    with_data: bool = False

    def chunks(self, skip: frozenset[int] = frozenset()) -> Iterator[Chunk]:
        """Yield the chunks, without those whose number is in `skip`."""
        for raw in self.source.chunks(self.size, skip):
            start, targets = raw.number * self.size, raw.targets
            cast, good = _cast(raw.values, self.dtype)
            good = good if targets is None else good & ~np.isnan(targets)
            ids = column(np.arange(start, start + len(cast))) if raw.ids is None else raw.ids
            ids = ids.cast(pa.int64()) if self.integer_ids else ids
            chosen = None if targets is None else targets[good].astype(np.int64)
            bad = [start + int(i) for i in np.flatnonzero(~good)]
            data = raw.values[good] if self.with_data else None
            yield Chunk(raw.number, cast[good], ids.filter(column(good)), chosen, bad, data)


@dataclass(frozen=True)
class Survey:
    """The result of one pass over the data."""

    rows: int
    bad: list[int]  # row numbers
    example: NDArray[Any]  # the first usable rows, at most two
    data: NDArray[Any]  # the same as the file has them
    mean: NDArray[np.float64]  # of the usable rows: (*shape)
    targets: tuple[int, int] | None  # the smallest and largest class index, of a column of them
    integer_ids: bool  # True if ids that are text are all whole numbers
    repeated: int  # rows whose id an earlier row has
    reduced: Counter[str]  # in how many rows what the file has is not kept

    def warnings(self) -> Iterator[str]:
        """Yield what is odd in the data, though it can be used."""
        if self.repeated:
            yield f"{self.repeated:,} of {self.rows:,} rows have an id that an earlier row has, too"
        for what, rows in self.reduced.items():
            yield f"{what} in {rows:,} of {self.rows:,} images"


def open_data(
    path: Path,
    columns: list[str] | None = None,
    drop: list[str] | None = None,
    id_: str | None = None,
    target: str | None = None,
    *,
    limit: int,
    text: bool = False,
    classes: tuple[str, ...] | None = None,
    header: TableHeader | None = None,
    raw: bool = False,
) -> Source:
    """Open a file or folder as a source. Only tables have columns to choose; their `header` may be known already. A row
    may take `limit` bytes. With `text`, the only column has texts;
    with `raw`, any may have labels. The target may have names of `classes`."""
    suffix, folder = path.suffix.lower(), is_folder(path)
    if suffix in TABLES and not folder:
        header = header or read_header(path, limit)
        return open_table(path, header, columns, drop or [], id_, target, limit, text=text, classes=classes, raw=raw)
    for option, value in {
        "--text" if text else "--columns": columns,
        "--drop": drop,
        "--id": id_,
        "--target": target,
    }.items():
        if value is not None and (folder or suffix in ARRAYS):
            outputs = f"; {outputs_listed(classes, len(classes))}" if classes and option == "--target" else ""
            raise BadInput(f"{option} names columns, but {path} has none: only CSV and Parquet files have{outputs}")
    if folder:
        from dasp.jobs.reading.image_folder import open_images  # noqa: PLC0415 (Pillow is for images only)

        return open_images(path, limit)
    if suffix in ARRAYS:
        return open_array(path, limit)
    known = ", ".join([*TABLES, *ARRAYS])
    raise BadInput(f"{path}: unknown kind of file {suffix!r}; known are {known} and folders of images")


def survey(source: Source, path: Path, dtype: str, *, fail: bool) -> Survey:
    """Read all rows once, so that errors come before any work is done; with `fail`, bad rows are errors, too."""
    count, good, total = 0, 0, np.zeros(source.shape)
    bad: list[int] = []
    example: list[NDArray[Any]] = []
    data: list[NDArray[Any]] = []
    ends: list[int] = []
    integer_ids = isinstance(source, CSVSource)  # other files say what their ids are
    hashes: list[NDArray[np.int64]] = []  # of the ids
    reduced: Counter[str] = Counter()
    wordless = dtype == TEXT
    for raw in source.chunks(_together(source)):
        values, targets = raw.values, raw.targets
        cast, usable = _cast(values, dtype)
        if (broken := _fractions(values, dtype).reshape(len(values), -1).any(1)).any():
            row = int(np.argmax(broken))
            raise Fraction(f"{path}: {_what(source, values[row], dtype)} in row {count + row} (the first row is 0)")
        if targets is not None:
            _check_targets(path, targets, count)
            usable &= ~np.isnan(targets)
            ends = [f(ends + targets[usable].astype(int).tolist()) for f in (min, max)] if usable.any() else ends
        bad += [count + int(i) for i in np.flatnonzero(~usable)]
        if fail and bad:
            raise BadInput(
                f"{path}: {_what(source, values[bad[0] - count], dtype)} in row {bad[0]} (the first row is 0); "
                "--on-bad-row skip leaves such rows out"
            )
        count, good = count + len(values), good + int(usable.sum())
        total += 0 if dtype == TEXT else cast[usable].sum(0, dtype=np.float64)
        wordless = wordless and all(map(is_number, cast[usable].flat))
        data += list(values[usable][: _FEW - len(example)])
        example += list(cast[usable][: _FEW - len(example)])
        integer_ids = integer_ids and _whole(raw.ids)
        hashes += [] if raw.ids is None else [_hashes(path, raw.ids)]
        reduced += raw.reduced
    if not count:
        raise BadInput(f"{path}: has no rows")
    if not good:
        raise BadInput(f"{path}: all {count} rows have missing or infinite entries")
    if wordless:
        raise BadInput(f"{path}: column {(source.names or ('',))[0]!r} has nothing but numbers; name another by --text")
    targets_ends = (ends[0], ends[1]) if ends else None
    repeated = count - len(np.unique(np.concatenate(hashes))) if hashes else 0
    few, theirs = np.stack(example), np.stack(data)
    return Survey(count, bad, few, theirs, total / good, targets_ends, integer_ids, repeated, reduced)


def _together(source: Source) -> int:
    """Return the number of rows to look at together."""
    return max(1, min(_SURVEYED, _ENTRIES // math.prod(source.shape)))


def _hashes(path: Path, ids: pa.Array) -> NDArray[np.int64]:
    """Return numbers that are equal where ids are, and hardly ever elsewhere; they take less memory than ids do."""
    try:
        return np.fromiter((hash(str(id_)) for id_ in ids.to_pylist()), np.int64, len(ids))
    except Exception as error:  # times that Python does not have, and the like
        raise BadInput(f"{path}: the ids of type {ids.type} cannot be read: {line_of(error)}") from error


def open_like(
    path: Path, columns: list[str] | None, shape: tuple[int, ...], option: str, limit: int, *, raw: bool = False
) -> Source:
    """Open a file that an option names, whose columns and shape must be those of the data."""
    named = columns if path.suffix.lower() in TABLES else None
    try:
        source = open_data(path, named, limit=limit, raw=raw)
    except BadInput as error:
        hint = "; those of an array are called x0, x1, …" if named == list(entry_names(shape)) else ""
        raise BadInput(f"{option}: {error}{hint}") from error
    if source.shape != shape:
        raise BadInput(f"{option}: rows of {path} have shape {source.shape}, those of the data {shape}")
    return source


def read_all(source: Source, path: Path, dtype: str, option: str, limit: int) -> NDArray[Any]:
    """Read all rows of a small file (baselines, a background) that `open_like` has opened. They may take `limit` bytes
    together."""
    rows = _concatenated(source, path, option, limit)
    values, good = _cast(rows, dtype)
    if not good.all():
        bad = int(np.argmin(good))
        raise BadInput(f"{option}: {path}: {_what(source, rows[bad], dtype)} in row {bad} (the first row is 0)")
    return values


def _concatenated(source: Source, path: Path, option: str, limit: int) -> NDArray[Any]:
    chunks, entries = [], 0
    try:
        for raw in source.chunks(_together(source)):
            entries += raw.values.size
            check_unpacked(path, "what has been read of it", entries * BYTES, limit)
            chunks.append(raw.values)
    except BadInput as error:
        raise BadInput(f"{option}: {error}") from error
    if not entries:
        raise BadInput(f"{option}: {path} has no rows")
    return np.concatenate(chunks)


def _cast(values: NDArray[Any], dtype: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return values in the dtype, and True for each row that is usable: finite there, and whole for an integer type."""
    cast, fits = _entries(values, dtype)
    return cast, np.asarray(fits.reshape(len(values), -1).all(1))


def _entries(values: NDArray[Any], dtype: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return values in the dtype, and True for each that is usable; a text is if there is anything in it."""
    if dtype == TEXT:
        written = [bool(text and text.strip()) for text in values.flat]
        return values, np.array(written, dtype=bool).reshape(values.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
        return cast, np.isfinite(cast) if cast.dtype.kind == "f" else cast == values


def _fractions(values: NDArray[Any], dtype: str) -> NDArray[np.bool_]:
    """Return True for each value that is not whole, if these are to be."""
    if dtype == TEXT or np.dtype(dtype).kind == "f":
        return np.zeros(values.shape, bool)
    with np.errstate(invalid="ignore"):
        return np.isfinite(values) & (np.floor(values) != values)


def _what(source: Source, row: NDArray[Any], dtype: str) -> str:
    """Say what is wrong with a row."""
    _, fits = _entries(row, dtype)
    if fits.all():
        assert isinstance(source, TableSource)  # others have no targets that could be missing
        return f"no target (column {source.target!r})"
    broken = _fractions(row, dtype)
    where = tuple(int(i) for i in np.argwhere(broken if broken.any() else ~fits)[0])
    place = f"column {source.names[where[0]]!r}" if source.names else f"entry {where}"
    value = row[where]
    if dtype == TEXT:
        return f"{place} is missing or empty"
    if np.isnan(value):
        return f"{place} is missing or NaN"
    return f"{place} is {value}, which is not {'a whole number' if broken.any() else 'finite'} in {dtype}"


def _check_targets(path: Path, targets: NDArray[np.float64], start: int) -> None:
    wrong = ~np.isnan(targets) & ~((targets >= 0) & (targets == np.floor(targets)) & (targets < 2**31))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadInput(f"{path}: the target in row {start + row} is {targets[row]}; class indices 0, 1, … are needed")


def _whole(ids: pa.Array | None) -> bool:
    """Return True if ids are text that is whole numbers, in the only way to write these."""
    if ids is None or not pa.types.is_string(ids.type):
        return False
    try:
        return bool(pc.all(pc.equal(ids.cast(pa.int64()).cast(pa.string()), ids)).as_py())
    except pa.ArrowInvalid:
        return False
