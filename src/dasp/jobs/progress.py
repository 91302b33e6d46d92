"""The progress bar of a job, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["progress_bar"]


class _Rate(ProgressColumn):
    """The speed of the last seconds."""

    def render(self, task: Task) -> Text:
        """Show rows per second, once they are known."""
        return Text(f"{task.speed:,.1f} rows/s" if task.speed else "")


@contextmanager
def progress_bar(rows: int, before: int) -> Iterator[Callable[[int], None]]:
    """A bar for so many rows, some of which were done before; what it gives is told of more of them."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("explaining", total=rows, completed=before)
        yield lambda more: progress.advance(bar, more)
