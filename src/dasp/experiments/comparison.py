"""An experiment, run: its network, the truth, and every method over the budgets; each step is kept when it is done."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dasp
from dasp.evaluation import Problem, Result, Trial, trials
from dasp.experiments.experiment import Data, Experiment, Size
from dasp.experiments.store import Store, checksum
from dasp.methods import METHODS, Method

__all__ = ["Outcome", "Setting", "measured", "prepared", "run", "strongest"]

# Parts of the package that no result depends on.
_AROUND = {"experiments", "plots", "explain", "cli.py", "explainer.py"}

Step = Callable[[str, int, int], None]  # a stage, steps done, steps in all


@dataclass(frozen=True)
class Setting:
    """An experiment with its trained network and the truth about the rows to explain."""

    experiment: Experiment
    data: Data
    size: Size
    problem: Problem
    quality: dict[str, float]


@dataclass(frozen=True)
class Outcome(Setting):
    """A setting, and how good every method was."""

    results: list[Result]
    left_out: list[str]  # what would have taken too long


def prepared(experiment: Experiment, size: Size, store: Store, step: Step) -> Setting:
    """Train the network and compute the truth, or take what is kept of them."""
    data = experiment.data()
    model = _trained(experiment, data, store, step)
    arguments = experiment.explained(data, size.rows)
    truth, error = _truth(experiment, model, arguments, size, store, step)
    return Setting(experiment, data, size, Problem(model, arguments, truth, error), experiment.quality(model, data))


def run(setting: Setting, store: Store, step: Step) -> Outcome:
    """Every method over the budgets, or what is kept of them."""
    key = {
        "network": checksum(setting.problem.model.state_dict()), "truth": checksum(setting.problem.truth),
        "threads": torch.get_num_threads(), "code": _code(), "torch": torch.__version__,
    }  # fmt: skip
    folder = f"{setting.experiment.name}/results-{setting.size.rows}"
    return measured(setting, METHODS, step, lambda trial: _kept(trial, folder, key, store))


def measured(
    setting: Setting, methods: Mapping[str, Method], step: Step, measure: Callable[[Trial], Result] = Trial.run
) -> Outcome:
    """Methods over the budgets, as far as patience goes."""
    todo = trials(setting.problem, methods, setting.size.budgets)
    results: list[Result] = []
    left_out = []
    for done, trial in enumerate(todo):
        step("methods", done, len(todo))
        if _expected(trial, results) * setting.size.rows > setting.size.patience:
            left_out.append(f"{trial.name} ({trial.cost:,})")
        else:
            results.append(measure(trial))
    step("methods", len(todo), len(todo))
    return Outcome(**vars(setting), results=results, left_out=left_out)


def _expected(trial: Trial, results: list[Result]) -> float:
    """Seconds that a trial may take for a row, by the same method's last budget; 0 if there was none."""
    before = [result for result in results if result.method == trial.name]
    return before[-1].seconds * trial.cost / before[-1].evaluations if before else 0.0


def strongest(results: list[Result]) -> dict[str, Result]:
    """Of each method the result with the most evaluations."""
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
    }  # fmt: skip
    step("training", 0, experiment.epochs)
    weights = store.keep(f"{experiment.name}/network", key, lambda: dict(experiment.train(data, on_epoch).state_dict()))
    model = experiment.network(data)
    model.load_state_dict(weights)
    return model.eval()


def _truth(
    experiment: Experiment, model: nn.Module, arguments: dict[str, Any], size: Size, store: Store, step: Step
) -> tuple[Tensor, float]:
    """Shapley values (rows, players), and their standard error; a row is kept when it is done."""
    inputs, target = arguments["inputs"], arguments["target"]
    network = checksum(model.state_dict())
    folder = f"{experiment.name}/truth-{size.permutations}"
    rows = []
    for i in range(len(inputs)):
        step("truth", i, len(inputs))
        own = target[i : i + 1] if isinstance(target, Tensor) else target
        row = {**arguments, "inputs": inputs[i : i + 1], "target": own}
        key = {"network": network, "row": checksum(row), "permutations": size.permutations}
        rows.append(store.keep(f"{folder}/{i}", key, partial(_row, model, row, size)))
    step("truth", len(inputs), len(inputs))
    errors = torch.tensor([row["error"] for row in rows])
    return torch.cat([row["values"] for row in rows]), float(errors.square().mean().sqrt())


def _row(model: nn.Module, row: dict[str, Any], size: Size) -> dict[str, Any]:
    problem = Problem.of(model, **row, permutations=size.permutations)
    return {"values": problem.truth, "error": problem.standard_error}


def _kept(trial: Trial, folder: str, key: dict[str, Any], store: Store) -> Result:
    name = f"{folder}/{trial.name} {trial.number or ''}".strip()
    plain = store.keep(name, {**key, "method": trial.name, "number": trial.number}, lambda: _plain(trial.run()))
    return Result(**plain)


def _plain(result: Result) -> dict[str, Any]:
    return {field.name: getattr(result, field.name) for field in fields(result)}


def _code() -> str:
    """A checksum of the code that results depend on."""
    folder = Path(dasp.__file__).parent
    files = sorted(file for file in folder.rglob("*.py") if file.relative_to(folder).parts[0] not in _AROUND)
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
