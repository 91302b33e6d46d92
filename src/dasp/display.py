"""Decisions that figures and pages share: the players that they name, and the colours of values.

    players    the largest by name, all others as one sum; values are hatched if their 95 % interval includes 0
    images     the value of a pixel is the sum over its players; red raises the output, blue lowers it

It needs NumPy alone: pages are written without matplotlib and without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.formatting import interval_of

__all__ = [
    "CHANNELS", "channel_axis", "data_fractions", "half_of_mean", "half_of_sum",
    "largest", "overlay", "pale", "pixel_values", "scaled_picture", "uncertain",
]  # fmt: skip

CHANNELS = (1, 3, 4)  # of an image: grey, RGB, RGBA
_PALEST = 0.6  # the grey of black below an overlay


def largest(sizes: NDArray[Any], most: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the places of the largest values, in decreasing order, and of all others, which share the last line; a
    single one never has that line for itself.

    >>> largest(np.array([1.0, -3.0, 2.0, 0.5]), most=3)
    (array([1, 2]), array([0, 3]))
    """
    order = np.argsort(-np.abs(sizes), kind="stable")
    number = len(order) if len(order) <= most else max(1, most - 1)
    return order[:number], order[number:]


def uncertain(values: Any, halves: Any) -> Any:
    """Return where the interval value ± half includes 0; an exact 0 (half = 0) is certain.

    >>> uncertain(np.array([1.0, 1.0, 0.0]), np.array([0.5, 2.0, 0.0])).tolist()
    [False, True, False]
    """
    return (np.abs(values) <= halves) & (np.asarray(halves) > 0)


def half_of_sum(halves: NDArray[Any]) -> float:
    """Return half of the interval of a sum, as if the errors of its terms were independent."""
    return float(np.sqrt(np.square(halves).sum()))


def half_of_mean(rows: int, spread: float, inner: float) -> float:
    """Return half of the 95 % interval of a mean over rows: √(t² s²/n + h²).

    Other rows of the same kind would have another mean (spread s, Student's quantile t), and the values themselves
    have errors (h, which is `inner`).
    """
    return float(np.hypot(interval_of(rows) * spread / np.sqrt(rows) if spread else 0.0, inner))


def data_fractions(data: Any) -> NDArray[Any] | None:
    """Return how large numbers are, from 0 (the 5th percentile) to 1 (the 95th); NaN for what is missing, and None if
    none of them is a number.

    >>> data_fractions([0.0, 1.0, 2.0, None]).round(2).tolist()
    [0.0, 0.5, 1.0, nan]
    """
    try:
        numbers = np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    known = np.isfinite(numbers)
    if not known.any():
        return None
    low, high = np.percentile(numbers[known], (5, 95))
    return np.where(known, np.clip((numbers - low) / ((high - low) or 1.0), 0, 1), np.nan)


def channel_axis(shape: Sequence[int]) -> int | None:
    """Return the axis of the channels of one image or of several: the third from the end, or the last; None if neither
    has as many entries as an image has channels.

    >>> channel_axis((3, 28, 28)), channel_axis((10, 28, 28, 1)), channel_axis((28, 28))
    (0, 3, None)
    """
    if len(shape) < 3:
        return None
    first, last = len(shape) - 3, len(shape) - 1
    if shape[last] in CHANNELS and shape[first] not in CHANNELS:
        return last
    return first if shape[first] in CHANNELS else None


def pixel_values(values: NDArray[Any], players: NDArray[Any]) -> NDArray[Any]:
    """Return the sum over the players of a pixel, each of them once, though it may have several channels.

    Args:
        values: the value of every entry's player, (…, channels).
        players: the number of every entry's player, in a shape that broadcasts to it.
    """
    alike = (players[..., :, None] == players[..., None, :]).sum(-1)
    return (values / alike).sum(-1)


def scaled_picture(picture: NDArray[Any]) -> NDArray[Any]:
    """Return an image, whose numbers may be on any scale, from 0 to 1; one that is on this scale already stays so."""
    known = np.nan_to_num(np.asarray(picture, dtype=np.float64))
    low, high = (0.0, 1.0) if known.min() >= 0 and 0.2 < known.max() <= 1 else (known.min(), known.max())
    return np.clip((known - low) / ((high - low) or 1.0), 0, 1)


def pale(picture: NDArray[Any]) -> NDArray[Any]:
    """Return the light grey image (…) that is below an overlay, of an image (…, channels) from 0 to 1."""
    return _PALEST + (1 - _PALEST) * picture[..., :3].mean(-1)


def overlay(values: NDArray[Any], limit: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the place of values on the scale of colours, from −1 to 1, and how much they cover the image below, from
    0 to 1: the smaller they are, the less."""
    fractions = np.clip(np.nan_to_num(values / (limit or 1.0)), -1, 1)
    sizes = np.abs(fractions)
    return np.sign(fractions) * (0.35 + 0.65 * sizes), np.minimum(1, 0.9 * np.sqrt(sizes))
