"""Words and numbers in figures: names as they are, however long and whatever is in them, and numbers for people."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter

from dasp.plots.style import text_width

__all__ = ["INTERVAL", "entry", "fitted", "fitted_all", "number", "numbers_of", "plain", "within"]

INTERVAL = 1.96  # standard deviations to each side, for a probability of 95 %
_LEFT_TO_RIGHT = "\u200e"  # a mark that is not seen
_MOST_DATA = 14  # characters of what a player is in a row


def plain(text: object) -> str:
    r"""One line without what is not seen: marks of direction, joiners, control characters.

    >>> plain("first\nsecond \u202e\u200fthird")
    'first second third'
    """
    spaced = " ".join(str(text).split())
    return "".join(c for c in spaced if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"))


def fitted(text: object, points: float, size: float) -> str:
    """A text that is shortened in the middle, if it is wider than so many points: names often differ at their ends.

    >>> fitted("mean_concavity_of_all_nuclei_in_the_left_sample", 120, 10)
    'mean_conc…ft_sample'
    """
    whole = plain(text)
    if text_width(whole, size) <= points:
        return whole
    few, many = 1, len(whole)  # characters that are kept: few fit, many do not
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if text_width(_kept(whole, middle), size) <= points else (few, middle)
    return _kept(whole, few)


def fitted_all(names: Sequence[object], points: float, size: float) -> list[str]:
    """Shortened names; those that would become the same have their number at the end. What is written from right to
    left is kept apart from the numbers that follow.

    >>> fitted_all(["a" * 20 + "x" + "b" * 20, "a" * 20 + "y" + "b" * 20], 100, 10)
    ['aaaaaa…bbbbbb [0]', 'aaaaaa…bbbbbb [1]']
    """
    short = [fitted(name, points, size) for name in names]
    shared = {one for one in short if short.count(one) > 1}
    room = points - text_width(f" [{len(names)}]", size)
    numbered = [
        f"{fitted(name, room, size)} [{i}]" if one in shared and plain(name) != one else one
        for i, (name, one) in enumerate(zip(names, short, strict=True))
    ]
    return [f"{_LEFT_TO_RIGHT}{name}{_LEFT_TO_RIGHT}" if _turned(name) else name for name in numbered]


def _turned(text: str) -> bool:
    return any(unicodedata.bidirectional(c) in ("R", "AL") for c in text)


def number(value: float, *, signed: bool = False, digits: int = 3) -> str:
    """A number with some digits that count.

    >>> number(-1234567.0), number(1e-9), number(20.0, signed=True), number(-0.0), number(12345.6)
    ('−1.23e6', '1e−9', '+20', '0', '12346')
    """
    value = float(value) or 0.0
    if math.isnan(value):
        return "missing"
    form = ".0f" if 10**digits <= abs(value) < 1e6 else f".{digits}g"
    text = format(value, ("+" if signed and value else "") + form)
    return re.sub(r"e([+-])0*(\d+)", lambda e: f"e{e[1].replace('+', '')}{e[2]}", text).replace("-", "−")


def numbers_of(axis: Any) -> FuncFormatter:
    """Write the ticks of an axis in full, with as many digits as tell them apart."""

    def written(value: float, _: Any) -> str:
        low, high = sorted(axis.get_view_interval())
        step, size = (high - low) / 6 or 1.0, max(abs(low), abs(high)) or 1.0
        return number(
            0.0 if abs(value) < 1e-6 * step else value, digits=min(max(math.ceil(math.log10(size / step)) + 2, 2), 12)
        )

    return FuncFormatter(written)


def within(value: float, half: float | None) -> str:
    """A value with the half of its interval, as far as that leaves digits that count; four at most.

    >>> within(20.8123, 0.213), within(20.8123, 1e-7), within(0.2, 31.4), within(-3.0, None)
    ('+20.81 ± 0.21', '+20.81 ± 1e−7', '0 ± 31', '−3')
    """
    if not half or not value:
        return number(value, signed=True) + ("" if half is None else f" ± {number(half, digits=2)}")
    digits = math.floor(math.log10(abs(value))) - math.floor(math.log10(half)) + 2
    shown = number(value, signed=True, digits=min(digits, 4)) if digits > 0 else "0"
    return f"{shown} ± {number(half, digits=2)}"


def entry(value: Any) -> str:
    """What a player is in a row: a number, or a short text."""
    try:
        return number(float(value))
    except (TypeError, ValueError):
        text = plain(value)
        return text if len(text) <= _MOST_DATA else _kept(text, _MOST_DATA - 1)


def _kept(text: str, characters: int) -> str:
    end = characters // 2
    return f"{text[: characters - end].rstrip()}…{text[len(text) - end :].lstrip() if end else ''}"
