"""Rows that are images: a folder of files of one size, decoded as they are needed."""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from dasp.errors import BadInput, line_of
from dasp.jobs.options import is_utf8
from dasp.jobs.reading.source import BYTES, RawChunk, check_unpacked, is_folder, muted, texts

__all__ = ["IMAGES", "ImageFolder", "image_files", "open_images"]

IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # whatever its name: other formats can start programs
_GREY = ("1", "L")
_ALPHA = ("RGBA", "LA", "PA")
_COLOUR = ("RGB", "P", "CMYK", "YCbCr", *_ALPHA)


logging.getLogger("PIL").addHandler(logging.NullHandler())  # what it would print is in the error as well


class _Decoded(NamedTuple):
    """The pixels of an image, (channels, height, width) in [0, 1], and what was lost of them."""

    pixels: NDArray[np.float32]
    reduced: tuple[str, ...]


@dataclass(frozen=True)
class ImageFolder:
    """Image files of one size, in the order of their names: channels first, in [0, 1]."""

    folder: Path
    files: list[Path]
    shape: tuple[int, ...]
    limit: int  # bytes that an image may take
    names: None = None

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[RawChunk]:
        """Yield chunks of `size` images, (n, channels, height, width); their ids are paths within the folder."""
        for number in range(-(-len(self.files) // size)):
            if number not in skip:
                files = self.files[number * size : (number + 1) * size]
                ids = texts([file.relative_to(self.folder).as_posix() for file in files])
                decoded = [self._decoded(file) for file in files]
                reduced = Counter(what for image in decoded for what in image.reduced)
                yield RawChunk(number, np.stack([image.pixels for image in decoded]), ids, reduced=reduced)

    def _decoded(self, file: Path) -> _Decoded:
        decoded = _decode(file, self.limit)
        if decoded.pixels.shape != self.shape:
            first = self.files[0].relative_to(self.folder)
            raise BadInput(
                f"{file}: has shape {decoded.pixels.shape}, but {first} has {self.shape} (channels, height, width); "
                "images of one size are needed"
            )
        return decoded


def image_files(folder: Path) -> list[Path]:
    """Return all images below a folder, except hidden ones."""
    try:
        found = [file for file in folder.rglob("*") if file.suffix.lower() in IMAGES]
    except OSError as error:
        raise BadInput(f"{folder}: cannot be read: {line_of(error)}") from error
    shown = (file for file in found if not any(part[0] == "." for part in file.relative_to(folder).parts))
    files = sorted(file for file in shown if not is_folder(file))
    if not files:
        raise BadInput(f"{folder}: has no images ({', '.join(IMAGES)})")
    for file in files:
        if not is_utf8(str(file)):  # it is the row's id
            raise BadInput(f"{folder}: the name {file.name!r} is not UTF-8; rename the file")
    return files


def open_images(folder: Path, limit: int) -> ImageFolder:
    """Open the images of a folder, each of which may take `limit` bytes."""
    files = image_files(folder)
    return ImageFolder(folder, files, _decode(files[0], limit).pixels.shape, limit)


def _decode(file: Path, limit: int) -> _Decoded:
    """Decode an image, turned as its EXIF data says."""
    try:
        with _unlimited(), muted(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, about what is odd in a file
            # By its path a file could be mapped into memory, which turns some TIFF files wrongly (Pillow 13).
            with file.open("rb") as stream, Image.open(stream, formats=_FORMATS) as image:
                mode = _mode(file, image)
                check_unpacked(file, "the image", math.prod(image.size) * len(mode) * BYTES, limit)
                reduced = tuple(_reduced(image))
                turned = ImageOps.exif_transpose(image)
                pixels = np.array(turned.convert(mode), dtype=np.float32)
    except BadInput:
        raise
    except UnidentifiedImageError as error:
        raise BadInput(f"{file}: is not an image that can be read; {', '.join(_FORMATS)} are known") from error
    except Exception as error:  # damaged files make Pillow raise anything
        raise BadInput(f"{file}: is not an image that can be read ({line_of(error)})") from error
    pixels /= np.float32(255)
    return _Decoded(pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0), reduced)


def _mode(file: Path, image: Image.Image) -> str:
    """Return Pillow's name for grey, or for red, green and blue."""
    if image.mode not in (*_GREY, *_COLOUR):
        raise BadInput(f"{file}: images of mode {image.mode} are not read; save them as a NumPy array")
    return "L" if image.mode in _GREY else "RGB"


def _reduced(image: Image.Image) -> Iterator[str]:
    """Yield what is lost when the image becomes grey or red, green and blue in 8 bits."""
    if image.mode in _ALPHA or "transparency" in image.info:
        yield "transparency is left out"
    if any(";16" in str(tile) for tile in getattr(image, "tile", ())):
        yield "16 bits of a colour become 8"


@contextmanager
def _unlimited() -> Iterator[None]:
    """Put Pillow's own limit on pixels aside: there is ours, which can be raised."""
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before
