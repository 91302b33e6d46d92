"""The output of a job: written beside its place, with the record of the job, and put there in one step.

A Parquet file has the record in its metadata; beside a CSV file is a JSON file with the record.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from dasp.errors import BadInput
from dasp.jobs.reading.source import texts
from dasp.jobs.record import JobRecord, JobResult, UnreadableRecord, typed
from dasp.jobs.summary import Notes, Summary

__all__ = [
    "FORMATS", "StoredOutput", "Written", "beside", "check_beside", "finished_job", "format_of", "is_complete",
    "parts_of", "place", "stamp", "write",
]  # fmt: skip

Found = JobRecord | UnreadableRecord

_RECORD, _ROWS, _RESULT = b"dasp", b"dasp rows", b"dasp result"  # keys of the metadata
_BATCH = 2**12  # rows that are read at once
_MOST_ROWS, _MOST_ENTRIES = 10**7, 2**32  # that are read again: some minutes of work
_MOST_TOGETHER = 2**22  # entries that are read at once, unless a row has more
_MOST_BYTES, _MOST_JSON = 2**32, 2**26  # of a row group; of metadata
_IN_A_LIST = 2**10  # entries, about, of lists of any length
_GROUP_ROWS, _GROUP_BYTES = 2**16, 2**26  # of a row group of the output, about
_PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
_WINDOWS = os.name == "nt"
_FORMULA = re.compile(r"'*(\s*[=+\-@]|[\t\r\n])")  # for a spreadsheet
_NUMBER = re.compile(r"\s*[+-]?(\d+[.,]?\d*|[.,]\d+)(e[+-]?\d+)?\s*", re.IGNORECASE | re.ASCII)


def parts_of(output: Path) -> Path:
    """Return the folder that the parts of an output are in until it is done."""
    return output.with_name(output.name + ".parts")


def beside(output: Path) -> Path | None:
    """Return the file with what the format has no place for, if there is one.

    >>> beside(Path("out.csv")), beside(Path("out.parquet"))
    (PosixPath('out.csv.json'), None)
    """
    ending = format_of(output).beside
    return None if ending is None else output.with_name(output.name + ending)


def finished_job(output: Path) -> Found | None:
    """Return the record of the job whose result an output is, or None if there is no such file."""
    return format_of(output).record(output) if output.exists() else None


def check_beside(output: Path) -> None:
    """Refuse to replace somebody's file beside the output."""
    file = beside(output)
    if not file or not file.exists():
        return
    record = format_of(output).record(output)
    if isinstance(record, UnreadableRecord):
        raise BadInput(f"{file}: exists, but {record.reason}; --overwrite replaces it")


def is_complete(output: Path) -> bool:
    """Return True if all of an output can be read, as it was written."""
    return format_of(output).is_complete(output)


@dataclass
class Written:
    """The result of writing an output: the notes and the summary of all its rows."""

    notes: Notes = field(default_factory=Notes)
    summary: Summary = field(default_factory=Summary)
    beside: bytes = b""  # for the file beside it


def write(
    tables: Iterator[pa.Table], stream: BinaryIO, record: JobRecord, output: Path, result: JobResult | None = None
) -> Written:
    """Write all tables in the format that the output's name says. The bytes depend on the arguments alone; the notes of
    all tables together are added to the result."""
    written = Written()

    def counted() -> Iterator[pa.Table]:
        for noted in tables:
            notes, table = Notes.off(noted)
            written.notes += notes
            if len(table):
                written.summary.add(table)
                yield table

    def noted_result() -> JobResult:
        return replace(result or JobResult(), notes=written.notes)

    written.beside = format_of(output).write(counted(), stream, record, noted_result)
    return written


def stamp(file: Path) -> Any:
    """Return what tells a file from another by the same name, or None if there is none."""
    try:
        found = file.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def place(file: Path, output: Path, before: Any) -> None:
    """Give a file the output's name, unless something has come there since its stamp was `before`."""
    if stamp(output) != before:
        raise _taken(output)
    if before is None:
        _place_anew(file, output)
    else:
        file.replace(output)
    _sync(output.parent)


