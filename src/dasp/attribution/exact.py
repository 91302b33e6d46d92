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

from dasp.attribution.base import PlayerMethod
from dasp.games.arguments import Baselines, Target, Tensors, check_positive
from dasp.games.game import Game
from dasp.games.request import Question, rows_per_evaluation
from dasp.games.target import Selection

__all__ = ["ExactShapley"]

MOST_PLAYERS = 25


class ExactShapley(PlayerMethod):
    """The definition itself: for up to 25 players, and any callable.

    >>> model = lambda x: x[:, 0] * x[:, 1]
    >>> ExactShapley(model).attribute(torch.tensor([[2.0, 3.0]]))
    tensor([[3., 3.]])
    """

    def __init__(self, forward_func: Callable[..., Tensor]) -> None:
        super().__init__(forward_func)

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
        """Attributions in the shape of the inputs; the arguments are those of `DASP.attribute`, but several rows of
        baselines for one input row (or a number of rows that is neither 1 nor that of the inputs) are a background:
        what a coalition is worth is averaged over them. At most `internal_batch_size` rows are evaluated at once."""
        check_positive(internal_batch_size=internal_batch_size)
        given = (inputs, baselines, target, additional_forward_args, feature_mask)
        question = Question.ask(self.forward_func, *given, background=True, at_once=internal_batch_size)
        most = max(game.count for game in question.games)
        if most > MOST_PLAYERS:
            raise ValueError(
                f"{most} players have 2^{most} coalitions, and ExactShapley evaluates at most 2^{MOST_PLAYERS}: group "
                "players with feature_mask, or use BayesianShapley or DASP"
            )
        values = []
        evaluations = sum(game.rows << game.count for game in question.games)
        with tqdm(total=evaluations, desc="exact", disable=not show_progress) as progress:
            for game, select in zip(question.games, question.selections, strict=True):
                at_once = internal_batch_size or rows_per_evaluation(game)
                values.append(exact_values(self.forward_func, game, select, at_once, progress))
        return question.answer(values, return_convergence_delta)


def exact_values(function: Callable[..., Tensor], game: Game, select: Selection, at_once: int, progress: Any) -> Tensor:
    """The Shapley values of one game, (players, rows, *selected)."""
    result = torch.empty(game.count, *select.chosen.shape, dtype=torch.float64)
    with torch.no_grad():
        for part, rows in game.slices(at_once):
            result[:, part] = _values(function, rows, select.rows(part), at_once, progress)
    return result.to(game.dtype).to(game.device)


def _values(function: Callable[..., Tensor], game: Game, select: Selection, at_once: int, progress: Any) -> Tensor:
    n = game.count
    weights = torch.tensor([1 / (n * comb(n - 1, s)) for s in range(n)], dtype=torch.float64)
    bits = torch.arange(n)
    total = torch.zeros(n, *select.chosen.shape, dtype=torch.float64)
    chunk = max(1, at_once // game.rows)
    for start in range(0, 2**n, chunk):
        number = torch.arange(start, min(start + chunk, 2**n))
        members = (number[:, None] >> bits & 1).bool()
        outputs = game.evaluate(function, members.to(game.device)[:, None].expand(-1, game.rows, -1))
        size = members.sum(1, keepdim=True)
        # (s−1)!(N−s)!/N! = 1/(N·C(N−1, s−1)) for members, −1/(N·C(N−1, s)) for the others
        weight = torch.where(members, weights[(size - 1).clamp(min=0)], -weights[size.clamp(max=n - 1)])
        total += torch.tensordot(weight.T, select(outputs).cpu().double(), dims=1)
        progress.update(len(number) * game.rows)
    return total
