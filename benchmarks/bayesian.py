"""BayesianShapley against sampling methods of today, by the number of model evaluations.

    DASP_DATA=folder python benchmarks/bayesian.py [exact] [players] [coverage] [wrong] [digits]

exact: all 2^N coalitions give the exact values. players: the 18-input network, RMSE against the exact values by budget.
coverage: how often the 95 % intervals hold the exact value. wrong: priors that are plainly wrong. digits: LeNet-5
on MNIST, 784 players, against sampled Shapley values. The constants of the method (trust in priors, strengths of
interactions) were chosen on other test rows of the same network, on the network of the synthetic function and on
other digits than those reported here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from captum.attr import Attribution
from shapiq.approximator import KernelSHAP, kADDSHAP
from torch import Tensor, nn

import settings
from dasp import DASP, BayesianShapley, ExactShapley, GradientDASP, PermutationShapley, rmse

BUDGETS = (36, 72, 144, 288, 576, 1152, 2304)
SEEDS = range(3)
ROWS = 30


def trained() -> tuple[nn.Module, Tensor, Tensor]:
    """The 18-input network, the reported rows and their exact Shapley values."""
    problem = settings.parkinsons(ROWS).problem
    model, rows = problem.model.double(), problem.arguments["inputs"].double()
    return model, rows, ExactShapley(model).attribute(rows)


def shapiq_values(make: Callable[[int], object], model: nn.Module, rows: Tensor, budget: int) -> Tensor:
    """Attributions by an approximator of shapiq."""
    result = []
    for row in rows:

        def game(coalitions: np.ndarray, row: Tensor = row) -> np.ndarray:
            with torch.no_grad():
                return model(row * torch.as_tensor(np.asarray(coalitions), dtype=row.dtype))[:, 0].numpy()

        empty = game(np.zeros((1, len(row)), dtype=bool))[0]  # shapiq's values are of games that start at 0
        values = make(len(row)).approximate(budget, lambda coalitions, game=game, empty=empty: game(coalitions) - empty)
        result.append([values[(player,)] for player in range(len(row))])
    return torch.tensor(result, dtype=rows.dtype)


def priors_of(model: nn.Module) -> dict[str, Attribution | None]:
    return {"flat prior": None, "GradientDASP prior": GradientDASP(model), "DASP full prior": DASP(model, rank="full")}


def peers(seed: int) -> dict[str, Callable[[int], object]]:
    options = {"pairing_trick": True, "random_state": seed}
    return {
        "shapiq KernelSHAP, paired": lambda n: KernelSHAP(n, **options),
        "shapiq LeverageSHAP setting": lambda n: KernelSHAP(n, sampling_weights=np.ones(n + 1), **options),
        "shapiq kADD, order 2": lambda n: kADDSHAP(n, max_order=2, **options),
        "shapiq kADD, order 3": lambda n: kADDSHAP(n, max_order=3, **options),
    }


def show(name: str, numbers: list[float], digits: int = 3) -> None:
    print(
        f"{name:30}" + "".join("       –" if np.isnan(x) else f"{x:8.{digits}f}" for x in map(float, numbers)),
        flush=True,
    )


def exact() -> None:
    for n in (10, 12):
        torch.manual_seed(n)
        model = nn.Sequential(nn.Linear(n, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3)).double()
        rows = torch.randn(5, n).double()
        truth = ExactShapley(model.eval()).attribute(rows)
        for name, prior in (("flat", None), ("GradientDASP", GradientDASP(model))):
            values = BayesianShapley(model, prior).attribute(rows, max_evaluations=2**n)
            almost = BayesianShapley(model, prior).attribute(rows, max_evaluations=2**n - 2)
            print(
                f"{n} players, {name} prior: largest error {(values - truth).abs().max():.1e} with 2^{n} evaluations, "
                f"{(almost - truth).abs().max():.1e} with two less"
            )


def players() -> None:
    model, rows, truth = trained()
    priors = priors_of(model)
    for name, prior in priors.items():
        if prior is not None:
            print(f"{name} alone: {rmse(prior.attribute(rows).detach(), truth).mean():.3f}")
    show("RMSE at evaluations", BUDGETS, 0)
    for name, prior in priors.items():
        start = time.perf_counter()
        errors = [
            np.mean([
                rmse(BayesianShapley(model, prior).attribute(rows, max_evaluations=b, seed=s), truth).mean()
                for s in SEEDS
            ])
            for b in BUDGETS
        ]  # fmt: skip
        show(name, errors)
        seconds = (time.perf_counter() - start) / len(BUDGETS) / len(SEEDS) / ROWS
        print(f"    {seconds * 1e3:.1f} ms a row and budget, prior and evaluations included")
    for name in peers(0):
        errors = []
        for budget in BUDGETS:
            try:
                errors.append(
                    np.mean([rmse(shapiq_values(peers(s)[name], model, rows, budget), truth).mean() for s in SEEDS])
                )
            except np.linalg.LinAlgError:
                errors.append(np.nan)
        show(name, errors)
    walk = 2 * (rows.shape[1] - 1)
    errors = [
        np.mean([
            rmse(PermutationShapley(model).attribute(rows, n_permutations=(b - 2) // walk, seed=s), truth).mean()
            for s in SEEDS
        ]) if b >= walk + 2 else np.nan
        for b in BUDGETS
    ]  # fmt: skip
    show("antithetic permutations", errors)


def coverage() -> None:
    model, rows, truth = trained()
    priors = priors_of(model)
    print(f"{truth.numel()} pairs of row and player, {len(SEEDS)} seeds: 95 % intervals that hold the exact value")
    show("evaluations", BUDGETS, 0)
    for name, prior in priors.items():
        inside = []
        for budget in BUDGETS:
            pairs = (
                BayesianShapley(model, prior).attribute(rows, max_evaluations=budget, seed=s, return_std=True)
                for s in SEEDS
            )
            inside.append(np.mean([((mean - truth).abs() <= 1.96 * std).double().mean() for mean, std in pairs]))
        show(name, inside)


def wrong() -> None:
    model, rows, truth = trained()
    good = DASP(model, rank="full").attribute(rows)
    torch.manual_seed(0)
    priors = {
        "flat prior": None,
        "wrong sign": -good,
        "shuffled": good[:, torch.randperm(good.shape[1])],
        "random": torch.randn_like(good) * good.std(),
        "tripled": 3 * good,
    }
    show("RMSE at evaluations", BUDGETS, 0)
    for name, prior in priors.items():
        method = BayesianShapley(model, prior)
        show(name, [
            np.mean([rmse(method.attribute(rows, max_evaluations=b, seed=s), truth).mean() for s in SEEDS])
            for b in BUDGETS
        ])  # fmt: skip


def digits(number: int = 8, permutations: int = 1000) -> None:
    problem = settings.mnist(number, permutations).problem
    model, error = problem.model, problem.standard_error
    x, targets = problem.arguments["inputs"], problem.arguments["target"]
    truth = problem.truth.view_as(x).float()
    print(f"LeNet-5, {number} digits, 784 players, truth by {permutations} permutations, standard error {error:.4f}")
    budgets = (256, 512, 1024, 2048, 4096, 8192, 16384)
    priors = {
        "flat prior": None,
        "GradientDASP rank 0 prior": GradientDASP(model, rank=0),
        "GradientDASP prior": GradientDASP(model),
    }
    for name, prior in priors.items():
        if prior is not None:
            print(f"{name} alone: {rmse(prior.attribute(x, target=targets).detach(), truth).mean():.5f}")
    show("RMSE at evaluations", budgets, 0)
    for name, prior in priors.items():
        errors, seconds = [], []
        for budget in budgets:
            start = time.perf_counter()
            values = BayesianShapley(model, prior).attribute(x, target=targets, max_evaluations=budget)
            seconds.append((time.perf_counter() - start) / number)
            errors.append(rmse(values, truth).mean())
        show(name, errors, 5)
        show("    seconds a digit", seconds, 2)


SECTIONS = {"exact": exact, "players": players, "coverage": coverage, "wrong": wrong, "digits": digits}

if __name__ == "__main__":
    torch.set_num_threads(2)
    for section in sys.argv[1:] or SECTIONS:
        print(f"\n== {section}")
        SECTIONS[section]()
