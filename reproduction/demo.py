"""The demo: a network explained by `dasp`, and then the paper's experiments, from training to one page.

results/index.html                     everything on one page, written again after every step
results/first/report.html              the report of `dasp explain` for a small network and real patients
results/mnist/comparison.png, …        figures of the experiments
results/mnist/results.csv, results.md  every method with every budget
results/cache/                         networks, truths and results, so that an interrupted run continues
"""

from __future__ import annotations

import math
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sklearn.datasets import load_diabetes
from torch import nn

import dasp
from dasp.errors import BadInput
from reproduction.claims import headline
from reproduction.dna import DNA
from reproduction.experiment import Experiment, Size, SizeName, fit
from reproduction.mnist import MNIST
from reproduction.outcome import Stages, prepare, run
from reproduction.parkinsons import Parkinsons
from reproduction.results_page import FirstReport, RunStatus, Section, page, write_section
from reproduction.store import Store, write

__all__ = ["EXPERIMENTS", "demo", "duration", "first_report", "selected"]

EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (Parkinsons(), DNA(), MNIST())}


def selected(name: str) -> list[Experiment]:
    """Return the experiment of a name, or all of them for "all"."""
    if name != "all" and name not in EXPERIMENTS:
        raise BadInput(f"{name}: no such experiment; there are {', '.join(EXPERIMENTS)} and all")
    return list(EXPERIMENTS.values()) if name == "all" else [EXPERIMENTS[name]]


def duration(chosen: Sequence[Experiment], size: SizeName) -> str:
    """Return how long experiments take on two cores, in words."""
    if any(size not in experiment.minutes for experiment in chosen):
        return "hours"
    minutes = math.ceil(sum(experiment.minutes[size] for experiment in chosen))
    return "about a minute" if minutes == 1 else f"about {minutes} minutes"


def demo(name: str, folder: Path, console: Console, *, size: SizeName = SizeName.QUICK, threads: int = 2) -> Path:
    """Explain a network with `dasp`, run experiments, write the page after every step, and return its path."""
    chosen = selected(name)
    torch.set_num_threads(threads)
    start = time.perf_counter()
    file = (folder if len(chosen) > 1 else folder / name) / "index.html"
    sections: list[Section] = []
    first = None

    def publish(to_come: list[str]) -> float:
        status = RunStatus(size, threads, (time.perf_counter() - start) / 60, to_come, first)
        write(file, page(sections, status).encode())
        return status.minutes

    if len(chosen) > 1:
        first = first_report(folder / "first", console)
        publish([experiment.title for experiment in chosen])
    _announce(chosen, folder, console, size)
    store = Store(folder / "cache")
    for number, experiment in enumerate(chosen, 1):
        with Stages(experiment.title, console) as step:
            outcome = run(prepare(experiment, experiment.sizes[size], store, step), store, step)
            step("figures", 0, 1)
            sections.append(write_section(outcome, folder / experiment.name))
            step("figures", 1, 1)
        for line in outcome.notices():
            console.print(escape(line))
        to_come = [other.title for other in chosen[number:]]
        minutes = publish(to_come)
        if to_come:
            console.print(f"{_so_far(number)} [bold]{escape(str(file))}[/bold]\n", soft_wrap=True)
    _conclude(sections, file, console, minutes)
    return file


def first_report(folder: Path, console: Console) -> FirstReport:
    """Train a small network on scikit-learn's diabetes patients, save it, and let the command `dasp explain` write a
    report about patients that it has not seen."""
    console.print("[bold]First: a network, explained[/bold]")
    console.print("Training a small network on 376 diabetes patients, and explaining its predictions for 66 others.")
    folder.mkdir(parents=True, exist_ok=True)
    patients = load_diabetes(scaled=False)
    order = np.random.default_rng(0).permutation(len(patients.data))
    test, train = order[:_TEST_PATIENTS], order[_TEST_PATIENTS:]
    columns = [_MEASUREMENTS.get(name, name) for name in patients.feature_names]
    model = _network(patients.data[train], patients.target[train])
    dasp.save(model, patients.data[:1], folder / "network.pt2")
    _write_table(folder / "patients.csv", ["patient", *columns], np.column_stack([test, patients.data[test]]))
    _write_table(folder / "others.csv", columns, patients.data[train[:_BACKGROUND]])
    arguments = [
        "explain", "network.pt2", "patients.csv", "--trust", "--background", "others.csv", "--id", "patient",
        "--output", "explained.parquet", "--report", "report.html",
    ]  # fmt: skip
    # --trust: the network is our own. --overwrite: an earlier demo has trained another one.
    done = subprocess.run([sys.executable, "-m", "dasp", *arguments, "--overwrite"], cwd=folder, check=False)  # noqa: S603
    if done.returncode:
        raise BadInput(f"dasp explain failed in {folder}; its message is above")
    report = folder / "report.html"
    console.print(f"The report is here: [bold]{escape(str(report))}[/bold]", soft_wrap=True)
    console.print(
        "It shows which measurements matter over all patients, and for each patient what raises and lowers the "
        "predicted progress of the disease.\n"
    )
    text = (
        "A small network has learned from 376 diabetes patients of scikit-learn to predict how far the disease "
        "progresses within a year. The report explains its predictions for 66 patients that it has not seen: which "
        "of ten measurements matter over all patients, and, for each patient, what raises and lowers the prediction, "
        "compared with a hundred others."
    )
    return FirstReport("first/report.html", shlex.join(["dasp", *arguments]), text)


_TEST_PATIENTS, _BACKGROUND = 66, 100
# The names of scikit-learn's columns, for people.
_MEASUREMENTS = {
    "bmi": "body mass index", "bp": "blood pressure", "s1": "cholesterol", "s2": "LDL", "s3": "HDL",
    "s4": "cholesterol by HDL", "s5": "log triglycerides", "s6": "blood sugar",
}  # fmt: skip


def _network(x: np.ndarray, y: np.ndarray) -> nn.Module:
    """Train a network that standardises its inputs itself."""
    inputs, labels = torch.tensor(x).float(), torch.tensor(y).float()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.BatchNorm1d(x.shape[1], affine=False), nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Dropout(0.2),
            nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1),
        )  # fmt: skip
        fit(model, (inputs, labels), lambda out, wanted: nn.functional.mse_loss(out[:, 0], wanted), 60, 32, 1e-2)
    return model.eval()


def _write_table(file: Path, columns: Sequence[str], rows: np.ndarray) -> None:
    lines = [",".join(columns), *(",".join(f"{number:g}" for number in row) for row in rows)]
    write(file, ("\n".join(lines) + "\n").encode())


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
