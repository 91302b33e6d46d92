"""A run of an experiment: its network, the true Shapley values, and every method with every budget.

Each step is kept as soon as it is done, so an interrupted run continues where it stopped.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self

import torch
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
from torch import Tensor, nn

from dasp.evaluation import Problem, Result, Trial, trials
from dasp.methods import Method
from reproduction import comparison_methods
from reproduction.comparison_methods import COMPARED, display_name
from reproduction.experiment import Data, Experiment, Size, fit
from reproduction.store import Store, checksum, checksum_of_code

__all__ = ["Outcome", "Setting", "Stages", "largest_budgets", "measure", "prepare", "run"]

Step = Callable[[str, int, int], None]  # the name of a stage, the steps done, the steps in all


class Stages:
    """Progress bars of an experiment, one for each stage; a call moves one on."""

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
        """Show how many steps of a stage are done."""
        if stage not in self.tasks:
            self.tasks[stage] = self.progress.add_task(f"{self.title}: {stage}", total=total)
        self.progress.update(self.tasks[stage], completed=done, total=total)


@dataclass(frozen=True)
class Setting:
    """An experiment with its trained network and the Shapley values of the rows that are explained."""

    experiment: Experiment
    data: Data
    size: Size
    problem: Problem
    quality: dict[str, float]

    @property
    def title(self) -> str:
        """The experiment's title, with a note if the data are not the paper's."""
        return self.experiment.title + (" (stand-in data)" if self.data.stands_in_for else "")

    @property
    def rows(self) -> int:
        """The number of rows that are explained."""
        return len(self.problem.truth)


@dataclass(frozen=True)
class Outcome(Setting):
    """A setting with the results of every method."""

    results: list[Result]
    left_out: list[str]  # methods and budgets that were not run, and why

    def notices(self) -> list[str]:
        """List what a reader must know: how good the network is, whether the data are the paper's, what is missing."""
        lines = [f"{self.title}: {', '.join(f'{name} {value:.3f}' for name, value in self.quality.items())}"]
        if self.data.stands_in_for:
            lines.append(
                f"{self.data.source} stand in for {self.data.stands_in_for}, which could not be found or "
                "downloaded: set DASP_DATA to a folder that has them"
            )
        if self.left_out:
            lines.append(f"left out: {'; '.join(self.left_out)}")
        return lines


def prepare(experiment: Experiment, size: Size, store: Store, step: Step) -> Setting:
    """Train the network and compute the Shapley values, or take those that are kept."""
    step("data", 0, 1)
    data = experiment.data()
    step("data", 1, 1)
    model = _trained(experiment, data, store, step)
    arguments = experiment.explained(data, size.rows)
    truth, error = _truth(experiment, model, arguments, size, store, step)
    return Setting(experiment, data, size, Problem(model, arguments, truth, error), experiment.quality(model, data))


def run(setting: Setting, store: Store, step: Step) -> Outcome:
    """Measure every method with every budget, or take the results that are kept."""
    key = {
        "network": checksum(setting.problem.model.state_dict()), "truth": checksum(setting.problem.truth),
        "threads": torch.get_num_threads(), "code": checksum_of_code(), "methods": _source(comparison_methods),
        "torch": torch.__version__, "captum": version("captum"),
    }  # fmt: skip
    folder = f"{setting.experiment.name}/results-{setting.rows}-{setting.size.permutations}"
    return measure(setting, COMPARED, step, lambda trial: _kept(trial, folder, key, store))


def measure(
    setting: Setting, methods: Mapping[str, Method], step: Step, run_trial: Callable[[Trial], Result] = Trial.run
) -> Outcome:
    """Measure methods with every budget that their size allows, as far as patience goes."""
    todo = trials(setting.problem, methods, setting.size.budgets)
    results: list[Result] = []
    left_out = _impossible(setting, methods, {trial.name for trial in todo})
    for done, trial in enumerate(todo):
        step("methods", done, len(todo))
        if trial.cost > setting.size.at_most.get(trial.name, math.inf):
            left_out.append(f"{display_name(trial.name)} with {trial.cost:,} evaluations (too slow for this size)")
        elif _expected(trial, results) * setting.rows > setting.size.patience:
            patience = f"more than {setting.size.patience:.0f} s"
            left_out.append(f"{display_name(trial.name)} with {trial.cost:,} evaluations ({patience})")
        else:
            results.append(run_trial(trial))
    step("methods", len(todo), len(todo))
    return Outcome(**vars(setting), results=results, left_out=left_out)


