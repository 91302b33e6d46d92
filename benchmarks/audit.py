"""Does `dasp.audit` tell the truth? What it says of attributions against their actual error, on networks that nothing
was chosen by (`zoo.py`), and on the three experiments of the paper.

    DASP_DATA=folder python benchmarks/audit.py [--evaluations 128] [--development] [--experiments] [--top]

For every network and method: the actual error relative to the size of the values and what the audit says of it, with
its interval; the rank correlation likewise; medians over rows, and how many rows' intervals hold the actual numbers.
Where the truth is sampled, its standard error is taken off the actual error, and correlations are not judged.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import statistics
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

import dasp
from calibration import STORE, Played
from dasp import ExactShapley, audit, spearman
from dasp.evaluation.audit import Interval
from reproduction.comparison_methods import COMPARED
from reproduction.outcome import Setting
from reproduction.peers import PEERS
from settings import dna, mnist, parkinsons
from zoo import CASES

_ZOO: dict[str, int | None] = {  # with the number of samples
    "gradient_times_input": None, "integrated_gradients": None, "deeplift_rescale": None, "occlusion": None,
    "gradient_dasp": 8, "dasp": None,
}  # fmt: skip
_EXPERIMENTS = {name: COMPARED[name] for name in ("integrated_gradients", "deeplift_rescale")}
_EXPERIMENTS["DeepSHAP"] = PEERS["shap_deep_explainer"]
_MOST_FULL_RANK = 20


@dataclass(frozen=True)
class Checked:
    """An audit's claims about the rows of one network and method, beside what is true."""

    network: str
    family: str
    method: str
    stated: Interval
    actual: Tensor
    stated_correlation: Interval
    correlation: Tensor | None  # None where the truth is sampled

    def held(self) -> list[bool]:
        """Which intervals hold the actual error."""
        return ((self.stated.low <= self.actual) & (self.actual <= self.stated.high)).tolist()

    def correlations_held(self) -> list[bool]:
        """Which intervals hold the actual correlation."""
        if self.correlation is None:
            return []
        own = self.stated_correlation
        return ((own.low <= self.correlation + 1e-9) & (self.correlation - 1e-9 <= own.high)).tolist()

    def line(self) -> str:
        """A line of the table."""
        error, rank = (
            " ".join(f"{float(x.median()):6.3f}" for x in (each.middle, each.low, each.high))
            for each in (self.stated, self.stated_correlation)
        )
        own = "     –" if self.correlation is None else f"{float(self.correlation.median()):6.3f}"
        return (
            f"{self.network:34}{self.method:22}{float(self.actual.median()):7.3f} | {error} | "
            f"{sum(self.held())}/{len(self.actual)}   {own} | {rank}"
        )


def checked(
    names: tuple[str, str, str], model: nn.Module, attributions: Tensor, truth: Tensor, error: Tensor,
    evaluations: int, **arguments: Any,
) -> Checked:  # fmt: skip
    """Audit attributions whose truth is known; all are (rows, players)."""
    report = audit(model, attributions, evaluations=evaluations, **arguments)
    mask = arguments.get("feature_mask")
    given, values = attributions.double().flatten(1), truth
    if mask is not None:  # every entry has the value of its player
        first = torch.stack([(mask.flatten() == i).nonzero()[0, 0] for i in range(truth.shape[1])])
        given = given[:, first]
    squares = (given - values).square().mean(1) - error.square().mean(1)
    size = values.square().mean(1).sqrt()
    stated = Interval(*(x.double() / size for x in (report.rmse.middle, report.rmse.low, report.rmse.high)))
    known = None if bool((error > 0).any()) else spearman(given, values)
    return Checked(*names, stated, squares.clamp(min=1e-12).sqrt() / size, report.correlation, known)


def zoo(evaluations: int, *, development: bool) -> list[Checked]:
    """All methods on all networks of one half of the zoo."""
    result = []
    for case in CASES:
        if case.development != development:
            continue
        played, model = Played.of(case), case.network.trained(STORE)
        players, rows = played.truth.shape
        x, off, mask = case.arguments(rows)
        with torch.no_grad():
            outputs = model(x)
        target = 0 if outputs.shape[1] == 1 else outputs.argmax(1)
        for name, number in _ZOO.items():
            if name == "dasp" and players > _MOST_FULL_RANK:
                continue
            try:
                estimate = COMPARED[name].on(model, number).attribute(x, off, target, feature_mask=mask)
            except (NotImplementedError, TypeError, RuntimeError, AssertionError, IndexError):
                continue  # no gradients of words, no rules
            result.append(checked(
                (case.name, case.family, name), model, estimate, played.truth.T, played.error.T, evaluations,
                inputs=x, baselines=off, target=target, feature_mask=mask,
            ))  # fmt: skip
            print(result[-1].line(), flush=True)
    return result


