"""The checkpoint of a job: parts of its output on disk, so that a job that is killed at any moment goes on where it
stopped.

    OUT.parquet.parts/
        job.json          the record of the job, and a token
        lock              held while a process works here; the system releases it when the process ends
        000017.part       the explained rows of chunk 17: a seal, and an Arrow file

Every file gets its name when it is whole and on the disk. A seal is the SHA-256 of the job's token, the chunk's number
and the rows, so that a part that is damaged, or is another's, is known as such, and done again. The parts become
OUT.parquet in one step; then they are removed. A folder by that name with anything else in it is somebody's own, and
left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
from filelock import lock_descriptor

from dasp.errors import BadInput, line_of
from dasp.jobs.output import Written, beside, parts_of, place, stamp, write
from dasp.jobs.record import JobRecord, JobResult, UnreadableRecord

__all__ = ["Checkpoint", "DamagedPart", "packed", "unpacked"]

_OURS = re.compile(r"lock|output(\.parquet|\.pq|\.csv)|(output\.csv\.json|job\.json|\d{6,}\.part)(\.writing)?")
_SEAL = hashlib.sha256().digest_size
_WINDOWS = os.name == "nt"


class DamagedPart(Exception):
    """A part is not there, or not as it was written."""


class Checkpoint:
    """The folder of parts beside an output, locked while this is open as a context."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = parts_of(output)
        self._lock: BinaryIO | None = None
        self._token: str | None = None  # of the job that the parts belong to
        self._before: dict[Path, Any] = {}  # what was at the paths of the output and of the file beside it

    def __enter__(self) -> Self:
        with _writing(self.folder):
            while self._lock is None:
                self.folder.mkdir(exist_ok=True)
                self._check_ours()
                self._lock = self._locked()
        for path in filter(None, (self.output, beside(self.output))):
            self._before[path] = stamp(path)
            if self._before[path] and not path.is_file():
                self.__exit__()
                raise BadInput(f"{path}: is not a file, and cannot be replaced")
        return self

    def __exit__(self, *_: object) -> None:
        if self._holds() and not (self.folder / "job.json").exists():
            self.remove()  # nothing was begun
        self._release()

    def remove(self) -> None:
        """Leave nothing but the output. From the removal of the lock on, the folder may be another process's.

        Its file is removed while it is locked; on Windows, afterwards: there, a file that a process has open cannot be
        removed, so that the lock of another process is safe.
        """
        with suppress(OSError):
            if self._holds():
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
        if self.folder.is_symlink():
            raise BadInput(f"{self.folder}: the job needs a folder by this name, but it is a link; remove it")
        with suppress(FileNotFoundError):  # removed by the process that had it
            for file in self.folder.iterdir():
                if not _OURS.fullmatch(file.name) or file.is_symlink() or (file.exists() and not file.is_file()):
                    what = file.name if not _OURS.fullmatch(file.name) else f"{file.name} that is no plain file"
                    raise BadInput(
                        f"{self.folder}: the job needs this folder, but it has a {what}; name another --output"
                    )

    def _locked(self) -> BinaryIO | None:
        """Return the lock, or None if the process that had it has removed the file: a lock on that would keep out
        nobody."""
        try:
            lock = (self.folder / "lock").open("ab")
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
        if self._is_there(lock):
            return lock
        lock.close()
        return None

    def _is_there(self, lock: BinaryIO) -> bool:
        try:
            return os.path.samestat((self.folder / "lock").stat(), os.fstat(lock.fileno()))
        except OSError:
            return False

    def _holds(self) -> bool:
        return self._lock is not None and self._is_there(self._lock)

    def _check_owned(self, *, begun: bool = True) -> None:
        """Stop if the folder was removed while the job ran: by now it may be another job's."""
        if not self._holds() or (begun and _read_job(self.folder)[1] != self._token):
            raise BadInput(
                f"{self.folder}: was removed or changed by somebody else while the job ran; run the same command again"
            )

    def record(self) -> JobRecord | UnreadableRecord | None:
        """Return the record of the job that the parts belong to, or None if none was begun."""
        record, self._token = _read_job(self.folder)
        return record

    def begin(self, record: JobRecord, *, keep: bool = False) -> None:
        """Begin a job, without any parts; or `keep` those of a job that differs in nothing that they depend on."""
        with _writing(self.folder):
            self._check_owned(begun=keep)
            if not keep:
                self._clear()
                self._token = secrets.token_hex(16)
            assert self._token is not None
            job = record.to_json()
            content = {"job": job, "token": self._token, "sha256": _digest_of(job, self._token)}
            self._write("job.json", json.dumps(content, indent=1).encode())

    def whole(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield the numbers and the rows of the chunks that are there, as they were written."""
        for file in self.folder.glob("*.part"):
            with suppress(DamagedPart):
                yield int(file.stem), self._read(int(file.stem))

    def done(self) -> frozenset[int]:
        """Return the numbers of the chunks that are there, as they were written."""
        return frozenset(number for number, _ in self.whole())

    def commit(self, number: int, table: pa.Table) -> None:
        """Save the explained rows of a chunk."""
        content = packed(table)
        with _writing(self.folder):
            self._check_owned()
            self._write(_name(number), self._seal(number, content), content)

    def finish(self, chunks: int, record: JobRecord, result: JobResult | None = None) -> Written:
        """Join the parts into the output, and remove them. The file beside it comes first: it has the checksum.

        Raises `DamagedPart` if a part is not as it was written: it is no longer among those that are done.
        """
        temporary = self.folder / f"output{self.output.suffix.lower()}"
        with _writing(self.output):
            self._check_owned()
            with temporary.open("wb") as stream:
                written = write(map(self._read, range(chunks)), stream, record, self.output, result)
                stream.flush()
                os.fsync(stream.fileno())
            if not written.summary.rows:
                raise BadInput(f"{self.output}: no row is left: the model's output is not finite for any of them")
            self._check_owned()
            if other := beside(self.output):
                named = f"{temporary.name}.json"
                self._write(named, written.beside)
                place(self.folder / named, other, self._before[other])
            place(temporary, self.output, self._before[self.output])
        self.remove()
        return written

    def _seal(self, number: int, content: Any) -> bytes:
        digest = hashlib.sha256(f"{self._token} {number} ".encode())
        digest.update(content)
        return digest.digest()

    def _read(self, number: int) -> pa.Table:
        try:
            content = memoryview((self.folder / _name(number)).read_bytes())  # not mapped: many maps are too many
        except OSError as error:
            raise DamagedPart from error
        if content[:_SEAL] != self._seal(number, content[_SEAL:]):
            raise DamagedPart
        return unpacked(content[_SEAL:])

    def _write(self, name: str, *contents: Any) -> None:
        temporary = self.folder / f"{name}.writing"
        with temporary.open("wb") as stream:
            for content in contents:
                stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self.folder / name)


def _name(number: int) -> str:
    return f"{number:06}.part"


def _read_job(folder: Path) -> tuple[JobRecord | UnreadableRecord | None, str | None]:
    """Return the record in a folder and its token; no token if it is damaged, None if there is no record."""
    try:
        content = json.loads((folder / "job.json").read_bytes())
        job, token, digest = content["job"], content["token"], content["sha256"]
    except FileNotFoundError:
        return None, None
    except (ValueError, TypeError, KeyError):
        return UnreadableRecord("its job.json is damaged"), None
    if _digest_of(job, token) != digest:
        return UnreadableRecord("its job.json is damaged"), None
    return JobRecord.from_json(job), token


def _digest_of(job: Any, token: str) -> str:
    return hashlib.sha256(json.dumps([job, token]).encode()).hexdigest()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn errors of the system, while something is written, into one line."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {line_of(error)}") from error


def packed(table: pa.Table) -> Any:
    """Return a table as the content of an Arrow file: one batch, since a slice would bring the whole table along."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


def unpacked(content: Any) -> pa.Table:
    """Return the table of an Arrow file."""
    return pa.ipc.open_file(pa.py_buffer(content)).read_all()
