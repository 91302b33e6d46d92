"""Do the 95 % intervals of BayesianShapley hold what they promise? Measured on a zoo of trained networks.

    DASP_DATA=folder python benchmarks/calibration.py [--development] [--report]

For every family of networks, prior and budget: how many of the intervals hold the true value (marked * below 90 % and
+ above 98 %), the rms error relative to the rms of the values, and the stated standard deviation relative to the rms
error. Truth is exact up to 18 players; else it is sampled, and its standard error is added to the stated one. Networks,
truths, priors and what coalitions are worth are kept in results/cache: constants of the model can be tried in minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from captum.attr import Attribution, IntegratedGradients
from torch import Tensor, nn
from tqdm.auto import tqdm

from dasp import DASP, BayesianShapley, ExactShapley, GradientDASP, PermutationShapley
from dasp.attribution.bayesian.design import MOST_OPENED, Pairs
from dasp.attribution.bayesian.posterior import Trust, posterior
from dasp.attribution.bayesian.priors import covariances, opens, trust
from dasp.attribution.bayesian.process import regression_on
from dasp.attribution.bayesian.regression import Covariance, Regression
from dasp.attribution.captum_adapter import estimated
from dasp.games.evaluator import Evaluator
from dasp.games.game import Game
from dasp.games.request import Arguments, Request
from reproduction.store import Store, checksum, checksum_of_code
from zoo import CASES, Case

BUDGETS = (64, 128, 256, 512, 1024, 2048)
SEEDS = (0, 1)
MOST_EXACT, MOST_FULL_RANK = 18, 20
PERMUTATIONS = {196: (250, 4), 64: (500, 2), 49: (600, 3), 28: (1000, 8)}  # by players, and how often
STORE = Store(Path("results") / "cache")

PRIORS: dict[str, Callable[[nn.Module], Attribution]] = {
    "GradientDASP rank 0": lambda model: GradientDASP(model, rank=0),
    "GradientDASP auto": GradientDASP,
    "DASP full rank": lambda model: DASP(model, rank="full"),
    "integrated gradients": IntegratedGradients,
}
NONE, RANDOM, WRONG_SIGN = "no prior", "random", "wrong sign"
OPTIONS: dict[str, dict[str, Any]] = {"GradientDASP rank 0": {"nodes": 8}, "GradientDASP auto": {"nodes": 8}}


@dataclass(frozen=True)
class Played:
    """A case with all that was found out about its games; values are (players, rows)."""

    case: Case
    network: str  # checksum
    request: Request
    evaluator: Evaluator
    truth: Tensor
    error: Tensor  # standard error of the truth
    priors: dict[str, Tensor]
    skipped: dict[str, str]

    @staticmethod
    def of(case: Case) -> Played:
        """Train, find the truth and the priors, as far as they are not kept."""
        model = case.network.trained(STORE)
        rows = 4 if case.blocks is None and case.network.kind in ("gentle", "hard") else 3
        x, off, mask = case.arguments(rows)
        with torch.no_grad():
            outputs = model(x)
        target = None if outputs.shape[1] == 1 else outputs.argmax(1)
        request = Request.of(model, Arguments(x, off, target, None, mask, background=case.background > 0))
        (evaluator,) = request.evaluators(None, tqdm(disable=True))
        key: dict[str, Any] = {"network": checksum(model.state_dict()), "rows": rows}
        players = request.players
        number, times = (0, 1) if players <= MOST_EXACT else PERMUTATIONS[players]
        truths = [
            STORE.keep(
                f"calibration/{case.name}-truth{i or ''}", key | {"permutations": number},
                partial(_truth, model, request, number, 12345 + i),
            )
            for i in range(times)
        ]  # fmt: skip
        priors, skipped = {}, {}
        code = {"propagation": checksum_of_code(["propagation"])}  # which gives others with other rules
        for name in PRIORS:
            if name == "DASP full rank" and players > MOST_FULL_RANK:
                continue
            kept = STORE.keep(
                f"calibration/{case.name}-{name.replace(' ', '-')}", key | code, partial(_prior, name, model, request)
            )
            if isinstance(kept, str):
                skipped[name] = kept
            else:
                priors[name] = kept.view(players, rows)
        values = torch.stack([truth["values"] for truth in truths]).mean(0).view(players, rows)
        error = torch.stack([truth["error"] for truth in truths]).square().mean(0).div(times).sqrt().view(players, rows)
        generator = torch.Generator().manual_seed(7)
        noise = torch.randn(players, rows, generator=generator, dtype=torch.float64)
        priors |= {RANDOM: noise * values.square().mean(0).sqrt(), WRONG_SIGN: -values}
        return Played(case, key["network"], request, evaluator, values, error, priors, skipped)

    def worth(self, pairs: Pairs, seed: int) -> Tensor:
        """(v(S) − v(Sᶜ))/2 and (v(S) + v(Sᶜ))/2 of a design, (2, pairs, rows)."""

        def evaluated() -> Tensor:
            return self.evaluator.halves(pairs.members).flatten(2)

        key = {"game": checksum([self.network, self.truth.shape[1]]), "pairs": checksum(pairs.members)}
        worth: Tensor = STORE.keep(
            f"calibration/{self.case.name}-halves-{seed}-{checksum(pairs.members)[:8]}", key, evaluated
        )
        return worth

    @property
    def total(self) -> Tensor:
        """v(P) − v(∅) of the rows."""
        return self.evaluator.total.flatten()


def _truth(model: nn.Module, request: Request, permutations: int, seed: int) -> dict[str, Tensor]:
    """Shapley values and their standard errors, (players, rows); without permutations, exact."""
    if permutations == 0:
        (values,) = ExactShapley(model).explain(request).values
        return {"values": values.double(), "error": torch.zeros_like(values).double()}
    estimate = PermutationShapley(model).explain(request, n_permutations=permutations, seed=seed)
    (values,), (error,) = estimate.values, estimate.std or []
    return {"values": values.double(), "error": error.double()}


def _prior(name: str, model: nn.Module, request: Request) -> Any:
    """Values (players, rows), or why there are none."""
    try:
        return estimated(PRIORS[name](model), request, **OPTIONS.get(name, {})).values[0].detach().double()
    except (NotImplementedError, TypeError, RuntimeError) as error:
        return str(error).split("\n", 1)[0]


def trusted(name: str, game: Game) -> Trust:
    """The trust that BayesianShapley has in a prior."""
    stand_in = nn.Linear(1, 1).eval()
    return trust(None if name == NONE else PRIORS[name](stand_in) if name in PRIORS else torch.zeros(1), game)


def estimate(regression: Regression, seed: int, several: list[Played], name: str) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of all rows of cases that have the same number of players, (players, rows)."""
    players, number = regression.pairs.players, len(regression.pairs)
    design = _design(players, seed, opening=opens(players, trusted(name, several[0].request.games[0])))
    y, sums = torch.cat([played.worth(design, seed) for played in several], 2)[:, :number]
    total = torch.cat([played.total for played in several])
    shapes: list[Covariance] = []
    game = several[0].request.games[0]
    prior = torch.zeros(len(total), players, dtype=torch.float64)
    if name != NONE:
        prior = torch.cat([played.priors[name] for played in several], 1).T
        shapes = covariances(prior, game)
    known = posterior(regression, y, total, prior, shapes, trusted(name, game), sums=sums)
    return known.mean.T, known.deviation.T


