"""The HTML page that shows all experiments; it needs no other file."""

from __future__ import annotations

import base64
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import dasp
from dasp.paper.claims import claims, headline
from dasp.paper.experiment import SizeName
from dasp.paper.outcome import Outcome
from dasp.paper.standings import OURS, others_on_front, standings
from dasp.report.page import render

__all__ = ["Picture", "RunStatus", "Section", "page"]


@dataclass(frozen=True)
class Picture:
    """A figure that was written, with its caption."""

    file: Path
    text: str

    @property
    def source(self) -> str:
        """The picture itself, as an address."""
        return "data:image/png;base64," + base64.b64encode(self.file.read_bytes()).decode()


@dataclass(frozen=True)
class Section:
    """What the page shows of an experiment."""

    outcome: Outcome
    pictures: list[Picture]


@dataclass(frozen=True)
class RunStatus:
    """How a run was started, and how far it has come."""

    size: SizeName
    threads: int
    minutes: float
    to_come: Sequence[str] = ()  # titles of experiments

    @property
    def other_sizes(self) -> list[SizeName]:
        """Sizes that the run does not have."""
        return [size for size in SizeName if size != self.size]


def page(sections: Sequence[Section], status: RunStatus) -> str:
    """Render the page with the experiments that are done."""
    shown = [
        {
            "outcome": section.outcome, "experiment": section.outcome.experiment, "pictures": section.pictures,
            "claims": claims(section.outcome), "ours": OURS,
            "standings": standings(section.outcome.results, section.outcome.size.budgets),
            "others": others_on_front(section.outcome.results),
        }
        for section in sections
    ]  # fmt: skip
    versions = f"dasp {dasp.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    return render(
        "results.html",
        room="dasp.paper",
        sections=shown,
        headline=headline([section.outcome for section in sections]),
        status=status,
        about=f"{versions}, threads: {status.threads}",
    )
