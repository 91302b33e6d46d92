"""Exact Shapley values by evaluating all 2^N coalitions.

Every coalition's output enters the value of every player once, with the weight (s−1)!(N−s)!/N! if the player is in it
and −s!(N−s−1)!/N! if not, s being its size; so values are accumulated batch by batch and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from dasp.attribution.base import Estimate, PlayerMethod, Profile
from dasp.games.evaluator import Evaluator
from dasp.games.idle_players import Active
from dasp.games.request import Arguments, Baselines, Request, Target, Tensors, check_positive
from dasp.models.calling import Output

__all__ = ["MOST_PLAYERS", "ExactShapley", "exact_values"]

MOST_PLAYERS = 25


class ExactShapley(PlayerMethod):
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
        show_progress: bool = False,
        return_convergence_delta: bool = False,
    ) -> Any:
        """Return attributions in the shape of the inputs, or (batch, outputs, input) for all outputs with target=None.

        Args:
            inputs, baselines, target, additional_forward_args, feature_mask: as in `DASP.attribute`.
            internal_batch_size: the largest number of rows to evaluate at once.
            show_progress: show a progress bar.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), which is rounding.
        """
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        return self._attribute(
            arguments, delta=return_convergence_delta, internal_batch_size=internal_batch_size,
            show_progress=show_progress,
        )  # fmt: skip

    def explain(
        self, request: Request, *, internal_batch_size: int | None = None, show_progress: bool = False
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
        with tqdm(total=evaluations, desc="exact", disable=not show_progress) as progress:
            evaluators = active.request.evaluators(internal_batch_size, progress)
            values = active.restored([exact_values(evaluator) for evaluator in evaluators])
        taken = [torch.full((game.rows,), self.profile().cost(game)) for game in active.request.games]
        evaluations = active.by_row(taken, 2 * len(request.empties))
        return Estimate(values, [torch.zeros_like(v) for v in values], evaluations=evaluations)


def exact_values(evaluator: Evaluator) -> Tensor:
    """Return the Shapley values of one game, (players, rows, *selected)."""
    game = evaluator.game
    result = torch.empty(game.count, *evaluator.full.shape, dtype=torch.float64)
    for part, rows in evaluator.slices():
        result[:, part] = _values(rows)
    return result.to(game.dtype).to(game.device)


def _values(evaluator: Evaluator) -> Tensor:
    n = evaluator.game.count
    weights = torch.tensor([1 / (n * comb(n - 1, s)) for s in range(n)], dtype=torch.float64)
    bits = torch.arange(n)
    # The worths of everybody and of nobody are known, and enter every value with 1/N.
    total = (evaluator.total / n).expand(n, *evaluator.full.shape).clone()
    chunk = max(1, evaluator.at_once // evaluator.game.rows)
    for start in range(1, 2**n - 1, chunk):
        number = torch.arange(start, min(start + chunk, 2**n - 1))
        members = (number[:, None] >> bits & 1).bool()
        size = members.sum(1, keepdim=True)
        # (s−1)!(N−s)!/N! = 1/(N·C(N−1, s−1)) for members, −1/(N·C(N−1, s)) for the others
        weight = torch.where(members, weights[(size - 1).clamp(min=0)], -weights[size.clamp(max=n - 1)])
        total += torch.tensordot(weight.T, evaluator.worth(members), dims=1)
    return total
