"""The look of all figures: where they are drawn, their colours and marks, their names and numbers.

A method has the same colour, marker and line wherever it appears, and so has a sign. A family of methods has one of
Okabe and Ito's colours, which colour-blind readers can tell apart; inside a family, marker and line do. What raises the
output is red and what lowers it blue, in figures, HTML and reports: on ColorBrewer's scale from blue to red, of which
bars have two strong shades.

Users' figures are drawn on their axes, or on a new figure of pyplot's, which notebooks show by themselves. All is drawn
with matplotlib's defaults but for the fonts, whatever style is in force, and no global setting changes. Names may be of
any length and hold anything: they are shortened in the middle, and are never formulas.
"""

from __future__ import annotations

import io
import math
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib import style as styles
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize, to_rgb
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dasp.formatting import display_name, number, plain, shortened

__all__ = [
    "STYLES", "Panels", "Style", "add_labels", "colour_bar", "contrast", "drawing", "fit_names", "fit_text",
    "line_axes", "lines_that_fit", "names_width", "new_axes", "new_panels", "number_format", "png",
    "points", "readable", "shade", "style_of", "text_width", "tidy", "write_beside",
]  # fmt: skip

BLACK, GREY, LIGHT = "#000000", "#7F7F7F", "#D9D9D9"
ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
UP, DOWN = "#C43A3C", "#2B72B0"  # raises the output, lowers it: of the diverging scale, and read as text on white
DARK = "#595959"  # grey, as text on white
DIVERGING = "RdBu_r"

TEXT, SMALL = 10, 8.5  # font sizes
_STRONGEST = 0.62  # of the diverging scale, behind black text
_KEPT = ("font.family", "font.sans-serif", "font.serif", "font.monospace", "figure.dpi")  # of users' settings
_LEFT_TO_RIGHT = "\u200e"  # a mark that is not seen
_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


@dataclass(frozen=True)
class Style:
    """The colour, marker and line of a method."""

    colour: str
    marker: str
    line: Any  # as matplotlib's linestyle


# Families of methods, each with its colour.
_FAMILIES = {
    VERMILLION: ("gradient_dasp", "gradient_dasp_rank_0"),
    ORANGE: ("dasp", "dasp_rank_0"),
    PURPLE: ("bayesian_shapley_on_gradient_dasp", "bayesian_shapley_on_dasp", "bayesian_shapley"),
    BLUE: ("permutation_shapley",),
    GREEN: ("gradient_shapley_on_gradient_dasp", "gradient_shapley"),
    GREY: ("deeplift_revealcancel", "deeplift_mixed"),
    BLACK: ("exact_shapley",),
}

_MARKERS = ("o", "s", "^")
_LINES = ("-", "--", "-.")

STYLES = {
    name: Style(colour, marker, line)
    for colour, methods in _FAMILIES.items()
    for method, marker, line in zip(methods, _MARKERS, _LINES, strict=False)
    for name in (method, display_name(method))
}
"""The style of each of our methods, by its identifier and by its name."""


def style_of(method: str) -> Style:
    """Return the style of a method; a plain grey for one that is not known."""
    return STYLES.get(method, Style(GREY, ".", ":"))


