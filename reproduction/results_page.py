"""Figures and tables of the experiments, and the page that shows them all with the first report.

Figures (PNG) and tables (CSV and Markdown) are written to a folder for each experiment. The page, `index.html`, holds
all figures itself; only the report of the first step is a page of its own, which it links.
"""

from __future__ import annotations

import base64
import csv
import io
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

import dasp
from dasp.evaluation import Problem, Result
from dasp.pages.render import render
from reproduction.claims import claims, described, headline, others_on_front, standings
from reproduction.comparison_methods import OURS, display_name
from reproduction.experiment import Drawn, ExplainedRows, SizeName
from reproduction.figures import comparison
from reproduction.gaussianity import Sampled, gaussianity, moments
from reproduction.outcome import Outcome, largest_budgets
from reproduction.store import write

__all__ = ["FirstReport", "Picture", "RunStatus", "Section", "page", "save", "write_section"]


@dataclass(frozen=True)
class Picture:
    """A figure on disk, with its caption."""

    file: Path
    text: str

    @property
    def source(self) -> str:
        """The picture as a data URL."""
        return "data:image/png;base64," + base64.b64encode(self.file.read_bytes()).decode()


@dataclass(frozen=True)
class FirstReport:
    """The report of `dasp explain` that the demo begins with."""

    link: str  # relative to the page
    command: str
    text: str  # what it shows


@dataclass(frozen=True)
class Section:
    """The part of the page about an experiment."""

    outcome: Outcome
    pictures: list[Picture]


@dataclass(frozen=True)
class RunStatus:
    """The settings of a run, and how far it has come."""

    size: SizeName
    threads: int
    minutes: float
    to_come: Sequence[str] = ()  # titles of experiments
    first: FirstReport | None = None  # what came before the experiments

    @property
    def other_sizes(self) -> list[SizeName]:
        """The sizes that the run does not have."""
        return [size for size in SizeName if size != self.size]


def page(sections: Sequence[Section], status: RunStatus) -> str:
    """Return the HTML of the page with the experiments that are done."""
    shown = [
        {
            "outcome": section.outcome, "experiment": section.outcome.experiment, "pictures": section.pictures,
            "claims": claims(section.outcome), "ours": OURS, "named": display_name, "described": described,
            "standings": standings(section.outcome.results, section.outcome.size.budgets),
            "others": others_on_front(section.outcome.results),
        }
        for section in sections
    ]  # fmt: skip
    versions = f"dasp {dasp.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    return render(
        "index.html",
        room="reproduction",
        sections=shown,
        headline=headline([section.outcome for section in sections]) if sections else [],
        status=status,
        about=f"{versions}, threads: {status.threads}",
    )


def write_section(outcome: Outcome, folder: Path) -> Section:
    """Write the figures and tables of an experiment to a folder; return what the page shows of it."""
    problem = outcome.problem
    attributions = {name: result.attributions for name, result in largest_budgets(outcome.results).items()}
    drawn = {
        "comparison": _comparison(outcome),
        **outcome.experiment.figures(ExplainedRows(problem.model, outcome.data, problem.truth, attributions)),
        "gaussianity": _gaussianity(problem, outcome.size.coalitions),
    }
    pictures = [Picture(save(one.figure, folder / f"{name}.png"), one.text) for name, one in drawn.items()]
    write(folder / "results.csv", _csv(outcome.results).encode())
    write(folder / "results.md", _markdown(outcome.results).encode())
    return Section(outcome, pictures)


def save(figure: Figure, file: Path) -> Path:
    """Write a figure as a PNG file; return its path."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    write(file, buffer.getvalue())
    return file


def _comparison(outcome: Outcome) -> Drawn:
    """Draw the error and the rank correlation of every method against what it costs."""
    figure = comparison(outcome.results, title=outcome.title, standard_error=outcome.problem.standard_error)
    text = (
        f"Error and rank correlation of every method, mean and spread over {outcome.rows} rows, against "
        "evaluations of the model and against wall time (per row, explaining all rows at once). Points on the edge of "
        "a panel lie beyond it; the axis of the correlation is spaced by log(1 − ρ)."
    )
    return Drawn(figure, text)


def _gaussianity(problem: Problem, coalitions: int) -> Drawn:
    """Draw appendix D for the first explained row: every hidden layer before its nonlinearity."""
    assert isinstance(problem.model, nn.Sequential)
    weighted = [i for i, layer in enumerate(problem.model) if next(layer.parameters(), None) is not None]
    layers = {_layer_name(problem.model[i], n): problem.model[: i + 1] for n, i in enumerate(weighted[:-1], 1)}
    arguments = problem.arguments
    row, groups = arguments["inputs"][:1], arguments["feature_mask"]
    found = moments(layers, row, arguments["baselines"], groups, coalitions=coalitions)
    ratios = "; ".join(f"{name} {_ratios(found, name)}" for name in layers)
    text = (
        f"Appendix D of the paper: a hidden unit over {coalitions:,} random coalitions of each size, sampled (bars) "
        "and as the Gaussian that is propagated (line); below, standard deviations of all units of each hidden layer. "
        f"Propagated by sampled standard deviation, median without factors (the paper's) and with them: {ratios}."
    )
    return Drawn(gaussianity(found), text)


def _ratios(found: Sequence[Sampled], layer: str) -> str:
    own = [one for one in found if one.layer == layer]
    sampled = torch.cat([one.sampled.std for one in own])
    medians = []
    for rank in own[0].propagated:
        ratio = torch.cat([one.propagated[rank].std for one in own]) / sampled
        medians.append(f"{float(ratio[sampled > 0].median()):.2f}")
    return ", ".join(medians)


def _layer_name(layer: nn.Module, number: int) -> str:
    return f"layer {number} ({'dense' if isinstance(layer, nn.Linear) else 'convolution'})"


def _csv(results: Sequence[Result]) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, results[0].numbers(), lineterminator="\n")
    table.writeheader()
    table.writerows(result.numbers() for result in results)
    return text.getvalue()


def _markdown(results: Sequence[Result]) -> str:
    head = ("method", "samples", "evaluations", "as the paper counts", "time/row", "RMSE", "±", "Spearman", "±")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for r in results:
        cells = (
            display_name(r.method), r.number or "", f"{r.evaluations:,}", f"{r.paper_evaluations:,}", r.time_text,
            f"{r.rmse:.3g}", f"{r.rmse_std:.2g}", f"{r.spearman:.3f}", f"{r.spearman_std:.3f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"
