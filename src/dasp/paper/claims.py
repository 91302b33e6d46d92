"""What the paper says about its experiments, and what was measured here."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dasp.evaluation import Result, evaluations_to_match, front
from dasp.paper.outcome import Outcome, strongest

__all__ = [
    "BACKPROPAGATION", "OURS", "SAMPLING", "Claim", "Standing", "claims", "headline", "others_on_front", "standings",
]  # fmt: skip

BACKPROPAGATION = (
    "Saliency", "Gradient×Input", "Integrated Gradients", "ε-LRP",
    "DeepLIFT Rescale", "DeepLIFT RevealCancel", "DeepLIFT mixed",
)  # fmt: skip
SAMPLING = ("Shapley sampling", "KernelSHAP", "Permutations")
OURS = (
    "DASP", "DASP, full rank", "GradientDASP, rank 0", "GradientDASP",
    "BayesianShapley", "BayesianShapley on GradientDASP", "BayesianShapley on DASP",
)  # fmt: skip
_SIGNIFICANTLY = 2  # times as many evaluations


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, what was found, and whether it holds here; None where that was not measured."""

    paper: str
    found: str
    holds: bool | None


def claims(outcome: Outcome) -> list[Claim]:
    """Those about one experiment; figures can be compared only on the paper's own data."""
    results, by_name = outcome.results, strongest(outcome.results)
    real = outcome.data.stands_in_for is None
    found = [*(_quality(outcome) if real else []), _biased(by_name), _few_sizes(results)]
    said = f"sampling needs significantly more evaluations than DASP for the same error (here: {_SIGNIFICANTLY} times)"
    found.append(_sampling(said, results, by_name["DASP"]))
    ours = min((r for r in results if r.method == "GradientDASP"), key=lambda r: r.rmse, default=None)
    if ours is not None:
        found.append(_sampling("(not in the paper) the same of GradientDASP", results, ours))
    if outcome.experiment.name == "parkinsons" and real:
        said = "the authors' notebook: DASP with K = 18 has RMSE 0.8 and Spearman 0.97; DeepLIFT Rescale RMSE 3.2"
        found.append(_notebook(said, by_name["DASP"], 0.8, 0.97, f"; Rescale {by_name['DeepLIFT Rescale'].rmse:.3g}"))
    if outcome.experiment.name == "dna":
        found += [_mixed(by_name), _rank(results)]
    if outcome.experiment.name == "mnist":
        if real:
            said = "the authors' notebook: DASP with K = 16 has RMSE 0.011 and Spearman 0.965"
            found.append(_notebook(said, by_name["DASP"], 0.011, 0.965))
        found.append(_kernel(results))
    return found


def _best(by_name: dict[str, Result], names: Iterable[str]) -> Result:
    return min((by_name[name] for name in names if name in by_name), key=lambda r: r.rmse)


def _quality(outcome: Outcome) -> list[Claim]:
    quality = outcome.quality
    found = ", ".join(f"{name} {value:.3f}" for name, value in quality.items())
    if outcome.experiment.name == "parkinsons":
        mse = quality["test MSE"]
        return [
            Claim("“4.0 test error (MSE)”", f"MSE {mse:.1f}", mse <= 4),
            Claim("the authors' notebook: MAE 4.43, MSE 35.06", found, quality["test MAE"] <= 4.43 and mse <= 35.06),
        ]
    if outcome.experiment.name == "mnist":
        return [Claim("98.7 % accuracy", found, quality["test accuracy"] >= 0.987)]
    return [
        Claim("the network finds the motifs (no figure given; here: AUC of 0.95)", found, min(quality.values()) >= 0.95)
    ]


def _biased(by_name: dict[str, Result]) -> Claim:
    ours, other = by_name["DASP"], _best(by_name, (*BACKPROPAGATION, "Occlusion"))
    return Claim(
        "DASP is nearer to the Shapley values than every backpropagation method and Occlusion",
        f"DASP (K = {ours.number}) {ours.rmse:.3g}; the best of these, {other.method}, {other.rmse:.3g}",
        ours.rmse < other.rmse,
    )


def _few_sizes(results: Sequence[Result]) -> Claim:
    others = strongest([r for r in results if r.method in (*BACKPROPAGATION, "Occlusion")])
    least = min((r for r in results if r.method == "DASP"), key=lambda r: r.evaluations)
    other = min(others.values(), key=lambda r: r.rmse)
    return Claim(
        "so it is even when few coalition sizes are tested",
        f"K = {least.number}: {least.rmse:.3g}; {other.method} {other.rmse:.3g}",
        least.rmse < other.rmse,
    )


