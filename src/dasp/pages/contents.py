"""The contents of an output of `dasp explain`: tables, images, texts, sequences or series."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dasp.display import CHANNELS
from dasp.errors import BadInput, line_of
from dasp.formatting import METHOD_NAMES, shown
from dasp.jobs.output import FORMATS, StoredOutput, format_of
from dasp.jobs.reading.source import check_file, floats
from dasp.jobs.record import JobRecord, JobResult, UnreadableRecord, typed

__all__ = ["Contents", "OutputRows", "read"]

_PAIRS = ("interactions", "interactions_std")
_LONGEST, _LONGEST_TEXT = 40, 2**20  # characters of what is said, bytes of what is read


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
    labels: tuple[str, ...] | None = None  # of the players' columns, if these are called otherwise
    title: str | None = None  # of the page, if somebody gave it one
    picture: Contents | None = None  # the same rows by one of several inputs, which is an image
    sentences: Contents | None = None  # the same texts by their sentences, of texts by these and by words within them

    @property
    def result(self) -> JobResult:
        """Return what was known when all rows were written."""
        return self.stored.result

    @cached_property
    def files(self) -> dict[str, str]:
        """The names of the model's and the data's files."""
        return {"MODEL": shown(self.result.model), "DATA": shown(self.result.data)}

    def output(self, target: int) -> str:
        """Return the name of an output, or its number; of a comparison, those of both."""
        if self.compares:
            versus, target = divmod(target, _OUTPUTS)
            return (
                f"{'' if self.result.output_names else 'output '}{self._name(target)} rather than {self._name(versus)}"
            )
        return self._name(target)

    def _name(self, number: int) -> str:
        names = self.result.output_names
        return shown(names[number]) if number < len(names) else str(number)

    @cached_property
    def compares(self) -> bool:
        """True if what is explained is the difference of two outputs."""
        return "versus" in self.others

    @cached_property
    def names(self) -> list[str]:
        """The names of the players' columns; none if values are lists."""
        columns = self.stored.schema.names
        between = columns[columns.index("base_value") + 1 : columns.index("gap")]
        return [] if "values" in between else [name for name in between if not name.startswith("error_std:")]

    @property
    def player_names(self) -> list[str]:
        """The names of the players, as far as these have columns."""
        return list(self.names if self.labels is None else self.labels)

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
        return _PAIRS[0] in self.others

    @cached_property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a row that is an array; None for tables and texts."""
        told = self.stored.about.get("data shape") or self.stored.about.get("shape")
        return None if told is None or self.names or self.is_text else tuple(_whole_numbers(told, "shape"))

    @cached_property
    def image(self) -> tuple[int, int, int] | None:
        """The shape (channels, height, width), if rows are images."""
        shape = self.shape
        return (shape[0], shape[1], shape[2]) if shape and len(shape) == 3 and shape[0] in CHANNELS else None

    @cached_property
    def mask(self) -> NDArray[Any] | None:
        """The player of every entry; None if entries are players, or each row has players of its own."""
        told = self.stored.about.get("players")
        return None if told is None or self.is_text else np.array(_whole_numbers(told, "players"), dtype=np.int64)

    @cached_property
    def own_players(self) -> bool:
        """True if each row has players of its own."""
        return self.is_text or "players" in self.others

    def check(self) -> None:
        """Refuse an output whose columns do not belong together: a file may say anything of itself."""
        kinds = {own.name: own.type for own in self.stored.schema}
        if len(kinds) < len(self.stored.schema) or not kinds.keys() >= _NEEDED or not self.stored.rows:
            raise ValueError("is damaged or was not written by dasp explain")
        self._check_types(kinds)
        if self.is_text:
            if not {"values", "error_std"} <= kinds.keys() or {"data", "players", *_PAIRS} & kinds.keys():
                raise ValueError("has other columns than outputs of texts have")
        else:
            self._check_sizes(kinds, *self._players_and_entries())

    def _check_types(self, kinds: dict[str, Any]) -> None:
        """Refuse columns that are of other types, or in other places, than `dasp explain` writes them."""
        names = list(kinds)
        between = names[names.index("base_value") + 1 : names.index("gap")]
        for name, kind in kinds.items():
            test = _KINDS.get(name) or (_is_entry if name.startswith("data:") else pa.types.is_floating)
            behind = name in (*_NEEDED, *_BEHIND) or name.startswith("data:")
            if not test(kind) or behind == (name in between):
                raise ValueError(f"column {name!r} is of type {kind}, which dasp explain does not write there")
        together = {"pieces", "values", "error_std"} & set(between)
        if together and len(together) < len(between):
            raise ValueError("has values both as lists and in columns")
        if together and "values" not in together:
            raise ValueError(f"has a column {min(together)!r} and no values")
        deviations = [name for name in between if name.startswith("error_std:")]
        if deviations and deviations != [f"error_std:{name}" for name in self.names]:
            raise ValueError("has standard deviations of other players than it has values of")
        if self.has_interactions != (_PAIRS[1] in kinds):
            raise ValueError(f"has only one of the columns {_PAIRS[0]!r} and {_PAIRS[1]!r}")

    def _players_and_entries(self) -> tuple[int, int]:
        """Return the numbers of players and entries that a row has by its columns, its shape and its mask, which must
        agree."""
        shape, mask = self.shape, self.mask
        size = len(self.names) if shape is None else math.prod(shape)
        if shape is not None and not (len(shape) <= _MOST_DIMENSIONS and 0 < size <= _MOST_OF_A_ROW):
            raise ValueError(f"has rows of an impossible shape, {list(shape[:_MOST_DIMENSIONS])}")
        if not self.names and "values" not in self.stored.schema.names:
            raise ValueError("has no values of players")
        if shape is not None and self.image is None and size > _MOST_PLACES:
            raise ValueError(f"has {size:,} entries in a row, and up to {_MOST_PLACES:,} of a series can be shown")
        if self.own_players and self.image is None:
            raise ValueError("has players of its own for every row, but no images")
        if mask is None or self.own_players:
            return size, size
        players = len(np.unique(mask))
        if not players or int(mask.max()) + 1 != players:
            raise ValueError("has players whose numbers are not 0, 1, 2, …")
        if shape is not None and size != len(mask):
            raise ValueError(f"has players for {len(mask):,} entries in rows of {size:,}")
        if self.names and size != players:
            raise ValueError(f"has {size:,} columns of values for {players:,} players")
        return players, len(mask)

    def _check_sizes(self, kinds: dict[str, Any], players: int, entries: int) -> None:
        """Refuse columns and lists that are more or fewer than there are players or entries."""
        if self.inputs and len(self.inputs) != entries:
            raise ValueError(f"has {len(self.inputs):,} columns of data for {entries:,} inputs")
        if self.shape is not None and self.image is None and players > _MOST_SHOWN:
            raise ValueError(f"has {players:,} players in a row, and up to {_MOST_SHOWN:,} of a series can be shown")
        if self.has_interactions and players > _MOST_PAIRED:
            raise ValueError(f"has interactions of {players:,} players, and those of {_MOST_PAIRED:,} can be shown")
        pairs = players * (players - 1) // 2
        needed = {"values": players, "error_std": players, "data": entries, "players": entries}
        for name, size in {**needed, **dict.fromkeys(_PAIRS, pairs)}.items():
            kind = kinds.get(name)
            if kind is not None and not (pa.types.is_fixed_size_list(kind) and kind.list_size == size):
                raise ValueError(f"column {name!r} is of type {kind}, and its rows need {size:,} entries")

    def rows(self, *, data: bool = True) -> Iterator[OutputRows]:
        """Go through all rows, some at a time, with the inputs or without."""
        left = [name for name in self.others if name == "data" or name.startswith("data:")] if not data else []
        count = 0
        try:
            for batch in self.stored.batches([name for name in self.stored.schema.names if name not in left]):
                count += batch.num_rows
                if batch.num_rows:
                    yield self._rows(batch)
        except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
            raise BadInput(f"{self.file}: cannot be read: {line_of(error)}") from error
        if count != self.stored.rows:
            raise BadInput(f"{self.file}: has {count:,} rows instead of {self.stored.rows:,}")

    def _rows(self, table: pa.RecordBatch) -> OutputRows:
        known = set(table.schema.names)

        def lists(name: str, read: _Read = _numbers) -> Any:
            return _lists(name, table[name], read) if name in known else None

        if self.names:
            values: Any = np.stack([_numbers(name, table[name]) for name in self.names], 1)
            deviations = [f"error_std:{name}" for name in self.names] if self.has_errors else []
            std: Any = np.stack([_deviations(name, table[name]) for name in deviations], 1) if deviations else None
        else:
            values, std = lists("values"), lists("error_std", _deviations)
        masks = lists("players")
        if masks is not None:  # a value for every player instead of one for every entry
            firsts = [np.unique(mask, return_index=True)[1] for mask in masks]
            values, std = (
                None if part is None else [row[first] for row, first in zip(part, firsts, strict=True)]
                for part in (values, std)
            )
        data: Any = lists("data")
        if self.inputs and f"data:{self.inputs[0]}" in known:
            data = _entries({name: table[f"data:{name}"] for name in self.inputs})
        pieces = _texts("pieces", table["pieces"]) if self.is_text else None
        if pieces is not None:
            lengths = [len(row) for row in pieces]
            if max(lengths) > _MOST_SHOWN:
                raise ValueError(f"has a text of more than {_MOST_SHOWN:,} pieces")
            if not lengths == [len(row) for row in values] == [len(row) for row in std]:
                raise ValueError("has texts with other numbers of pieces than of values")
        return OutputRows(
            ids=_texts("id", table["id"], needed=False),
            target=self._targets(table),
            prediction=_numbers("prediction", table["prediction"]),
            base=_numbers("base_value", table["base_value"]),
            values=values,
            std=std,
            gap=_numbers("gap", table["gap"]),
            method=_methods(table["method"]) if self.labels is None else _texts("method", table["method"]),
            evaluations=_counts("evaluations", table["evaluations"]) if "evaluations" in known else None,
            missed=_counts("missed", table["missed"]).astype(bool) if "missed" in known else None,
            data=data,
            pieces=pieces,
            masks=masks,
            interactions=lists("interactions"),
            interactions_std=lists("interactions_std", _deviations),
        )

    def _targets(self, table: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the numbers of the explained outputs; of comparisons, a number for both."""
        target = _counts("target", table["target"], self.result.outputs)
        if not self.compares:
            return target
        return target + _OUTPUTS * _counts("versus", table["versus"], self.result.outputs)