def _taken(output: Path) -> BadInput:
    return BadInput(
        f"{output}: somebody else has written it while the job ran, and it is not replaced; move it away, and run the "
        "same command again: all rows are kept"
    )


def _place_anew(file: Path, output: Path) -> None:
    """Give a file a name that no file has."""
    try:
        if _WINDOWS:
            file.rename(output)  # which replaces nothing there
        else:
            _link(file, output)
    except FileExistsError as error:
        raise _taken(output) from error


def _link(file: Path, output: Path) -> None:
    try:
        output.hardlink_to(file)
    except FileExistsError:
        raise
    except OSError:  # the file system has no links
        output.touch(exist_ok=False)
        file.replace(output)


def _sync(folder: Path) -> None:
    """Bring the names in a folder to the disk; Windows, where a folder cannot be opened, does so by itself."""
    if _WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class StoredOutput:
    """An output as it is read again."""

    record: Found  # of the job that wrote it
    result: JobResult
    about: dict[str, str]  # what the columns do not say, like the shape of a row
    schema: pa.Schema
    rows: int
    batches: Callable[[list[str]], Iterator[pa.RecordBatch]]  # reads some columns of its rows


class Format(Protocol):
    """A format of outputs: it writes one, and reads one that is there."""

    beside: str | None  # the ending of the name of a file beside the output, if there is one

    def record(self, output: Path) -> Found:
        """Return the record of the job whose result an output is."""

    def is_complete(self, output: Path) -> bool:
        """Return True if all of an output can be read, as it was written."""

    def result(self, output: Path) -> tuple[int, JobResult]:
        """Return the number of an output's rows, and what was known at their end."""

    def read(self, output: Path) -> StoredOutput:
        """Return what was written; raise Arrow's errors if that cannot be read."""

    def write(
        self, tables: Iterator[pa.Table], stream: BinaryIO, record: JobRecord, result: Callable[[], JobResult]
    ) -> bytes:
        """Write all tables, and then the `result`, which is known by then. Return the content of the file beside the
        output."""


