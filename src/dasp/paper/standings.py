"""Where our estimators stand among all: the best of ours at each budget, and who is ahead of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dasp.evaluation import Result, front

__all__ = ["OURS", "Standing", "others_on_front", "standings"]

OURS = (
    "DASP", "DASP, full rank", "GradientDASP, rank 0", "GradientDASP",
    "BayesianShapley", "BayesianShapley on GradientDASP", "BayesianShapley on DASP",
    "Gradients at coalitions",
)  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """The best of ours with a budget of evaluations, and who is nearer to the truth."""

    budget: int
    best: Result
    quicker: list[Result]  # in less time per row, explaining all rows at once
    quicker_alone: list[Result]  # in less time, explaining a row by itself
    fewer: list[Result]  # within the budget


def standings(results: Sequence[Result], budgets: Sequence[int], ours: Collection[str] = OURS) -> list[Standing]:
    """Find the best of ours at each budget, and who is ahead of it in error and time, or in error and evaluations."""
    found = []
    for budget in budgets:
        within = [r for r in results if r.method in ours and r.evaluations <= budget]
        if not within:
            continue
        best = min(within, key=lambda r: r.rmse)
        nearer = [r for r in results if r.method not in (*ours, "Exact") and r.rmse < best.rmse]
        found.append(
            Standing(
                budget,
                best,
                [r for r in nearer if r.seconds <= best.seconds],
                [r for r in nearer if r.seconds_alone <= best.seconds_alone],
                [r for r in nearer if r.evaluations <= budget],
            )
        )
    return found


def others_on_front(results: Sequence[Result], ours: Collection[str] = OURS) -> list[Result]:
    """List results of others that nothing is both quicker and nearer than."""
    indices = front([(r.seconds, r.rmse) for r in results])
    return [results[i] for i in indices if results[i].method not in (*ours, "Exact")]