def _impossible(setting: Setting, methods: Mapping[str, Method], tried: Collection[str]) -> list[str]:
    """List methods that cannot be used here, and why."""
    too_many = f"more than {setting.size.budgets[-1]:,} evaluations"
    return [
        f"{method.name} ({f'at most {method.players} players' if method.players else too_many})"
        for identifier, method in methods.items()
        if identifier not in tried
    ]


def _expected(trial: Trial, results: list[Result]) -> float:
    """Estimate the seconds of a trial for a row from the same method's last budget; 0 if there was none."""
    before = [result for result in results if result.method == trial.name]
    return before[-1].seconds * trial.cost / before[-1].evaluations if before else 0.0


def largest_budgets(results: Sequence[Result]) -> dict[str, Result]:
    """Return the result with the most evaluations of each method, by its identifier."""
    best: dict[str, Result] = {}
    for result in results:
        if result.method not in best or result.evaluations > best[result.method].evaluations:
            best[result.method] = result
    return best


def _trained(experiment: Experiment, data: Data, store: Store, step: Step) -> nn.Module:
    done = 0

    def on_epoch() -> None:
        nonlocal done
        done += 1
        step("training", done, experiment.epochs)

    key = {
        "data": checksum((data.train, data.test)), "layers": str(experiment.network(data)), "epochs": experiment.epochs,
        "batch": experiment.batch, "rate": experiment.rate, "torch": torch.__version__,
        "code": _source(fit, Experiment.train, type(experiment).loss, type(experiment).network),
    }  # fmt: skip
    step("training", 0, experiment.epochs)
    weights = store.keep(f"{experiment.name}/network", key, lambda: dict(experiment.train(data, on_epoch).state_dict()))
    step("training", experiment.epochs, experiment.epochs)
    model = experiment.network(data)
    model.load_state_dict(weights)
    return model.eval()


def _truth(
    experiment: Experiment, model: nn.Module, arguments: dict[str, Any], size: Size, store: Store, step: Step
) -> tuple[Tensor, float]:
    """Compute Shapley values (rows, players) and their standard error; each row is kept when it is done."""
    inputs, target = arguments["inputs"], arguments["target"]
    network, code = checksum(model.state_dict()), checksum_of_code()
    folder = f"{experiment.name}/truth-{size.permutations}"
    rows = []
    for i in range(len(inputs)):
        step("truth", i, len(inputs))
        own = target[i : i + 1] if isinstance(target, Tensor) else target
        row = {**arguments, "inputs": inputs[i : i + 1], "target": own}
        key = {
            "network": network, "row": checksum(row), "permutations": size.permutations,
            "code": code, "torch": torch.__version__,
        }  # fmt: skip
        rows.append(store.keep(f"{folder}/{i}", key, partial(_row, model, row, size)))
    step("truth", len(inputs), len(inputs))
    errors = torch.tensor([row["error"] for row in rows])
    return torch.cat([row["values"] for row in rows]), float(errors.square().mean().sqrt())


def _row(model: nn.Module, row: dict[str, Any], size: Size) -> dict[str, Any]:
    problem = Problem.of(model, **row, permutations=size.permutations)
    return {"values": problem.truth, "error": problem.standard_error}


def _kept(trial: Trial, folder: str, key: dict[str, Any], store: Store) -> Result:
    name = f"{folder}/{trial.name} {trial.number or ''}".strip()
    return Result(**store.keep(name, {**key, "method": trial.name, "number": trial.number}, lambda: vars(trial.run())))


def _source(*parts: Any) -> str:
    """Return a checksum of the source of some functions, classes or modules."""
    return checksum([inspect.getsource(part) for part in parts])
