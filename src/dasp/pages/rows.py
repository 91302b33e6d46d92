"""The rows of the page: what it shows of single rows, and of which of them.

A row is plain data (a `Row`) that the page's script draws: what all rows have, its largest players with all others as
one sum (a waterfall), its largest interactions of two players if they are known, and, by the kind of rows, its picture
with a map of values, its text, sequence or series. Of
tables there are swarms, too: the values of some rows for the most important players. Pictures are PNG files in an
address.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dasp.display import data_fractions, half_of_sum, largest, overlay, pale, pixel_values, scaled_picture, uncertain
from dasp.formatting import INTERVAL, entry, number, shown
from dasp.pages.contents import Contents, OutputRows
from dasp.pages.render import rounded
from dasp.pages.statistics import Statistics

__all__ = ["MOST_ROWS", "PageRows", "page_rows", "shade", "size_picture"]

MOST_ROWS = 10_000
_MOST_BYTES = 7_000_000  # of all rows together; the page stays below 10 MB
_EXACTLY = 9  # digits of what is written out, and not only drawn
_TRIED = 8  # rows by which the size of all is estimated
_PARTS = 12  # lines of a waterfall
_PAIRS = 5  # of a row
_LIGHT = 0.55  # of the scale of colours: black text can be read on all of it
_SWARM_ROWS, _SWARM_PLAYERS = 400, 12
_LETTERS = "ACGT"  # of four channels, in this order
_MOST_PLACES = 0.9  # have a letter in a sequence; the others are unknown
_SMALLEST = 192  # pixels of the longer side, below which pixels are enlarged by whole numbers
# ColorBrewer's RdBu, from blue to red, as figures have it.
_SCALE = np.array([
    (5, 48, 97), (33, 102, 172), (67, 147, 195), (146, 197, 222), (209, 229, 240), (247, 247, 247),
    (253, 219, 199), (244, 165, 130), (214, 96, 77), (178, 24, 43), (103, 0, 31),
])  # fmt: skip

Row = dict[str, Any]


@dataclass(frozen=True)
class PageRows:
    """The rows of the page, with their swarms."""

    kind: str  # table, image, text, sequence or series
    rows: list[Row]
    swarm: list[dict[str, Any]]  # values of some rows for each of the most important players
    names: list[str]  # of the players, if their interactions are known


def page_rows(contents: Contents, known: Statistics, most: int) -> PageRows:
    """Return the rows of the page: all if they are few, else those that missed the tolerance and a random sample."""
    kind, describe = _kind(contents)
    first, pictures = next(contents.rows()), _pictures(contents)
    tried = zip(range(min(_TRIED, len(first))), pictures(np.arange(_TRIED)), strict=False)
    fit = _fit(_size(_common(first, i) | describe(first, i) | picture) for i, picture in tried)
    order = np.random.default_rng(0).permutation(known.rows)
    if len(known.missed):
        order = order[np.argsort(~known.missed[order], kind="stable")]
    chosen = np.sort(order[: min(most, MOST_ROWS, max(1, fit))])
    rows = zip(_picked(contents, chosen), pictures(chosen), strict=False)
    found = [_common(some, i) | describe(some, i) | picture for (some, i), picture in rows]
    kept = _fitting(found, np.argsort(np.argsort(order)[chosen]))
    swarm: list[dict[str, Any]] = []
    if kind == "table" and len(kept) > 1:
        swarm = Swarms(contents, known, len(kept)).of(_picked(contents, chosen[kept]))
    names = _player_names(contents, known, kind) if known.pairs else []
    return PageRows(kind, [found[i] for i in kept], swarm, names)


def _pictures(contents: Contents) -> Callable[[NDArray[Any]], Iterator[Row]]:
    """Return a function that gives the picture of each row by its number, where one of several inputs is an image; what
    texts are by their sentences, where that is known; and else nothing."""
    part = contents.picture
    if contents.sentences is not None:
        texts = contents.sentences
        return lambda chosen: ({"sentences": _text(some, i)} for some, i in _picked(texts, chosen))
    if part is None:
        return lambda _: repeat({})
    draw = ImageRows(part)
    kept = ("limit", "image", "map", "overlay")

    def drawn(chosen: NDArray[Any]) -> Iterator[Row]:
        for some, i in _picked(part, chosen):
            own = draw(some, i)
            yield {"of": shown(part.title or "")} | {name: own[name] for name in kept if name in own}

    return drawn


def _player_names(contents: Contents, known: Statistics, kind: str) -> list[str]:
    """Return what the players are called where two of them are named together."""
    players = range(len(known.players))
    if kind in ("sequence", "series"):
        return list(map(SeriesRows(contents).place, players))
    if kind == "image" and contents.mask is not None:
        own, mask = ImageRows(contents), contents.mask
        return [own.place(mask, player) for player in players]
    return [player.name for player in known.players]


def _picked(contents: Contents, chosen: NDArray[Any]) -> Iterator[tuple[OutputRows, int]]:
    """Go through rows by their numbers, which grow."""
    start = 0
    for some in contents.rows():
        here = chosen[(chosen >= start) & (chosen < start + len(some))]
        yield from ((some, int(i) - start) for i in here)
        start += len(some)


def _fit(sizes: Iterable[int]) -> int:
    """Estimate how many rows have room in the page by the sizes of the first. As soon as these alone fill it, no others
    are looked at: one row may have a million places.

    >>> _fit([7_000, 14_000]), _fit(iter([8_000_000, 1]))
    (666, 0)
    """
    total = number = 0
    for size in sizes:
        total, number = total + size, number + 1
        if total > _MOST_BYTES:
            break
    return _MOST_BYTES * number // total


def _size(row: Row) -> int:
    return len(json.dumps(row, ensure_ascii=False).encode())


def _fitting(rows: list[Row], order: NDArray[Any]) -> list[int]:
    """Return the rows, taken in an order, that have room in the page together."""
    total = np.cumsum([_size(rows[i]) for i in order])
    return sorted(order[: max(1, int((total <= _MOST_BYTES).sum()))].tolist())


def _common(some: OutputRows, i: int) -> Row:
    """Return what every row has, of whatever kind it is."""
    found: Row = {
        "id": shown(str(some.ids[i])), "target": int(some.target[i]),
        "prediction": rounded(some.prediction[i], _EXACTLY),
        "base": rounded(some.base[i], _EXACTLY), "gap": rounded(some.gap[i]),
        "total": rounded(some.prediction[i] + some.gap[i], _EXACTLY),  # what base and values add up to
    }  # fmt: skip
    if some.std is not None:
        found["error"] = rounded(INTERVAL * np.max(some.std[i], initial=0.0))
    if some.evaluations is not None:
        found["evaluations"] = int(some.evaluations[i])
    if some.missed is not None:
        found["missed"] = bool(some.missed[i])
    if some.interactions is not None and some.interactions_std is not None:
        found["pairs"] = _largest_pairs(some.interactions[i], INTERVAL * some.interactions_std[i])
    return found


def _largest_pairs(values: NDArray[Any], halves: NDArray[Any]) -> list[list[Any]] | None:
    """Return the largest interactions of a row, [one, other, value, half of the interval], without those that are
    exactly 0; None if they are not known."""
    if not np.isfinite(values).all():
        return None
    first, second = np.triu_indices(math.isqrt(2 * len(values)) + 1, 1)  # in the order of itertools.combinations
    order = np.argsort(-np.abs(values), kind="stable")[:_PAIRS]
    return [
        [int(first[k]), int(second[k]), rounded(values[k]), rounded(halves[k])]
        for k in order.tolist()
        if values[k] or halves[k]
    ]


def _kind(contents: Contents) -> tuple[str, Callable[[OutputRows, int], Row]]:
    """Return the kind of the rows, and the function that describes one."""
    if contents.is_text:
        return "text", _text
    if contents.image is not None:
        return "image", ImageRows(contents)
    shape = contents.shape
    if shape is not None and len(shape) <= 2 and (contents.mask is not None or len(shape) == 2):
        own = SeriesRows(contents)
        if own.may_be_letters() and all(own.are_letters(some.data) for some in contents.rows()):
            return "sequence", own.sequence
        return "series", own.series
    return "table", TableRows(contents)


def _parts(
    values: NDArray[Any], std: NDArray[Any] | None, label: Callable[[int], Any], data: Callable[[int], str]
) -> Row:
    """Return the largest players of a row, [label, value, half of the interval, data], and all others together."""
    named, others = largest(values, _PARTS)
    found: Row = {
        "parts": [
            [label(i), rounded(values[i]), None if std is None else rounded(INTERVAL * std[i]), data(i)]
            for i in named.tolist()
        ]
    }
    if len(others):
        half = None if std is None else rounded(INTERVAL * half_of_sum(std[others]))
        found["others"] = [len(others), rounded(float(values[others].sum())), half]
    return found


class TableRows:
    """Rows of a table, whose players are columns or groups of columns."""

    def __init__(self, contents: Contents) -> None:
        self.members = None if contents.mask is None else _members(contents.mask)

    def __call__(self, some: OutputRows, i: int) -> Row:
        """Return the players of a row."""
        std = None if some.std is None else some.std[i]
        return _parts(some.values[i], std, int, lambda player: self.data(some, i, player))

    def data(self, some: OutputRows, i: int, player: int) -> str:
        """Return the inputs of a player in a row as text."""
        if some.data is None:
            return ""
        members = [player] if self.members is None else self.members[player].tolist()
        told = [entry(some.data[i][member]) for member in members[:3]]
        return ", ".join(told) + (", …" if len(members) > len(told) else "")


def _members(mask: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the entries of each player.

    >>> _members(np.array([1, 0, 1]))
    [array([1]), array([0, 2])]
    """
    return np.split(np.argsort(mask, kind="stable"), np.cumsum(np.bincount(mask))[:-1])


