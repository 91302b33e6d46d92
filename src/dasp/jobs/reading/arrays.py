"""Rows of a NumPy file: an array mapped into memory (.npy), or read as a stream (.npz)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dasp.errors import BadInput, line_of
from dasp.jobs.reading.source import RawChunk

__all__ = ["ARRAYS", "NPY", "NPZ", "entry_names", "load", "open_array"]


def load(file: Path, *, mapped: bool = False) -> NDArray[Any]:
    """The array of a .npy file; if `mapped`, only what is used of it is read."""
    try:
        array = np.load(file, allow_pickle=False, mmap_mode="r" if mapped else None)
    except Exception as error:
        raise _broken(file, error) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise BadInput(f"{file}: is an archive of arrays; its name should end in .npz")
    return array


def entry_names(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names for the entries of a row: x0, x1, …"""
    return tuple(f"x{i}" for i in range(shape[0]))


def _broken(file: Path, error: Exception) -> BadInput:
    """The error for a file that a library cannot read; it can raise anything if the file is damaged."""
    return BadInput(f"{file}: cannot be read: {line_of(error)}")


@dataclass(frozen=True)
class NPY:
    """One array in a file of its own; rows along dimension 0."""

    file: Path

    @cached_property
    def array(self) -> NDArray[Any]:
        """The array, of which only what is used is read."""
        return load(self.file, mapped=True)

    def __getstate__(self) -> dict[str, Path]:
        return {"file": self.file}  # not what was read of it

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return tuple(self.array.shape[1:])

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of a row's entries: x0, x1, … if it has one dimension."""
        return entry_names(self.shape) if len(self.shape) == 1 else None

    @property
    def files(self) -> list[Path]:
        """The only file."""
        return [self.file]

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[RawChunk]:
        """Chunks of `size` rows, which have neither ids nor targets."""
        for number in range(-(-len(self.array) // size)):
            if number not in skip:
                yield RawChunk(number, np.array(self.array[number * size : (number + 1) * size]))


class NPZ(NPY):
    """The only array of an archive, compressed or not, read from front to back."""

    @cached_property
    def array(self) -> NDArray[Any]:
        """An array of the same shape and dtype, without the entries."""
        with _Member(self.file) as (_, shape, dtype):
            return np.broadcast_to(np.zeros((), dtype), shape)

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[RawChunk]:
        """Chunks of `size` rows; those to skip are read as well, as the stream has no way around them."""
        with _Member(self.file) as (stream, shape, dtype):
            row = int(np.prod(shape[1:])) * dtype.itemsize
            for number in range(-(-shape[0] // size)):
                rows = min(size, shape[0] - number * size)
                try:
                    content = stream.read(rows * row)
                except Exception as error:
                    raise _broken(self.file, error) from error
                if len(content) < rows * row:
                    raise BadInput(f"{self.file}: is truncated in row {number * size + len(content) // max(row, 1)}")
                if number not in skip:
                    yield RawChunk(number, np.frombuffer(content, dtype).reshape(rows, *shape[1:]).copy())


class _Member:
    """The only array of an archive as a context: a stream of its entries, its shape and its dtype."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __enter__(self) -> tuple[IO[bytes], tuple[int, ...], np.dtype[Any]]:
        try:
            self.archive = zipfile.ZipFile(self.file)
        except (OSError, zipfile.BadZipFile) as error:
            raise _broken(self.file, error) from error
        names = [name.removesuffix(".npy") for name in self.archive.namelist()]
        if len(names) != 1:
            raise BadInput(f"{self.file}: has {len(names)} arrays ({', '.join(names[:5])}); one is needed")
        try:
            self.stream = self.archive.open(self.archive.namelist()[0])
            version = np.lib.format.read_magic(self.stream)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = header(self.stream)
        except Exception as error:
            raise _broken(self.file, error) from error
        if fortran and len(shape) > 1:
            raise BadInput(f"{self.file}: the array is in Fortran order; save np.ascontiguousarray of it")
        return self.stream, shape, dtype

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.archive.close()


ARRAYS: dict[str, type[NPY]] = {".npy": NPY, ".npz": NPZ}


def open_array(file: Path) -> NPY:
    """The array of a file, which must have numbers, rows and features."""
    source = ARRAYS[file.suffix.lower()](file)
    array = source.array
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{file}: has dtype {array.dtype}; numbers are needed")
    if array.ndim < 2:
        raise BadInput(f"{file}: has shape {array.shape}; rows along dimension 0 and inputs along others are needed")
    return source
