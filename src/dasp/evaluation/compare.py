"""Methods compared: how far they are from the Shapley values, against the evaluations and the time they take.

The truth is exact where 2^N evaluations can be afforded, else sampled by antithetic permutations, with its standard
error: an RMSE near that error says nothing. The metrics (`rmse`, `spearman`, `completeness_gap`) give
a number for each row.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from dasp.attribution.base import PlayerMethod
from dasp.attribution.exact import ExactShapley
from dasp.attribution.permutation import PermutationShapley
from dasp.formatting import display_name
from dasp.games.game import Game
from dasp.games.request import Arguments, Baselines, Request, Target
from dasp.methods import METHODS, Method, find

__all__ = [
    "Problem", "Result", "Trial", "compare", "completeness_gap", "evaluations_to_match", "front", "rmse", "spearman",
    "table", "trials",
]  # fmt: skip

_MOST_ENUMERATED = 20  # players
_REPEATS, _ENOUGH = 25, 0.3  # times, or seconds
TRUTH_SEED = 20_190_610  # other permutations than those of the methods that are compared with it


@dataclass(frozen=True)
class Problem:
    """A model, the rows and the output to explain, and their Shapley values (rows, players)."""

    model: nn.Module
    arguments: dict[str, Any]
    truth: Tensor
    standard_error: float  # root mean square over rows and players; 0 if the truth is exact

    @staticmethod
    def of(
        model: nn.Module,
        inputs: Tensor,
        baselines: Baselines = None,
        target: Target = None,
        feature_mask: Tensor | None = None,
        *,
        permutations: int = 1000,
        show_progress: bool = False,
    ) -> Problem:
        """Make a problem with the exact truth up to 20 players, else with a truth by permutations.

        >>> model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)).eval()
        >>> Problem.of(model, torch.ones(3, 4)).truth.shape
        torch.Size([3, 4])
        """
        arguments: dict[str, Any] = {
            "inputs": inputs,
            "baselines": baselines,
            "target": target,
            "feature_mask": feature_mask,
        }
        request = Request.of(model, Arguments.given(**arguments))
        if len(request.games) > 1 or request.full.dim() > 1:
            raise ValueError("a comparison is of one output, with the same players in all rows")
        if request.players <= _MOST_ENUMERATED:
            estimate = ExactShapley(model).explain(request, show_progress=show_progress)
        else:
            estimate = PermutationShapley(model).explain(
                request, n_permutations=permutations, seed=TRUTH_SEED, show_progress=show_progress
            )
        assert estimate.std is not None
        truth, error = (x[0].T.cpu().double() for x in (estimate.values, estimate.std))
        return Problem(model, arguments, truth, float(error.square().mean().sqrt()))

    def request(self) -> Request:
        """Return the request that an `attribute` call would make of the problem."""
        return Request.of(self.model, Arguments.given(**self.arguments))


@dataclass(frozen=True)
class Result:
    """The errors and costs of one method with one number of samples: means and standard deviations over rows (for
    Spearman's correlation, over those whose values are not all the same)."""

    method: str
    number: int | None  # the number of samples, steps, nodes or sizes; None if the method takes none
    evaluations: int  # per row
    paper_evaluations: int  # the same, as the paper counts them
    seconds: float  # per row, of all rows explained at once
    rmse: float
    rmse_std: float
    spearman: float
    spearman_std: float
    attributions: Tensor = field(default_factory=lambda: torch.empty(0), repr=False, compare=False)  # (rows, players)

    seconds_alone: float = math.nan  # the time of a row that is explained by itself
    seconds_first: float = math.nan  # the same the first time, with what is done once: tracing, designs of coalitions

    @property
    def time_text(self) -> str:
        """The time per row of a batch, as people read it."""
        number = self.seconds * 1e3
        return f"{number:,.0f} ms" if number >= 99.5 else f"{number:.2g} ms"

    def __str__(self) -> str:
        """The method with its error, evaluations and time."""
        return f"{display_name(self.method)} ({self.rmse:.3g} with {self.evaluations:,}, {self.time_text})"

    def numbers(self) -> dict[str, Any]:
        """Return all fields but the attributions."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.name != "attributions"}


@dataclass(frozen=True)
class Trial:
    """One method with one number of samples, to be run on a problem."""

    name: str
    method: Method
    number: int | None
    problem: Problem
    game: Game

    @property
    def cost(self) -> int:
        """The number of evaluations for a row."""
        return self.method.cost(self.game, self.number)

    def run(self) -> Result:
        """Explain all rows, and measure. Random numbers start anew; quick methods are timed several times."""
        attribution = self.method.on(self.problem.model, self.number)
        with torch.random.fork_rng():
            alone = self._call(attribution, _first_row(self.problem.arguments))
            _, first_time = _timed(alone, repeats=1)
            _, alone_time = _timed(alone)
            players, seconds = _timed(self._call(attribution, self.problem.arguments))
        values = players[0].T.cpu().double()
        errors, ranks = rmse(values, self.problem.truth), spearman(values, self.problem.truth)
        ranks = ranks[~ranks.isnan()]  # of rows in which all values are the same
        quality = (errors.mean(), errors.std(correction=0), ranks.mean(), ranks.std(correction=0))
        error, error_std, rank, rank_std = map(float, quality)
        return Result(
            self.name, self.number, self.cost, self.method.paper_cost(self.game, self.number),
            seconds / len(values), error, error_std, rank, rank_std, values, alone_time, first_time,
        )  # fmt: skip

    def _call(self, attribution: PlayerMethod, arguments: dict[str, Any]) -> Callable[[], list[Tensor]]:
        """Return the call that is timed: the method itself. Ours take f(x) and f(baseline) from the request, which is
        part of them; others evaluate what they need."""
        given = Arguments.given(**arguments)
        if isinstance(getattr(attribution, "method", attribution), PlayerMethod):
            return lambda: attribution.explain(Request.of(self.problem.model, given)).values
        request = Request.of(self.problem.model, given)
        return lambda: attribution.explain(request).values


def trials(
    problem: Problem, methods: Mapping[str, Method] | Iterable[str] = METHODS, budgets: Sequence[int] = (100, 1000)
) -> list[Trial]:
    """List the trials of methods on a problem: those that take samples with as many as each budget of evaluations
    allows; without those that the number of players or the budget forbids.

    Args:
        problem: the model, its rows and their Shapley values.
        methods: names in `dasp.methods.METHODS` (all of them by default), or methods of your own by name.
        budgets: numbers of evaluations for a row.
    """
    table = methods if isinstance(methods, Mapping) else {name: METHODS[name] for name in map(find, methods)}
    game = problem.request().games[0]
    result = []
    for name, method in table.items():
        if not method.possible(game):
            continue
        numbers = [method.number(game, budget) for budget in budgets] if method.samples else [None]
        allowed = [number for number in dict.fromkeys(numbers) if number is not None or method.samples is None]
        result += [Trial(name, method, number, problem, game) for number in allowed]
    return result


def compare(
    problem: Problem,
    methods: Mapping[str, Method] | Iterable[str] = METHODS,
    budgets: Sequence[int] = (100, 1000),
    *,
    on_result: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Run all `trials`, whose arguments are these; `on_result` is called with every result as soon as there is one.

    >>> model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)).eval()
    >>> problem = Problem.of(model, torch.ones(3, 4))
    >>> [result.evaluations for result in compare(problem, ["exact", "permutation"], budgets=[20, 40])]
    [16, 20, 38]
    """
    results = []
    for trial in trials(problem, methods, budgets):
        results.append(trial.run())
        on_result(results[-1])
    return results


def _timed(function: Callable[[], Any], repeats: int = _REPEATS) -> tuple[Any, float]:
    """Return the result of a function, and the median time of some calls; random numbers start anew."""
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < _ENOUGH:
        torch.manual_seed(0)
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return result, median(seconds)


def _first_row(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the first row alone."""
    rows = len(arguments["inputs"])

    def first(x: Any) -> Any:
        rowwise = isinstance(x, list) or (isinstance(x, Tensor) and x.dim() > 0)
        return x[:1] if rowwise and len(x) == rows and rows > 1 else x

    mask = arguments["feature_mask"]
    per_row = isinstance(mask, Tensor) and mask.dim() == arguments["inputs"].dim()
    shortened = {name: first(x) for name, x in arguments.items() if name != "feature_mask"}
    return {**shortened, "feature_mask": first(mask) if per_row else mask}


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the points that no other is at least as good as in both coordinates and better in one (less is better), by
    increasing first coordinate; of equal ones, all.

    >>> front([(1, 5), (2, 3), (3, 4), (4, 1)])
    [0, 1, 3]
    """
    order = sorted(range(len(points)), key=lambda i: points[i])
    best: list[int] = []
    for i in order:
        if not best or points[i][1] < points[best[-1]][1] or points[i] == points[best[-1]]:
            best.append(i)
    return best


def evaluations_to_match(results: Sequence[Result], method: str, error: float) -> float | None:
    """Return how many evaluations a method needs for an RMSE of `error`, between measured numbers by a straight line in
    logarithms; None if it never gets there.

    >>> measured = [Result("DASP", None, n, n, 0.0, rmse, 0.0, 1.0, 0.0) for n, rmse in [(10, 0.4), (40, 0.1)]]
    >>> evaluations_to_match(measured, "DASP", 0.2), evaluations_to_match(measured, "DASP", 0.05)
    (20.0, None)
    """
    points = sorted((r.evaluations, r.rmse) for r in results if r.method == method)
    for i, (evaluations, reached) in enumerate(points):
        if reached <= error:
            if i == 0 or reached == 0:
                return float(evaluations)
            before, worse = points[i - 1]
            fraction = math.log(worse / error) / math.log(worse / reached)
            return round(before * (evaluations / before) ** fraction, 6)
    return None


def table(results: list[Result], standard_error: float = 0.0) -> str:
    """Return results as text, a line each.

    >>> print(table([Result("DASP", 4, 64, 32, 0.001, 0.5, 0.1, 0.9, 0.05)]))
    method                                  evaluations     paper        ms      RMSE         ±  Spearman         ±
    DASP (4)                                         64        32       1.0       0.5       0.1     0.900     0.050
    """
    columns = ("evaluations", "paper", "ms", "RMSE", "±", "Spearman", "±")
    lines = [f"{'method':38} {columns[0]:>12}" + "".join(f"{name:>10}" for name in columns[1:])]
    for r in results:
        name = display_name(r.method) + ("" if r.number is None else f" ({r.number})")
        lines.append(
            f"{name:38} {r.evaluations:12,}{r.paper_evaluations:10,}{r.seconds * 1e3:10.1f}{r.rmse:10.3g}"
            f"{r.rmse_std:10.2g}{r.spearman:10.3f}{r.spearman_std:10.3f}"
        )
    if standard_error:
        lines.append(f"standard error of the truth {standard_error:.2g}")
    return "\n".join(lines)


def rmse(attributions: Tensor, truth: Tensor) -> Tensor:
    """Return the root mean squared error over the entries of each row.

    >>> rmse(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 4.0]]))
    tensor([1.4142])
    """
    return (attributions - truth).flatten(1).square().mean(1).sqrt()


def spearman(attributions: Tensor, truth: Tensor) -> Tensor:
    """Return Spearman's rank correlation over the entries of each row; ties share their average rank.

    >>> spearman(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[10.0, 30.0, 20.0]]))
    tensor([0.5000])
    """
    ranks = torch.stack([_ranks(attributions.flatten(1)), _ranks(truth.flatten(1))])
    ranks -= ranks.mean(2, keepdim=True)
    return (ranks.prod(0).sum(1) / ranks.square().sum(2).prod(0).sqrt()).to(attributions.dtype)


def _ranks(values: Tensor) -> Tensor:
    """Return average ranks along dimension 1."""
    values = values.contiguous()
    order = values.sort(1).values.contiguous()
    first, last = (torch.searchsorted(order, values, side=side) for side in ("left", "right"))
    return (first + last).double() / 2


def completeness_gap(attributions: Tensor, full: Tensor, empty: Tensor) -> Tensor:
    """Return Σ attributions − (f(x) − f(baseline)) of each row.

    >>> completeness_gap(torch.tensor([[1.0, 2.0]]), torch.tensor([4.0]), torch.tensor([0.5]))
    tensor([-0.5000])
    """
    return attributions.flatten(1).sum(1) - (full - empty)
