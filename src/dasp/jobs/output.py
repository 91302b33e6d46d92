"""The output of a job: written beside its place, with the record of the job, and put there in one step.

A Parquet file has the record in its metadata; beside a CSV file is a JSON file with the record.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from dasp.errors import BadInput
from dasp.jobs.reading.source import texts
from dasp.jobs.record import JobRecord, JobResult, UnreadableRecord
from dasp.jobs.summary import Notes, Summary

__all__ = [
    "FORMATS", "StoredOutput", "Written", "beside", "check_beside", "finished_job", "format_of", "is_complete",
    "parts_of", "place", "stamp", "write",
]  # fmt: skip

Found = JobRecord | UnreadableRecord

_RECORD, _ROWS, _RESULT = b"dasp", b"dasp rows", b"dasp result"  # keys of the metadata
_BATCH = 2**12  # rows that are read at once
_GROUP_ROWS, _GROUP_BYTES = 2**16, 2**26  # of a row group of the output, about
_PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
_WINDOWS = os.name == "nt"


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
    batches: Callable[[list[str]], Iterator[pa.RecordBatch]]  # reads some columns of its rows


class Format(Protocol):
    """A format of outputs: it writes one, and reads one that is there."""

    beside: str | None  # the ending of the name of a file beside the output, if there is one

    def record(self, output: Path) -> Found:
        """Return the record of the job whose result an output is."""

    def is_complete(self, output: Path) -> bool:
        """Return True if all of an output can be read, as it was written."""

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

    def read(self, output: Path) -> StoredOutput:
        """Return rows in batches, and what is in the metadata."""
        with pq.ParquetFile(output) as stored:
            about = _decoded(stored.metadata.metadata)
            schema = stored.schema_arrow

        def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
            with pq.ParquetFile(output, page_checksum_verification=True) as again:
                yield from again.iter_batches(_BATCH, columns=columns)

        result = JobResult.from_json(json.loads(about.pop(_RESULT.decode(), "{}")))
        record = JobRecord.from_json(json.loads(about.pop(_RECORD.decode(), "null")))
        return StoredOutput(record, result, about, schema.remove_metadata(), batches)

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

    def read(self, output: Path) -> StoredOutput:
        """Return rows in batches, and what is in the file beside them."""
        told = self._beside(output)
        if told and not self.is_complete(output):
            raise ValueError("has changed since it was written")
        schema = pa.schema({name: pa.type_for_alias(kind) for name, kind in told.get("columns", {}).items()})
        lines = pv.ParseOptions(newlines_in_values=True)

        def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
            kinds = pv.ConvertOptions(column_types=schema, include_columns=columns, strings_can_be_null=False)
            with pv.open_csv(output, convert_options=kinds, parse_options=lines) as stream:
                yield from stream

        record, result = JobRecord.from_json(told.get("dasp")), JobResult.from_json(told.get("result", {}))
        return StoredOutput(record, result, told.get("about", {}), schema, batches)

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
        try:
            told = json.loads(output.with_name(f"{output.name}{self.beside}").read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) and isinstance(told.get("dasp"), dict) else {}


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
