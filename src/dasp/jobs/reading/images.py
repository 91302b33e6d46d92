"""Rows that are images: a folder of files of one size, decoded as they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from dasp.errors import BadInput, line_of
from dasp.jobs.reading.source import RawChunk

__all__ = ["IMAGES", "Images", "open_images"]

IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_GREY = ("1", "L")
_COLOUR = ("RGB", "RGBA", "P", "CMYK", "YCbCr", "LA", "PA")


@dataclass(frozen=True)
class Images:
    """Image files of one size, in the order of their names: channels first, in [0, 1]."""

    folder: Path
    files: list[Path]
    shape: tuple[int, ...]
    names: None = None

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[RawChunk]:
        """Chunks of `size` images, (n, channels, height, width); their ids are paths within the folder."""
        for number in range(-(-len(self.files) // size)):
            if number not in skip:
                files = self.files[number * size : (number + 1) * size]
                ids = pa.array([file.relative_to(self.folder).as_posix() for file in files])
                yield RawChunk(number, np.stack([self._decoded(file) for file in files]), ids)

    def _decoded(self, file: Path) -> NDArray[np.float32]:
        pixels = _pixels(file)
        if pixels.shape != self.shape:
            first = self.files[0].relative_to(self.folder)
            raise BadInput(
                f"{file}: has shape {pixels.shape}, but {first} has {self.shape} (channels, height, width); "
                "images of one size are needed"
            )
        return pixels


def open_images(folder: Path) -> Images:
    """All images below a folder, except hidden ones."""
    found = (file for file in folder.rglob("*") if file.suffix.lower() in IMAGES)
    files = sorted(file for file in found if not any(part[0] == "." for part in file.relative_to(folder).parts))
    if not files:
        raise BadInput(f"{folder}: has no images ({', '.join(IMAGES)})")
    return Images(folder, files, _pixels(files[0]).shape)


def _pixels(file: Path) -> NDArray[np.float32]:
    """The pixels of an image, channels first, in [0, 1]."""
    try:
        with Image.open(file) as image:
            if image.mode not in (*_GREY, *_COLOUR):
                raise BadInput(f"{file}: images of mode {image.mode} are not read; save them as a NumPy array")
            converted = image.convert("L" if image.mode in _GREY else "RGB")
            pixels = np.asarray(converted, dtype=np.float32) / np.float32(255)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadInput(f"{file}: is not an image that can be read ({line_of(error)})") from error
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)
