"""The output of a job: a Parquet file with the job in its metadata, put in its place in one step."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dasp.errors import BadInput
from dasp.jobs.notes import Notes

__all__ = ["Job", "finished_job", "is_complete", "parts_of", "place", "stamp", "write"]

Job = dict[str, Any]  # by the names that users know: {"DATA": checksum, "--tolerance": 0.01, …}

_KEY, _ROWS = b"dasp", b"dasp rows"
_GROUP_ROWS, _GROUP_BYTES = 2**16, 2**26  # of a row group of the output, about
_WINDOWS = os.name == "nt"


def parts_of(output: Path) -> Path:
    """The folder that its parts are in until it is done."""
    return output.with_name(output.name + ".parts")


def finished_job(output: Path) -> Job | None:
    """The job whose result an output is; an empty one if it is something else, None if there is no such file."""
    if not output.exists():
        return None
    try:
        job = json.loads((pq.read_schema(output).metadata or {}).get(_KEY, b""))
    except (pa.ArrowException, OSError, ValueError):
        return {}
    return job if isinstance(job, dict) else {}


def is_complete(output: Path) -> bool:
    """Whether all of an output can be read, as it was written: its pages have checksums, its rows were counted."""
    try:
        with pq.ParquetFile(output, page_checksum_verification=True) as stored:
            rows = sum(batch.num_rows for batch in stored.iter_batches())
            return rows == int(stored.metadata.metadata[_ROWS])
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return False


def write(tables: Iterator[pa.Table], stream: BinaryIO, job: Job) -> tuple[int, Notes]:
    """Write all tables as one Parquet file; its row groups depend on the tables alone."""
    waiting: list[pa.Table] = []
    writer: Any = None
    count, notes = 0, Notes()
    rows = size = 0  # of those that wait

    def write_group() -> None:
        nonlocal writer, rows, size
        table = pa.concat_tables(waiting).combine_chunks()
        if writer is None:
            metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(job).encode()}
            writer = pq.ParquetWriter(stream, table.schema.with_metadata(metadata), write_page_checksum=True)
        writer.write_table(table.replace_schema_metadata(writer.schema.metadata), row_group_size=len(table))
        waiting.clear()
        rows = size = 0

    for noted in tables:
        its, table = Notes.off(noted)
        notes += its
        if len(table):
            waiting.append(table)
            count, rows, size = count + len(table), rows + len(table), size + table.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            write_group()
    if waiting:
        write_group()
    if writer is not None:
        writer.add_key_value_metadata({_ROWS: str(count)})
        writer.close()
    return count, notes


def stamp(file: Path) -> Any:
    """What tells a file from another by the same name; None if there is none."""
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
