"""How near is each method to the Shapley values of today's architectures, in the same time? And how long does it take
to lift a network?

    python benchmarks/architectures.py [NETWORK …]

It writes what it found to benchmarks/architectures.json, beside what is there of networks that were not named, and the
page docs/supported.md from that (`benchmarks/supported.py`). Trained networks and true values are kept in
results/cache. Truth is exact, or sampled for pixels, whose standard error is taken off. Errors are RMSE relative to the
rms of a row's true values, the median over rows. Times are processor seconds of one thread for all rows at once, the
least of several calls after a first one.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

import supported
from dasp import ExactShapley, Explainer, GradientDASP, PermutationShapley, spearman
from dasp.attribution.captum_adapter import estimated
from dasp.errors import UnsupportedOperation, UntraceableModel
from dasp.games.request import Arguments, Request
from modern import ZOO, Exhibit
from modern.large import LARGE
from reproduction.comparison_methods import COMPARED
from reproduction.store import Store, checksum

STORE = Store(Path("results") / "cache")
STEPS, ROWS = 2000, 5
PERMUTATIONS, TRUTH_SEED = 600, 20_190_610
LIMITED = 128  # evaluations of a default answer that may not enumerate all coalitions
_REPEATS, _ENOUGH = 5, 0.5  # times, or seconds
_SLACK = 1.1  # times the allowed time counts as equal: that much is noise
_BUDGETS = {  # growing, of which the largest in time counts
    "permutation_shapley": ("n_permutations", tuple(2**i for i in range(10))),
    "bayesian_shapley": ("max_evaluations", tuple(2**i for i in range(4, 14))),
    "bayesian_shapley_on_gradient_dasp": ("max_evaluations", tuple(2**i for i in range(4, 14))),
}
_REFUSALS = (UnsupportedOperation, UntraceableModel)


@dataclass(frozen=True)
class Figure:
    """What one method reached."""

    error: float  # relative to the values, median over rows
    correlation: float  # Spearman's, median over rows
    seconds: float  # for all rows
    budget: int | None = None
    method: str | None = None  # that was chosen
    stated: float | None = None  # the rms of the standard deviations, relative to the values


@dataclass(frozen=True)
class Case:
    """A trained network with rows to explain and their true values, (rows, players)."""

    model: nn.Module
    request: Request
    truth: Tensor
    deviation: Tensor  # standard errors of the truth

    @staticmethod
    def of(exhibit: Exhibit) -> Case:
        """Train, and find the truth, as far as they are not kept."""
        task, name = exhibit.task(), exhibit.name.replace(", ", "-").replace(" ", "-")
        model = exhibit.built()
        key: dict[str, Any] = {
            "steps": STEPS,
            "start": checksum(model.state_dict()),
            "task": checksum([task.x, task.y]),
        }
        key |= {"rate": exhibit.rate}
        model.load_state_dict(STORE.keep(f"architectures/{name}", key, lambda: dict(exhibit.built(STEPS).state_dict())))
        arguments = Arguments(task.rows(ROWS), task.baseline, exhibit.target, feature_mask=task.mask)
        request = Request.of(model, arguments)
        key = {"network": checksum(model.state_dict()), "rows": ROWS, "permutations": PERMUTATIONS}
        truth = STORE.keep(f"architectures/{name}-truth", key, partial(_truth, model, request))
        return Case(model, request, truth["values"], truth["deviation"])

    def figure(self, values: Tensor, seconds: float, std: Tensor | None = None, **more: Any) -> Figure:
        """Judge values (players, rows)."""
        values, size = values.T.double().cpu(), self.truth.square().mean(1).sqrt()
        square = (values - self.truth).square().mean(1) - self.deviation.square().mean(1)
        error, rank = square.clamp(min=0).sqrt() / size, spearman(values, self.truth)
        stated = None if std is None else float((std.double().square().mean(0).sqrt() / size).median())
        return Figure(float(error.median()), float(rank.nanmedian()), seconds, stated=stated, **more)

    def once(self, method: Any, **options: Any) -> Figure:
        """A method as it is."""
        seconds, estimate = timed(partial(estimated, method, self.request, **options))
        return self.figure(estimate.values[0].detach(), seconds)

    def in_time(self, name: str, allowed: float) -> Figure:
        """A method with the largest budget that takes no more than the `allowed` seconds, or the least there is."""
        option, budgets = _BUDGETS[name]
        method, found = COMPARED[name].make(self.model), None
        for budget in budgets:
            if option == "max_evaluations" and budget >= 2 * 2**self.request.players:
                break
            seconds, estimate = timed(partial(estimated, method, self.request, **{option: budget}))
            if found is not None and seconds > _SLACK * allowed:
                break
            found = self.figure(estimate.values[0], seconds, budget=budget)
        assert found is not None
        return found

    def default(self, **options: Any) -> Figure:
        """What `Explainer` answers by itself."""
        explainer = Explainer(self.model, **options)
        seconds, answer = timed(lambda: explainer.run(self.request))
        (values,), (std,) = (self.request.values_of(x) for x in (answer.values, answer.std))
        return self.figure(values, seconds, std, method=answer.method)


def _truth(model: nn.Module, request: Request) -> dict[str, Tensor]:
    if request.players <= 16:
        estimate = ExactShapley(model).explain(request)
    else:
        estimate = PermutationShapley(model).explain(request, n_permutations=PERMUTATIONS, seed=TRUTH_SEED)
    assert estimate.std is not None
    return {"values": estimate.values[0].T.double(), "deviation": estimate.std[0].T.double()}


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """The least processor time of some calls after a first one, and the last result."""
    function()
    times: list[float] = []
    while not times or (len(times) < _REPEATS and sum(times) < _ENOUGH):
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
    return min(times), result


def measured(exhibit: Exhibit) -> dict[str, Any]:
    """The figures of a network by method, or None for a method that cannot explain it."""
    case = Case.of(exhibit)
    figures: dict[str, Figure | None] = {}
    try:
        figures["gradient_dasp"] = case.once(GradientDASP(case.model))
        figures["gradient_dasp_rank_0"] = case.once(GradientDASP(case.model, rank=0))
    except _REFUSALS as error:
        return {"name": exhibit.name, "players": case.request.players, "refused": error.summary}
    allowed = figures["gradient_dasp"].seconds
    continuous = case.request.games[0].on[0].is_floating_point()
    figures["integrated_gradients"] = case.once(IntegratedGradients(case.model)) if continuous else None
    figures["DeepLIFT"] = min(_deeplift(case), key=lambda figure: figure.error, default=None) if continuous else None
    for name, times in (("permutation_shapley", 1), ("bayesian_shapley", 1), ("bayesian_shapley_on_gradient_dasp", 2)):
        figures[name] = case.in_time(name, times * allowed)
    figures["default"] = case.default()
    figures[f"default, {LIMITED} evaluations"] = case.default(max_evaluations=LIMITED)
    return {
        "name": exhibit.name, "players": case.request.players, "rows": ROWS,
        "truth": float((case.deviation.square().mean(1) / case.truth.square().mean(1)).sqrt().median()),
        "figures": {name: figure and asdict(figure) for name, figure in figures.items()},
    }  # fmt: skip


def _deeplift(case: Case) -> Iterator[Figure]:
    """Captum's and ours, as far as they know the network's modules or operations."""
    for name in ("deeplift_rescale", "deeplift_revealcancel"):
        try:
            yield case.once(COMPARED[name].make(case.model))
        except (NotImplementedError, RuntimeError, TypeError, AssertionError, ValueError):
            continue


def lifting(name: str, make: Callable[[], tuple[nn.Module, Tensor, Tensor]]) -> dict[str, Any]:
    """How long it takes to lift a network, by itself and as part of a first call."""
    model, x, mask = make()
    request = Request.of(model, Arguments(x, torch.zeros_like(x), 0, feature_mask=mask))
    start = time.process_time()
    GradientDASP(model).lifts(request)
    alone = time.process_time() - start
    model, x, mask = make()
    method = GradientDASP(model, rank=0)
    seconds = []
    for _ in range(2):
        start = time.process_time()
        method.attribute(x, target=0, feature_mask=mask, nodes=1)
        seconds.append(time.process_time() - start)
    return {"name": name, "parameters": sum(p.numel() for p in model.parameters()), "lift": alone,
            "first": seconds[0], "later": seconds[1]}  # fmt: skip


def _beside(name: str, found: list[dict[str, Any]], order: Iterable[str]) -> list[dict[str, Any]]:
    """What was found now beside what was found before, in order."""
    before = supported.figures()[name] if supported.FIGURES.exists() else []
    known = {entry["name"]: entry for entry in [*before, *found]}
    return [known[name] for name in order if name in known]


def main() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    zoo = {exhibit.name: exhibit for exhibit in ZOO}
    chosen = sys.argv[1:] or [*zoo, *LARGE]
    networks, lifted, start = [], [], time.process_time()
    for name in chosen:
        if name in zoo:
            networks.append(measured(zoo[name]))
            print(supported.line(networks[-1]), flush=True)
        else:
            lifted.append(lifting(name, LARGE[name]))
            print(json.dumps(lifted[-1], ensure_ascii=False), flush=True)
    print(f"{time.process_time() - start:.0f} s")
    figures = {"networks": _beside("networks", networks, zoo), "lifting": _beside("lifting", lifted, LARGE)}
    supported.FIGURES.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    supported.PAGE.write_text(supported.page())


if __name__ == "__main__":
    main()
