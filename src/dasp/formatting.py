"""Numbers and names as people read them, in figures, pages and lines of text.

Files and explanations store the identifiers of methods; people are shown their names.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

__all__ = [
    "INTERVAL",
    "METHOD_NAMES",
    "display_name",
    "entry",
    "in_bytes",
    "interval_of",
    "number",
    "plain",
    "shortened",
    "shown",
    "within",
]

INTERVAL = 1.96  # standard deviations to each side, for a probability of 95 %
METHOD_NAMES = {
    "exact_shapley": "Exact",
    "permutation_shapley": "Permutations",
    "gradient_shapley": "Gradients at coalitions",
    "dasp": "DASP, full rank",
    "dasp_rank_0": "DASP, rank 0",
    "gradient_dasp": "GradientDASP",
    "gradient_dasp_rank_0": "GradientDASP, rank 0",
    "bayesian_shapley": "BayesianShapley",
    "bayesian_shapley_on_gradient_dasp": "BayesianShapley on GradientDASP",
    "bayesian_shapley_on_dasp": "BayesianShapley on DASP",
    "gradient_shapley_on_gradient_dasp": "Gradients at coalitions on GradientDASP",
    "deeplift_revealcancel": "DeepLIFT RevealCancel",
    "deeplift_mixed": "DeepLIFT mixed",
}
"""The name of each of our methods, by its identifier."""
_UNITS = ("bytes", "kB", "MB", "GB")
_MOST_DATA = 14  # characters of what a player is in a row


def display_name(method: str) -> str:
    """Return the name of a method of ours, and any other name as it is.

    >>> display_name("gradient_dasp"), display_name("mine")
    ('GradientDASP', 'mine')
    """
    return METHOD_NAMES.get(method, method)


def interval_of(number: int) -> float:
    """Standard errors to each side of a mean over so many rows, for a probability of 95 %: Student's quantile.

    >>> [round(interval_of(rows), 2) for rows in (2, 3, 6, 30, 1000)]
    [12.71, 4.3, 2.57, 2.05, 1.96]
    """
    if number < 4:
        return {2: 12.706, 3: 4.303}.get(number, math.inf)
    z, freedom = 1.959964, number - 1  # Cornish and Fisher's expansion
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2 + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / freedom**3


def plain(text: object) -> str:
    r"""One line without what is not seen: marks of direction, joiners, control characters.

    >>> plain("first\nsecond \u202e\u200fthird")
    'first second third'
    """
    spaced = " ".join(str(text).split())
    return "".join(c for c in spaced if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"))


def shown(text: str, characters: int = 2000) -> str:
    """What comes from a file, as one line that is not longer than a page can have."""
    return plain(text if len(text) <= characters else shortened(text, characters))


def number(value: float, *, signed: bool = False, digits: int = 3) -> str:
    """A number with some digits that count.

    >>> number(-1234567.0), number(1e-9), number(20.0, signed=True), number(-0.0), number(12345.6), number(999.9)
    ('−1.23e6', '1e−9', '+20', '0', '12346', '1000')
    """
    value = float(value) or 0.0
    if math.isnan(value):
        return "missing"
    size = abs(float(format(value, f".{digits}g")))
    form = ".0f" if 10**digits <= size < 1e6 else f".{digits}g"
    text = format(value, ("+" if signed and value else "") + form)
    return re.sub(r"e([+-])0*(\d+)", lambda e: f"e{e[1].replace('+', '')}{e[2]}", text).replace("-", "−")


def in_bytes(size: int) -> str:
    """Return the size of a file or an array.

    >>> in_bytes(900), in_bytes(27_000), in_bytes(24_100_000)
    ('900 bytes', '27 kB', '24.1 MB')
    """
    unit = min(len(_UNITS) - 1, (len(str(size)) - 1) // 3)
    return f"{number(size / 1000**unit)} {_UNITS[unit]}"


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
    """Return what a player is in a row, as a number or a short text."""
    try:
        return number(math.nan if value is None else float(value))
    except (TypeError, ValueError):
        text = plain(value)
        return text if len(text) <= _MOST_DATA else shortened(text, _MOST_DATA - 1)


def shortened(text: str, characters: int) -> str:
    """A text of so many characters, and dots in the place of its middle."""
    end = characters // 2
    return f"{text[: characters - end].rstrip()}…{text[len(text) - end :].lstrip() if end else ''}"