def _text(some: OutputRows, i: int) -> Row:
    """Return a text with the value of each piece."""
    assert some.pieces is not None
    pieces, values = some.pieces[i], some.values[i]
    std = None if some.std is None else some.std[i]
    found = _parts(values, std, lambda piece: pieces[piece].strip() or pieces[piece], lambda _: "")
    halves = None if std is None else [rounded(INTERVAL * one) for one in std]
    return found | {"pieces": pieces, "values": [rounded(value) for value in values], "halves": halves}


class ImageRows:
    """Rows that are images, with the values of their pixels, blocks or superpixels."""

    def __init__(self, contents: Contents) -> None:
        assert contents.image is not None
        self.contents, self.shape, self.mask = contents, contents.image, contents.mask

    def __call__(self, some: OutputRows, i: int) -> Row:
        """Return the image of a row, the map of its values, and both together."""
        values, shape = np.asarray(some.values[i], dtype=np.float64), self.shape
        mask = self.mask if some.masks is None else np.unique(some.masks[i], return_inverse=True)[1]
        pixels = _pixels(values, mask, shape)
        limit = float(np.nanmax(np.abs(pixels), initial=0.0)) or 1.0
        found: Row = {"limit": rounded(limit)}
        views = {"map": _coloured(pixels / limit)}
        if some.data is not None:
            picture = scaled_picture(np.moveaxis(np.asarray(some.data[i]).reshape(shape), 0, -1)[..., :3])
            views |= {"image": _bytes(picture), "overlay": _over(pixels, limit, picture)}
        factor = 1 if mask is None else _factor(*shape[1:])
        for name, colours in views.items():
            lined = mask is not None and name != "image"
            shown = _outlined(colours, mask.reshape(shape), factor) if lined else colours  # type: ignore[union-attr]
            found[name] = _address(shown)
        if mask is not None:
            std = None if some.std is None else np.asarray(some.std[i])
            found |= _parts(values, std, lambda player: self.place(mask, player), lambda _: "")
        return found

    def mean_picture(self) -> tuple[str, float]:
        """Return the mean |value| of every pixel over all rows, as `size_picture` does, where each row has players of
        its own."""
        total, number = np.zeros(self.shape[1:]), 0
        for some in self.contents.rows(data=False):
            assert some.masks is not None
            for values, mask in zip(some.values, some.masks, strict=True):
                own = np.unique(mask, return_inverse=True)[1]
                pixels = _pixels(np.asarray(values, dtype=np.float64), own, self.shape)
                if np.isfinite(pixels).all():
                    total, number = total + np.abs(pixels), number + 1
        return _sizes_drawn(total / max(number, 1))

    def place(self, mask: NDArray[Any], player: int) -> str:
        """Say where a player is."""
        _, y, x = np.nonzero(mask.reshape(self.shape) == player)
        return f"region at ({round(float(x.mean()))}, {round(float(y.mean()))})"