def tidy(axes: Any, *, grid: bool = True) -> None:
    """Give axes readable ticks and a grid behind the data, and no frame where it says nothing."""
    axes.tick_params(labelsize=SMALL, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(color=LIGHT, linewidth=0.6)


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """Return the width of a line of text in points."""
    literal = text.replace("$", r"\$")  # else it would be a formula
    return float(TextPath((0, 0), literal, size=size).get_extents().width) if text.strip() else 0.0


def shade(fraction: float) -> str:
    """Return a red (above 0) or blue (below) that black text can be read on, for a fraction of the largest value.

    >>> shade(0), shade(1), shade(-1)
    ('#f7f6f6', '#d25849', '#3f8ec0')
    """
    place = 0.5 + 0.5 * _STRONGEST * min(max(fraction, -1), 1)
    return "#" + "".join(f"{round(255 * part):02x}" for part in colormaps[DIVERGING](place)[:3])


def contrast(one: Any, other: Any) -> float:
    """Return the contrast of two colours by the Web Content Accessibility Guidelines: from 1 to 21; text needs 4.5.

    >>> round(contrast("black", "white"), 1)
    21.0
    """
    dark, light = sorted(_luminance(colour) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def readable(background: Any) -> str:
    """Return black or white, whichever is read better: its contrast is always above 4.5."""
    return max(("black", "white"), key=lambda colour: contrast(colour, background))


def _luminance(colour: Any) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def drawing(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """Make a function draw in the look of this package."""

    @wraps(function)
    def in_our_look(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        with _our_look():
            return function(*args, **kwargs)

    return in_our_look


@contextmanager
def _our_look() -> Iterator[None]:
    """Set matplotlib's defaults for a while. The first figure in a notebook loads the notebook's backend, which turns
    interactive mode on, and without that no later figure would be shown: this mode stays as it is at the end."""
    interactive = mpl.is_interactive()
    try:
        with styles.context(["default", {name: mpl.rcParams[name] for name in _KEPT}]):
            try:
                yield
            finally:
                interactive = mpl.is_interactive()
    finally:
        mpl.interactive(interactive)


def new_axes(ax: Any, width: float, height: float) -> Any:
    """Return the axes that were given, or those of a new figure in inches."""
    return new_panels(1, 1, width, height)[0, 0] if ax is None else ax


class Panels(np.ndarray):
    """The axes of a figure with several panels; as a single one does, it knows its `figure`, which can be saved."""

    @property
    def figure(self) -> Any:
        """The figure that all of them are in."""
        return self.flat[0].figure


def new_panels(rows: int, columns: int, width: float, height: float, **options: Any) -> Panels:
    """Return the axes (rows, columns) of a new figure in inches."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 (it chooses a backend: only where a figure is made)

    _, panels = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **options)
    return panels.view(Panels)


def png(axes: Any) -> bytes:
    """Return the figure of some axes as a PNG file, and close it."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 (as above)

    figure, buffer = np.ravel(axes)[0].figure, io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    return buffer.getvalue()


def points(axes: Any) -> tuple[float, float]:
    """Return the width and the height of axes in points, as they are laid out now."""
    box = axes.get_window_extent()
    return box.width * 72 / axes.figure.dpi, box.height * 72 / axes.figure.dpi


def names_width(axes: Any) -> float:
    """Return the largest width of names beside axes, in points."""
    return min(190.0, 0.4 * points(axes)[0])


def lines_that_fit(ax: Any, most: int) -> int:
    """Return how many lines of text have room beside the user's axes, of which labels below and above take a third; on
    a new figure, all have."""
    return most if ax is None else max(2, min(most, int(0.67 * points(ax)[1] / (1.4 * TEXT))))


def write_beside(axes: Any, place: float, text: str) -> None:
    """Write a text on the right of axes, at a height of theirs."""
    axes.annotate(
        text, (1, place), (4, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points", va="center",
        fontsize=SMALL, color=BLACK, annotation_clip=False,
    )  # fmt: skip


def add_labels(axes: Any, *, title: str = "", below: str = "", note: str = "") -> None:
    """Write a title above the axes, and below them what they show and a note on how to read them.

    Both take two thirds of the width that the axes have before names take their room: layouts leave room
    for their height alone.
    """
    width = 0.7 * points(axes)[0]
    if title:
        lines = textwrap.wrap(plain(title), max(10, int(width / 6.5)))
        axes.set_title("\n".join(lines), fontsize=TEXT, fontweight="bold", loc="left", parse_math=False)
    parts = [_with_units(part) for part in (below, note)]
    lines = [line for part in parts for line in textwrap.wrap(part, max(16, int(width / 4.6)))]
    if lines:
        axes.set_xlabel("\n".join(lines), fontsize=SMALL, linespacing=1.35, parse_math=False)


def _with_units(text: str) -> str:
    """Return a line in which numbers stay with what is beside them: a sign of percent, or "includes"."""
    return plain(text).replace(" %", "\u00a0%").replace("includes 0", "includes\u00a00")


def colour_bar(axes: Any, limit: float, label: str, *, pale: bool = False, **options: Any) -> Any:
    """Draw the scale from blue to red, which is centred at zero, beside one axes or several; `pale` gives the colours
    that are behind text."""
    several = list(np.ravel(axes))
    colours = ListedColormap([shade(x) for x in np.linspace(-1, 1, 129)]) if pale else DIVERGING
    mappable = ScalarMappable(Normalize(-limit, limit), colours)
    bar = several[0].figure.colorbar(mappable, ax=several, pad=0.015, **options)
    bar.set_ticks([-limit, 0, limit], labels=[number(-limit), "0", number(limit)])
    bar.ax.tick_params(labelsize=SMALL)
    lines = textwrap.wrap(_with_units(label), max(12, int(max(points(bar.ax)) / 5.2)))
    bar.set_label("\n".join(lines), fontsize=SMALL, parse_math=False)
    return bar


def fit_text(text: object, width: float, size: float) -> str:
    """Shorten a text in the middle if it is wider than so many points: names often differ at their ends.

    >>> fit_text("mean_concavity_of_all_nuclei_in_the_left_sample", 120, 10)
    'mean_conc…ft_sample'
    """
    whole = plain(text)
    if text_width(whole, size) <= width:
        return whole
    few, many = 1, len(whole)  # characters that are kept: few fit, many do not
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if text_width(shortened(whole, middle), size) <= width else (few, middle)
    return shortened(whole, few)


def fit_names(names: Sequence[object], width: float, size: float) -> list[str]:
    """Shorten names; those that would become the same have their number at the end. What is written from right to left
    is kept apart from the numbers that follow.

    >>> fit_names(["a" * 20 + "x" + "b" * 20, "a" * 20 + "y" + "b" * 20], 100, 10)
    ['aaaaaa…bbbbbb [0]', 'aaaaaa…bbbbbb [1]']
    """
    short = [fit_text(name, width, size) for name in names]
    shared = {one for one in short if short.count(one) > 1}
    room = width - text_width(f" [{len(names)}]", size)
    numbered = [
        f"{fit_text(name, room, size)} [{i}]" if one in shared and plain(name) != one else one
        for i, (name, one) in enumerate(zip(names, short, strict=True))
    ]
    return [f"{_LEFT_TO_RIGHT}{name}{_LEFT_TO_RIGHT}" if _right_to_left(name) else name for name in numbered]


def _right_to_left(text: str) -> bool:
    return any(unicodedata.bidirectional(c) in ("R", "AL") for c in text)


def number_format(axis: Any) -> FuncFormatter:
    """Return a format that writes the ticks of an axis in full, with as many digits as tell them apart."""

    def written(value: float, _: Any) -> str:
        low, high = sorted(axis.get_view_interval())
        step, size = (high - low) / 6 or 1.0, max(abs(low), abs(high)) or 1.0
        return number(
            0.0 if abs(value) < 1e-6 * step else value, digits=min(max(math.ceil(math.log10(size / step)) + 2, 2), 12)
        )

    return FuncFormatter(written)


def line_axes(axes: Any, labels: list[str]) -> None:
    """Name the lines of a figure from below, and draw its grid."""
    axes.set_yticks(range(len(labels)), labels, fontsize=TEXT, parse_math=False)
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(number_format(axes.xaxis))
    tidy(axes, grid=False)
    axes.tick_params(axis="y", length=0, labelsize=TEXT)
    axes.grid(axis="x", color=LIGHT, linewidth=0.6)
