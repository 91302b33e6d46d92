"""BayesianShapley: start from an approximation, evaluate coalitions, converge to the exact values with error bars.

Any attributions (DASP's, above all) are the prior mean of a regression over coalitions; see `posterior` for the model,
`design` for the coalitions. Without a prior and with up to 64 players, the design begins with single players and
halves, and the game is a Gaussian process over coalitions (`process`); else it is KernelSHAP in pairs with leverage
sampling and a model of the third order interactions (`regression`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import torch
from captum.attr import Attribution
from torch import Tensor

from dasp.attribution.base import Estimate, EvaluatedAttribution, Profile, cost_of_prior
from dasp.attribution.bayesian.design import MOST_CHOSEN, Pairs, pair_count
from dasp.attribution.bayesian.posterior import FEWEST_PAIRS, Trust, posterior
from dasp.attribution.bayesian.priors import Prior, checked_prior, covariances, opens, prior_values, trust, with_prior
from dasp.attribution.bayesian.process import Regressions, regression_on
from dasp.attribution.bayesian.regression import Regression
from dasp.attribution.exact import exact_values
from dasp.attribution.refinement import Clock, Refined, background_deviation, collected, refined, stages
from dasp.formatting import INTERVAL, interval_of
from dasp.games.evaluator import MOST_KEPT, Evaluator, Missing
from dasp.games.game import Game
from dasp.games.idle_players import Active
from dasp.games.progress import working
from dasp.games.request import Arguments, Baselines, Request, Target, Tensors, check_positive, check_tolerance
from dasp.models.calling import Output

__all__ = ["FEWEST", "BayesianShapley", "hidden_by_failures"]

FEWEST = 2 + 2 * FEWEST_PAIRS  # evaluations
_FIRST_PAIRS, _GROWTH = 31, 2  # 64 evaluations, and twice as many pairs each time
_FOR_A_PLAYER = 1.5  # pairs, of a design that begins with single players
_CLEARLY = 0.5  # of the tolerance: standard deviations are hardly wrong by more than this
_LONG = 10.0  # seconds for a row
_MOST_OUTPUTS = 16  # outputs: for each of them, interactions are chosen and fitted
_NUMBERS_AT_ONCE = 2**24


class BayesianShapley(EvaluatedAttribution):
    """Shapley values from model evaluations on top of a prior, with standard deviations.

    Args:
        forward_func: any callable, as in Captum.
        prior: another attribution method (`GradientDASP(model)`, or `DASP(model, rank="full")` for few players),
            a tensor of attributions (every entry with the value of its player), or None for none. DASP's methods are
            trusted by what is known of their errors, other numbers less; data overrule both.
        prior_options: further arguments of the prior's `attribute`, such as {"nodes": 8}.
        output: which of the model's results, if it returns several: a name or an index.

    What depends on the number of players, evaluations and the seed alone (the coalitions, and the linear algebra on
    them) is kept for further calls, if it has room in 256 MB: keep the object to explain row after row.

    >>> from dasp import GradientDASP
    >>> model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).eval()
    >>> method = BayesianShapley(model, prior=GradientDASP(model))
    >>> attributions, std = method.attribute(torch.ones(2, 12), max_evaluations=100, return_std=True)
    >>> attributions.shape, std.shape
    (torch.Size([2, 12]), torch.Size([2, 12]))
    """

    def __init__(
        self,
        forward_func: Callable[..., Any],
        prior: Prior = None,
        *,
        prior_options: dict[str, Any] | None = None,
        output: Output = None,
    ) -> None:
        super().__init__(forward_func, output)
        self.prior = checked_prior(prior)
        self.prior_options = prior_options or {}
        self._regressions = Regressions()

    @property
    def _takes_batches(self) -> bool:
        return not isinstance(self.prior, Attribution)

    @classmethod
    def profile(cls, *, prior: Profile | None = None, prior_samples: Callable[[Game], int] = lambda _: 0) -> Profile:
        """Return its cost: an evaluation for each coalition, and a prior with its number of samples, if it has one."""
        return Profile(
            beforehand=cost_of_prior(prior, prior_samples),
            samples="max_evaluations",
            each=lambda _: 1,
            fewest=lambda game: min(FEWEST, 2**game.count),
            most=lambda game: 2**game.count,
            error_bars=True,
        )

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        *,
        max_evaluations: int = 2048,
        n_samples: int | None = None,
        max_seconds: float | None = None,
        tolerance: float | None = None,
        seed: int = 0,
        missing: Missing = "raise",
        internal_batch_size: int | None = None,
        perturbations_per_eval: int | None = None,
        show_progress: bool = False,
        return_std: bool = False,
        return_convergence_delta: bool = False,
        return_input_shape: bool = True,
    ) -> Any:
        """Return attributions in the shape of the inputs, or (batch, outputs, input) for all outputs with target=None,
        which cost no more evaluations than one. They always sum to f(input) − f(baseline).

        Args:
            inputs, baselines, target, additional_forward_args, feature_mask: as in `DASP.attribute`.
            max_evaluations: how many coalitions to evaluate per row, f(input) and f(baseline) included (each of them
                once for every row of a background). 2^N gives the exact values. A call evaluates some of them again
                (about ten, and one in a hundred), to see that the model is a function of each row by itself. With up to
                64 players, each output of a row gets a regression of its own, with the interactions that it is likely
                to have, from 2,050 on (0.4 to 2 seconds), and without a prior from 8N + 2 to 1,024 (some milliseconds).
            n_samples: Captum's name of max_evaluations, instead of it.
            max_seconds: stop when a row took so many seconds, all linear algebra included; not before there are
                10 evaluations. (This alone looks at the clock: all else is the same on every machine.)
            tolerance: stop with a row when its largest standard deviation is below this fraction of its largest
                attribution: with 0.05, the largest is known to ± 10 % (as 95 % intervals are). It counts from
                64 evaluations on, without a prior from 2N or 3N: before, nothing is known of some players.
            seed: for the choice of coalitions, which are the same for every row: a row's attributions do not depend on
                the rows beside it.
            missing: "raise" an error that names the first coalition without a finite value, or "drop" such coalitions
                and estimate without them. Where those that are left never tell two players apart, error bars are as
                wide as values are.
            internal_batch_size, perturbations_per_eval, show_progress: as in `ExactShapley.attribute`.
            return_std: also return posterior standard deviations, in the shape of the attributions. They are right for
                the players together; with fewer than 2N evaluations and a poor prior, the few largest values are pulled
                to the prior by more than their own standard deviation says. On trained networks that nothing was chosen
                by, 95 % intervals held 90 to 98 % of the values for 380 of 450 combinations of networks, priors and
                budgets, more for 65 and less for 5 (`benchmarks/calibration.py`).
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), which is rounding.
            return_input_shape: False for values by player, (batch, outputs, players), in the order of their numbers.
        """
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        return self._attribute(
            arguments, std=return_std, delta=return_convergence_delta, return_input_shape=return_input_shape,
            perturbations_per_eval=perturbations_per_eval,
            max_evaluations=max_evaluations if n_samples is None else n_samples, max_seconds=max_seconds,
            tolerance=tolerance, seed=seed, missing=missing, internal_batch_size=internal_batch_size,
            show_progress=show_progress,
        )  # fmt: skip

    def explain(
        self,
        request: Request,
        *,
        max_evaluations: int = 2048,
        max_seconds: float | None = None,
        tolerance: float | None = None,
        seed: int = 0,
        missing: Missing = "raise",
        internal_batch_size: int | None = None,
        show_progress: bool | None = False,
    ) -> Estimate:
        """Return the values of the players with their standard deviations; the options are those of `attribute`."""
        check_positive(max_evaluations=max_evaluations, internal_batch_size=internal_batch_size)
        check_tolerance(tolerance)
        clock = None if max_seconds is None else Clock(max_seconds * len(request.full))
        active = Active.of(request)
        fewest = max(map(self.profile().fewest, active.request.games), default=0)
        if max_evaluations < fewest:
            raise ValueError(f"max_evaluations must be at least {fewest}, not {max_evaluations}")
        before = prior_values(self.prior, self.prior_options, request)
        priors = [None] * len(active.parts) if before is None else active.select(before.values)
        most = sum(game.rows * (min(max_evaluations, 2**game.count) - 2) for game in active.request.games)
        early = tolerance is not None or clock is not None
        with working("BayesianShapley", "evaluation", most, at_most=early, show=show_progress) as progress:
            evaluators = list(active.request.evaluators(internal_batch_size, progress, missing))
            estimates = [
                _Estimate(evaluator, prior, trust(self.prior, evaluator.game), self._regressions, seed)
                for evaluator, prior in zip(evaluators, priors, strict=True)
            ]
            left, parts = sum(evaluator.game.rows for evaluator in evaluators), []
            for estimate in estimates:
                rows = estimate.evaluator.game.rows
                own = None if clock is None else clock.part(rows, left)
                parts.append(estimate.to(max_evaluations, tolerance, own))
                left -= rows
            found = collected(active, parts)
        return found if before is None else with_prior(found, before)


def hidden_by_failures(pairs: Pairs, answered: Pairs) -> Tensor:
    """Return the projection on the differences between players that a design shows, and the pairs of it that have
    values do not, (players, players): no chance, where these are more than the players."""
    hidden = answered.hidden()
    return hidden - pairs.hidden() if bool(hidden.any()) and len(answered) > pairs.players else torch.zeros_like(hidden)


@dataclass(frozen=True)
class _Estimate:
    """The posterior of one game; values are (players, rows, *selected)."""

    evaluator: Evaluator
    prior: Tensor | None
    trust: Trust
    regressions: Regressions
    seed: int

    @property
    def opening(self) -> bool:
        """True if the design begins with single players and halves."""
        return opens(self.evaluator.game.count, self.trust)

    def to(self, evaluations: int, tolerance: float | None, clock: Clock | None = None) -> Refined:
        """Refine the posterior up to a number of evaluations, to a tolerance, or for some time."""
        game = self.evaluator.game
        if evaluations >= 2**game.count and (clock is None or self._has_time_for_all(clock)):
            found = exact_values(self.evaluator)
            if bool(found.mean.isfinite().all()):  # else some coalitions are missing, and may be
                return found
        most = min((evaluations - 2) // 2, pair_count(game.count))
        if clock is not None and clock.seconds < _LONG * game.rows:
            most = min(most, MOST_CHOSEN)  # regressions on more have interactions that take seconds to choose
        at_once = max(1, _NUMBERS_AT_ONCE // (most * self.evaluator.total[0].numel()))
        parts = []
        for part, rows in game.slices(at_once):
            own = None if clock is None else clock.part(rows.rows, game.rows - part.start)
            parts.append(self._refined(most, torch.arange(game.rows)[part], tolerance, own))
        return Refined.cat(parts)

    def _has_time_for_all(self, clock: Clock) -> bool:
        """True if all coalitions take less than half of the time, by what the first ones take."""
        some = self._design(FEWEST_PAIRS).members
        before = clock.left
        self.evaluator.halves(some)
        return 2 ** (self.evaluator.game.count - 1) / len(some) * (before - clock.left) < clock.left / 2

    def _design(self, number: int) -> Pairs:
        return self.regressions.pairs(self.evaluator.game.count, number, self.seed, opening=self.opening)

    def _refined(self, most: int, rows: Tensor, tolerance: float | None, clock: Clock | None) -> Refined:
        players, total = self.evaluator.game.count, self.evaluator.total[rows]
        groups = len(self.evaluator.empties) if self.sees_background(most, total) else 1
        values = torch.empty(groups, 2, 0, *total.shape, dtype=torch.float64)
        whole = None if clock is not None else self._design(most)  # long ones take long: not if there may be no time

        def fitted(number: int, left: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal values
            done, pairs = values.shape[2], self._design(number) if whole is None else whole.first(number)
            own, members = self.evaluator.rows_of(rows[left]), pairs.members[done:]
            halves = own.halves_by_group(members) if groups > 1 else own.halves(members)[None]
            new = torch.full((groups, 2, number - done, *total.shape), torch.nan, dtype=torch.float64)
            if clock is not None:
                clock.sampled()
            new[:, :, :, left] = halves
            values = torch.cat([values, new], 2)
            return self._known(pairs, averaged(values[:, :, :, left]), rows[left])

        def averaged(by_group: Tensor) -> Tensor:
            return self.evaluator.over_groups(by_group) if groups > 1 else by_group[0]

        # Without a prior, fewer pairs than players say nothing of some of them, or nothing but of single players.
        each = _FOR_A_PLAYER if self.opening else 1 if self.prior is None else 0
        enough = max(_FIRST_PAIRS, ceil(each * players))
        first = min(most, enough if clock is None else FEWEST_PAIRS)
        numbers = stages(first, most, _GROWTH, tolerance, clock)
        found = refined(
            numbers, tolerance, len(rows), fitted, lambda done: 2 + 2 * done, clearly=_CLEARLY, clock=clock,
            fewest=enough,
        )  # fmt: skip
        if tolerance is not None and values.shape[2] < enough:
            found = replace(found, missed=torch.ones_like(found.missed))
        if len(rows) < self.evaluator.game.rows or values.numel() > 2 * MOST_KEPT:
            return found
        seen = (found.evaluations - 2) // 2  # pairs of each row
        pairs = self._design(int(seen.max())) if whole is None else whole.first(int(seen.max()))
        background = self._background(pairs, values, seen) if groups > 1 else None
        evaluated = self.evaluator.evaluated(pairs.members, averaged(values[:, :, : len(pairs)]).clone(), seen)
        return replace(found, evaluated=evaluated, background=background)

    def sees_background(self, pairs: int, total: Tensor) -> bool:
        """True if it is to be found out how much depends on the choice of the baselines: not on a prior, which is the
        same for all of them, and not if there would be too much to keep."""
        numbers = 2 * len(self.evaluator.empties) * pairs * total.numel()
        return self.evaluator.sees_background and self.prior is None and numbers <= 2 * MOST_KEPT

    def _background(self, pairs: Pairs, values: Tensor, numbers: Tensor) -> Tensor:
        """Standard deviations (players, rows, *selected) for the choice of the baselines, from values by groups of
        them, (groups, 2, pairs, rows, *selected), of which each row has a number."""
        totals = self.evaluator.full - self.evaluator.empties
        result = torch.empty(pairs.players, *totals.shape[1:], dtype=torch.float64)
        for number in numbers.unique().tolist():
            rows = (numbers == number).nonzero()[:, 0]
            regression = self.regressions.on(pairs.first(number), self.seed, opening=self.opening)
            by_group = [
                self._posterior(regression, halves[:, :number, rows], rows, total[rows], choose=False)[0]
                for halves, total in zip(values, totals, strict=True)
            ]
            result[:, rows] = background_deviation(torch.stack(by_group))
        return result

    def _known(self, pairs: Pairs, values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations (players, rows, *selected), by the pairs that have values."""
        there = values.isfinite().transpose(0, 2).flatten(2).all(2)  # (rows, pairs)
        if bool(there.all()):
            return self._posterior(self.regressions.on(pairs, self.seed, opening=self.opening), values, rows)
        mean, deviation = torch.empty(2, pairs.players, *values.shape[2:], dtype=values.dtype)
        patterns, which = torch.unique(there, dim=0, return_inverse=True)
        for i, pattern in enumerate(patterns):
            if int(pattern.sum()) < FEWEST_PAIRS:
                raise ValueError(
                    f"{int((~pattern).sum())} of {len(pattern)} pairs of coalitions have no finite value, and the "
                    f"others are too few to estimate from: at least {FEWEST_PAIRS} are needed"
                )
            own, answered = (which == i).nonzero()[:, 0], Pairs(pairs.members[pattern])
            regression = regression_on(answered, opening=self.opening)
            mean[:, own], deviation[:, own] = self._posterior(regression, values[:, pattern][:, :, own], rows[own])
            hidden = hidden_by_failures(pairs, answered)
            if bool(hidden.any()):
                deviation[:, own] = self._doubted(hidden, mean[:, own], deviation[:, own], rows[own])
        return mean, deviation

    def _doubted(self, hidden: Tensor, mean: Tensor, deviation: Tensor, rows: Tensor) -> Tensor:
        """Return standard deviations (players, rows, *selected) that know nothing of the hidden differences between
        players, however many coalitions there are: these may be as large as the values are, or, with a prior, as its
        errors, in all that is seen."""
        away = mean if self.prior is None else mean - self.prior[:, rows]
        seen = torch.eye(len(hidden), dtype=hidden.dtype) - hidden
        number = round(float(seen.trace()))
        size = torch.tensordot(seen, away, dims=1).square().sum(0) / number
        size = size * (interval_of(max(2, number)) / INTERVAL) ** 2  # which so many numbers tell
        share = hidden.diagonal().reshape(-1, *[1] * (mean.dim() - 1))
        return (deviation.square() + share * size).sqrt()

    def _posterior(
        self, regression: Regression, values: Tensor, rows: Tensor, total: Tensor | None = None, *, choose: bool = True
    ) -> tuple[Tensor, Tensor]:
        game = self.evaluator.game
        total = self.evaluator.total[rows] if total is None else total
        prior = torch.zeros(total.numel(), game.count, dtype=torch.float64)
        if self.prior is not None:
            prior = self.prior[:, rows].flatten(1).T
        errors = [] if self.prior is None else covariances(prior, game)
        differences, sums = values.flatten(2)
        chosen = sums if choose and total[0].numel() <= _MOST_OUTPUTS else None
        known = posterior(regression, differences, total.flatten(), prior, errors, self.trust, sums=chosen)
        return known.mean.T.unflatten(1, total.shape), known.deviation.T.unflatten(1, total.shape)
