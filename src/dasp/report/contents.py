"""The contents of an output of `dasp explain`: tables, images, texts, sequences or series."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dasp.display import CHANNELS
from dasp.errors import BadInput, line_of
from dasp.formatting import plain
from dasp.jobs.output import FORMATS, StoredOutput, format_of
from dasp.jobs.reading.source import floats
from dasp.jobs.record import JobRecord, JobResult, UnreadableRecord

__all__ = ["Contents", "OutputRows", "read"]

_PAIRS = ("interactions", "interactions_std")


@dataclass(frozen=True)
class OutputRows:
    """Some rows of an output, in its order. Values are (rows, players); of texts, and of rows with players of their
    own, an array for each row."""

    ids: list[Any]
    target: NDArray[Any]
    prediction: NDArray[Any]
    base: NDArray[Any]
    values: Any
    std: Any  # like the values; None if the method knows none
    gap: NDArray[Any]
    method: list[str]
    evaluations: NDArray[Any] | None  # outputs of earlier versions have none
    missed: NDArray[Any] | None  # the tolerance; None if there was none
    data: Any  # (rows, entries) as the file has them; None if they were not written
    pieces: list[list[str]] | None  # of texts
    masks: NDArray[Any] | None  # the player of every entry, if each row has its own
    interactions: NDArray[Any] | None = None  # of all pairs of players, (rows, pairs); NaN where they are not known
    interactions_std: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def largest_std(self) -> NDArray[Any]:
        """Return the largest standard deviation of each row; NaN if there is none."""
        if self.std is None:
            return np.full(len(self), np.nan)
        if isinstance(self.std, np.ndarray):
            return self.std.max(1, initial=0.0)
        return np.array([np.max(one, initial=0.0) for one in self.std])


@dataclass(frozen=True)
class Contents:
    """An output file, with what it says of all its rows."""

    file: Path
    stored: StoredOutput
    record: JobRecord  # of the job that wrote it

    @property
    def result(self) -> JobResult:
        """Return what was known when all rows were written."""
        return self.stored.result

    @cached_property
    def files(self) -> dict[str, str]:
        """The names of the model's and the data's files."""
        return {"MODEL": plain(self.result.model), "DATA": plain(self.result.data)}

    @cached_property
    def outputs(self) -> list[str]:
        """The names of the model's outputs, if they are known."""
        return [plain(name) for name in self.result.output_names]

    def output(self, target: int) -> str:
        """Return the name of an output, or its number."""
        return self.outputs[target] if target < len(self.outputs) else str(target)

    @cached_property
    def names(self) -> list[str]:
        """The names of the players' columns; none if values are lists."""
        columns = self.stored.schema.names
        between = columns[columns.index("base_value") + 1 : columns.index("gap")]
        return [] if "values" in between else [name for name in between if not name.startswith("error_std:")]

    @cached_property
    def others(self) -> list[str]:
        """The names of all other columns."""
        players = set(self.names)
        return [name for name in self.stored.schema.names if name not in players]

    @cached_property
    def inputs(self) -> list[str]:
        """The names of the inputs, if they were written."""
        return [name.removeprefix("data:") for name in self.others if name.startswith("data:")]

    @cached_property
    def is_text(self) -> bool:
        """True if rows are texts."""
        return "pieces" in self.others

    @cached_property
    def has_errors(self) -> bool:
        """True if standard deviations are known."""
        return any(name == "error_std" or name.startswith("error_std:") for name in self.others)

    @cached_property
    def has_interactions(self) -> bool:
        """True if the interactions of pairs of players were written."""
        kinds = [self.stored.schema.field(name).type for name in _PAIRS if name in self.others]
        return len(kinds) == len(_PAIRS) and all(map(pa.types.is_fixed_size_list, kinds))

    @cached_property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a row that is an array; None for tables and texts."""
        told = self.stored.about.get("data shape") or self.stored.about.get("shape")
        return None if told is None or self.names else tuple(json.loads(told))

    @cached_property
    def image(self) -> tuple[int, int, int] | None:
        """The shape (channels, height, width), if rows are images."""
        shape = self.shape
        return (shape[0], shape[1], shape[2]) if shape and len(shape) == 3 and shape[0] in CHANNELS else None

    @cached_property
    def mask(self) -> NDArray[Any] | None:
        """The player of every entry; None if entries are players, or each row has players of its own."""
        told = self.stored.about.get("players")
        return None if told is None else np.array(json.loads(told))

    @cached_property
    def own_players(self) -> bool:
        """True if each row has players of its own."""
        return self.is_text or "players" in self.others

    def rows(self, *, data: bool = True) -> Iterator[OutputRows]:
        """Go through all rows, some at a time, with the inputs or without."""
        left = [name for name in self.others if name == "data" or name.startswith("data:")] if not data else []
        try:
            for batch in self.stored.batches([name for name in self.stored.schema.names if name not in left]):
                if batch.num_rows:
                    yield self._rows(pa.Table.from_batches([batch]))
        except (pa.ArrowException, OSError) as error:
            raise BadInput(f"{self.file}: cannot be read: {line_of(error)}") from error

    def _rows(self, table: pa.Table) -> OutputRows:
        def numbers(name: str) -> NDArray[Any]:
            return floats(table[name])

        known = set(table.column_names) - set(self.names)  # an older output may have a player by any name
        if self.names:
            values: Any = np.stack([numbers(name) for name in self.names], 1)
            std: Any = np.stack([numbers(f"error_std:{name}") for name in self.names], 1) if self.has_errors else None
        else:
            values, std = _lists(table["values"]), _lists(table["error_std"]) if self.has_errors else None
        masks = _lists(table["players"]) if "players" in known and not self.is_text else None
        if masks is not None:  # a value for every player instead of one for every entry
            firsts = [np.unique(mask, return_index=True)[1] for mask in masks]
            values, std = (
                None if part is None else [row[first] for row, first in zip(part, firsts, strict=True)]
                for part in (values, std)
            )
        data: Any = None
        if self.inputs and f"data:{self.inputs[0]}" in known:
            data = np.stack([np.array(table[f"data:{name}"].to_pylist(), dtype=object) for name in self.inputs], 1)
        elif "data" in known:
            data = _lists(table["data"])
        return OutputRows(
            ids=table["id"].to_pylist(),
            target=numbers("target").astype(int),
            prediction=numbers("prediction"),
            base=numbers("base_value"),
            values=values,
            std=std,
            gap=numbers("gap"),
            method=table["method"].to_pylist(),
            evaluations=numbers("evaluations").astype(int) if "evaluations" in known else None,
            missed=np.array(table["missed"].to_pylist(), dtype=bool) if "missed" in known else None,
            data=data,
            pieces=table["pieces"].to_pylist() if self.is_text else None,
            masks=masks,
            interactions=_known_lists(table["interactions"]) if self.has_interactions else None,
            interactions_std=_known_lists(table["interactions_std"]) if self.has_interactions else None,
        )


def _lists(column: pa.ChunkedArray) -> Any:
    """Return lists as an array, or as arrays if their lengths differ."""
    whole = column.combine_chunks()
    if pa.types.is_fixed_size_list(whole.type):
        return np.from_dlpack(whole.flatten()).reshape(len(whole), -1)
    return [np.asarray(row, dtype=np.float64) for row in whole.to_pylist()]


def _known_lists(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return lists of a fixed size as an array, with NaN for those that are null."""
    whole = column.combine_chunks()
    found = np.full((len(whole), whole.type.list_size), np.nan)
    there = whole.is_valid().to_numpy(zero_copy_only=False)
    found[there] = np.from_dlpack(whole.flatten()).reshape(-1, found.shape[1])  # which leaves nulls out
    return found


def read(output: Path) -> Contents:
    """Open an output of `dasp explain`."""
    if output.suffix.lower() not in FORMATS:
        raise BadInput(f"{output}: a name that ends in .parquet or .csv is needed: an output of dasp explain")
    try:
        stored = format_of(output).read(output)
    except FileNotFoundError as error:
        raise BadInput(f"{output}: there is no such file") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{output}: cannot be read: {line_of(error)}") from error
    if isinstance(stored.record, UnreadableRecord):
        raise BadInput(f"{output}: {stored.record.reason}")
    if not {"base_value", "gap"} <= set(stored.schema.names):
        raise BadInput(f"{output}: was not written by dasp explain")
    return Contents(output, stored, stored.record)
