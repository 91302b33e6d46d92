"""The claims of the paper about its experiments, whether they hold here, and where our estimators stand among all.

A claim that compares errors is decided by their means over the rows. If the mean of the differences, row by row, is
less than two of its standard errors, there are not enough rows to say; the noise of a sampled truth is part of these.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dasp.evaluation import Result, evaluations_to_match, front, rmse, spearman
from reproduction.comparison_methods import BACKPROPAGATION, OURS, SAMPLING, display_name
from reproduction.outcome import Outcome, largest_budgets

__all__ = ["Claim", "Standing", "claims", "described", "headline", "others_on_front", "standings"]

_SIGNIFICANTLY = 2  # times as many evaluations


@dataclass(frozen=True)
class Claim:
    """A statement of the paper with what was found here; `holds` is None if it cannot be said whether it holds."""

    paper: str
    found: str
    holds: bool | None
    lacking: str = "rows"  # or "evaluations": there are too few of them, if it cannot be said

    @property
    def verdict(self) -> str:
        """The answer to "does it hold?" in words."""
        return {True: "yes", False: "no", None: f"not enough {self.lacking} to say"}[self.holds]


def claims(outcome: Outcome) -> list[Claim]:
    """Check the claims about one experiment. Numbers are compared with the paper's only if the data are."""
    results, by_name, truth = outcome.results, largest_budgets(outcome.results), outcome.problem.truth
    real = outcome.data.stands_in_for is None
    found = [*(_quality(outcome) if real else []), _biased(by_name, truth), _few_sizes(results, truth)]
    said = f"sampling needs significantly more evaluations than DASP for the same error (here: {_SIGNIFICANTLY} times)"
    found.append(_sampling(said, results, by_name["dasp_rank_0"], truth))
    ours = min((r for r in results if r.method == "gradient_dasp"), key=lambda r: r.rmse, default=None)
    if ours is not None:
        found.append(_sampling("(not in the paper) the same of GradientDASP", results, ours, truth))
    if outcome.experiment.name == "parkinsons" and real:
        rescale = f"; Rescale {by_name['deeplift_rescale'].rmse:.3g}"
        found.append(_NOTEBOOKS["parkinsons"].compared(by_name["dasp_rank_0"], truth, rescale))
    if outcome.experiment.name == "dna":
        found += [_mixed(by_name, truth), _rank(results, truth)]
    if outcome.experiment.name == "mnist":
        if real:
            found.append(_NOTEBOOKS["mnist"].compared(by_name["dasp_rank_0"], truth))
        found.append(_kernel(results, truth))
    return found


def _sure(holds: bool, differences: Tensor) -> bool | None:
    """Return the verdict, or None if the differences it rests on, one for each row, may be chance: if their mean is
    less than two standard errors, or there is one row."""
    error = differences.std() / len(differences) ** 0.5 if len(differences) > 1 else torch.tensor(math.inf)
    return holds if bool(differences.mean().abs() >= 2 * error) else None


def _all(verdicts: Collection[bool | None]) -> bool | None:
    """Combine verdicts: False if one is False, else None if one is open."""
    return False if False in verdicts else None if None in verdicts else True


def _nearer(ours: Result, other: Result, truth: Tensor) -> bool | None:
    """Return True if a result is nearer to the truth than another; None if there are not enough rows to say."""
    return _sure(ours.rmse < other.rmse, rmse(other.attributions, truth) - rmse(ours.attributions, truth))


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


def _biased(by_name: dict[str, Result], truth: Tensor) -> Claim:
    ours, other = by_name["dasp_rank_0"], _best(by_name, (*BACKPROPAGATION, "occlusion"))
    return Claim(
        "DASP is nearer to the Shapley values than every backpropagation method and Occlusion",
        f"DASP (K = {ours.number}) {ours.rmse:.3g}; the best of these, {display_name(other.method)}, {other.rmse:.3g}",
        _nearer(ours, other, truth),
    )


def _few_sizes(results: Sequence[Result], truth: Tensor) -> Claim:
    others = largest_budgets([r for r in results if r.method in (*BACKPROPAGATION, "occlusion")])
    least = min((r for r in results if r.method == "dasp_rank_0"), key=lambda r: r.evaluations)
    other = min(others.values(), key=lambda r: r.rmse)
    return Claim(
        "so it is even when few coalition sizes are tested",
        f"K = {least.number}: {least.rmse:.3g}; {display_name(other.method)} {other.rmse:.3g}",
        _nearer(least, other, truth),
    )


