"""An `attribute` call, understood: its games, the outputs it asks about, and how values become attributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dasp.games.arguments import Baselines, Target, Tensors, games
from dasp.games.game import Game
from dasp.games.target import Selection

__all__ = ["Question", "rows_per_evaluation", "worth", "yardstick"]

_MOST_ROWS, _MOST_ENTRIES = 2**14, 2**20
_CANCELLED = 1e-2


@dataclass(frozen=True)
class Question:
    """An `attribute` call, understood: its games, what is selected of the outputs, and the outputs at both ends."""

    games: list[Game]
    selections: list[Selection]
    full: Tensor  # f(x), selected: (rows, *selected)
    empty: Tensor  # f(baseline)

    @staticmethod
    def ask(
        function: Callable[..., Tensor],
        inputs: Tensors,
        baselines: Baselines,
        target: Target,
        additional_forward_args: Any,
        feature_mask: Tensors | None,
        *,
        background: bool = False,
        at_once: int | None = None,
    ) -> Question:
        """Check everything that can be wrong before any work is done. With `background`, many baselines may be given
        for every row: v(S) is the average over them. At most `at_once` rows are evaluated at once."""
        parts = games(inputs, baselines, feature_mask, additional_forward_args, background=background)
        ends = [game.ends(function, at_once or rows_per_evaluation(game)) for game in parts]
        full, empty = (torch.cat(rows) for rows in zip(*ends, strict=True))
        whole = Selection.of(full.shape, target)
        selections, start = [], 0
        for game in parts:
            selections.append(whole.rows(slice(start, start + game.rows)))
            start += game.rows
        return Question(parts, selections, whole(full), whole(empty))

    def answer(self, values: list[Tensor], return_convergence_delta: bool = False) -> Any:
        """Values (count, rows, *selected) of each game as the result of `attribute`."""
        pieces = [game.attributions(v.movedim(0, -1)) for game, v in zip(self.games, values, strict=True)]
        joined = tuple(torch.cat(rows) for rows in zip(*pieces, strict=True))
        result = joined[0] if self.games[0].single else joined
        if not return_convergence_delta:
            return result
        return result, torch.cat([v.sum(0) for v in values]) - (self.full - self.empty)


def worth(
    function: Callable[..., Tensor], game: Game, select: Selection, coalitions: Any, at_once: int, progress: Any
) -> Tensor:
    """v(S) for every row, in float64 on the CPU: (m, rows, *selected). The coalitions (m, players) are a tensor, or
    anything that gives slices of one."""
    result = torch.empty(len(coalitions), *select.chosen.shape, dtype=torch.float64)
    with torch.no_grad():
        for part, rows in game.slices(at_once):
            chunk = max(1, at_once // rows.rows)
            for start in range(0, len(coalitions), chunk):
                members = coalitions[start : start + chunk].to(game.device)
                outputs = rows.evaluate(function, members[:, None].expand(-1, rows.rows, -1))
                result[start : start + chunk, part] = select.rows(part)(outputs).cpu().double()
                progress.update(len(members) * rows.rows)
    return result


def rows_per_evaluation(game: Game) -> int:
    """How many rows to evaluate at once, unless the user says so."""
    return max(1, min(_MOST_ROWS, _MOST_ENTRIES // sum(mask.numel() for mask in game.masks)))


def yardstick(total: Tensor, values: Tensor) -> Tensor:
    """What a tolerance is relative to: |f(x) − f(baseline)|, but at least 1 % of Σ|values| (players along dimension 0):
    a smaller difference is what contributions of both signs leave, and would ask for more than anyone wants."""
    return torch.maximum(total.abs(), _CANCELLED * values.abs().sum(0))
