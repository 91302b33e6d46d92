"""What the paper says about its experiments, and what was measured here."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dasp.evaluation import Result, evaluations_to_match
from dasp.experiments.comparison import Outcome, strongest
from dasp.plots.comparison import front

__all__ = [
    "BACKPROPAGATION",
    "OURS",
    "SAMPLING",
    "Claim",
    "Standing",
    "claims",
    "headline",
    "others_on_front",
    "standings",
]

BACKPROPAGATION = (
    "Saliency", "Gradient×Input", "Integrated Gradients", "ε-LRP",
    "DeepLIFT Rescale", "DeepLIFT RevealCancel", "DeepLIFT mixed",
)  # fmt: skip
SAMPLING = ("Shapley sampling", "KernelSHAP", "Permutations")
OURS = (
    "DASP", "DASP, full rank", "GradientDASP, rank 0", "GradientDASP",
    "BayesianShapley", "BayesianShapley on GradientDASP", "BayesianShapley on DASP",
)  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, what was found, and whether it holds here."""

    paper: str
    found: str
    holds: bool


def claims(outcome: Outcome) -> list[Claim]:
    """Those about one experiment."""
    by_name = strongest(outcome.results)
    found = [_quality(outcome)] if outcome.data.stands_in_for is None else []
    found += [_biased(by_name), _sampling(outcome.results, by_name["DASP"])]
    found += _further(outcome.experiment.name, by_name)
    return found


def _best(by_name: dict[str, Result], names: Iterable[str]) -> Result:
    return min((by_name[name] for name in names if name in by_name), key=lambda r: r.rmse)


def _quality(outcome: Outcome) -> Claim:
    found = ", ".join(f"{name} {value:.3f}" for name, value in outcome.quality.items())
    quality = outcome.quality
    if outcome.experiment.name == "parkinsons":
        said = "“4.0 test error (MSE)”; the authors' notebook shows MSE 35.06, MAE 4.43"
        return Claim(said, found, quality["test MAE"] <= 4.5)
    if outcome.experiment.name == "mnist":
        return Claim("98.7 % accuracy", found, quality["test accuracy"] >= 0.985)
    return Claim("the network finds the motifs (no figure given)", found, min(quality.values()) >= 0.95)


def _biased(by_name: dict[str, Result]) -> Claim:
    ours = by_name["DASP"]
    other = _best(by_name, (*BACKPROPAGATION, "Occlusion"))
    return Claim(
        "DASP is nearer to the Shapley values than every backpropagation method and Occlusion",
        f"DASP (K = {ours.number}) {ours.rmse:.3g}; the best of these, {other.method}, {other.rmse:.3g}",
        ours.rmse < other.rmse,
    )


def _sampling(results: list[Result], ours: Result) -> Claim:
    parts, holds = [], True
    for name in SAMPLING:
        needed = evaluations_to_match(results, name, ours.rmse)
        most = max((r for r in results if r.method == name), key=lambda r: r.evaluations)
        if needed is None:
            guess = most.evaluations * (most.rmse / ours.rmse) ** 2
            parts.append(f"{name} more than {most.evaluations:,} (about {_round(guess):,} if its error falls as 1/√n)")
        else:
            parts.append(f"{name} {_round(needed):,}")
            holds &= needed > ours.evaluations
    return Claim(
        "sampling needs significantly more evaluations than DASP for the same error",
        f"for DASP's {ours.rmse:.3g} ({ours.evaluations:,} evaluations, {ours.paper_evaluations:,} as the paper counts "
        f"them): {', '.join(parts)}",
        holds,
    )


def _further(name: str, by_name: dict[str, Result]) -> list[Claim]:
    """What is said about one experiment only."""
    dasp = by_name["DASP"]
    reached = f"RMSE {dasp.rmse:.3g}, Spearman {dasp.spearman:.3f} with K = {dasp.number}"
    if name == "parkinsons":
        said = "the authors' notebook: DASP with K = 18 has RMSE 0.8 and Spearman 0.97, DeepLIFT Rescale 3.2"
        rescale = by_name["DeepLIFT Rescale"]
        return [Claim(said, f"{reached}; Rescale {rescale.rmse:.3g} (another network, trained anew)", dasp.rmse <= 0.8)]
    if name == "dna":
        best = _best(by_name, BACKPROPAGATION)
        mixed = by_name["DeepLIFT mixed"]
        return [
            Claim(
                "DeepLIFT mixed is the best of the backpropagation methods",
                f"mixed {mixed.rmse:.3g}; the best is {best.method} with {best.rmse:.3g}",
                best.method == mixed.method,
            )
        ]
    kernel, sampling = by_name["KernelSHAP"], by_name["Shapley sampling"]
    return [
        Claim(
            "the authors' notebook: DASP with K = 16 has RMSE 0.011 and Spearman 0.965",
            f"{reached} (another network, trained anew)",
            dasp.rmse <= 0.011,
        ),
        Claim(
            "KernelSHAP is worse than plain sampling",
            f"KernelSHAP {kernel.rmse:.3g}, sampling {sampling.rmse:.3g} at {sampling.evaluations:,} evaluations",
            kernel.rmse > sampling.rmse,
        ),
    ]


@dataclass(frozen=True)
class Standing:
    """The best of ours with a budget of evaluations, and who is both quicker and nearer to the truth."""

    budget: int
    best: Result
    beaten_by: list[Result]


def standings(results: Sequence[Result], budgets: Sequence[int], ours: Collection[str] = OURS) -> list[Standing]:
    """For each budget: is the best of ours on the Pareto front of error against wall time?"""
    found = []
    for budget in budgets:
        within = [r for r in results if r.method in ours and r.evaluations <= budget]
        if within:
            best = min(within, key=lambda r: r.rmse)
            better = [r for r in results if r.method not in ours and r.seconds <= best.seconds and r.rmse < best.rmse]
            found.append(Standing(budget, best, better))
    return found


def others_on_front(results: Sequence[Result], ours: Collection[str] = OURS) -> list[Result]:
    """Results of others that nothing is both quicker and nearer than."""
    indices = front([(r.seconds, r.rmse) for r in results])
    return [results[i] for i in indices if results[i].method not in ours]


def headline(outcomes: list[Outcome]) -> list[dict[str, str]]:
    """A row for each kind of method, a column for each experiment: the smallest RMSE, whose it is, and the time."""
    kinds = {
        "best backpropagation": BACKPROPAGATION,
        "Occlusion": ("Occlusion",),
        "best sampling": SAMPLING,
        "DASP (the paper's)": ("DASP",),
        "best of ours": OURS,
    }
    table = []
    for kind, names in kinds.items():
        row = {"": kind}
        for outcome in outcomes:
            best = min((r for r in outcome.results if r.method in names), key=lambda r: r.rmse)
            row[outcome.experiment.name] = f"{best.rmse:.3g}, {best.milliseconds}" + (
                f": {best.method}" if len(names) > 1 else ""
            )
        table.append(row)
    return table


def _round(x: float) -> int:
    """To two digits."""
    return int(round(x, 1 - math.floor(math.log10(x))))
