"""One HTML page with all experiments; it needs no other file."""

from __future__ import annotations

import base64
import platform
from dataclasses import dataclass
from pathlib import Path

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined

import dasp
from dasp.paper.claims import OURS, claims, others_on_front, standings
from dasp.paper.outcome import Outcome

__all__ = ["Picture", "Section", "page"]


@dataclass(frozen=True)
class Picture:
    """A figure that was written, and what it shows."""

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


def page(sections: list[Section], headline: list[dict[str, str]], *, full: bool, threads: int, minutes: float) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("dasp.paper", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    shown = [
        {
            "outcome": section.outcome, "experiment": section.outcome.experiment, "pictures": section.pictures,
            "claims": claims(section.outcome), "ours": OURS,
            "standings": standings(section.outcome.results, section.outcome.size.budgets),
            "others": others_on_front(section.outcome.results),
        }
        for section in sections
    ]  # fmt: skip
    about = (
        f"dasp {dasp.__version__}, torch {torch.__version__}, Python {platform.python_version()}, threads: {threads}"
    )
    return environment.get_template("page.html").render(
        sections=shown, headline=headline, full=full, about=about, minutes=minutes
    )
