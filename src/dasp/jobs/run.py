"""`dasp explain` from beginning to end: plan, explain what is not there yet, write the output."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from dasp.jobs.engines import Explained, locally, on_ray
from dasp.jobs.identity import check_free, describe
from dasp.jobs.options import Options
from dasp.jobs.parts import Job, Parts, finished_job
from dasp.jobs.plan import CHOSEN, Plan, Say, plan

__all__ = ["explain"]


def explain(options: Options, say: Say = print) -> None:
    """Explain the rows of a file, or those that an interrupted run has left."""
    with Parts(options.output) as parts:
        begun, finished = parts.job(), finished_job(options.output)
        planned = plan(options, begun or finished or {}, say)
        outputs = planned.worker.outputs(torch.from_numpy(planned.survey.example))
        chosen = replace(options, chunk=planned.reader.size, threads=planned.task.threads)
        job = describe(chosen, planned.worker.model, outputs, planned.files, planned.survey.bad)
        job[CHOSEN] = planned.worker.explainer.settled()
        if not options.overwrite:
            check_free(begun, finished, job, options.output, parts.folder)
        if finished == job:
            parts.remove()
            say(f"{options.output}: done before, with the same model, data and options")
            return
        if begun != job:
            parts.begin(job)
        _work(options, planned, parts, job, say)


def _work(options: Options, planned: Plan, parts: Parts, job: Job, say: Say) -> None:
    rows, size = planned.survey.rows, planned.reader.size
    chunks = -(-rows // size)
    done = parts.done()
    before = sum(_rows_of(number, rows, size) for number in done)
    if before:
        say(f"resumed: {before:,} of {rows:,} rows were done before")
    start = time.perf_counter()
    with closing(_results(options, planned, done)) as results, _progress() as progress:
        bar = progress.add_task("explaining", total=rows, completed=before)
        for result in results:
            parts.commit(result.number, result.table)
            progress.advance(bar, _rows_of(result.number, rows, size))
    seconds = time.perf_counter() - start
    written, notes = parts.finish(chunks, job)
    rate = (rows - before) / seconds
    say(f"{options.output}: {written:,} rows; {rows - before:,} in {seconds:.1f} s, {rate:,.1f} rows/s")
    for line in notes.lines(written, options.tolerance):
        say(line)


def _results(options: Options, planned: Plan, done: frozenset[int]) -> Generator[Explained, None, None]:
    if len(done) * planned.reader.size >= planned.survey.rows:
        return
    if options.engine == "ray":
        yield from on_ray(planned.task, planned.reader, done, options.ray_address, options.workers)
    else:
        yield from locally(planned.worker, planned.reader, done)


def _rows_of(number: int, rows: int, size: int) -> int:
    return min(size, rows - number * size)


class _Rate(ProgressColumn):
    """The speed of the last seconds."""

    def render(self, task: Task) -> Text:
        """Show rows per second, once they are known."""
        return Text(f"{task.speed:,.1f} rows/s" if task.speed else "")


def _progress() -> Progress:
    """A progress bar on the terminal; nothing is shown if stderr is a file."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)