def _sampling(said: str, results: Sequence[Result], ours: Result, truth: Tensor) -> Claim:
    parts: list[str] = []
    verdicts: list[bool | None] = []
    lacking = "evaluations"
    enough = _SIGNIFICANTLY * ours.evaluations
    for name in SAMPLING:
        own = sorted((r for r in results if r.method == name), key=lambda r: r.evaluations)
        if not own:
            continue
        needed = evaluations_to_match(results, name, ours.rmse)
        if needed is not None:
            parts.append(f"{display_name(name)} {_round(needed):,}")
            differences = _errors_with(own, enough, truth) - rmse(ours.attributions, truth)
            verdicts.append(_sure(needed >= enough, differences))
            lacking = "rows" if verdicts[-1] is None else lacking
        else:
            parts.append(f"{display_name(name)} more than {own[-1].evaluations:,}{_extrapolated(own, ours.rmse)}")
            verdicts.append(True if own[-1].evaluations >= enough else None)
    holds = _all(verdicts)
    count = f"{ours.evaluations:,} evaluations"
    if ours.paper_evaluations != ours.evaluations:
        count += f", {ours.paper_evaluations:,} as the paper counts them"
    return Claim(said, f"for its {ours.rmse:.3g} ({count}): {', '.join(parts)}", holds, lacking)


def _errors_with(own: Sequence[Result], evaluations: int, truth: Tensor) -> Tensor:
    """Estimate the error of each row with a number of evaluations, between measured numbers by a straight line in
    logarithms, beyond them by the nearest; `own` are the results of one method by increasing evaluations."""
    after = next((i for i, r in enumerate(own) if r.evaluations >= evaluations), len(own) - 1)
    more, less = own[after], own[max(after - 1, 0)]
    if more.evaluations == less.evaluations or more.evaluations <= evaluations:
        return rmse(more.attributions, truth)
    weight = math.log(evaluations / less.evaluations) / math.log(more.evaluations / less.evaluations)
    return rmse(less.attributions, truth) ** (1 - weight) * rmse(more.attributions, truth) ** weight


def _extrapolated(own: list[Result], error: float) -> str:
    """Say how many evaluations it may take, if the error is falling."""
    if len(own) < 2 or own[-1].rmse >= own[-2].rmse:
        return ""
    return f" (about {_round(own[-1].evaluations * (own[-1].rmse / error) ** 2):,} if its error falls as 1/√n)"


@dataclass(frozen=True)
class _Notebook:
    """The quality of DASP in the authors' notebook."""

    sizes: int  # K
    rmse: float
    spearman: float
    more: str = ""

    def compared(self, dasp: Result, truth: Tensor, more: str = "") -> Claim:
        """Compare DASP with the notebook. If it is worse with fewer sizes, there are not enough evaluations to say."""
        said = f"the authors' notebook: DASP with K = {self.sizes} has RMSE {self.rmse} and Spearman {self.spearman}"
        found = (
            f"RMSE {dasp.rmse:.3g}, Spearman {dasp.spearman:.3f} with K = {dasp.number}{more} (a network of our own)"
        )
        verdicts = (
            _sure(dasp.rmse <= self.rmse, rmse(dasp.attributions, truth) - self.rmse),
            _sure(dasp.spearman >= self.spearman, spearman(dasp.attributions, truth) - self.spearman),
        )
        holds = _all(verdicts)
        if not holds and (dasp.number or 0) < self.sizes:
            return Claim(said + self.more, found, None, "evaluations")
        return Claim(said + self.more, found, holds)


_NOTEBOOKS = {
    "parkinsons": _Notebook(18, 0.8, 0.97, "; DeepLIFT Rescale RMSE 3.2"),
    "mnist": _Notebook(16, 0.011, 0.965),
}


def _mixed(by_name: dict[str, Result], truth: Tensor) -> Claim:
    mixed = by_name["deeplift_mixed"]
    best, other = (_best(by_name, names) for names in (BACKPROPAGATION, set(BACKPROPAGATION) - {mixed.method}))
    return Claim(
        "DeepLIFT mixed is the best of the backpropagation methods",
        f"mixed {mixed.rmse:.3g}; the best is {display_name(best.method)} with {best.rmse:.3g}",
        _nearer(mixed, other, truth),
    )


