"""Shapley values by random permutations: players join one after the other, and each gets what it adds.

Every permutation is unbiased; its reverse (antithetic) cancels much of its error, as it sees each player after the
complement of those who were before it (Mitchell et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

import torch
from torch import Tensor

from dasp.attribution.base import Estimate, EvaluatedAttribution, Profile
from dasp.attribution.refinement import Refined, collected, refined, stages
from dasp.games.call_options import check_replicates
from dasp.games.evaluator import Evaluator
from dasp.games.idle_players import Active
from dasp.games.progress import working
from dasp.games.request import Arguments, Baselines, Request, Target, Tensors, check_positive, check_tolerance
from dasp.models.calling import Output

__all__ = ["PermutationShapley"]

_FIRST = 4  # permutations before the standard error is looked at


class PermutationShapley(EvaluatedAttribution):
    """Shapley values by sampling permutations, for any callable.

    Args:
        forward_func: any callable, as in Captum.
        antithetic: walk every permutation backwards, too.
        output: which of the model's results, if it returns several: a name or an index.

    >>> model = lambda x: x[:, 0] * x[:, 1]
    >>> PermutationShapley(model).attribute(torch.tensor([[2.0, 3.0]]))
    tensor([[3., 3.]])
    """

    _unit = "permutations"

    def __init__(self, forward_func: Callable[..., Any], *, antithetic: bool = True, output: Output = None) -> None:
        super().__init__(forward_func, output)
        self.antithetic = antithetic

    @classmethod
    def profile(cls, *, antithetic: bool = True) -> Profile:
        """Return its cost: both ends, and the coalitions between them on every walk."""
        walks = 2 if antithetic else 1
        return Profile(
            fixed=lambda _: 2, samples="n_permutations", each=lambda game: walks * (game.count - 1), error_bars=True,
            replicates=True,
        )  # fmt: skip

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        *,
        n_permutations: int = 25,
        n_samples: int | None = None,
        tolerance: float | None = None,
        seed: int = 0,
        internal_batch_size: int | None = None,
        perturbations_per_eval: int | None = None,
        show_progress: bool = False,
        return_std: bool = False,
        return_convergence_delta: bool = False,
        return_input_shape: bool = True,
    ) -> Any:
        """Return attributions in the shape of the inputs, or (batch, outputs, input) for all outputs with target=None.
        They always sum to f(input) − f(baseline).

        Args:
            inputs, baselines, target, additional_forward_args, feature_mask: as in `BayesianShapley.attribute`.
            n_permutations: how many permutations to draw at most, the same for every row; each costs N − 1 evaluations,
                twice that if antithetic.
            n_samples: the same in Captum's way, instead of n_permutations: how often all players join one after the
                other. Antithetic permutations count twice, so that the cost is Captum's.
            tolerance: stop with a row when its largest standard error is below this fraction of its largest
                attribution: with 0.05, the largest is known to ± 10 % (as 95 % intervals are).
            seed: for the permutations.
            internal_batch_size, perturbations_per_eval, show_progress: as in `ExactShapley.attribute`.
            return_std: also return standard errors, in the shape of the attributions.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), which is rounding.
            return_input_shape: False for values by player, (batch, outputs, players), in the order of their numbers.
        """
        if n_samples is not None:
            check_positive(n_samples=n_samples)
            n_permutations = ceil(n_samples / 2) if self.antithetic else n_samples
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        return self._attribute(
            arguments, std=return_std, delta=return_convergence_delta, return_input_shape=return_input_shape,
            perturbations_per_eval=perturbations_per_eval, n_permutations=n_permutations, tolerance=tolerance,
            seed=seed, internal_batch_size=internal_batch_size, show_progress=show_progress,
        )  # fmt: skip

    def explain(
        self,
        request: Request,
        *,
        n_permutations: int = 25,
        tolerance: float | None = None,
        seed: int = 0,
        internal_batch_size: int | None = None,
        show_progress: bool | None = False,
    ) -> Estimate:
        """Return the values of the players with their standard errors; the options are those of `attribute`."""
        check_positive(n_permutations=n_permutations, internal_batch_size=internal_batch_size)
        check_tolerance(tolerance)
        if tolerance is not None:
            check_replicates(n_permutations, "permutations")
        active, each = Active.of(request), self.profile(antithetic=self.antithetic).each
        most = n_permutations * sum(game.rows * each(game) for game in active.request.games)
        sampled = working("PermutationShapley", "evaluation", most, at_most=tolerance is not None, show=show_progress)
        with sampled as progress:
            evaluators = active.request.evaluators(internal_batch_size, progress)
            found = collected(active, [self._sampled(e, n_permutations, tolerance, seed) for e in evaluators])
        return found if n_permutations > 1 else replace(found, std=None)  # one permutation says nothing of its error

    def _sampled(self, evaluator: Evaluator, most: int, tolerance: float | None, seed: int) -> Refined:
        """Means and standard errors, and what is to be said of each row."""
        players = evaluator.game.count
        generator = torch.Generator().manual_seed(seed)
        mean = torch.zeros(players, *evaluator.full.shape, dtype=torch.float64)
        squares = torch.zeros_like(mean)  # of the deviations from the mean (Welford)
        done = 0

        def estimate(number: int, left: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal done
            rows = evaluator.rows_of(left)
            block = max(1, evaluator.at_once // (players * len(left)))
            while done < number:
                orders = [torch.randperm(players, generator=generator) for _ in range(min(block, number - done))]
                for walk in self._walks(rows, orders):
                    done += 1
                    change = walk - mean[:, left]
                    mean[:, left] += change / done
                    squares[:, left] += change * (walk - mean[:, left])
            return mean[:, left], (squares[:, left] / (done * max(1, done - 1))).sqrt()

        profile, game = self.profile(antithetic=self.antithetic), evaluator.game
        fixed, each = profile.fixed(game), profile.each(game)
        numbers = stages(_FIRST, most, 2, tolerance)
        return refined(numbers, tolerance, evaluator.game.rows, estimate, lambda done: fixed + each * done)

    def _walks(self, evaluator: Evaluator, orders: list[Tensor]) -> list[Tensor]:
        """Return what every player adds in each of the permutations, (players, rows, *selected)."""
        paths = [path for order in orders for path in ((order, order.flip(0)) if self.antithetic else (order,))]
        ranks = torch.stack([torch.argsort(path) for path in paths])
        values = evaluator.worth(_Walks(ranks))
        results = []
        for rank, path in zip(ranks, values.unflatten(0, (len(ranks), evaluator.game.count - 1)), strict=True):
            results.append(torch.cat([evaluator.empty[None], path, evaluator.full[None]]).diff(dim=0)[rank])
        if not self.antithetic:
            return results
        return [(there + back) / 2 for there, back in zip(results[::2], results[1::2], strict=True)]


class _Walks:
    """The coalitions on the way from nobody to everybody in each permutation, without these ends; made when asked for,
    as each has N − 1 of them with N players."""

    def __init__(self, ranks: Tensor) -> None:
        self.ranks = ranks  # (permutations, players): when a player joins
        self.steps = ranks.shape[1] - 1

    def __len__(self) -> int:
        return len(self.ranks) * self.steps

    def __getitem__(self, part: slice) -> Tensor:
        number = torch.arange(len(self))[part]
        return self.ranks[number // self.steps] <= (number % self.steps)[:, None]
