"""`dasp reproduce`: the paper's experiments from training to the page that shows them.

results/index.html                     everything on one page, written again after every experiment
results/mnist/comparison.png, …        figures
results/mnist/results.csv, results.md  every method with every budget
results/cache/                         networks, truths and results, so that an interrupted run goes on
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dasp.errors import BadInput
from dasp.paper.claims import headline
from dasp.paper.dna import DNA
from dasp.paper.experiment import Experiment, Size, SizeName
from dasp.paper.mnist import MNIST
from dasp.paper.outcome import prepared, run
from dasp.paper.page import RunStatus, Section, page
from dasp.paper.parkinsons import Parkinsons
from dasp.paper.progress import Stages
from dasp.paper.report import report
from dasp.paper.store import Store, write

__all__ = ["EXPERIMENTS", "duration", "reproduce", "selected"]

EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (Parkinsons(), DNA(), MNIST())}


def selected(name: str) -> list[Experiment]:
    """Look experiments up by name: one of them, or "all"."""
    if name != "all" and name not in EXPERIMENTS:
        raise BadInput(f"{name}: no such experiment; there are {', '.join(EXPERIMENTS)} and all")
    return list(EXPERIMENTS.values()) if name == "all" else [EXPERIMENTS[name]]


def duration(chosen: Sequence[Experiment], size: SizeName) -> str:
    """Say how long experiments take on two cores."""
    if any(size not in experiment.minutes for experiment in chosen):
        return "hours"
    minutes = math.ceil(sum(experiment.minutes[size] for experiment in chosen))
    return "about a minute" if minutes == 1 else f"about {minutes} minutes"


def reproduce(name: str, folder: Path, console: Console, *, size: SizeName = SizeName.QUICK, threads: int = 2) -> Path:
    """Run experiments, write figures, tables and the page, and return the page's path."""
    chosen = selected(name)
    torch.set_num_threads(threads)
    _announce(chosen, folder, console, size)
    start = time.perf_counter()
    store = Store(folder / "cache")
    file = (folder if len(chosen) > 1 else folder / name) / "index.html"
    sections: list[Section] = []
    for number, experiment in enumerate(chosen, 1):
        with Stages(experiment.title, console) as step:
            outcome = run(prepared(experiment, experiment.sizes[size], store, step), store, step)
            step("figures", 0, 1)
            sections.append(report(outcome, folder / experiment.name))
            step("figures", 1, 1)
        for line in outcome.notices():
            console.print(escape(line))
        to_come = [other.title for other in chosen[number:]]
        status = RunStatus(size, threads, (time.perf_counter() - start) / 60, to_come)
        write(file, page(sections, status).encode())
        if to_come:
            console.print(f"{_so_far(number)} [bold]{escape(str(file))}[/bold]\n", soft_wrap=True)
    _conclude(sections, file, console, status.minutes)
    return file


def _announce(chosen: Sequence[Experiment], folder: Path, console: Console, size: SizeName) -> None:
    console.print("[bold]Reproducing the experiments of Ancona, Öztireli and Gross (ICML 2019)[/bold]")
    for experiment in chosen:
        own = experiment.sizes[size]
        console.print(
            f"  {experiment.title}: train the network, explain {own.rows} rows by every method with up to "
            f"{own.budgets[-1]:,} evaluations each, compare with {_truth(own)}"
        )
    others = " or ".join(f"--size {other}" for other in SizeName if other != size)
    console.print(
        f"Size {size} ({others} for another): {duration(chosen, size)} on two cores the first time. What is done is "
        f"kept in {escape(str(folder / 'cache'))}: the same command goes on where it was interrupted.\n"
    )


def _truth(size: Size) -> str:
    permutations = size.permutations
    return f"the values of {permutations} permutations and their reverses" if permutations else "the exact values"


def _so_far(number: int) -> str:
    return "The first experiment is on the page:" if number == 1 else f"{number} experiments are on the page:"


def _conclude(sections: Sequence[Section], file: Path, console: Console, minutes: float) -> None:
    table = Table(title="RMSE against the Shapley values, and time per row")
    rows = headline([section.outcome for section in sections])
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    if any("≲" in cell for row in rows for cell in row.values()):
        console.print("≲: less than twice the standard error of the sampled truth, which is part of it")
    console.print(f"{minutes:.1f} minutes. Everything is on one page: [bold]{escape(str(file))}[/bold]", soft_wrap=True)
