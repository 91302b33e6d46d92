"""Sequence logos of attributions: every letter as large as what it contributes, upside down if it lowers the output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D

from dasp.display import uncertain
from dasp.errors import BadInput
from dasp.formatting import INTERVAL
from dasp.plots.data import as_array, read
from dasp.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SMALL,
    TEXT,
    VERMILLION,
    add_labels,
    drawing,
    new_panels,
    number_format,
    tidy,
)

__all__ = ["logo"]

# Green, blue, orange and red as usual, in colours that colour-blind readers can tell apart.
_COLOURS = {"A": GREEN, "C": BLUE, "G": ORANGE, "T": VERMILLION}
_LINE = 100  # positions
_PALE = 0.35  # opacity
_FILLED = 0.92  # of a letter's width
_SHADES = ("#F0E442", "#CC79A7", "#56B4E9")  # of motifs, by name


@drawing
def logo(
    explanation: Any,
    *,
    sequence: str | Sequence[str] | None = None,
    data: Any = None,
    std: Any = None,
    letters: str = "ACGT",
    highlighted: Sequence[tuple[int, int, str]] = (),
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw one sequence: every letter as high as its value, upside down if it lowers the output, with 95 % intervals;
    letters whose interval includes 0 are pale.

    Args:
        explanation: one row of a `shap.Explanation`, or attributions: one for every position, or (letters, positions)
            or (positions, letters) of a one-hot encoding, which are added up.
        sequence: the letters of the positions; by default they are read from one-hot `data`, in the order of
            `letters`.
        data: the one-hot encoding, if the explanation has none.
        std: the standard deviations of the attributions, if the explanation has none.
        letters: the alphabet of the encoding.
        highlighted: the start, length and name of each part of the sequence to shade.
        title: above the figure.
        ax: the axes to draw on, for up to 100 positions; more are broken into lines of a new figure.

    Returns:
        The axes, or an array of axes, one for every line.

    >>> len(logo([0.5, -1.0, 0.25], sequence="GAT").collections)  # one for each kind of letter
    3
    """
    found = read(explanation, data=data, std=std)
    values, variances = found.values, None if found.std is None else np.square(found.std)
    sequence = "".join(sequence) if sequence is not None else _decoded(found.data, letters)
    if values.ndim > 1:
        axis = tuple(i for i, size in enumerate(values.shape) if size != len(sequence))
        values, variances = values.sum(axis), None if variances is None else variances.sum(axis)
    if values.shape != (len(sequence),):
        raise BadInput(f"there are {values.shape} values for a sequence of {len(sequence)} letters")
    half = None if variances is None else INTERVAL * np.sqrt(variances)
    unsure = np.zeros(len(values), dtype=bool) if half is None else uncertain(values, half)
    lines = _lines(sequence)
    if ax is not None and len(lines) > 1:
        raise BadInput(f"{len(sequence)} positions do not fit on one ax: leave ax out for a new figure")
    across = min(len(sequence), _LINE)
    panels = (
        new_panels(len(lines), 1, max(4.0, 0.1 * across + 1), 1.5 * len(lines) + 0.6, sharey=True)[:, 0]
        if ax is None
        else np.array([ax])
    )
    bars = 0.0 if half is None else half
    low, high = float((values - bars).min()), float((values + bars).max())
    edge = 0.05 * max(high, -low) or 1.0
    for axes, line in zip(panels, lines, strict=True):
        _draw_letters(axes, sequence, values.tolist(), line, unsure)
        if half is not None and half.any():
            where = np.array(line)
            axes.errorbar(where + 1, values[where], half[where], fmt="none", ecolor="0.35", elinewidth=0.7, zorder=3)
        _shade_spans(axes, highlighted, line)
        _name_spans(axes, highlighted, line)
        axes.axhline(0, color=GREY, linewidth=0.6)
        axes.set_xlim(line[0] + 0.5, line[0] + across + 0.5)
        axes.set_ylim(min(low, 0) - edge, max(high, 0) + edge)
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.yaxis.set_major_formatter(number_format(axes.yaxis))
        axes.set_ylabel("value", fontsize=SMALL)
        tidy(axes, grid=False)
    note = "" if half is None else "Thin bars: 95 % intervals." + " Pale: the interval includes 0." * bool(unsure.any())
    add_labels(panels[0], title=title)
    if highlighted and title:
        panels[0].set_title(title, fontsize=TEXT, fontweight="bold", loc="left", pad=18, parse_math=False)
    add_labels(panels[-1], below="position", note=note)
    return panels[0] if len(panels) == 1 else panels