class ParquetOutput:
    """One Parquet file: its pages have checksums, its rows were counted."""

    beside: str | None = None

    def record(self, output: Path) -> Found:
        """Return the record in the metadata."""
        try:
            return JobRecord.from_json(json.loads((pq.read_schema(output).metadata or {}).get(_RECORD, b"")))
        except (pa.ArrowException, OSError, ValueError, RecursionError):
            return UnreadableRecord()

    def is_complete(self, output: Path) -> bool:
        """Return True if all rows are there."""
        try:
            with pq.ParquetFile(output, page_checksum_verification=True) as stored:
                rows = sum(batch.num_rows for batch in stored.iter_batches())
                return rows == int(stored.metadata.metadata[_ROWS])
        except (pa.ArrowException, OSError, ValueError, KeyError):
            return False

    def result(self, output: Path) -> tuple[int, JobResult]:
        """Return what is in the metadata."""
        stored = pq.read_metadata(output)
        return stored.num_rows, typed(JobResult, _json(_decoded(stored.metadata).get(_RESULT.decode(), "{}")))

    def read(self, output: Path) -> StoredOutput:
        """Return rows in batches, and what is in the metadata."""
        with pq.ParquetFile(output) as stored:
            about = _decoded(stored.metadata.metadata)
            schema, rows = stored.schema_arrow, stored.metadata.num_rows
            columns = [stored.schema.column(i) for i in range(len(stored.schema))]
            # pyarrow ends the process if it is asked for the size of a single column in a damaged file.
            sizes = [stored.metadata.row_group(i).total_byte_size for i in range(stored.num_row_groups)]
        entries = sum(_entries(own.type) for own in schema)
        _check_size(rows, rows * entries)
        if max(sizes, default=0) > _MOST_BYTES:
            raise ValueError(f"has rows that take more than {_MOST_BYTES:,} bytes together when they are read")
        # A text that is in a file once, and meant for a million rows, is in memory once.
        texts = [own.path for own in columns if own.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")]
        size = max(1, min(_BATCH, _MOST_TOGETHER // max(1, entries)))

        def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
            with pq.ParquetFile(output, page_checksum_verification=True, read_dictionary=texts) as again:
                yield from again.iter_batches(size, columns=columns)

        result = typed(JobResult, _json(about.pop(_RESULT.decode(), "{}")))
        record = JobRecord.from_json(_json(about.pop(_RECORD.decode(), "null")))
        if record and about.pop(_ROWS.decode(), str(rows)) != str(rows):
            record = UnreadableRecord()
        return StoredOutput(record, result, about, schema.remove_metadata(), rows, batches)

    def write(
        self, tables: Iterator[pa.Table], stream: BinaryIO, record: JobRecord, result: Callable[[], JobResult]
    ) -> bytes:
        """Write row groups that depend on the tables alone."""
        writer: Any = None
        count = 0
        for table in _grouped(tables):
            if writer is None:
                metadata = {**(table.schema.metadata or {}), _RECORD: json.dumps(record.to_json()).encode()}
                writer = pq.ParquetWriter(stream, table.schema.with_metadata(metadata), write_page_checksum=True)
            writer.write_table(table.replace_schema_metadata(writer.schema.metadata), row_group_size=len(table))
            count += len(table)
        if writer is not None:
            writer.add_key_value_metadata({_ROWS: str(count), _RESULT: json.dumps(result().to_json())})
            writer.close()
        return b""


class CSVOutput:
    """A CSV file, and beside it a JSON file with the record and the checksum of the rows."""

    beside: str | None = ".json"

    def record(self, output: Path) -> Found:
        """Return the record in the file beside the output."""
        return JobRecord.from_json(self._beside(output).get("dasp"))

    def is_complete(self, output: Path) -> bool:
        """Return True if the rows have the checksum that was written with them."""
        try:
            with output.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError:
            return False
        return self._beside(output).get("sha256") == digest

    def result(self, output: Path) -> tuple[int, JobResult]:
        """Return what is in the file beside the rows."""
        told = typed(_BesideCSV, self._beside(output))
        return told.rows, told.result

    def read(self, output: Path) -> StoredOutput:
        """Return rows in batches, and what is in the file beside them."""
        if not (beside := self._beside(output)):
            return StoredOutput(UnreadableRecord(), JobResult(), {}, pa.schema([]), 0, lambda _: iter(()))
        if not self.is_complete(output):
            raise ValueError("has changed since it was written")
        record, told = JobRecord.from_json(beside["dasp"]), typed(_BesideCSV, beside)
        _check_size(told.rows, told.rows * len(told.columns))
        schema = pa.schema({name: pa.type_for_alias(kind) for name, kind in told.columns.items()})
        written = {name: no_formula(name) if _is_safe(record) else name for name in schema.names}
        lines = pv.ParseOptions(newlines_in_values=True)
        kinds = {written[own.name]: own.type for own in schema}

        def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
            some = [written[name] for name in columns]
            convert = pv.ConvertOptions(column_types=kinds, include_columns=some, strings_can_be_null=False)
            with pv.open_csv(output, convert_options=convert, parse_options=lines) as stream:
                for batch in stream:
                    named = batch.rename_columns(columns)
                    yield _with_ids(named, as_given) if _is_safe(record) else named

        return StoredOutput(record, told.result, told.about, schema, told.rows, batches)

    def write(
        self, tables: Iterator[pa.Table], stream: BinaryIO, record: JobRecord, result: Callable[[], JobResult]
    ) -> bytes:
        """Write a line for each row, below the names of the columns."""
        hashing = _Hashing(stream)
        writer: Any = None
        count, own, kinds = 0, dict[str, str](), dict[str, str]()
        for noted in _grouped(tables):
            table = _plain(noted)
            own, kinds = own or _decoded(noted.schema.metadata), {field.name: str(field.type) for field in table.schema}
            table = _safe(table) if _is_safe(record) else table
            writer = writer or pv.CSVWriter(
                hashing, table.schema, write_options=pv.WriteOptions(quoting_style="needed")
            )
            writer.write_table(table)
            count += len(table)
        if writer is not None:
            writer.close()
        content = {
            "dasp": record.to_json(), "rows": count, "sha256": hashing.digest.hexdigest(),
            "result": result().to_json(), "about": own, "columns": kinds,
        }  # fmt: skip
        return json.dumps(content, indent=1).encode() + b"\n"

    def _beside(self, output: Path) -> dict[str, Any]:
        file = output.with_name(f"{output.name}{self.beside}")
        try:
            if not file.is_file() or file.stat().st_size > _MOST_JSON:  # anything but a file could be read for ever
                return {}
            told = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) and isinstance(told.get("dasp"), dict) else {}


@dataclass(frozen=True)
class _BesideCSV:
    """The content of the file beside a CSV file."""

    dasp: dict[str, Any]  # the record
    rows: int
    sha256: str
    result: JobResult
    about: dict[str, str]
    columns: dict[str, str]  # their types


def _entries(kind: pa.DataType) -> int:
    """Return the number of entries in a row of a column, as far as its type says it."""
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size
    return _IN_A_LIST if pa.types.is_list(kind) else 1


def _json(text: str) -> Any:
    if len(text) > _MOST_JSON:
        raise ValueError(f"its metadata have more than {_MOST_JSON:,} characters")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its metadata are nested too deeply") from error


def _check_size(rows: int, entries: int) -> None:
    """Refuse what would be read for hours, though its file may be small."""
    if rows > _MOST_ROWS or entries > _MOST_ENTRIES:
        raise ValueError(
            f"has {rows:,} rows and {entries:,} entries; up to {_MOST_ROWS:,} rows and {_MOST_ENTRIES:,} entries can "
            "be shown"
        )


FORMATS: dict[str, Format] = {".parquet": ParquetOutput(), ".pq": ParquetOutput(), ".csv": CSVOutput()}


def format_of(output: Path) -> Format:
    """Return the format that a name says."""
    return FORMATS[output.suffix.lower()]


class _Hashing:
    """A stream whose content is hashed as it is written."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.digest = stream, hashlib.sha256()

    def write(self, content: Any) -> int:
        """Write and hash."""
        self.digest.update(content)
        return self._stream.write(content)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def close(self) -> None:
        """Leave the stream open: it is somebody else's."""


def _decoded(metadata: dict[bytes, bytes] | None) -> dict[str, str]:
    """Return metadata as texts, without what is Arrow's own."""
    found = {key.decode(): value.decode(errors="replace") for key, value in (metadata or {}).items()}
    return {key: value for key, value in found.items() if key != "ARROW:schema"}


def _plain(table: pa.Table) -> pa.Table:
    """Return the table with ids that CSV has no way to write, like times and decimals, as Python writes them."""
    ids = table["id"]
    if any(test(ids.type) for test in _PLAIN):
        return table
    return table.set_column(table.column_names.index("id"), "id", texts([str(one) for one in ids.to_pylist()]))


def _is_safe(record: Found) -> bool:
    return isinstance(record, JobRecord) and record.options.get("safe_csv") is True


def no_formula(text: str) -> str:
    """Return a text with an apostrophe before it if a spreadsheet would take it for a formula. `as_given` takes it
    away again.

    >>> no_formula("=1+1"), no_formula("-1.5"), no_formula("Zürich")
    ("'=1+1", '-1.5', 'Zürich')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def as_given(text: str) -> str:
    """Return the text that `no_formula` was given.

    >>> as_given("'=1+1"), as_given("'s Gravenhage")
    ('=1+1', "'s Gravenhage")
    """
    return text[1:] if text and no_formula(text[1:]) == text else text


def _safe(table: pa.Table) -> pa.Table:
    """Return the table without names and ids that are formulas."""
    return _with_ids(table, no_formula).rename_columns([no_formula(name) for name in table.column_names])


def _with_ids(table: Any, change: Callable[[str], str]) -> Any:
    """Return a table, or a part of one, whose ids and labels are changed if they are texts."""
    for place, own in enumerate(table.schema):
        if (own.name == "id" or own.name.startswith("data:")) and own.type == pa.string():
            changed = texts([change(one) for one in table[own.name].to_pylist()])
            table = table.set_column(place, own.name, changed)
    return table


def _grouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in larger tables."""
    waiting: list[pa.Table] = []
    rows = size = 0  # of those that wait
    for table in tables:
        waiting.append(table)
        rows, size = rows + len(table), size + table.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting.clear()
            rows = size = 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()
