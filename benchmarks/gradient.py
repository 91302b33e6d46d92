"""GradientDASP against DASP, integrated gradients and the truth: accuracy, time, growth with N, memory.

    DASP_DATA=folder python benchmarks/gradient.py [mnist] [ranks] [cost] [growth] [digits] [indices] [memory]

prints one section after another; all times of a section are of one run, with two threads, as medians of repeats.
"""

from __future__ import annotations

import itertools
import math
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from captum.attr import IntegratedGradients
from sklearn.datasets import load_digits
from torch import Tensor, nn

import settings
from dasp import DASP, GradientDASP, PermutationShapley, rmse, spearman
from dasp.evaluation import compare
from dasp.methods import Method
from networks import resnet18, small_resnet


def timed(function: Callable[[], Any], repeats: int = 1) -> tuple[Any, float]:
    """The result, and the median time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return result, statistics.median(times)


def largest_gap(model: nn.Module, attributions: Tensor, x: Tensor, targets: Tensor) -> float:
    """The largest |Σ attributions − (f(x) − f(0))| of a row, relative to |f(x) − f(0)|."""
    with torch.no_grad():
        wanted = (model(x) - model(torch.zeros_like(x))).gather(1, targets[:, None]).squeeze(1)
    return float(((attributions.flatten(1).sum(1) - wanted) / wanted).abs().max())


def digits_to_explain() -> tuple[nn.Module, Tensor, Tensor, Tensor, float]:
    """LeNet-5, images, their digits, the Shapley values and their standard error."""
    problem = settings.mnist().problem
    x, y = problem.arguments["inputs"], problem.arguments["target"]
    return problem.model, x, y, problem.truth.view_as(x), problem.standard_error


def mnist() -> None:
    model, x, y, truth, error = digits_to_explain()
    print(f"LeNet-5 on MNIST, 784 players, {len(x)} images, truth by 1,000 antithetic permutations (s.e. {error:.4f})")
    methods = {
        "DASP, K = 16": (DASP(model), {"coalition_sizes": 16}, 1),
        "integrated gradients, 32 nodes": (IntegratedGradients(model), {"n_steps": 32}, 5),
        "GradientDASP, rank 0, K = 4": (GradientDASP(model, rank=0), {"nodes": 4}, 5),
        "GradientDASP, rank 0, K = 8": (GradientDASP(model, rank=0), {"nodes": 8}, 5),
        "GradientDASP, rank 0, adaptive": (GradientDASP(model, rank=0), {}, 5),
        "GradientDASP, auto, K = 4": (GradientDASP(model), {"nodes": 4}, 5),
        "GradientDASP, auto, K = 8": (GradientDASP(model), {"nodes": 8}, 5),
        "GradientDASP, auto, adaptive": (GradientDASP(model), {}, 5),
    }
    reference: tuple[float, float] | None = None
    print(f"{'':32} {'RMSE':>8} {'Spearman':>8} {'ms/image':>9} {'RMSE ÷':>7} {'time ÷':>7} {'gap':>7}")
    for name, (method, options, repeats) in methods.items():
        method.attribute(x[:1], target=y[:1], **({"coalition_sizes": 1} if name == "DASP, K = 16" else options))
        attributions, seconds = timed(lambda m=method, o=options: m.attribute(x, target=y, **o).detach(), repeats)
        quality, milliseconds = float(rmse(attributions, truth).mean()), seconds / len(x) * 1e3
        reference = reference or (quality, milliseconds)
        print(
            f"{name:32} {quality:8.5f} {float(spearman(attributions, truth).mean()):8.4f} {milliseconds:9.1f} "
            f"{quality / reference[0]:7.2f} {'1/' + str(round(reference[1] / milliseconds)):>7} "
            f"{largest_gap(model, attributions, x, y):7.4f}",
            flush=True,
        )


def ranks() -> None:
    for setting, columns in (
        (settings.mnist(), (0, 9, 16, 25, 36, 64, 100)),
        (settings.dna(), (0, 11, 16, 21, 50, 200)),
    ):
        problem = setting.problem
        print(f"Factor columns of GradientDASP, {setting.experiment.title}, K = 8, s.e. {problem.standard_error:.5f}")
        for rank in columns:
            method = Method(
                name="GradientDASP", make=lambda model, r=rank: GradientDASP(model, rank=r), options={"nodes": 8}
            )
            (result,) = compare(problem, {"gradient_dasp": method})
            print(f"  {rank:3} columns: RMSE {result.rmse:.5f}, {result.seconds * 1e3:.0f} ms/row", flush=True)


def cost() -> None:
    model, x, y, _, _ = digits_to_explain()
    print("Cost of one call with K nodes, rank 0, against integrated gradients with K nodes (8 images, LeNet-5)")
    ours, theirs = GradientDASP(model, rank=0), IntegratedGradients(model)
    for nodes in (4, 8, 16, 32):
        pairs = []
        for _ in range(9):
            _, slow = timed(lambda k=nodes: ours.attribute(x, target=y, nodes=k))
            _, fast = timed(lambda k=nodes: theirs.attribute(x, target=y, n_steps=k))
            pairs.append((slow, fast))
        slow, fast = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"  K = {nodes:2}: {slow:6.1f} ms against {fast:6.1f} ms, ratio {ratio:.2f}")


def growth() -> None:
    print("Time of a call against the number of players N (8 rows, K = 8): Linear(N, 64), then 6 layers of 1,024 units")
    for players in (64, 256, 1024, 4096):
        torch.manual_seed(0)
        hidden = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
        model = nn.Sequential(
            nn.Linear(players, 64), nn.ReLU(), nn.Linear(64, 1024), nn.ReLU(), *hidden, nn.Linear(1024, 1)
        ).eval()  # fmt: skip
        x = torch.randn(8, players)
        method = GradientDASP(model, rank=0)
        method.attribute(x, nodes=8)
        _, seconds = timed(lambda m=method, x=x: m.attribute(x, nodes=8), 9)
        print(f"  N = {players:5}: {seconds * 1e3:6.1f} ms")


def digits() -> None:
    data = load_digits()
    x = torch.tensor(data.images / 8 - 1).float()[:, None]
    y = torch.tensor(data.target)
    torch.manual_seed(0)
    model = small_resnet(1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(15):
        for batch in torch.randperm(1500).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x[1500:]).argmax(1) == y[1500:]).float().mean().item()
    rows, targets = x[1500:1510], y[1500:1510]
    truth, errors = PermutationShapley(model).attribute(rows, target=targets, n_permutations=600, return_std=True)
    error = errors.square().mean().sqrt()
    print(f"ResNet with batch norm on 8×8 digits (accuracy {accuracy:.3f}), 64 players, 10 images, s.e. {error:.4f}")
    methods = {
        "integrated gradients, 50 nodes": IntegratedGradients(model),
        "GradientDASP, rank 0": GradientDASP(model, rank=0),
        "GradientDASP, auto": GradientDASP(model),
        "GradientDASP, full rank": GradientDASP(model, rank="full"),
    }
    first: float | None = None
    for name, method in methods.items():
        attributions, seconds = timed(lambda m=method: m.attribute(rows, target=targets).detach())
        quality = float(rmse(attributions, truth).mean())
        first = first or quality
        print(
            f"  {name:32} RMSE {quality:.4f} ({quality / first:.2f}), Spearman "
            f"{float(spearman(attributions, truth).mean()):.4f}, {seconds / len(rows) * 1e3:.0f} ms/image, "
            f"gap {largest_gap(model, attributions, rows, targets):.4f}"
        )


def coalition_values(model: nn.Module, row: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Members (2^N, N) and the outputs of all coalitions, numbered by their bits."""
    players = len(row)
    members = np.arange(2**players)[:, None] >> np.arange(players) & 1
    with torch.no_grad():
        return members, model(row * torch.tensor(members)).squeeze(1).double().numpy()