class SeriesRows:
    """Rows that are series, with the values of their steps or windows, or sequences of letters."""

    def __init__(self, contents: Contents) -> None:
        shape = contents.shape
        assert shape is not None
        self.shape = (1, *shape) if len(shape) == 1 else shape
        mask = np.arange(np.prod(shape)) if contents.mask is None else contents.mask
        self.mask = mask.reshape(self.shape)
        across = (self.mask == self.mask[:, :1]).all() and self.shape[1] > 1  # windows along the first axis
        self.along = 0 if across else 1  # the axis of time: rows are (channels, steps), unless windows say otherwise
        places = [np.unravel_index(own, self.mask.shape) for own in _members(self.mask.ravel())]
        self.spans = [(int(p[self.along].min()), int(p[self.along].max())) for p in places]
        self.channels = [sorted(set(p[1 - self.along].tolist())) for p in places]

    def may_be_letters(self) -> bool:
        """True if there are four channels, and places are players."""
        alone = all(first == last for first, last in self.spans)
        return self.shape[1 - self.along] == len(_LETTERS) and alone and len(self.spans) == self.shape[self.along]

    def are_letters(self, data: Any) -> bool:
        """True if rows have one of four letters at most places, and no more than one at any."""
        if data is None:
            return False
        every = np.concatenate([self.lines(row) for row in data], 1)
        return bool(np.isin(every, (0, 1)).all() and (every.sum(0) <= 1).all() and every.sum(0).mean() > _MOST_PLACES)

    def lines(self, row: Any) -> NDArray[Any]:
        """Return a row as (channels, steps)."""
        whole = np.asarray(row, dtype=np.float64).reshape(self.shape)
        return whole if self.along == 1 else whole.T

    def spelled(self, row: Any) -> str:
        """Return the letters of a row; a place without any is an N."""
        lines = self.lines(row)
        return "".join(_LETTERS[i] if there else "N" for i, there in zip(lines.argmax(0), lines.max(0), strict=True))

    def sequence(self, some: OutputRows, i: int) -> Row:
        """Return the letters of a row with their values."""
        letters, values, std = self.spelled(some.data[i]), some.values[i], self._std(some, i)
        order = np.argsort([first for first, _ in self.spans])
        return _parts(values, std, lambda p: f"{letters[self.spans[p][0]]} at {self.spans[p][0] + 1}", lambda _: "") | {
            "letters": letters,
            "values": [rounded(value) for value in values[order]],
            "halves": None if std is None else [rounded(INTERVAL * one) for one in std[order]],
        }

    def series(self, some: OutputRows, i: int) -> Row:
        """Return the channels of a row, and the value of each window."""
        values, std = some.values[i], self._std(some, i)
        found = _parts(values, std, self.place, lambda _: "")
        found["windows"] = [
            [*self.spans[p], self.channels[p], rounded(values[p]), None if std is None else rounded(INTERVAL * std[p])]
            for p in range(len(values))
        ]
        found["channels"] = self.shape[1 - self.along]
        if some.data is not None:
            found["lines"] = [[rounded(x) for x in line] for line in self.lines(some.data[i])]
        return found

    def place(self, player: int) -> str:
        """Say where a player is."""
        first, last = self.spans[player]
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        several = self.shape[1 - self.along] > 1 and len(self.channels[player]) < self.shape[1 - self.along]
        return f"{steps}, channel {', '.join(map(str, self.channels[player]))}" if several else steps

    @staticmethod
    def _std(some: OutputRows, i: int) -> NDArray[Any] | None:
        return None if some.std is None else some.std[i]


