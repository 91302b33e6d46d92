"""The display of explanations in notebooks: a picture with its description in words, or a highlighted text."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import numpy as np

from dasp.display import largest
from dasp.errors import BadInput
from dasp.formatting import number, plain, within
from dasp.plots.bar import bar
from dasp.plots.data import read, read_row, read_table
from dasp.plots.image import image
from dasp.plots.style import png
from dasp.plots.text import text_html
from dasp.plots.waterfall import waterfall

__all__ = ["described", "picture"]

_TOLD = 5  # features
_MOST_IMAGES = 4


def picture(explanation: Any) -> str | None:
    """Return the HTML of an explanation: a waterfall of one row, bars of several, images or texts; None for what has no
    one picture, like several outputs.

    >>> picture(np.ones(3))[:47]
    '<img alt="Values of 3 features, which add up to'
    """
    try:
        if _is_text(explanation):
            return text_html(explanation)
        found = read(explanation)
        if found.spread:
            few = explanation if found.one_row else explanation[:_MOST_IMAGES]
            count = 1 if found.one_row else len(found.values)
            return _shown(
                image(few),
                f"Pixels that raise (red) and lower (blue) the output, of {count} image{'s' * (count != 1)}.",
            )
        if found.values.ndim == 1 or found.values.shape[0] == 1:
            return _shown(waterfall(explanation), described(explanation))
        return _shown(bar(explanation), described(explanation))
    except BadInput:
        return None


def described(explanation: Any) -> str:
    """Return the largest values of an explanation in words.

    >>> described(np.array([[2.0, -1.0]]))
    'Values of 2 features, which add up to +1. The largest: Feature 0 +2, Feature 1 −1.'
    """
    found = read_table(explanation)
    if len(found.values) == 1:
        row = read_row(explanation)
        order = largest(row.values, len(row.values))[0][:_TOLD]
        halves = [None if row.half is None else float(row.half[i]) for i in order]
        told = [
            f"{plain(row.names[i])} {within(float(row.values[i]), half or None)}"
            for i, half in zip(order, halves, strict=True)
        ]
        total = number(float(row.values.sum()), signed=True)
        to = f"{total} to the base value {number(float(row.base))}" if row.base is not None else f"up to {total}"
        head = f"Values of {len(row.values)} features, which add {to}"
    else:
        means = np.abs(found.values).mean(0)
        order = largest(means, len(means))[0][:_TOLD]
        told = [f"{plain(found.names[i])} {number(float(means[i]))}" for i in order]
        head = f"Mean |value| of {len(means)} features over {len(found.values)} rows"
    return f"{head}. The largest: {', '.join(told)}."


def _is_text(explanation: Any) -> bool:
    """True if the data are pieces of text: they are texts, and have no other names than themselves."""
    data, names = getattr(explanation, "data", None), getattr(explanation, "feature_names", None)
    if data is None or not len(data):
        return False
    several = np.ndim(data[0]) > 0
    pieces, names = (data[0], None if names is None else names[0]) if several else (data, names)
    own = names is None or (np.ndim(names) == 1 and list(names) == list(pieces))
    return own and isinstance(pieces[0], str)


def _shown(axes: Any, words: str) -> str:
    encoded = base64.b64encode(png(axes)).decode()
    return f'<img alt="{escape(words)}" style="max-width:100%" src="data:image/png;base64,{encoded}">'