def banzhaf(values: np.ndarray, players: int) -> np.ndarray:
    number = np.arange(len(values))
    return np.array([(values[number | 1 << i] - values)[(number >> i & 1) == 0].mean() for i in range(players)])


def interaction(members: np.ndarray, values: np.ndarray) -> np.ndarray:
    players, number = members.shape[1], np.arange(len(values))
    size = members.sum(1)
    result = np.zeros((players, players))
    for i, j in itertools.combinations(range(players), 2):
        a, b = 1 << i, 1 << j
        free = (number & (a | b)) == 0
        weight = np.array([1 / ((players - 1) * math.comb(players - 2, s)) for s in size[free]])
        n = number[free]
        result[i, j] = result[j, i] = (weight * (values[n | a | b] - values[n | a] - values[n | b] + values[n])).sum()
    return result


def indices() -> None:
    print("Banzhaf values and Shapley interactions against enumeration (N = 10, ReLU networks 10–64–32–1, 5 × 4 rows)")
    results: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(5):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)).eval()
        x = torch.randn(4, 10) * 2
        tables = [coalition_values(model, row) for row in x]
        method = GradientDASP(model)
        pairs = {
            "Banzhaf": (method.attribute(x, index="banzhaf"), [banzhaf(v, 10) for _, v in tables]),
            "interactions": (method.interactions(x), [interaction(m, v) for m, v in tables]),
        }
        for name, (estimate, exact) in pairs.items():
            truth = torch.tensor(np.stack(exact)).float()
            scale = truth.flatten(1).square().mean(1).sqrt().mean()
            quality = rmse(estimate, truth).mean(), spearman(estimate, truth).mean(), scale
            results.setdefault(name, []).append(tuple(map(float, quality)))
    for name, rows in results.items():
        error, correlation, scale = (statistics.mean(column) for column in zip(*rows, strict=True))
        print(f"  {name:12} RMSE {error:.4f} (root mean square of the truth {scale:.4f}), Spearman {correlation:.3f}")


def memory() -> None:
    torch.manual_seed(0)
    model = resnet18().eval()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    x = torch.randn(1, 3, 224, 224)
    method = GradientDASP(model, rank=0)
    attributions, seconds = timed(lambda: method.attribute(x, target=0, nodes=8))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"ResNet-18-sized network, 3×224×224 input, {attributions.numel():,} players, rank 0, K = 8: {seconds:.1f} s, "
        f"peak memory {peak:.2f} GiB ({before:.2f} before)"
    )


if __name__ == "__main__":
    torch.set_num_threads(2)
    warnings.simplefilter("default")
    # Memory first, as the peak of a process never falls.
    sections = {
        "memory": memory,
        "cost": cost,
        "growth": growth,
        "indices": indices,
        "digits": digits,
        "mnist": mnist,
        "ranks": ranks,
    }
    for section in sys.argv[1:] or sections:
        sections[section]()
        print(flush=True)
