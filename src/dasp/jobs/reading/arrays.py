"""Rows of a NumPy file, mapped into memory, or of a folder of images, decoded as they are needed."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from dasp.errors import BadInput, line_of

__all__ = ["ARRAYS", "IMAGES", "NPY", "NPZ", "Images", "entry_names", "load", "open_array", "open_images"]

IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_GREY = ("1", "L")
_COLOUR = ("RGB", "RGBA", "P", "CMYK", "YCbCr", "LA", "PA")


def load(file: Path, **options: Any) -> Any:
    """The array of a .npy file."""
    try:
        array = np.load(file, allow_pickle=False, **options)
    except Exception as error:
        raise _broken(file, error) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise BadInput(f"{file}: is an archive of arrays; they are called .npz")
    return array


def entry_names(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names for the entries of a row."""
    return tuple(f"x{i}" for i in range(shape[0]))


def _broken(file: Path, error: Exception) -> BadInput:
    """A damaged file can make a library raise anything."""
    return BadInput(f"{file}: cannot be read: {line_of(error)}")


@dataclass(frozen=True)
class NPY:
    """One array in a file of its own; rows along dimension 0."""

    file: Path

    @cached_property
    def array(self) -> Any:
        """The array, of which only what is used is read."""
        return load(self.file, mmap_mode="r")

    def __getstate__(self) -> dict[str, Path]:
        return {"file": self.file}  # not what was read of it

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return tuple(self.array.shape[1:])

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the entries of a row, if it has one dimension."""
        return entry_names(self.shape) if len(self.shape) == 1 else None

    @property
    def files(self) -> list[Path]:
        """What is read."""
        return [self.file]

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[tuple[int, Any, Any, Any]]:
        """Chunks of `size` rows: their number and values; there are neither ids nor targets."""
        for number in range(-(-len(self.array) // size)):
            if number not in skip:
                yield number, np.array(self.array[number * size : (number + 1) * size]), None, None


class NPZ(NPY):
    """The only array of an archive, compressed or not, read from front to back."""

    @cached_property
    def array(self) -> Any:
        """Shape and dtype of the array, without its entries."""
        with self._opened() as (_, shape, dtype):
            return np.broadcast_to(np.zeros((), dtype), shape)

    def _opened(self) -> Any:
        return _Member(self.file)

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[tuple[int, Any, Any, Any]]:
        """As of a plain array."""
        with self._opened() as (stream, shape, dtype):
            row = int(np.prod(shape[1:])) * dtype.itemsize
            for number in range(-(-shape[0] // size)):
                rows = min(size, shape[0] - number * size)
                try:
                    content = stream.read(rows * row)
                except Exception as error:
                    raise _broken(self.file, error) from error
                if len(content) < rows * row:
                    raise BadInput(f"{self.file}: ends in row {number * size + len(content) // max(row, 1)}")
                if number not in skip:
                    yield number, np.frombuffer(content, dtype).reshape(rows, *shape[1:]).copy(), None, None


class _Member:
    """The stream of the only array of an archive, behind its header: (stream, shape, dtype)."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __enter__(self) -> tuple[Any, tuple[int, ...], np.dtype[Any]]:
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
    """An array of numbers with at least one row."""
    source = ARRAYS[file.suffix.lower()](file)
    array = source.array
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{file}: has dtype {array.dtype}; numbers are needed")
    if array.ndim < 2:
        raise BadInput(f"{file}: has shape {array.shape}; rows along dimension 0 and features behind it are needed")
    return source


@dataclass(frozen=True)
class Images:
    """Image files of one size, in the order of their names: channels first, in [0, 1]."""

    folder: Path
    files: list[Path]
    shape: tuple[int, ...]
    names: None = None

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[tuple[int, Any, Any, Any]]:
        """Chunks of `size` images: their number, values (n, channels, height, width), and paths within the folder."""
        for number in range(-(-len(self.files) // size)):
            if number not in skip:
                files = self.files[number * size : (number + 1) * size]
                ids = pa.array([file.relative_to(self.folder).as_posix() for file in files])
                yield number, np.stack([self._decoded(file) for file in files]), ids, None

    def _decoded(self, file: Path) -> Any:
        pixels = _pixels(file)
        if pixels.shape != self.shape:
            first = self.files[0].relative_to(self.folder)
            raise BadInput(
                f"{file}: has shape {pixels.shape}, but {first} has {self.shape} (channels, height, width); "
                "images of one size are needed"
            )
        return pixels


def open_images(folder: Path) -> Images:
    """All images below a folder, but hidden ones."""
    found = (file for file in folder.rglob("*") if file.suffix.lower() in IMAGES)
    files = sorted(file for file in found if not any(part[0] == "." for part in file.relative_to(folder).parts))
    if not files:
        raise BadInput(f"{folder}: no images there ({', '.join(IMAGES)})")
    return Images(folder, files, _pixels(files[0]).shape)


def _pixels(file: Path) -> Any:
    """Channels first, in [0, 1]."""
    try:
        with Image.open(file) as image:
            if image.mode not in (*_GREY, *_COLOUR):
                raise BadInput(f"{file}: images of mode {image.mode} are not read; save them as a NumPy array")
            pixels = np.asarray(image.convert("L" if image.mode in _GREY else "RGB"), dtype=np.float32) / 255
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadInput(f"{file}: not an image that can be read ({line_of(error)})") from error
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)
