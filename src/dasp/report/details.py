"""What the page shows of single rows, whatever they are, and of which of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.report.arrays import Images, Series
from dasp.report.contents import Contents, Rows
from dasp.report.importance import Known
from dasp.report.page import rounded
from dasp.report.swarms import Swarms
from dasp.report.waterfalls import Row, Table, parts
from dasp.words import INTERVAL, plain

__all__ = ["MOST_ROWS", "Details", "details_of"]

MOST_ROWS = 10_000
_MOST_BYTES = 7_000_000  # of all rows together; the page stays below 10 MB
_EXACTLY = 9  # digits of what is written out, and not only drawn
_TRIED = 8  # rows by which the size of all is estimated


@dataclass(frozen=True)
class Details:
    """Rows of the page."""

    kind: str  # table, image, text, sequence or series
    rows: list[Row]
    swarm: list[dict[str, Any]]  # values of some rows for each of the most important players


def details_of(contents: Contents, known: Known, most: int) -> Details:
    """What is shown of rows: of all if they are few, else of those that missed the tolerance and of a random sample."""
    kind, describe = _kind(contents)
    first = next(contents.rows())
    tried = [_common(first, i) | describe(first, i) for i in range(min(_TRIED, len(first)))]
    fit = _MOST_BYTES * len(tried) // sum(map(_size, tried))
    order = np.random.default_rng(0).permutation(known.rows)
    if len(known.missed):
        order = order[np.argsort(~known.missed[order], kind="stable")]
    chosen = np.sort(order[: min(most, MOST_ROWS, max(1, fit))])
    found = [_common(some, i) | describe(some, i) for some, i in _picked(contents, chosen)]
    kept = _fitting(found, np.argsort(np.argsort(order)[chosen]))
    swarm: list[dict[str, Any]] = []
    if kind == "table" and len(kept) > 1:
        swarm = Swarms(contents, known, len(kept)).of(_picked(contents, chosen[kept]))
    return Details(kind, [found[i] for i in kept], swarm)


def _picked(contents: Contents, chosen: NDArray[Any]) -> Iterator[tuple[Rows, int]]:
    """Rows by their numbers, which grow."""
    start = 0
    for some in contents.rows():
        here = chosen[(chosen >= start) & (chosen < start + len(some))]
        yield from ((some, int(i) - start) for i in here)
        start += len(some)


def _size(row: Row) -> int:
    return len(json.dumps(row, ensure_ascii=False).encode())


def _fitting(rows: list[Row], order: NDArray[Any]) -> list[int]:
    """The rows, taken in an order, that have room in the page together."""
    total = np.cumsum([_size(rows[i]) for i in order])
    return sorted(order[: max(1, int((total <= _MOST_BYTES).sum()))].tolist())


def _common(some: Rows, i: int) -> Row:
    """What every row has."""
    found: Row = {
        "id": plain(some.ids[i]), "target": int(some.target[i]), "prediction": rounded(some.prediction[i], _EXACTLY),
        "base": rounded(some.base[i], _EXACTLY), "gap": rounded(some.gap[i]),
        "total": rounded(some.prediction[i] + some.gap[i], _EXACTLY),  # what base and values add up to
    }  # fmt: skip
    if some.std is not None:
        found["error"] = rounded(INTERVAL * np.max(some.std[i], initial=0.0))
    if some.evaluations is not None:
        found["evaluations"] = int(some.evaluations[i])
    if some.missed is not None:
        found["missed"] = bool(some.missed[i])
    return found


def _kind(contents: Contents) -> tuple[str, Callable[[Rows, int], Row]]:
    """What rows are, and how one is described."""
    if contents.is_text:
        return "text", _text
    if contents.image is not None:
        return "image", Images(contents)
    shape = contents.shape
    if shape is not None and len(shape) <= 2 and (contents.mask is not None or len(shape) == 2):
        own = Series(contents)
        if own.may_be_letters() and all(own.are_letters(some.data) for some in contents.rows()):
            return "sequence", own.sequence
        return "series", own.series
    return "table", Table(contents)


def _text(some: Rows, i: int) -> Row:
    """A text with the value of each piece; pieces that are one player come with the same number."""
    assert some.pieces is not None
    pieces, values = some.pieces[i], some.values[i]
    std = None if some.std is None else some.std[i]
    found = parts(values, std, lambda piece: pieces[piece].strip() or pieces[piece], lambda _: "")
    halves = None if std is None else [rounded(INTERVAL * one) for one in std]
    return found | {"pieces": pieces, "values": [rounded(value) for value in values], "halves": halves}
