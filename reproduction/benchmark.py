"""Our estimators against other libraries, on the same networks, rows, truth and threads, in one run.

    results/benchmark/mnist.json, …  every result, and where a peer is ahead
    results/benchmark/mnist.png, …   error against wall time and evaluations

Networks and truths are those of the demo, kept in the same place; results are always measured anew, as times of
different runs cannot be compared. Ours explain all rows at once, as do Captum's and two of shap's; the other libraries
take row after row. So there are three times: per row, explaining all of them; of a row by itself; and of the first call
for a row, with what is done once (tracing, coalitions and the regression on them).
"""

from __future__ import annotations

import json
import math
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from threadpoolctl import threadpool_limits

from dasp.evaluation import Result
from dasp.methods import METHODS
from reproduction.claims import Standing, described, others_on_front, standings
from reproduction.comparison_methods import OURS, display_name
from reproduction.demo import selected
from reproduction.experiment import SizeName
from reproduction.figures import pareto
from reproduction.outcome import Outcome, Stages, measure, prepare
from reproduction.peers import PEERS
from reproduction.results_page import save
from reproduction.store import Store, write

__all__ = ["CONTESTANTS", "benchmark"]

_DURATIONS = {
    SizeName.QUICK: "This takes minutes on two cores.",
    SizeName.STANDARD: "This takes 15 minutes on two cores, and ten more if no networks and truths are kept yet.",
    SizeName.PAPER: "This takes hours.",
}
CONTESTANTS = {**{name: METHODS[name] for name in OURS}, **PEERS}


def benchmark(
    name: str, folder: Path, console: Console, *, size: SizeName = SizeName.QUICK, threads: int = 2
) -> list[Path]:
    """Measure all methods, write a figure and a JSON file for each experiment, and return the paths of the latter."""
    chosen = selected(name)
    torch.set_num_threads(threads)
    console.print("[bold]Our estimators against shap, captum and shapiq[/bold]")
    console.print(
        f"The same networks, rows, truth and {threads} threads for all. {_DURATIONS[size]} "
        f"Networks and truths are kept in {escape(str(folder / 'cache'))}.\n"
    )
    files = []
    for experiment in chosen:
        with Stages(experiment.title, console) as step, threadpool_limits(threads):
            setting = prepare(experiment, experiment.sizes[size], Store(folder / "cache"), step)
            outcome = measure(setting, CONTESTANTS, step)
        title = f"{outcome.title}: {outcome.rows} rows explained"
        figure = pareto(outcome.results, ours=OURS, title=title, standard_error=outcome.problem.standard_error)
        picture = save(figure, folder / "benchmark" / f"{experiment.name}.png")
        file = picture.with_suffix(".json")
        write(file, json.dumps(_record(outcome, size, threads), indent=1, ensure_ascii=False, allow_nan=False).encode())
        _show(outcome, console)
        console.print(f"[bold]{escape(str(file))}[/bold], {escape(str(picture))}\n", soft_wrap=True)
        files.append(file)
    return files


def _record(outcome: Outcome, size: SizeName, threads: int) -> dict[str, Any]:
    libraries = {library: version(library) for library in ("torch", "captum", "shap", "shapiq", "torch-dasp")}
    return {
        "about": {"libraries": libraries, "python": platform.python_version(), "threads": threads},
        "size": size.value,
        "data": outcome.data.source,
        "stands in for": outcome.data.stands_in_for,
        "network": outcome.quality,
        "rows": outcome.rows,
        "players": outcome.problem.truth.shape[1],
        "standard error of the truth": outcome.problem.standard_error,
        "results": _numbers(outcome.results),
        "left out": outcome.left_out,
        "best of ours": [
            {
                "budget": s.budget,
                **_numbers([s.best])[0],
                "quicker and nearer": _numbers(s.quicker),
                "quicker and nearer for a row by itself": _numbers(s.quicker_alone),
                "nearer within the budget": _numbers(s.fewer),
            }
            for s in standings(outcome.results, outcome.size.budgets)
        ],
        "peers on the front of error against time": _numbers(others_on_front(outcome.results)),
    }


def _numbers(results: list[Result]) -> list[dict[str, Any]]:
    """Convert results to plain values; JSON has no NaN (Spearman's correlation, where all values are the same)."""
    return [
        {name: None if isinstance(x, float) and math.isnan(x) else x for name, x in result.numbers().items()}
        for result in results
    ]


def _show(outcome: Outcome, console: Console) -> None:
    for line in outcome.notices():
        console.print(escape(line))
    table = Table(title=f"{outcome.title}: the best of ours at each budget, and the peers ahead of it")
    for column in ("budget", "RMSE", "time/row"):
        table.add_column(column, justify="right")
    for column in ("method", "quicker and nearer", "for a row by itself", "nearer within the budget"):
        table.add_column(column, overflow="fold")
    for s in standings(outcome.results, outcome.size.budgets):
        table.add_row(f"{s.budget:,}", f"{s.best.rmse:.3g}", s.best.time_text, display_name(s.best.method), *_ahead(s))
    console.print(table)
    others = ", ".join(map(described, others_on_front(outcome.results)))
    console.print(f"Peers on the front of error against time: {escape(others) or 'none'}")


def _ahead(standing: Standing) -> list[str]:
    return [
        ", ".join(map(described, some)) or "nobody"
        for some in (standing.quicker, standing.quicker_alone, standing.fewer)
    ]
