"""How far methods are from the Shapley values, against the evaluations and the time they take.

The truth is exact where 2^N evaluations can be afforded, else sampled by antithetic permutations, with its standard
error: an RMSE near that error says nothing.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from captum.attr import Attribution
from torch import Tensor, nn

from dasp.attribution.arguments import Baselines, Target
from dasp.attribution.exact import ExactShapley
from dasp.attribution.foreign import values_of
from dasp.attribution.permutation import PermutationShapley
from dasp.attribution.propagated import PropagatedAttribution
from dasp.attribution.question import Question
from dasp.methods import METHODS, Method
from dasp.metrics import rmse, spearman

__all__ = ["Problem", "Result", "compare", "evaluations_to_match", "table"]

_MOST_ENUMERATED = 20  # players


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
        """With the exact truth up to 20 players, else by permutations.

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
        question = _question(model, arguments)
        if len(question.games) > 1 or question.full.dim() > 1:
            raise ValueError("a comparison is of one output, with the same players in all rows")
        players = question.games[0].count
        if players <= _MOST_ENUMERATED:
            values = ExactShapley(model).attribute(**arguments, show_progress=show_progress)
            errors = torch.zeros_like(values)
        else:
            values, errors = PermutationShapley(model).attribute(
                **arguments, n_permutations=permutations, return_std=True, show_progress=show_progress
            )
        truth, error = (_by_player(x, question, inputs) for x in (values, errors))
        return Problem(model, arguments, truth, float(error.square().mean().sqrt()))


def _question(model: nn.Module, arguments: dict[str, Any]) -> Question:
    return Question.ask(model, **arguments, additional_forward_args=None, background=True)


def _by_player(attributions: Tensor, question: Question, inputs: Tensor) -> Tensor:
    (values,) = values_of(attributions, question, inputs)
    return values.T


@dataclass(frozen=True)
class Result:
    """How good one method was with one number of samples: means and standard deviations over rows (for Spearman's
    correlation, over those whose values are not all the same)."""

    method: str
    number: int | None  # of samples, steps, nodes or sizes
    evaluations: int  # per row
    paper_evaluations: int
    seconds: float  # per row
    rmse: float
    rmse_std: float
    spearman: float
    spearman_std: float


def compare(
    problem: Problem,
    methods: Iterable[str] = tuple(METHODS),
    budgets: Sequence[int] = (100, 1000),
    *,
    on_result: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Every method of the table, those that take samples with as many as each budget of evaluations allows; without
    those that the number of players or the budget forbids.

    >>> model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)).eval()
    >>> problem = Problem.of(model, torch.ones(3, 4))
    >>> [result.evaluations for result in compare(problem, ["Occlusion", "Permutations"], budgets=[20, 40])]
    [5, 20, 38]
    """
    question = _question(problem.model, problem.arguments)
    game = question.games[0]
    results = []
    for name in methods:
        method = METHODS[name]
        if not method.possible(game):
            continue
        numbers = [method.number(game, budget) for budget in budgets] if method.samples else [None]
        allowed = [number for number in dict.fromkeys(numbers) if number is not None or method.samples is None]
        for number in allowed:
            result = _measured(name, method, number, problem, question)
            results.append(result)
            on_result(result)
    return results


def _measured(name: str, method: Method, number: int | None, problem: Problem, question: Question) -> Result:
    attribution = method.on(problem.model, number)
    game, inputs = question.games[0], problem.arguments["inputs"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*did not reach the tolerance")
        if _traced(attribution.method):
            attribution.attribute(**problem.arguments)
        start = time.perf_counter()
        attributions = attribution.attribute(**problem.arguments)
        seconds = (time.perf_counter() - start) / len(inputs)
    values = _by_player(attributions, question, inputs)
    errors, ranks = rmse(values, problem.truth), spearman(values, problem.truth)
    ranks = ranks[~ranks.isnan()]  # of rows in which all values are the same
    return Result(
        name, number, method.cost(game, number), method.paper_cost(game, number), seconds,
        *(float(x) for x in (errors.mean(), errors.std(correction=0), ranks.mean(), ranks.std(correction=0))),
    )  # fmt: skip


def _traced(method: Attribution) -> bool:
    """Whether the first call takes longer, for tracing the model."""
    return isinstance(method, PropagatedAttribution) or isinstance(
        getattr(method, "prior", None), PropagatedAttribution
    )


def evaluations_to_match(results: list[Result], method: str, error: float) -> int | None:
    """The fewest evaluations with which a method's RMSE was at most `error`; None if it never was."""
    return min((r.evaluations for r in results if r.method == method and r.rmse <= error), default=None)


def table(results: list[Result], standard_error: float = 0.0) -> str:
    """Results as text, a line each.

    >>> print(table([Result("DASP", 4, 64, 32, 0.001, 0.5, 0.1, 0.9, 0.05)]))
    method                                  evaluations     paper        ms      RMSE         ±  Spearman         ±
    DASP (4)                                         64        32       1.0       0.5       0.1     0.900     0.050
    """
    columns = ("evaluations", "paper", "ms", "RMSE", "±", "Spearman", "±")
    lines = [f"{'method':38} {columns[0]:>12}" + "".join(f"{name:>10}" for name in columns[1:])]
    for r in results:
        name = r.method if r.number is None else f"{r.method} ({r.number})"
        lines.append(
            f"{name:38} {r.evaluations:12,}{r.paper_evaluations:10,}{r.seconds * 1e3:10.1f}{r.rmse:10.3g}"
            f"{r.rmse_std:10.2g}{r.spearman:10.3f}{r.spearman_std:10.3f}"
        )
    if standard_error:
        lines.append(f"standard error of the truth {standard_error:.2g}")
    return "\n".join(lines)