class Swarms:
    """A line of dots for each of the most important players, from some of the rows of the page."""

    def __init__(self, contents: Contents, known: Statistics, rows: int) -> None:
        self.players = known.order[:_SWARM_PLAYERS]
        self.names = [known.players[player].name for player in self.players]
        self.members = None if contents.mask is None else _members(contents.mask)
        self.places = np.unique(np.linspace(0, rows - 1, min(rows, _SWARM_ROWS)).round().astype(int)).tolist()

    def of(self, rows: Iterable[tuple[OutputRows, int]]) -> list[dict[str, Any]]:
        """Return for each player the values, 1 where they are uncertain, the size of the data from 0 to 100, and the
        numbers of the rows."""
        wanted = set(self.places)
        seen = [self._seen(some, i) for place, (some, i) in enumerate(rows) if place in wanted]
        return [self._line(place, [row[place] for row in seen]) for place in range(len(self.players))]

    def _seen(self, some: OutputRows, i: int) -> list[tuple[float, float, Any]]:
        """Return the value of each player in a row, half of its interval, and the data."""
        halves = np.zeros(len(some.values[i])) if some.std is None else INTERVAL * some.std[i]
        return [(float(some.values[i][p]), float(halves[p]), self._data(some, i, p)) for p in self.players]

    def _data(self, some: OutputRows, i: int, player: int) -> Any:
        """Return the input of a player in a row; None if it is not known, or the player has several."""
        members = [player] if self.members is None else self.members[player]
        return some.data[i][members[0]] if some.data is not None and len(members) == 1 else None

    def _line(self, place: int, seen: list[tuple[float, float, Any]]) -> dict[str, Any]:
        values = [value for value, _, _ in seen]
        return {
            "player": self.players[place],
            "values": [rounded(value) for value in values],
            "unsure": [int(uncertain(value, half)) for value, half, _ in seen],
            "ranks": _ranks([data for _, _, data in seen]),
            "rows": self.places,
            "said": _said(self.names[place], np.array(values)),
        }


