"""Rows of a NumPy file, read piece by piece: of an array by itself (.npy), or of the only one in an archive (.npz).

Nothing is mapped into memory: where a mapped file gets shorter, the system ends the process.
"""

from __future__ import annotations

import math
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasp.errors import BadInput, line_of
from dasp.jobs.reading.source import BYTES, RawChunk, check_file, check_unpacked

__all__ = ["ARRAYS", "NPY", "NPZ", "entry_names", "load", "open_array"]

_MAGIC, _ARCHIVE = b"\x93NUMPY", b"PK"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # NumPy's; others unpack all that they are given at once
_DIMENSIONS = 32


class _Header(NamedTuple):
    """The beginning of an array, which describes the rest."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """The size of all entries."""
        return math.prod(self.shape) * self.dtype.itemsize


def load(file: Path, limit: int) -> NDArray[Any]:
    """Return the array of a .npy file, of at most `limit` bytes."""
    with NPY.opened(file) as (stream, header):
        check_unpacked(file, "the array", header.bytes, limit)
        entries = np.frombuffer(_read(file, stream, header.bytes), header.dtype)
    return entries.reshape(header.shape, order="F" if header.fortran else "C")


def entry_names(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return names for the entries of a row: x0, x1, …"""
    return tuple(f"x{i}" for i in range(shape[0]))


@dataclass(frozen=True)
class NPY:
    """One array in a file of its own; rows along dimension 0."""

    file: Path
    rows: int
    shape: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of a row's entries: x0, x1, … if it has one dimension."""
        return entry_names(self.shape) if len(self.shape) == 1 else None

    @property
    def files(self) -> list[Path]:
        """The only file."""
        return [self.file]

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[RawChunk]:
        """Yield chunks of `size` rows, which have neither ids nor targets."""
        with self.opened(self.file) as (stream, header):
            if header.shape != (self.rows, *self.shape):
                raise BadInput(f"{self.file}: has changed while it was read")
            start = stream.tell()
            for number in range(-(-self.rows // size)):
                if number not in skip:
                    rows = range(number * size, min(self.rows, (number + 1) * size))
                    yield RawChunk(number, _rows(self.file, stream, start, header, rows))

    @staticmethod
    @contextmanager
    def opened(file: Path) -> Iterator[tuple[IO[bytes], _Header]]:
        """Give a stream of the entries, and the header."""
        check_file(file)
        try:
            stream = file.open("rb")
        except OSError as error:
            raise _broken(file, error) from error
        with stream:
            magic = stream.read(len(_MAGIC))
            if magic.startswith(_ARCHIVE):
                raise BadInput(f"{file}: is an archive of arrays; its name should end in .npz")
            if magic != _MAGIC:
                raise BadInput(f"{file}: is not a file of numpy.save")
            stream.seek(0)
            yield stream, _header(file, stream, os.fstat(stream.fileno()).st_size)


class NPZ(NPY):
    """The only array of an archive, compressed or not, read from front to back."""

    @staticmethod
    @contextmanager
    def opened(file: Path) -> Iterator[tuple[IO[bytes], _Header]]:
        """Give a stream of the entries, unpacked as they are read, and the header."""
        check_file(file)
        try:
            archive = zipfile.ZipFile(file)
        except Exception as error:
            raise _broken(file, error) from error
        with archive:
            members = archive.infolist()
            if len(members) != 1:
                names = ", ".join(member.filename.removesuffix(".npy") for member in members[:5])
                raise BadInput(f"{file}: has {len(members)} arrays ({names}); one is needed")
            if members[0].compress_type not in _METHODS:
                raise BadInput(f"{file}: is not compressed as NumPy does it; write it by numpy.savez_compressed")
            try:
                stream = archive.open(members[0])
            except Exception as error:
                raise _broken(file, error) from error
            with stream:
                header = _header(file, stream, members[0].file_size)
                if header.fortran and len(header.shape) > 1:
                    raise BadInput(f"{file}: the array is in Fortran order; save np.ascontiguousarray of it")
                yield stream, header


ARRAYS: dict[str, type[NPY]] = {".npy": NPY, ".npz": NPZ}


def open_array(file: Path, limit: int) -> NPY:
    """Open the array of a file, which must have rows and features. A row may take `limit` bytes."""
    kind = ARRAYS[file.suffix.lower()]
    with kind.opened(file) as (_, header):
        rows, *shape = header.shape or (0,)
    if not shape or 0 in shape:
        raise BadInput(f"{file}: has shape {header.shape}; rows along dimension 0 and inputs along others are needed")
    check_unpacked(file, "a row", math.prod(shape) * BYTES, limit)
    return kind(file, rows, tuple(shape))


def _header(file: Path, stream: IO[bytes], size: int) -> _Header:
    """Read the header of an array whose file has so many bytes. Then the stream is at the first entry."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers by old versions of Python
            version = np.lib.format.read_magic(stream)
            header = _Header(*_HEADERS[version](stream))
    except KeyError as error:
        raise BadInput(f"{file}: is of another version of NumPy's format, {line_of(error)}") from error
    except Exception as error:
        raise _broken(file, error) from error
    if len(header.shape) > _DIMENSIONS or any(type(n) is not int or not 0 <= n < 2**63 for n in header.shape):
        raise BadInput(f"{file}: is damaged: no array has the shape in its header")
    if header.dtype.kind not in "fiub":
        raise BadInput(f"{file}: has dtype {header.dtype}; numbers are needed")
    if stream.tell() + header.bytes > size:
        raise BadInput(f"{file}: is truncated: it ends before an array of shape {header.shape} does")
    return header


def _rows(file: Path, stream: IO[bytes], start: int, header: _Header, rows: range) -> NDArray[Any]:
    """Read some rows of the array that begins at `start`."""
    count, *shape = header.shape
    item = header.dtype.itemsize
    if not header.fortran:
        row = math.prod(shape) * item
        content = _read(file, stream, len(rows) * row, start + rows[0] * row)
        return np.frombuffer(content, header.dtype).reshape(len(rows), *shape).copy()
    columns = (
        _read(file, stream, len(rows) * item, start + (column * count + rows[0]) * item)
        for column in range(math.prod(shape))
    )
    return np.frombuffer(b"".join(columns), header.dtype).reshape(*reversed(shape), len(rows)).T.copy()


def _read(file: Path, stream: IO[bytes], size: int, place: int | None = None) -> bytes:
    """Read so many bytes from a place on, or from where the stream is."""
    try:
        if place is not None:
            stream.seek(place)
        content = stream.read(size)
    except EOFError:  # an archive that is shorter than it says
        content = b""
    except Exception as error:
        raise _broken(file, error) from error
    if len(content) < size:
        raise BadInput(f"{file}: is truncated")
    return content


def _broken(file: Path, error: Exception) -> BadInput:
    """Return the error for a file that a library cannot read; it can raise anything if the file is damaged."""
    return BadInput(f"{file}: cannot be read: {line_of(error)}")
