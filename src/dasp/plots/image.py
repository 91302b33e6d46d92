"""Attributions of images over the picture: red where pixels raise the output, blue where they lower it.

All panels have one scale, which is centred at zero. Blocks and superpixels are outlined, and have the value of the
whole player: it is not divided by its size.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.collections import LineCollection

from dasp.display import channel_axis, overlay, pale, pixel_values, scaled_picture, uncertain
from dasp.errors import BadInput
from dasp.formatting import INTERVAL, plain
from dasp.plots.data import as_array, read
from dasp.plots.style import DIVERGING, SMALL, colour_bar, drawing, new_panels

__all__ = ["image"]

_INCH = 2.2  # of a panel


@drawing
def image(
    explanation: Any,
    *,
    data: Any = None,
    std: Any = None,
    feature_mask: Any = None,
    overlay: bool | None = None,
    limit: float | None = None,
    only_certain: bool = False,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw the attributions of images, summed over their channels.

    Args:
        explanation: a `shap.Explanation` of images, or attributions: (height, width), with channels first or last,
            or several rows of them. A dict of such by the methods' names draws them side by side.
        data: the pictures, in the shape of the attributions, if the explanation has none.
        std: the standard deviations of the attributions, if the explanation has none.
        feature_mask: the players, integers that broadcast to an image, or to rows of them that each have players of
            their own; they are outlined. Every pixel of a player has the player's value, as Captum gives it;
            explanations of `dasp.Explainer`, where it is divided among pixels, are added up.
        overlay: True to draw over the picture, False to draw beside it. By default one method is drawn over it, and
            several are drawn beside it.
        limit: the value of the darkest colour; by default the largest of all. What is larger has that colour.
        only_certain: leave out values whose 95 % interval includes 0. Without a feature_mask, the standard deviations
            of a pixel's channels are added: this is right if they are one player, and otherwise leaves out too much.
        title: above the panel of one method; those of a dict have their names there.
        ax: the axes to draw on, for one image of one method without its picture beside it.

    Returns:
        The axes, or an array of axes (rows, panels).

    >>> image(np.eye(4), data=np.ones((4, 4))).get_title()
    ''
    """
    methods = dict(explanation) if isinstance(explanation, Mapping) else {title: explanation}
    pictures, players, found = None, None, {}
    for name, one in methods.items():
        maps, own, players = _read(one, data, std, feature_mask, only_certain=only_certain)
        found[name], pictures = maps, pictures if own is None else own
    shape = _common_shape(found, pictures)
    over = len(methods) == 1 if overlay is None else overlay
    beside = pictures is not None and not over
    columns = (["image"] if beside else []) + list(methods)
    headings = {name: "\n".join(textwrap.wrap(plain(name), 26)) for name in columns}
    if ax is not None:
        if shape[0] * len(columns) > 1:
            raise BadInput(f"{shape[0] * len(columns)} panels do not fit on one ax: leave ax out for a new figure")
        panels = np.array([[ax]])
    else:
        aspect = min(max(shape[1] / shape[2], 0.3), 3.0)
        above = 0.25 + 0.15 * max(heading.count("\n") + 1 for heading in headings.values())
        size = _INCH * len(columns) + 1.1, (_INCH * aspect + 0.1) * shape[0] + above
        panels = new_panels(shape[0], len(columns), *size)
    largest = limit or max(float(np.abs(maps).max()) for maps in found.values()) or 1.0
    outlines = None if players is None else [_outlines(own) for own in players]
    for i, row in enumerate(panels):
        for name, axes in zip(columns, row, strict=True):
            if pictures is not None and beside and axes is row[0]:
                _picture(axes, pictures[i])
            else:
                _map(axes, found[name][i], largest, None if pictures is None or not over else pictures[i])
                if outlines is not None:
                    axes.add_collection(LineCollection(outlines[i % len(outlines)], colors="0.25", linewidths=0.5))
            if i == 0:
                axes.set_title(headings[name], fontsize=SMALL, parse_math=False)
            _framed(axes)
    label = "value" if feature_mask is None else "value of a player"
    colour_bar(panels, largest, f"{label}, where its interval does not include 0" if only_certain else label, aspect=25)
    return panels[0, 0] if panels.size == 1 else panels


def _common_shape(found: dict[str, np.ndarray], pictures: np.ndarray | None) -> tuple[int, ...]:
    """Return the shape (rows, height, width) of all maps and pictures, or say which has another one."""
    if not found:
        raise BadInput("there are no attributions to draw: the dict is empty")
    shape = next(iter(found.values())).shape
    different = [name for name, maps in found.items() if maps.shape != shape]
    if different:
        raise BadInput(f"attributions of {different[0]!r} have the shape {found[different[0]].shape}, not {shape}")
    if pictures is not None and pictures.shape[:3] != shape:
        raise BadInput(f"the pictures have the shape {pictures.shape}, and the attributions {shape}")
    return shape


