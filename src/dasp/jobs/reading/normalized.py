"""Rows as a model was trained on them: every channel of an image, or column of a table, shifted and scaled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.errors import BadInput
from dasp.jobs.reading.source import RawChunk, Source

__all__ = ["Normalized", "Scaling", "file_of"]

_WORDS = {"imagenet": "0.485,0.456,0.406/0.229,0.224,0.225"}


@dataclass(frozen=True)
class Scaling:
    """(x − mean) / deviation, with one number for all entries, or one for each channel or column.

    >>> Scaling.of("imagenet").of_shape((3, 8, 8))(np.full((1, 3, 8, 8), 0.485))[0, 0, 0, 0]
    np.float64(0.0)
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @staticmethod
    def of(text: str) -> Scaling:
        """Read "mean/deviation", each a number or several with commas between, or the name of some that are known."""
        form = "MEANS/DEVIATIONS like 0.5/0.25 or 1,2,3/4,5,6, or imagenet, is needed"
        try:
            mean, deviation = (
                np.array([float(number) for number in part.split(",")])
                for part in _WORDS.get(text.lower(), text).split("/")
            )
        except ValueError as error:
            raise BadInput(f"--normalize is {text!r}; {form}") from error
        if len(mean) != len(deviation):
            raise BadInput(f"--normalize has {len(mean)} means and {len(deviation)} deviations; as many are needed")
        if not np.isfinite([*mean, *deviation]).all() or (deviation <= 0).any():
            raise BadInput(f"--normalize is {text!r}; finite means, and finite deviations above 0, are needed")
        return Scaling(mean, deviation)

    def of_shape(self, shape: tuple[int, ...]) -> Scaling:
        """The same for rows of a shape; channels come first."""
        if len(self.mean) not in (1, shape[0]):
            what = "columns" if len(shape) == 1 else "channels"
            raise BadInput(
                f"--normalize has {len(self.mean)} means, but a row has {shape[0]} {what}; as many are needed"
            )
        along = (-1, *(1 for _ in shape[1:]))
        return Scaling(self.mean.reshape(along), self.deviation.reshape(along))

    def only(self, columns: list[int]) -> Scaling:
        """The same for columns in another order."""
        return self if len(self.mean) == 1 else Scaling(self.mean[columns], self.deviation[columns])

    def __call__(self, values: NDArray[Any]) -> NDArray[Any]:
        """The rows scaled, in their own precision if they are no whole numbers."""
        dtype = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        return (values - self.mean.astype(dtype)) / self.deviation.astype(dtype)


@dataclass(frozen=True)
class Normalized:
    """The rows of another source, scaled; what they were is kept beside them."""

    source: Source
    scaling: Scaling

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.source.shape

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of a row's entries."""
        return self.source.names

    @property
    def files(self) -> list[Path]:
        """The files that the rows come from."""
        return self.source.files

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[RawChunk]:
        """Chunks of `size` rows."""
        for raw in self.source.chunks(size, skip):
            yield replace(raw, values=self.scaling(raw.values), data=raw.values)


def file_of(source: Source) -> Source:
    """The source as it is in its file."""
    return source.source if isinstance(source, Normalized) else source
