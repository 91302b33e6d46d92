"""Texts whose pieces are highlighted: red where they raise the output, blue where they lower it.

The pieces are the explanation's data, or the names. Where a piece begins or ends with a space, there is one; if no
piece does, they are words with spaces between them.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from dasp.errors import BadInput
from dasp.formatting import plain, within
from dasp.plots.data import PlotData, read_row
from dasp.plots.style import (
    BLACK,
    DARK,
    TEXT,
    add_labels,
    colour_bar,
    drawing,
    new_axes,
    points,
    shade,
    text_width,
)

__all__ = ["text", "text_html"]

_WIDTH = 7.5  # inches of a new figure
_LEADING, _GAP, _PAD = 2.1, 0.45, 0.15  # line to line, space and padding, relative to the letters
_SMALLEST = 5.0  # points


@drawing
def text(
    explanation: Any,
    *,
    data: Any = None,
    std: Any = None,
    output: str | None = None,
    limit: float | None = None,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Draw one text with its pieces highlighted; pieces whose 95 % interval includes 0 have a dashed frame.

    Args:
        explanation: one row of a `shap.Explanation` whose data are pieces of text, or the attributions of pieces.
        data, std, output: the pieces, the standard deviations of their values, and the name of the output; for what
            the explanation does not have.
        limit: the value of the strongest colour; by default the largest.
        title: above the text.
        ax: the axes to draw on; of a new figure by default.

    >>> axes = text([1.0, -0.5], data=["good", "grief"])
    >>> [piece.get_text() for piece in axes.texts]
    ['good', 'grief']
    """
    found = read_row(explanation, data=data, std=std, output=output)
    pieces, largest = _pieces(found), _limit(found, limit)
    lines = 1 + _layout(pieces, (_WIDTH - 0.3) * 72, TEXT)[-1][1]
    axes = new_axes(ax, _WIDTH, (lines * _LEADING * TEXT + 18 * bool(title) + 75) / 72)
    axes.set_axis_off()
    note = " Dashed: the 95 % interval includes 0." if found.uncertain.any() else ""
    label = (f"value for {found.output}." if found.output else "value of a piece.") + note
    colour_bar(axes, largest, label, pale=True, location="bottom", shrink=0.5, aspect=40)
    add_labels(axes, title=title)
    axes.figure.draw_without_rendering()  # to know how wide the axes are
    width, height = points(axes)
    size: float = TEXT
    while (1 + _layout(pieces, width, size)[-1][1]) * _LEADING * size > height + size:
        size -= 0.5
        if size < _SMALLEST:
            raise BadInput(f"a text of {len(pieces)} pieces does not fit on axes of {width:.0f} × {height:.0f} points")
    axes.set_xlim(0, width)
    axes.set_ylim(-height, 0)
    for i, (piece, (x, line)) in enumerate(zip(pieces, _layout(pieces, width, size), strict=True)):
        shown = plain(piece)
        if shown:
            axes.text(
                x + _PAD * size, -(line + 0.6) * _LEADING * size, shown, fontsize=size, va="center", color=BLACK,
                parse_math=False,
                bbox={
                    "boxstyle": f"square,pad={_PAD}", "facecolor": shade(float(found.values[i]) / largest),
                    "edgecolor": DARK if found.uncertain[i] else "none", "linestyle": "--", "linewidth": 0.8,
                },
            )  # fmt: skip
    return axes


def text_html(
    explanation: Any, *, data: Any = None, std: Any = None, output: str | None = None, limit: float | None = None
) -> str:
    """Return one text or several as HTML, with the value of a piece where the pointer is; the text is escaped.

    The arguments are those of `text`, but for all rows of the explanation.

    >>> print(text_html([1.0], data=["<b>"], std=[0.1]))
    <p dir="auto"><span style="background:#d25849;color:#000" title="+1 ± 0.2">&lt;b&gt;</span></p>
    """
    rows = [explanation] if _alone(explanation) else [explanation[i] for i in range(len(explanation))]
    some = [None] * len(rows) if data is None else [data] if len(rows) == 1 and isinstance(data[0], str) else list(data)
    wide = [None] * len(rows) if std is None else [std] if len(rows) == 1 and np.ndim(std[0]) == 0 else list(std)
    found = [read_row(row, data=own, std=one, output=output) for row, own, one in zip(rows, some, wide, strict=True)]
    largest = limit or max(_limit(row, None) for row in found)
    return "\n".join(f'<p dir="auto">{_spans(row, largest)}</p>' for row in found)


def _alone(explanation: Any) -> bool:
    values = getattr(explanation, "values", explanation)
    values = explanation if callable(values) else values
    return np.ndim(values[0]) == 0


def _spans(found: PlotData, largest: float) -> str:
    """Return the HTML of one text with its pieces highlighted."""
    pieces = _pieces(found)
    spans = []
    for i, piece in enumerate(pieces):
        said = within(float(found.values[i]), None if found.half is None else float(found.half[i]) or None)
        frame = f";outline:1px dashed {DARK}" if found.uncertain[i] else ""
        said += ", uncertain" if found.uncertain[i] else ""
        colour = shade(float(found.values[i]) / largest)
        shown = escape(str(piece)).replace("\n", "<br>")
        spans.append(f'<span style="background:{colour};color:#000{frame}" title="{said}">{shown}</span>')
    return (" " if _words(pieces) else "").join(spans)


def _pieces(found: PlotData) -> list[str]:
    """Return the pieces of a text."""
    if found.data is not None and all(isinstance(piece, str) for piece in found.data):
        return [str(piece) for piece in found.data]
    if found.data is not None:
        raise BadInput("the data are not pieces of text: give these as data=[…], one for every value")
    return found.names


def _words(pieces: list[str]) -> bool:
    return not any(piece != piece.strip() for piece in pieces)


def _limit(found: PlotData, limit: float | None) -> float:
    return limit or float(np.abs(found.values).max()) or 1.0


def _layout(pieces: list[str], width: float, size: float) -> list[tuple[float, int]]:
    """Return where every piece begins, in points from the left, and its line."""
    places: list[tuple[float, int]] = []
    x, line, words = 0.0, 0, _words(pieces)
    for piece in pieces:
        wide = text_width(plain(piece), size) + 2 * _PAD * size
        space = _GAP * size
        x += space if x and (words or piece[:1].isspace()) else 0.0
        if "\n" in piece or (x + wide > width and x > space):
            x, line = 0.0, line + 1
        places.append((x, line))
        x += wide + (space if not words and piece[-1:].isspace() else 0.0)
    return places
