"""Where users' figures are drawn: on their axes, or on a new figure of pyplot's, which notebooks show by themselves.

All is drawn with matplotlib's defaults but for the fonts, whatever style is in force, and no global setting changes.
"""

from __future__ import annotations

import functools
import io
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib import style as styles
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize

from dasp.plots.style import BLACK, DIVERGING, SMALL, TEXT, shade
from dasp.words import number, plain

__all__ = [
    "beside", "colour_bar", "drawing", "labelled", "lines_that_fit", "names_width", "new_axes", "new_panels", "png",
    "points",
]  # fmt: skip

_KEPT = ("font.family", "font.sans-serif", "font.serif", "font.monospace", "figure.dpi")
_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


def drawing(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """Let a function draw in the look of this package."""

    @functools.wraps(function)
    def in_our_look(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        with _our_look():
            return function(*args, **kwargs)

    return in_our_look


@contextmanager
def _our_look() -> Iterator[None]:
    """Matplotlib's defaults; but the first figure in a notebook loads the notebook's backend, which turns interactive
    mode on, and without that no later figure would be shown: it stays as it is at the end."""
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
    """The axes that were given, or those of a new figure in inches."""
    return new_panels(1, 1, width, height)[0, 0] if ax is None else ax


def new_panels(rows: int, columns: int, width: float, height: float, **options: Any) -> np.ndarray:
    """The axes (rows, columns) of a new figure in inches."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 (it chooses a backend: only where a figure is made)

    _, panels = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **options)
    return panels


def png(axes: Any) -> bytes:
    """The figure of some axes as a file, after which it is closed."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 (as above)

    figure, buffer = np.ravel(axes)[0].figure, io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    return buffer.getvalue()


def points(axes: Any) -> tuple[float, float]:
    """The width and the height of axes in points, as they are laid out now."""
    box = axes.get_window_extent()
    return box.width * 72 / axes.figure.dpi, box.height * 72 / axes.figure.dpi


def names_width(axes: Any) -> float:
    """How many points names beside axes may take."""
    return min(190.0, 0.4 * points(axes)[0])


def lines_that_fit(ax: Any, most: int) -> int:
    """How many lines of text find room beside axes that were given, of which labels below and above take a third; on a
    new figure, all do."""
    return most if ax is None else max(2, min(most, int(0.67 * points(ax)[1] / (1.4 * TEXT))))


def beside(axes: Any, place: float, text: str) -> None:
    """Write on the right of axes, on a line of theirs."""
    axes.annotate(
        text, (1, place), (4, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points", va="center",
        fontsize=SMALL, color=BLACK, annotation_clip=False,
    )  # fmt: skip


def labelled(axes: Any, *, title: str = "", below: str = "", note: str = "") -> None:
    """Write a title, and below the axes what they show and how to read them.

    Both take little more than half of the width that the axes have before names take their room: layouts leave room
    for their height alone.
    """
    width = 0.6 * points(axes)[0]
    if title:
        lines = textwrap.wrap(plain(title), max(10, int(width / 6.5)))
        axes.set_title("\n".join(lines), fontsize=TEXT, fontweight="bold", loc="left", parse_math=False)
    parts = [plain(part).replace(" %", "\u00a0%") for part in (below, note)]  # a number stays with its unit
    lines = [line for part in parts for line in textwrap.wrap(part, max(16, int(width / 4.6)))]
    if lines:
        axes.set_xlabel("\n".join(lines), fontsize=SMALL, linespacing=1.35, parse_math=False)


def colour_bar(axes: Any, limit: float, label: str, *, pale: bool = False, **options: Any) -> Any:
    """Draw the scale from blue to red, which is centred at zero, beside axes or several of them; a pale one is that of
    what is behind text."""
    several = list(np.ravel(axes))
    colours = ListedColormap([shade(x) for x in np.linspace(-1, 1, 129)]) if pale else DIVERGING
    mappable = ScalarMappable(Normalize(-limit, limit), colours)
    bar = several[0].figure.colorbar(mappable, ax=several, pad=0.015, **options)
    bar.set_ticks([-limit, 0, limit], labels=[number(-limit), "0", number(limit)])
    bar.ax.tick_params(labelsize=SMALL)
    lines = textwrap.wrap(plain(label), max(12, int(max(points(bar.ax)) / 5.2)))
    bar.set_label("\n".join(lines), fontsize=SMALL, parse_math=False)
    return bar
