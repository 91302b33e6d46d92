"""Names of a model's outputs, which are classes mostly, and columns that have a name for each row.

A name that is a number must be the number of its output. So a target means the same whether it is looked up among the
names or counted, and whether a file has it as a text or as a number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.csv as pv
from numpy.typing import NDArray

from dasp.errors import BadInput
from dasp.jobs.reading.files import is_utf8

__all__ = ["PREDICTED", "indices", "said", "wrong_with"]

PREDICTED = "predicted"  # as `dasp.games.target` has it, which needs torch
_TRUTH = {"true": 1.0, "false": 0.0}
_MISSING = frozenset(pv.ConvertOptions().null_values)
_LISTED = 8


def wrong_with(names: Sequence[str]) -> str | None:
    """Why names cannot be those of outputs, or None if they can.

    >>> wrong_with(["benign", "malignant"]), wrong_with(["1", "2"])
    (None, "output 0 is called '1', which is the number of another; call it something else")
    """
    for place, name in enumerate(names):
        number = _number(name)
        if not name or not is_utf8(name):
            return f"output {place} has {'no name' if not name else 'a name that is not UTF-8'}"
        if name in names[:place]:
            return f"{name!r} is there twice; every output needs a name of its own"
        if name == PREDICTED:
            return f"{name!r} means the largest output; call output {place} something else"
        if number is not None and number != place:
            return f"output {place} is called {name!r}, which is the number of another; call it something else"
    return None


def said(names: Sequence[str] | None, outputs: int) -> str:
    """Which outputs there are.

    >>> said(None, 3), said(["benign", "malignant"], 2)
    ('outputs are 0 to 2', "outputs are 'benign', 'malignant'")
    """
    if names is None:
        return f"outputs are 0 to {outputs - 1}" if outputs > 1 else "the only output is 0"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"outputs are {', '.join(map(repr, names[:_LISTED]))}{more}"


def indices(texts: Sequence[str | None], names: Sequence[str], start: int) -> NDArray[np.float64]:
    """The number of the output that each text names, NaN where nothing is said; the first is of row `start`.

    >>> indices(["malignant", "benign", None, "1"], ["benign", "malignant"], 0)
    array([ 1.,  0., nan,  1.])
    """
    known = {name: float(place) for place, name in enumerate(names)}
    for row, text in enumerate(texts):
        if text not in known:
            known[text or ""] = _index(text or "", known, f"row {start + row}", names)
    return np.array([known[text or ""] for text in texts], dtype=np.float64)


def _index(text: str, known: dict[str, float], where: str, names: Sequence[str]) -> float:
    stripped = text.strip()
    if stripped in known:
        return known[stripped]
    number = np.nan if stripped in _MISSING else _number(stripped)
    if number is None:
        raise BadInput(f"the target in {where} is {text!r}; {said(names, len(names))}")
    return number


def _number(text: str) -> float | None:
    """The number that a text is in a file, if it is one."""
    try:
        return _TRUTH[text.lower()] if text.lower() in _TRUTH else float(text)
    except ValueError:
        return None
