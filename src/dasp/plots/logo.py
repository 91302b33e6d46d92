"""Sequence logos of attributions: every letter as large as what it contributes, upside down if it lowers the output."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any

from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D
from torch import Tensor

from dasp.plots.style import BLUE, GREEN, GREY, ORANGE, SMALL, TEXT, VERMILLION, empty_figure, tidy

__all__ = ["logos"]

# Green, blue, orange and red as usual, in colours that colour-blind readers can tell apart.
COLOURS = {"A": GREEN, "C": BLUE, "G": ORANGE, "T": VERMILLION}
_LINE = 100  # positions
_FILLED = 0.92  # of a letter's width
_TALLEST = 1.5  # times the largest true value, that is shown
_SHADES = ("#F0E442", "#CC79A7", "#56B4E9")  # of motifs, by name


def logos(
    sequence: str, attributions: dict[str, Tensor], motifs: Sequence[tuple[int, int, str]], *, title: str
) -> Figure:
    """Draw a panel for every method, the truth first, in lines of 100 positions.

    Args:
        sequence: the letters.
        attributions: for each method a value per position; the first are the truth.
        motifs: start, length and name of what was planted in the sequence.
        title: above the figure.

    All panels have the same scale, at most one and a half times what the truth needs: letters that are larger are cut
    off at the edge of their panel.
    """
    lines = [range(i, min(i + _LINE, len(sequence))) for i in range(0, len(sequence), _LINE)]
    limits = _limits(list(attributions.values()))
    height = 0.85 if len(attributions) <= 8 else 0.6
    figure = empty_figure(12, (height * len(attributions) + 0.7) * len(lines) + 0.4, title, h_pad=0.02, hspace=0.0)
    for part, line in zip(figure.subfigures(len(lines), 1, squeeze=False)[:, 0], lines, strict=True):
        panels = part.subplots(len(attributions), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (name, values) in zip(panels, attributions.items(), strict=True):
            _letters(axes, sequence, values.tolist(), line)
            _spans(axes, motifs, line)
            axes.set_ylabel(textwrap.fill(name, 20), fontsize=SMALL, rotation=0, ha="right", va="center")
            axes.axhline(0, color=GREY, linewidth=0.6)
            tidy(axes, grid=False)
        panels[0].set_ylim(*limits)
        panels[0].set_xlim(line[0] + 0.5, line[0] + _LINE + 0.5)
        _names(panels[0], motifs, line)
        panels[-1].set_xlabel("position (the height of a letter is its attribution)", fontsize=TEXT)
        panels[0].yaxis.label.set_fontweight("bold")
    return figure


def _limits(values: list[Tensor]) -> tuple[float, float]:
    """Find limits from the lowest to the highest value, neither much beyond the largest true one."""
    largest = _TALLEST * float(values[0].abs().max()) or 1.0
    low = max(min(float(v.min()) for v in values), -largest)
    high = min(max(float(v.max()) for v in values), largest)
    return 1.05 * min(low, -0.1 * high), 1.05 * max(high, -0.1 * low)


@cache
def _letter(letter: str) -> Path:
    """Outline a letter that fills the unit square."""
    path = TextPath((0, 0), letter, size=1, prop=FontProperties(family="DejaVu Sans", weight="bold"))
    box = path.get_extents()
    return path.transformed(Affine2D().translate(-box.x0, -box.y0).scale(1 / box.width, 1 / box.height))


def _letters(axes: Any, sequence: str, values: list[float], line: range) -> None:
    """Draw letters at positions counted from 1, one collection for each kind."""
    for kind in sorted(set(sequence)):
        paths = [
            _letter(kind).transformed(Affine2D().scale(_FILLED, values[i]).translate(i + 1 - _FILLED / 2, 0))
            for i in line if sequence[i] == kind and values[i]
        ]  # fmt: skip
        axes.add_collection(PathCollection(paths, facecolors=COLOURS.get(kind, GREY), linewidths=0, zorder=2))


def _here(motifs: Sequence[tuple[int, int, str]], line: range) -> list[tuple[float, float, str, str]]:
    """Clip motifs to a line: the ends, name and shade of each."""
    names = sorted({name for _, _, name in motifs})
    clipped = [(max(start, line[0]), min(start + length, line[-1] + 1), name) for start, length, name in motifs]
    return [
        (start + 0.5, stop + 0.5, name, _SHADES[names.index(name) % len(_SHADES)])
        for start, stop, name in clipped if start < stop
    ]  # fmt: skip


def _spans(axes: Any, motifs: Sequence[tuple[int, int, str]], line: range) -> None:
    for start, stop, _, shade in _here(motifs, line):
        axes.axvspan(start, stop, facecolor=shade, alpha=0.25, linewidth=0, zorder=0)


def _names(axes: Any, motifs: Sequence[tuple[int, int, str]], line: range) -> None:
    for start, stop, name, _ in _here(motifs, line):
        axes.text(
            (start + stop) / 2, 1.04, name, transform=axes.get_xaxis_transform(), ha="center", va="bottom",
            fontsize=SMALL, fontweight="bold",
        )  # fmt: skip