def _sampling(said: str, results: Sequence[Result], ours: Result) -> Claim:
    parts: list[str] = []
    verdicts: list[bool | None] = []
    for name in SAMPLING:
        own = sorted((r for r in results if r.method == name), key=lambda r: r.evaluations)
        if not own:
            continue
        needed = evaluations_to_match(results, name, ours.rmse)
        enough = _SIGNIFICANTLY * ours.evaluations
        if needed is not None:
            parts.append(f"{name} {_round(needed):,}")
            verdicts.append(needed >= enough)
            continue
        guess = _extrapolated(own, ours.rmse)
        parts.append(f"{name} more than {own[-1].evaluations:,}{guess}")
        verdicts.append(True if own[-1].evaluations >= enough else None)
    holds = False if False in verdicts else None if None in verdicts else True
    count = f"{ours.evaluations:,} evaluations"
    if ours.paper_evaluations != ours.evaluations:
        count += f", {ours.paper_evaluations:,} as the paper counts them"
    return Claim(said, f"for its {ours.rmse:.3g} ({count}): {', '.join(parts)}", holds)


def _extrapolated(own: list[Result], error: float) -> str:
    """How many evaluations it may take, if the error is falling."""
    if len(own) < 2 or own[-1].rmse >= own[-2].rmse:
        return ""
    return f" (about {_round(own[-1].evaluations * (own[-1].rmse / error) ** 2):,} if its error falls as 1/√n)"


def _notebook(said: str, dasp: Result, error: float, rank: float, more: str = "") -> Claim:
    found = f"RMSE {dasp.rmse:.3g}, Spearman {dasp.spearman:.3f} with K = {dasp.number}{more} (a network of our own)"
    return Claim(said, found, dasp.rmse <= error and dasp.spearman >= rank)


def _mixed(by_name: dict[str, Result]) -> Claim:
    best, mixed = _best(by_name, BACKPROPAGATION), by_name["DeepLIFT mixed"]
    return Claim(
        "DeepLIFT mixed is the best of the backpropagation methods",
        f"mixed {mixed.rmse:.3g}; the best is {best.method} with {best.rmse:.3g}",
        best.method == mixed.method,
    )


def _rank(results: Sequence[Result]) -> Claim:
    ours = strongest(results)["DASP"]
    kernel = [r for r in results if r.method == "KernelSHAP"]
    reached = [r.evaluations for r in kernel if r.spearman >= ours.spearman]
    most = max(r.evaluations for r in kernel)
    found = f"{min(reached):,}" if reached else f"more than {most:,}"
    known = reached or most >= _SIGNIFICANTLY * ours.evaluations
    return Claim(
        "KernelSHAP requires significantly more evaluations than DASP for the same rank correlation",
        f"for DASP's {ours.spearman:.3f} ({ours.evaluations:,} evaluations): {found}",
        min(reached, default=math.inf) >= _SIGNIFICANTLY * ours.evaluations if known else None,
    )


def _kernel(results: Sequence[Result]) -> Claim:
    """At the largest number of evaluations that both had."""
    kernel = strongest([r for r in results if r.method == "KernelSHAP"])["KernelSHAP"]
    within = [r for r in results if r.method == "Shapley sampling" and r.evaluations <= kernel.evaluations]
    said = "KernelSHAP is worse than plain sampling"
    if not within:
        return Claim(said, f"KernelSHAP {kernel.rmse:.3g} with {kernel.evaluations:,} evaluations", None)
    sampling = strongest(within)["Shapley sampling"]
    found = (
        f"KernelSHAP {kernel.rmse:.3g} with {kernel.evaluations:,} evaluations, sampling {sampling.rmse:.3g} with "
        f"{sampling.evaluations:,}"
    )
    return Claim(said, found, kernel.rmse > sampling.rmse)


@dataclass(frozen=True)
class Standing:
    """The best of ours with a budget of evaluations, and who is nearer to the truth."""

    budget: int
    best: Result
    quicker: list[Result]  # in less time per row, explaining all rows at once
    quicker_alone: list[Result]  # in less time, explaining a row by itself
    fewer: list[Result]  # within the budget


def standings(results: Sequence[Result], budgets: Sequence[int], ours: Collection[str] = OURS) -> list[Standing]:
    """For each budget: is the best of ours on the Pareto fronts of error against time and against evaluations?"""
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
    """Results of others that nothing is both quicker and nearer than."""
    indices = front([(r.seconds, r.rmse) for r in results])
    return [results[i] for i in indices if results[i].method not in (*ours, "Exact")]


def headline(outcomes: list[Outcome]) -> list[dict[str, str]]:
    """A row for each kind of method, a column for each experiment: the smallest RMSE, the time, and whose it is."""
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
            about = "≲ " if best.rmse < 2 * outcome.problem.standard_error else ""
            named = f": {best.method}" if len(names) > 1 else ""
            row[outcome.title] = f"{about}{best.rmse:.3g}, {best.time_text}{named}"
        table.append(row)
    return table


def _round(x: float) -> int:
    """To two digits."""
    return int(round(x, 1 - math.floor(math.log10(x))))
