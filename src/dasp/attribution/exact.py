"""Exact Shapley values by evaluating all 2^N coalitions.

Every coalition's output enters the value of every player once, with the weight (s−1)!(N−s)!/N! if the player is in it
and −s!(N−s−1)!/N! if not, s being its size; so values are accumulated batch by batch and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import comb
from typing import Any

import torch
from torch import Tensor

from dasp.attribution.base import Estimate, EvaluatedAttribution, Profile
from dasp.attribution.refinement import Refined, background_deviation, collected
from dasp.games.evaluator import MOST_KEPT, Evaluator
from dasp.games.idle_players import Active
from dasp.games.progress import working
from dasp.games.request import Arguments, Baselines, Request, Target, Tensors, check_positive
from dasp.models.calling import Output

__all__ = ["MOST_PLAYERS", "ExactShapley", "exact_values"]

MOST_PLAYERS = 25


class ExactShapley(EvaluatedAttribution):
    """The definition itself: for up to 25 players, and any callable.

    Args:
        forward_func: any callable, as in Captum.
        output: which of the model's results, if it returns several: a name or an index.

    >>> model = lambda x: x[:, 0] * x[:, 1]
    >>> ExactShapley(model).attribute(torch.tensor([[2.0, 3.0]]))
    tensor([[3., 3.]])
    """

    def __init__(self, forward_func: Callable[..., Any], *, output: Output = None) -> None:
        super().__init__(forward_func, output)

    @classmethod
    def profile(cls) -> Profile:
        """Return its cost: every coalition once."""
        return Profile(fixed=lambda game: 2**game.count, players=MOST_PLAYERS, error_bars=True, exact=True)

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        *,
        internal_batch_size: int | None = None,
        perturbations_per_eval: int | None = None,
        show_progress: bool = False,
        return_convergence_delta: bool = False,
        return_input_shape: bool = True,
    ) -> Any:
        """Return attributions in the shape of the inputs, or (batch, outputs, input) for all outputs with target=None.

        Args:
            inputs, baselines, target, additional_forward_args, feature_mask: as in `DASP.attribute`.
            internal_batch_size: the largest number of rows to evaluate at once.
            perturbations_per_eval: the same in Captum's way: that many times all rows of the inputs. With 1, the model
                may return anything for the batch as a whole, of which each entry's value is then that in all rows.
            show_progress: show a progress bar.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), which is rounding.
            return_input_shape: False for values by player, (batch, outputs, players), in the order of their numbers.
        """
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        return self._attribute(
            arguments, delta=return_convergence_delta, return_input_shape=return_input_shape,
            perturbations_per_eval=perturbations_per_eval, internal_batch_size=internal_batch_size,
            show_progress=show_progress,
        )  # fmt: skip

    def explain(
        self, request: Request, *, internal_batch_size: int | None = None, show_progress: bool | None = False
    ) -> Estimate:
        """Return the values of the players, without error; the options are those of `attribute`."""
        check_positive(internal_batch_size=internal_batch_size)
        active = Active.of(request, apart=True)
        most = max((game.count for game in active.request.games), default=0)
        if most > MOST_PLAYERS:
            raise ValueError(
                f"{most} players have 2^{most} coalitions, and ExactShapley evaluates at most 2^{MOST_PLAYERS}: group "
                "players with feature_mask, or use BayesianShapley or DASP"
            )
        evaluations = sum(game.rows * (2**game.count - 2) for game in active.request.games)
        with working("exact values", "evaluation", evaluations, show=show_progress) as progress:
            evaluators = active.request.evaluators(internal_batch_size, progress)
            return replace(collected(active, [exact_values(evaluator) for evaluator in evaluators]), missed=None)


def exact_values(evaluator: Evaluator) -> Refined:
    """Return the Shapley values of one game, what was evaluated, if it is not much, and how much the values depend on
    the choice of the baselines, if there are several."""
    game, n = evaluator.game, evaluator.game.count
    groups = len(evaluator.empties) if evaluator.sees_background else 1
    by_group = torch.empty(groups, n, *evaluator.full.shape, dtype=torch.float64)
    keeps = evaluator.full.numel() * 2**n <= MOST_KEPT
    worth = torch.empty(2**n if keeps else 0, *evaluator.full.shape, dtype=torch.float64)
    for part, rows in evaluator.slices():
        by_group[:, :, part] = _values(rows, worth[:, part], groups)
    values = by_group[0] if groups == 1 else evaluator.over_groups(by_group)
    values = values + (evaluator.total - values.sum(0)) / n  # rounding of the averages
    evaluated = None
    if keeps:
        number = torch.arange(2 ** (n - 1), 2**n - 1)  # those with the last player; their complements are without
        there, others = worth[number], worth[2**n - 1 - number]
        every = torch.full((game.rows,), len(number))
        halves = torch.stack([there - others, there + others]) / 2
        evaluated = evaluator.evaluated(_members(number, n), halves, every)
    return Refined(
        values.to(game.dtype).to(game.device), torch.zeros_like(values).to(game.dtype).to(game.device),
        torch.zeros(game.rows, dtype=torch.bool), torch.full((game.rows,), 2**n), evaluated,
        background_deviation(by_group).to(game.dtype).to(game.device) if groups > 1 else None,
    )  # fmt: skip


def _members(number: Tensor, players: int) -> Tensor:
    """The members of the coalitions with these numbers, bit by bit."""
    return (number[:, None] >> torch.arange(players) & 1).bool()


def _values(evaluator: Evaluator, kept: Tensor, groups: int) -> Tensor:
    """The values for each group of baselines, (groups, players, rows, *selected), from coalitions whose worth is also
    put into its place in what is `kept`, if that has any."""
    n = evaluator.game.count
    weights = torch.tensor([1 / (n * comb(n - 1, s)) for s in range(n)], dtype=torch.float64)
    # The worths of everybody and of nobody are known, and enter every value with 1/N.
    empties = evaluator.empties if groups > 1 else evaluator.empty[None]
    total = ((evaluator.full - empties) / n)[:, None].expand(groups, n, *evaluator.full.shape).clone()
    chunk = max(1, evaluator.at_once // evaluator.game.rows)
    for start in range(1, 2**n - 1, chunk):
        number = torch.arange(start, min(start + chunk, 2**n - 1))
        members = _members(number, n)
        size = members.sum(1, keepdim=True)
        # (s−1)!(N−s)!/N! = 1/(N·C(N−1, s−1)) for members, −1/(N·C(N−1, s)) for the others
        weight = torch.where(members, weights[(size - 1).clamp(min=0)], -weights[size.clamp(max=n - 1)])
        worth = evaluator.worth_by_group(members) if groups > 1 else evaluator.worth(members)[None]
        if len(kept):
            kept[number] = evaluator.over_groups(worth) if groups > 1 else worth[0]
        total += torch.einsum("mp,gm...->gp...", weight, worth)
    return total
