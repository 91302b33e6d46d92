"""Names in figures, however long and whatever is in them, and numbers on their axes."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter

from dasp.plots.style import text_width
from dasp.words import number, plain, shortened

__all__ = ["fitted", "fitted_all", "numbers_of"]

_LEFT_TO_RIGHT = "\u200e"  # a mark that is not seen


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
        few, many = (middle, many) if text_width(shortened(whole, middle), size) <= points else (few, middle)
    return shortened(whole, few)


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


def numbers_of(axis: Any) -> FuncFormatter:
    """Write the ticks of an axis in full, with as many digits as tell them apart."""

    def written(value: float, _: Any) -> str:
        low, high = sorted(axis.get_view_interval())
        step, size = (high - low) / 6 or 1.0, max(abs(low), abs(high)) or 1.0
        return number(
            0.0 if abs(value) < 1e-6 * step else value, digits=min(max(math.ceil(math.log10(size / step)) + 2, 2), 12)
        )

    return FuncFormatter(written)
