"""An `attribute` call, understood: its games, the outputs it asks about, and how values become attributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dasp.games.arguments import Arguments, Tensors, games
from dasp.games.checks import check_function
from dasp.games.evaluator import Evaluator, rows_per_evaluation
from dasp.games.game import Game
from dasp.games.target import Selection

__all__ = ["Request", "yardstick"]

_CANCELLED = 1e-2


@dataclass(frozen=True)
class Request:
    """An `attribute` call, understood: its games, what is selected of the outputs, and the outputs at both ends, which
    are evaluated once."""

    function: Callable[..., Tensor]
    games: list[Game]
    selections: list[Selection]
    full: Tensor  # f(x), selected: (rows, *selected)
    empties: Tensor  # f of each baseline: (baselines, rows, *selected)
    grouped: bool  # whether the players were given by a mask

    @staticmethod
    def of(function: Callable[..., Tensor], arguments: Arguments, *, at_once: int | None = None) -> Request:
        """Check everything that can be wrong before any work is done. At most `at_once` rows are evaluated at once."""
        parts = games(arguments)
        check_function(function, parts[0], at_once or rows_per_evaluation(parts[0]))
        ends = [game.ends(function, at_once or rows_per_evaluation(game)) for game in parts]
        full, empties = torch.cat([end[0] for end in ends]), torch.cat([end[1] for end in ends], 1)
        whole = Selection.of(full, arguments.target)
        selections, start = [], 0
        for game in parts:
            selections.append(whole.rows(slice(start, start + game.rows)))
            start += game.rows
        return Request(function, parts, selections, whole(full), whole(empties), arguments.feature_mask is not None)

    @property
    def empty(self) -> Tensor:
        """f(baseline), averaged over the baselines: (rows, *selected)."""
        return self.games[0].averaged(self.empties)

    @property
    def total(self) -> Tensor:
        """f(x) − f(baseline), what the values of the players add up to."""
        return self.full - self.empty

    @property
    def players(self) -> int:
        """The number of players; of the most, if rows have players of their own."""
        return max(game.count for game in self.games)

    def parts(self) -> Iterator[tuple[slice, Game, Selection]]:
        """Each game with the rows it has, and what is selected of its outputs."""
        start = 0
        for game, select in zip(self.games, self.selections, strict=True):
            yield slice(start, start + game.rows), game, select
            start += game.rows

    def captum_targets(self) -> Iterator[Any]:
        """Captum's `target` for one selected output after the other, for all rows."""
        first = self.selections[0]
        return replace(first, chosen=torch.cat([select.chosen for select in self.selections])).captum_targets()

    def evaluators(self, at_once: int | None, progress: Any) -> Iterator[Evaluator]:
        """What evaluates coalitions, for each game."""
        for rows, game, select in self.parts():
            yield Evaluator(
                self.function, game, select, self.empty[rows].cpu().double(), self.full[rows].cpu().double(),
                at_once or rows_per_evaluation(game), progress,
            )  # fmt: skip

    def rows_of(self, part: Any) -> Request:
        """The request for some of the rows (a slice or indices), where all rows have the same players."""
        (game,), (select,) = self.games, self.selections
        full, empties = self.full[part], self.empties[:, part]
        return replace(self, games=[game.rows_of(part)], selections=[select.rows(part)], full=full, empties=empties)

    def beside_each_baseline(self) -> Request:
        """Put every row beside every baseline, as rows of their own; `averaged` undoes it."""
        number = len(self.empties)
        if number == 1:
            return self
        selections = [select.repeated(number) for select in self.selections]
        parts = list(self.parts())
        full = torch.cat([self.full[rows].repeat(number, *[1] * (self.full.dim() - 1)) for rows, _, _ in parts])
        empties = torch.cat([self.empties[:, rows].flatten(0, 1) for rows, _, _ in parts])[None]
        games = [game.beside_each_baseline() for game in self.games]
        return replace(self, games=games, selections=selections, full=full, empties=empties)

    def averaged(self, values: list[Tensor]) -> list[Tensor]:
        """Values of `beside_each_baseline`, (players, baselines · rows, *selected), averaged over the baselines."""
        number = len(self.empties)
        if number == 1:
            return values
        apart = [v.unflatten(1, (number, game.rows)) for v, game in zip(values, self.games, strict=True)]
        return [game.averaged(v.movedim(1, 0)) for v, game in zip(apart, self.games, strict=True)]

    def gaps(self, values: list[Tensor]) -> Tensor:
        """Σ values − (f(x) − f(baseline)), (rows, *selected)."""
        return torch.cat([v.sum(0) for v in values]) - self.total.to(values[0])

    def answer(self, values: list[Tensor]) -> Any:
        """Values (players, rows, *selected) of each game in the shape of the inputs: the result of `attribute`."""
        pieces = [game.attributions(v.movedim(0, -1)) for game, v in zip(self.games, values, strict=True)]
        joined = tuple(torch.cat(rows) for rows in zip(*pieces, strict=True))
        return joined[0] if self.games[0].single else joined

    def values_of(self, attributions: Tensors, *, whole: bool = True) -> list[Tensor]:
        """Attributions in the shape of the inputs as values of the players of each game, (players, rows, *selected) in
        float64 on the CPU; `whole` if every entry has the value of its player, else they are added up."""
        tensors = attributions if isinstance(attributions, tuple) else (attributions,)
        wanted = [(*self.full.shape, *mask.shape) for mask in self.games[0].masks]
        if [tuple(x.shape) for x in tensors] != wanted:
            raise ValueError(
                f"attributions (of a prior, say) have shape {', '.join(str(tuple(x.shape)) for x in tensors)}; "
                f"{', '.join(map(str, wanted))} is needed"
            )
        return [game.values_of(tuple(x[rows].detach() for x in tensors), whole=whole) for rows, game, _ in self.parts()]


def yardstick(total: Tensor, values: Tensor) -> Tensor:
    """What a tolerance is relative to: |f(x) − f(baseline)|, but at least 1 % of Σ|values| (players along dimension 0):
    a smaller difference is what contributions of both signs leave, and would ask for more than anyone wants."""
    return torch.maximum(total.abs(), _CANCELLED * values.abs().sum(0))
