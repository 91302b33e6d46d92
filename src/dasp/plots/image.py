"""Images beside the attributions of their pixels or regions, which are red where they raise the output, and blue where
they lower it.

All panels have one scale, which is centred at zero. A few extreme pixels do not rule it: they are beyond its ends,
which are then pointed, and it says how many there are. Blocks and superpixels are outlined, and have the value of the
whole player: it is not divided by its size.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from dasp.display import channel_axis, overlay, pale, pixel_values, scaled_picture, uncertain
from dasp.errors import BadInput
from dasp.formatting import INTERVAL, number, plain
from dasp.plots.data import PlotData, as_array, read_entries
from dasp.plots.style import DIVERGING, SMALL, TEXT, Panels, colour_bar, drawing, new_panels

__all__ = ["image"]

_INCH, _LARGE = 2.2, 3.2  # of a panel among several, and of one image and its map
_HEADING = 30  # characters above a panel
_BEYOND, _EXTREME = (
    0.02,
    1.5,
)  # the part of the pixels that may be beyond the scale; how many times as large one has to be


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
    """Draw images and, beside each, the attributions of its pixels or regions, summed over the channels.

    Args:
        explanation: a `shap.Explanation` of images, or attributions: (height, width), with channels first or last,
            or several rows of them. A dict of such by the methods' names draws them side by side.
        data: the pictures, in the shape of the attributions, if the explanation has none.
        std: the standard deviations of the attributions, if the explanation has none.
        feature_mask: the players, integers that broadcast to an image, or to rows of them that each have players of
            their own; by default those that the explanation keeps. They are outlined, and every pixel of a player has
            the player's value, as Captum gives it; explanations of `dasp.Explainer`, where it is divided among pixels,
            are added up. Players whose 95 % interval includes 0 are hatched.
        overlay: True to draw over the picture alone, False to draw on white beside it. By default regions
            of one method are drawn over a pale picture beside the picture itself, pixels and several methods on white.
        limit: the value of the darkest colour, which what is larger has, too. By default the largest of all regions; of
            single pixels, a value that 98 % of them do not exceed, if some are much larger, which the scale then says.
        only_certain: leave out values whose 95 % interval includes 0. Without players, the standard deviations of a
            pixel's channels are added: this is right if they are one player, and otherwise leaves out too much.
        title: above the figure. Above each map is the output that is explained, if its name is known.
        ax: the axes to draw on, for one image of one method, over the picture or without it.

    Returns:
        The axes, or an array of axes (rows, panels); both have the `figure`.

    >>> panels = image(np.eye(4), data=np.ones((4, 4)))
    >>> panels.shape, len(panels.figure.axes)
    ((1, 2), 3)
    """
    methods = dict(explanation) if isinstance(explanation, Mapping) else {"": explanation}
    found: dict[str, _Maps] = {}
    for name, one in methods.items():
        found[name] = _read(one, data, std, feature_mask, only_certain=only_certain)
    pictures = next((maps.pictures for maps in reversed(found.values()) if maps.pictures is not None), None)
    shape = _common_shape(found, pictures)
    single = len(methods) == 1
    over = pictures is not None and single and overlay is not False
    over = over and (overlay is True or ax is not None or next(iter(found.values())).outlined)
    beside = pictures is not None and overlay is not True and (ax is None or overlay is False)
    columns = (["image"] if beside else []) + list(methods)
    if ax is not None:
        if shape[0] * len(columns) > 1:
            raise BadInput(f"{shape[0] * len(columns)} panels do not fit on one ax: leave ax out for a new figure")
        panels = np.array([[ax]])
    else:
        panels = _panels(shape, len(columns), title)
    scale = _Scale.of(list(found.values()), limit)
    hatched = False
    for i, row in enumerate(panels):
        for place, axes in enumerate(row):
            name = columns[place]
            if beside and not place:
                _picture(axes, pictures[i])  # type: ignore[index]
                heading = "image" if i == 0 else ""
            else:
                maps = found[name]
                _map(axes, maps.values[i], scale.limit, pictures[i] if over else None)  # type: ignore[index]
                hatched |= _outlined(axes, maps, i)
                heading = "\n".join(filter(None, (name if i == 0 else "", maps.headings[i] if single else "")))
            lines = [line for part in heading.split("\n") for line in textwrap.wrap(plain(part), _HEADING)]
            if ax is not None and title:
                lines = [*textwrap.wrap(plain(title), _HEADING), *lines]
            axes.set_title("\n".join(lines), fontsize=SMALL, parse_math=False)
            _framed(axes)
    outlined = any(maps.outlined for maps in found.values())
    notes = [f"value of a {'region' if outlined else 'pixel'}", scale.note]
    notes += ["only where its interval does not include 0"] * only_certain
    notes += ["hatched: the 95 % interval includes 0"] * hatched
    ends = "both" if scale.note else "neither"
    colour_bar(panels, scale.limit, "; ".join(filter(None, notes)), aspect=25, extend=ends)
    return panels[0, 0] if panels.size == 1 else panels


@dataclass(frozen=True)
class _Maps:
    """The attributions of images by one method."""

    values: np.ndarray  # (rows, height, width)
    pictures: np.ndarray | None  # (rows, height, width, channels)
    players: np.ndarray | None  # (1 or rows, height, width, channels), from 0 in each row
    unsure: np.ndarray | None  # True for pixels of regions whose interval includes 0, if these are to be hatched
    headings: list[str]  # what is explained of each row, where that is known

    @property
    def outlined(self) -> bool:
        """True if some player has several pixels."""
        return self.players is not None and any(own[..., 0].max() + 1 < own[..., 0].size for own in self.players)


@dataclass(frozen=True)
class _Scale:
    """The value of the darkest colour, and what to say if others are beyond it."""

    limit: float
    note: str = ""

    @staticmethod
    def of(maps: Sequence[_Maps], limit: float | None) -> _Scale:
        """Return the largest value of all; of pixels, one that all but the most extreme do not exceed."""
        sizes = np.sort(np.abs(np.concatenate([each.values.ravel() for each in maps])))
        largest = float(sizes[-1]) or 1.0
        if limit is not None:
            return _Scale(float(limit))
        some = sizes[sizes > 0]
        most = float(some[len(some) - 1 - int(_BEYOND * len(some))]) if len(some) else largest
        if any(each.outlined for each in maps) or largest <= _EXTREME * most:
            return _Scale(largest)
        beyond = int((sizes > most).sum())
        return _Scale(most, f"{beyond} pixel{'s' * (beyond != 1)} beyond the scale, up to {number(largest)}")


def _panels(shape: tuple[int, ...], columns: int, title: str) -> Panels:
    """Return the axes of a new figure with room for its headings."""
    aspect = min(max(shape[1] / shape[2], 0.3), 3.0)
    panel = _LARGE if shape[0] == 1 and columns <= 2 else _INCH
    wrapped = textwrap.wrap(plain(title), int(11 * (panel * columns + 1)))
    above = 0.45 + 0.2 * len(wrapped)
    panels = new_panels(shape[0], columns, panel * columns + 1.1, (panel * aspect + 0.25) * shape[0] + above)
    if title:
        panels.figure.suptitle("\n".join(wrapped), fontsize=TEXT, fontweight="bold", parse_math=False)
    return panels


def _common_shape(found: dict[str, _Maps], pictures: np.ndarray | None) -> tuple[int, ...]:
    """Return the shape (rows, height, width) of all maps and pictures, or say which has another one."""
    if not found:
        raise BadInput("there are no attributions to draw: the dict is empty")
    shapes = {name: maps.values.shape for name, maps in found.items()}
    shape = next(iter(shapes.values()))
    if different := [name for name, own in shapes.items() if own != shape]:
        raise BadInput(f"attributions of {different[0]!r} have the shape {shapes[different[0]]}, not {shape}")
    if pictures is not None and pictures.shape[:3] != shape:
        raise BadInput(f"the pictures have the shape {pictures.shape}, and the attributions {shape}")
    return shape


def _read(given: Any, data: Any, std: Any, feature_mask: Any, *, only_certain: bool) -> _Maps:
    """Read the values of pixels, their pictures and players, and what is explained of each row."""
    found, mask = read_entries(given, data=data, std=std)
    feature_mask = mask if feature_mask is None else feature_mask
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
    unsure = None if wide is None else uncertain(pixels, INTERVAL * wide)
    if only_certain and unsure is not None:
        pixels, unsure = np.where(unsure, 0, pixels), None
    return _Maps(pixels, pictures, players, unsure, _headings(given, found, len(pixels)))


def _headings(given: Any, found: PlotData, rows: int) -> list[str]:
    """Return what is explained of each row, and from where to where its values lead."""
    names = getattr(given, "row_outputs", None) or (found.output,) * rows
    if len(names) != rows:
        names = (found.output,) * rows
    if found.base is None or found.base.size not in (1, rows):
        return [f"values for {name}" if name else "" for name in names]
    sums = found.values.reshape(rows, -1).sum(1) if found.sums is None else found.sums
    bases = np.broadcast_to(found.base.ravel(), rows)
    facts = getattr(given, "facts", None)  # values of some methods do not add up to the output
    outputs = bases + sums if facts is None or np.size(facts.prediction) != rows else np.ravel(facts.prediction)
    return [
        f"{name or 'output'}: {number(float(output))}\nwithout the image: {number(float(base))}"
        for name, base, output in zip(names, bases, outputs, strict=True)
    ]


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


def _outlined(axes: Any, maps: _Maps, row: int) -> bool:
    """Outline the players of a row, if they have several pixels, and hatch those that may be nothing; return True if
    there are any."""
    if not maps.outlined:
        return False
    players = maps.players[row % len(maps.players)]  # type: ignore[arg-type, index]
    for width, colour in ((1.6, "white"), (0.6, "0.2")):  # seen on light and on dark pictures
        axes.add_collection(LineCollection(_outlines(players), colors=colour, linewidths=width))
    if maps.unsure is None or not maps.unsure[row].any():
        return False
    paths = [Path([(x0, y - 0.5), (x1, y - 0.5), (x1, y + 0.5), (x0, y + 0.5), (x0, y - 0.5)], closed=True)
             for y, x0, x1 in _runs(maps.unsure[row])]  # fmt: skip
    axes.add_patch(
        PathPatch(Path.make_compound_path(*paths), facecolor="none", edgecolor="0.35", hatch="////", linewidth=0)
    )
    return True


def _runs(marked: np.ndarray) -> list[tuple[int, float, float]]:
    """Return the runs of marked pixels: the line, and where they begin and end."""
    padded = np.pad(marked.astype(np.int8), ((0, 0), (1, 1)))
    changes = np.diff(padded, axis=1)
    starts, ends = np.argwhere(changes == 1), np.argwhere(changes == -1)
    return [(int(y), x0 - 0.5, x1 - 0.5) for (y, x0), (_, x1) in zip(starts.tolist(), ends.tolist(), strict=True)]


def _outlines(players: np.ndarray) -> list[list[tuple[float, float]]]:
    """Return the lines between pixels of different players, (height, width, channels)."""
    below = (players[1:] != players[:-1]).any(-1)
    right = (players[:, 1:] != players[:, :-1]).any(-1)
    lines = [[(x0, y + 0.5), (x1, y + 0.5)] for y, x0, x1 in _runs(below)]
    return lines + [[(x + 0.5, y0), (x + 0.5, y1)] for x, y0, y1 in _runs(right.T)]


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