def _decoded(data: np.ndarray | None, letters: str) -> str:
    """Return the sequence of a one-hot encoding, (letters, positions) or (positions, letters)."""
    if data is None:
        raise BadInput("the letters are not known: give sequence='GATTACA…', or the one-hot encoding as data")
    if data.dtype.kind in "OU" and data.ndim == 1:
        return "".join(str(letter) for letter in data)
    data = as_array(data).squeeze()
    if data.ndim != 2 or len(letters) not in data.shape:
        raise BadInput(
            f"data of the shape {data.shape} are no one-hot encoding of {letters!r}: give the sequence itself"
        )
    places = data.argmax(0 if data.shape[0] == len(letters) else 1)
    return "".join(letters[i] for i in places)


@cache
def _letter(letter: str) -> Path:
    """Outline a letter that fills the unit square."""
    path = TextPath((0, 0), letter, size=1, prop=FontProperties(family="DejaVu Sans", weight="bold"))
    box = path.get_extents()
    return path.transformed(Affine2D().translate(-box.x0, -box.y0).scale(1 / box.width, 1 / box.height))


def _lines(sequence: str) -> list[range]:
    """Break a sequence into lines of 100 positions."""
    return [range(i, min(i + _LINE, len(sequence))) for i in range(0, len(sequence), _LINE)]


def _draw_letters(axes: Any, sequence: str, values: list[float], line: range, pale: np.ndarray | None = None) -> None:
    """Draw letters at positions counted from 1, one collection for each kind."""
    for kind in sorted(set(sequence)):
        which = [i for i in line if sequence[i] == kind and values[i]]
        paths = [
            _letter(kind).transformed(Affine2D().scale(_FILLED, values[i]).translate(i + 1 - _FILLED / 2, 0))
            for i in which
        ]  # fmt: skip
        colours = [to_rgba(_COLOURS.get(kind, GREY), 1 if pale is None or not pale[i] else _PALE) for i in which]
        axes.add_collection(PathCollection(paths, facecolors=colours, linewidths=0, zorder=2))


def _here(motifs: Sequence[tuple[int, int, str]], line: range) -> list[tuple[float, float, str, str]]:
    """Clip motifs to a line: the ends, name and shade of each."""
    names = sorted({name for _, _, name in motifs})
    clipped = [(max(start, line[0]), min(start + length, line[-1] + 1), name) for start, length, name in motifs]
    return [
        (start + 0.5, stop + 0.5, name, _SHADES[names.index(name) % len(_SHADES)])
        for start, stop, name in clipped if start < stop
    ]  # fmt: skip


def _shade_spans(axes: Any, motifs: Sequence[tuple[int, int, str]], line: range) -> None:
    """Shade the motifs (start, length, name) as far as they are on a line."""
    for start, stop, _, shade in _here(motifs, line):
        axes.axvspan(start, stop, facecolor=shade, alpha=0.25, linewidth=0, zorder=0)


def _name_spans(axes: Any, motifs: Sequence[tuple[int, int, str]], line: range) -> None:
    """Write the names of motifs above a line."""
    for start, stop, name, _ in _here(motifs, line):
        axes.text(
            (start + stop) / 2, 1.04, name, transform=axes.get_xaxis_transform(), ha="center", va="bottom",
            fontsize=SMALL, fontweight="bold",
        )  # fmt: skip
