"""`dasp benchmark`: our estimators and today's libraries on the same networks, rows, truth and threads, in one run.

    results/benchmark/benchmark.json  every result, and where a peer is ahead
    results/benchmark/mnist.png, …    error against wall time and evaluations

Networks and truths are those of `dasp reproduce`, kept in the same place; results are always measured anew, as times of
different runs cannot be compared.
"""

from __future__ import annotations

import json
import platform
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from dasp.evaluation import Result
from dasp.experiments.claims import OURS, Standing, others_on_front, standings
from dasp.experiments.comparison import Outcome, measured, prepared
from dasp.experiments.peers import PEERS
from dasp.experiments.progress import Stages
from dasp.experiments.reproduce import save, selected
from dasp.experiments.store import Store, write
from dasp.methods import METHODS
from dasp.plots.comparison import pareto

__all__ = ["CONTESTANTS", "benchmark"]

CONTESTANTS = {**{name: METHODS[name] for name in OURS}, **PEERS}


def benchmark(name: str, folder: Path, console: Console, *, full: bool = False, threads: int = 2) -> Path:
    """Measure, write the figures and the JSON file, and return its path."""
    chosen = selected(name)
    torch.set_num_threads(threads)
    found = {}
    for experiment in chosen:
        size = experiment.full if full else experiment.default
        with Stages(experiment.title, console) as step:
            setting = prepared(experiment, size, Store(folder / "cache"), step)
            outcome = measured(setting, CONTESTANTS, step)
        results = outcome.results
        figure = pareto(
            results, ours=OURS, title=experiment.title, standard_error=setting.problem.standard_error
        )  # fmt: skip
        picture = save(figure, folder / "benchmark" / f"{experiment.name}.png")
        best = standings(results, size.budgets)
        found[experiment.name] = _record(outcome, best)
        if outcome.left_out:
            console.print(
                f"Left out, as they would take more than {size.patience:.0f} s: {', '.join(outcome.left_out)}"
            )
        _show(experiment.title, best, others_on_front(results), picture, console)
    file = folder / "benchmark" / "benchmark.json"
    libraries = {library: version(library) for library in ("torch", "captum", "shap", "shapiq", "torch-dasp")}
    about = {"libraries": libraries, "python": platform.python_version(), "threads": threads}
    write(file, json.dumps({"about": about, "experiments": found}, indent=1, ensure_ascii=False).encode())
    console.print(f"All results: [bold]{file}[/bold]")
    return file


def _record(outcome: Outcome, best: list[Standing]) -> dict[str, Any]:
    return {
        "data": outcome.data.source,
        "stands in for": outcome.data.stands_in_for,
        "network": outcome.quality,
        "rows": len(outcome.problem.truth),
        "players": outcome.problem.truth.shape[1],
        "standard error of the truth": outcome.problem.standard_error,
        "results": [_plain(result) for result in outcome.results],
        "left out (evaluations)": outcome.left_out,
        "best of ours": [
            {"budget": s.budget, **_plain(s.best), "beaten by": [_plain(r) for r in s.beaten_by]} for s in best
        ],
        "peers on the front": [_plain(result) for result in others_on_front(outcome.results)],
    }


def _plain(result: Result) -> dict[str, Any]:
    return {field.name: getattr(result, field.name) for field in fields(result) if field.name != "attributions"}


def _show(title: str, best: list[Standing], others: list[Result], picture: Path, console: Console) -> None:
    table = Table(title=f"{title}: the best of ours at each budget")
    for column in ("evaluations", "method", "RMSE", "time/row", "quicker and nearer"):
        table.add_column(column, justify="left" if column in {"method", "quicker and nearer"} else "right")
    for s in best:
        beaten = ", ".join(map(str, s.beaten_by)) or "nobody"
        table.add_row(f"{s.budget:,}", s.best.method, f"{s.best.rmse:.3g}", s.best.milliseconds, beaten)
    console.print(table)
    console.print(f"Peers on the front of error against time: {', '.join(map(str, others)) or 'none'}")
    console.print(f"Figure: {picture}\n")
