"""Pictures in a page: images, and maps of values in red and blue, as addresses that hold the picture itself."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["address", "coloured", "enlarged", "factor_of", "map_of", "mapped", "outlined", "picture_of"]

# ColorBrewer's RdBu, from blue to red, as the plots have it.
_SCALE = np.array([
    (5, 48, 97), (33, 102, 172), (67, 147, 195), (146, 197, 222), (209, 229, 240), (247, 247, 247),
    (253, 219, 199), (244, 165, 130), (214, 96, 77), (178, 24, 43), (103, 0, 31),
])  # fmt: skip
_SMALLEST = 192  # pixels of the longer side, below which pixels are enlarged by whole numbers


def coloured(fractions: NDArray[Any]) -> NDArray[np.uint8]:
    """Colours (…, 3) of values from −1 to 1.

    >>> coloured(np.array([-1.0, 0.0, 1.0])).tolist()
    [[5, 48, 97], [247, 247, 247], [103, 0, 31]]
    """
    places = (np.clip(np.nan_to_num(fractions), -1, 1) + 1) * (len(_SCALE) - 1) / 2
    channels = [np.interp(places, range(len(_SCALE)), _SCALE[:, channel]) for channel in range(3)]
    return np.stack(channels, -1).round().astype(np.uint8)


def picture_of(data: NDArray[Any]) -> NDArray[np.uint8]:
    """An image (channels, height, width), whose numbers may be on any scale, as colours (height, width, 3)."""
    last = np.moveaxis(np.nan_to_num(np.asarray(data, dtype=np.float64)), 0, -1)[..., :3]
    low, high = (0.0, 1.0) if last.min() >= 0 and 0.2 < last.max() <= 1 else (last.min(), last.max())
    scaled = np.clip((last - low) / ((high - low) or 1.0), 0, 1)
    return np.broadcast_to((255 * scaled).round().astype(np.uint8), (*last.shape[:2], 3))


def map_of(values: NDArray[Any], mask: NDArray[Any] | None, shape: tuple[int, int, int]) -> NDArray[Any]:
    """Values of players as those of pixels, (height, width): the sum over the players of a pixel, each once."""
    if mask is None:
        return values.reshape(shape).sum(0)
    players = np.asarray(mask).reshape(shape)
    alike = (players[:, None] == players[None]).sum(1)  # channels of the same player
    return (values[players] / alike).sum(0)


def mapped(values: NDArray[Any], limit: float, picture: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """A map of values; over a picture, the smaller they are the less they cover it."""
    fractions = values / (limit or 1.0)
    if picture is None:
        return coloured(fractions)
    pale = 0.45 * 255 + 0.55 * picture.mean(-1, keepdims=True)
    cover = np.minimum(1, 0.9 * np.sqrt(np.abs(np.nan_to_num(fractions))))[..., None]
    strong = coloured(np.sign(fractions) * (0.35 + 0.65 * np.abs(fractions)))
    return ((1 - cover) * pale + cover * strong).round().astype(np.uint8)


def outlined(colours: NDArray[np.uint8], mask: NDArray[Any], factor: int) -> NDArray[np.uint8]:
    """An enlarged picture with lines between pixels of different players (channels, height, width)."""
    wide = np.repeat(np.repeat(mask, factor, 1), factor, 2)
    edge = np.zeros(wide.shape[1:], dtype=bool)
    edge[1:] |= (wide[:, 1:] != wide[:, :-1]).any(0)
    edge[:, 1:] |= (wide[:, :, 1:] != wide[:, :, :-1]).any(0)
    return np.where(edge[..., None], np.uint8(70), enlarged(colours, factor))


def enlarged(colours: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """Every pixel as a square of pixels."""
    return np.repeat(np.repeat(colours, factor, 0), factor, 1)


def factor_of(height: int, width: int) -> int:
    """By how much a small picture is enlarged, so that there is room for outlines."""
    return max(1, -(-_SMALLEST // max(height, width)))


def address(colours: NDArray[np.uint8]) -> str:
    """A picture as an address; with few colours, those are listed once."""
    image = Image.fromarray(np.ascontiguousarray(colours))
    if image.getcolors(256) is not None:
        image = image.quantize(256, dither=Image.Dither.NONE)
    stream = io.BytesIO()
    image.save(stream, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