def experiments(evaluations: int) -> list[Checked]:
    """What people use, on the paper's three tasks."""
    result = []
    settings: list[Setting] = [parkinsons(20), dna(4), mnist(4)]
    for setting in settings:
        problem = setting.problem
        for name, method in _EXPERIMENTS.items():
            attributions = method.on(problem.model).attribute(**problem.arguments)
            result.append(checked(
                (setting.title, "experiments", name), problem.model, attributions, problem.truth.double(),
                torch.full_like(problem.truth.double(), problem.standard_error), evaluations, **problem.arguments,
            ))  # fmt: skip
            print(result[-1].line(), flush=True)
    return result


def top_players() -> None:
    """Print and write how often the top five were right where the audit gave them a probability."""
    told, networks = [], 12
    for seed in range(networks):
        torch.manual_seed(seed)
        players, bend = (8, 12, 14)[seed % 3], (nn.ReLU, nn.Tanh, nn.GELU)[seed % 3]
        model = nn.Sequential(nn.Linear(players, 48), nn.ReLU(), nn.Linear(48, 48), bend(), nn.Linear(48, 1)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2.0 if parameter.dim() > 1 else 1.0)
        x = torch.randn(24, players)
        truth = ExactShapley(model).attribute(x)
        noise = torch.randn(truth.shape) * truth.std()
        for given in (IntegratedGradients(model).attribute(x), *(truth + share * noise for share in (0.05, 0.15, 0.5))):
            for evaluations in (32, 128):
                top = audit(model, given.float(), x, evaluations=evaluations).top
                assert top is not None
                sizes = truth.abs()
                belong = sizes.gather(1, given.abs().topk(5, 1).indices) >= sizes.topk(5, 1).values[:, -1:] * (1 - 1e-6)
                told.append(torch.stack([top.right, belong.all(1), top.belonging, belong.sum(1)], 1).double())
    every = torch.cat(told)
    rows = [
        ["stated probability", "rows", "stated, on average", "right", "of the five belong there, stated", "actually"]
    ]
    for low, high in ((0.0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.01)):
        part = every[(every[:, 0] >= low) & (every[:, 0] < high)]
        right = [f"{100 * float(mean):.0f} %" for mean in part[:, :2].mean(0)]
        belonging = [f"{float(mean):.2f}" for mean in part[:, 2:].mean(0)]
        rows.append([f"{100 * low:.0f} to {min(100, 100 * high):.0f} %", f"{len(part):,}", *right, *belonging])
        print(*rows[-1], sep=" | ")
    with (Path(__file__).parent / "results" / "audit-top.csv").open("w", newline="", encoding="utf-8") as stream:
        day = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
        stream.write(f"# by: benchmarks/audit.py --top\n# version: {dasp.__version__}\n# date: {day}\n")
        csv.writer(stream, lineterminator="\n").writerows(rows)


def summary(results: list[Checked]) -> None:
    """Print how often intervals hold, by family, method and over all."""
    for title, group in (("family", "family"), ("method", "method")):
        print(f"\nby {title}")
        for name in dict.fromkeys(getattr(each, group) for each in results):
            print(_counted(name, [each for each in results if getattr(each, group) == name]))
    print(_counted("all", results))


def _counted(name: str, results: list[Checked]) -> str:
    held = [one for each in results for one in each.held()]
    ranks = [one for each in results for one in each.correlations_held()]
    ratios = [float(x) for each in results for x in (each.stated.middle / each.actual).log()]
    typical = statistics.median(abs(ratio) for ratio in ratios)
    correlations = f"{100 * sum(ranks) / len(ranks):4.0f} % of {len(ranks)}" if ranks else "–"
    return (
        f"{name:26}{len(results):4} pairs: {100 * sum(held) / len(held):4.0f} % of {len(held)} errors held, stated to "
        f"actual within a factor of {2.718281828**typical:.2f} for half; correlations {correlations}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--evaluations", type=int, default=128)
    parser.add_argument("--development", action="store_true", help="the networks that constants were chosen on")
    parser.add_argument("--experiments", action="store_true", help="the paper's three tasks only")
    parser.add_argument("--top", action="store_true", help="the probabilities that the top five are right, only")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    start = time.perf_counter()
    if chosen.top:
        top_players()
        return
    print(f"{chosen.evaluations} evaluations. Error relative to the values: actual | stated, 95 % interval | held;  "
          "rank correlation: actual | stated, interval")  # fmt: skip
    results = [] if chosen.experiments else zoo(chosen.evaluations, development=chosen.development)
    if not chosen.development:
        results += experiments(chosen.evaluations)
    summary(results)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
