"""Rows that are arrays: images with their maps of values, series with their windows, sequences of letters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.report import pictures
from dasp.report.contents import Contents, Rows
from dasp.report.page import rounded
from dasp.report.waterfalls import Row, parts
from dasp.words import INTERVAL

__all__ = ["Images", "Series"]

_LETTERS = "ACGT"  # of four channels, in this order
_MOST_PLACES = 0.9  # have a letter in a sequence; the others are unknown


class Images:
    """Images with the values of their pixels, blocks or superpixels."""

    def __init__(self, contents: Contents) -> None:
        assert contents.image is not None
        self.shape, self.mask = contents.image, contents.mask

    def __call__(self, some: Rows, i: int) -> Row:
        """The image of a row, its map, and both together."""
        values, shape = np.asarray(some.values[i], dtype=np.float64), self.shape
        mask = self.mask if some.masks is None else np.unique(some.masks[i], return_inverse=True)[1]
        pixels = pictures.map_of(values, mask, shape)
        limit = float(np.nanmax(np.abs(pixels), initial=0.0)) or 1.0
        found: Row = {"limit": rounded(limit)}
        views = {"map": pictures.mapped(pixels, limit)}
        if some.data is not None:
            picture = pictures.picture_of(np.asarray(some.data[i]).reshape(shape))
            views |= {"image": picture, "overlay": pictures.mapped(pixels, limit, picture)}
        factor = 1 if mask is None else pictures.factor_of(*shape[1:])
        for name, colours in views.items():
            lined = mask is not None and name != "image"
            shown = pictures.outlined(colours, mask.reshape(shape), factor) if lined else colours  # type: ignore[union-attr]
            found[name] = pictures.address(shown)
        if mask is not None:
            std = None if some.std is None else np.asarray(some.std[i])
            found |= parts(values, std, lambda player: self.place(mask, player), lambda _: "")
        return found

    def place(self, mask: NDArray[Any], player: int) -> str:
        """Where a player is."""
        _, y, x = np.nonzero(mask.reshape(self.shape) == player)
        return f"region at ({round(float(x.mean()))}, {round(float(y.mean()))})"


class Series:
    """Series with the values of their steps or windows; sequences of letters, if rows are such."""

    def __init__(self, contents: Contents) -> None:
        shape = contents.shape
        assert shape is not None
        self.shape = (1, *shape) if len(shape) == 1 else shape
        mask = np.arange(np.prod(shape)) if contents.mask is None else contents.mask
        self.mask = mask.reshape(self.shape)
        across = (self.mask == self.mask[:, :1]).all() and self.shape[1] > 1  # windows along the first axis
        self.along = 0 if across else 1  # the axis of time: rows are (channels, steps), unless windows say otherwise
        places = [np.nonzero(self.mask == player) for player in range(int(self.mask.max()) + 1)]
        self.spans = [(int(p[self.along].min()), int(p[self.along].max())) for p in places]
        self.channels = [sorted(set(p[1 - self.along].tolist())) for p in places]

    def may_be_letters(self) -> bool:
        """Whether there are four channels, and places are players."""
        alone = all(first == last for first, last in self.spans)
        return self.shape[1 - self.along] == len(_LETTERS) and alone and len(self.spans) == self.shape[self.along]

    def are_letters(self, data: Any) -> bool:
        """Whether rows have one of four at most places, and no more than one at any."""
        if data is None:
            return False
        every = np.concatenate([self.lines(row) for row in data], 1)
        return bool(np.isin(every, (0, 1)).all() and (every.sum(0) <= 1).all() and every.sum(0).mean() > _MOST_PLACES)

    def lines(self, row: Any) -> NDArray[Any]:
        """A row as (channels, steps)."""
        whole = np.asarray(row, dtype=np.float64).reshape(self.shape)
        return whole if self.along == 1 else whole.T

    def spelled(self, row: Any) -> str:
        """The letters of a row; a place without any is an N."""
        lines = self.lines(row)
        return "".join(_LETTERS[i] if there else "N" for i, there in zip(lines.argmax(0), lines.max(0), strict=True))

    def sequence(self, some: Rows, i: int) -> Row:
        """The letters of a row with their values."""
        letters, values, std = self.spelled(some.data[i]), some.values[i], self._std(some, i)
        order = np.argsort([first for first, _ in self.spans])
        return parts(values, std, lambda p: f"{letters[self.spans[p][0]]} at {self.spans[p][0] + 1}", lambda _: "") | {
            "letters": letters,
            "values": [rounded(value) for value in values[order]],
            "halves": None if std is None else [rounded(INTERVAL * one) for one in std[order]],
        }

    def series(self, some: Rows, i: int) -> Row:
        """The channels of a row, and the value of each window."""
        values, std = some.values[i], self._std(some, i)
        found = parts(values, std, self.place, lambda _: "")
        found["windows"] = [
            [*self.spans[p], self.channels[p], rounded(values[p]), None if std is None else rounded(INTERVAL * std[p])]
            for p in range(len(values))
        ]
        found["channels"] = self.shape[1 - self.along]
        if some.data is not None:
            found["lines"] = [[rounded(x) for x in line] for line in self.lines(some.data[i])]
        return found

    def place(self, player: int) -> str:
        """Where a player is."""
        first, last = self.spans[player]
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        several = self.shape[1 - self.along] > 1 and len(self.channels[player]) < self.shape[1 - self.along]
        return f"{steps}, channel {', '.join(map(str, self.channels[player]))}" if several else steps

    @staticmethod
    def _std(some: Rows, i: int) -> NDArray[Any] | None:
        return None if some.std is None else some.std[i]