def _is_number(kind: Any) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)


def _is_entry(kind: Any) -> bool:
    """Return True for what a column of a table may have: numbers, or texts."""
    return _is_number(kind) or _is_text(kind)


def _is_text(kind: Any) -> bool:
    return pa.types.is_string(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _entries(columns: dict[str, Any]) -> NDArray[Any]:
    """Return columns side by side, (rows, columns): as numbers, or as numbers and texts."""
    own = [_texts(f"data:{name}", one, needed=False) if _is_text(one.type) else _numbers(f"data:{name}", one)
           for name, one in columns.items()]  # fmt: skip
    if all(isinstance(one, np.ndarray) for one in own):
        return np.stack(own, 1)
    found = np.empty((len(own[0]), len(own)), dtype=object)
    for place, one in enumerate(own):
        found[:, place] = one
    return found


def _is_list(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a test for lists of one length or of any."""
    return lambda kind: (pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind)) and test(kind.value_type)


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
_FLOATS = _is_list(pa.types.is_floating)
_Read = Callable[[str, Any], NDArray[np.float64]]  # a column's numbers, by its name
_KINDS: dict[str, Callable[[Any], bool]] = {
    "id": lambda kind: not pa.types.is_nested(kind),
    "target": pa.types.is_integer, "versus": pa.types.is_integer, "method": pa.types.is_string,
    "evaluations": pa.types.is_integer, "missed": pa.types.is_boolean, "pieces": _is_list(pa.types.is_string),
    "values": _FLOATS, "error_std": _FLOATS, "data": _is_list(_is_number), "players": _is_list(pa.types.is_integer),
    "interactions": _FLOATS, "interactions_std": _FLOATS,
}  # fmt: skip
_NEEDED = {"id", "target", "prediction", "base_value", "gap", "method"}
_BEHIND = ("versus", "evaluations", "missed", "data", "players", *_PAIRS)
_MOST_DIMENSIONS, _MOST_OF_A_ROW = 8, 2**22  # of a row: dimensions and entries
_MOST_PLACES = 10**6  # of a series: steps and channels
_MOST_SHOWN, _MOST_PAIRED = 2**18, 1000  # players of a series or pieces of a text; players of a heat map
_OUTPUTS = 2**20  # of a model, at most, where two of them are compared
_LARGEST = 1e150  # of a number: sums of squares are finite


def _whole_numbers(told: str, name: str) -> list[int]:
    """Return the whole numbers that metadata have."""
    try:
        return list(typed(tuple[int, ...], json.loads(told)))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"what it says of its {name} is no list of whole numbers") from error


def _numbers(name: str, column: Any) -> NDArray[np.float64]:
    """Return numbers, NaN where one is missing or not finite. Those whose squares overflow are refused."""
    found = np.array(floats(pa.chunked_array([column])))
    found[np.isinf(found)] = np.nan
    if (wrong := np.abs(found) > _LARGEST).any():
        raise ValueError(f"column {name!r} has {found[wrong][0]:g}, and numbers up to {_LARGEST:g} can be shown")
    return found


def _deviations(name: str, column: Any) -> NDArray[np.float64]:
    """Return standard deviations, NaN where one is missing. Those below 0 or without end are refused."""
    raw = floats(pa.chunked_array([column]))
    if (raw < 0).any() or np.isinf(raw).any():
        raise ValueError(f"column {name!r} has standard deviations that are below 0 or infinite")
    return _numbers(name, column)


def _counts(name: str, column: Any, end: int | None = None) -> NDArray[np.int64]:
    """Return whole numbers from 0 on, of which none may be missing."""
    found = floats(pa.chunked_array([column]))
    if not ((found >= 0) & (found < (2**31 if end is None else end))).all():
        raise ValueError(f"column {name!r} has numbers that it cannot have, or none in some rows")
    return found.astype(np.int64)


def _methods(column: Any) -> list[str]:
    found = _texts("method", column)
    if strange := set(found) - METHOD_NAMES.keys():
        raise ValueError(f"there is no method {min(map(str, strange))[:_LONGEST]!r}")
    return found


def _texts(name: str, column: Any, *, needed: bool = True) -> list[Any]:
    """Return texts or names, or lists of texts, none of which takes megabytes; if they are `needed`, none is missing.
    Where a file has many times the same text, it is looked at once."""
    entries = column.flatten() if _is_list(lambda _: True)(column.type) else column
    own = entries.dictionary if pa.types.is_dictionary(entries.type) else entries
    if needed and (column.null_count or entries.null_count):
        raise ValueError(f"column {name!r} has nothing in some rows")
    if any(test(own.type) for test in _TEXTS):
        own.validate(full=True)
        if len(own) and pc.max(pc.binary_length(own)).as_py() > _LONGEST_TEXT:
            raise ValueError(f"column {name!r} has a text of more than {_LONGEST_TEXT:,} bytes")
    return column.to_pylist()


def _lists(name: str, column: Any, read: _Read) -> Any:
    """Return lists of numbers as an array, with NaN for those that are null, or as arrays if their lengths differ."""
    entries = read(name, column.flatten())  # which leaves null lists out
    if pa.types.is_fixed_size_list(column.type):
        found = np.full((len(column), column.type.list_size), np.nan)
        found[column.is_valid().to_numpy(zero_copy_only=False)] = entries.reshape(-1, found.shape[1])
        return found
    if column.null_count:
        raise ValueError(f"column {name!r} has nothing in some rows")
    return np.split(entries, np.cumsum(column.value_lengths().to_numpy())[:-1])


def read(output: Path) -> Contents:
    """Open an output of `dasp explain`."""
    if output.suffix.lower() not in FORMATS:
        raise BadInput(f"{output}: a name that ends in .parquet or .csv is needed: an output of dasp explain")
    check_file(output)
    try:
        stored = format_of(output).read(output)
        found = (
            stored.record if isinstance(stored.record, UnreadableRecord) else Contents(output, stored, stored.record)
        )
        if isinstance(found, Contents):
            found.check()
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise BadInput(f"{output}: cannot be read: {line_of(error)}") from error
    if isinstance(found, UnreadableRecord):
        raise BadInput(f"{output}: {found.reason}")
    return found