def _said(name: str, values: NDArray[Any]) -> str:
    there = values[np.isfinite(values)]
    if not len(there):
        return f"Values of {name}: none of them is finite."
    low, middle, high = np.percentile(there, (0, 50, 100))
    return f"Values of {name}: from {number(low)} to {number(high)}, {number(middle)} in the middle."


def _ranks(data: list[Any]) -> list[int | None] | None:
    """Return how large the data are from 0 to 100, None where one is missing; None if they are no numbers."""
    fractions = data_fractions(data)
    return None if fractions is None else [None if np.isnan(x) else round(100 * x) for x in fractions.tolist()]


def size_picture(means: NDArray[Any], mask: NDArray[Any] | None, shape: tuple[int, int, int]) -> tuple[str, float]:
    """Return the mean |value| of every pixel as the address of a picture, and the largest of them."""
    return _sizes_drawn(_pixels(means, mask, shape))


def _sizes_drawn(pixels: NDArray[Any]) -> tuple[str, float]:
    most = float(pixels.max()) or 1.0
    return _address(_enlarged(_coloured(pixels / most), _factor(*pixels.shape))), most


def _coloured(fractions: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the colours (…, 3) of values from −1 to 1.

    >>> _coloured(np.array([-1.0, 0.0, 1.0])).tolist()
    [[5, 48, 97], [247, 247, 247], [103, 0, 31]]
    """
    places = (np.clip(np.nan_to_num(fractions), -1, 1) + 1) * (len(_SCALE) - 1) / 2
    channels = [np.interp(places, range(len(_SCALE)), _SCALE[:, channel]) for channel in range(3)]
    return np.stack(channels, -1).round().astype(np.uint8)


def shade(fraction: float) -> str:
    """Return the colour of a value from −1 to 1 behind black text, as the page's style has it.

    >>> shade(0.0), shade(1.0)
    ('rgb(247,247,247)', 'rgb(222,113,90)')
    """
    return f"rgb({','.join(map(str, _coloured(np.array(_LIGHT * fraction)).tolist()))})"


def _bytes(picture: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an image (height, width, 1 or 3) from 0 to 1 as colours (height, width, 3)."""
    return np.broadcast_to((255 * picture).round().astype(np.uint8), (*picture.shape[:2], 3))


def _pixels(values: NDArray[Any], mask: NDArray[Any] | None, shape: tuple[int, int, int]) -> NDArray[Any]:
    """Return the values of players as those of pixels, (height, width)."""
    if mask is None:
        return values.reshape(shape).sum(0)
    players = np.moveaxis(np.asarray(mask).reshape(shape), 0, -1)
    return pixel_values(values[players], players)


def _over(pixels: NDArray[Any], limit: float, picture: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a map of values over a picture (height, width, channels) from 0 to 1."""
    places, cover = overlay(pixels, limit)
    below = 255 * pale(picture)[..., None]
    return ((1 - cover[..., None]) * below + cover[..., None] * _coloured(places)).round().astype(np.uint8)


def _outlined(colours: NDArray[np.uint8], mask: NDArray[Any], factor: int) -> NDArray[np.uint8]:
    """Return an enlarged picture with lines between pixels of different players (channels, height, width)."""
    wide = np.repeat(np.repeat(mask, factor, 1), factor, 2)
    edge = np.zeros(wide.shape[1:], dtype=bool)
    edge[1:] |= (wide[:, 1:] != wide[:, :-1]).any(0)
    edge[:, 1:] |= (wide[:, :, 1:] != wide[:, :, :-1]).any(0)
    return np.where(edge[..., None], np.uint8(70), _enlarged(colours, factor))


def _enlarged(colours: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """Return a picture with every pixel as a square of pixels."""
    return np.repeat(np.repeat(colours, factor, 0), factor, 1)


def _factor(height: int, width: int) -> int:
    """Return by how much a small picture is enlarged, so that there is room for outlines."""
    return max(1, -(-_SMALLEST // max(height, width)))


def _address(colours: NDArray[np.uint8]) -> str:
    """Return a picture as an address; with few colours, those are listed once."""
    image = Image.fromarray(np.ascontiguousarray(colours))
    if image.getcolors(256) is not None:
        image = image.quantize(256, dither=Image.Dither.NONE)
    stream = io.BytesIO()
    image.save(stream, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