def _rank(results: Sequence[Result], truth: Tensor) -> Claim:
    ours = largest_budgets(results)["dasp_rank_0"]
    kernel = sorted((r for r in results if r.method == "kernel_shap"), key=lambda r: r.evaluations)
    reached = next((r for r in kernel if r.spearman >= ours.spearman), None)
    last, enough = reached or kernel[-1], _SIGNIFICANTLY * ours.evaluations
    differences = spearman(last.attributions, truth) - spearman(ours.attributions, truth)
    known = reached is not None or last.evaluations >= enough
    return Claim(
        "KernelSHAP requires significantly more evaluations than DASP for the same rank correlation",
        f"for DASP's {ours.spearman:.3f} ({ours.evaluations:,} evaluations): "
        f"{'' if reached else 'more than '}{last.evaluations:,}",
        _sure(last.evaluations >= enough, differences) if known else None,
        "rows" if known else "evaluations",
    )


def _kernel(results: Sequence[Result], truth: Tensor) -> Claim:
    """Compare the two at the largest number of evaluations that both had."""
    kernel = largest_budgets([r for r in results if r.method == "kernel_shap"])["kernel_shap"]
    within = [r for r in results if r.method == "shapley_sampling" and r.evaluations <= kernel.evaluations]
    said = "KernelSHAP is worse than plain sampling"
    if not within:
        return Claim(said, f"KernelSHAP {kernel.rmse:.3g} with {kernel.evaluations:,} evaluations", None, "evaluations")
    sampling = largest_budgets(within)["shapley_sampling"]
    found = (
        f"KernelSHAP {kernel.rmse:.3g} with {kernel.evaluations:,} evaluations, sampling {sampling.rmse:.3g} with "
        f"{sampling.evaluations:,}"
    )
    return Claim(said, found, _nearer(sampling, kernel, truth))


def described(result: Result) -> str:
    """Return a result in words: the method with its error, evaluations and time.

    >>> described(Result("gradient_dasp", 4, 64, 64, 0.001, 0.5, 0.1, 0.9, 0.05))
    'GradientDASP (0.5 with 64, 1 ms)'
    """
    return f"{display_name(result.method)} ({result.rmse:.3g} with {result.evaluations:,}, {result.time_text})"


@dataclass(frozen=True)
class Standing:
    """The best of our estimators with a budget of evaluations, and the other methods that are nearer to the truth."""

    budget: int
    best: Result
    quicker: list[Result]  # in less time per row, explaining all rows at once
    quicker_alone: list[Result]  # in less time, explaining a row by itself
    fewer: list[Result]  # within the budget


def standings(results: Sequence[Result], budgets: Sequence[int], ours: Collection[str] = OURS) -> list[Standing]:
    """Find the best of our estimators at each budget, and the methods that are ahead of it in error and time, or in
    error and evaluations."""
    found = []
    for budget in budgets:
        within = [r for r in results if r.method in ours and r.evaluations <= budget]
        if not within:
            continue
        best = min(within, key=lambda r: r.rmse)
        nearer = [r for r in results if r.method not in (*ours, "exact_shapley") and r.rmse < best.rmse]
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
    """Return the results of other methods that are on the front of error against time."""
    indices = front([(r.seconds, r.rmse) for r in results])
    return [results[i] for i in indices if results[i].method not in (*ours, "exact_shapley")]


def headline(outcomes: list[Outcome]) -> list[dict[str, str]]:
    """Return a table of smallest errors with time and method: kinds of methods in rows, experiments in columns."""
    kinds = {
        "best backpropagation": BACKPROPAGATION,
        "Occlusion": ("occlusion",),
        "best sampling": SAMPLING,
        "DASP (the paper's)": ("dasp_rank_0",),
        "best of ours": OURS,
    }
    table = []
    for kind, names in kinds.items():
        row = {"": kind}
        for outcome in outcomes:
            best = min((r for r in outcome.results if r.method in names), key=lambda r: r.rmse)
            about = "≲ " if best.rmse < 2 * outcome.problem.standard_error else ""
            named = f": {display_name(best.method)}" if len(names) > 1 else ""
            row[outcome.title] = f"{about}{best.rmse:.3g}, {best.time_text}{named}"
        table.append(row)
    return table


def _round(x: float) -> int:
    """Round to two digits."""
    return int(round(x, 1 - math.floor(math.log10(x))))
