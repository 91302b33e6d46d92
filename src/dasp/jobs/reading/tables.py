"""Rows of a CSV or Parquet file, read as a stream: memory does not grow with the file.

A column may have the target of each row, by the number of an output or by its name. A name that is a number must be
the number of its output. So a target means the same whether it is looked up among the names or counted, and whether a
file has it as a text or as a number.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dasp.errors import BadInput, line_of
from dasp.jobs.options import is_utf8
from dasp.jobs.reading.source import BYTES, RawChunk, check_file, check_unpacked, floats, strings

__all__ = [
    "PREDICTED", "TABLES", "CSVSource", "TableHeader", "TableSource", "is_number", "labels_of", "open_table",
    "outputs_listed", "read_header", "target_numbers", "wrong_with",
]  # fmt: skip

_BLOCK, _ROWS = 2**20, 2**12  # bytes of a CSV file (or some lines), rows of a Parquet file parsed at once
_LINES = 8
PREDICTED = "predicted"  # as `dasp.games.request` has it, which needs torch
_TRUTH = {"true": 1.0, "false": 0.0}
_MISSING = frozenset(pv.ConvertOptions().null_values)
_LISTED = 8
_MOST_LABELS = 2**16  # of a column
_LINE = 16  # bytes that an entry of two characters (and lines that are parsed together) can take, for each of them


@dataclass(frozen=True)
class TableSource:
    """A file with named columns, of which some are the model's inputs."""

    file: Path
    names: tuple[str, ...]  # the inputs, in the model's order
    id: str | None
    target: str | None
    limit: int  # bytes that a row may take
    text: bool = False  # True if the only input is a text
    classes: tuple[str, ...] | None = None  # names that the target may have
    lines: _Lines | None = None  # how a text file is written
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of columns with texts, by their places

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return (len(self.names),)

    @property
    def files(self) -> list[Path]:
        """The only file."""
        return [self.file]

    @property
    def columns_read(self) -> list[str]:
        """The columns that are read, each once."""
        return list(dict.fromkeys([*self.names, *filter(None, (self.id, self.target))]))

    def chunks(self, size: int, skip: frozenset[int] = frozenset()) -> Iterator[RawChunk]:
        """Yield chunks of `size` rows, (n, features), with ids and targets if there are such columns."""
        for number, table in enumerate(_rechunked(self._batches(), size)):
            if number not in skip:
                try:
                    chunk = self._chunk(number, table, number * size)
                except (pa.ArrowException, ValueError, TypeError) as error:
                    raise _pyarrow_error(self.file, error) from error
                yield chunk

    def _chunk(self, number: int, table: pa.Table, start: int) -> RawChunk:
        read = strings if self.text else floats
        values = np.stack([
            self._places(name, table[name]) if name in self.labels else read(table[name]) for name in self.names
        ], axis=1)  # fmt: skip
        ids = table[self.id].combine_chunks() if self.id else None
        if ids is not None:
            ids.validate(full=True)  # text in UTF-8
        return RawChunk(number, values, ids, targets=self._targets(table[self.target], start) if self.target else None)

    def _places(self, name: str, column: pa.ChunkedArray) -> NDArray[np.float64]:
        """Return the place of every label in a column, NaN where one is missing."""
        known = {label: float(place) for place, label in enumerate(self.labels[name])}
        return np.array([known.get(label or "", np.nan) for label in column.cast(pa.string()).to_pylist()])

    def labels_within(self) -> dict[str, set[str]]:
        """Go through the columns with texts, and return their labels."""
        found: dict[str, set[str]] = {name: set() for name in self._textual_columns()}
        if not found:
            return {}
        reading = replace(self, names=tuple(found), id=None, target=None, labels=dict.fromkeys(found, ()))
        for batch in reading._batches():
            for name, known in found.items():
                known |= {label for label in pc.unique(batch[name].cast(pa.string())).to_pylist() if label}
                if len(known) > _MOST_LABELS:
                    raise BadInput(
                        f"{self.file}: column {name!r} has more than {_MOST_LABELS:,} texts, and so is no category: "
                        f"leave it out by --drop {shlex.quote(name)}, or name the rows with it by --id"
                    )
        return found

    def _textual_columns(self) -> list[str]:
        """Return the names of the inputs that have texts."""
        raise NotImplementedError

    def _targets(self, column: pa.ChunkedArray, start: int) -> NDArray[np.float64]:
        if self.classes is None or not _textual(column.type):
            return floats(column)
        return target_numbers(column.to_pylist(), self.classes, start)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class CSVSource(TableSource):
    """A text file with commas, semicolons or tabs between entries; the first line has the names."""

    def _batches(self) -> Iterator[pa.RecordBatch]:
        lines = self.lines
        assert lines is not None
        named = self.target if self.classes else None
        words = self.names if self.text else self.labels
        texts = dict.fromkeys([*words, *filter(None, [self.id, named])], pa.string())
        numbers = [name for name in self.columns_read if name not in texts]
        types = {name: pa.bool_() if name in lines.booleans else pa.float64() for name in numbers}
        convert = pv.ConvertOptions(column_types={**types, **texts}, include_columns=self.columns_read)
        read = pv.ReadOptions(
            block_size=lines.block, use_threads=False, column_names=lines.names, skip_rows=lines.header
        )
        parse = pv.ParseOptions(delimiter=lines.separator, newlines_in_values=True)
        try:
            yield from pv.open_csv(self.file, read, parse, convert)
        except (pa.ArrowException, OSError) as error:
            raise _pyarrow_error(self.file, error, lines, self.target) from error

    def _textual_columns(self) -> list[str]:
        """Return those that have an entry that is no number."""
        assert self.lines is not None
        unsure = [name for name in self.names if name not in self.lines.booleans]
        if not unsure:
            return []
        reading = replace(self, names=tuple(unsure), id=None, target=None, labels=dict.fromkeys(unsure, ()))
        found = set[str]()
        for batch in reading._batches():
            for name in set(unsure) - found:
                entries = pc.unique(batch[name]).to_pylist()
                if not all(is_number(entry) for entry in entries if entry not in _MISSING):
                    found.add(name)
        return [name for name in self.names if name in found]


