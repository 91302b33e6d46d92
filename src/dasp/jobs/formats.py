"""The formats of an output: Parquet, with the job in its metadata, or CSV, with the job in a JSON file beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from dasp.jobs.reading.arrow import texts

__all__ = ["CSV", "FORMATS", "Format", "Job", "Parquet", "Stored", "format_of"]

Job = dict[str, Any]  # by the names that users know: {"DATA": checksum, "--tolerance": 0.01, …}
Told = Callable[[], dict[str, Any]]  # what is to be said of all rows, once they are written

_KEY, _ROWS, _NOTES = b"dasp", b"dasp rows", b"dasp notes"
_BATCH = 2**12  # rows that are read at once
_GROUP_ROWS, _GROUP_BYTES = 2**16, 2**26  # of a row group of the output, about
_PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)


@dataclass(frozen=True)
class Stored:
    """An output as it is read again."""

    job: Job  # an empty one if it is something else
    notes: dict[str, Any]  # what is to be said of all rows
    about: dict[str, str]  # what the columns do not say, like the shape of a row
    schema: pa.Schema
    batches: Callable[[list[str]], Iterator[pa.RecordBatch]]  # some columns of its rows, as often as they are wanted


class Format(Protocol):
    """How an output is written, and what is known of one that is there."""

    beside: str | None  # what the name of a file beside the output ends in, if there is one

    def job(self, output: Path) -> Job:
        """The job whose result an output is; an empty one if it is something else."""

    def is_complete(self, output: Path) -> bool:
        """Whether all of an output can be read, as it was written."""

    def read(self, output: Path) -> Stored:
        """What was written; raises Arrow's errors if that cannot be read."""

    def write(self, tables: Iterator[pa.Table], stream: BinaryIO, job: Job, told: Told) -> bytes:
        """Write all tables; what is given back is for the file beside the output."""


class Parquet:
    """One Parquet file: its pages have checksums, its rows were counted."""

    beside: str | None = None

    def job(self, output: Path) -> Job:
        """The job in the metadata."""
        try:
            job = json.loads((pq.read_schema(output).metadata or {}).get(_KEY, b""))
        except (pa.ArrowException, OSError, ValueError):
            return {}
        return job if isinstance(job, dict) else {}

    def is_complete(self, output: Path) -> bool:
        """Whether all rows are there."""
        try:
            with pq.ParquetFile(output, page_checksum_verification=True) as stored:
                rows = sum(batch.num_rows for batch in stored.iter_batches())
                return rows == int(stored.metadata.metadata[_ROWS])
        except (pa.ArrowException, OSError, ValueError, KeyError):
            return False

    def read(self, output: Path) -> Stored:
        """Rows in batches, and what is in the metadata."""
        with pq.ParquetFile(output) as stored:
            about = _decoded(stored.metadata.metadata)
            schema = stored.schema_arrow

        def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
            with pq.ParquetFile(output, page_checksum_verification=True) as again:
                yield from again.iter_batches(_BATCH, columns=columns)

        notes = json.loads(about.pop(_NOTES.decode(), "{}"))
        return Stored(self.job(output), notes, about, schema.remove_metadata(), batches)

    def write(self, tables: Iterator[pa.Table], stream: BinaryIO, job: Job, told: Told) -> bytes:
        """Write row groups that depend on the tables alone."""
        writer: Any = None
        count = 0
        for table in _grouped(tables):
            if writer is None:
                metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(job).encode()}
                writer = pq.ParquetWriter(stream, table.schema.with_metadata(metadata), write_page_checksum=True)
            writer.write_table(table.replace_schema_metadata(writer.schema.metadata), row_group_size=len(table))
            count += len(table)
        if writer is not None:
            writer.add_key_value_metadata({_ROWS: str(count), _NOTES: json.dumps(told())})
            writer.close()
        return b""


class CSV:
    """A CSV file, and beside it a JSON file with the job and the checksum of the rows."""

    beside: str | None = ".json"

    def job(self, output: Path) -> Job:
        """The job in the file beside the output."""
        return self._told(output).get("dasp", {})

    def is_complete(self, output: Path) -> bool:
        """Whether the rows have the checksum that was written with them."""
        try:
            with output.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError:
            return False
        return self._told(output).get("sha256") == digest

    def read(self, output: Path) -> Stored:
        """Rows in batches, and what is in the file beside them."""
        told = self._told(output)
        if told and not self.is_complete(output):
            raise ValueError("has changed since it was written")
        schema = pa.schema({name: pa.type_for_alias(kind) for name, kind in told.get("columns", {}).items()})
        lines = pv.ParseOptions(newlines_in_values=True)

        def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
            kinds = pv.ConvertOptions(column_types=schema, include_columns=columns, strings_can_be_null=False)
            with pv.open_csv(output, convert_options=kinds, parse_options=lines) as stream:
                yield from stream

        return Stored(told.get("dasp", {}), told.get("notes", {}), told.get("about", {}), schema, batches)

    def write(self, tables: Iterator[pa.Table], stream: BinaryIO, job: Job, told: Told) -> bytes:
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
        about = {"dasp": job, "rows": count, "sha256": hashing.digest.hexdigest(), "notes": told()}
        about |= {"about": own, "columns": kinds}
        return json.dumps(about, indent=1).encode() + b"\n"

    def _told(self, output: Path) -> dict[str, Any]:
        try:
            told = json.loads(output.with_name(f"{output.name}{self.beside}").read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) and isinstance(told.get("dasp"), dict) else {}


FORMATS: dict[str, Format] = {".parquet": Parquet(), ".pq": Parquet(), ".csv": CSV()}


def format_of(output: Path) -> Format:
    """The format that a name says."""
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
    """Metadata as texts, without what is Arrow's own."""
    found = {key.decode(): value.decode(errors="replace") for key, value in (metadata or {}).items()}
    return {key: value for key, value in found.items() if key != "ARROW:schema"}


def _plain(table: pa.Table) -> pa.Table:
    """The table with ids that CSV has no way to write, like times and decimals, as Python writes them."""
    ids = table["id"]
    if any(test(ids.type) for test in _PLAIN):
        return table
    return table.set_column(table.column_names.index("id"), "id", texts([str(one) for one in ids.to_pylist()]))


def _grouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in larger tables."""
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
