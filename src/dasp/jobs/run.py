"""`dasp explain` from beginning to end: plan, explain what is not there yet, write the output."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

from dasp.errors import BadInput
from dasp.jobs.engines import Explained, Order, locally, on_ray
from dasp.jobs.identity import check_free, continues, describe
from dasp.jobs.inputs import contents
from dasp.jobs.model_files import is_factory
from dasp.jobs.options import Options
from dasp.jobs.output import Job, check_beside, finished_job, is_complete
from dasp.jobs.parts import Damaged, Parts
from dasp.jobs.plan import CHOSEN, WHY, Plan, Say, plan
from dasp.jobs.text_plan import plan_texts

__all__ = ["explain"]

_RANDOM = "its weights are random, unless it loads or sets them itself; --weights gives it those of a file"
_TRIES = 3  # to join parts that were whole when they were written


def explain(options: Options, say: Say = print) -> None:
    """Explain the rows of a file, or those that an interrupted run has left."""
    with Parts(options.output) as parts:
        begun, finished = parts.job(), finished_job(options.output)
        planned = (plan if options.text is None else plan_texts)(options, begun or finished or {}, say)
        chosen = replace(options, chunk=planned.reader.size, threads=planned.task.threads)
        job = describe(chosen, planned.worker.model, planned.outputs, planned.contents, planned.survey.bad)
        job[CHOSEN], job[WHY] = planned.settled, planned.why
        job["absent inputs"] = planned.absent
        if finished == job and not is_complete(options.output):
            finished = {}
        if not options.overwrite:
            check_beside(options.output)
            check_free(begun, finished, job, options.output, parts.folder)
        if finished == job:
            parts.remove()
            say(f"{options.output}: done before, with the same model, data and options")
            return
        if begun != job:
            parts.begin(job, keep=continues(begun, job))
        if (
            is_factory(options.model)
            and options.weights is None
            and any(True for _ in planned.worker.model.parameters())
        ):
            print(f"dasp: {options.model}: {_RANDOM}", file=sys.stderr)
        for _ in range(_TRIES):
            with suppress(Damaged):  # since it was written: it is done again
                _work(options, planned, parts, job, say)
                return
        raise BadInput(f"{parts.folder}: parts are not there as they were written, again and again; check the disk")


def _work(options: Options, planned: Plan, parts: Parts, job: Job, say: Say) -> None:
    """Explain the rows that are not done, and write the output."""
    rows, size = planned.survey.rows, planned.reader.size
    chunks = -(-rows // size)
    done = parts.done() & frozenset(range(chunks))
    before = sum(_rows_of(number, rows, size) for number in done)
    if before:
        say(f"resumed: {before:,} of {rows:,} rows were done before")
    start = time.perf_counter()
    with (
        _unchanged(options, planned, parts),
        _progress(rows, before) as advance,
        closing(_results(options, planned, done)) as new,
    ):
        for result in new:
            parts.commit(result.number, result.table)
            advance(_rows_of(result.number, rows, size))
    seconds = time.perf_counter() - start
    about: dict[str, Any] = {"files": options.file_names(), "outputs": planned.outputs.shape[1]}
    about |= {"output names": list(planned.classes)} if planned.classes else {}
    written = parts.finish(chunks, job, about)
    rate = (rows - before) / seconds
    say(f"{options.output}: {written.summary.rows:,} rows; {rows - before:,} in {seconds:.1f} s, {rate:,.1f} rows/s")
    for line in written.notes.lines(written.summary.rows, options.tolerance):
        say(line)
    for line in written.summary.lines(shutil.get_terminal_size().columns, plain=not _draws(sys.stdout)):
        say(line)


def _draws(stream: Any) -> bool:
    """Whether a stream can write the blocks that bars are drawn with."""
    try:
        "█…".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextmanager
def _unchanged(options: Options, planned: Plan, parts: Parts) -> Iterator[None]:
    """Refuse the rows if model or data changed while they were explained; an error may come from that as well."""
    try:
        yield
    except Exception:
        _check_contents(options, planned, parts)
        raise
    _check_contents(options, planned, parts)


def _check_contents(options: Options, planned: Plan, parts: Parts) -> None:
    now = contents(options, planned.worker.model)
    changed = [name for name, checksum in planned.contents.items() if now[name] != checksum]
    if changed:
        parts.remove()
        raise BadInput(
            f"{' and '.join(changed)} changed while the job ran: its rows may be of either, and are removed; run the "
            "command again"
        )


def _results(options: Options, planned: Plan, done: frozenset[int]) -> Generator[Explained, None, None]:
    if len(done) * planned.reader.size >= planned.survey.rows:
        return
    if options.engine == "ray":
        yield from on_ray(Order(planned.task, planned.reader, done, options.ray_address, options.workers))
    else:
        yield from locally(planned.worker, planned.reader, done)


def _rows_of(number: int, rows: int, size: int) -> int:
    return min(size, rows - number * size)


@contextmanager
def _progress(rows: int, before: int) -> Iterator[Callable[[int], None]]:
    """Show progress on a terminal; nothing is shown if stderr is a file."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from dasp.jobs.progress import progress_bar  # noqa: PLC0415 (rich is for terminals only)

    with progress_bar(rows, before) as advance:
        yield advance
