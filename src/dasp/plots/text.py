"""Texts whose pieces are highlighted: red where they raise the output, blue where they lower it.

The pieces are the explanation's data, or the names. Where a piece begins or ends with a space, there is one; if no
piece does, they are words with spaces between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from dasp.errors import BadInput
from dasp.formatting import plain, within
from dasp.plots.data import PlotData, read_row
from dasp.plots.style import (
    BLACK,
    DOWN,
    TEXT,
    UP,
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
_TALLEST = 30.0  # inches of a new figure
_MANY = 40  # pieces, of which most may be nothing
_LONGER = "explain it by sentences (players='sentence', or TextExplainer.hierarchy)"
_PARTS = re.compile(r"\n+|[^\S\n]+|\S+")  # of a piece: ends of lines, spaces, words


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
    """Draw one text with its pieces highlighted. Those whose 95 % interval includes 0 are not: they have a dashed
    frame in the colour of their sign. Lines break between the words of a piece as between pieces.

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
    inches = _lines(pieces, (_WIDTH - 0.3) * 72, TEXT) * _LEADING * TEXT / 72
    if ax is None and inches > _TALLEST:
        raise BadInput(f"a text of {len(pieces):,} pieces is too long for a figure: {_LONGER}, or take text_html")
    axes = new_axes(ax, _WIDTH, inches + (18 * bool(title) + 75) / 72)
    axes.set_axis_off()
    notes = [f"value for {found.output}" if found.output else "value of a piece"]
    notes += ["dashed frames: the 95 % interval includes 0"] * bool(found.uncertain.any())
    if len(pieces) >= _MANY and found.uncertain.mean() > 0.5:
        notes.append(f"most of the {len(pieces)} pieces may be nothing: {_LONGER}")
    colour_bar(axes, largest, "; ".join(notes), pale=True, location="bottom", shrink=0.5, aspect=40)
    add_labels(axes, title=title)
    axes.figure.draw_without_rendering()  # to know how wide the axes are
    width, height = points(axes)
    size: float = TEXT
    while _lines(pieces, width, size) * _LEADING * size > height + size:
        size -= 0.5
        if size < _SMALLEST:
            raise BadInput(
                f"a text of {len(pieces)} pieces does not fit on axes of {width:.0f} × {height:.0f} points: {_LONGER}, "
                "or leave ax out"
            )
    axes.set_xlim(0, width)
    axes.set_ylim(-height, 0)
    for part in _layout(pieces, width, size):
        behind, frame = _look(float(found.values[part.piece]), bool(found.uncertain[part.piece]), largest)
        axes.text(
            part.x + _PAD * size, -(part.line + 0.6) * _LEADING * size, plain(part.text), fontsize=size, va="center",
            color=BLACK, parse_math=False,
            bbox={
                "boxstyle": f"square,pad={_PAD}", "facecolor": behind, "edgecolor": frame or "none", "linestyle": "--",
                "linewidth": 0.9,
            },
        )  # fmt: skip
    return axes


def _look(value: float, unsure: bool, largest: float) -> tuple[str, str | None]:
    """Return the colour behind a piece, and that of its frame: what may be nothing is framed only."""
    return ("#ffffff", UP if value > 0 else DOWN) if unsure else (shade(value / largest), None)


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
        said += ", uncertain" if found.uncertain[i] else ""
        colour, edge = _look(float(found.values[i]), bool(found.uncertain[i]), largest)
        frame = f";outline:1px dashed {edge}" if edge else ""
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


@dataclass(frozen=True)
class _Fragment:
    """What is on one line of a piece: its text, where it begins in points from the left, and its line."""

    piece: int
    text: str
    x: float
    line: int


def _lines(pieces: list[str], width: float, size: float) -> int:
    """Return the number of lines of a text."""
    return 1 + max((part.line for part in _layout(pieces, width, size)), default=0)


def _layout(pieces: list[str], width: float, size: float) -> list[_Fragment]:
    """Return the pieces as they are set in lines of some width, which break between words."""
    parts: list[_Fragment] = []
    gap, pad, words = _GAP * size, _PAD * size, _words(pieces)
    width -= size  # letters may be wider than was measured word by word
    blank = text_width("n n", size) - 2 * text_width("n", size)
    x, line, apart = 0.0, 0, False  # where the last box ended, and whether white space is behind it
    for i, piece in enumerate(pieces):
        text, begin = "", 0.0  # of the fragment on this line
        for word in (part for whole in _PARTS.findall(piece) for part in _broken(whole, width - 2 * pad, size)):
            if "\n" in word:
                parts += [_Fragment(i, text, begin, line)] if text else []
                text, x, line, apart = "", 0.0, line + word.count("\n"), False
                continue
            if not word.isspace():
                wide, space = text_width(word, size), blank * apart
                if text and x + space + wide <= width:
                    text, x = text + " " * apart + word, x + space + wide
                else:
                    parts += [_Fragment(i, text, begin, line)] if text else []
                    begin = x + gap * apart if x else 0.0
                    if text or (x and begin + wide + 2 * pad > width):
                        begin, line = 0.0, line + 1
                    text, x = word, begin + wide + 2 * pad
            apart = word.isspace()
        parts += [_Fragment(i, text, begin, line)] if text else []
        apart = apart or words
    return parts


def _broken(word: str, width: float, size: float) -> list[str]:
    """Return a word in parts that fit on a line, as scripts without spaces need it.

    >>> _broken("abcdefgh", 30, 10)
    ['abcd', 'efgh']
    """
    if word.isspace() or text_width(word, size) <= width:
        return [word]
    middle = (len(word) + 1) // 2
    return [word] if middle == len(word) else _broken(word[:middle], width, size) + _broken(word[middle:], width, size)
