"""An experiment, run: its network, the truth, and every method over the budgets; each step is kept when it is done."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dasp
from dasp.attribution.exact import ExactShapley
from dasp.attribution.permutation import PermutationShapley
from dasp.evaluation.trials import TRUTH_SEED, Problem, Result, Trial, trials
from dasp.methods import METHODS, Method
from dasp.paper.experiment import Data, Experiment, Size, fit
from dasp.paper.store import Store, checksum

__all__ = ["Outcome", "Setting", "measured", "prepared", "run", "strongest"]

# Parts of the package that no result depends on.
_AROUND = {
    "experiments", "plots", "explain", "conversion", "__main__.py", "attributed.py", "cli.py", "errors.py",
    "explainer.py", "explanation.py", "rows.py", "selection.py",
}  # fmt: skip

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
        """Of the experiment, and that the data are not the paper's."""
        return self.experiment.title + (" (stand-in data)" if self.data.stands_in_for else "")

    @property
    def rows(self) -> int:
        """How many rows are explained."""
        return len(self.problem.truth)


@dataclass(frozen=True)
class Outcome(Setting):
    """A setting, and how good every method was."""

    results: list[Result]
    left_out: list[str]  # what could not be done, and why

    def notices(self) -> list[str]:
        """What a reader must know: the network, whether the data are the paper's, and what is missing."""
        lines = [f"{self.title}: {', '.join(f'{name} {value:.3f}' for name, value in self.quality.items())}"]
        if self.data.stands_in_for:
            lines.append(
                f"{self.data.source} stand in for {self.data.stands_in_for}, which could not be had: set DASP_DATA "
                "to a folder that has them"
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
    """Every method over the budgets, or what is kept of them."""
    key = {
        "network": checksum(setting.problem.model.state_dict()), "truth": checksum(setting.problem.truth),
        "threads": torch.get_num_threads(), "code": _code(), "torch": torch.__version__, "captum": version("captum"),
    }  # fmt: skip
    folder = f"{setting.experiment.name}/results-{setting.rows}"
    return measured(setting, METHODS, step, lambda trial: _kept(trial, folder, key, store))


def measured(
    setting: Setting, methods: Mapping[str, Method], step: Step, measure: Callable[[Trial], Result] = Trial.run
) -> Outcome:
    """Methods over the budgets, as far as patience goes."""
    todo = trials(setting.problem, methods, setting.size.budgets)
    results: list[Result] = []
    left_out = _impossible(setting, methods, {trial.name for trial in todo})
    for done, trial in enumerate(todo):
        step("methods", done, len(todo))
        if _expected(trial, results) * setting.rows > setting.size.patience:
            patience = f"more than {setting.size.patience:.0f} s"
            left_out.append(f"{trial.name} with {trial.cost:,} evaluations ({patience})")
        else:
            results.append(measure(trial))
    step("methods", len(todo), len(todo))
    return Outcome(**vars(setting), results=results, left_out=left_out)


def _impossible(setting: Setting, methods: Mapping[str, Method], tried: Collection[str]) -> list[str]:
    """Methods that cannot be used here, and why."""
    most = setting.size.budgets[-1]
    return [
        f"{name} ({f'at most {method.players} players' if method.players else f'more than {most:,} evaluations'})"
        for name, method in methods.items()
        if name not in tried
    ]


def _expected(trial: Trial, results: list[Result]) -> float:
    """Seconds that a trial may take for a row, by the same method's last budget; 0 if there was none."""
    before = [result for result in results if result.method == trial.name]
    return before[-1].seconds * trial.cost / before[-1].evaluations if before else 0.0


def strongest(results: Sequence[Result]) -> dict[str, Result]:
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
    """Shapley values (rows, players), and their standard error; a row is kept when it is done."""
    inputs, target = arguments["inputs"], arguments["target"]
    network = checksum(model.state_dict())
    folder = f"{experiment.name}/truth-{size.permutations}"
    rows = []
    for i in range(len(inputs)):
        step("truth", i, len(inputs))
        own = target[i : i + 1] if isinstance(target, Tensor) else target
        row = {**arguments, "inputs": inputs[i : i + 1], "target": own}
        key = {
            "network": network, "row": checksum(row), "permutations": size.permutations, "seed": TRUTH_SEED,
            "code": _source(ExactShapley, PermutationShapley), "torch": torch.__version__,
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
    """A checksum of the code of some functions or classes."""
    return checksum([inspect.getsource(part) for part in parts])


def _code() -> str:
    """A checksum of the code that results depend on."""
    folder = Path(dasp.__file__).parent
    files = sorted(file for file in folder.rglob("*.py") if file.relative_to(folder).parts[0] not in _AROUND)
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
