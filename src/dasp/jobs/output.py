"""The output of a job: written beside its place, with the job that it comes from, and put there in one step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from dasp.errors import BadInput
from dasp.jobs.formats import Job, format_of
from dasp.jobs.notes import Notes
from dasp.jobs.summary import Summary

__all__ = [
    "Job", "Written", "beside", "check_beside", "finished_job", "is_complete", "parts_of", "place", "stamp", "write",
]  # fmt: skip

_WINDOWS = os.name == "nt"


def parts_of(output: Path) -> Path:
    """The folder that its parts are in until it is done."""
    return output.with_name(output.name + ".parts")


def beside(output: Path) -> Path | None:
    """The file with what the format has no place for, if there is one.

    >>> beside(Path("out.csv")), beside(Path("out.parquet"))
    (PosixPath('out.csv.json'), None)
    """
    ending = format_of(output).beside
    return None if ending is None else output.with_name(output.name + ending)


def finished_job(output: Path) -> Job | None:
    """The job whose result an output is; an empty one if it is something else, None if there is no such file."""
    return format_of(output).job(output) if output.exists() else None


def check_beside(output: Path) -> None:
    """Refuse to replace somebody's file beside the output."""
    file = beside(output)
    if file and file.exists() and not format_of(output).job(output):
        raise BadInput(f"{file}: exists, but was not written by dasp explain; --overwrite replaces it")


def is_complete(output: Path) -> bool:
    """Whether all of an output can be read, as it was written."""
    return format_of(output).is_complete(output)


@dataclass
class Written:
    """What is known of an output when it is written."""

    notes: Notes = field(default_factory=Notes)
    summary: Summary = field(default_factory=Summary)
    beside: bytes = b""  # for the file beside it


def write(tables: Iterator[pa.Table], stream: BinaryIO, job: Job, output: Path, about: dict[str, Any]) -> Written:
    """Write all tables in the format that the output's name says; the bytes depend on the tables, the job
    and what is told about it alone."""
    written = Written()

    def told() -> dict[str, Any]:
        return {**asdict(written.notes), **about}

    def counted() -> Iterator[pa.Table]:
        for noted in tables:
            notes, table = Notes.off(noted)
            written.notes += notes
            if len(table):
                written.summary.add(table)
                yield table

    written.beside = format_of(output).write(counted(), stream, job, told)
    return written


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