@cache
def _design(players: int, seed: int, *, opening: bool) -> Pairs:
    return Pairs.draw(players, (BUDGETS[-1] - 2) // 2, seed, opening=opening)


def study(zoo: list[Played]) -> dict[tuple[str, str, int], dict[str, float]]:
    """Figures by prior, family and budget."""
    cells: dict[tuple[str, str, int], list[dict[str, Tensor]]] = defaultdict(list)
    alike: dict[Any, list[Played]] = defaultdict(list)
    for played in zoo:
        game = played.request.games[0]
        alike[game.count, game.coordinates is None, trusted("GradientDASP auto", game)].append(played)
    for (players, *_), group in alike.items():
        for seed in SEEDS if players <= 64 else SEEDS[:1]:
            for budget in BUDGETS:
                if budget >= 2**players:
                    continue
                prepared = {}
                for opening in (True, False)[players > MOST_OPENED :]:
                    design = _design(players, seed, opening=opening)
                    prepared[opening] = regression_on(design.first((budget - 2) // 2), opening=opening)
                for name in (NONE, *PRIORS, RANDOM, WRONG_SIGN):
                    regression = prepared[opens(players, trusted(name, group[0].request.games[0]))]
                    several = [played for played in group if name == NONE or name in played.priors]
                    if several:
                        means, deviations = estimate(regression, seed, several, name)
                        _score(cells, several, means, deviations, (name, budget))
    return {cell: _figures(parts) for cell, parts in cells.items()}


def _score(cells: Any, several: list[Played], means: Tensor, deviations: Tensor, which: tuple[str, int]) -> None:
    name, budget = which
    start = 0
    for played in several:
        rows = slice(start, start + len(played.total))
        start = rows.stop
        stated = (deviations[:, rows].square() + played.error.square()).sqrt()
        scale = played.truth.square().mean(0).sqrt()  # rows count alike
        error = means[:, rows] - played.truth
        part = {
            "covered": (error.abs() <= 1.96 * stated).double().mean(0),
            "error": (error / scale).square().mean(0),
            "stated": (stated / scale).square().mean(0),
            "truth": (played.error / scale).square().mean(0),
        }
        cells[name, played.case.family, budget].append(part)
        cells[name, "all", budget].append(part)


def _figures(parts: list[dict[str, Tensor]]) -> dict[str, float]:
    means = {field: float(torch.cat([part[field] for part in parts]).mean()) for field in parts[0]}
    error = max(means["error"], 1e-300)
    return {
        "coverage": means["covered"], "error": error**0.5, "ratio": (means["stated"] / error) ** 0.5,
        "truth": (means["truth"] / error) ** 0.5,
    }  # fmt: skip


def _mark(coverage: float) -> str:
    return "*" if coverage < 0.9 else "+" if coverage > 0.98 else " "


def show(figures: dict[tuple[str, str, int], dict[str, float]]) -> None:
    """Print one table for each prior: coverage in per cent, relative error, stated to actual."""
    families = dict.fromkeys(family for _, family, _ in figures if family != "all")
    for name in (NONE, *PRIORS, RANDOM, WRONG_SIGN):
        print(f"\n{name:22}" + "".join(f"{budget:>18}" for budget in BUDGETS))
        for family in (*families, "all"):
            cells = [figures.get((name, family, budget)) for budget in BUDGETS]
            if any(cells):
                print(f"{family:22}" + "".join(_cell(cell) for cell in cells))
    inside = [0.9 <= cell["coverage"] <= 0.98 for (_, family, _), cell in figures.items() if family != "all"]
    low = [cell["coverage"] < 0.9 for (_, family, _), cell in figures.items() if family != "all"]
    print(f"\n{sum(inside)} of {len(inside)} cells within 90–98 %, {sum(low)} below")


def _cell(cell: dict[str, float] | None) -> str:
    if cell is None:
        return f"{'–':>18}"
    return f"{100 * cell['coverage']:6.0f}{_mark(cell['coverage'])}{cell['error']:6.3f}{cell['ratio']:5.2f}"


def compare(played: Played) -> str:
    """Compare the study's way with BayesianShapley's."""
    model, (players, rows) = played.case.network.trained(STORE), played.truth.shape
    method = BayesianShapley(model, GradientDASP(model), prior_options={"nodes": 8})
    found = method.explain(played.request, max_evaluations=128)
    opening = opens(players, trusted("GradientDASP auto", played.request.games[0]))
    regression = regression_on(_design(players, 0, opening=opening).first(63), opening=opening)
    mean, deviation = estimate(regression, 0, [played], "GradientDASP auto")
    differences = found.values[0].view(players, rows) - mean, (found.std or [])[0].view(players, rows) - deviation
    most = [float((difference / deviation).abs().max()) for difference in differences]
    return (
        f"{played.case.name}: BayesianShapley differs by {most[0]:.1%} of a standard deviation, these by {most[1]:.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--development", action="store_true", help="networks that constants may be chosen on")
    parser.add_argument("--report", action="store_true", help="the others")
    chosen = parser.parse_args()
    both = chosen.development == chosen.report
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for development in (True, False):
        if not both and development != chosen.development:
            continue
        start = time.perf_counter()
        zoo = []
        for case in CASES:
            if case.development == development:
                print(f"{time.perf_counter() - start:6.0f} s  {case.name}", file=sys.stderr, flush=True)
                zoo.append(Played.of(case))
        title = "development" if development else "report"
        print(f"\n== {title}: {len({played.case.network for played in zoo})} networks, {len(zoo)} cases. Coverage of "
              "95 % intervals in per cent, rms error relative to the values', stated to actual")  # fmt: skip
        for played in (zoo[0], next(played for played in zoo if played.case.family == "conv, blocks")):
            print(compare(played))
        figures = study(zoo)
        show(figures)
        for played in zoo:
            for name, reason in played.skipped.items():
                print(f"{played.case.name}: no {name}: {reason}")
        named = [{"prior": p, "family": f, "budget": b, **cell} for (p, f, b), cell in figures.items()]
        Path(f"results/calibration-{title}.json").write_text(json.dumps(named, indent=1))
        print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