def _read(
    given: Any, data: Any, std: Any, feature_mask: Any, *, only_certain: bool
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return the values of pixels, (rows, height, width), and pictures and players, (…, height, width, channels)."""
    found = read(given, data=data, std=std)
    if not 2 <= found.values.ndim <= 4:
        raise BadInput(
            f"values of the shape {found.values.shape} are not images: give (height, width), or channels as well"
        )
    if only_certain and found.std is None:
        raise BadInput("only_certain needs standard deviations, which these attributions do not have: give std")
    shape = found.values.shape
    one = found.one_row or found.data is None or found.data.ndim < 4
    axis = (2 if found.one_row else 3) if found.spread else _channel_axis(shape, one=one)
    values = _channels_last(found.values, axis)
    deviations = None if found.std is None else _channels_last(found.std, axis)
    pictures = found.data
    if pictures is not None:
        alike = pictures.shape == shape
        pictures = _channels_last(pictures, axis if alike else _channel_axis(pictures.shape, one=pictures.ndim == 3))
    players = None if feature_mask is None else _players(as_array(feature_mask), values.shape)
    if players is not None:
        values = _of_players(values, players, add=found.spread)
        deviations = None if deviations is None else _of_players(deviations, players, add=found.spread)
        pixels = pixel_values(values, players)
        wide = None if deviations is None else np.sqrt(pixel_values(np.square(deviations), players))
    else:
        pixels = values.sum(-1)
        wide = None if deviations is None else deviations.sum(-1)
    if only_certain and wide is not None:
        pixels = np.where(uncertain(pixels, INTERVAL * wide), 0, pixels)
    return pixels, pictures, players


def _channel_axis(shape: tuple[int, ...], *, one: bool) -> int | None:
    """Return the axis of the channels of one image or of several; None if there are none."""
    axis = channel_axis(shape)
    return None if axis == 0 and not one else axis


def _channels_last(images: np.ndarray, axis: int | None) -> np.ndarray:
    """(rows, height, width, channels) of one image or of several."""
    if axis is None:
        return images.reshape(-1, *images.shape[-2:], 1)
    moved = np.moveaxis(images, axis, -1)
    return moved if moved.ndim == 4 else moved[None]


def _players(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the number of every entry's player, (1 or rows, height, width, channels), from 0 in each row."""
    rows, height, width, channels = shape
    given = mask.shape
    if mask.ndim == 3 and channels == 1 and given == (rows, height, width):
        mask = mask[:, None]
    while mask.ndim < 4:
        mask = mask[None]
    if mask.shape[1:3] != (height, width) or mask.shape[3] not in (1, channels):
        mask = np.moveaxis(mask, 1, 3)
    try:
        whole = np.broadcast_to(mask, (len(mask), *shape[1:]))
        np.broadcast_to(whole, shape)
    except ValueError:
        raise BadInput(
            f"feature_mask has the shape {given}, which does not broadcast to {rows} images of (height, width, "
            f"channels) {shape[1:]}"
        ) from None
    return np.stack([np.unique(own, return_inverse=True)[1].reshape(shape[1:]) for own in whole])


def _of_players(values: np.ndarray, players: np.ndarray, *, add: bool) -> np.ndarray:
    """Return the value of every entry's player: the mean of its entries, which all have it, or their sum."""
    result = np.empty_like(values)
    for row, own, entries in zip(result, np.broadcast_to(players, values.shape), values, strict=True):
        numbers = own.ravel()
        sums = np.bincount(numbers, entries.ravel())
        row[...] = (sums if add else sums / np.bincount(numbers))[own]
    return result


def _outlines(players: np.ndarray) -> list[list[tuple[float, float]]]:
    """Return the lines between pixels of different players, (height, width, channels)."""
    below = (players[1:] != players[:-1]).any(-1)
    right = (players[:, 1:] != players[:, :-1]).any(-1)
    lines = [[(x - 0.5, y + 0.5), (x + 0.5, y + 0.5)] for y, x in np.argwhere(below)]
    return lines + [[(x + 0.5, y - 0.5), (x + 0.5, y + 0.5)] for y, x in np.argwhere(right)]


def _picture(axes: Any, picture: np.ndarray) -> None:
    """Draw a picture (height, width, channels) whose numbers may be on any scale."""
    scaled = scaled_picture(picture)
    if scaled.shape[2] == 1:
        axes.imshow(scaled[..., 0], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    else:
        axes.imshow(scaled, interpolation="nearest")


def _map(axes: Any, values: np.ndarray, limit: float, picture: np.ndarray | None) -> None:
    """Draw values as colours; over a picture, the smaller they are the less they cover."""
    if picture is None:
        axes.imshow(values, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
        return
    axes.imshow(pale(scaled_picture(picture)), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    places, cover = overlay(values, limit)
    colours = colormaps[DIVERGING](0.5 + 0.5 * places)
    colours[..., 3] = cover
    axes.imshow(colours, interpolation="nearest")


def _framed(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set(color="0.8", linewidth=0.6)
