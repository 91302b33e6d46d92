"""A job from its options to its page and its metrics: the command `dasp explain`, and `dasp.jobs.run`.

Nothing that takes long is imported before the options make sense, nor torch before files and columns do.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dasp.errors import BadInput, ending, line_of, missing_library
from dasp.jobs.options import Options

__all__ = ["JobMetrics", "explained", "run"]

log = logging.getLogger("dasp")


@dataclass(kw_only=True)
class JobMetrics:
    """What a job has done: `dasp.jobs.run` returns it, and `--metrics` writes it as JSON, also of a job that fails.

    `rows`, `left_out_rows`, `missed_tolerance` and `evaluations` are those of the output, or of as much of it as is
    there, whichever run of the job explained them; `new_rows`, `seconds` and `rows_per_second` are those of this run.
    """

    output: Path
    """the file with the values"""
    exit_code: int = 0
    """what the command ends with"""
    error: str | None = None
    """the line that says why it failed"""
    data_rows: int = 0
    """rows of the data; 0 if the job has not come as far as to count them"""
    rows: int = 0
    """rows that are explained"""
    new_rows: int = 0
    """rows that this run has explained; the others were there before"""
    left_out_rows: int = 0
    """rows that were refused, and left out with `on_bad_row="skip"`"""
    missed_tolerance: int = 0
    """rows that did not reach the `tolerance`"""
    evaluations: int = 0
    """evaluations of the model for all `rows`"""
    seconds: float = 0.0
    """how long this run took, from the first look at the files to the end"""
    rows_per_second: float | None = None
    """the rate of this run while it explained rows; None if it explained none"""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {**asdict(self), "output": str(self.output)}


def run(
    model: str | Path, data: str | Path, output: str | Path, *, say: Callable[[str], None] = log.info, **options: Any
) -> JobMetrics:
    """Explain every row of a file, as the command `dasp explain` does, and return what was done.

    Where the command would print a line and end, `dasp.errors.BadInput` or `Stopped` is raised, with the same line: it
    names options as the command does. A job that was interrupted goes on when it is run again, by either of them.

    Args:
        model: a factory "package.module:build", or the name of a file or folder, as on the command line.
        data: the rows: a .csv, .parquet, .npy or .npz file, or a folder of images.
        output: the file to write, .parquet or .csv.
        say: takes the lines that the command prints; if not given, they are in the log "dasp".
        options: those of the command by their names in Python: `on_bad_row="skip"` is `--on-bad-row skip`. Numbers may
            be numbers, names a list.

    >>> run("absent.pt2", "rows.csv", "out.parquet", trust=True)
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: absent.pt2: there is no such file (a factory is written package.module:build)
    """
    return explained(Options.of(model=model, data=data, output=output, **options), say)


def explained(
    options: Options,
    say: Callable[[str], None],
    importing: Callable[[], AbstractContextManager[None]] = nullcontext,
    exits: tuple[type[BaseException], ...] = (SystemExit,),
) -> JobMetrics:
    """Do a job, with its page and its metrics.

    Args:
        options: of the job.
        say: takes the lines that the command prints.
        importing: the context in which libraries are imported, such as one that ends the process at an interrupt.
        exits: what the code of a model may raise to end the process.
    """
    with _measured(options) as metrics:
        if options.engine == "ray":
            _check_there("ray", "cluster")
        if options.text is not None:
            _check_there("transformers", "text")
        with _needed(importing):
            from dasp.jobs.preflight import preflight  # noqa: PLC0415
        checked = preflight(options)  # which says what is wrong before torch is imported
        with _needed(importing):
            from dasp.jobs.execution import explain  # noqa: PLC0415
        try:
            explain(checked, metrics, say)
        except exits as stop:  # else the exit code would be theirs, without an output
            raise BadInput(
                f"{options.model}: its code called sys.exit before the job was done; it must return"
            ) from stop
        if options.report is not None:
            with _needed(importing):  # by its name, as users do: pages are a room above this one
                write_report = importlib.import_module("dasp.pages").write_report
            shown = write_report(options.output, options.report)
            say(f"{options.report}: {shown:,} row{'s' * (shown != 1)} to look at; open it in a browser")
    return metrics


@contextmanager
def _needed(importing: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Say what to install, if a library is missing."""
    try:
        with importing():
            yield
    except ModuleNotFoundError as error:
        raise missing_library(error.name, "cli") from error


def _check_there(library: str, extra: str) -> None:
    if find_spec(library) is None:
        raise missing_library(library, extra)


@contextmanager
def _measured(options: Options) -> Iterator[JobMetrics]:
    """Count what a job does, and write that to its file of metrics, however the job ends: where there is none, the
    system has killed it."""
    metrics, start = JobMetrics(output=options.output), time.perf_counter()
    if options.metrics is not None:
        with _written(options.metrics):
            options.metrics.unlink(missing_ok=True)  # that of an earlier run
    try:
        yield metrics
    except BaseException as error:
        metrics.exit_code, line = ending(error)
        metrics.error = line or f"{type(error).__name__}: {line_of(error)}"
        raise
    finally:
        metrics.seconds = round(time.perf_counter() - start, 3)
        if options.metrics is not None:
            with _written(options.metrics):
                _replace(options.metrics, json.dumps(metrics.to_json(), indent=1) + "\n")


@contextmanager
def _written(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"{file}: cannot be written: {line_of(error)}") from error


def _replace(file: Path, text: str) -> None:
    """Write a file beside its place, and put it there in one step."""
    temporary = file.with_name(f".{file.stem[:40]}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
