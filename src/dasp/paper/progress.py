"""Progress bars of an experiment, one for each stage."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["Stages"]


class Stages:
    """Progress bars that a call with a stage, the steps done and the steps in all moves on."""

    def __init__(self, title: str, console: Console) -> None:
        self.title = title
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )  # fmt: skip
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how much of a stage is done."""
        if stage not in self.tasks:
            self.tasks[stage] = self.progress.add_task(f"{self.title}: {stage}", total=total)
        self.progress.update(self.tasks[stage], completed=done, total=total)
