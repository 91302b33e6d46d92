"""`dasp reproduce`: the paper's experiments from training to the page that shows them.

results/index.html                     all of it
results/mnist/comparison.png, …        figures
results/mnist/results.csv, results.md  every method with every budget
results/cache/                         networks, truths and results, so that an interrupted run goes on
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import nn

from dasp.errors import BadInput
from dasp.evaluation import Problem, Result
from dasp.evaluation.moments import Sampled, moments
from dasp.paper.claims import headline
from dasp.paper.dna import DNA
from dasp.paper.experiment import Drawn, Experiment, Explained
from dasp.paper.mnist import MNIST
from dasp.paper.outcome import Outcome, prepared, run, strongest
from dasp.paper.page import Picture, Section, page
from dasp.paper.parkinsons import Parkinsons
from dasp.paper.progress import Stages
from dasp.paper.store import Store, write
from dasp.plots.comparison import comparison
from dasp.plots.gaussianity import gaussianity

__all__ = ["EXPERIMENTS", "reproduce", "save", "selected", "written"]

EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (Parkinsons(), DNA(), MNIST())}
_MINUTES = {"parkinsons": 2, "dna": 5, "mnist": 5}  # on two cores


def selected(name: str) -> list[Experiment]:
    """The experiments of a name; all of them for "all"."""
    if name != "all" and name not in EXPERIMENTS:
        raise BadInput(f"{name}: no such experiment; there are {', '.join(EXPERIMENTS)} and all")
    return list(EXPERIMENTS.values()) if name == "all" else [EXPERIMENTS[name]]


def reproduce(name: str, folder: Path, console: Console, *, full: bool = False, threads: int = 2) -> Path:
    """Run experiments, write figures, tables and the page, and return the page's path."""
    chosen = selected(name)
    torch.set_num_threads(threads)
    _announce(chosen, folder, console, full=full)
    start = time.perf_counter()
    store = Store(folder / "cache")
    outcomes, sections = [], []
    for experiment in chosen:
        with Stages(experiment.title, console) as step:
            size = experiment.full if full else experiment.default
            outcome = run(prepared(experiment, size, store, step), store, step)
            step("figures", 0, 1)
            sections.append(written(outcome, folder / experiment.name, full=full))
            step("figures", 1, 1)
        outcomes.append(outcome)
        for line in outcome.notices():
            console.print(escape(line))
    minutes = (time.perf_counter() - start) / 60
    file = (folder if len(chosen) > 1 else folder / name) / "index.html"
    write(file, page(sections, headline(outcomes), full=full, threads=threads, minutes=minutes).encode())
    _conclude(outcomes, file, console, minutes)
    return file


def _announce(chosen: list[Experiment], folder: Path, console: Console, *, full: bool) -> None:
    console.print("[bold]Reproducing the experiments of Ancona, Öztireli and Gross (ICML 2019)[/bold]")
    for experiment in chosen:
        size = experiment.full if full else experiment.default
        console.print(
            f"  {experiment.title}: train the network, explain {size.rows} rows by every method with up to "
            f"{size.budgets[-1]:,} evaluations each, compare with {_truth(size.permutations)}"
        )
    duration = "hours" if full else f"about {sum(_MINUTES[e.name] for e in chosen)} minutes"
    console.print(
        f"This takes {duration} on two cores the first time. What is done is kept in {escape(str(folder / 'cache'))}: "
        "the same command goes on where it was interrupted.\n"
    )


def _truth(permutations: int) -> str:
    return f"the values of {permutations} permutations and their reverses" if permutations else "the exact values"


def written(outcome: Outcome, folder: Path, *, full: bool) -> Section:
    """Write the figures and tables of an experiment; return what the page shows of it."""
    experiment, problem = outcome.experiment, outcome.problem
    attributions = {name: result.attributions for name, result in strongest(outcome.results).items()}
    text = (
        f"Error and rank correlation of every method, mean and spread over {outcome.rows} rows, against "
        "evaluations of the model and against wall time (per row, explaining all rows at once). Points on the edge of "
        "a panel lie beyond it; the axis of the correlation is spaced by log(1 − ρ)."
    )
    drawn = {
        "comparison": Drawn(
            comparison(outcome.results, title=outcome.title, standard_error=problem.standard_error), text
        ),
        **experiment.figures(Explained(problem.model, outcome.data, problem.truth, attributions)),
        "gaussianity": _gaussianity(problem, 10_000 if full else 2000),
    }
    pictures = [Picture(save(d.figure, folder / f"{name}.png"), d.text) for name, d in drawn.items()]
    write(folder / "results.csv", _csv(outcome.results).encode())
    write(folder / "results.md", _markdown(outcome.results).encode())
    return Section(outcome, pictures)


def _gaussianity(problem: Problem, coalitions: int) -> Drawn:
    """Appendix D for the first explained row: every hidden layer before its nonlinearity."""
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


def save(figure: Figure, file: Path) -> Path:
    """Write a figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    write(file, buffer.getvalue())
    return file


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
            r.method, r.number or "", f"{r.evaluations:,}", f"{r.paper_evaluations:,}", r.time_text,
            f"{r.rmse:.3g}", f"{r.rmse_std:.2g}", f"{r.spearman:.3f}", f"{r.spearman_std:.3f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _conclude(outcomes: list[Outcome], file: Path, console: Console, minutes: float) -> None:
    table = Table(title="RMSE against the Shapley values, and time per row")
    rows = headline(outcomes)
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    if any("≲" in cell for row in rows for cell in row.values()):
        console.print("≲: less than twice the standard error of the sampled truth, which is part of it")
    console.print(f"{minutes:.1f} minutes. Everything is on one page: [bold]{escape(str(file))}[/bold]", soft_wrap=True)
