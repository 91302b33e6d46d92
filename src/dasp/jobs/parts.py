"""The parts of an output on disk, so that a job that is killed at any moment goes on where it stopped.

    OUT.parquet.parts/
        job.json          what is computed: checksums of model and data, all options that change the result
        lock              held while a process works here; the system releases it when the process ends
        000017.arrow      the explained rows of chunk 17

Every file gets its name when it is whole and on the disk. The parts become OUT.parquet in one step, with the job in its
metadata; then they are removed. A folder by that name with anything else in it is somebody's own, and left alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import lock_descriptor

from dasp.errors import BadInput, line_of
from dasp.jobs.notes import Notes

__all__ = ["Job", "Parts", "finished_job", "packed", "unpacked"]

Job = dict[str, Any]  # by the names that users know: {"DATA": checksum, "--tolerance": 0.01, …}

_KEY = b"dasp"
_OURS = re.compile(r"lock|output\.parquet|(job\.json|\d{6,}\.arrow)(\.writing)?")
_GROUP_ROWS, _GROUP_BYTES = 2**16, 2**26  # of a row group of the output, about
_WINDOWS = os.name == "nt"


class Parts:
    """The directory of parts beside an output, locked while this exists as a context."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.with_name(output.name + ".parts")
        self._lock: BinaryIO | None = None

    def __enter__(self) -> Self:
        with _writing(self.folder):
            if self.output.exists() and not self.output.is_file():
                raise BadInput(f"{self.output}: is not a file, and cannot be replaced")
            while self._lock is None:
                self.folder.mkdir(exist_ok=True)
                self._check_ours()
                self._lock = self._locked()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock and not (self.folder / "job.json").exists():
            self.remove()  # nothing was begun
        self._release()

    def remove(self) -> None:
        """Leave nothing but the output. From the removal of the lock on, the folder may be another process's.

        Its file is removed while it is locked; on Windows, afterwards: there, a file that a process has open cannot be
        removed, so that the lock of another process is safe.
        """
        with suppress(OSError):
            self._clear()
            if _WINDOWS:
                self._release()
            (self.folder / "lock").unlink()
            self.folder.rmdir()
        self._release()

    def _release(self) -> None:
        if self._lock:
            self._lock.close()
        self._lock = None

    def _clear(self) -> None:
        for file in self.folder.iterdir():
            if file.name != "lock" and _OURS.fullmatch(file.name):
                file.unlink()

    def _check_ours(self) -> None:
        with suppress(FileNotFoundError):  # removed by the process that had it
            for file in self.folder.iterdir():
                if not _OURS.fullmatch(file.name):
                    raise BadInput(
                        f"{self.folder}: the job needs this folder, but it has a {file.name}; name another --output"
                    )

    def _locked(self) -> BinaryIO | None:
        """The lock; None if the process that had it has removed the file: a lock on that would keep nobody out."""
        file = self.folder / "lock"
        try:
            lock = file.open("ab")
        except FileNotFoundError:
            return None
        try:
            free = lock_descriptor(lock.fileno(), blocking=False)
        except OSError:  # the file system has no locks
            lock.close()
            raise
        if not free:
            lock.close()
            raise BadInput(f"{self.output}: another process is writing it; wait for it, or name another --output")
        if file.exists() and os.path.samestat(file.stat(), os.fstat(lock.fileno())):
            return lock
        lock.close()
        return None

    def job(self) -> Job | None:
        """The job that the parts belong to; None if none was begun, an empty job, which equals no other, if damaged."""
        try:
            return _job((self.folder / "job.json").read_bytes())
        except FileNotFoundError:
            return None

    def begin(self, job: Job) -> None:
        """Remove all parts, and begin a job."""
        with _writing(self.folder):
            self._clear()
            self._write("job.json", json.dumps(job, indent=1).encode())

    def done(self) -> frozenset[int]:
        """The numbers of the chunks that are there and whole."""
        return frozenset(int(file.stem) for file in self.folder.glob("*.arrow") if _whole(file))

    def commit(self, number: int, table: pa.Table) -> None:
        """Save the explained rows of a chunk."""
        with _writing(self.folder):
            self._write(f"{number:06}.arrow", packed(table))

    def finish(self, chunks: int, job: Job) -> tuple[int, Notes]:
        """Join the parts into the output, and remove them; return its number of rows, and notes on them."""
        temporary = self.folder / "output.parquet"
        with _writing(self.output):
            with temporary.open("wb") as stream:
                count, notes = _join(map(self._read, range(chunks)), stream, job)
                stream.flush()
                os.fsync(stream.fileno())
            if not count:
                raise BadInput(f"{self.output}: no row is left: the model's output is not finite for any of them")
            temporary.replace(self.output)
            _sync(self.output.parent)
        self.remove()
        return count, notes

    def _read(self, number: int) -> pa.Table:
        return unpacked((self.folder / f"{number:06}.arrow").read_bytes())  # not mapped: many maps are too many

    def _write(self, name: str, content: Any) -> None:
        temporary = self.folder / f"{name}.writing"
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self.folder / name)


def finished_job(output: Path) -> Job | None:
    """The job whose result an output is; an empty one if it is something else, None if there is no such file."""
    if not output.exists():
        return None
    try:
        return _job((pq.read_schema(output).metadata or {}).get(_KEY, b""))
    except (pa.ArrowException, OSError):
        return {}


def _job(content: bytes) -> Job:
    try:
        job = json.loads(content)
    except ValueError:
        return {}
    return job if isinstance(job, dict) else {}


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn errors of the system, while something is written, into one line."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {line_of(error)}") from error


def packed(table: pa.Table) -> Any:
    """A table as the content of an Arrow file: one batch, since a slice would bring the whole table along."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


def unpacked(content: Any) -> pa.Table:
    """The table of an Arrow file."""
    return pa.ipc.open_file(content).read_all()


def _whole(file: Path) -> bool:
    try:
        with pa.memory_map(str(file)) as stream:
            pa.ipc.open_file(stream)
    except (pa.ArrowException, OSError):
        return False
    return True


def _join(tables: Iterator[pa.Table], stream: BinaryIO, job: Job) -> tuple[int, Notes]:
    """Write all tables as one Parquet file; its row groups depend on the tables alone."""
    waiting: list[pa.Table] = []
    writer: Any = None
    count, notes = 0, Notes()
    rows = size = 0  # of those that wait

    def write() -> None:
        nonlocal writer, rows, size
        table = pa.concat_tables(waiting).combine_chunks()
        if writer is None:
            metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(job).encode()}
            writer = pq.ParquetWriter(stream, table.schema.with_metadata(metadata))
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
            write()
    if waiting:
        write()
    if writer is not None:
        writer.close()
    return count, notes


def _sync(folder: Path) -> None:
    """Bring the names in a folder to the disk; Windows, where a folder cannot be opened, does so by itself."""
    if _WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
