"""Runs of an experiment: its network, the truth, and every method over the budgets; each step is kept when done."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from dasp.evaluation.trials import TRUTH_SEED, Problem, Result, Trial, trials
from dasp.methods import METHODS, Method
from dasp.paper.experiment import Data, Experiment, Size, fit
from dasp.paper.rooms import checksum_of_rooms
from dasp.paper.store import Store, checksum

__all__ = ["Outcome", "Setting", "measured", "prepared", "run", "strongest"]

Step = Callable[[str, int, int], None]  # a stage, steps done, steps in all


@dataclass(frozen=True)
class Setting:
    """An experiment with its trained network and the truth about the rows to explain."""

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
    """A setting, and how good every method was."""

    results: list[Result]
    left_out: list[str]  # what could not be done, and why

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


def prepared(experiment: Experiment, size: Size, store: Store, step: Step) -> Setting:
    """Train the network and compute the truth, or take what is kept of them."""
    step("data", 0, 1)
    data = experiment.data()
    step("data", 1, 1)
    model = _trained(experiment, data, store, step)
    arguments = experiment.explained(data, size.rows)
    truth, error = _truth(experiment, model, arguments, size, store, step)
    return Setting(experiment, data, size, Problem(model, arguments, truth, error), experiment.quality(model, data))


def run(setting: Setting, store: Store, step: Step) -> Outcome:
    """Measure every method over the budgets, or take what is kept of them."""
    key = {
        "network": checksum(setting.problem.model.state_dict()), "truth": checksum(setting.problem.truth),
        "threads": torch.get_num_threads(), "code": checksum_of_rooms(), "torch": torch.__version__,
        "captum": version("captum"),
    }  # fmt: skip
    folder = f"{setting.experiment.name}/results-{setting.rows}-{setting.size.permutations}"
    return measured(setting, METHODS, step, lambda trial: _kept(trial, folder, key, store))


def measured(
    setting: Setting, methods: Mapping[str, Method], step: Step, measure: Callable[[Trial], Result] = Trial.run
) -> Outcome:
    """Measure methods over the budgets, as far as patience goes."""
    todo = trials(setting.problem, methods, setting.size.budgets)
    results: list[Result] = []
    left_out = _impossible(setting, methods, {trial.name for trial in todo})
    for done, trial in enumerate(todo):
        step("methods", done, len(todo))
        if trial.cost > setting.size.at_most.get(trial.name, math.inf):
            left_out.append(f"{trial.name} with {trial.cost:,} evaluations (too slow for this size)")
        elif _expected(trial, results) * setting.rows > setting.size.patience:
            patience = f"more than {setting.size.patience:.0f} s"
            left_out.append(f"{trial.name} with {trial.cost:,} evaluations ({patience})")
        else:
            results.append(measure(trial))
    step("methods", len(todo), len(todo))
    return Outcome(**vars(setting), results=results, left_out=left_out)


def _impossible(setting: Setting, methods: Mapping[str, Method], tried: Collection[str]) -> list[str]:
    """List methods that cannot be used here, and why."""
    most = setting.size.budgets[-1]
    return [
        f"{name} ({f'at most {method.players} players' if method.players else f'more than {most:,} evaluations'})"
        for name, method in methods.items()
        if name not in tried
    ]


def _expected(trial: Trial, results: list[Result]) -> float:
    """Estimate the seconds of a trial for a row from the same method's last budget; 0 if there was none."""
    before = [result for result in results if result.method == trial.name]
    return before[-1].seconds * trial.cost / before[-1].evaluations if before else 0.0


def strongest(results: Sequence[Result]) -> dict[str, Result]:
    """Pick the result with the most evaluations of each method."""
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
    network, code = checksum(model.state_dict()), checksum_of_rooms()
    folder = f"{experiment.name}/truth-{size.permutations}"
    rows = []
    for i in range(len(inputs)):
        step("truth", i, len(inputs))
        own = target[i : i + 1] if isinstance(target, Tensor) else target
        row = {**arguments, "inputs": inputs[i : i + 1], "target": own}
        key = {
            "network": network, "row": checksum(row), "permutations": size.permutations, "seed": TRUTH_SEED,
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
    """Hash the code of some functions or classes."""
    return checksum([inspect.getsource(part) for part in parts])