class ParquetSource(TableSource):
    """A Parquet file, whose nulls are missing values."""

    def _textual_columns(self) -> list[str]:
        """Return those that are of texts."""
        types = _types(self.file)
        return [name for name in self.names if _textual(types[name])]

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(self.file) as stored:
                rows = max(1, min(_ROWS, 2**24 // len(self.columns_read)))
                yield from stored.iter_batches(rows, columns=self.columns_read, use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _pyarrow_error(self.file, error) from error


TABLES: dict[str, type[TableSource]] = {
    ".csv": CSVSource, ".tsv": CSVSource, ".txt": CSVSource, ".parquet": ParquetSource, ".pq": ParquetSource,
}  # fmt: skip


def open_table(
    file: Path,
    header: TableHeader,
    columns: list[str] | None,
    drop: list[str],
    id_: str | None,
    target: str | None,
    limit: int,
    *,
    text: bool = False,
    classes: tuple[str, ...] | None = None,
    raw: bool = False,
) -> TableSource:
    """Return a table whose inputs are `columns`, by default all but those to drop, the id and the target. A row may
    take `limit` bytes. With `text`, the only column of inputs has texts;
    with `raw`, any may have labels. The target may have names of `classes`."""
    types = header.types
    for name in [*(columns or []), *drop, *filter(None, (id_, target))]:
        if name not in types:
            outputs = ""
            if name == target:
                named = f"; {outputs_listed(classes, len(classes))}" if classes else ""
                outputs = named or "; if it is an output of the model, name these by --output-names"
            raise BadInput(f"{file}: no column {name!r}; there are {_some(list(types))}{outputs}")
    names = [name for name in columns or types if name not in drop and (columns or name not in (id_, target))]
    if len(set(names)) < len(names):
        raise BadInput(f"--columns names {_twice(names)!r} twice")
    if target in names:
        raise BadInput(f"column {target!r} is the target and cannot be an input as well: name another one")
    if text and types[names[0]] is not None and not _textual(types[names[0]]):
        raise BadInput(
            f"{file}: column {names[0]!r} is of type {types[names[0]]}, not of texts; name another by --text"
        )
    for name in [*([] if text else names), *filter(None, [target])]:
        kind, may_be_text = types[name], bool(classes) if name == target else raw
        if kind is None or _numeric(kind) or (may_be_text and _textual(kind)):
            continue
        how = "name the outputs by --output-names" if name == target else "choose the inputs with --columns"
        raise BadInput(f"{file}: column {name!r} is of type {types[name]}, not of numbers; {how}")
    if not names:
        raise BadInput(f"{file}: no column is left as an input")
    check_unpacked(file, "a row", len(names) * BYTES, limit)
    return TABLES[file.suffix.lower()](file, tuple(names), id_, target, limit, text, classes, header.lines)


def labels_of(source: Any) -> dict[str, tuple[str, ...]]:
    """Return the labels of the columns of a source that have texts, if there are such columns."""
    return dict(source.labels) if isinstance(source, TableSource) else {}


class TableHeader(NamedTuple):
    """The part of a table before its rows."""

    types: dict[str, Any]  # of all columns by their names; None where the file does not say them
    lines: _Lines | None  # of a text file


def read_header(file: Path, limit: int) -> TableHeader:
    """Read the names of all columns, and their types where the file says them. A line may take `limit` bytes."""
    check_file(file)
    if TABLES[file.suffix.lower()] is ParquetSource:
        return TableHeader(_types(file), None)
    lines = _first_lines(file, limit)
    return TableHeader(dict.fromkeys(lines.names), lines)


class _Lines(NamedTuple):
    """The form of a text file, as its first lines show it."""

    names: list[str]
    separator: str
    booleans: set[str]  # columns that begin with True or False
    block: int  # bytes that hold some lines
    header: int  # lines that the names take: one, unless a name has several


def _first_lines(file: Path, limit: int) -> _Lines:
    most = limit // _LINE + 1
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            line, lines = stream.readline(most), 1
            while line.count('"') % 2 and len(line) < most and (more := stream.readline(most - len(line))):
                line, lines = line + more, lines + 1  # a name in quotation marks goes on
            second = stream.readline(most)
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: not a text file in UTF-8") from error
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from error
    check_unpacked(file, "a line", max(len(line), len(second)) * _LINE, limit)
    if line.count('"') % 2:
        raise BadInput(f"{file}: the first line has a quotation mark that nothing ends")
    separator = max(",;\t", key=line.count)
    names, first = ([entry.strip() for entry in _split(text, separator)] for text in (line, second))
    if not any(names):
        raise BadInput(f"{file}: empty; a first line with the names of the columns is needed")
    if "" in names:
        raise BadInput(f"{file}: column {names.index('') + 1} has no name in the first line")
    _distinct(file, names)
    if all(map(is_number, names)):
        raise BadInput(f"{file}: the first line has numbers; the names of the columns are needed there")
    booleans = {name for name, entry in zip(names, first, strict=False) if entry.lower() in ("true", "false")}
    block = max(_BLOCK, *(_LINES * len(text.encode()) for text in (line, second)))
    return _Lines(names, separator, booleans, block, lines)


def _split(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=separator), [])
    except csv.Error:  # a text that is longer than any name or number
        return []


def _types(file: Path) -> dict[str, Any]:
    try:
        schema = pq.read_schema(file)
        names, types = schema.names, schema.types
    except (pa.ArrowException, OSError, ValueError) as error:  # a ValueError: names that are not UTF-8
        raise _pyarrow_error(file, error) from error
    _distinct(file, names)
    return dict(zip(names, types, strict=True))


def _numeric(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(test(kind) for test in tests)


def _textual(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _distinct(file: Path, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise BadInput(f"{file}: two columns are called {_twice(names)!r}")


def _twice(names: list[str]) -> str:
    return next(name for name, times in Counter(names).items() if times > 1)


def is_number(text: str) -> bool:
    """Return True if a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _pyarrow_error(file: Path, error: Exception, lines: _Lines | None = None, target: str | None = None) -> BadInput:
    """Return the error that pyarrow reports, with the column's name instead of its number, rows counted from 0, and
    what to do with a column of texts."""
    said, before = line_of(error), 1 + (lines.header if lines else 1)
    found = re.search(r"In CSV column #(\d+):", said)
    name = lines.names[int(found[1])] if lines and found else ""
    text = said.replace(found[0], f"column {name!r}:") if found else said
    text = re.sub(r"Row #(\d+)", lambda found: f"row {int(found[1]) - before} (the first row is 0)", text)
    text, texts = re.subn(r"CSV conversion error to (double|bool): invalid value", "not a number:", text)
    if found and texts:
        left_out = f"--id {shlex.quote(name)} takes it as the rows' name, --drop {shlex.quote(name)} leaves it out"
        text += f"; {'class indices 0, 1, … are needed' if name == target else left_out}"
    return BadInput(f"{file}: {text}")


def _rechunked(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of `size` rows, the last one shorter."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        rest = batch
        while count + rest.num_rows >= size:
            yield pa.Table.from_batches([*waiting, rest.slice(0, size - count)])
            rest, waiting, count = rest.slice(size - count), [], 0
        if rest.num_rows:
            waiting.append(rest)
            count += rest.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting)


def wrong_with(names: Sequence[str]) -> str | None:
    """Say why names cannot be those of outputs; None if they can.

    >>> wrong_with(["benign", "malignant"]), wrong_with(["1", "2"])
    (None, "output 0 is called '1', which is the number of another; call it something else")
    """
    before = set[str]()
    for place, name in enumerate(names):
        number = _number_in(name)
        if not name or not is_utf8(name):
            return f"output {place} has {'no name' if not name else 'a name that is not UTF-8'}"
        if name in before:
            return f"{name!r} is there twice; every output needs a name of its own"
        if name == PREDICTED:
            return f"{name!r} means the largest output; call output {place} something else"
        if number is not None and number != place:
            return f"output {place} is called {name!r}, which is the number of another; call it something else"
        before.add(name)
    return None


def outputs_listed(names: Sequence[str] | None, outputs: int) -> str:
    """List the outputs that there are.

    >>> outputs_listed(None, 3), outputs_listed(["benign", "malignant"], 2)
    ('outputs are 0 to 2', "outputs are 'benign', 'malignant'")
    """
    if names is None:
        return f"outputs are 0 to {outputs - 1}" if outputs > 1 else "the only output is 0"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"outputs are {', '.join(map(repr, names[:_LISTED]))}{more}"


def target_numbers(texts: Sequence[str | None], names: Sequence[str], start: int) -> NDArray[np.float64]:
    """Return the number of the output that each text names, NaN where it is missing. The first is that of row `start`.

    >>> target_numbers(["malignant", "benign", None, "1"], ["benign", "malignant"], 0)
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
    number = np.nan if stripped in _MISSING else _number_in(stripped)
    if number is None:
        raise BadInput(f"the target in {where} is {text!r}; {outputs_listed(names, len(names))}")
    return number


def _number_in(text: str) -> float | None:
    """Return the number that a text is in a file, if it is one."""
    try:
        return _TRUTH[text.lower()] if text.lower() in _TRUTH else float(text)
    except ValueError:
        return None
