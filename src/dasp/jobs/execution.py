"""The rows of a job: plan, explain what is not there yet, write the output."""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from dasp.errors import BadInput
from dasp.jobs.checkpoint import Checkpoint, DamagedPart
from dasp.jobs.identity import check_free, continues, record_of
from dasp.jobs.job import JobMetrics
from dasp.jobs.options import Options
from dasp.jobs.output import check_beside, finished_job, format_of, is_complete
from dasp.jobs.plan import Plan, Say, plan, waiting
from dasp.jobs.preflight import Preflight
from dasp.jobs.record import JobRecord, JobResult, UnreadableRecord
from dasp.jobs.summary import Notes
from dasp.jobs.worker import explained_table
from dasp.models.model_files import is_factory

__all__ = ["explain"]

_RANDOM = "its weights are random, unless it loads or sets them itself; --weights gives it those of a file"
_TRIES = 3  # to join parts that were whole when they were written


def explain(checked: Preflight, metrics: JobMetrics, say: Say = print) -> None:
    """Explain the rows of a job, or those that an interrupted run has left, and count them."""
    options = checked.options
    with _left_as_it_was(), Checkpoint(options.output) as parts:
        begun, finished = parts.record(), finished_job(options.output)
        earlier = next((found for found in (begun, finished) if isinstance(found, JobRecord)), None)
        planned = plan(checked, earlier, say)
        record = _record(options, planned)
        if finished == record and not is_complete(options.output):
            finished = UnreadableRecord()
        if not options.overwrite:
            check_beside(options.output)
            check_free(begun, finished, record, options.output, parts.folder)
        if finished == record:
            parts.remove()
            metrics.data_rows = planned.survey.rows
            count, result = format_of(options.output).result(options.output)
            metrics.left_out_rows, metrics.evaluations = len(planned.survey.bad), result.evaluations
            _count_noted(metrics, count, result.notes)
            say(f"{options.output}: done before, with the same model, data and options")
            return
        if begun != record:
            parts.begin(record, keep=continues(begun, record))
        if (
            is_factory(options.model)
            and options.weights is None
            and any(True for _ in planned.worker.model.parameters())
        ):
            print(f"dasp: {options.model}: {_RANDOM}", file=sys.stderr)
        for _ in range(_TRIES):
            with suppress(DamagedPart):  # since it was written: it is done again
                _work(options, planned, parts, record, metrics, say)
                return
        raise BadInput(f"{parts.folder}: parts are not there as they were written, again and again; check the disk")


def _record(options: Options, planned: Plan) -> JobRecord:
    chosen = replace(options, chunk=planned.reader.size, threads=planned.task.threads)
    return record_of(
        chosen, planned.task.parameters, planned.outputs, planned.files.checksums, planned.survey.bad, planned.absent,
        planned.method, planned.reason,
    )  # fmt: skip


def _work(options: Options, planned: Plan, parts: Checkpoint, record: JobRecord, metrics: JobMetrics, say: Say) -> None:
    """Explain the rows that are not done, and write the output."""
    rows, size = planned.survey.rows, planned.reader.size
    chunks = -(-rows // size)
    metrics.data_rows, metrics.left_out_rows = rows, len(planned.survey.bad)
    metrics.rows = metrics.missed_tolerance = metrics.evaluations = 0
    done = set()
    for number, table in parts.whole():
        if number < chunks:
            done.add(number)
            _count(metrics, table)
    before = sum(_rows_of(number, rows, size) for number in done)
    if before:
        say(f"resumed: {before:,} of {rows:,} rows were done before")
    start = time.perf_counter()
    with (
        _unchanged(options, planned, parts),
        waiting(options, "explaining", "row", rows, before) as progress,
        closing(_results(options, planned, frozenset(done))) as new,
    ):
        for number, table in new:
            parts.commit(number, table)
            progress.update(_rows_of(number, rows, size))
            metrics.new_rows += _count(metrics, table)
            metrics.rows_per_second = metrics.new_rows / (time.perf_counter() - start)
    seconds = time.perf_counter() - start
    model = options.model if ":" in options.model else Path(options.model).name
    names = {name: path.name for name, path in options.files().items()}
    result = JobResult(
        model, options.data.name, planned.outputs.shape[1], planned.classes or (), metrics.evaluations, files=names
    )
    with waiting(options, "writing the output"):
        written = parts.finish(chunks, record, result)
    rate = (rows - before) / seconds
    say(f"{options.output}: {written.summary.rows:,} rows; {rows - before:,} in {seconds:.1f} s, {rate:,.1f} rows/s")
    for line in written.notes.lines(written.summary.rows, options.tolerance):
        say(line)
    for line in written.summary.lines(shutil.get_terminal_size().columns, plain=not _draws(sys.stdout)):
        say(line)


def _count(metrics: JobMetrics, noted: pa.Table) -> int:
    """Count the rows of a chunk, and return how many there are."""
    notes, table = Notes.off(noted)
    if len(table):
        metrics.evaluations += pc.sum(table["evaluations"]).as_py()
    _count_noted(metrics, len(table), notes)
    return len(table)


def _count_noted(metrics: JobMetrics, rows: int, notes: Notes) -> None:
    metrics.rows += rows
    metrics.left_out_rows += notes.left_out
    metrics.missed_tolerance += notes.missed


@contextmanager
def _left_as_it_was() -> Iterator[None]:
    """Leave the generators of random numbers, and torch's threads, as they were: the process may be somebody else's."""
    threads, own, numpy = torch.get_num_threads(), random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
        random.setstate(own)
        np.random.set_state(numpy)  # noqa: NPY002


def _draws(stream: Any) -> bool:
    """Return True if a stream can write the blocks that bars are drawn with."""
    try:
        "█…".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextmanager
def _unchanged(options: Options, planned: Plan, parts: Checkpoint) -> Iterator[None]:
    """Refuse the rows if model or data changed while they were explained; an error may come from that as well."""
    try:
        yield
    except Exception:
        _check_files(options, planned, parts)
        raise
    _check_files(options, planned, parts)


def _check_files(options: Options, planned: Plan, parts: Checkpoint) -> None:
    if changed := planned.files.changed(options, planned.worker.model):
        parts.remove()
        raise BadInput(
            f"{' and '.join(changed)} changed while the job ran: its rows may be of either, and are removed; run the "
            "command again"
        )


def _results(options: Options, planned: Plan, done: frozenset[int]) -> Generator[tuple[int, pa.Table], None, None]:
    """Yield the explained rows of chunks that are not done, by their numbers: in this process one after the other, on
    Ray in any order. The rows are the same, to the bit."""
    if len(done) * planned.reader.size >= planned.survey.rows:
        return
    if options.engine == "ray":
        from dasp.jobs.ray_engine import Order, on_ray  # noqa: PLC0415 (Ray is for clusters only)

        yield from on_ray(Order(planned.task, planned.reader, done, options.ray_address, options.workers))
        return
    for chunk in planned.reader.chunks(done):
        yield chunk.number, explained_table(planned.worker, chunk)


def _rows_of(number: int, rows: int, size: int) -> int:
    return min(size, rows - number * size)
